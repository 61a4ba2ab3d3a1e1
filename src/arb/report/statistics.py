"""The statistics of a report, as small pure functions.

Scores of several tasks are given as one array per task, a number per seed: tasks may have different numbers of seeds.
Definitions follow Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (2021).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
ByTask = Sequence[Floats]
"""One array per task, one score per seed."""

RESAMPLES = 5_000
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number with its bootstrap interval, which is missing where there are too few seeds for one."""

    value: float
    low: float | None
    high: float | None


def spread(values: ArrayLike) -> float | None:
    """The sample standard deviation (divided by n - 1); None for a single value, of which nothing is known.

    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    values = np.asarray(values, float)
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def iqm(values: ArrayLike, axis: int | None = None) -> Floats:
    """The mean of the middle half: a quarter of the values, rounded down, is left out at either end.

    >>> float(iqm([0.0, 1.0, 3.0, 100.0]))
    2.0
    """
    values = np.asarray(values, float)
    if axis is None:
        values, axis = values.ravel(), 0
    n = values.shape[axis]
    cut = n // 4
    middle = np.take(np.sort(values, axis), np.arange(cut, n - cut), axis)
    return np.asarray(middle.mean(axis), float)


def optimality_gap(values: ArrayLike, target: float = 100.0, axis: int | None = None) -> Floats:
    """How far below a target the values are on average; what is above it does not make up for it.

    >>> float(optimality_gap([50.0, 150.0]))
    25.0
    """
    return np.asarray(target - np.minimum(np.asarray(values, float), target).mean(axis), float)


def improvement(better: ByTask, worse: ByTask) -> float:
    """The probability that a run of one scores above a run of the other on a task, averaged over tasks.

    Ties count half. It says how often, not by how much.

    >>> improvement([np.array([1.0, 2.0])], [np.array([0.0, 2.0])])
    0.625
    """
    return float(np.mean([_above(x, y) for x, y in zip(better, worse, strict=True)]))


def _above(x: Floats, y: Floats) -> Floats:
    """The share of pairs with x above y; the last axis holds the seeds."""
    pairs = np.sign(x[..., :, None] - y[..., None, :])
    return np.asarray((pairs.mean((-2, -1)) + 1.0) / 2.0, float)


def profile(scores: ByTask, thresholds: ArrayLike) -> Floats:
    """The share of runs above each threshold: one curve, higher is better everywhere.

    >>> profile([np.array([1.0, 3.0])], [0.0, 2.0, 4.0])
    array([1. , 0.5, 0. ])
    """
    return np.asarray((np.concatenate(scores)[:, None] > np.asarray(thresholds, float)).mean(0), float)


def area(steps: ArrayLike, scores: ArrayLike) -> float:
    """The area under a curve divided by its width: the score at an average moment of training.

    >>> area([0, 10, 20], [0.0, 10.0, 10.0])
    7.5
    """
    steps, scores = np.asarray(steps, float), np.asarray(scores, float)
    if len(steps) == 1:
        return float(scores[0])
    return float((np.diff(steps) * (scores[1:] + scores[:-1]) / 2.0).sum() / (steps[-1] - steps[0]))


def spaced(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers 0..n-1, evenly spaced, the last among them.

    >>> spaced(5, 3).tolist(), spaced(2, 9).tolist()
    ([0, 2, 4], [0, 1])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


# ---- intervals -------------------------------------------------------------------------------------------------------
def resampled(scores: ByTask, rng: np.random.Generator, resamples: int = RESAMPLES) -> list[Floats]:
    """Seeds drawn with replacement within each task, many times: one array of resamples × seeds per task."""
    return [values[rng.integers(len(values), size=(resamples, len(values)))] for values in scores]


def interval(draws: ArrayLike, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """The percentile interval of resampled statistics, along the first axis."""
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(np.asarray(draws, float), (tail, 100.0 - tail), axis=0)
    return np.asarray(low), np.asarray(high)


def has_interval(*scores: ByTask) -> bool:
    """Whether every task has at least two seeds: resampling one seed would claim that nothing varies."""
    return all(len(values) > 1 for group in scores for values in group)


def estimate(
    scores: ByTask, statistic: Callable[..., Floats], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of all runs together, with its stratified bootstrap interval.

    Args:
        scores: one array per task.
        statistic: takes an array and an axis, such as `iqm` or `np.mean`.
        seed: of the resampling.
        resamples: how many.
    """
    value = float(statistic(np.concatenate(scores), axis=0))
    if not has_interval(scores):
        return Estimate(value, None, None)
    drawn = np.concatenate(resampled(scores, np.random.default_rng(seed), resamples), axis=1)
    low, high = interval(statistic(drawn, axis=1))
    return Estimate(value, float(low), float(high))


def estimate_improvement(better: ByTask, worse: ByTask, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The probability of improvement with its stratified bootstrap interval; both sides are resampled."""
    value = improvement(better, worse)
    if not has_interval(better, worse):
        return Estimate(value, None, None)
    rng = np.random.default_rng(seed)
    sides = zip(resampled(better, rng, resamples), resampled(worse, rng, resamples), strict=True)
    low, high = interval(np.mean([_above(x, y) for x, y in sides], axis=0))
    return Estimate(value, float(low), float(high))


def profile_band(
    scores: ByTask, thresholds: ArrayLike, *, seed: int = 0, resamples: int = 1_000
) -> tuple[Floats, Floats] | None:
    """The pointwise bootstrap band of a performance profile; None with too few seeds."""
    if not has_interval(scores):
        return None
    drawn = np.sort(np.concatenate(resampled(scores, np.random.default_rng(seed), resamples), axis=1), axis=1)
    below = np.array([np.searchsorted(row, np.asarray(thresholds, float), side="right") for row in drawn])
    return interval(1.0 - below / drawn.shape[1])
