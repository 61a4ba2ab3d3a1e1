"""Mistakes in what a caller handed over, said in one line."""

from __future__ import annotations

from typing import Any

import numpy as np

from arb.buffer.batch import Array


class DataError(ValueError):
    """Data that cannot be used: the message says what is wrong, where, and what to do."""


def refuse_non_finite(name: str, column: Array, first_row: int = 0) -> None:
    """Raise a `DataError` that names the first row in which a float column is nan or infinite."""
    if column.dtype.kind not in "fc" or np.isfinite(column).all():
        return
    row = int(np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(1))[0])
    raise DataError(
        f"{name} has a value that is not finite in row {first_row + row}: {_shown(column[row])}; "
        "repair or drop that row before handing the data over"
    )


def refuse_out_of_bounds(name: str, action: Array, low: Array, high: Array) -> None:
    """Raise a `DataError` that names the first row whose action leaves its bounds."""
    outside = (action < low) | (action > high)
    if not outside.any():
        return
    row = int(np.flatnonzero(outside.reshape(len(action), -1).any(1))[0])
    raise DataError(
        f"{name} leaves the bounds [{_shown(low)}, {_shown(high)}] in row {row}: {_shown(action[row])}; "
        "clip the actions, or rescale them to the action space the policy uses"
    )


def _shown(value: Any) -> str:
    return np.array2string(np.asarray(value), precision=4, threshold=8, separator=", ")
