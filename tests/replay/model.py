"""A replay buffer as a Python list: slow, obvious, and what the real one is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Step:
    obs: float
    next_obs: float
    reward: float
    terminated: bool
    online: bool
    trajectory: int
    weight: float | None = None
    """None for a step that came after the last refresh."""


@dataclass
class Model:
    """Every step ever inserted; the last `capacity` of them are alive."""

    capacity: int
    gamma: float
    steps: list[Step] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    begun: int = 0
    refreshed: bool = False

    @property
    def alive(self) -> list[Step]:
        return self.steps[-self.capacity :]

    def begin(self) -> int:
        self.begun += 1
        return self.begun - 1

    def refresh(self, score, temperature: float, low: float, high: float) -> None:
        members: dict[int, list[float]] = {}
        for step in self.alive:
            members.setdefault(step.trajectory, []).append(float(np.clip(np.float32(score(step.obs)), low, high)))
        mean = {name: np.mean(values) for name, values in members.items()}
        top = max(mean.values())
        for step in self.alive:
            step.weight = np.exp((mean[step.trajectory] - top) / temperature)
        self.refreshed = True

    def probability(self) -> dict[float, float]:
        """Probability of each living step, named by its observation; new ones have the largest weight of the others."""
        largest = max((step.weight for step in self.alive if step.weight is not None), default=1.0)
        weight = {step.obs: largest if step.weight is None else step.weight for step in self.alive}
        return {obs: value / sum(weight.values()) for obs, value in weight.items()}

    def around(self, obs: float) -> tuple[list[Step], list[Step]]:
        """The living steps of a step's trajectory: those before it, and those from it on."""
        named = next(step for step in self.alive if step.obs == obs)
        own = [step for step in self.alive if step.trajectory == named.trajectory]
        return own[: own.index(named)], own[own.index(named) :]

    def return_to_go(self, index: int) -> float:
        first = self.steps[index]
        if first.trajectory not in self.closed:
            return -np.inf
        total, factor = 0.0, 1.0
        for step in self.steps[index:]:
            if step.trajectory == first.trajectory:
                total += factor * step.reward
                factor *= self.gamma
                if step.terminated:
                    break
        return total
