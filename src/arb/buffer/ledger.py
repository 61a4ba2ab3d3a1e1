"""Who is in a row: the trajectory and the origin of every row of a ring.

Rows are numbered twice. A *row* is a place in the ring, 0..capacity-1, reused when the ring wraps. A *sequence number*
counts insertions and is never reused; the rows alive are the last `size` of them. Stated in sequence numbers, eviction
needs no bookkeeping: what is older than `oldest` is gone.

A trajectory is one or more *runs*, and a run is an arithmetic progression of sequence numbers: stride 1 for a single
environment, stride n for n environments that step together. If environments take turns in another order, a run ends
and its trajectory goes on in a new one. Drawing a step of a trajectory, and finding the step after another, are then
arithmetic on a small table, with four bytes per row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.signedinteger[Any]]
Bools = NDArray[np.bool_]

_COLUMNS = {"first": np.int64, "last": np.int64, "stride": np.int64, "trajectory": np.int64, "follow": np.int32}


class Runs(NamedTuple):
    """Runs with living rows: row k of run i has sequence number first[i] + k * stride[i], k < steps[i]."""

    number: Ints
    first: Ints
    stride: Ints
    steps: Ints


class Successors(NamedTuple):
    """What follows some rows: the row after each, and where there is none yet or none any more, the run it closes."""

    row: Ints
    run: Ints
    final: Bools


class Ledger:
    """Trajectory and origin of every row of a ring of `capacity` rows."""

    def __init__(self, capacity: int):
        if capacity < 1:
            raise ValueError(f"a buffer needs a capacity of at least 1, got {capacity}")
        self.capacity = capacity
        self.head = 0
        """Rows ever inserted; the sequence number of the next one."""
        self.trajectories = 0
        """Trajectories ever begun."""
        self.run = np.zeros(capacity, np.int32)
        self.table = {name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()}
        self._free: list[int] = []
        self._open: dict[int, int] = {}
        self._chained = False
        self._origin_start = np.zeros(0, np.int64)
        self._origin_online = np.zeros(0, bool)

    # ---- what is where ------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Rows alive; they are the rows 0..size-1 of the ring."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The smallest sequence number alive."""
        return self.head - self.size

    def sequence(self, rows: Ints) -> Ints:
        """The sequence numbers of living rows."""
        if self.head <= self.capacity:
            return rows
        return self.head - 1 - (self.head - 1 - rows) % self.capacity

    def rows_between(self, start: int, stop: int) -> Ints | slice:
        """The rows of a stretch of living sequence numbers, in their order; a slice where they lie side by side."""
        first = start % self.capacity
        if first + stop - start <= self.capacity:
            return slice(first, first + stop - start)
        return np.arange(start, stop) % self.capacity

    def is_online(self, rows: Ints) -> Bools:
        """Whether each row was added online, by its origin and not by its place."""
        span = np.searchsorted(self._origin_start, self.sequence(rows), side="right") - 1
        return np.asarray(self._origin_online[span])

    def spans(self, online: bool) -> tuple[Ints, Ints]:
        """Starts and lengths of the living stretches of sequence numbers with this origin."""
        stop = np.append(self._origin_start, self.head)[1:]
        start = np.maximum(self._origin_start, self.oldest)
        keep = (self._origin_online == online) & (stop > start)
        return start[keep], (stop - start)[keep]

    def successors(self, rows: Ints) -> Successors:
        """The rows that hold the next step of each row."""
        sequence = self.sequence(rows)
        run = self.run.take(rows)
        final = sequence == self.table["last"].take(run)
        following = sequence + self.table["stride"].take(run)
        if self._chained:
            onward = self.table["follow"].take(run)
            chained = final & (onward >= 0)
            following[chained] = self.table["first"][onward[chained]]
            final &= ~chained
        following[final] = 0
        if self.head > self.capacity:
            following %= self.capacity
        return Successors(following, run, final)

    # ---- trajectories -------------------------------------------------------------------------------------------

    def living_runs(self, among: Ints | slice = slice(None)) -> Runs:
        """Every run with living rows, or those among some, cut to those rows."""
        ids = np.arange(len(self.table["first"]))[among]
        ids = ids[(self.table["stride"][ids] > 0) & (self.table["last"][ids] >= self.oldest)]
        first, last, stride = (self.table[name][ids] for name in ("first", "last", "stride"))
        first = first + -(-np.maximum(self.oldest - first, 0) // stride) * stride
        return Runs(ids, first, stride, (last - first) // stride + 1)

    def trajectory_index(self) -> tuple[Ints, int]:
        """For every run of the table a small number shared by the runs of one trajectory, and how many there are."""
        if not self._chained:
            return np.arange(len(self.table["first"])), len(self.table["first"])
        _, index = np.unique(self.table["trajectory"], return_inverse=True)
        return index, int(index.max(initial=-1)) + 1

    def open_runs(self) -> Ints:
        """The runs of unfinished episodes."""
        return np.fromiter(self._open.values(), np.int64, len(self._open))

    def sequences_of(self, run: int) -> Ints:
        """The living sequence numbers of the trajectory that a run belongs to, in the order of its steps."""
        own = np.array([run])
        if self._chained:
            own = np.flatnonzero(self.table["trajectory"] == self.table["trajectory"][run])
        runs = self.living_runs(own)
        return np.sort(enumerate_runs(runs.first, runs.stride, runs.steps))

    # ---- insertion ----------------------------------------------------------------------------------------------

    def extend(self, lengths: Ints, *, online: bool) -> tuple[Ints, Ints]:
        """Append whole trajectories, row after row; returns the rows and the run of each trajectory."""
        runs = self._allocate(len(lengths))
        stop = self.head + np.cumsum(lengths)
        self._write(runs, stop - lengths, stop - 1, np.arange(len(lengths)) + self.trajectories)
        self.trajectories += len(lengths)
        rows = self._place(int(lengths.sum()), online)
        self.run[rows] = np.repeat(runs, lengths)
        return rows, runs

    def append(self, streams: list[int], begins: Bools, *, online: bool) -> tuple[Ints, Ints]:
        """Append one step of each stream; `begins` marks those that start a trajectory. Returns rows and runs."""
        sequence = np.arange(self.head, self.head + len(streams))
        runs = np.array([-1 if new else self._open[s] for s, new in zip(streams, begins, strict=True)], np.int64)
        self._continue(runs, sequence)
        fresh = np.flatnonzero(runs < 0)
        if len(fresh):
            self._begin(streams, begins, runs, fresh, sequence)
        rows = self._place(len(streams), online)
        self.run[rows] = runs
        return rows, runs

    def close(self, stream: int) -> int:
        """End the open trajectory of a stream and return its newest run."""
        return self._open.pop(stream)

    def open_run(self, stream: int) -> int:
        """The run of a stream's unfinished trajectory, -1 if there is none."""
        return self._open.get(stream, -1)

    def _continue(self, runs: Ints, sequence: Ints) -> None:
        """Lengthen the runs whose progression the new row continues; mark the others with -1."""
        going = np.flatnonzero(runs >= 0)
        run, now = runs[going], sequence[going]
        first, last, stride = (self.table[name] for name in ("first", "last", "stride"))
        single = first[run] == last[run]
        stride[run[single]] = now[single] - last[run[single]]
        fits = now - last[run] == stride[run]
        last[run[fits]] = now[fits]
        runs[going[~fits]] = -1

    def _begin(self, streams: list[int], begins: Bools, runs: Ints, fresh: Ints, sequence: Ints) -> None:
        """Open a run for each fresh stream: of a new trajectory, or of one that its old run cannot hold."""
        opened = self._allocate(len(fresh))
        numbers = np.empty(len(fresh), np.int64)
        for i, index in enumerate(fresh):
            stream = streams[index]
            if begins[index]:
                numbers[i] = self.trajectories
                self.trajectories += 1
            else:
                before = self._open[stream]
                numbers[i] = self.table["trajectory"][before]
                self.table["follow"][before] = opened[i]
                self._chained = True
            self._open[stream] = int(opened[i])
        self._write(opened, sequence[fresh], sequence[fresh], numbers)
        runs[fresh] = opened

    def _write(self, runs: Ints, first: Ints, last: Ints, trajectory: Ints) -> None:
        values = {"first": first, "last": last, "stride": 1, "trajectory": trajectory, "follow": -1}
        for name, value in values.items():
            self.table[name][runs] = value

    def _place(self, n: int, online: bool) -> Ints:
        """Take the next n rows of the ring."""
        if len(self._origin_online) == 0 or self._origin_online[-1] != online:
            alive = np.append(self._origin_start, self.head)[1:] > self.oldest
            self._origin_start = np.append(self._origin_start[alive], self.head)
            self._origin_online = np.append(self._origin_online[alive], online)
        rows = np.arange(self.head, self.head + n) % self.capacity
        self.head += n
        return rows

    def _allocate(self, n: int) -> Ints:
        """Numbers of n unused runs; those whose rows have all been overwritten are used again."""
        if len(self._free) < n:
            size = len(self.table["first"])
            dead = (self.table["stride"] > 0) & (self.table["last"] < self.oldest)
            dead[self.open_runs()] = False
            self.table["stride"][dead] = 0  # marks a run as unused
            self._free += np.flatnonzero(dead).tolist()
            if len(self._free) < n + size // 4:  # else the next scan would come too soon
                grown = max(2 * size, size + n, 16)
                self.table = {
                    name: np.concatenate([c, np.zeros(grown - size, c.dtype)]) for name, c in self.table.items()
                }
                self._free = [*range(grown - 1, size - 1, -1), *self._free]
        taken = self._free[len(self._free) - n :][::-1]
        del self._free[len(self._free) - n :]
        return np.array(taken, np.int64)

    # ---- saving -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything, as arrays."""
        return {
            "counters": np.array([self.capacity, self.head, self.trajectories, self._chained], np.int64),
            "run": self.run[: self.size].copy(),
            **{f"table.{name}": column.copy() for name, column in self.table.items()},
            "free": np.array(self._free, np.int64),
            "open": np.array(list(self._open.items()), np.int64).reshape(-1, 2),
            "origin.start": self._origin_start,
            "origin.online": self._origin_online,
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Become the ledger whose state this is."""
        capacity, self.head, self.trajectories, chained = (int(x) for x in state["counters"])
        if capacity != self.capacity:
            raise ValueError(f"the saved buffer has a capacity of {capacity}, this one of {self.capacity}")
        self._chained = bool(chained)
        self.run[: self.size] = state["run"]
        self.table = {name: state[f"table.{name}"].astype(dtype) for name, dtype in _COLUMNS.items()}
        self._free = state["free"].tolist()
        self._open = {int(stream): int(run) for stream, run in state["open"]}
        self._origin_start = state["origin.start"].astype(np.int64)
        self._origin_online = state["origin.online"].astype(bool)


def enumerate_runs(first: Ints, stride: Ints, steps: Ints) -> Ints:
    """All sequence numbers of some runs, run after run.

    >>> enumerate_runs(np.array([0, 10]), np.array([1, 2]), np.array([2, 3]))
    array([ 0,  1, 10, 12, 14])
    """
    before = np.cumsum(steps) - steps
    step = np.arange(int(steps.sum())) - np.repeat(before, steps)
    return np.asarray(np.repeat(first, steps) + step * np.repeat(stride, steps))
