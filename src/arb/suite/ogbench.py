"""OGBench's single-task datasets: its own files where they are on this machine, else recorded by its scripted experts.

`ogbench:cube-single-play-singletask-v0` names a dataset and, without the word for its kind of data (`play`, `navigate`,
`noisy`), an environment of the package `ogbench`. Its manipulation tasks come with scripted experts and its mazes with
shortest ways, so a dataset can be recorded without network by the loop below. As in OGBench's files, data are recorded
without a task, and rewards and ends are put in afterwards by OGBench's own relabelling: since version 1.2 both belong
to the state in which an action is taken.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arb.data.fetch import cache_directory
from arb.data.formats import write_dataset
from arb.data.tasks import Task, task_of
from arb.errors import DataError
from arb.progress import progress
from arb.replay.dataset import Dataset

ROWS, EPISODE = 50_000, 1_000
"""Steps of a recorded dataset, and of an episode."""
KINDS = {"cube": "play", "scene": "play", "puzzle": "play", "pointmaze": "navigate"}
"""Environments that can be recorded, and the kind of data that is recorded in them."""
MAZE_NOISE, PLAN_NOISE, SMOOTHING = 0.5, 0.1, 0.5
"""Standard deviations of the noise on the direction of a walk and on a plan's actions, and how smooth the latter is."""
COLUMNS = ("observations", "actions", "terminals", "qpos", "button_states")


def ogbench_file(source: str, make: bool = True) -> Path:
    """The file of a dataset in D4RL's layout, in the cache; made on first use, or refused if it is not to be made."""
    task = task_of(source)
    if task is None:
        raise DataError(f"{source!r} is not a dataset of OGBench: write ogbench:cube-single-play-singletask-v0")
    path = cache_directory() / "ogbench" / f"{source.partition(':')[2]}.hdf5"
    if not path.exists():
        if not make:
            raise DataError(f"{source} is not made yet: 'arb data info {source}' makes it")
        steps, made_by = _steps(task)
        about = {"env": task.env, "ogbench": source, "made_by": made_by}
        write_dataset(path, replace(_relabelled(task, steps), provenance=about), compression=1)
    return path


def _steps(task: Task) -> tuple[dict[str, Any], str]:
    """Observations, actions, states and ends of trajectories, from OGBench's file or recorded here."""
    parts = task.name.partition(":")[2].split("-")
    name = "-".join([*parts[: parts.index("singletask")], parts[-1]])
    theirs = Path("~/.ogbench/data").expanduser() / f"{name}.npz"
    if theirs.is_file():
        with np.load(theirs, allow_pickle=False) as file:
            return {key: file[key] for key in COLUMNS if key in file.files}, f"OGBench's file {theirs.name}"
    robot = parts[0]
    if KINDS.get(robot, "") not in parts:
        can = ", ".join(f"{one}-...-{kind}" for one, kind in KINDS.items())
        raise DataError(f"{task.name} cannot be recorded here ({can} can): put OGBench's file at {theirs}")
    with progress(f"making {task.name}", ROWS) as tell, _seeded(0):
        steps = _walks(task, tell) if robot == "pointmaze" else _manipulation(task, tell)
    return steps, "recorded here by OGBench's scripted experts, not OGBench's file"


def _environment(task: Task, **arguments: Any) -> Any:
    try:
        import gymnasium
        import ogbench  # noqa: F401 - registers its environments

        return gymnasium.make(task.env.partition(":")[2], **arguments)
    except ImportError:
        raise DataError(f"{task.name} needs OGBench: pip install 'arb-rl[ogbench]'") from None


def _manipulation(task: Task, tell: Any) -> dict[str, Any]:
    from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
    from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
    from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
    from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

    free = {"terminate_at_goal": False, "mode": "data_collection", "max_episode_steps": EPISODE, "reward_task_id": None}
    env = _environment(task, **free, visualize_info=False)
    kinds = {"cube": CubePlanOracle, "button": ButtonPlanOracle, "drawer": DrawerPlanOracle, "window": WindowPlanOracle}
    experts = {name: kind(env=env, noise=PLAN_NOISE, noise_smoothing=SMOOTHING) for name, kind in kinds.items()}

    def act(obs: Any, info: dict[str, Any], state: dict[str, Any]) -> Any:
        if state.get("expert") is None or state["expert"].done:
            if state:
                obs, info = env.unwrapped.set_new_target()
            state["expert"] = experts[info["privileged/target_task"]]
            state["expert"].reset(obs, info)
        return np.clip(state["expert"].select_action(obs, info), -1.0, 1.0)

    return _recorded(env, act, tell)


def _walks(task: Task, tell: Any) -> dict[str, Any]:
    env = _environment(task, terminate_at_goal=False, max_episode_steps=EPISODE)
    maze = env.unwrapped
    free = [tuple(cell) for cell in np.argwhere(maze.maze_map == 0)]
    rng = np.random.default_rng(0)

    def anywhere() -> Any:
        return np.array(maze.ij_to_xy(free[rng.integers(len(free))]))

    def act(_: Any, __: dict[str, Any], state: dict[str, Any]) -> Any:
        if not state:
            maze.set_xy(anywhere())
        place = maze.get_xy()
        if not state or np.linalg.norm(place - state["goal"]) < 1.0:
            state["goal"] = anywhere()
        way = maze.get_oracle_subgoal(place, state["goal"])[0] - place
        direction = way / max(float(np.linalg.norm(way)), 1e-6)
        return np.clip(direction + MAZE_NOISE * rng.standard_normal(2), -1.0, 1.0)

    return _recorded(env, act, tell)


def _recorded(env: Any, act: Any, tell: Any) -> dict[str, Any]:
    """Episodes of `EPISODE` steps, with the state before every step; the last row of each only ends it."""
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    inner = env.unwrapped
    for number in range(max(1, ROWS // EPISODE)):
        obs, info = env.reset(seed=number)
        state: dict[str, Any] = {}
        for step in range(EPISODE):
            action = np.asarray(act(obs, info, state), np.float32)
            if step == 0:
                obs = inner.get_ob() if hasattr(inner, "get_ob") else inner.compute_observation()
            rows["observations"].append(np.asarray(obs, np.float32))
            rows["actions"].append(action)
            rows["terminals"].append(step == EPISODE - 1)
            rows["qpos"].append((inner.data if hasattr(inner, "data") else inner._data).qpos.copy())
            rows["button_states"].append(np.array(getattr(inner, "_cur_button_states", ())))
            obs, _, _, _, info = env.step(action)
        tell((number + 1) * EPISODE)
    return {name: np.asarray(column) for name, column in rows.items()}


def _relabelled(task: Task, steps: dict[str, Any]) -> Dataset:
    """With the rewards and ends of the task; the last state of a trajectory is only a final observation."""
    from ogbench.relabel_utils import relabel_dataset

    with _seeded(0):
        relabel_dataset(task.name.partition(":")[2], _environment(task), steps)
    ends = np.asarray(steps["terminals"], bool)
    return Dataset(
        observations=steps["observations"][~ends],
        actions=steps["actions"][~ends],
        rewards=np.asarray(steps["rewards"], np.float32)[~ends],
        terminals=np.asarray(steps["masks"])[~ends] == 0,
        lengths=np.diff(np.flatnonzero(ends), prepend=-1) - 1,
        final_observations=steps["observations"][ends],
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """OGBench draws from NumPy's global generator: with a seed meanwhile, as it was afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
