"""ARB: rows in proportion to how likely their trajectory is under the current policy.

Top to bottom: equations 3 and 4 of the paper, the temperature λ of equation 4 solved for an effective sample size, a
table that draws from fixed masses at constant cost, and the sampler that puts them together.
"""

import math
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, check_choice
from arb.replay.dataset import Ints
from arb.replay.index import Members, ring_order
from arb.replay.samplers import Sampler, State

Floats = NDArray[np.floating[Any]]
Level = Literal["trajectory", "transition"]
Temperature = float | Literal["auto"]

EFFECTIVE = 0.25
"""The effective share of the rows that `temperature="auto"` holds (docs/temperature.md says why)."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Scores are float32: whatever is smaller than this is nothing."""
TOLERANCE = 1e-9
"""How far, relatively, the effective sample size at a solved temperature may be from the one asked for."""
RANGE = 1e9
"""Temperatures are sought from the largest absolute value divided by this to the largest multiplied by this."""
HALVINGS = 60
"""Of that range: enough to reach the resolution of float64."""


# ---- equations 3 and 4 -----------------------------------------------------------------------------------------------
# Weights are kept as logarithms in float64: at λ = 0.1 the weights of two rows may differ by a factor of 1e48.
def log_onpolicyness(score: Floats, low: float, high: float) -> NDArray[np.float64]:
    """Equation 3: the clipped log-likelihood minus its maximum, so the result is at most 0.

    >>> log_onpolicyness(np.array([-1.0, -3.0, -50.0]), low=-12.0, high=7.0)
    array([  0.,  -2., -11.])
    """
    clipped = np.clip(score, low, high).astype(np.float64)
    return np.asarray(clipped - clipped.max())


def clip_bounds(scores: Floats, low: float, high: float) -> tuple[float, float]:
    """Bounds that lie so many interquartile ranges of the scores from their median.

    If more than half of the scores are equal, their mean distance from the median takes the place of the range.

    >>> clip_bounds(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), low=-3.0, high=1.5)
    (-4.0, 5.0)
    """
    first, median, third = np.quantile(scores, (0.25, 0.5, 0.75)).tolist()
    spread = third - first or float(np.abs(scores - median).mean(dtype=np.float64))
    return median + low * spread, median + high * spread


def group_mean(values: Floats, group: Ints, groups: int) -> NDArray[np.float64]:
    """Mean of the values of each group; nan for a group without values.

    Equation 4 raises the geometric mean of the on-policyness of a trajectory's steps to the power 1/λ. In logarithms
    this is the mean of the trajectory's `log_onpolicyness`, divided by λ. Every row of the trajectory has this weight.

    >>> group_mean(np.array([0.0, -2.0, -11.0]), np.array([0, 0, 2]), 3) / 0.5
    array([ -2.,  nan, -22.])
    """
    total = np.bincount(group, weights=values, minlength=groups)
    count = np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count, dtype=np.float64)


# ---- the temperature -------------------------------------------------------------------------------------------------
# ARB's distribution maximises the expected log on-policyness under a bound on the KL divergence from uniform sampling,
# and λ is the multiplier of that bound (REPS and MPO's E-step have the same form). Fixing the effective sample size
# instead of λ makes the samples independent of the scale of the score. docs/temperature.md has argument and sources.
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

    `log_onp` is at most 0, and each value stands for so many `rows`. The effective sample size grows with the
    temperature, from the number of rows that share the greatest value to the number of all rows, so bisection in log λ
    finds the one solution. If all values are zero, every temperature gives the same weights, and 1 is returned.

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


def online_bound(online_share: float, effective_share: float) -> float:
    """The largest share of a batch that online rows can have, from their share of the rows and the effective share.

    By Cauchy and Schwarz a set A of rows has the probability Σ_A p ≤ √(|A| Σp²) = √(|A| / effective sample size).

    >>> online_bound(0.01, effective_share=0.25)
    0.2
    """
    return min(1.0, math.sqrt(online_share / effective_share))


# ---- samples from fixed masses ---------------------------------------------------------------------------------------
class AliasTable:
    """Draw index i with probability masses[i] / sum(masses).

    Between two refreshes the weights are constant and many samples are drawn from them, so a table that costs O(n) to
    build and two look-ups per sample (Walker's alias method) beats a binary search and a sum tree.
    """

    def __init__(self, masses: NDArray[np.float64]):
        if len(masses) == 0 or not np.isfinite(masses).all() or masses.min() < 0.0 or masses.max() == 0.0:
            raise DataError("masses must be finite, not negative, and not all zero")
        self.keep, self.alias = _alias_table(np.asarray(masses, np.float64))

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        x = rng.random(n)
        x *= len(self.keep)
        cell = x.astype(np.int64)
        x -= cell
        return np.where(x < self.keep.take(cell), cell, self.alias.take(cell))

    def probabilities(self) -> NDArray[np.float64]:
        n = len(self.keep)
        return np.asarray((self.keep + np.bincount(self.alias, weights=1.0 - self.keep, minlength=n)) / n)


def _alias_table(masses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vose's table without his loop.

    Scale the masses to mean 1: small cells lack something, large ones have something left. Line up all lacks and all
    surpluses on one axis: each small cell is filled by the large one at whose stretch its own begins; a large one whose
    last small cell reaches beyond its stretch then lacks that much itself, and is filled by the next large one.
    """
    n = len(masses)
    p = masses / masses.max()  # first, so that the sum of very small masses keeps its digits
    p *= n / p.sum()
    small, large = np.flatnonzero(p <= 1.0), np.flatnonzero(p > 1.0)
    keep, alias = p, np.arange(n)
    if len(large) == 0:  # all equal, up to rounding
        return (masses > 0.0).astype(np.float64), alias
    lack = 1.0 - p[small]
    lack_end, surplus_end = np.cumsum(lack), np.cumsum(p[large] - 1.0)
    lack_start = lack_end - lack
    filler: NDArray[Any] = np.minimum(np.searchsorted(surplus_end, lack_start, side="right"), len(large) - 1)
    alias[small] = large[filler]
    filled_so_far = np.searchsorted(lack_start, surplus_end, side="left")
    reach = np.concatenate([[0.0], lack_end])[filled_so_far]
    keep[large] = np.clip(1.0 + surplus_end - reach, 0.0, 1.0)
    keep[large[-1]] = 1.0  # takes up the rounding of both sums
    alias[large[:-1]] = large[1:]
    return keep, alias


# ---- the sampler -----------------------------------------------------------------------------------------------------
class ARB(Sampler):
    """The Adaptive Replay Buffer of the paper: equations 3 and 4 as a sampling distribution.

    Rows added since the last refresh get the largest weight of any row in the buffer, an unfinished episode counts with
    the steps it has so far, and before the first refresh sampling is uniform.

    A row's probability is w(τ) / Σ|τ'|w(τ'), so a trajectory is drawn by |τ|·w(τ) and then a step of it uniformly.

    >>> ARB(0.5)                             # the paper's method at λ = 0.5
    ARB(temperature=0.5)
    >>> ARB("auto", effective=0.1)           # λ such that the effective sample size is 10 % of the rows
    ARB(effective=0.1)

    Args:
        temperature: λ of equation 4. The smaller, the more the most on-policy data dominates. `"auto"` solves for it at
            every refresh, so that the effective sample size stays the same (docs/temperature.md).
        effective: with `"auto"`, the effective sample size to hold, as a share of the rows.
        clip: bounds p̲ and p̄ of equation 3, applied to the score of every row. With `"auto"` they lie so many
            interquartile ranges of the scores from their median, so that the unit and the origin of a score cancel.
        level: weigh whole trajectories (the method of the paper), or every transition by itself (its ablation).
    """

    needs_scores = True

    def __init__(
        self,
        temperature: Temperature = "auto",
        *,
        effective: float = EFFECTIVE,
        clip: tuple[float, float] = (-12.0, 7.0),
        level: Level = "trajectory",
    ):
        check_choice("level", level, ("trajectory", "transition"))
        if not clip[0] < clip[1]:
            raise DataError(f"the lower clip bound must lie below the upper one, got {clip}")
        given: Any = temperature
        if given != "auto" and not (isinstance(given, int | float | np.number) and given >= SMALLEST):
            raise DataError(f'temperature must be greater than 0, or "auto", not {given!r}')
        if not 0.0 < effective <= 1.0:
            raise DataError(f"effective must be a share of the rows, above 0 and at most 1, not {effective}")
        self.temperature, self.effective, self.clip, self.level = temperature, effective, clip, level
        self._num_weighed = 0  # rows that had been added at the last refresh: later ones are not in the table
        self._solved = math.nan
        self._clipped = (0.0, 0.0)
        self._table: AliasTable | None
        self._forget()

    # ---- refresh -------------------------------------------------------------------------------------------------
    def update_weights(self, scores: NDArray[np.floating[Any]], num_added: int) -> None:
        """Weigh anew all rows that were there when the scores were asked for; those added since stay fresh."""
        low, high = clip_bounds(scores, *self.clip) if self.temperature == "auto" else self.clip
        self._clipped = (float((scores <= low).mean()), float((scores >= high).mean()))
        if sum(self._clipped) > 0.5 and low < high:
            warnings.warn(
                f"more than half of the scores lie outside the clip bounds {low:g} and {high:g}, so that the bounds "
                'decide what is sampled and not the policy: pass temperature="auto" or other bounds to ARB',
                stacklevel=4,
            )
        self._num_weighed = num_added
        oldest = self.index.oldest
        if oldest >= num_added:  # every row that was scored has been overwritten meanwhile
            self._forget()
            return
        rows = self.index.rows_between(oldest, num_added)
        log_onp = log_onpolicyness(scores[rows], low, high)
        if self.level == "transition":
            alone = (np.arange(oldest, num_added) % self.index.capacity).astype(np.int32)
            members = Members(alone, np.arange(len(alone)), np.ones(len(alone), np.int64))
        else:
            members = self.index.members(before=num_added)
            log_onp = group_mean(log_onp, self.index.episode_ids[rows], self.index.num_ids)[members.episode]
        if isinstance(self.temperature, str):
            self._solved = temperature_for(log_onp, members.steps, self.effective * int(members.steps.sum()))
        else:
            self._solved = self.temperature
        self._sample_from(members, log_onp / self._solved)

    def insert(self, rows: Ints) -> None:  # noqa: ARG002 - what counts is which rows are gone
        """Drop overwritten rows once all the heaviest are among them, so that the largest weight is a living row's."""
        if self._table is None or self.index.oldest <= self._until:
            return
        if self.index.oldest >= self._num_weighed:
            self._forget()
            return
        members, episode, _ = self._members
        alive = self._order(members) >= self.index.oldest
        left = np.add.reduceat(alive, self._start, dtype=np.int64)
        some = left > 0
        self._sample_from(Members(members[alive], episode[some], left[some]), self._log_weight[some])

    def renumber(self, rows: Ints) -> None:  # noqa: ARG002
        """Sample uniformly until the next refresh."""
        self._num_weighed = 0
        self._forget()

    def _order(self, rows: Ints) -> Ints:
        return ring_order(rows.astype(np.int64), self._num_weighed, self.index.capacity)

    def _sample_from(self, members: Members, log_weight: NDArray[np.float64]) -> None:
        """Make a table of these trajectories (or single rows), every row of which has its trajectory's weight."""
        self._members = members
        self._log_weight = log_weight - log_weight.max()
        mass = members.steps * np.exp(self._log_weight)
        self._table, self._mass = AliasTable(mass), float(mass.sum())
        end = np.cumsum(members.steps)
        self._start = end - members.steps
        heaviest = members.rows[end[self._log_weight == 0.0] - 1]  # the last row of each heaviest trajectory
        self._until = int(self._order(heaviest).max())  # from then on none of them is left

    def _forget(self) -> None:
        self._table = None
        self._members = Members(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._log_weight = np.zeros(0)

    # ---- samples -------------------------------------------------------------------------------------------------
    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape.

        One that has been overwritten since it was weighed is drawn again, which leaves all other probabilities in
        proportion; at most every second one, as as many rows are new, each with the largest weight.
        """
        if self._table is None:
            return rng.integers(self.index.size, size=shape)
        n = int(np.prod(shape))
        fresh = self.index.num_added - self._num_weighed
        if fresh == 0:
            order = self._sample_weighed(self._table, rng, n)
        else:
            order, missing = np.empty(n, np.int64), np.arange(n)
            while len(missing):
                is_fresh = rng.random(len(missing)) * (self._mass + fresh) < fresh
                new = self._num_weighed + rng.integers(fresh, size=len(missing))
                order[missing] = np.where(is_fresh, new, self._sample_weighed(self._table, rng, len(missing)))
                missing = missing[order[missing] < self.index.oldest]
        if self.index.num_added > self.index.capacity:
            order %= self.index.capacity
        return order.reshape(shape)

    def _sample_weighed(self, table: AliasTable, rng: np.random.Generator, n: int) -> Ints:
        group = table.sample(rng, n)
        step = (rng.random(n) * self._members.steps[group]).astype(np.int64)
        step += self._start[group]
        return self._order(self._members.rows[step])

    def probabilities(self) -> NDArray[np.float64]:
        index = self.index
        if self._table is None:
            return np.full(index.size, 1.0 / index.size)
        weight = np.ones(index.size)  # of fresh rows, in the measure in which the largest weight is 1
        rows, _, steps = self._members
        weighed = np.repeat(self._table.probabilities() * self._mass / steps, steps)
        if index.oldest > 0:
            alive = self._order(rows) >= index.oldest
            rows, weighed = rows[alive], weighed[alive]
        weight[rows] = weighed
        weight /= weight.sum()
        return weight

    def metrics(self) -> dict[str, float]:
        metrics = {
            "temperature": self._solved,
            "clipped_low": self._clipped[0],
            "clipped_high": self._clipped[1],
            "steps_since_refresh": float(self.index.num_added - self._num_weighed),
        }
        if self.temperature == "auto":
            online = int(self.index.spans(online=True)[1].sum())
            metrics["online_bound"] = online_bound(online / self.index.size, self.effective)
        return metrics

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> State:
        return {
            "num_weighed": np.array(self._num_weighed),
            "solved": np.array(self._solved),
            "clipped": np.array(self._clipped),
            "log_weight": self._log_weight,
            **{f"members.{name}": column for name, column in self._members._asdict().items()},
        }

    def restore(self, state: State) -> None:
        members, log_weight = Members(*(state[f"members.{name}"] for name in Members._fields)), state["log_weight"]
        self._num_weighed, self._solved = int(state["num_weighed"]), float(state["solved"])
        self._clipped = (float(state["clipped"][0]), float(state["clipped"][1]))
        self._forget()
        if len(log_weight):
            self._sample_from(members, log_weight)
