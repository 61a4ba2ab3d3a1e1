"""A saved environment goes on bit for bit, in another process's words: through JSON, into a fresh environment."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

import arb.envs
from arb.envs import restore_state, save_state
from arb.errors import DataError

ENVIRONMENTS = (
    "arb/hopper-v2",
    "arb/halfcheetah-v2",
    "arb/antmaze-umaze-v2",
    "Hopper-v5",
    "Pendulum-v1",
    "CartPole-v1",
    "Blackjack-v1",
    "FrozenLake-v1",
)


def play(env: gymnasium.Env[Any, Any], steps: int) -> list[Any]:
    """Random actions from the space's own generator, with resets: every source of chance has its say."""
    trace = []
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        trace.append((np.asarray(obs).tolist(), float(reward), terminated, truncated))
        if terminated or truncated:
            trace.append(np.asarray(env.reset()[0]).tolist())
    return trace


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("before", [0, 7, 33])
def test_going_on_from_a_saved_state(name: str, before: int) -> None:
    env = arb.envs.make(name)
    env.reset(seed=3)
    env.action_space.seed(4)
    play(env, before)
    saved = json.loads(json.dumps(save_state(env)))
    expected = play(env, 60)
    other = arb.envs.make(name)
    restore_state(other, saved)
    assert play(other, 60) == expected


def test_the_time_limit_remembers_its_count() -> None:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=10)
    env.reset(seed=0)
    play(env, 6)
    other = gymnasium.make("Pendulum-v1", max_episode_steps=10)
    restore_state(other, save_state(env))
    assert [other.step(np.zeros(1))[3] for _ in range(4)] == [False, False, False, True]


def test_saving_does_not_disturb() -> None:
    traces = []
    for saving in (False, True):
        env = arb.envs.make("arb/hopper-v2")
        env.reset(seed=1)
        env.action_space.seed(1)
        trace = []
        for _ in range(30):
            trace += play(env, 1)
            if saving:
                save_state(env)
        traces.append(trace)
    assert traces[0] == traces[1]


def test_a_state_of_another_model_is_refused() -> None:
    hopper, walker = arb.envs.make("arb/hopper-v2"), arb.envs.make("arb/walker2d-v2")
    hopper.reset(seed=0)
    with pytest.raises(DataError, match="another model"):
        restore_state(walker, save_state(hopper))


def test_a_state_that_cannot_be_saved_is_said_so() -> None:
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=0)
    env.unwrapped.world = object()  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"PendulumEnv keeps a object as world.*state_extra"):
        save_state(env)
