"""Steps that can be recognised: each has a number, and everything in it follows from that number."""

from __future__ import annotations

from typing import Any

import numpy as np


def numbered(number: np.ndarray, as_dict: bool) -> Any:
    """The observation before step `number`; that of the next step is where the step leads."""
    position = np.stack([number, number % 7, -number], axis=-1).astype(np.float32)
    return {"position": position, "goal": number[..., None].astype(np.float32)} if as_dict else position


def play(n_envs: int, steps: int, as_dict: bool = False, episode: int = 5) -> list[tuple[Any, ...]]:
    """Arguments of `add`, step after step: environment e makes the steps 1000 * e + 0, 1, 2, ...

    Every `episode` steps each ends, the odd ones by a time limit.
    """
    made = []
    for step in range(steps):
        number = 1000 * np.arange(n_envs) + step
        over = np.full(n_envs, step % episode == episode - 1)
        limit = bool(over[0]) and (step // episode) % 2 == 1
        action = (number[:, None] / 5000.0).astype(np.float32)
        infos = [{"TimeLimit.truncated": limit} for _ in range(n_envs)]
        # After an end the next episode begins elsewhere, so that where a step led is told from where one begins.
        after = numbered(number + 1 + 500 * over, as_dict)
        made.append((numbered(number, as_dict), after, action, number.astype(np.float32), over, infos))
    return made


def dataset(rows: int, episode: int = 10, as_dict: bool = False, bound: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Random steps with D4RL's keys, all episodes cut off by a time limit."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    after, ends = np.roll(obs, -1, axis=0), np.arange(rows) % episode == episode - 1
    after[ends | (np.arange(rows) == rows - 1)] += 1.0
    return {
        "observations": {"position": obs, "goal": obs[:, :1]} if as_dict else obs,
        "next_observations": {"position": after, "goal": after[:, :1]} if as_dict else after,
        "actions": rng.uniform(-bound, bound, (rows, 1)).astype(np.float32),
        "rewards": np.arange(rows, dtype=np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": ends,
        "episode_ids": np.arange(rows) // episode,
    }
