"""What is done to states and rewards before an agent sees them: fitted once, applied to file and environment alike.

Which rule applies is in the rows of `arb.lab.algorithms`. Scores are computed on raw rewards (`arb.data.tasks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.data.columns import Dataset, episode_returns
from arb.errors import DataError
from arb.lab.algorithms import ShapingRule

Floats = NDArray[np.float32]
EPSILON = 1e-3
"""Added to standard deviations (CORL), so that a column that never moves stays finite."""
RETURN_RANGE = 1000.0
"""Scaled locomotion rewards make the returns of the dataset span this much (IQL's convention)."""
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Shaping:
    """The fitted map. `mean` and `std` are None where states are left alone."""

    mean: Floats | None = None
    std: Floats | None = None
    scale: float = 1.0
    shift: float = 0.0

    def observations(self, obs: ArrayLike) -> Floats:
        """One observation, or any stack of them, as float32."""
        raw = np.asarray(obs, np.float32)
        if self.mean is None or self.std is None:
            return raw
        shaped = np.asarray(raw - self.mean)
        shaped /= self.std  # in place: a column may be as large as half the memory
        return shaped

    def rewards(self, rewards: ArrayLike) -> Floats:
        """One reward, or any stack of them, as float32."""
        return np.asarray(self.scale * np.asarray(rewards, np.float64) + self.shift, np.float32)

    def dataset(self, columns: Mapping[str, Any]) -> Dataset:
        """A dataset as the algorithm sees it; columns that do not change are shared, not copied."""
        shaped = dict(columns)
        shaped["rewards"] = self.rewards(columns["rewards"])
        for name in ("observations", "next_observations"):
            if name in columns and self.mean is not None:
                shaped[name] = self.observations(columns[name])
        return shaped

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a checkpoint or a record; exact."""
        lists = {
            name: None if part is None else part.tolist() for name, part in (("mean", self.mean), ("std", self.std))
        }
        return {**lists, "scale": self.scale, "shift": self.shift}


def fit(rule: ShapingRule, columns: Mapping[str, Any]) -> Shaping:
    """Fit a rule to a dataset, once and for all."""
    mean = std = None
    if rule.states and not isinstance(columns["observations"], Mapping):
        mean, std = moments(columns["observations"])
        std = std + np.float32(EPSILON)
    scale = rule.scale * (return_scale(columns) if rule.by_return_range else 1.0)
    return Shaping(mean, std, scale, rule.shift)


def moments(observations: NDArray[Any]) -> tuple[Floats, Floats]:
    """Mean and (population) standard deviation per column, accumulated in double precision, a block at a time."""
    blocks = [observations[start : start + _CHUNK] for start in range(0, len(observations), _CHUNK)]
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks) / len(observations)
    squares = sum(((block - mean) ** 2).sum(0) for block in blocks)
    return np.asarray(mean, np.float32), np.asarray(np.sqrt(squares / len(observations)), np.float32)


def return_scale(columns: Mapping[str, Any]) -> float:
    """1000 over the distance from the worst to the best return, of true episodes (CORL's scan drifts across ends)."""
    returns = episode_returns(columns)
    span = float(returns.max() - returns.min())
    if span == 0.0:
        raise DataError("rewards cannot be scaled by the range of returns: all episodes of the dataset have the same")
    return RETURN_RANGE / span


class Shaped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations and rewards through a `Shaping`; `info["raw_reward"]` is what scores are made of."""

    def __init__(self, env: gymnasium.Env[Any, Any], shaping: Shaping) -> None:
        super().__init__(env)
        self.shaping = shaping
        space = env.observation_space
        if isinstance(space, gymnasium.spaces.Box):
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and shape the first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._refuse_not_finite("observation", obs)
        return self.shaping.observations(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and shape what comes back."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        raw = float(reward)
        self._refuse_not_finite("reward", raw)
        self._refuse_not_finite("observation", obs)
        shaped = float(self.shaping.rewards(raw))
        return self.shaping.observations(obs), shaped, terminated, truncated, {**info, "raw_reward": raw}

    def _refuse_not_finite(self, what: str, value: Any) -> None:
        if not np.isfinite(value).all():
            name = self.spec.id if self.spec else type(self.unwrapped).__name__
            raise DataError(f"the environment {name} returned the {what} {value}, which is not finite: fix it there")
