"""Actions as agents and environments see them, and what is known about success after some episodes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arb.envs.rollout import ActionMap, Collector, play
from arb.errors import DataError
from arb.replay.buffer import ReplayBuffer


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
