"""Asks a policy for the score of many rows, in chunks of one size, and checks what it answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array
from arb.buffer.dataset import unwrapped
from arb.buffer.errors import DataError
from arb.buffer.ledger import Ints
from arb.buffer.likelihood import Score, as_numpy
from arb.buffer.storage import Storage

CHUNK = 2048
"""Rows per call of a score: a 256-wide network then stays in the cache, and a call's overhead is small."""


def score_all(score: Score, storage: Storage, size: int, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of rows 0..size-1.

    Every call gets the same number of rows, because frameworks that compile do so once per shape: the last window
    overlaps the one before, or reaches into rows not filled yet, whose scores are dropped.
    """
    scores = np.empty(size, np.float32)
    window = min(chunk, storage.capacity)
    for start in range(0, size, window):
        first = min(start, storage.capacity - window)
        rows = slice(first, first + window)
        values = _called(score, unwrapped(storage.observations(rows)), storage.actions(rows), window)
        values = values[start - first : size - first]
        _refuse_non_finite(values, start)
        scores[start : start + len(values)] = values
    return scores


def score_some(score: Score, storage: Storage, rows: Ints, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of some rows, in calls of one size: the last repeats a row to fill it."""
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        padded = np.concatenate([part, np.repeat(part[:1], chunk - len(part))])
        values = _called(score, unwrapped(storage.observations(padded)), storage.actions(padded), chunk)
        values = values[: len(part)]
        _refuse_non_finite(values, part)
        scores[start : start + len(part)] = values
    return scores


def _called(score: Score, obs: Any, action: Array, n: int) -> Array:
    values = as_numpy(score(obs, action))
    if values.shape == (n, 1):
        values = values[:, 0]
    if values.shape != (n,):
        raise DataError(
            f"the score returned shape {values.shape} for {n} rows, not one log-likelihood per row, ({n},): "
            "sum over the action dimensions; a policy that returns actions and no likelihood is deterministic, and "
            "needs arb.gaussian_score with a fixed width"
        )
    return values


def _refuse_non_finite(values: Array, rows: Ints | int) -> None:
    if np.isfinite(values).all():
        return
    where = int(np.flatnonzero(~np.isfinite(values))[0])
    row = rows + where if isinstance(rows, int) else rows[where]
    raise DataError(
        f"the score is {values[where]} in row {row}: a log-likelihood must be finite; clamp actions away from the "
        "bounds of a squashed policy, and check the policy's parameters for nan"
    )
