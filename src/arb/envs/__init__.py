"""D4RL's tasks on current MuJoCo, registered with Gymnasium, and any other Gymnasium environment by its id.

Importing this package registers `arb/hopper-v2`, `arb/walker2d-v2`, `arb/halfcheetah-v2`,
`arb/antmaze-{umaze,medium,large}-v2` and `arb/ant-goal-v0`, so that `gymnasium.make("arb.envs:arb/hopper-v2")` works
anywhere.
"""

import importlib
import re
from typing import Any

import gymnasium

from arb.envs.antmaze import MAZES
from arb.envs.locomotion import ROBOTS
from arb.envs.rollout import Limited, flat_vector, flattened
from arb.envs.state import State, restore_state, save_state
from arb.errors import DataError, EnvironmentFailure

__all__ = ["Limited", "State", "flat_vector", "flattened", "make", "restore_state", "save_state"]

LIMIT = 1000
"""Steps after which an episode ends where the environment sets no limit: an evaluation must come to an end."""
_TASK = re.compile(rf"(?:d4rl:)?({'|'.join(ROBOTS)}|antmaze-(?:{'|'.join(MAZES)}))(?:-[a-z-]+)?-v2")
"""D4RL names a task after its environment and its data: `hopper-medium-v2`, `antmaze-large-play-v2`."""


_TABLE: list[tuple[str, str, int, dict[str, Any]]] = [
    *((f"arb/{robot}-v2", "locomotion:Locomotion", 1000, {"robot": robot}) for robot in ROBOTS),
    *((f"arb/antmaze-{m.name}-v2", "antmaze:AntMaze", m.horizon, {"maze": m.name}) for m in MAZES.values()),
    ("arb/ant-goal-v0", "antmaze:AntGoal", 500, {}),
]
for _name, _entry_point, _horizon, _arguments in _TABLE:
    gymnasium.register(_name, f"arb.envs.{_entry_point}", max_episode_steps=_horizon, kwargs=_arguments)


def env_id(name: str) -> str:
    """The Gymnasium id of the environment of a D4RL task; any other name is an id already."""
    task = _TASK.fullmatch(name)
    return f"arb/{task[1]}-v2" if task else name


def make(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of a D4RL task (`hopper-medium-v2`) or of a Gymnasium id.

    `arguments` go to the environment, e.g. `render_mode="rgb_array"`. Episodes without a limit end after `LIMIT` steps.
    An environment that cannot be made is a `DataError`.
    """
    try:
        module, colon, bare = env_id(name).rpartition(":")
        if colon:
            importlib.import_module(module)
        if bare not in gymnasium.registry and not re.search(r"-v\d+$", bare):  # Gymnasium would guess one, and warn
            raise gymnasium.error.Error("it has no version: an environment is called NAME-v0, NAME-v1, ...")
        env = gymnasium.make(env_id(name), **arguments)
    except gymnasium.error.Error as problem:
        hint = "" if ":" in name else f"; if it is yours, name its module: --env my_module:{name}"
        raise DataError(f"environment {name!r}: {str(problem).rstrip('.')}{hint}") from None
    except (ModuleNotFoundError, ValueError, AttributeError) as problem:  # the last from MuJoCo, if MUJOCO_GL is wrong
        raise DataError(f"environment {name!r} cannot be made: {problem} (`arb doctor` checks this machine)") from None
    except Exception as problem:  # of its own code
        said = " ".join(str(problem).split())
        raise EnvironmentFailure(f"environment {name!r} cannot be made: {type(problem).__name__}: {said}") from problem
    if env.spec is None or env.spec.max_episode_steps is None:
        env = gymnasium.wrappers.TimeLimit(env, LIMIT)
    return env
