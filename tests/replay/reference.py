"""ARB by loops: equations 3 and 4 of the paper as they are written, to compare the fast sampler with.

The rows of the buffer are a list, the oldest first. Each knows its trajectory and, after a refresh, its weight.
"""

from __future__ import annotations

import math


class ReferenceARB:
    def __init__(self, capacity: int, temperature: float, low: float, high: float):
        self.capacity, self.temperature, self.low, self.high = capacity, temperature, low, high
        self.trajectory: list[int] = []
        self.weight: list[float | None] = []

    def add(self, trajectory: int) -> None:
        """A new row, which has no weight yet; the oldest goes if the buffer is full."""
        self.trajectory.append(trajectory)
        self.weight.append(None)
        if len(self.trajectory) > self.capacity:
            del self.trajectory[0], self.weight[0]

    def refresh(self, scores: list[float]) -> None:
        """Weigh every row by the log-likelihood of its trajectory under the current policy."""
        # Equation 3: clip the log-likelihoods, and divide the likelihoods by the largest.
        clipped = [min(max(score, self.low), self.high) for score in scores]
        onpolicyness = [score - max(clipped) for score in clipped]
        # Equation 4: the geometric mean over the steps of a trajectory, to the power 1/λ.
        for row, trajectory in enumerate(self.trajectory):
            steps = [onpolicyness[i] for i, other in enumerate(self.trajectory) if other == trajectory]
            self.weight[row] = math.exp(sum(steps) / len(steps) / self.temperature)

    def probabilities(self) -> list[float]:
        """Rows in proportion to their weights; a row without one has the largest that there is."""
        known = [weight for weight in self.weight if weight is not None]
        largest = max(known, default=1.0)
        weight = [largest if own is None else own for own in self.weight]
        return [own / sum(weight) for own in weight]
