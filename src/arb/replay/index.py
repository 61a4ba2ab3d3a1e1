"""Who is in a row: the trajectory and the origin of every row of a ring.

Rows are numbered twice. A *row* is a place in the ring, 0..capacity-1, reused when the ring wraps. A *sequence number*
counts insertions and is never reused; the rows alive are the last `size` of them.

A trajectory is a linked list of rows: each row knows its trajectory and the row of the next step, four bytes each. Rows
are overwritten in the order in which they came, so the row that makes way is always the first living one of its
trajectory, and a trajectory vanishes with its last row. No scan looks for borders or for what is dead.

(An earlier version kept trajectories as arithmetic progressions of rows, chained where environments took turns out of
order. That saved 4 of Hopper's 73 bytes per row and a tenth of the time of a batch of 256, and nobody could change it.)
"""

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError

Ints = NDArray[np.signedinteger[Any]]
Bools = NDArray[np.bool_]
State = dict[str, NDArray[Any]]


class Members(NamedTuple):
    """Rows sorted by trajectory, and by time within one: the first `steps[0]` rows belong to trajectory `slot[0]`."""

    rows: NDArray[np.int32]
    slot: Ints
    steps: Ints


class Open:
    """An unfinished trajectory: its slot, its first living row (-1 if all are overwritten), and its newest row."""

    __slots__ = ("first", "newest", "slot")

    def __init__(self, slot: int, first: int, newest: int):
        self.slot, self.first, self.newest = slot, first, newest


class Ledger:
    """Trajectory and origin of every row of a ring of `capacity` rows.

    A trajectory is named by its *slot*, a small number that is used again when the trajectory has vanished. A sampler
    reads this and no column:

    >>> ledger = Ledger(4)
    >>> rows, slots = ledger.append([0, 0], online=False)
    >>> rows, slots = ledger.append([7, 7, 7], online=True)   # overwrites the first row
    >>> ledger.size, ledger.head
    (4, 5)
    >>> alive = np.arange(ledger.size)
    >>> ledger.trajectory[alive], ledger.is_online(alive), ledger.sequence(alive)
    (array([1, 0, 1, 1], dtype=int32), array([ True, False,  True,  True]), array([4, 1, 2, 3]))
    """

    def __init__(self, capacity: int):
        if capacity < 1:
            raise DataError(f"a buffer needs a capacity of at least 1, got {capacity}")
        self.capacity = capacity
        self.head = 0
        """Rows ever inserted; the sequence number of the next one."""
        self.slots = 0
        """Slots ever used: every row's slot is below."""
        self.trajectory = np.zeros(capacity, np.int32)
        self.following = np.full(capacity, -1, np.int32)
        self._free: list[int] = []  # a heap: the lowest slot is used first
        self._open: dict[int, Open] = {}  # by stream
        self._open_slot: dict[int, Open] = {}
        self._origin_start = np.zeros(0, np.int64)
        self._origin_online = np.zeros(0, bool)
        self._latest: bool | None = None  # origin of the newest row

    # ---- what is where -------------------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Rows alive; they are the rows 0..size-1 of the ring."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The smallest sequence number alive."""
        return max(self.head - self.capacity, 0)

    @property
    def nbytes(self) -> int:
        """Bytes allocated per row."""
        return self.trajectory.nbytes + self.following.nbytes

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

    def path(self, rows: Ints, n: int, over: Bools) -> Ints:
        """The rows of the next n steps of each row, one line per step, -1 from the end of its episode on.

        `over` marks rows behind which an episode does not go on, although its trajectory may.

        >>> ledger = Ledger(6)
        >>> rows, slots = ledger.append([7, 7, 7, 7], online=True)
        >>> ledger.path(np.array([0, 2]), 3, over=np.array([False, True, False, False, False, False]))
        array([[ 0,  2],
               [ 1,  3],
               [-1, -1]])
        """
        path = np.full((n, len(rows)), -1)
        path[0] = rows
        for k in range(1, n):
            here = path[k - 1]
            path[k] = np.where((here >= 0) & ~over[here], self.following[here], -1)
        return path

    def members(self, before: int | None = None) -> Members:
        """All living rows by trajectory, or those inserted before a sequence number.

        >>> ledger = Ledger(6)
        >>> rows, slots = ledger.append([7, 8, 7, 8, 7], online=True)   # two environments by turns
        >>> ledger.members().rows, ledger.members().steps
        (array([0, 2, 4, 1, 3], dtype=int32), array([3, 2]))
        """
        stretch = self.rows_between(self.oldest, self.head if before is None else before)
        rows = np.arange(self.capacity, dtype=np.int32)[stretch]
        slot = self.trajectory[stretch]
        steps = np.bincount(slot, minlength=self.slots)
        living = np.flatnonzero(steps)
        if len(slot) and (slot[1:] < slot[:-1]).any():  # whole trajectories that were loaded lie in order
            rows = rows[np.argsort(slot, kind="stable")]
        return Members(rows, living, steps[living])

    def open(self, stream: int) -> Open | None:
        """The unfinished trajectory of a stream, if it has one."""
        return self._open.get(stream)

    def opened(self, streams: Sequence[int]) -> list[Open | None]:
        """The same for several."""
        return list(map(self._open.get, streams))

    def streams(self) -> list[int]:
        """The streams with an unfinished trajectory."""
        return list(self._open)

    # ---- insertion -----------------------------------------------------------------------------------------------
    def extend(self, lengths: Ints, *, online: bool) -> tuple[Ints, Ints]:
        """Append whole trajectories, row after row; returns the rows and the slot of each trajectory."""
        rows = np.arange(self.head, self.head + int(lengths.sum())) % self.capacity
        self._make_way(rows[rows < self.size])
        slots = np.array([self._slot() for _ in range(min(len(self._free), len(lengths)))], np.int64)
        slots = np.append(slots, np.arange(self.slots, self.slots + len(lengths) - len(slots)))
        self.slots = max(self.slots, int(slots.max(initial=-1)) + 1)
        self.trajectory[rows] = np.repeat(slots, lengths)
        self.following[rows[:-1]] = rows[1:]
        self.following[rows[np.cumsum(lengths) - 1]] = -1
        self._came(len(rows), online)
        return rows, slots

    def append(self, streams: Sequence[int], *, online: bool) -> tuple[Ints, list[int]]:
        """Append one step of each of these streams; returns the rows and the slots of their trajectories.

        The first step of a stream, and the first after `close`, begins a trajectory.
        """
        taken = [self.append_one(stream, online=online) for stream in streams]
        return np.array([row for row, _ in taken], np.int64), [slot for _, slot in taken]

    def append_one(self, stream: int, *, online: bool) -> tuple[int, int]:
        """Append one step of a stream; returns its row and the slot of its trajectory."""
        row = self.head % self.capacity
        if self.head >= self.capacity:
            self._overwrite(row)
        going = self._open.get(stream)
        if going is None:
            going = self._open[stream] = Open(self._slot(), row, row)
            self._open_slot[going.slot] = going
        elif going.first < 0:
            going.first = row
        else:
            self.following[going.newest] = row
        going.newest = row
        self.trajectory[row] = going.slot
        self.following[row] = -1
        self._came(1, online)
        return row, going.slot

    def go_on(self, going: list[Open], slots: Ints) -> int | None:
        """Append one online step of each of these trajectories, given with their slots, all at once: the first row.

        None, and nothing has happened, if their rows would not lie side by side, or one has no row that stays.
        """
        first, n = self.head % self.capacity, len(going)
        if first + n > self.capacity:
            return None
        if self.head >= self.capacity:
            if any(one.first < 0 or first <= one.newest < first + n for one in going):
                return None
            for row in range(first, first + n):
                self._overwrite(row)
        rows = np.arange(first, first + n)
        self.following[[one.newest for one in going]] = rows
        self.trajectory[first : first + n], self.following[first : first + n] = slots, -1
        for row, one in enumerate(going, first):
            one.newest = row
        self._came(n, online=True)
        return first

    def close(self, stream: int) -> Ints:
        """End the trajectory of a stream, if it has one; returns its rows in the order of its steps."""
        ended = self._open.pop(stream, None)
        if ended is None:
            return np.zeros(0, np.int64)
        del self._open_slot[ended.slot]
        if ended.first < 0:
            heapq.heappush(self._free, ended.slot)
        rows, row, following = [], ended.first, self.following.item
        while row >= 0:
            rows.append(row)
            row = following(row)
        return np.array(rows, np.int64)

    def _overwrite(self, row: int) -> None:
        """The oldest row makes way: its trajectory begins with the next one, or vanishes."""
        slot, following = int(self.trajectory[row]), int(self.following[row])
        going = self._open_slot.get(slot)
        if going is not None:
            going.first = following
        elif following < 0:
            heapq.heappush(self._free, slot)

    def _make_way(self, rows: Ints) -> None:
        """The same for many rows at once, the oldest first."""
        slot, following = self.trajectory[rows], self.following[rows]
        for going in self._open.values():
            own = np.flatnonzero(slot == going.slot)
            if len(own):
                going.first = int(following[own[-1]])
        for vanished in slot[following < 0].tolist():
            if vanished not in self._open_slot:
                heapq.heappush(self._free, vanished)

    def _slot(self) -> int:
        """The lowest slot that is free."""
        if self._free:
            return heapq.heappop(self._free)
        self.slots += 1
        return self.slots - 1

    def _came(self, n: int, online: bool) -> None:
        """Take note of the next n rows and their origin."""
        if online is not self._latest:
            alive = np.append(self._origin_start, self.head)[1:] > self.oldest
            self._origin_start = np.append(self._origin_start[alive], self.head)
            self._origin_online = np.append(self._origin_online[alive], online)
            self._latest = online
        self.head += n

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> State:
        """What cannot be derived, as arrays."""
        opened = [(stream, going.slot) for stream, going in self._open.items()]
        return {
            "counters": np.array([self.capacity, self.head, self.slots], np.int64),
            "trajectory": self.trajectory[: self.size].copy(),
            "open": np.array(opened, np.int64).reshape(-1, 2),
            "origin.start": self._origin_start,
            "origin.online": self._origin_online,
        }

    @classmethod
    def from_state(cls, capacity: int, state: State) -> Self:
        """The ledger whose state this is; its capacity may be larger now, as long as nothing has been overwritten."""
        saved, head, slots = (int(x) for x in state["counters"])
        if saved != capacity and not head <= saved <= capacity:
            raise DataError(f"the saved buffer has a capacity of {saved}, this one of {capacity}")
        ledger = cls(capacity)
        ledger.head, ledger.slots = head, slots
        ledger._origin_start, ledger._origin_online = state["origin.start"], state["origin.online"]
        ledger.trajectory[: ledger.size] = state["trajectory"]
        ledger._link(state["open"])
        return ledger

    def _link(self, opened: Ints) -> None:
        """Derive links, unfinished trajectories, free slots and the latest origin."""
        rows, slot, steps = self.members()
        last = np.cumsum(steps) - 1
        self.following[rows[:-1]] = rows[1:]
        self.following[rows[last]] = -1
        for stream, number in opened.tolist():
            at = int(np.searchsorted(slot, number))
            living = at < len(slot) and slot[at] == number
            first, newest = (rows[last[at] - steps[at] + 1], rows[last[at]]) if living else (-1, -1)
            self._open[stream] = self._open_slot[number] = Open(number, int(first), int(newest))
        free = np.ones(self.slots, bool)
        free[slot] = free[opened[:, 1]] = False
        self._free = np.flatnonzero(free).tolist()  # sorted, and so a heap
        self._latest = bool(self._origin_online[-1]) if len(self._origin_online) else None
