"""Past experience for the hosts' tests: Pendulum-v1 under nearly full torque, left or right by chance."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

LIMIT = 2.0


def full_torque(steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Steps in D4RL's layout, in episodes of 200, with actions that a squashed Gaussian hardly ever chooses."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    obs, rows = env.reset(seed=seed)[0], []
    for _ in range(steps):
        action = (rng.choice([-1, 1], 1) * rng.uniform(0.99, 1.0) * LIMIT).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated, truncated))
        obs = env.reset()[0] if truncated else next_obs
    keys = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {key: np.array(column) for key, column in zip(keys, zip(*rows, strict=True), strict=True)}
