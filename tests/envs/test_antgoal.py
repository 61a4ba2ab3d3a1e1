"""The ant that walks to a goal: its view does not depend on where it stands or looks, its reward is as stated."""

import gymnasium
import mujoco
import numpy as np
import pytest

import arb.envs  # noqa: F401 - registers the environment
from arb.envs.antmaze import AntGoal, AntMaze, egocentric, fallen
from arb.envs.rollout import episode


@pytest.fixture(scope="module")
def ant():
    return AntGoal()


def turned(qpos, qvel, goal, angle, shift):
    """The same ant after a rotation of the world about the z-axis and a shift in the plane."""
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    qpos, qvel = qpos.copy(), qvel.copy()
    quaternion = np.empty(4)
    mujoco.mju_mulQuat(quaternion, np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)]), qpos[3:7])
    qpos[:2], qpos[3:7], qvel[:2] = rotation @ qpos[:2] + shift, quaternion, rotation @ qvel[:2]
    return qpos, qvel, rotation @ goal + shift


def test_by_hand_an_ant_that_looks_along_y_with_the_goal_to_its_left():
    qpos, qvel = np.zeros(15), np.zeros(14)
    qpos[2], qpos[3:7] = 0.75, [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]
    qvel[:2] = [0.0, 2.0]  # forwards, for this ant
    seen = egocentric(qpos, qvel, np.array([-3.0, 0.0]))
    np.testing.assert_allclose(seen[:5], [0.75, 1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(seen[13:15], [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(seen[-2:], [0.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("angle", [0.3, 1.7, -2.9, np.pi])
def test_place_and_heading_do_not_show(ant, angle):
    rng = np.random.default_rng(3)
    ant.reset(seed=1)
    for action in rng.uniform(-1, 1, (15, 8)):
        ant.step(action)
    state = ant.data.qpos.copy(), ant.data.qvel.copy(), ant.goal
    moved = turned(*state, angle, rng.normal(size=2))
    np.testing.assert_allclose(egocentric(*moved), egocentric(*state), atol=1e-9)


def test_reward_is_speed_to_the_goal_and_a_bonus_and_a_cost(ant):
    ant.reset(seed=2)
    ant.set_goal(np.array([50.0, 0.0]))
    action = np.full(8, 0.5)
    before = np.linalg.norm(ant.goal - ant.data.qpos[:2])
    _, reward, terminated, truncated, info = ant.step(action)
    assert reward == pytest.approx((before - info["distance"]) / 0.1 + 0.5 - 0.02 * 8 * 0.25)
    assert not terminated
    assert not truncated


def test_a_goal_that_is_reached_moves(ant):
    ant.reset(seed=3)
    ant.set_goal(ant.data.qpos[:2] + 0.05)
    ant.step(np.zeros(8))
    assert np.linalg.norm(ant.goal - ant.data.qpos[:2]) > 0.5


def test_lying_on_the_back_is_fallen_and_standing_is_not():
    standing = np.zeros(15)
    standing[2], standing[3] = 0.75, 1.0
    assert not fallen(standing)
    on_its_back = standing.copy()
    on_its_back[3:7] = [0, 1, 0, 0]
    assert fallen(on_its_back)
    for height in (0.2, 1.5):
        lifted = standing.copy()
        lifted[2] = height
        assert fallen(lifted)


def test_the_registered_environment_has_the_physics_of_antmaze():
    env = gymnasium.make("arb/ant-goal-v0")
    assert env.spec.max_episode_steps == 500
    assert env.observation_space.shape == (29,)
    free, maze = env.unwrapped.model, AntMaze("umaze").model
    np.testing.assert_array_equal(free.body_mass, maze.body_mass)
    np.testing.assert_array_equal(free.opt.timestep, maze.opt.timestep)
    steps = list(episode(env, lambda _: np.zeros(8, np.float32), seed=0))
    assert len(steps) == 500
    assert steps[-1].truncated
    np.testing.assert_array_equal(steps[0].next_obs, steps[1].obs)
