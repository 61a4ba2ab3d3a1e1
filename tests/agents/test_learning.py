"""Does it learn? What is too long for the suite is marked so; `pytest -m long` asks for it."""

from __future__ import annotations

import importlib
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import pytest

from arb.agents import IQL, IQLConfig, learn, on_host
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Uniform


def push_towards_the_fall(obs: np.ndarray) -> int:
    return int(obs[2] + 0.5 * obs[3] > 0)


def mixed_cartpole(episodes: int) -> dict[str, np.ndarray]:
    """Episodes of CartPole, each with a share of random actions from 0.4 to 1."""
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)
    columns: dict[str, list] = {k: [] for k in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        share, over = rng.uniform(0.4, 1.0), False
        while not over:
            action = int(rng.integers(2)) if rng.random() < share else push_towards_the_fall(obs)
            following, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            for key, value in zip(columns, (obs, action, reward, terminated, truncated), strict=True):
                columns[key].append(value)
            obs = following
    return {k: np.asarray(v) for k, v in columns.items()}


def mean_return(agent: IQL, episodes: int = 10) -> float:
    env, actor, total = gym.make("CartPole-v1"), on_host(agent.actor), 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(int(actor.mode(obs)))
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def test_discrete_iql_learns_cartpole_from_mixed_data():
    data = mixed_cartpole(150)
    buffer = ReplayBuffer(len(data["rewards"]), Uniform(), seed=0)
    buffer.load_dataset(data)
    shown = len(data["rewards"]) / 150
    agent = IQL.create(jax.random.key(0), 4, 2, IQLConfig(hidden_dims=(64, 64), actions="discrete", expectile=0.8))
    for part in range(4):
        agent, _ = learn(agent, buffer.sample((1000, 128)), jax.random.key(part))
    learned = mean_return(agent)
    assert learned > 3 * shown, (shown, learned)
    assert learned > 250


@pytest.mark.long
@pytest.mark.parametrize(("name", "learner"), [("hopper-medium-expert", "iql"), ("hopper-medium", "far-sighted")])
def test_iql_beats_cloning_on_hopper(name, learner, shared_data, monkeypatch):
    if not (shared_data / "d4rl-like" / f"{name}.hdf5").exists():
        pytest.skip(f"needs d4rl-like/{name}.hdf5 in $ARB_DATA")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    offline = importlib.import_module("learning").offline
    rows = offline(shared_data / "d4rl-like", [name], ["cloning", learner], updates=50_000, seeds=[1], episodes=20)
    (*_, cloning), (*_, iql) = rows
    assert iql[4] > cloning[4], (iql, cloning)
