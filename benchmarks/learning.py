"""Do the agents learn? Two tables of evaluation returns.

    python benchmarks/learning.py offline --data shared/data/d4rl-like    IQL against behaviour cloning on Hopper data
    python benchmarks/learning.py online                                  four agents, offline then online, on Pendulum

Both print the mean return of evaluation episodes, never of training ones.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import jax
import jax.numpy as jnp
import numpy as np

from arb.agents import (
    IQL,
    PEX,
    CalQL,
    CalQLConfig,
    FamO2O,
    FamO2OConfig,
    IQLConfig,
    PEXConfig,
    learn,
    on_host,
    scores,
)
from arb.agents.iql import policy_rate, weighted_likelihood_loss
from arb.agents.nets import AdamState, adam, descend
from arb.agents.policies import Gaussian
from arb.agents.pytrees import constant, pytree
from arb.buffer.onpolicy import OnPolicy
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Uniform

CHUNK = 1000
HOPPER = (-20.272305, 3234.3)
"""Returns of D4RL's random and expert policies, the 0 and 100 of its normalised score."""


def evaluate(agent: Any, env: gym.Env, episodes: int, shift: np.ndarray, scale: np.ndarray, seed: int) -> list[float]:
    """Undiscounted return of each episode under the agent's evaluation action."""
    actor, rng, returns = on_host(agent.actor), np.random.default_rng(seed), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed * 1000 + episode)
        total, over = 0.0, False
        while not over:
            action = actor.mode(((obs - shift) / scale).astype(np.float32), rng)
            obs, reward, terminated, truncated, _ = env.step(action * env.action_space.high)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


# Offline: IQL and behaviour cloning on Hopper ------------------------------------------------------------------------
@pytree
class Cloning:
    """Behaviour cloning: IQL's policy and its loss with every weight 1, without the critics."""

    policy: Gaussian
    policy_adam: AdamState
    config: IQLConfig = constant()

    @classmethod
    def create(cls, key: jax.Array, obs_dim: int, action_dim: int, config: IQLConfig) -> Cloning:
        """The policy that IQL would start from."""
        policy = IQL.create(key, obs_dim, action_dim, config).policy
        return cls(policy, adam(policy), config)

    def update(self, batch: Any, key: jax.Array) -> tuple[Cloning, dict[str, jax.Array]]:  # noqa: ARG002
        """One step of maximum likelihood."""

        def loss(policy: Gaussian) -> tuple[jax.Array, None]:
            return weighted_likelihood_loss(jnp.ones(len(batch.reward)), policy.log_prob(batch.obs, batch.action)), None

        rate = policy_rate(self.config, False, self.policy_adam)
        policy, state, value, _ = descend(loss, self.policy, self.policy_adam, rate)
        return Cloning(policy, state, self.config), {"policy_loss": value}

    @property
    def actor(self) -> Gaussian:
        """The policy."""
        return self.policy


def offline(data: Path, names: list[str], updates: int, seeds: int, episodes: int) -> None:
    env, marks = gym.make("arb.envs:arb/hopper-v2"), 5
    print(f"arb/hopper-v2, {episodes} episodes, score normalised as D4RL does")
    print("| data | agent | seed | " + " | ".join(f"{updates * (m + 1) // marks:,}" for m in range(marks)) + " |")
    for name in names:
        with h5py.File(data / f"{name}.hdf5") as file:
            arrays = {k: np.asarray(file[k]) for k in ("observations", "actions", "rewards", "terminals", "timeouts")}
        shift, scale = arrays["observations"].mean(0), arrays["observations"].std(0) + 1e-3
        arrays["observations"] = ((arrays["observations"] - shift) / scale).astype(np.float32)
        for kind, seed in itertools.product((Cloning, IQL), range(seeds)):
            buffer = ReplayBuffer(len(arrays["rewards"]), Uniform(), seed=seed)
            buffer.load(arrays)
            agent, cells = kind.create(jax.random.key(seed), 11, 3, IQLConfig(policy_decay=updates)), []
            for mark in range(marks):
                agent = train(agent, buffer, updates // marks, seed=10 * seed + mark)
                returns = evaluate(agent, env, episodes, shift, scale, seed)
                cells.append(100 * (np.mean(returns) - HOPPER[0]) / (HOPPER[1] - HOPPER[0]))
            print(f"| {name} | {kind.__name__} | {seed} | {' | '.join(f'{c:.1f}' for c in cells)} |", flush=True)


def train(agent: Any, buffer: ReplayBuffer, updates: int, seed: int, unroll: int = 4) -> Any:
    key = jax.random.key(seed + 1000)
    for part in range(updates // CHUNK):
        agent, _ = learn(agent, buffer.sample((CHUNK, 256)), jax.random.fold_in(key, part), unroll)
    return agent


# Online: four agents on Pendulum -------------------------------------------------------------------------------------
SMALL = (64, 64)
AGENTS: dict[str, tuple[Any, Any, float, float]] = {
    "IQL": (IQL, IQLConfig(hidden=SMALL), 0.5, 0.1),
    "PEX": (PEX, PEXConfig(hidden=SMALL), 0.5, 1.0),
    "FamO2O": (FamO2O, FamO2OConfig(hidden=SMALL), 0.5, 0.1),
    "Cal-QL": (
        CalQL,
        CalQLConfig(policy_hidden=SMALL, critic_hidden=SMALL, actions=4, policy_rate=3e-4, chunk=64),
        5.0,
        1.0,
    ),
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


def collector(env: gym.Env, buffer: ReplayBuffer, scale: float, rng: np.random.Generator) -> Callable[[Any, int], None]:
    """A function that takes steps with an actor; the episode goes on from call to call."""
    state = {"obs": env.reset(seed=int(rng.integers(1 << 30)))[0]}

    def collect(actor: Any, steps: int) -> None:
        for _ in range(steps):
            obs = state["obs"]
            action = actor.act(obs, rng)
            following, reward, terminated, truncated, _ = env.step(action * env.action_space.high)
            buffer.add(obs, action, float(reward) * scale, following, terminated, truncated)
            state["obs"] = env.reset()[0] if terminated or truncated else following

    return collect


def online(agents: list[str], updates: int, steps: int, seeds: int, episodes: int) -> None:
    plain = (np.zeros(3, np.float32), np.ones(3, np.float32))
    data, mean = mixed_data(100, seed=0)
    print(f"Pendulum-v1, 100 mixed episodes of mean return {mean:.0f}; {updates} updates, {steps} steps with ARB")
    print(f"| agent | seed | after pre-training | after fine-tuning | seconds | ({episodes} episodes)")
    for name in agents:
        kind, config, temperature, scale = AGENTS[name]
        scaled = data | {"rewards": data["rewards"] * scale}
        for seed in range(seeds):
            start, env = time.perf_counter(), gym.make("Pendulum-v1")
            buffer = ReplayBuffer(len(data["rewards"]) + steps, Uniform(), seed=seed)
            buffer.load(scaled)
            unroll = 1 if kind is CalQL else 4
            agent = train(kind.create(jax.random.key(seed), 3, 1, config), buffer, updates, seed, unroll)
            before = evaluate(agent, env, episodes, *plain, seed=seed)
            agent = agent.begin_online()
            buffer = ReplayBuffer(buffer.capacity, OnPolicy(temperature=temperature), seed=seed)
            buffer.load(scaled)
            collect = collector(gym.make("Pendulum-v1"), buffer, scale, np.random.default_rng(seed))
            for part in range(steps // CHUNK):
                collect(on_host(agent.actor), CHUNK)
                buffer.refresh(partial(scores, agent))
                agent, _ = learn(agent, buffer.sample((CHUNK, 256)), jax.random.key(10_000 * seed + part), unroll)
            after = evaluate(agent, env, episodes, *plain, seed=seed)
            spent = time.perf_counter() - start
            print(f"| {name} | {seed} | {np.mean(before):.0f} | {np.mean(after):.0f} | {spent:.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("offline", "online"))
    parser.add_argument("--data", type=Path, default=Path("shared/data/d4rl-like"))
    parser.add_argument("--sets", nargs="+", default=["hopper-medium-expert", "hopper-medium"])
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--updates", type=int)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    if given.part == "offline":
        offline(given.data, given.sets, given.updates or 50_000, given.seeds, given.episodes)
    else:
        online(given.agents, given.updates or 20_000, given.steps, given.seeds, given.episodes)
