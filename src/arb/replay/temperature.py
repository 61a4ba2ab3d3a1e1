"""The temperature λ of equation 4: given, or solved for at every refresh so that enough rows take part.

ARB's distribution maximises the expected log on-policyness under a bound on the KL divergence from uniform sampling,
and λ is the multiplier of that bound (REPS and MPO's E-step have the same form). Fixing the effective sample size
instead of λ makes the draws independent of the scale of the score. docs/temperature.md has the argument and sources.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from arb.errors import DataError, check_choice
from arb.replay.onpolicyness import Floats, Ints

Unit = Literal["score", "spread"]
Temperature = float | Literal["auto"]

SMALLEST = float(np.finfo(np.float32).tiny)
"""Scores are float32: whatever is smaller than this is nothing."""
TOLERANCE = 1e-9
"""How far, relatively, the effective sample size at a solved temperature may be from the one asked for."""
RANGE = 1e9
"""Temperatures are sought from the largest absolute value divided by this to the largest multiplied by this.

Differences between scores below the resolution of float32 are noise. The lower end is where they still change nothing.
At the upper end all rows are equally likely, to the last digit.
"""
HALVINGS = 60
"""Of that range: enough to reach the resolution of float64."""


@dataclass(frozen=True)
class TemperatureRule:
    """How λ follows from the values to be weighed. Effective sample sizes up to 1 are shares, above 1 rows.

    >>> TemperatureRule("auto", effective=0.5).solve(np.array([0.0, -3.0]), np.array([10, 90]))    # doctest: +ELLIPSIS
    1.674...
    >>> TemperatureRule(2.0, least_effective=0.5).solve(np.array([0.0, -3.0]), np.array([10, 90]))
    2.0
    """

    temperature: Temperature
    effective: float | None = None
    """With `"auto"`: the effective sample size to hold."""
    least_effective: float | None = None
    """With a number: the effective sample size below which λ is raised."""
    unit: Unit = "score"
    """With a number: whether λ counts log-likelihoods or their standard deviations over the rows."""

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, get_args(Unit))
        if self.temperature == "auto":
            if self.effective is None or not self.effective > 0.0:
                raise DataError(f"effective must be a share of the rows, or a number of rows, not {self.effective}")
            if self.least_effective is not None:
                raise DataError('temperature="auto" holds effective itself: leave out least_effective')
            return
        given: Any = self.temperature
        if isinstance(given, str) or not given >= SMALLEST:
            raise DataError(f'temperature must be greater than 0, or "auto", not {given!r}')
        if self.effective is not None:
            raise DataError('effective needs temperature="auto"; with a number pass least_effective')
        if self.least_effective is not None and not self.least_effective > 0.0:
            raise DataError(f"least_effective must be a share or a number of rows, not {self.least_effective}")

    @property
    def held(self) -> float | None:
        """The effective sample size below which no refresh goes; None if there is no limit."""
        return self.effective if self.temperature == "auto" else self.least_effective

    def solve(self, log_onp: Floats, rows: Ints) -> float:
        """λ for values that stand for so many rows each, see `temperature_for`."""
        target = 0.0 if self.held is None else as_rows(self.held, int(rows.sum()))
        if isinstance(self.temperature, str):
            return temperature_for(log_onp, rows, target)
        given = self.temperature
        if self.unit == "spread":
            given = max(given * spread(log_onp, rows), float(np.abs(log_onp).max()) / RANGE) or given
        if effective_rows(log_onp / given, rows) >= target:
            return given
        return max(given, temperature_for(log_onp, rows, target))


def as_rows(effective: float, rows: int) -> float:
    """An effective sample size in rows: given as a share up to 1, as a number above.

    >>> as_rows(0.25, 1000), as_rows(300, 1000), as_rows(50_000, 1000)
    (250.0, 300.0, 1000.0)
    """
    return min(effective * rows if effective <= 1.0 else float(effective), float(rows))


def effective_rows(log_weight: Floats, rows: Ints) -> float:
    """Effective sample size 1/Σp² of a distribution in which `rows[i]` rows have the log weight `log_weight[i]` each.

    >>> effective_rows(np.log([1.0, 0.5]), np.array([2, 4]))    # (2 + 4/2)² / (2 + 4/4)
    5.333333333333333
    """
    weight = np.exp(log_weight - log_weight.max())
    mass = rows * weight
    return float(mass.sum() ** 2 / (mass * weight).sum())  # sums, as a product of BLAS depends on its threads


def temperature_for(log_onp: Floats, rows: Ints, target: float) -> float:
    """The temperature at which the effective sample size is `target` rows, or as close to it as it gets.

    It grows with the temperature, from the number of rows that share the greatest value to the number of all rows, so
    bisection in log λ finds the one solution. A target outside these limits gets the temperature at that end of the
    range. If all values are zero, every temperature gives the same weights, and 1 is returned.

    Args:
        log_onp: mean `log_onpolicyness` of every trajectory, or that of every row; at most 0.
        rows: how many rows each value stands for.
        target: effective sample size in rows.

    >>> temperature = temperature_for(np.array([0.0, -3.0]), np.array([10, 90]), target=50.0)
    >>> round(effective_rows(np.array([0.0, -3.0]) / temperature, np.array([10, 90])), 6)
    50.0
    """
    extent = float(np.abs(log_onp).max())
    if extent < SMALLEST:
        return 1.0
    low, high = math.log(extent / RANGE), math.log(extent * RANGE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        excess = effective_rows(log_onp / math.exp(middle), rows) / target - 1.0
        if abs(excess) < TOLERANCE:
            return math.exp(middle)
        low, high = (low, middle) if excess > 0.0 else (middle, high)
    return math.exp(high)


def spread(values: Floats, rows: Ints) -> float:
    """Standard deviation of values that stand for so many rows each.

    >>> spread(np.array([0.0, -4.0]), np.array([3, 1]))
    1.7320508075688772
    """
    mean = np.average(values, weights=rows)
    return float(np.sqrt(np.average(np.square(values - mean), weights=rows)))


def online_bound(online_share: float, effective_share: float) -> float:
    """The largest share of a batch that online rows can have, from their share of the rows and the effective share.

    By Cauchy and Schwarz a set A of rows has the probability Σ_A p ≤ √(|A| Σp²) = √(|A| / effective sample size).

    >>> online_bound(0.01, effective_share=0.25)
    0.2
    """
    return min(1.0, math.sqrt(online_share / effective_share))
