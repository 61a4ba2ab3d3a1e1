"""Asks for the score of many rows, in chunks of one size, and checks what is answered.

Every call asks for the same number of rows, because frameworks that compile do so once per shape.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Array
from arb.replay.index import Ints
from arb.replay.scores import as_numpy

RowScore = Callable[[Ints | slice], Any]
"""Rows to one log-likelihood each, as NumPy, JAX or torch array."""

CHUNK = 2048
"""Rows per call of a score: a 256-wide network then stays in the cache, and a call's overhead is small."""


def score_all(score: RowScore, size: int, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of rows 0..size-1, in calls of one size.

    The last call overlaps the one before. If there are fewer rows than one call has, row 0 is repeated to fill it.
    """
    scores = np.empty(size, np.float32)
    for start in range(0, size, chunk):
        first = max(min(start, size - chunk), 0)
        rows: Ints | slice = slice(first, first + chunk)
        if size < chunk:
            rows = np.append(np.arange(size), np.zeros(chunk - size, np.int64))
        values = _called(score, rows, chunk)[: size - first]
        _refuse_non_finite(values, first)
        scores[first : first + chunk] = values
    return scores


def score_some(score: RowScore, rows: Ints, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The scores of these rows, in calls of one size; the last one is filled up with its first row."""
    scores = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), chunk):
        some = rows[start : start + chunk]
        values = _called(score, np.append(some, np.full(chunk - len(some), some[0])), chunk)[: len(some)]
        _refuse_non_finite(values, int(some[0]))
        scores[start : start + chunk] = values
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


def _refuse_non_finite(values: Array, first: int) -> None:
    if np.isfinite(values).all():
        return
    where = int(np.flatnonzero(~np.isfinite(values))[0])
    raise DataError(
        f"the score is {values[where]} in row {first + where}: a log-likelihood must be finite; clamp actions "
        "away from the bounds of a squashed policy, and check the policy's parameters for nan"
    )
