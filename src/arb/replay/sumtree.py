"""Draws in proportion to weights that change row by row, as prioritised replay needs them (BERB)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError


class SumTree:
    """A binary tree of sums over `capacity` weights, all zero at first.

    A changed weight rewrites its ancestors as the sum of their two children, never by adding a difference, so no
    rounding error builds up over millions of updates. A draw walks down from the root and never enters a child of
    weight zero, so a row without weight is never drawn, whatever the rounding.

    >>> tree = SumTree(3)
    >>> tree.set([0, 2], [1.0, 3.0])
    >>> tree.total, tree.get([0, 1, 2])
    (4.0, array([1., 0., 3.]))
    """

    def __init__(self, capacity: int):
        if capacity < 1:
            raise DataError(f"a sum tree needs a capacity of at least 1, got {capacity}")
        self.capacity = capacity
        self._leaves = 1 << (capacity - 1).bit_length()
        self._node = np.zeros(2 * self._leaves)  # node 1 is the root; the children of i are 2i and 2i + 1

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._node[1])

    def get(self, rows: ArrayLike) -> NDArray[np.float64]:
        """The weights of these rows."""
        return np.asarray(self._node[self._leaves + self._checked(rows)])

    def set(self, rows: ArrayLike, weights: ArrayLike) -> None:
        """Give these rows these weights; of a row named twice, the last weight counts."""
        node = self._leaves + self._checked(rows)
        weight = np.broadcast_to(np.asarray(weights, np.float64), node.shape)
        if not np.isfinite(weight).all() or (weight < 0.0).any():
            raise DataError("weights must be finite and not negative")
        self._node[node] = weight
        while node.size and node.flat[0] > 1:
            node = np.unique(node >> 1)
            self._node[node] = self._node[2 * node] + self._node[2 * node + 1]

    def sample(self, rng: np.random.Generator, n: int, *, stratified: bool = False) -> NDArray[np.int64]:
        """n rows in proportion to their weights, with replacement.

        `stratified` makes one draw in each of n equal parts of the total, as prioritised replay does: the same
        probabilities, less spread.
        """
        if self.total <= 0.0:
            raise DataError("all weights are zero: nothing can be drawn")
        place = (np.arange(n) + rng.random(n)) / n if stratified else rng.random(n)
        place = place * self.total
        node = np.ones(n, np.int64)
        while node.size and node[0] < self._leaves:
            left, right = self._node[2 * node], self._node[2 * node + 1]
            go_right = ((place >= left) & (right > 0.0)) | (left == 0.0)
            place = np.where(go_right, place - left, place)
            node = 2 * node + go_right
        return node - self._leaves

    def state(self) -> NDArray[np.float64]:
        """The weights of all rows, from which `restore` rebuilds the tree bit for bit."""
        return self._node[self._leaves : self._leaves + self.capacity].copy()

    def restore(self, weights: NDArray[np.float64]) -> None:
        """Take over the weights of another tree of the same capacity."""
        self.set(np.arange(self.capacity), weights)

    def _checked(self, rows: ArrayLike) -> NDArray[Any]:
        index = np.atleast_1d(np.asarray(rows, np.int64))
        if index.size and (index.min() < 0 or index.max() >= self.capacity):
            raise DataError(f"rows must lie in 0..{self.capacity - 1}, got {index.min()}..{index.max()}")
        return index
