from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import arb.envs
from arb.envs.locomotion import ROBOTS, Locomotion
from arb.errors import DataError
from arb.lab.setup import Normalization, Preprocessed

IDS = ("hopper", "walker2d", "halfcheetah", "antmaze-umaze", "antmaze-medium", "antmaze-large")


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*infinity")  # Gym's own observations are unbounded too
@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    check_env(gymnasium.make(f"arb/{name}-v2").unwrapped, skip_render_check=True)


@pytest.mark.parametrize(("robot", "obs", "act"), [("hopper", 11, 3), ("walker2d", 17, 6), ("halfcheetah", 17, 6)])
def test_sizes_and_horizon(robot: str, obs: int, act: int) -> None:
    env = gymnasium.make(f"arb/{robot}-v2")
    assert (env.observation_space.shape, env.action_space.shape) == ((obs,), (act,))
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000


def test_the_reward_by_hand() -> None:
    env = Locomotion("hopper")
    env.reset(seed=0)
    before = env.data.qpos[0]
    _, reward, *_ = env.step(np.array([0.5, -0.5, 2.0]))  # the last entry acts, and costs, as 1
    # 4 steps of 0.002 s; 1 for being alive; 0.001 (0.25 + 0.25 + 1) for control
    assert reward == pytest.approx((env.data.qpos[0] - before) / 0.008 + 1 - 0.0015, abs=1e-12)


@pytest.mark.parametrize(
    ("robot", "height", "angle", "healthy"),
    [
        ("hopper", 0.71, 0.0, True),
        ("hopper", 0.7, 0.0, False),
        ("hopper", 1.2, 0.2, False),
        ("hopper", 1.2, -0.19, True),
        ("walker2d", 0.8, 0.0, False),
        ("walker2d", 1.9, 0.99, True),
        ("walker2d", 2.0, 0.0, False),
        ("halfcheetah", -5.0, 9.0, True),
    ],
)
def test_where_a_robot_counts_as_fallen(robot: str, height: float, angle: float, healthy: bool) -> None:
    qpos = np.array([0.0, height, angle, 0.0])
    assert ROBOTS[robot].healthy(qpos, np.zeros(4)) is healthy


def test_a_simulation_that_blows_up_ends_the_hoppers_episode_but_fast_walkers_go_on() -> None:
    qpos, qvel = np.array([0.0, 1.2, 0.0]), np.array([0.0, 0.0, 100.0])
    assert not ROBOTS["hopper"].healthy(qpos, qvel)
    assert ROBOTS["walker2d"].healthy(qpos, qvel)


def test_velocities_are_clipped_where_gym_clips_them() -> None:
    qpos, qvel = np.zeros(3), np.array([25.0, -25.0, 1.0])
    np.testing.assert_array_equal(ROBOTS["hopper"].observe(qpos, qvel), [0, 0, 10, -10, 1])
    np.testing.assert_array_equal(ROBOTS["halfcheetah"].observe(qpos, qvel), [0, 0, 25, -25, 1])


@pytest.mark.parametrize(("robot", "position", "velocity"), [("hopper", 5e-3, 5e-3), ("halfcheetah", 0.1, 0.5)])
def test_resets_are_near_the_pose_of_the_model(robot: str, position: float, velocity: float) -> None:
    env = Locomotion(robot)
    for seed in range(50):
        env.reset(seed=seed)
        assert (np.abs(env.data.qpos - env.model.qpos0) <= position).all()
        assert (np.abs(env.data.qvel) <= velocity).all()


def test_one_normalization_serves_file_and_environment() -> None:
    normalization = Normalization(np.full(11, 0.5, np.float32), np.full(11, 2.0, np.float32), scale=3.0, shift=-1.0)
    raw, normalized = arb.envs.make("hopper-medium-v2"), Preprocessed(arb.envs.make("hopper-medium-v2"), normalization)
    first, normalized_first = raw.reset(seed=0)[0], normalized.reset(seed=0)[0]
    np.testing.assert_array_equal(normalized_first, normalization.observations(first.astype(np.float32)))
    assert normalized_first.dtype == np.float32
    action = np.zeros(3, np.float32)
    _, reward, *_ = raw.step(action)
    _, shaped_reward, _, _, info = normalized.step(action)
    assert shaped_reward == pytest.approx(3 * float(reward) - 1, rel=1e-6)
    assert info["raw_reward"] == reward


def test_an_unknown_environment_is_one_line() -> None:
    with pytest.raises(DataError, match=r"environment 'Hoper-v5': .*") as caught:
        arb.envs.make("Hoper-v5")
    assert "\n" not in str(caught.value)
