"""The statistics of a report: paired differences between strategies, with Student's interval and Holm's correction.

Strategies of one seed start from the same pre-trained agent, so their scores are subtracted. Differences are given as
one array per task, a number per seed. All tasks weigh the same, whatever their seeds. A claim is about datasets, so the
headline interval and test treat the mean difference of each dataset as one observation; the interval over seeds says
how well the mean over these very datasets is known.
"""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from arb.report.records import MEASURES, PRIMARY, Floats, Record, Results

ByTask = Sequence[Floats]
"""One array per task, one number per seed."""
Key = TypeVar("Key", bound=Hashable)
Verdict = Literal["better", "worse", "no difference that matters", "cannot tell"]

CONFIDENCE = 0.95
LEVEL = 1.0 - CONFIDENCE
MARGIN = 5.0
"""A difference smaller than this does not matter; in points of a normalised score."""
RESAMPLES = 5_000


class Estimate(NamedTuple):
    """A number with its interval, which is missing where there are too few numbers for one."""

    value: float
    low: float | None
    high: float | None


def mean_band(values: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean over seeds, and a standard deviation below and above it; one seed has none."""
    mean, std = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0.0
    return mean, mean - std, mean + std


# ---- Student's interval and test -------------------------------------------------------------------------------------
def mean_of(differences: ByTask) -> float:
    """The mean over tasks of the mean over seeds."""
    return float(np.mean([values.mean() for values in differences]))


def headline(differences: ByTask) -> ByTask:
    """What a claim rests on: the means of the datasets, each one observation, or the seeds of the only dataset.

    >>> headline([np.array([1.0, 3.0]), np.array([10.0])])
    [array([ 2., 10.])]
    """
    return [np.array([values.mean() for values in differences])] if len(differences) > 1 else differences


def standard_error(differences: ByTask) -> tuple[float, float] | None:
    """The standard error of the mean and its degrees of freedom; None where a task has one seed, or nothing varies.

    The variance of the mean over K tasks is Σ sₖ²/nₖ / K²; its degrees of freedom follow Satterthwaite.
    """
    if not differences or min(map(len, differences)) < 2:
        return None
    parts = np.array([values.var(ddof=1) / len(values) for values in differences])
    if not parts.sum() > 0.0:
        return None  # a few equal numbers, such as no success anywhere, do not prove that chance plays no part
    freedom = parts.sum() ** 2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, differences, strict=True))
    return math.sqrt(parts.sum()) / len(differences), float(freedom)


def t_interval(differences: ByTask, confidence: float = CONFIDENCE) -> Estimate:
    """The mean difference with Student's interval: right for few seeds where differences are about normal.

    >>> [round(number, 2) for number in t_interval([np.array([1.0, 2.0, 3.0])])]
    [2.0, -0.48, 4.48]
    """
    mean, found = mean_of(differences), standard_error(differences)
    if found is None:
        return Estimate(mean, None, None)
    from scipy.special import stdtrit  # it takes a second, and a plot of one run need not wait for it

    error, freedom = found
    reach = float(stdtrit(freedom, (1.0 + confidence) / 2.0)) * error
    return Estimate(mean, mean - reach, mean + reach)


def p_value(differences: ByTask) -> float | None:
    """Of Student's two-sided test that the mean difference is zero; None where there is no interval."""
    found = standard_error(differences)
    if found is None:
        return None
    from scipy.special import stdtr

    error, freedom = found
    return 2.0 * float(stdtr(freedom, -abs(mean_of(differences)) / error))


def holm(values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """p-values corrected for their number (Holm 1979): the chance of even one false discovery stays below the level.

    The smallest of m is multiplied by m, the next by m - 1, and none may fall below the one before.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    known = sorted((value, i, key) for i, (key, value) in enumerate(values.items()) if value is not None)
    found: dict[Key, float | None] = dict.fromkeys(values)
    worst = 0.0
    for place, (value, _, key) in enumerate(known):
        worst = min(1.0, max(worst, (len(known) - place) * value))
        found[key] = worst
    return found


def verdict(differences: ByTask, corrected: float | None, margin: float | None = MARGIN) -> Verdict:
    """What may be said: a corrected p-value below 5%, an interval within the margin, or nothing."""
    found = t_interval(differences)
    if found.low is None or found.high is None or corrected is None:
        return "cannot tell"
    if corrected < LEVEL:
        return "better" if found.value > 0 else "worse"
    small = margin is not None and -margin < found.low and found.high < margin
    return "no difference that matters" if small else "cannot tell"


# ---- pairs of runs ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """A variant against a baseline: runs of the same task, seed, data and settings, those of replay apart."""

    agent: str
    variant: str
    strategy: str
    baseline: str
    pairs: Mapping[str, tuple[tuple[Record, Record], ...]]
    """By task, in the order of seeds: the variant's run, and the baseline's."""

    def differences(self, measure: str = PRIMARY) -> dict[str, Floats]:
        """By task: one number per seed, the variant's minus the baseline's; tasks without a number are left out."""
        found = {}
        for task, pairs in self.pairs.items():
            numbers = [(MEASURES[measure].of(ours), MEASURES[measure].of(theirs)) for ours, theirs in pairs]
            values = [a - b for a, b in numbers if a is not None and b is not None]
            if values:
                found[task] = np.array(values)
        return found

    @property
    def normalised(self) -> tuple[str, ...]:
        """The tasks whose differences may be averaged."""
        return tuple(t for t, pairs in self.pairs.items() if all(run.reference for pair in pairs for run in pair))

    def over(self, tasks: Iterable[str], measure: str = PRIMARY) -> list[Floats]:
        found = self.differences(measure)
        return [found[task] for task in tasks if task in found]


def comparisons(results: Results, baseline: str) -> list[Comparison]:
    """Every variant that is not the baseline and has at least one pair with it."""
    base: dict[str, Record] = {}
    for group in results.groups:
        for run in group.runs if group.strategy == baseline and group.finished else ():
            base.setdefault(shared_start(run), run)
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for group in sorted(results.groups, key=lambda group: results.order.index(group.variant)):
        starts = ((run, shared_start(run)) for run in sorted(group.runs, key=lambda run: run.seed))
        pairs = tuple((run, base[start]) for run, start in starts if start in base)
        if pairs and group.finished and group.strategy != baseline:
            found.setdefault((group.agent, group.variant, group.strategy), {})[group.task] = pairs
    return [Comparison(*which, baseline, pairs) for which, pairs in found.items()]


def compared(results: Results, agent: str, wanted: str) -> list[Comparison]:
    """An agent's variants against the strategy that is wanted, or else against the first that it has."""
    there = [group.strategy for group in results.of(agent) if group.finished]
    base = wanted if wanted in there else next(iter(there), wanted)
    return [one for one in comparisons(results, base) if one.agent == agent]


def shared_start(run: Record) -> str:
    """What the runs of a pair share: everything but the replay strategy and its settings."""
    shared = {key: value for key, value in run.config.items() if not key.startswith("replay.")}
    return json.dumps([shared, run.data_hash], sort_keys=True)


# ---- for the comparison with the paper, after Agarwal et al. (2021) --------------------------------------------------
def iqm(values: ArrayLike, axis: int = -1) -> Floats:
    """The interquartile mean: a quarter of the values, rounded down, is left out at either end."""
    values = np.asarray(values, float)
    n = values.shape[axis]
    return np.asarray(np.take(np.sort(values, axis), np.arange(n // 4, n - n // 4), axis).mean(axis), float)


def bootstrap(
    scores: ByTask, statistic: Callable[..., Floats] = iqm, *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of all runs together, with its stratified percentile interval, which is too narrow for few seeds.

    Seeds are drawn with replacement within each task. A task with one seed gives no interval, because resampling it
    would claim that nothing varies.
    """
    value = float(statistic(np.concatenate(scores), axis=0))
    if min(map(len, scores)) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(seed)
    drawn = [values[rng.integers(len(values), size=(resamples, len(values)))] for values in scores]
    low, high = np.percentile(statistic(np.concatenate(drawn, axis=1), axis=1), (50.0 * LEVEL, 100.0 - 50.0 * LEVEL))
    return Estimate(value, float(low), float(high))


def profile(scores: ByTask, thresholds: ArrayLike) -> Floats:
    """The performance profile: the share of runs above each threshold."""
    return np.asarray((np.concatenate(scores)[:, None] > np.asarray(thresholds, float)).mean(0), float)
