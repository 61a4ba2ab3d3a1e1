"""Every agent, pre-trained on poor play and fine-tuned with ARB, ends above where it started."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from arb.agents import IQL, PEX, SAC, CalQL, CalQLConfig, FamO2O, FamO2OConfig, IQLConfig, PEXConfig, SACConfig, on_host
from arb.envs.rollout import Collector, play
from arb.lab.algorithm import Schedule, finetune, pretrain
from arb.lab.setup import key_of, stream
from arb.replay.arb import ARB
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Uniform

SMALL = (32, 32)
PLAN = Schedule(pretrain=600, online=1500, collect=30, updates=30, refresh=30, batch=64)
"""Fewer than 40 updates in a call compile faster."""
AGENTS: dict[str, tuple[Any, Any, float]] = {
    "IQL": (IQL, IQLConfig(hidden_dims=SMALL, actor_lr=1e-3, critic_lr=1e-3), 0.5),
    "PEX": (PEX, PEXConfig(hidden_dims=SMALL, actor_lr=1e-3, critic_lr=1e-3), 0.5),
    "FamO2O": (FamO2O, FamO2OConfig(hidden_dims=SMALL, actor_lr=1e-3, critic_lr=1e-3), 0.5),
    "CalQL": (
        CalQL,
        # These rewards are a tenth of locomotion's and the play is poor: full cql_alpha would only clone it.
        CalQLConfig(actor_hidden_dims=SMALL, critic_hidden_dims=SMALL, cql_n_actions=4, actor_lr=1e-3, cql_alpha=0.1),
        5.0,
    ),
    "SAC": (SAC, SACConfig(hidden_dims=SMALL, actor_lr=1e-3, critic_lr=1e-3, layer_norm=True), 5.0),
}
"""Agent, configuration, ARB's temperature."""


class Reach(gym.Env):
    """A point on a line that is to come near a mark: ten moves, each costs the distance that remains."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.moves, (self.place, self.mark) = 0, self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def step(self, action):
        self.moves, self.place = self.moves + 1, float(np.clip(self.place + 0.3 * action[0], -1.0, 1.0))
        return self._seen(), -abs(self.place - self.mark), False, self.moves == 10, {}

    def _seen(self):
        return np.array([self.place, self.mark], np.float32)


def poor_play(episodes: int) -> dict[str, np.ndarray]:
    """Mostly away from the mark."""
    env, rng = Reach(), np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        obs, over = env.reset(seed=episode)[0], False
        while not over:
            action = np.clip(rng.normal(-0.4 * np.sign(obs[1] - obs[0]), 0.5, 1), -1, 1).astype(np.float32)
            following, reward, _, over, _ = env.step(action)
            rows.append((obs, action, reward, False, over))
            obs = following
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return poor_play(100)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_ends_above_where_it_started(name, data):
    kind, config, temperature = AGENTS[name]
    offline = ReplayBuffer(len(data["rewards"]), Uniform(), seed=0)
    offline.load_dataset(data)
    *_, progress = pretrain(kind.create(key_of(0, "init"), 2, 1, config), offline, key_of(0, "pre"), PLAN)
    agent = progress.agent
    before = play(on_host(agent.actor), Reach, 50, stream(0, "eval")).returns.mean()
    buffer = ReplayBuffer(len(data["rewards"]) + PLAN.online, ARB(temperature=temperature), seed=0)
    buffer.load_dataset(data)
    collector = Collector(Reach(), stream(0, "collect"))
    *_, progress = finetune(agent.begin_online(), buffer, collector, key_of(0, "online"), PLAN)
    agent = progress.agent
    after = play(on_host(agent.actor), Reach, 50, stream(0, "eval")).returns.mean()
    # SAC starts higher: it does not imitate the poor play, so there is less left to gain.
    assert after > before + (1.5 if name == "SAC" else 2), (before, after)
    assert after > -2, after  # straight to the mark costs 0.8 on average
