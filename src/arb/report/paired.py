"""Paired differences: strategies of one seed start from the same pre-trained agent, so their scores are subtracted.

Differences are given as one array per task, a number per seed. All tasks weigh the same, whatever their seeds. The
interval and the test are Student's, with a variance of its own per task (Welch and Satterthwaite), because bootstrap
intervals of a handful of seeds are too narrow; the stratified bootstrap stands beside it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import stdtr, stdtrit

from arb.report.statistics import CONFIDENCE, RESAMPLES, ByTask, Estimate, Floats, has_interval, interval, resampled

Key = TypeVar("Key", bound=Hashable)


def within(t: float, freedom: float) -> float:
    """The probability that a Student-distributed number lies between -t and t.

    >>> round(within(1.0, 1), 6)
    0.5
    """
    return float(2.0 * stdtr(freedom, abs(t)) - 1.0)


def critical(confidence: float, freedom: float) -> float:
    """The inverse of `within`: how many standard errors an interval reaches to either side.

    >>> round(critical(0.95, 1), 2), round(critical(0.95, 10), 3)
    (12.71, 2.228)
    """
    return float(stdtrit(freedom, (1.0 + confidence) / 2.0))


# ---- one comparison --------------------------------------------------------------------------------------------------
class Spread(NamedTuple):
    """What a t-interval is made of."""

    mean: float
    error: float
    """Standard error of the mean."""
    freedom: float


def mean_of(differences: ByTask) -> float:
    """The mean over tasks of the mean over seeds.

    >>> mean_of([np.array([1.0, 3.0]), np.array([10.0])])
    6.0
    """
    return float(np.mean([values.mean() for values in differences]))


def spread_of(differences: ByTask) -> Spread | None:
    """Mean, standard error and degrees of freedom; None where a task has one seed, or where nothing varies at all.

    The variance of the mean over K tasks is Σ sₖ²/nₖ / K²; its degrees of freedom follow Satterthwaite.
    """
    if not has_interval(differences):
        return None
    parts = np.array([values.var(ddof=1) / len(values) for values in differences])
    if not parts.sum() > 0.0:
        return None  # a few equal numbers, such as no success anywhere, do not prove that chance plays no part
    freedom = parts.sum() ** 2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, differences, strict=True))
    return Spread(mean_of(differences), math.sqrt(parts.sum()) / len(differences), float(freedom))


def t_interval(differences: ByTask, confidence: float = CONFIDENCE) -> Estimate:
    """The mean difference with Student's interval: right with few seeds where differences are about normal."""
    found = spread_of(differences)
    if found is None:
        return Estimate(mean_of(differences), None, None)
    reach = critical(confidence, found.freedom) * found.error
    return Estimate(found.mean, found.mean - reach, found.mean + reach)


def contrast(some: ByTask, others: ByTask) -> list[Floats]:
    """Numbers whose mean is that of some tasks minus that of others, with the variance of both.

    >>> mean_of(contrast([np.array([5.0, 7.0])], [np.array([1.0]), np.array([3.0])]))
    4.0
    """
    tasks = len(some) + len(others)
    return [values * tasks / len(some) for values in some] + [-values * tasks / len(others) for values in others]


def p_value(differences: ByTask) -> float | None:
    """Of Student's two-sided test that the mean difference is zero; None where there is no interval."""
    found = spread_of(differences)
    return None if found is None else 1.0 - within(found.mean / found.error, found.freedom)


def bootstrap(differences: ByTask, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean difference with the percentile interval of the stratified bootstrap over pairs of task and seed."""
    if not has_interval(differences):
        return Estimate(mean_of(differences), None, None)
    drawn = resampled(differences, np.random.default_rng(seed), resamples)
    low, high = interval(np.mean([values.mean(1) for values in drawn], axis=0))
    return Estimate(mean_of(differences), float(low), float(high))


def improved(differences: ByTask, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The probability of improvement over pairs: the share of seeds with a positive difference, averaged over tasks.

    Ties count half. The interval is that of the stratified bootstrap over pairs.

    >>> improved([np.array([1.0, -1.0, 0.0, 2.0])]).value
    0.625
    """
    return bootstrap([(np.sign(values) + 1.0) / 2.0 for values in differences], seed=seed, resamples=resamples)


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


# ---- when to stop ----------------------------------------------------------------------------------------------------
LOOKS = (3, 5, 8, 12)
"""Numbers of seeds at which the question is asked; between them nothing is decided."""
MARGIN = 5.0
"""A difference smaller than this does not matter; in points of a normalised score."""
Verdict = Literal["better", "worse", "no difference that matters", "more seeds", "cannot tell"]


class Decision(NamedTuple):
    """What the sequential rule says of one comparison."""

    verdict: Verdict
    seeds: int
    """Pairs that every task has."""
    wanted: int | None
    """Seeds to continue with; None where the comparison is over."""


def decide(
    differences: ByTask, *, looks: Sequence[int] = LOOKS, margin: float | None = MARGIN, confidence: float = CONFIDENCE
) -> Decision:
    """Whether a comparison is decided, or with how many seeds it should continue.

    The error probability 1 - confidence is shared evenly by the looks (Bonferroni), so that with normal differences the
    t-intervals of all looks hold the truth together with at least this confidence. A comparison is over as soon as one
    of them leaves zero, lies within the margin, or belongs to the last look. A look uses the first seeds up to its own
    number, so that peeking between looks changes nothing.

    Args:
        differences: one array per task, seeds in the same order each time.
        looks: rising numbers of seeds.
        margin: differences below it do not matter; None to stop for a difference only.
        confidence: of all looks together.
    """
    seeds = min(map(len, differences), default=0)
    for look in looks:
        if seeds < look:
            return Decision("more seeds", seeds, look)
        found = t_interval([values[:look] for values in differences], 1.0 - (1.0 - confidence) / len(looks))
        if (says := conclusion(found, margin)) != "cannot tell":
            return Decision(says, seeds, None)
    return Decision("cannot tell", seeds, None)


def conclusion(found: Estimate, margin: float | None = MARGIN) -> Verdict:
    """What an interval allows to say.

    >>> [conclusion(Estimate(2.0, low, high)) for low, high in ((1.0, 3.0), (-1.0, 4.0), (-1.0, 9.0))]
    ['better', 'no difference that matters', 'cannot tell']
    """
    if found.low is None or found.high is None:
        return "cannot tell"
    if found.low > 0.0 or found.high < 0.0:
        return "better" if found.low > 0.0 else "worse"
    small = margin is not None and -margin < found.low and found.high < margin
    return "no difference that matters" if small else "cannot tell"
