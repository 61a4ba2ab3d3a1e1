"""Gymnasium's three ways to reset: with real vector environments, every stored step is a step."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from arb import DataError, ReplayBuffer, Uniform
from arb.adapters.cleanrl import ReplayBuffer as CleanRLBuffer
from arb.replay.buffer import autoreset_mode

MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}
LENGTH, STEPS = 5, 23


class Counter(gym.Env):
    """Counts in steps of 1 from a start of its own; each episode ends after five steps, by turns one way or the other.

    A step's reward is the number it leads to, so a reset taken for a step would show.
    """

    observation_space = gym.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, number):
        self.episode = 10 * number

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return self.obs(), {}

    def obs(self):
        return np.array([100.0 * self.episode + self.t], np.float32)

    def step(self, action):
        self.t += 1
        over, by_limit = self.t == LENGTH, self.episode % 2 == 0
        return self.obs(), float(self.obs()[0]), over and not by_limit, over and by_limit, {}


def vector(mode):
    return gym.vector.SyncVectorEnv([lambda i=i: Counter(i) for i in range(2)], autoreset_mode=MODES[mode])


def steps(envs, mode):
    """The usual loop: obs, action, reward, next_obs, terminated, truncated, infos."""
    obs, _ = envs.reset()
    for _ in range(STEPS):
        action = envs.action_space.sample()
        next_obs, reward, terminated, truncated, infos = envs.step(action)
        yield obs.copy(), action, reward, next_obs.copy(), terminated, truncated, infos
        obs = next_obs
        over = terminated | truncated
        if mode == "disabled" and over.any():
            obs, _ = envs.reset(options={"reset_mask": over})


def check_that_only_steps_are_taken(buffer):
    batch = buffer.gather(np.arange(len(buffer)))
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
    np.testing.assert_array_equal(batch.reward, batch.next_obs[:, 0])
    starts = np.unique(batch.obs[:, 0] // 100)
    assert buffer.stats()["trajectories"] == len(starts) >= 6
    last = batch.obs[:, 0] % 100 == LENGTH - 1
    np.testing.assert_array_equal(batch.mask == 0.0, last & (batch.obs[:, 0] // 100 % 2 == 1))


@pytest.mark.parametrize("mode", MODES)
def test_every_row_is_a_step(mode):
    envs = vector(mode)
    buffer = ReplayBuffer(100, Uniform(), seed=0, autoreset=envs)
    for obs, action, reward, next_obs, terminated, truncated, infos in steps(envs, mode):
        buffer.add_batch(obs, action, reward, next_obs, terminated, truncated, infos=infos)
    check_that_only_steps_are_taken(buffer)
    resets = 2 * (STEPS // (LENGTH + 1)) if mode == "next_step" else 0
    assert len(buffer) == 2 * STEPS - resets


@pytest.mark.parametrize("mode", MODES)
def test_every_row_of_a_script_in_cleanrls_style_is_a_step(mode):
    envs = vector(mode)
    buffer = CleanRLBuffer(
        100,
        envs.single_observation_space,
        envs.single_action_space,
        n_envs=2,
        sampler=Uniform(),
        seed=0,
        autoreset=envs,
    )
    for obs, action, reward, next_obs, terminated, truncated, infos in steps(envs, mode):
        buffer.add(obs, next_obs, action, reward, terminated, infos, truncations=truncated)
    check_that_only_steps_are_taken(buffer.buffer)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("known", [True, False])
def test_resets_taken_for_steps_are_refused_at_the_third(mode, known):
    if mode == "next_step" and known:
        pytest.skip("then they are dropped")
    envs = vector(mode)
    buffer = ReplayBuffer(100, Uniform(), seed=0, autoreset=envs if known else None)
    taken = [step[:-1] for step in steps(envs, mode)]
    ends = [i for i, step in enumerate(taken) if (step[4] | step[5]).any()]  # both environments end at once
    for step in taken[: ends[1] + 1]:
        buffer.add_batch(*step)
    remedy = "pass infos=infos" if known else "pass autoreset=envs"
    for _ in range(2):  # and remains so
        with pytest.raises(DataError, match=f"environment 0 begins a step where its last episode ended.*: {remedy}"):
            buffer.add_batch(*taken[ends[1] + 1])
    assert len(buffer) == 2 * (ends[1] + 1)


def test_a_world_whose_episodes_may_begin_where_the_last_one_ended_is_not_refused():
    def walk(add):
        rng, at = np.random.default_rng(0), np.zeros(2, int)
        for t in range(2000):
            to = (at + rng.integers(-1, 2, 2)) % 3
            over = t % 5 == 4
            add(at, to, over)
            at = rng.integers(3, size=2) if over and t > 5 else np.array([2, 1]) if over else to

    buffer = ReplayBuffer(2000, Uniform())
    for env in (0, 3):
        walk(lambda at, to, over, env=env: buffer.add(at, 0, 0.0, to, False, over, env=env))
    walk(lambda at, to, over: buffer.add_batch(at[None], [0], [0.0], to[None], [False], [over], envs=[7]))
    always = ReplayBuffer(100, Uniform())
    for t in range(50):  # one environment is never refused, even if all its episodes begin there
        always.add([t], 0, 0.0, [t + 1], True)
    assert len(always) == 50


def test_next_step_autoreset_needs_to_hear_of_time_limits():
    buffer = ReplayBuffer(10, Uniform(), autoreset="next_step")
    with pytest.raises(DataError, match="add_batch needs truncated with next-step autoreset"):
        buffer.add_batch(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2), np.ones((2, 1)), np.zeros(2))


def test_a_saved_buffer_remembers_which_environments_are_about_to_reset(tmp_path):
    def made():
        return ReplayBuffer(10, Uniform(), seed=0, autoreset="next_step")

    def step(buffer, obs, next_obs, over):
        flags = np.array([over, False])
        buffer.add_batch(np.array([[obs], [obs + 50]]), np.zeros((2, 1)), np.zeros(2), [[next_obs], [obs + 51.0]],
                         np.zeros(2), flags)  # fmt: skip

    saved = made()
    step(saved, 0.0, 1.0, True)
    saved.save(tmp_path / "buffer.npz")
    other = made()
    other.load(tmp_path / "buffer.npz")
    for buffer in (saved, other):
        step(buffer, 1.0, 7.0, False)
        assert len(buffer) == 3


def test_an_episode_may_begin_where_one_ended_if_that_is_said_or_nothing_moved():
    for buffer, x in ((ReplayBuffer(10, Uniform(), autoreset="disabled"), 1.0), (ReplayBuffer(10, Uniform()), 0.0)):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.full(1, x), terminated=True)
        buffer.add(np.full(1, x), np.zeros(1), 0.0, np.full(1, 2.0), terminated=False)
        assert buffer.stats()["trajectories"] == 2


def test_the_mode_is_read_from_whatever_tells_it():
    assert [autoreset_mode(vector(mode)) for mode in MODES] == list(MODES)
    assert [autoreset_mode(mode) for mode in MODES.values()] == list(MODES)
    with pytest.raises(DataError, match=r"autoreset must be 'next_step' or .*did you mean 'same_step'"):
        autoreset_mode("samestep")
    with pytest.raises(DataError, match="metadata has no 'autoreset_mode': pass autoreset="):
        autoreset_mode(Silent())


def test_a_mode_in_metadata_that_others_share_does_not_count():
    envs = vector("same_step")
    envs.metadata["autoreset_mode"] = MODES["next_step"]  # as another one of its class did in Gymnasium 1.1
    assert autoreset_mode(envs) == "same_step"


class Silent(gym.Env):
    """Says nothing about resets, whatever other classes say."""

    metadata: ClassVar[dict] = {}


def test_dicts_get_their_final_observations_too():
    buffer = ReplayBuffer(10, Uniform(), autoreset="same_step")
    after = {"a": np.array([[1.0], [2.0]]), "b": np.array([[3.0], [4.0]])}
    before = {key: column - 0.5 for key, column in after.items()}
    for final in (
        {"a": np.array([None, [8.0]], object), "b": np.array([None, [9.0]], object)},
        [None, {"a": 8.0, "b": 9.0}],
    ):
        infos = {"final_obs": final, "_final_obs": np.array([False, True])}
        buffer.add_batch(before, np.zeros((2, 1)), np.zeros(2), after, np.zeros(2), [False, True], infos=infos)
        batch = buffer.gather(np.arange(len(buffer)))
        assert batch.next_obs["a"][-2:].ravel().tolist() == [1.0, 8.0]
        assert batch.next_obs["b"][-2:].ravel().tolist() == [3.0, 9.0]
        buffer = ReplayBuffer(10, Uniform(), autoreset="same_step")
