"""Which rows of a ring, whose episode, offline or online, and the sampler that chooses among them.

`ReplayBuffer` is a `ReplayIndex` plus a `Storage`; an adapter is a `ReplayIndex` plus the arrays of its host.

Rows are numbered twice. A *row* is a place in the ring, 0..capacity-1, reused when the ring wraps. The *insertion
order* counts rows as they came and is never reused; the rows alive are the last `size` of them.

An episode is a linked list of rows: each row knows its episode and the row of the next step, four bytes each. Rows are
overwritten in the order in which they came, so the row that goes is always the first living one of its episode, and an
episode vanishes with its last row. Nothing ever scans for episode boundaries.
"""

import heapq
import math
import operator
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, check_choice
from arb.replay.dataset import Bools, Ints
from arb.replay.samplers import Sampler, State, describe, importance_weights
from arb.replay.scores import CHUNK, RowScore, Unit, as_numpy, score_all, score_trajectories
from arb.replay.storage import Batch

OFFLINE, ONLINE = 0, 1
"""Codes of the origins that every index knows; further ones follow as they come."""
PATIENCE = 10_000
"""Steps added without a refresh after which a strategy that lives on refreshes warns."""


class Members(NamedTuple):
    """Rows sorted by episode, and by time within one: the first `steps[0]` rows belong to episode `episode[0]`."""

    rows: NDArray[np.int32]
    episode: Ints
    steps: Ints


@dataclass(slots=True)
class OpenEpisode:
    """An unfinished episode: its id, its first living row (-1 if all are overwritten), and its newest row."""

    id: int
    first: int
    newest: int


class ReplayIndex:
    """The rows of a ring: the episode and the origin of each, and a sampler that chooses among them.

    An episode id is a small number that is used again when the episode has vanished from the ring.

    >>> from arb import ARB
    >>> index = ReplayIndex(capacity=6, sampler=ARB(temperature=0.5), seed=0)
    >>> index.extend([2, 1])[0]                # two past episodes
    array([0, 1, 2])
    >>> index.append([0], ends=[True])[0]      # one step of environment 0, which ends its episode
    array([3])
    >>> index.episode_ids[: index.size], index.is_online(np.arange(index.size))
    (array([0, 0, 1, 2], dtype=int32), array([False, False, False,  True]))
    >>> index.refresh(lambda rows: np.array([-1.0, -1.0, -9.0, -1.0])[rows])
    >>> bool((index.sample_indices(1000) == 2).mean() < 0.01)
    True
    """

    def __init__(self, capacity: int, sampler: Sampler | None = None, seed: int | np.random.SeedSequence | None = None):
        self.capacity = whole_number("capacity", capacity)
        self.num_added = 0
        """Rows ever added; the insertion order of the next one."""
        self.num_ids = 0
        """Episode ids ever used: every row's is below."""
        self.episode_ids = np.zeros(self.capacity, np.int32)
        self.next_index = np.full(self.capacity, -1, np.int32)
        """The row of each row's next step; -1 where there is none yet."""
        self._previous = np.full(self.capacity, -1, np.int32)  # or a row that has been overwritten
        self._free: list[int] = []  # a heap: the lowest id is used first
        self.open: dict[int, OpenEpisode] = {}
        """The unfinished episodes, by environment."""
        self._open_by_id: dict[int, OpenEpisode] = {}
        self.origins = ["offline", "online"]
        """The names of the origins, by their codes."""
        self._origin_start = np.zeros(0, np.int64)
        self._origin_code = np.zeros(0, np.int64)
        self._latest = -1  # origin of the newest row
        self.sampler = _strategy(sampler)
        self.sampler.bind(self)
        self._listens = type(self.sampler).insert is not Sampler.insert
        try:
            seeds = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        except (TypeError, ValueError):
            raise DataError(f"seed must be a whole number from 0 on, got {seed!r}") from None
        self._seeds = seeds.spawn(1)[0]
        self.rng = np.random.default_rng(self._seeds)
        self.lock = threading.RLock()
        _INDICES.add(self)
        self.refreshed_at: int | None = None
        """Rows ever added when the last refresh began; None before the first."""
        self._steps_since_refresh = 0  # past data is left out: learning from it alone needs no weights
        self._drawn_since_refresh = 0
        self._drawn_online = math.nan
        self._reminded = False
        self._removals = 0

    def __repr__(self) -> str:
        return f"ReplayIndex({self.summary})"

    @property
    def summary(self) -> str:
        return f"{self.size} of {self.capacity} rows, {self.sampler!r}"

    # ---- what is where -------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        """Rows alive; they are the rows 0..size-1 of the ring."""
        return min(self.num_added, self.capacity)

    @property
    def oldest(self) -> int:
        return max(self.num_added - self.capacity, 0)

    def insertion_order(self, rows: Ints) -> Ints:
        """When each of these living rows was added, from 0 on; the newest is num_added - 1."""
        return ring_order(rows, self.num_added, self.capacity)

    def rows_between(self, start: int, stop: int) -> Ints | slice:
        """The rows of a stretch of the insertion order that is alive; a slice where they lie side by side."""
        first = start % self.capacity
        if first + stop - start <= self.capacity:
            return slice(first, first + stop - start)
        return np.arange(start, stop) % self.capacity

    def origin(self, rows: Ints) -> Ints:
        """The code of each row's origin: `origins[code]` is its name."""
        span = np.searchsorted(self._origin_start, self.insertion_order(rows), side="right") - 1
        return np.asarray(self._origin_code[span])

    def is_online(self, rows: Ints) -> Bools:
        """Whether each row was added online, by its origin and not by its place."""
        return np.asarray(self.origin(rows) == ONLINE)

    def spans(self, online: bool | None = None, *, origin: str = "") -> tuple[Ints, Ints]:
        """Starts and lengths of the living stretches of the insertion order: online, not online, or of an origin."""
        stop = np.append(self._origin_start, self.num_added)[1:]
        start = np.maximum(self._origin_start, self.oldest)
        if online is not None:
            own = (self._origin_code == ONLINE) == online
        else:
            own = np.array([self.origins[code] == origin for code in self._origin_code], bool)
        keep = own & (stop > start)
        return start[keep], (stop - start)[keep]

    def previous(self, rows: Ints) -> Ints:
        """The row of each row's previous step; -1 where the ring does not hold one."""
        before = self._previous[rows]
        return np.where(self.next_index[before] == rows, before, -1)

    def path(self, rows: Ints, n: int, over: Bools | None = None, *, back: bool = False) -> Ints:
        """Each row and the next steps of its episode, or the steps before it: n rows, one line per step.

        After the episode's last row, or one that is `over`, there is -1.
        """
        path = np.full((n, len(rows)), -1)
        path[0] = rows
        for k in range(1, n):
            here = path[k - 1]
            goes_on = here >= 0 if over is None else (here >= 0) & ~over[here]
            path[k] = np.where(goes_on, self.previous(here) if back else self.next_index[here], -1)
        return path

    def members(self, before: int | None = None) -> Members:
        """All living rows by episode, or those added before a point of the insertion order."""
        stretch = self.rows_between(self.oldest, self.num_added if before is None else before)
        rows = np.arange(self.capacity, dtype=np.int32)[stretch]
        episode = self.episode_ids[stretch]
        steps = np.bincount(episode, minlength=self.num_ids)
        living = np.flatnonzero(steps)
        if len(episode) and (episode[1:] < episode[:-1]).any():  # datasets lie in order
            rows = rows[np.argsort(episode, kind="stable")]
        return Members(rows, living, steps[living])

    # ---- rows in -------------------------------------------------------------------------------------------------
    def extend(self, lengths: ArrayLike, *, origin: str = "offline") -> tuple[Ints, Ints]:
        """Append whole episodes, row after row; returns the rows they take and the id of each episode.

        If they do not fit the ring, only their last rows are alive afterwards.
        """
        steps = np.asarray(lengths, np.int64)
        with self.lock:
            total = int(steps.sum())
            gone = max(total - self.capacity, 0)  # rows that are overwritten by those behind them
            rows = np.arange(self.num_added, self.num_added + total) % self.capacity
            for row in rows[self.capacity - self.size : self.capacity].tolist():
                self._overwrite(row)
            ids = np.array([self._new_id() for _ in range(len(steps))], np.int64)
            ends = np.cumsum(steps) - 1
            alive = rows[gone:]
            self.episode_ids[alive] = np.repeat(ids, steps)[gone:]
            self.next_index[alive[:-1]] = alive[1:]
            self.next_index[rows[ends[ends >= gone]]] = -1
            self._previous[alive[1:]] = alive[:-1]
            for vanished in ids[ends < gone].tolist():
                heapq.heappush(self._free, vanished)
            code = self._code(origin)
            self._count(total, code)
            self._steps_since_refresh += total if code == ONLINE else 0
            if self._listens:
                self.sampler.insert(alive)
        return rows, ids

    def append(
        self, envs: Sequence[int], ends: Sequence[float] | None = None, *, origin: str = "online"
    ) -> tuple[Ints, list[int]]:
        """Append one step of each of these environments; returns the rows and the ids of their episodes.

        The first step of an environment, and the first after `close` or a step that `ends`, begins an episode.
        """
        with self.lock:
            rows, ids, code = [], [], self._code(origin)
            for i, env in enumerate(envs):
                row = self.num_added % self.capacity
                if self.num_added >= self.capacity:
                    self._overwrite(row)
                episode = self.open.get(env)
                if episode is None:
                    episode = self.open[env] = OpenEpisode(self._new_id(), row, row)
                    self._open_by_id[episode.id] = episode
                elif episode.first < 0:
                    episode.first = row
                else:
                    self.next_index[episode.newest] = row
                    self._previous[row] = episode.newest
                episode.newest = row
                self.episode_ids[row] = episode.id
                self.next_index[row] = -1
                self._count(1, code)
                rows.append(row)
                ids.append(episode.id)
                if ends is not None and ends[i]:
                    self.close(env)
            self._steps_since_refresh += len(rows)
            taken = np.array(rows, np.int64)
            if self._listens:
                self.sampler.insert(taken)
        return taken, ids

    def close(self, env: int) -> Ints:
        """End the episode of an environment, if it has one; returns its living rows in the order of its steps."""
        with self.lock:
            ended = self.open.pop(env, None)
            if ended is None:
                return np.zeros(0, np.int64)
            del self._open_by_id[ended.id]
            if ended.first < 0:
                heapq.heappush(self._free, ended.id)
            rows, row, following = [], ended.first, self.next_index.item
            while row >= 0:
                rows.append(row)
                row = following(row)
            return np.array(rows, np.int64)

    def _overwrite(self, row: int) -> None:
        """The oldest row goes: its episode begins with the next one, or vanishes."""
        episode, following = int(self.episode_ids[row]), int(self.next_index[row])
        unfinished = self._open_by_id.get(episode)
        if unfinished is not None:
            unfinished.first = following
        elif following < 0:
            heapq.heappush(self._free, episode)

    def _new_id(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.num_ids += 1
        return self.num_ids - 1

    def _code(self, origin: str) -> int:
        if origin not in self.origins:
            if not isinstance(origin, str) or not origin.isidentifier():
                raise DataError(f"an origin is a word, such as 'demos', got {origin!r}")
            self.origins.append(origin)
        return self.origins.index(origin)

    def _count(self, n: int, origin: int) -> None:
        if origin != self._latest:
            alive = np.append(self._origin_start, self.num_added)[1:] > self.oldest
            self._origin_start = np.append(self._origin_start[alive], self.num_added)
            self._origin_code = np.append(self._origin_code[alive], origin)
            self._latest = origin
        self.num_added += n

    def keep(self, rows: Ints) -> None:
        """Forget all rows but these, which come in their insertion order and become the rows 0, 1, ..."""
        with self.lock:
            ids, origin = self.episode_ids[rows], self.origin(rows)
            living = set(ids.tolist())
            opened = [(env, episode.id) for env, episode in self.open.items() if episode.id in living]
            self.num_added = len(rows)
            start = np.flatnonzero(np.diff(origin, prepend=-1))
            self._set_origins(start, origin[start])
            self.episode_ids[: len(rows)] = ids
            self.next_index[:], self._previous[:] = -1, -1
            self._link(np.array(opened, np.int64).reshape(-1, 2))
            self.sampler.renumber(rows)
            self.refreshed_at, self._removals = None, self._removals + 1

    # ---- rows out ------------------------------------------------------------------------------------------------
    def refresh(self, score: RowScore, *, by: Unit = "row", rows_per_call: int = CHUNK) -> None:
        """Weigh the rows anew under the current policy; other threads may add meanwhile.

        `score(rows)` returns the log-likelihood of the actions in these rows, one number per row. It is asked for
        always `rows_per_call` rows, as a slice or as numbers in which one may occur twice, if the strategy needs
        scores; by trajectory, for the rows of one after the other.
        """
        check_choice("by", by, get_args(Unit))
        whole_number("rows_per_call", rows_per_call)
        with self.lock:
            self._check_not_empty("refreshed")
            num_added, size, steps = self.num_added, self.size, self._steps_since_refresh
            self._drawn_since_refresh, removals = 0, self._removals
            by_episode = self.members() if by == "trajectory" else None
        scores = None
        if self.sampler.needs_scores and by_episode is not None:
            scores = score_trajectories(score, by_episode.rows, by_episode.steps, size)
        elif self.sampler.needs_scores:
            scores = score_all(score, size, min(rows_per_call, self.capacity))
        with self.lock:
            if removals != self._removals:
                return  # what was scored is not there any more
            if scores is not None:
                self.sampler.update_weights(scores, num_added)
                self._steps_since_refresh -= steps
            self.refreshed_at = num_added

    def is_due(self, every: int) -> bool:
        """Whether `every` rows were added since the last refresh, or there was none yet."""
        return self.refreshed_at is None or self.num_added - self.refreshed_at >= every

    def sample_indices(self, shape: int | tuple[int, ...], *, rng: np.random.Generator | None = None) -> Ints:
        sizes = shape if isinstance(shape, tuple | list) else (shape,)
        wanted = tuple(whole_number("a batch", size) for size in sizes)
        if not isinstance(rng, np.random.Generator | None):
            raise DataError(f"rng must be np.random.default_rng(seed), got {type(rng).__name__}")
        with self.lock:
            self._check_not_empty("sampled")
            if self._steps_since_refresh >= PATIENCE and not self._reminded and self.sampler.needs_scores:
                self._reminded = True
                problem = f"{self._steps_since_refresh} steps were added without a refresh"
                warnings.warn(
                    f"{problem}, so {type(self.sampler).__name__} does not follow the policy: call refresh every 1,000 "
                    "steps or so, before the updates, or let the RefreshCallback or RefreshHook of your adapter do it",
                    stacklevel=4,
                )
            rows = self.sampler.sample_indices(self.rng if rng is None else rng, wanted)
            self._drawn_online = float(self.is_online(rows).mean())
            self._drawn_since_refresh += rows.size
        return rows

    def importance_weights(self, rows: Ints) -> NDArray[np.float32]:
        """What multiplies the loss of these rows to undo the sampler's preferences, as far as its `beta` says."""
        with self.lock:
            p = self.sampler.probabilities_of(rows)
            return importance_weights(p, self.size, self.sampler.beta).astype(np.float32)

    def update_priorities(self, rows: ArrayLike, errors: ArrayLike) -> None:
        """Give these rows priorities by their TD errors; see `arb.Prioritized`."""
        numbers, values = np.asarray(rows), as_numpy(errors)
        if numbers.dtype.kind not in "iu" or numbers.shape != values.shape:
            found = f"rows of type {numbers.dtype} {numbers.shape} and errors {values.shape}"
            raise DataError(f"update_priorities needs the numbers of rows and an error for each, got {found}")
        if not np.isfinite(values).all():
            raise DataError(f"the error of row {numbers[~np.isfinite(values)][0]} is not finite")
        with self.lock:
            self.check_rows(numbers)
            self.sampler.update_priorities(numbers, values)

    def check_rows(self, rows: Ints) -> None:
        """Raise a `DataError` unless all of these rows are there."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.size:
            found = f"as the buffer holds {self.size}; got {rows.min()} to {rows.max()}"
            raise DataError(f"rows must lie between 0 and {self.size - 1}, {found}")

    def train(self, rows: Ints, columns: Callable[[Ints], tuple[Any, Any]]) -> None:
        """Let a strategy that learns its weights learn from the batch just drawn.

        `columns(rows)` gives the observations and actions in some rows.
        """

        def gather(some: Ints) -> Batch:
            obs, action = columns(some)
            nothing = np.zeros(len(some), np.float32)  # such strategies look at who did what where, at nothing else
            return Batch(obs, action, nothing, obs, nothing, nothing)

        if self.sampler.trainable:
            with self.lock:
                self.sampler.train(rows, gather, self.rng)

    def stats(self) -> dict[str, float]:
        with self.lock:
            self._check_not_empty("described")
            metrics = describe(self.sampler.probabilities(), self)
            volume = self._drawn_since_refresh / metrics["effective_rows"]
            drawn = {"drawn_online_share": self._drawn_online, "replay_volume": volume}
            return metrics | drawn | self.sampler.metrics()

    def _check_not_empty(self, done: str) -> None:
        if self.num_added == 0:
            raise DataError(f"an empty buffer cannot be {done}: load a dataset or add a step first")

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], dict[str, State]]:
        """Everything that decides future samples: plain values, and groups of arrays, as `write_state` takes them."""
        with self.lock:
            header = {
                "sampler": repr(self.sampler),
                "rng": self.rng.bit_generator.state,
                "drawn_since_refresh": self._drawn_since_refresh,
                "refreshed_at": self.refreshed_at,
                "origins": list(self.origins),
            }
            opened = [(env, episode.id) for env, episode in self.open.items()]
            arrays: State = {
                "counters": np.array([self.capacity, self.num_added, self.num_ids], np.int64),
                "episode_ids": self.episode_ids[: self.size].copy(),
                "open": np.array(opened, np.int64).reshape(-1, 2),
                "origin.start": self._origin_start,
                "origin.code": self._origin_code,
            }
            return header, {"index": arrays, "sampler": self.sampler.state()}

    def restore(self, header: dict[str, Any], parts: dict[str, State]) -> None:
        """Continue as the index whose state this is; the capacity may be larger if nothing has been overwritten."""
        if header.get("sampler") != repr(self.sampler):
            raise DataError(f"what was saved has the sampler {header.get('sampler')}, this one has {self.sampler!r}")
        state = parts["index"]
        saved, num_added, num_ids = (int(x) for x in state["counters"])
        if saved != self.capacity and not num_added <= saved <= self.capacity:
            raise DataError(f"the saved buffer has a capacity of {saved}, this one of {self.capacity}")
        with self.lock:
            self.num_added, self.num_ids = num_added, num_ids
            self.origins = list(header["origins"])
            self._set_origins(state["origin.start"], state["origin.code"])
            self.episode_ids[: self.size] = state["episode_ids"]
            self._link(state["open"])
            self.sampler.restore(parts.get("sampler", {}))
            self.rng.bit_generator.state = header["rng"]
            self._steps_since_refresh, self._drawn_since_refresh = 0, header["drawn_since_refresh"]
            self.refreshed_at = header["refreshed_at"]

    def reopen(self, num_added: int, episode_ids: Ints, online: Bools) -> None:
        """Begin with the rows of files, of which these are the episodes and origins; no episode is open."""
        self.num_added, self.num_ids = num_added, int(episode_ids.max()) + 1
        self.episode_ids[: self.size] = episode_ids[: self.size]
        living = np.roll(online[: self.size], -(num_added % self.capacity) if num_added > self.capacity else 0)
        changes = np.append(0, np.flatnonzero(living[1:] != living[:-1]) + 1)
        self._set_origins(self.oldest + changes, living[changes].astype(np.int64))  # OFFLINE or ONLINE
        self._link(np.zeros((0, 2), np.int64))
        if self._listens:
            self.sampler.insert(np.arange(self.oldest, num_added) % self.capacity)

    def _set_origins(self, start: Ints, code: Ints) -> None:
        self._origin_start, self._origin_code = start, code
        self._latest = int(code[-1]) if len(code) else -1

    def _link(self, opened: Ints) -> None:
        """Derive links, unfinished episodes and free ids from the episodes of the rows."""
        rows, episode, steps = self.members()
        last = np.cumsum(steps) - 1
        self.next_index[rows[:-1]] = rows[1:]
        self.next_index[rows[last]] = -1
        self._previous[rows[1:]] = rows[:-1]
        self.open, self._open_by_id = {}, {}
        for env, number in opened.tolist():
            at = int(np.searchsorted(episode, number))
            living = at < len(episode) and episode[at] == number
            first, newest = (rows[last[at] - steps[at] + 1], rows[last[at]]) if living else (-1, -1)
            self.open[env] = self._open_by_id[number] = OpenEpisode(number, int(first), int(newest))
        free = np.ones(self.num_ids, bool)
        free[episode] = free[opened[:, 1]] = False
        self._free = np.flatnonzero(free).tolist()  # sorted, and so a heap

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.RLock()
        _INDICES.add(self)


# ---- forks -----------------------------------------------------------------------------------------------------------
# A forked process inherits locks that its missing threads hold, and generators in the state of its siblings'. So a fork
# waits until no thread is inside an index, and every child gets a stream of its own, the same at every run.
_INDICES: "weakref.WeakSet[ReplayIndex]" = weakref.WeakSet()
_held: list[ReplayIndex] = []


def _before_fork() -> None:
    for index in list(_INDICES):
        index.lock.acquire()
        _held.append(index)


def _after_fork(child: bool) -> None:
    while _held:
        index = _held.pop()
        own = index._seeds.spawn(1)[0]
        if child:
            index._seeds = own
            index.rng.bit_generator.state = np.random.default_rng(own).bit_generator.state
        index.lock.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True)
)


def ring_order(rows: Ints, num_added: int, capacity: int) -> Ints:
    """The insertion order of rows of a ring to which so many were added."""
    if num_added <= capacity:
        return rows
    return num_added - 1 - (num_added - 1 - rows) % capacity


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A number of rows or steps: an integer, of any kind."""
    try:
        number = operator.index(value)
    except TypeError:
        hint = f": write {int(value)}" if isinstance(value, float) and value.is_integer() else ""
        raise DataError(f"{name} must be a whole number, got {value!r}{hint}") from None
    if number < least:
        raise DataError(f"{name} must be at least {least}, got {number}")
    return number


def _strategy(sampler: Any) -> Sampler:
    if sampler is None:
        from arb.replay.arb import ARB  # it reads this module

        return ARB()
    if isinstance(sampler, type):
        raise DataError(f"sampler is the class {sampler.__name__}: make one of it, {sampler.__name__}()")
    if not isinstance(sampler, Sampler):
        raise DataError(f"sampler must be a strategy, such as arb.ARB('auto'), got {sampler!r}")
    return sampler
