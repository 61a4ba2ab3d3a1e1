"""The acceptance checks of AntMaze that concern the task rather than the physics."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arb.envs
from arb.data import TASKS, normalised
from arb.envs.antmaze import MAZES, AntMaze, reached

GOALS = {"umaze": (0, 8), "medium": (20, 20), "large": (32, 24)}


@pytest.fixture(scope="module")
def umaze() -> AntMaze:
    env = AntMaze("umaze")
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("name", MAZES)
def test_walls_fill_their_cells_and_no_other(name: str) -> None:
    maze, env = MAZES[name], AntMaze(name)
    walls = {
        tuple(geom.pos[:2]) for geom in map(env.model.geom, range(env.model.ngeom)) if geom.name.startswith("wall")
    }
    assert walls == {tuple(maze.centre(*cell)) for cell in maze.find("#")}
    for kind in ".RG":
        assert not walls & {tuple(maze.centre(*cell)) for cell in maze.find(kind)}
    corner = env.model.geom("wall_0_0")
    np.testing.assert_array_equal(corner.pos, [-4, -4, 1])
    np.testing.assert_array_equal(corner.size, [2, 2, 1])


@pytest.mark.parametrize(("name", "goal"), GOALS.items())
def test_the_goal_cell(name: str, goal: tuple[int, int]) -> None:
    (cell,) = MAZES[name].find("G")
    np.testing.assert_array_equal(MAZES[name].centre(*cell), goal)


def test_the_umaze_turns_at_the_far_side() -> None:
    maze = MAZES["umaze"]
    walls = {tuple(maze.centre(*cell)) for cell in maze.find("#")}
    assert (0, 4) in walls
    assert (8, 4) not in walls


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(MAZES)))
def test_goals_lie_within_one_and_a_half_metres_of_the_centre(seed: int, name: str) -> None:
    offset = MAZES[name].draw_goal(np.random.default_rng(seed)) - GOALS[name]
    assert ((offset >= 0) & (offset < 1.5)).all()


def test_resets_are_drawn_as_d4rl_draws_them(umaze: AntMaze) -> None:
    first = [umaze.reset() for _ in range(1000)]
    obs = np.array([entry[0] for entry in first])
    goals = np.array([entry[1]["goal"] for entry in first])
    assert (np.abs(obs[:, [0, 1, *range(7, 15)]]) <= 0.1).all()
    assert ((obs[:, 2] >= 0.65) & (obs[:, 2] <= 0.85)).all()
    np.testing.assert_allclose(np.linalg.norm(obs[:, 3:7], axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(obs[:, 15:].mean(0), 0, atol=0.02)
    np.testing.assert_allclose(obs[:, 15:].std(0), 0.1, atol=0.01)
    np.testing.assert_allclose((goals - [0, 8]).mean(0), 0.75, atol=0.05)
    assert len(np.unique(goals, axis=0)) == 1000


def test_a_step_is_a_tenth_of_a_second_and_shows_the_full_state(umaze: AntMaze) -> None:
    umaze.reset(seed=1)
    obs, *_ = umaze.step(np.zeros(8))
    assert umaze.data.time == pytest.approx(0.1)
    np.testing.assert_array_equal(obs, [*umaze.data.qpos, *umaze.data.qvel])
    np.testing.assert_array_equal(umaze.data.ctrl, 0)


def test_actions_are_clipped_then_scaled_to_torques(umaze: AntMaze) -> None:
    results = []
    for size in (1.0, 2.0):
        umaze.reset(seed=1)
        results.append(umaze.step(np.full(8, size))[0])
        np.testing.assert_array_equal(umaze.data.ctrl, 30)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(("distance", "success"), [(0.1, True), (1.0, False)])
def test_reward_and_end_only_at_the_goal(umaze: AntMaze, distance: float, success: bool) -> None:
    umaze.reset(seed=2)
    qpos = umaze.model.qpos0.copy()
    qpos[:2] = umaze.goal - [distance, 0]
    umaze.set_state(qpos, np.zeros(14))
    _, reward, terminated, truncated, info = umaze.step(np.zeros(8))
    assert (reward, terminated, truncated, info["success"]) == (float(success), success, False, success)


def test_the_goal_is_marked_where_it_is(umaze: AntMaze) -> None:
    _, info = umaze.reset(seed=5)
    np.testing.assert_array_equal(umaze.data.site("goal").xpos[:2], info["goal"])


def test_the_rim_of_the_goal_belongs_to_it() -> None:
    assert reached(np.array([0.5, 0.0]), np.zeros(2))
    assert not reached(np.array([np.nextafter(0.5, 1), 0.0]), np.zeros(2))


def test_lying_on_its_back_ends_nothing(umaze: AntMaze) -> None:
    umaze.reset(seed=3)
    qpos = umaze.model.qpos0.copy()
    qpos[3:7] = [0, 1, 0, 0]
    umaze.set_state(qpos, np.zeros(14))
    assert not any(umaze.step(np.zeros(8))[2] for _ in range(20))


@pytest.mark.parametrize(("name", "limit"), [("umaze", 700), ("medium", 1000), ("large", 1000)])
def test_the_time_limit_truncates(name: str, limit: int) -> None:
    env = arb.envs.make(f"antmaze-{name}-v2" if name == "umaze" else f"antmaze-{name}-play-v2")
    env.reset(seed=0)
    cuts = [env.step(np.zeros(8, np.float32))[3] for _ in range(limit)]
    assert cuts == [False] * (limit - 1) + [True]


def test_the_same_seed_and_actions_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (50, 8)).astype(np.float32)

    def play() -> np.ndarray:
        env = gymnasium.make("arb/antmaze-medium-v2")
        return np.array([env.reset(seed=7)[0], *(env.step(action)[0] for action in actions)])

    np.testing.assert_array_equal(play(), play())


def test_an_episode_returns_nothing_or_one_and_scores_nothing_or_a_hundred() -> None:
    env = gymnasium.make("arb/antmaze-umaze-v2")
    env.reset(seed=0)
    total = 0.0
    for action in env.action_space.sample() * np.ones((700, 1)):
        _, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    assert total in (0.0, 1.0)
    assert normalised([0.0, 1.0], TASKS["antmaze-umaze-v2"].reference).tolist() == [0.0, 100.0]
