"""Stable-Baselines3's SAC, fine-tuned from offline data, with ARB choosing the batches.

    pip install '.[sb3]'
    python examples/sb3_sac.py

20,000 random steps of Pendulum fill the buffer before the first step online. SAC learns from them, then goes online.
Every 1,000 steps a line tells which share of the rows is online, and which share of a batch: under ARB the second
runs ahead of the first as the policy leaves the random data behind. `--sampler uniform` shows the host's own way.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

import arb
from arb.adapters.sb3 import RefreshCallback, ReplayBuffer

SAMPLERS = {"arb": arb.ARB(temperature="auto"), "parallel": arb.Mixed(0.5), "uniform": arb.Uniform()}


def past(steps: int = 20_000) -> dict[str, Any]:
    """Random steps of Pendulum: the bundled ones, or as many new ones if HDF5 cannot be read here."""
    try:
        return arb.load_dataset("bundled:pendulum-random").to_dict()
    except arb.DataError:
        pass
    env, rows = gym.make("Pendulum-v1"), []
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    keys = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {key: np.array(column) for key, column in zip(keys, zip(*rows, strict=True), strict=True)}


class Report(BaseCallback):
    """Prints the shares and the mean return of the last episodes, every so many steps."""

    def __init__(self, every: int):
        super().__init__()
        self.every = every

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            stats = self.model.replay_buffer.index.stats()
            returns = [episode["r"] for episode in self.model.ep_info_buffer][-5:]
            print(
                f"step {self.num_timesteps:6d}   online: {stats['online_rows']:4.0%} of the rows, "
                f"{stats['online_share']:4.0%} of a batch   return {np.mean(returns) if returns else np.nan:8.1f}",
                flush=True,
            )
        return True


def main() -> None:
    """Pre-fill, pre-train, fine-tune."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=4000, help="environment steps online")
    options.add_argument("--updates", type=int, default=1000, help="updates on the offline data before")
    options.add_argument("--every", type=int, default=1000, help="steps from one refresh, and one line, to the next")
    options.add_argument("--sampler", choices=SAMPLERS, default="arb")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()

    torch.set_num_threads(1)  # small networks: one thread is fastest
    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        learning_starts=0,
        policy_kwargs={"net_arch": [64, 64]},
        buffer_size=50_000,
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"sampler": SAMPLERS[chosen.sampler]},
        seed=chosen.seed,
    )
    loaded = model.replay_buffer.load_dataset(past())
    print(f"{loaded.rows} offline rows in {loaded.trajectories} trajectories")
    model.learn(0)  # lets the host set up its logger, which train writes to
    model.train(gradient_steps=chosen.updates, batch_size=model.batch_size)
    model.learn(chosen.steps, callback=[RefreshCallback(chosen.every), Report(chosen.every)])


if __name__ == "__main__":
    main()
