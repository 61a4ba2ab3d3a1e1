"""ARB: rows in proportion to how likely their trajectory is under the current policy."""

import math
from dataclasses import astuple
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, check_choice
from arb.replay.alias import AliasTable
from arb.replay.index import Ints, Members, State
from arb.replay.onpolicyness import group_mean, log_onpolicyness
from arb.replay.samplers import Sampler
from arb.replay.temperature import Temperature, TemperatureRule, Unit, as_rows, online_bound

Level = Literal["trajectory", "transition"]

EFFECTIVE = 0.25
"""The effective share that `temperature="auto"` holds if none is given (docs/temperature.md says why)."""

_NOTHING = Members(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


class ARB(Sampler):
    """The Adaptive Replay Buffer of the paper: equations 3 and 4 as a sampling distribution.

    Between two refreshes the weights stay as they are. Rows added since the last refresh get the largest weight of
    any row in the buffer, an unfinished episode counts with the steps it has so far, and before the first refresh
    sampling is uniform.

    A row's probability is w(τ) / Σ|τ'|w(τ'), so a trajectory is drawn by |τ|·w(τ) and then a step of it uniformly: what
    a draw costs does not depend on the number of rows.

    The temperature λ of equation 4 can be given, or solved for at every refresh (docs/temperature.md):

    >>> ARB(0.5)                             # the paper's method at λ = 0.5
    ARB(temperature=0.5)
    >>> ARB("auto", effective=0.25)          # λ such that the effective sample size is 25 % of the rows
    ARB(temperature='auto', effective=0.25)
    >>> ARB(0.5, least_effective=0.25)       # λ = 0.5, raised only where that would leave less than 25 %
    ARB(temperature=0.5, least_effective=0.25)

    Args:
        temperature: λ. The smaller, the more the most on-policy data dominates. `"auto"`, the default, holds the
            effective sample size instead.
        effective: with `"auto"`, the effective sample size to hold: a share of the rows up to 1, rows above 1.
        least_effective: with a number, the effective sample size below which λ is raised, in the same units.
        unit: what a number counts: log-likelihoods (the paper), or their standard deviation over the rows, so that
            the scale of the score does not matter.
        clip: bounds p̲ and p̄ of equation 3, applied to the score of every row.
        level: weigh whole trajectories (the method of the paper), or every transition by itself (its ablation).
    """

    needs_scores = True

    def __init__(
        self,
        temperature: Temperature | None = None,
        *,
        effective: float | None = None,
        least_effective: float | None = None,
        unit: Unit = "score",
        clip: tuple[float, float] = (-12.0, 7.0),
        level: Level = "trajectory",
    ):
        check_choice("level", level, ("trajectory", "transition"))
        if not clip[0] < clip[1]:
            raise DataError(f"the lower clip bound must lie below the upper one, got {clip}")
        temperature = "auto" if temperature is None else temperature
        if temperature == "auto" and effective is None:
            effective = EFFECTIVE
        rule = TemperatureRule(temperature, effective, least_effective, unit)
        self._rule, self.clip, self.level = rule, clip, level
        self.temperature, self.effective, self.least_effective, self.unit = astuple(rule)
        self._head = 0  # rows from this sequence number on are not in the table
        self._solved = math.nan
        self._clipped = (0.0, 0.0)
        self._table: AliasTable | None
        self._forget()

    # ---- refresh -------------------------------------------------------------------------------------------------
    def update_weights(self, scores: NDArray[np.floating[Any]], head: int) -> None:
        """Weigh anew all rows that were there when the scores were asked for; those added since stay fresh."""
        self._clipped = (float((scores <= self.clip[0]).mean()), float((scores >= self.clip[1]).mean()))
        self._head = head
        oldest = self.ledger.oldest
        if oldest >= head:  # every row that was scored has been overwritten meanwhile
            self._forget()
            return
        rows = self.ledger.rows_between(oldest, head)
        log_onp = log_onpolicyness(scores[rows], *self.clip)
        if self.level == "transition":
            members = one_by_one(np.arange(oldest, head) % self.ledger.capacity)
        else:
            members = self.ledger.members(before=head)
            log_onp = group_mean(log_onp, self.ledger.trajectory[rows], self.ledger.slots)[members.slot]
        self._solved = self._rule.solve(log_onp, members.steps)
        self._draw_from(members, log_onp / self._solved)

    def insert(self, rows: Ints) -> None:  # noqa: ARG002 - what counts is which rows are gone
        """Drop overwritten rows once all the heaviest are among them, so that the largest weight is a living row's."""
        if self._table is None or self.ledger.oldest <= self._until:
            return
        if self.ledger.oldest >= self._head:
            self._forget()
        else:
            self._draw_from(*self._living())

    def _living(self) -> tuple[Members, NDArray[np.float64]]:
        """The groups of the table and their weights, without what has been overwritten."""
        rows, slot, _ = self._members
        here = self._sequence(rows) >= self.ledger.oldest
        left = np.add.reduceat(here, self._start, dtype=np.int64)
        alive = left > 0
        return Members(rows[here], slot[alive], left[alive]), self._log_weight[alive]

    def _sequence(self, rows: Ints) -> Ints:
        """The sequence numbers that rows had when they were weighed."""
        rows = rows.astype(np.int64)
        if self._head <= self.ledger.capacity:
            return rows
        return self._head - 1 - (self._head - 1 - rows) % self.ledger.capacity

    def _draw_from(self, members: Members, log_weight: NDArray[np.float64]) -> None:
        """Make a table of these trajectories (or single rows), every row of which has its trajectory's weight."""
        self._members = members
        self._log_weight = log_weight - log_weight.max()
        mass = members.steps * np.exp(self._log_weight)
        self._table, self._mass = AliasTable(mass), float(mass.sum())
        end = np.cumsum(members.steps)
        self._start = end - members.steps
        heaviest = members.rows[end[self._log_weight == 0.0] - 1]  # the last row of each heaviest trajectory
        self._until = int(self._sequence(heaviest).max())  # from then on none of them is left

    def _forget(self) -> None:
        self._table = None
        self._members, self._log_weight, self._start = _NOTHING, np.zeros(0), np.zeros(0, np.int64)
        self._mass, self._until = 0.0, 0

    # ---- draws ---------------------------------------------------------------------------------------------------
    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape.

        A row in the table may have been overwritten since. Such a draw is made again, which leaves all other
        probabilities in proportion. It happens to at most every second draw: as many rows are new as were
        overwritten, and each new one has the largest weight.
        """
        if self._table is None:
            return rng.integers(self.ledger.size, size=shape)
        n = int(np.prod(shape))
        fresh = self.ledger.head - self._head
        if fresh == 0:
            sequence = self._draw_weighed(self._table, rng, n)
        else:
            sequence, missing = np.empty(n, np.int64), np.arange(n)
            while len(missing):
                is_fresh = rng.random(len(missing)) * (self._mass + fresh) < fresh
                new = self._head + rng.integers(fresh, size=len(missing))
                sequence[missing] = np.where(is_fresh, new, self._draw_weighed(self._table, rng, len(missing)))
                missing = missing[sequence[missing] < self.ledger.oldest]
        if self.ledger.head > self.ledger.capacity:
            sequence %= self.ledger.capacity
        return sequence.reshape(shape)

    def _draw_weighed(self, table: AliasTable, rng: np.random.Generator, n: int) -> Ints:
        group = table.sample(rng, n)
        step = (rng.random(n) * self._members.steps[group]).astype(np.int64)
        step += self._start[group]
        rows = self._members.rows[step]
        return self._sequence(rows)

    def probabilities(self) -> NDArray[np.float64]:
        """The probability of every row, by equation 4."""
        ledger = self.ledger
        if self._table is None:
            return np.full(ledger.size, 1.0 / ledger.size)
        weight = np.ones(ledger.size)  # of fresh rows, in the measure in which the largest weight is 1
        rows, _, steps = self._members
        weighed = np.repeat(self._table.probabilities() * self._mass / steps, steps)
        if ledger.oldest > 0:
            alive = self._sequence(rows) >= ledger.oldest
            rows, weighed = rows[alive], weighed[alive]
        weight[rows] = weighed
        weight /= weight.sum()
        return weight

    def metrics(self) -> dict[str, float]:
        """λ as solved, the bound it puts on the online share, rows at the clip bounds, steps since the last refresh."""
        figures = {
            "temperature": self._solved,
            "clipped_low": self._clipped[0],
            "clipped_high": self._clipped[1],
            "steps_since_refresh": float(self.ledger.head - self._head),
        }
        if self._rule.held is not None:
            size = self.ledger.size
            online = int(self.ledger.spans(online=True)[1].sum())
            figures["online_bound"] = online_bound(online / size, as_rows(self._rule.held, size) / size)
        return figures

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> State:
        """The weights and the rows they belong to."""
        return {
            "head": np.array(self._head),
            "solved": np.array(self._solved),
            "clipped": np.array(self._clipped),
            "log_weight": self._log_weight,
            **{f"members.{name}": column for name, column in self._members._asdict().items()},
        }

    def restore(self, state: State) -> None:
        """Continue with the weights of a saved sampler."""
        if "members.rows" not in state:
            raise DataError("these ARB weights were saved by an earlier version: start from the dataset again")
        members, log_weight = Members(*(state[f"members.{name}"] for name in Members._fields)), state["log_weight"]
        self._head, self._solved = int(state["head"]), float(state["solved"])
        self._clipped = (float(state["clipped"][0]), float(state["clipped"][1]))
        self._forget()
        if len(log_weight):
            self._draw_from(members, log_weight)


def one_by_one(rows: Ints) -> Members:
    """Every row as a trajectory of its own."""
    return Members(rows.astype(np.int32), np.arange(len(rows)), np.ones(len(rows), np.int64))
