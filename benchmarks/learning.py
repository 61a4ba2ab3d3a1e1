"""Do the agents learn? Two tables of evaluation returns.

    python benchmarks/learning.py offline      IQL against behaviour cloning on Hopper data
    python benchmarks/learning.py online       five agents, offline then online with ARB, on Pendulum
    python benchmarks/learning.py online --quick

Both train as `arb run` does and print what evaluation episodes return, never training ones.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from arb.agents import IQL, PEX, SAC, CalQL, CalQLConfig, FamO2O, FamO2OConfig, IQLConfig, PEXConfig, SACConfig, on_host
from arb.agents.agent import constant, pytree
from arb.agents.iql import actor_lr, awr_loss
from arb.agents.nn import AdamState, Trainable, adam
from arb.envs.rollout import Collector, play
from arb.lab.algorithm import Schedule, finetune, pretrain
from arb.lab.config import configure
from arb.lab.setup import Setup, key_of, stream
from arb.policies.actors import Gaussian
from arb.replay.arb import ARB
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Uniform

DATA = Path(os.environ.get("ARB_DATA", Path(__file__).parents[2] / "shared" / "data")) / "d4rl-like"


# Offline: IQL and behaviour cloning on Hopper ------------------------------------------------------------------------
@pytree
class Cloning(Trainable):
    """Behaviour cloning: IQL's policy and its loss with every weight 1, without the critics."""

    policy: Gaussian
    adam: dict[str, AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: IQLConfig = constant()

    @classmethod
    def create(cls, key: jax.Array, obs_dim: int, action_dim: int, config: IQLConfig) -> Cloning:
        """The policy that IQL would start from."""
        policy = IQL.create(key, obs_dim, action_dim, config).policy
        return cls(policy, adam(policy=policy), obs_dim, action_dim, config)

    def update(self, batch: Any, key: jax.Array) -> tuple[Cloning, dict[str, jax.Array]]:  # noqa: ARG002
        """One step of maximum likelihood."""

        def loss(policy: Gaussian) -> tuple[jax.Array, None]:
            return awr_loss(jnp.ones(len(batch.reward)), policy.log_prob(batch.obs, batch.action)), None

        agent, value, _ = self.apply_loss("policy", loss, actor_lr(self.config, False, self.adam["policy"]))
        return agent, {"policy_loss": value}

    @property
    def actor(self) -> Gaussian:
        """The policy."""
        return self.policy


LEARNERS: dict[str, tuple[Any, dict[str, float]]] = {
    "cloning": (Cloning, {}),
    "iql": (IQL, {}),
    "far-sighted": (
        IQL,
        {"settings.discount": 0.998, "settings.beta": 0.6, "settings.tau": 0.02},
    ),
}
"""Agent, and settings that are not the paper's.

With the paper's discount of 0.99 IQL prefers running faster to falling later: a fall 300 steps ahead counts 5 %. The
score counts all 1000 steps, so `far-sighted` looks 500 steps ahead instead of 100. Values and advantages are then five
times as large, hence a fifth of β; and they come from five times as far, hence targets that follow faster.
"""


class Discounted(gym.Wrapper):
    """An environment whose returns are discounted as the paper's critics discount them."""

    def reset(self, **options: Any) -> Any:
        """Begin an episode."""
        self.weight = 1.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """One step; `evaluate` adds up the raw rewards."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["raw_reward"] = self.weight * float(info.get("raw_reward", reward))
        self.weight *= IQLConfig.discount
        return obs, reward, terminated, truncated, info


def offline(
    data: Path, names: list[str], learners: list[str], updates: int, seeds: list[int], episodes: int
) -> Iterator[tuple[str, str, int, list[float]]]:
    """Print a table, and yield its rows: data, learner, seed, numbers."""
    marks = [updates * (m + 1) // 5 for m in range(5)]
    print(f"arb/hopper-v2, mean normalised score of {episodes} episodes after so many updates;")
    print(f"at the end also the mean of their returns discounted by {IQLConfig.discount}")
    print("| data | learner | seed | " + " | ".join(f"{mark:,}" for mark in marks) + " | discounted |")
    for name, learner, seed in itertools.product(names, learners, seeds):
        kind, settings = LEARNERS[learner]
        plan = {"schedule.pretrain": updates, "schedule.updates": updates // 50, **settings}
        config = configure(task=str(data / f"{name}.hdf5"), env="arb/hopper-v2", seed=seed, overrides=plan)
        setup, cells = Setup.of(config), []
        fresh = kind.create(key_of(seed, "init"), *setup.dims, setup.settings)
        buffer = setup.new_buffer(Uniform(), len(setup.dataset), "pretrain")
        buffer.load_dataset(setup.dataset)
        for step, agent, *_ in pretrain(fresh, buffer, key_of(seed, "pretrain"), config.schedule):
            if step in marks:
                actor, starts = on_host(agent.actor), partial(stream, seed, "eval", step)
                cells.append(setup.scores(play(actor, setup.make_env, episodes, starts()).returns).mean())
        cells.append(play(actor, lambda p=setup: Discounted(p.make_env()), episodes, starts()).returns.mean())
        print(f"| {name} | {learner} | {seed} | {' | '.join(f'{c:.1f}' for c in cells)} |", flush=True)
        yield name, learner, seed, cells


# Online: five agents on Pendulum -------------------------------------------------------------------------------------
SMALL = (64, 64)
AGENTS: dict[str, tuple[Any, Any, float, float]] = {
    "IQL": (IQL, IQLConfig(hidden_dims=SMALL), 0.5, 0.1),
    "PEX": (PEX, PEXConfig(hidden_dims=SMALL), 0.5, 1.0),
    "FamO2O": (FamO2O, FamO2OConfig(hidden_dims=SMALL), 0.5, 0.1),
    "Cal-QL": (
        CalQL,
        CalQLConfig(actor_hidden_dims=SMALL, critic_hidden_dims=SMALL, cql_n_actions=4, actor_lr=3e-4, chunk=64),
        5.0,
        1.0,
    ),
    "SAC": (SAC, SACConfig(hidden_dims=SMALL, layer_norm=True), 5.0, 1.0),
}
"""Agent, configuration, ARB's temperature, and the scale of rewards: β, κ and the conservative term depend on it."""


def swing_up(obs: np.ndarray) -> float:
    """A controller that pumps energy, and balances near the top."""
    cos, sin, speed = obs
    angle = np.arctan2(sin, cos)
    if abs(angle) < 0.5:
        return float(np.clip(-(10.0 * angle + 2.0 * speed) / 2.0, -1.0, 1.0))
    energy = 0.5 * speed**2 + 10.0 * (cos - 1.0)
    return float(np.clip(-energy * np.sign(speed), -1.0, 1.0))


def mixed_data(episodes: int, seed: int) -> tuple[dict[str, np.ndarray], float]:
    """Pendulum episodes, each with its own share of random actions from 0.5 to 1; also their mean return."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {k: [] for k in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed * 10_000 + episode)
        share, over = rng.uniform(0.5, 1.0), False
        while not over:
            action = rng.uniform(-1, 1) if rng.random() < share else swing_up(obs)
            following, reward, terminated, truncated, _ = env.step(np.array([2.0 * action], np.float32))
            over = terminated or truncated
            for key, value in zip(columns, (obs, [action], reward, terminated, truncated), strict=True):
                columns[key].append(value)
            obs = following
    arrays = {k: np.asarray(v, bool if k in ("terminals", "timeouts") else np.float32) for k, v in columns.items()}
    return arrays, float(arrays["rewards"].sum() / episodes)


def pendulum(scale: float = 1.0) -> gym.Env:
    return gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: scale * float(reward))


def online(agents: list[str], updates: int, steps: int, seeds: list[int], episodes: int) -> None:
    data, mean = mixed_data(100, seed=0)
    plan = Schedule(pretrain=updates, online=steps)
    print(f"Pendulum-v1, 100 mixed episodes of mean return {mean:.0f}; {updates} updates, {steps} steps with ARB")
    print(f"| agent | seed | after pre-training | after fine-tuning | seconds | ({episodes} episodes)")
    for name, seed in itertools.product(agents, seeds):
        kind, config, temperature, scale = AGENTS[name]
        start, returns = time.perf_counter(), []
        agent = kind.create(key_of(seed, "init"), 3, 1, config)
        for phase, sampler in (("pretrain", Uniform()), ("online", ARB(temperature=temperature))):
            buffer = ReplayBuffer(len(data["rewards"]) + steps, sampler, seed=stream(seed, "buffer", phase))
            buffer.load_dataset(data | {"rewards": data["rewards"] * scale})
            if phase == "pretrain":
                chunks = pretrain(agent, buffer, key_of(seed, phase), plan)
            else:
                collector = Collector(pendulum(scale), stream(seed, "collect"))
                chunks = finetune(agent.begin_online(), buffer, collector, key_of(seed, phase), plan)
            *_, (_, agent, *_) = chunks
            played = play(on_host(agent.actor), pendulum, episodes, stream(seed, "eval", phase))
            returns.append(played.returns.mean())
        spent = time.perf_counter() - start
        print(f"| {name} | {seed} | {returns[0]:.0f} | {returns[1]:.0f} | {spent:.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("offline", "online"))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the Hopper datasets ($ARB_DATA/d4rl-like)")
    parser.add_argument("--datasets", nargs="+", default=["hopper-medium-expert", "hopper-medium"])
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--updates", type=int)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="IQL alone, a few updates: does it run, not does it learn")
    given = parser.parse_args()
    if given.quick:
        given.agents, given.learners, given.updates, given.steps, given.episodes = ["IQL"], ["iql"], 20, 20, 1
    if given.part == "online":
        online(given.agents, given.updates or 20_000, given.steps, given.seeds, given.episodes)
    elif not given.data.is_dir():
        parser.error(f"there is no folder {given.data}: name the one with hopper-medium.hdf5 by --data or $ARB_DATA")
    else:
        list(offline(given.data, given.datasets, given.learners, given.updates or 50_000, given.seeds, given.episodes))
