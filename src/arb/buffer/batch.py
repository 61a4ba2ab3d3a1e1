"""What an algorithm receives: a batch of transitions, as values and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Obs = Array | dict[str, Array]
"""An observation (or a stack of them): one array of any shape and dtype, or a flat dict of arrays."""


class Batch(NamedTuple):
    """Transitions with leading axes `(B,)` or `(updates, B)`, as NumPy arrays (or whatever a caller maps them to)."""

    obs: Obs
    action: Array
    reward: NDArray[np.float32]
    next_obs: Obs
    discount: NDArray[np.float32]
    """0 where the task ended, 1 where it went on or was cut off by a time limit. Multiply your gamma with it."""
    return_to_go: NDArray[np.float32]
    """Discounted Monte-Carlo return from this step on; `-inf` while its episode is open, so `max(q, .)` is q."""

    def reshape(self, shape: tuple[int, ...]) -> Batch:
        """The same transitions with other leading axes."""
        return Batch(*(_reshaped(column, shape) for column in self))


def _reshaped(column: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(column, dict):
        return {key: _reshaped(values, shape) for key, values in column.items()}
    return column.reshape(*shape, *column.shape[1:])
