"""Draws in proportion to fixed masses, at a cost that does not depend on how many there are.

Between two refreshes the weights are constant and hundreds of thousands of draws are made from them, so a table that
costs O(n) to build and two look-ups per draw (Walker's alias method) beats a cumulative sum with binary search, and a
sum tree, whose single-row updates nobody needs here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError


class AliasTable:
    """Draw index i with probability masses[i] / sum(masses).

    >>> table = AliasTable(np.array([1.0, 0.0, 3.0]))
    >>> table.probabilities()
    array([0.25, 0.  , 0.75])
    """

    def __init__(self, masses: NDArray[np.float64]):
        if len(masses) == 0 or not np.isfinite(masses).all() or masses.min() < 0.0 or masses.max() == 0.0:
            raise DataError("masses must be finite, not negative, and not all zero")
        self.keep, self.alias = _build(np.asarray(masses, np.float64))

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """n independent draws."""
        x = rng.random(n)
        x *= len(self.keep)
        cell = x.astype(np.int64)
        x -= cell
        return np.where(x < self.keep.take(cell), cell, self.alias.take(cell))

    def probabilities(self) -> NDArray[np.float64]:
        """The probability of every index, rebuilt from the table itself."""
        n = len(self.keep)
        return np.asarray((self.keep + np.bincount(self.alias, weights=1.0 - self.keep, minlength=n)) / n)


def _build(masses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vose's table without his loop.

    Scale the masses to mean 1. A cell with less lacks something, one with more has something to give. Line up all
    lacks and all gifts on one axis: each lacking cell is filled by the giver at whose stretch its own begins; a giver
    whose last client reaches beyond its stretch then lacks that much itself, and is filled by the next giver.
    """
    n = len(masses)
    p = masses / masses.max()  # first, so that the sum of very small masses keeps its digits
    p *= n / p.sum()
    lacking, giving = np.flatnonzero(p <= 1.0), np.flatnonzero(p > 1.0)
    keep, alias = p, np.arange(n)
    if len(giving) == 0:  # all equal, up to rounding
        return (masses > 0.0).astype(np.float64), alias
    lack = 1.0 - p[lacking]
    lack_end, gift_end = np.cumsum(lack), np.cumsum(p[giving] - 1.0)
    lack_start = lack_end - lack
    giver: NDArray[Any] = np.minimum(np.searchsorted(gift_end, lack_start, side="right"), len(giving) - 1)
    alias[lacking] = giving[giver]
    clients_so_far = np.searchsorted(lack_start, gift_end, side="left")
    reach = np.concatenate([[0.0], lack_end])[clients_so_far]
    keep[giving] = np.clip(1.0 + gift_end - reach, 0.0, 1.0)
    keep[giving[-1]] = 1.0  # takes up the rounding of both sums
    alias[giving[:-1]] = giving[1:]
    return keep, alias
