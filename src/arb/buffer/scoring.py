"""Asks for the score of many rows, in chunks of one size, and checks what is answered.

Every call asks for the same number of rows, because frameworks that compile do so once per shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array
from arb.buffer.ledger import Ints
from arb.buffer.likelihood import as_numpy
from arb.errors import DataError

RowScore = Callable[[Ints | slice], Any]
"""Rows to one log-likelihood each, as NumPy, JAX or torch array."""

CHUNK = 2048
"""Rows per call of a score: a 256-wide network then stays in the cache, and a call's overhead is small."""


def score_all(score: RowScore, size: int, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of rows 0..size-1: side by side in calls of one size, the last of which overlaps the one before."""
    if size < chunk:
        return score_some(score, np.arange(size), chunk)
    scores = np.empty(size, np.float32)
    for start in range(0, size, chunk):
        first = min(start, size - chunk)
        values = _called(score, slice(first, first + chunk), chunk)
        _refuse_non_finite(values, first)
        scores[first : first + chunk] = values
    return scores


def score_some(score: RowScore, rows: Ints, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of some rows, in calls of one size: the last repeats a row to fill it."""
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        values = _called(score, np.concatenate([part, np.repeat(part[:1], chunk - len(part))]), chunk)
        values = values[: len(part)]
        _refuse_non_finite(values, part)
        scores[start : start + len(part)] = values
    return scores


def _called(score: RowScore, rows: Ints | slice, n: int) -> Array:
    values = as_numpy(score(rows))
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
