"""D4RL's tasks on today's MuJoCo, registered with Gymnasium, and any other Gymnasium environment by its id.

Importing this package registers `arb/hopper-v2`, `arb/walker2d-v2`, `arb/halfcheetah-v2` and
`arb/antmaze-{umaze,medium,large}-v2` and `arb/ant-goal-v0`, so that
`gymnasium.make("arb.envs:arb/hopper-v2")` works anywhere.
"""

import importlib
import re
from typing import Any

import gymnasium

from arb.data.tasks import TASKS
from arb.envs.locomotion import ROBOTS
from arb.envs.maze import MAZES
from arb.envs.observations import flat_vector, flattened
from arb.envs.state import State, restore_state, save_state
from arb.errors import DataError

__all__ = ["State", "flat_vector", "flattened", "make", "register", "restore_state", "save_state"]


LIMIT = 1000
"""Steps after which an episode ends where the environment sets no limit: an evaluation must come to an end."""


def register() -> None:
    """Tell Gymnasium about the environments of this project; a second call changes nothing."""
    for robot in ROBOTS:
        _register(f"arb/{robot}-v2", "arb.envs.locomotion:Locomotion", 1000, robot=robot)
    for maze in MAZES.values():
        _register(f"arb/antmaze-{maze.name}-v2", "arb.envs.antmaze:AntMaze", maze.horizon, maze=maze.name)
    _register("arb/ant-goal-v0", "arb.envs.antgoal:AntGoal", 500)


def _register(name: str, entry_point: str, horizon: int, **arguments: Any) -> None:
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point, max_episode_steps=horizon, kwargs=arguments)


def make(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of a task (`hopper-medium-v2`) or of a Gymnasium id.

    `arguments` go to the environment, e.g. `render_mode="rgb_array"`. Episodes without a limit end after `LIMIT` steps.
    One that cannot be made is a `DataError`.
    """
    task = TASKS.get(name.removeprefix("d4rl:"))
    try:
        _refuse_without_version(task.env if task else name)
        env = gymnasium.make(task.env if task else name, **arguments)
    except gymnasium.error.Error as problem:
        raise DataError(f"environment {name!r}: {problem}") from None
    except (ModuleNotFoundError, ValueError, AttributeError) as problem:  # the last from MuJoCo, if MUJOCO_GL is wrong
        raise DataError(f"environment {name!r} cannot be made: {problem} (`arb doctor` checks this machine)") from None
    if env.spec is None or env.spec.max_episode_steps is None:
        env = gymnasium.wrappers.TimeLimit(env, LIMIT)
    return env


def _refuse_without_version(name: str) -> None:
    """Gymnasium would take the newest version, warn, and then not find the environment under the name it was given."""
    module, colon, bare = name.rpartition(":")
    if colon:
        importlib.import_module(module)
    if bare in gymnasium.registry or re.search(r"-v\d+$", bare):
        return
    versions = [known for known in gymnasium.registry if re.fullmatch(rf"{re.escape(bare)}-v\d+", known)]
    newest = max(versions, key=lambda known: int(known.rpartition("-v")[2]), default="")
    hint = f"did you mean {module}{colon}{newest}?" if newest else "an environment is called NAME-v0, NAME-v1, ..."
    raise gymnasium.error.Error(f"it has no version: {hint}")


register()
