"""Filters over datasets, applied before anything is loaded (the paper's Top-N)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.buffer.borders import Rule, episode_ends
from arb.buffer.dataset import check_dataset

Filter = Callable[[Mapping[str, Any]], dict[str, Any]]


def keep_best(transitions: int = 50_000, *, borders: Rule = "resets") -> Filter:
    """A filter that keeps the whole trajectories with the highest return until they hold more than `transitions` rows.

    The return is the plain sum of the rewards as they are in the dataset, so filter before you scale or shift them.
    Every column with one row per step comes along, and `episode_ids` is added, so that trajectories which were apart
    in the file stay apart.

    >>> best = keep_best(1)({"observations": np.zeros((3, 1)), "actions": np.zeros((3, 1)),
    ...                      "rewards": np.array([1.0, 1.0, 5.0]), "terminals": np.array([0, 1, 1])})
    >>> best["rewards"], best["episode_ids"]
    (array([1., 1., 5.]), array([0, 0, 1]))
    """
    if transitions < 1:
        raise ValueError(f"keep_best needs at least 1 transition, got {transitions}")

    def select(dataset: Mapping[str, Any]) -> dict[str, Any]:
        data = check_dataset(dataset)
        ends = episode_ends(data, borders)
        episode = np.cumsum(ends, dtype=np.int64) - ends
        chosen = _best(np.bincount(episode, weights=data.reward).astype(np.float64), np.bincount(episode), transitions)
        rows = np.flatnonzero(np.isin(episode, chosen))
        kept = {key: _rows(column, rows, len(data)) for key, column in dataset.items()}
        return {**kept, "episode_ids": episode[rows]}

    return select


def _best(total: NDArray[np.float64], length: NDArray[np.int64], transitions: int) -> NDArray[np.int64]:
    """Trajectories in descending return, up to the one with which the count of rows exceeds `transitions`."""
    order = np.argsort(-total, kind="stable")
    before = np.cumsum(length[order]) - length[order]
    return order[before <= transitions]


def _rows(column: Any, rows: NDArray[np.int64], n: int) -> Any:
    if isinstance(column, Mapping):
        return {key: _rows(values, rows, n) for key, values in column.items()}
    column = np.asarray(column)
    return column[rows] if column.ndim and len(column) == n else column
