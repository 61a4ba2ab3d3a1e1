"""ARB: rows in proportion to how likely their trajectory is under the current policy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arb.buffer.alias import AliasTable
from arb.buffer.ledger import Ints, Ledger, Runs, enumerate_runs
from arb.buffer.onpolicyness import (
    group_mean,
    log_onpolicyness,
    mean_after_partial_scoring,
    trajectory_log_weight,
    transition_log_weight,
)
from arb.buffer.samplers import Request, Sampler, State

Level = Literal["trajectory", "transition"]
Scores = NDArray[np.floating[Any]]

_NO_RUNS = Runs(*(np.zeros(0, np.int64) for _ in Runs._fields))


class OnPolicy(Sampler):
    """The Adaptive Replay Buffer of the paper: equations 3 and 4 as a sampling distribution.

    Between two refreshes the weights stay as they are. Rows added since the last refresh get the largest weight of
    any row, an unfinished episode counts with the steps it has so far, and before the first refresh all rows are
    alike.

    A row's probability is w(τ) / Σ|τ'|w(τ'), so a trajectory is drawn by |τ|·w(τ) and then a step of it evenly: what
    a draw costs does not depend on the number of rows.

    Args:
        temperature: λ of equation 4. The smaller, the more the most on-policy data dominates.
        clip: bounds p̲ and p̄ of equation 3, applied to the score of every row.
        level: weigh whole trajectories (the method of the paper), or every transition by itself (its ablation).
        budget: rows to score per refresh; None scores all. With fewer rows than the buffer holds, new and unfinished
            trajectories are scored whole and of the others a random part, from which the change of their mean is
            estimated. The first refresh scores everything.
    """

    def __init__(
        self,
        temperature: float = 0.5,
        *,
        clip: tuple[float, float] = (-12.0, 7.0),
        level: Level = "trajectory",
        budget: int | None = None,
    ):
        if not temperature > 0.0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if not clip[0] < clip[1]:
            raise ValueError(f"the lower clip bound must lie below the upper one, got {clip}")
        if level not in ("trajectory", "transition"):
            raise ValueError(f'level is "trajectory" or "transition", not {level!r}')
        if budget is not None and level == "transition":
            raise ValueError("a budget needs level='trajectory': a single transition has no mean to estimate")
        if budget is not None and budget < 1:
            raise ValueError(f"budget must be at least 1 row, got {budget}")
        self.temperature, self.clip, self.level, self.budget = temperature, clip, level, budget
        self._table: AliasTable | None = None
        self._groups = _NO_RUNS  # what the table chooses from: runs, or single rows as runs of one step
        self._mass = 0.0  # sum of the weights of all rows in the table, the largest of which is 1
        self._head = 0  # rows from this sequence number on are not in the table
        self._known = np.zeros(0, np.float32)  # last score of every row, kept only for a budget
        self._clipped = (0.0, 0.0)

    def bind(self, ledger: Ledger) -> None:
        """Serve this ledger."""
        super().bind(ledger)
        if self.budget is not None:
            self._known = np.zeros(ledger.capacity, np.float32)

    # ---- refresh ------------------------------------------------------------------------------------------------

    def request(self, rng: np.random.Generator) -> Request:
        """All rows, or the part of them that the budget allows."""
        head = self.ledger.head
        if self.budget is None or self.budget >= self.ledger.size or self._nothing_weighed():
            return Request(head, None)
        runs = self.ledger.living_runs()
        unsettled = self._unsettled(runs.number)
        whole = enumerate_runs(*(column[unsettled] for column in runs[1:]))
        others = Runs(*(column[~unsettled] for column in runs))
        return Request(head, np.concatenate([whole, random_steps(rng, others, self.budget - len(whole))]))

    def reweigh(self, request: Request, scores: Scores) -> None:
        """Weigh anew all rows that were there when the scores were asked for; those added since stay fresh."""
        self._clipped = (float((scores <= self.clip[0]).mean()), float((scores >= self.clip[1]).mean()))
        oldest = min(self.ledger.oldest, request.head)
        if oldest == request.head:  # every row that was scored has been overwritten meanwhile
            self._table = None
        elif request.sequence is None:
            rows = self.ledger.rows_between(oldest, request.head)
            self._reweigh_all(request.head, rows, scores[rows])
        else:
            alive = request.sequence >= oldest
            self._reweigh_some(request.head, request.sequence[alive], np.clip(scores[alive], *self.clip))

    def _reweigh_all(self, head: int, rows: Ints | slice, score: Scores) -> None:
        if self.budget is not None:
            self._known[rows] = np.clip(score, *self.clip)
        log_onp = log_onpolicyness(score, *self.clip)
        if self.level == "transition":
            one = np.broadcast_to(np.int64(1), len(score))
            self._install(
                head,
                Runs(one, np.arange(head - len(score), head), one, one),
                transition_log_weight(log_onp, self.temperature),
            )
            return
        runs = cut(self.ledger.living_runs(), head)
        index, trajectories = self.ledger.trajectory_index()
        weight = trajectory_log_weight(log_onp, index[self.ledger.run[rows]], trajectories, self.temperature)
        self._install(head, runs, weight[index[runs.number]])

    def _reweigh_some(self, head: int, sequence: Ints, score: Scores) -> None:
        rows = sequence % self.ledger.capacity
        index, trajectories = self.ledger.trajectory_index()
        sampled = ~self._unsettled(self.ledger.run[rows])
        self._known[rows[~sampled]] = score[~sampled]
        rows, score = rows[sampled], score[sampled]
        change = score - self._known[rows]

        weighed = self.ledger.rows_between(self.ledger.oldest, head)
        mean = group_mean(self._known[weighed], index[self.ledger.run[weighed]], trajectories)
        mean = mean_after_partial_scoring(mean, change, index[self.ledger.run[rows]])
        self._known[rows] = score
        runs = cut(self.ledger.living_runs(), head)
        self._install(head, runs, mean[index[runs.number]] / self.temperature)

    def _install(self, head: int, groups: Runs, log_weight: NDArray[np.float64]) -> None:
        mass = groups.steps * np.exp(log_weight - log_weight.max())
        self._table, self._groups, self._mass, self._head = AliasTable(mass), groups, float(mass.sum()), head

    def _unsettled(self, runs: Ints) -> NDArray[np.bool_]:
        """Whether each run belongs to a trajectory that is open or has rows that were never scored."""
        never_scored = self.ledger.rows_between(max(self._head, self.ledger.oldest), self.ledger.head)
        index, trajectories = self.ledger.trajectory_index()
        unsettled = np.zeros(trajectories, bool)
        unsettled[index[self.ledger.run[never_scored]]] = True
        unsettled[index[self.ledger.open_runs()]] = True
        return np.asarray(unsettled[index[runs]])

    def _nothing_weighed(self) -> bool:
        return self._table is None or self._head <= self.ledger.oldest

    # ---- draws --------------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape.

        A row in the table may have been overwritten since. Such a draw is made again, which leaves all other
        probabilities in proportion. It happens to at most every second draw: as many rows are new as were
        overwritten, and each new one has the largest weight.
        """
        if self._nothing_weighed():
            return rng.integers(self.ledger.size, size=shape)
        n = int(np.prod(shape))
        fresh = self.ledger.head - self._head
        if fresh == 0:
            sequence = self._draw_weighed(rng, n)
        else:
            sequence, missing = np.empty(n, np.int64), np.arange(n)
            while len(missing):
                is_fresh = rng.random(len(missing)) * (self._mass + fresh) < fresh
                new = self._head + rng.integers(fresh, size=len(missing))
                sequence[missing] = np.where(is_fresh, new, self._draw_weighed(rng, len(missing)))
                missing = missing[sequence[missing] < self.ledger.oldest]
        if self.ledger.head > self.ledger.capacity:
            sequence %= self.ledger.capacity
        return sequence.reshape(shape)

    def _draw_weighed(self, rng: np.random.Generator, n: int) -> Ints:
        assert self._table is not None
        group = self._table.draw(rng, n)
        step = (rng.random(n) * self._groups.steps[group]).astype(np.int64)
        step *= self._groups.stride[group]
        step += self._groups.first[group]
        return step

    def probabilities(self) -> NDArray[np.float64]:
        """The probability of every row, by equation 4."""
        ledger = self.ledger
        if self._nothing_weighed() or self._table is None:
            return np.full(ledger.size, 1.0 / ledger.size)
        weight = np.ones(ledger.size)  # of fresh rows, in the measure in which the largest weight is 1
        sequence = enumerate_runs(*self._groups[1:])
        weighed = np.repeat(self._table.probabilities() * self._mass / self._groups.steps, self._groups.steps)
        alive = sequence >= ledger.oldest
        weight[sequence[alive] % ledger.capacity] = weighed[alive]
        return np.asarray(weight / weight.sum())

    def report(self) -> dict[str, float]:
        """The share of scored rows at each clip bound, and the steps since the last refresh."""
        return {
            "clipped_low": self._clipped[0],
            "clipped_high": self._clipped[1],
            "steps_since_refresh": float(self.ledger.head - self._head),
        }

    # ---- saving -------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The table, the runs it draws from, and the last known scores."""
        state: State = {
            "head": np.array(self._head),
            "mass": np.array(self._mass),
            "clipped": np.array(self._clipped),
            "known": self._known[: self.ledger.size] if self.budget is not None else self._known,
            **{f"groups.{name}": column for name, column in self._groups._asdict().items()},
        }
        if self._table is not None:
            state |= {"keep": self._table.keep, "alias": self._table.alias}
        return state

    def restore(self, state: State) -> None:
        """Continue with the weights of a saved sampler."""
        self._head, self._mass = int(state["head"]), float(state["mass"])
        self._clipped = (float(state["clipped"][0]), float(state["clipped"][1]))
        self._groups = Runs(*(state[f"groups.{name}"] for name in Runs._fields))
        self._known[: len(state["known"])] = state["known"]
        self._table = AliasTable.from_arrays(state["keep"], state["alias"]) if "keep" in state else None


def cut(runs: Runs, head: int) -> Runs:
    """Runs without their rows from sequence number `head` on."""
    steps = np.minimum(runs.steps, -(-(head - runs.first) // runs.stride))
    runs = runs._replace(steps=steps)
    return Runs(*(column[steps > 0] for column in runs))


def random_steps(rng: np.random.Generator, runs: Runs, n: int) -> Ints:
    """About n random steps of these runs: of each run in proportion to its length, spread over it evenly.

    Each run is cut into as many equal parts as it gets steps, and one is drawn in each, so every step is as likely
    as any other.
    """
    total = int(runs.steps.sum())
    n = min(n, total)
    if n <= 0:
        return np.zeros(0, np.int64)
    edge = np.floor(np.cumsum(runs.steps) * (n / total) + rng.random())
    picks = np.diff(edge, prepend=0.0).astype(np.int64)
    part = enumerate_runs(np.zeros_like(picks), np.ones_like(picks), picks)
    step = ((part + rng.random(len(part))) * np.repeat(runs.steps / np.maximum(picks, 1), picks)).astype(np.int64)
    return np.asarray(np.repeat(runs.first, picks) + step * np.repeat(runs.stride, picks))
