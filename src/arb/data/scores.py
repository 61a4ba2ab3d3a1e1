"""Normalised scores: 0 is D4RL's random policy, 100 its expert. Always of raw rewards, whatever shaping did to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Reference(NamedTuple):
    """The returns that count as 0 and as 100."""

    low: float
    high: float


def normalised(returns: ArrayLike, reference: Reference) -> NDArray[np.float64]:
    """`100 (R - low) / (high - low)` of every return, times 100 as in the papers (D4RL's function leaves it out)."""
    if not reference.high > reference.low:
        raise ValueError(f"score reference {reference.low} .. {reference.high}: the second must be larger")
    raw: NDArray[Any] = np.asarray(returns, np.float64)
    return 100.0 * (raw - reference.low) / (reference.high - reference.low)
