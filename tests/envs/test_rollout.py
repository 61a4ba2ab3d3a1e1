"""Actions as agents and environments see them, and what is known about success after some episodes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arb.envs.rollout import ActionMap, Collector, Limited, play
from arb.errors import DataError
from arb.replay.buffer import ReplayBuffer
from arb.replay.robot import limited


class Corridor(gymnasium.Env[Any, Any]):
    """Three steps; the action is added to the reward, and `info` of the last step is what it was made with."""

    observation_space = Box(-1, 1, (1,))

    def __init__(self, space: gymnasium.Space[Any], last_info: dict[str, Any] | None = None) -> None:
        self.action_space, self.last_info, self.taken = space, last_info or {}, []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.steps += 1
        over = self.steps == 3
        return np.full(1, self.steps / 3, np.float32), 0.0, over, False, self.last_info if over else {}


class Constant:
    """A policy that always takes the same action."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def act(self, obs: Any, rng: np.random.Generator) -> Any:
        return self.action

    def mode(self, obs: Any, rng: np.random.Generator) -> Any:
        return np.stack([self.action] * len(obs))


@pytest.mark.parametrize(("low", "high"), [(-np.inf, 1.0), (-1.0, np.inf), (-np.inf, np.inf)])
def test_a_box_without_a_bound_on_either_side_is_refused(low: float, high: float) -> None:
    with pytest.raises(DataError, match="bounded vector or a Discrete space, not in Box"):
        ActionMap(Box(np.array([-1.0, low], np.float32), np.array([1.0, high], np.float32)))


def test_a_box_of_other_bounds_is_mapped_to_them() -> None:
    actions = ActionMap(Box(np.array([0.0, -3.0], np.float32), np.array([1.0, 5.0], np.float32)))
    np.testing.assert_allclose(actions.to_env(np.array([[-1.0, -1.0], [1.0, 0.5]])), [[0.0, -3.0], [1.0, 3.0]])
    np.testing.assert_allclose(actions.to_agent(np.array([0.5, 5.0])), [0.0, 1.0])


def test_discrete_actions_may_start_anywhere() -> None:
    space = Discrete(3, start=-1)
    actions = ActionMap(space)
    assert [int(actions.to_env(action)) for action in range(3)] == [-1, 0, 1]
    assert actions.to_agent(np.array([-1, 0, 1])).tolist() == [0, 1, 2]
    env, buffer = Corridor(space), ReplayBuffer(10)
    Collector(env, np.random.SeedSequence(0)).collect(Constant(np.int64(0)), buffer, 3)
    play(Constant(np.int64(0)), lambda: env, 1, np.random.SeedSequence(0))
    assert env.taken == [-1] * 6  # the environment's numbers
    assert buffer.sample(2).action.tolist() == [0, 0]  # the agent's


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([{}, {}], None),
        ([{"success": True}, {}], [True, False]),
        ([{}, {"is_success": 1.0}], [False, True]),
        ([{"success": False}, {}], [False, False]),
    ],
)
def test_an_episode_succeeds_if_it_was_ever_said(infos: list[dict[str, Any]], expected: list[bool] | None) -> None:
    made = iter([Corridor(Box(-1, 1, (1,)), info) for info in infos])
    played = play(Constant(np.zeros(1, np.float32)), lambda: next(made), 2, np.random.SeedSequence(0))
    assert (played.successes if played.successes is None else played.successes.tolist()) == expected


class Planned:
    """Chooses three actions at once: the number of the call, then the same with a half more each."""

    chunk = 3

    def __init__(self) -> None:
        self.calls, self.asked = 0, []

    def act(self, obs: Any, rng: np.random.Generator) -> Any:
        self.calls += 1
        return np.float32(0.1 * self.calls) + np.array([[0.0], [0.02], [0.04]], np.float32)

    def mode(self, obs: Any, rng: np.random.Generator) -> Any:
        self.asked.append(len(obs))
        return np.stack([self.act(None, rng) for _ in obs])


class Until(Corridor):
    """Ends after a given number of steps."""

    def __init__(self, length: int) -> None:
        super().__init__(Box(-1, 1, (1,)))
        self.length = length

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.steps == self.length, False, info


def test_chunks_are_carried_out_and_dropped_at_the_end_of_an_episode() -> None:
    env, buffer = Until(5), ReplayBuffer(20)
    collector, actor = Collector(env, np.random.SeedSequence(0)), Planned()
    collector.collect(actor, buffer, 4)
    taken = [0.1, 0.12, 0.14, 0.2]
    assert np.ravel(env.taken) == pytest.approx(taken)
    collector.collect(actor, buffer, 3)  # a new agent would finish the plan of the old one first
    assert np.ravel(env.taken) == pytest.approx([*taken, 0.22, 0.3, 0.32])
    assert buffer.index.num_added == 7
    assert np.ravel(buffer.gather(np.arange(7)).action) == pytest.approx(np.ravel(env.taken))


def test_episodes_side_by_side_are_asked_when_their_chunk_is_over() -> None:
    made, actor = [Until(5), Until(4)], Planned()
    envs = iter(made)
    play(actor, lambda: next(envs), 3, np.random.SeedSequence(0), width=2)
    # Both at first and after three steps; then the second one starts anew after its fourth step, and so on.
    assert actor.asked[:3] == [2, 2, 1]
    assert np.ravel(made[0].taken)[:5] == pytest.approx([0.1, 0.12, 0.14, 0.3, 0.32])
    assert np.ravel(made[1].taken)[:8] == pytest.approx([0.2, 0.22, 0.24, 0.4, 0.5, 0.52, 0.54, 0.6])
    assert sum(actor.asked) == actor.calls == 6


@given(
    hnp.arrays(np.float64, 3, elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, 3, elements=st.floats(-1, 1)),
    st.floats(0, 2),
)
def test_a_limited_action_stays_within_both_limits_and_moves_no_more_than_it_must(wanted, before, change):
    found = limited(wanted, -1.0, 1.0, before, change)
    assert (np.abs(found) <= 1.0).all()
    assert (np.abs(found - before) <= change + 1e-12).all()
    allowed = np.maximum(-1.0, before - change), np.minimum(1.0, before + change)
    np.testing.assert_array_equal(found, np.clip(wanted, *allowed))


def test_without_an_action_before_only_the_bounds_count():
    np.testing.assert_array_equal(limited([3.0, -0.5], -1.0, 1.0, change=0.1), [1.0, -0.5])


def test_a_limited_environment_says_what_was_done_and_starts_from_rest():
    inner = Corridor(Box(-1, 1, (2,)))
    env = Limited(inner, low=-0.5, high=0.5, change=[0.3, 0.1])
    done = []
    for _ in range(2):
        env.reset()
        done += [env.step(np.array([1.0, -1.0], np.float32))[-1]["applied_action"] for _ in range(3)]
    wanted = [[0.3, -0.1], [0.5, -0.2], [0.5, -0.3]] * 2
    np.testing.assert_allclose(done, wanted, rtol=1e-6)
    np.testing.assert_array_equal(inner.taken, done)
    assert done[0].dtype == np.float32


def test_a_collector_learns_from_the_action_that_was_carried_out():
    buffer = ReplayBuffer(10)
    env = Limited(Corridor(Box(-2, 2, (1,), np.float32)), low=-1.0, high=1.0, change=0.5)
    Collector(env, np.random.SeedSequence(0)).collect(Constant(np.array([1.0], np.float32)), buffer, 3)
    np.testing.assert_allclose(buffer.gather(np.arange(3)).action[:, 0], [0.25, 0.5, 0.5])
