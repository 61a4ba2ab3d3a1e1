"""Put the simulator into a recorded state, step once, and find the recorded next state: the test of the physics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from arb.envs import antmaze
from arb.envs.antmaze import AntMaze, Maze
from arb.envs.locomotion import Locomotion
from arb.envs.simulation import drop_margin, load_spec, restore_capsule_inertia

Array = NDArray[Any]
RECORDED = Path(__file__).parent / "recorded"
CLIP = 10.0
"""Gym's hopper and walker2d clip observed velocities here; the files' states are those observations."""


def recorded(name: str) -> dict[str, Array]:
    return {key: np.array(value) for key, value in json.loads((RECORDED / f"{name}.json").read_text()).items()}


def step_from(env: Locomotion | AntMaze, qpos: Array, qvel: Array, action: Array) -> Array:
    env.set_state(qpos, qvel)
    return env.step(action)[0]


def assert_rounding(errors: Array) -> None:
    assert np.median(errors) < 1e-7
    assert np.quantile(errors, 0.99) < 5e-6


# Twenty recorded rows each, kept with the tests.


@pytest.mark.parametrize("robot", ["hopper", "walker2d", "halfcheetah"])
def test_recorded_locomotion_steps(robot: str) -> None:
    env, rows = Locomotion(robot), recorded(robot)
    errors, x_errors = [], []
    for qpos, qvel, action, after, x in zip(*(rows[key] for key in KEYS), strict=True):
        errors.append(np.abs(step_from(env, qpos, qvel, action) - after))
        x_errors.append(abs(env.data.qpos[0] - x[0]))
    assert_rounding(np.array(errors))
    assert np.max(x_errors) < 1e-8


KEYS = ("qpos", "qvel", "actions", "next_observations", "next_x")


@pytest.mark.parametrize("maze", ["umaze", "medium", "large"])
def test_recorded_antmaze_steps(maze: str) -> None:
    env, rows = AntMaze(maze), recorded(f"antmaze-{maze}")
    pairs = zip(rows["observations"], rows["actions"], rows["next_observations"], strict=True)
    errors = np.array([np.abs(step_from(env, obs[:15], obs[15:], action) - after) for obs, action, after in pairs])
    assert_rounding(errors)
    assert errors.max() < 1e-5


def with_model(env: Locomotion, spec: Any) -> Locomotion:
    env.model = spec.compile()
    env.data = mujoco.MjData(env.model)
    return env


def todays_inertia() -> Locomotion:
    spec = load_spec("hopper.xml")
    drop_margin(spec, "world")
    return with_model(Locomotion("hopper"), spec)


def todays_margin() -> Locomotion:
    if tuple(map(int, mujoco.__version__.split(".")[:2])) < (3, 5):
        pytest.skip("margins add up since MuJoCo 3.5")
    spec = load_spec("hopper.xml")
    restore_capsule_inertia(spec)
    return with_model(Locomotion("hopper"), spec)


def todays_feet() -> Locomotion:
    spec = load_spec("walker2d_v5.xml")  # both at friction 1.9
    restore_capsule_inertia(spec)
    return with_model(Locomotion("walker2d"), spec)


@pytest.mark.parametrize(
    ("change", "robot"), [(todays_inertia, "hopper"), (todays_margin, "hopper"), (todays_feet, "walker2d")]
)
def test_each_single_change_of_the_physics_is_noticed(change: Callable[[], Locomotion], robot: str) -> None:
    env, rows = change(), recorded(robot)
    columns = zip(*(rows[key] for key in KEYS[:4]), strict=True)
    errors = [np.abs(step_from(env, qpos, qvel, action) - after) for qpos, qvel, action, after in columns]
    assert (np.max(errors, axis=1) > 1e-5).any()


# The whole genuine excerpts, where they are at hand.


def excerpt(shared_data: Path, name: str) -> dict[str, Array]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(shared_data / "d4rl-excerpts" / name) as file:
        keys = [key for key in (*COLUMNS, "infos/qpos", "infos/qvel") if key in file]
        return {key: file[key][()] for key in keys}


COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def one_step(env: Locomotion, rows: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Rows tested, their errors, and the errors in x; the last row of an episode has no recorded x to compare."""
    tested = np.flatnonzero(~(rows["terminals"] | rows["timeouts"])[:-1])
    errors, x_errors = [], []
    for row in tested:
        after = step_from(env, rows["infos/qpos"][row], rows["infos/qvel"][row], rows["actions"][row])
        errors.append(np.abs(after - rows["next_observations"][row]))
        x_errors.append(abs(env.data.qpos[0] - rows["infos/qpos"][row + 1, 0]))
    return tested, np.array(errors), np.array(x_errors)


@pytest.mark.parametrize(("robot", "pairs", "clipped"), [("hopper", 909, 150), ("walker2d", 1998, 579)])
def test_excerpts_of_clipping_robots(shared_data: Path, robot: str, pairs: int, clipped: int) -> None:
    rows = excerpt(shared_data, f"{robot}_medium-v2.hdf5")
    tested, errors, x_errors = one_step(Locomotion(robot), rows)
    free = (np.abs(rows["infos/qvel"][tested]) < CLIP).all(1)
    assert (len(tested), (~free).sum()) == (pairs, clipped)
    assert_rounding(errors[free])
    assert errors[free].max() < 2e-5
    assert (errors[~free].max(1) > 1e-5).all()  # over all rows the test must fail, or it compares something else
    assert x_errors.max() < 1e-9


def test_excerpt_of_the_cheetah(shared_data: Path) -> None:
    rows = excerpt(shared_data, "halfcheetah_medium-v2.hdf5")
    _, errors, x_errors = one_step(Locomotion("halfcheetah"), rows)
    assert_rounding(errors)
    assert (errors.max(1) > 1e-5).sum() <= 40
    assert x_errors.max() < 1e-8


@pytest.mark.parametrize("robot", ["hopper", "walker2d"])
def test_carried_velocities_bring_every_row_to_rounding(shared_data: Path, robot: str) -> None:
    """A clipped entry is replaced by what the model reached at the end of the row before."""
    rows, env = excerpt(shared_data, f"{robot}_medium-v2.hdf5"), Locomotion(robot)
    over = rows["terminals"] | rows["timeouts"]
    errors, reached = [], None
    for row in range(len(over)):
        qvel = rows["infos/qvel"][row].copy()
        if reached is not None:
            at_clip = np.abs(qvel) >= CLIP
            qvel[at_clip] = reached[at_clip]
        after = step_from(env, rows["infos/qpos"][row], qvel, rows["actions"][row])
        errors.append(np.abs(after - rows["next_observations"][row]))
        reached = None if over[row] else env.data.qvel.copy()
    assert_rounding(np.array(errors))
    assert (np.max(errors, axis=1) > 1e-5).sum() <= 3


@pytest.mark.parametrize(("robot", "steps"), [("hopper", 1000), ("walker2d", 150)])
def test_open_loop_follows_the_recording(shared_data: Path, robot: str, steps: int) -> None:
    rows, env = excerpt(shared_data, f"{robot}_medium-v2.hdf5"), Locomotion(robot)
    over = np.flatnonzero(rows["terminals"] | rows["timeouts"]) + 1
    for first, stop in zip([0, *over[:-1]], over, strict=True):
        env.set_state(rows["infos/qpos"][first], rows["infos/qvel"][first])
        for row in range(first, min(stop, first + steps)):
            obs = env.step(rows["actions"][row])[0]
            assert np.abs(obs - rows["next_observations"][row]).max() < 1e-3


@pytest.mark.parametrize("robot", ["hopper", "walker2d", "halfcheetah"])
def test_recorded_rewards_are_ours(shared_data: Path, robot: str) -> None:
    rows, env = excerpt(shared_data, f"{robot}_medium-v2.hdf5"), Locomotion(robot)
    free = np.flatnonzero((np.abs(rows["infos/qvel"]) < CLIP).all(1) | (robot == "halfcheetah"))
    for row in free[:300]:
        env.set_state(rows["infos/qpos"][row], rows["infos/qvel"][row])
        _, reward, terminated, _, _ = env.step(rows["actions"][row])
        assert reward == pytest.approx(float(rows["rewards"][row]), abs=1e-5)
        assert terminated == bool(rows["terminals"][row])


MAZE_EXCERPTS = [
    ("umaze", "umaze", 0),
    ("umaze-diverse", "umaze", 0),
    ("medium-play", "medium", 10),
    ("large-play", "large", 10),
]


@pytest.mark.parametrize(("name", "maze", "off"), MAZE_EXCERPTS)
def test_excerpts_of_antmaze(shared_data: Path, name: str, maze: str, off: int) -> None:
    rows, env = excerpt(shared_data, f"antmaze-{name}-v0.hdf5"), AntMaze(maze)
    obs, after = rows["observations"], np.concatenate([rows["infos/qpos"], rows["infos/qvel"]], 1)
    tested = np.flatnonzero((obs[1:] == after[:-1]).all(1))
    errors = np.array([np.abs(step_from(env, obs[t, :15], obs[t, 15:], rows["actions"][t]) - after[t]) for t in tested])
    assert len(tested) == len(obs) - 2
    assert_rounding(errors)
    assert (errors.max(1) > 1e-5).sum() <= off


@pytest.mark.parametrize(("name", "maze", "off"), MAZE_EXCERPTS)
def test_antmaze_open_loop_stays_within_a_centimetre(shared_data: Path, name: str, maze: str, off: int) -> None:
    rows, env = excerpt(shared_data, f"antmaze-{name}-v0.hdf5"), AntMaze(maze)
    obs, after = rows["observations"], np.concatenate([rows["infos/qpos"], rows["infos/qvel"]], 1)
    (gap,) = np.flatnonzero((obs[1:] != after[:-1]).any(1))
    for first in (0, gap + 1):
        env.set_state(obs[first, :15], obs[first, 15:])
        for row in range(first, first + 50):
            env.step(rows["actions"][row])
            assert np.linalg.norm(env.data.qpos[:2] - after[row, :2]) < 0.01


def test_walls_are_where_the_recorded_ant_bumped_into_them() -> None:
    """Without walls, the rows that touch one come out wrong."""
    rows = recorded("antmaze-umaze")
    env = AntMaze("umaze")
    env.model = antmaze.build_model(Maze("open", ("RG",), 700))
    env.data = mujoco.MjData(env.model)
    pairs = zip(rows["observations"], rows["actions"], rows["next_observations"], strict=True)
    errors = np.array([np.abs(step_from(env, obs[:15], obs[15:], action) - after) for obs, action, after in pairs])
    assert (errors.max(1) > 1e-5).sum() == 8
