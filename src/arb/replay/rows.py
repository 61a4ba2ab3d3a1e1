"""Which rows and whose, without what is in them: for buffers that keep columns of their own.

`ReplayBuffer` is `Rows` plus a `Storage`; an adapter is `Rows` plus the arrays of its host. A host tells which rows it
writes (`extend`, `append`, `close`), answers for the score of rows by their number (`refresh`), and reads the rows that
`sample_indices` returns.
"""

import math
import operator
import threading
import warnings
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError
from arb.files import digest
from arb.replay.ahead import RefreshAhead
from arb.replay.arb import ARB
from arb.replay.diagnostics import describe
from arb.replay.index import Ints, Ledger, Open, State
from arb.replay.samplers import Sampler
from arb.replay.scoring import CHUNK, RowScore, score_all
from arb.replay.storage import Batch

PATIENCE = 10_000
"""Steps added without a refresh after which a strategy that lives on refreshes says so."""


class Rows:
    """The rows of a ring of `capacity`: their trajectories and origins, and a sampler that chooses among them.

    >>> rows = Rows(capacity=6, sampler=ARB(temperature=0.5), seed=0)
    >>> rows.extend([2, 1])[0]          # two past trajectories
    array([0, 1, 2])
    >>> rows.append([0], ends=[True])[0]       # one step of environment 0, which ends its episode
    array([3])
    >>> rows.refresh(lambda chosen: np.array([-1.0, -1.0, -9.0, -1.0])[chosen])
    >>> bool((rows.sample_indices(1000) == 2).mean() < 0.01)
    True

    Args:
        capacity: rows of the ring.
        sampler: the strategy; ARB with its defaults if not given.
        seed: random seed.
    """

    def __init__(self, capacity: int, sampler: Sampler | None = None, seed: int | np.random.SeedSequence | None = None):
        self.ledger = Ledger(whole_number("capacity", capacity))
        self.sampler = _strategy(sampler)
        self.sampler.bind(self.ledger)
        seeds = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self.rng = np.random.default_rng(seeds.spawn(1)[0])
        self.lock = threading.RLock()
        self._drawn_online = math.nan
        self._reminded = False
        self._draws_since_refresh = 0
        self._told = type(self.sampler).insert is not Sampler.insert  # whether the strategy listens to insertions
        self._steps_since_refresh = 0  # data loaded whole is left out: learning from it alone needs no weights
        self.refreshed_at: int | None = None
        """Rows ever added when the last refresh began; None before the first."""

    def __repr__(self) -> str:
        return f"Rows({self.described})"

    @property
    def described(self) -> str:
        """How many rows there are and who chooses among them, for the `repr` of whatever holds them."""
        return f"{len(self)} of {self.ledger.capacity} rows, {self.sampler!r}"

    def __len__(self) -> int:
        return self.ledger.size

    @property
    def needs_scores(self) -> bool:
        """Whether the strategy wants to know how likely stored actions are under the current policy."""
        return self.sampler.needs_scores

    # ---- rows in -------------------------------------------------------------------------------------------------
    def extend(self, lengths: ArrayLike, *, online: bool = False) -> tuple[Ints, Ints]:
        """Whole trajectories of these lengths, row after row: the rows they take, and the slot of each trajectory."""
        with self.lock:
            rows, slots = self.ledger.extend(np.asarray(lengths, np.int64), online=online)
            self._insert(rows)
        return rows, slots

    def append(self, streams: Sequence[int], ends: Sequence[float] | None = None) -> tuple[Ints, list[int]]:
        """One online step of each of these streams: the rows they take, and the slots of their trajectories.

        A stream is what makes one step after the other, such as an environment; its first step, and the first after
        `close`, begins a trajectory. `ends` marks steps that end theirs; a stream may then occur again.
        """
        with self.lock:
            taken = []
            for stream, over in zip(streams, repeat(False) if ends is None else ends, strict=ends is not None):
                taken.append(self.ledger.append_one(stream, online=True))
                if over:
                    self.ledger.close(stream)
            rows, slots = np.array([row for row, _ in taken], np.int64), [slot for _, slot in taken]
            self._steps_since_refresh += len(rows)
            self._insert(rows)
        return rows, slots

    def append_one(self, stream: int) -> tuple[int, int]:
        """One online step of a stream, for whoever holds the lock: its row, and the slot of its trajectory."""
        row, slot = self.ledger.append_one(stream, online=True)
        self._steps_since_refresh += 1
        if self._told:
            self.sampler.insert(np.array([row]))
        return row, slot

    def append_all(self, going: list[Open], slots: Ints) -> int | None:
        """One online step of each of these unfinished trajectories, for whoever holds the lock: the first row.

        None, and nothing has happened, where `Ledger.go_on` says so.
        """
        first = self.ledger.go_on(going, slots)
        if first is not None:
            self._steps_since_refresh += len(going)
            if self._told:
                self.sampler.insert(np.arange(first, first + len(going)))
        return first

    def close(self, stream: int) -> Ints:
        """End a stream's trajectory, if it has one open: the rows of that trajectory, in the order of its steps."""
        with self.lock:
            return self.ledger.close(stream)

    def _insert(self, rows: Ints) -> None:
        if self._told:
            self.sampler.insert(rows)

    # ---- rows out ------------------------------------------------------------------------------------------------
    def refresh(self, score: RowScore, *, chunk: int = CHUNK) -> None:
        """Weigh the rows anew under the current policy.

        `score(rows)` returns the log-likelihood of the actions in these rows, one number per row. It is asked for
        `chunk` rows at a time, always as many, as a slice or as numbers in which one may occur twice. Strategies that
        do not look at the policy never call it. Other threads may add meanwhile.
        """
        with self.lock:
            self._refuse_empty("refreshed")
            head, size, weighed = self.ledger.head, self.ledger.size, self._steps_since_refresh
            self._draws_since_refresh = 0
        if self.needs_scores:
            scores = score_all(score, size, min(chunk, self.ledger.capacity))
            with self.lock:
                self.sampler.update_weights(scores, head)
                self._steps_since_refresh -= weighed
        self.refreshed_at = head

    def is_due(self, every: int) -> bool:
        """Whether `every` rows were added since the last refresh, or there was none yet."""
        return self.refreshed_at is None or self.ledger.head - self.refreshed_at >= every

    def refresh_ahead(self, score: RowScore, *, chunk: int = CHUNK, background: bool = True) -> RefreshAhead:
        """Begin a refresh now on another thread, and `finish` it when more steps have been added.

        The policy must not change in between. See `RefreshAhead`.
        """
        return RefreshAhead(self, score, chunk, background)

    def update_weights(self, scores: NDArray[np.float32]) -> None:
        """Take the scores of all rows, for whoever holds the lock."""
        self._refuse_empty("refreshed")
        self._draws_since_refresh = 0
        self.sampler.update_weights(scores, self.ledger.head)
        self._steps_since_refresh, self.refreshed_at = 0, self.ledger.head

    def sample_indices(self, shape: int | tuple[int, ...], *, rng: np.random.Generator | None = None) -> Ints:
        """Rows of this shape, drawn with replacement."""
        sizes = shape if isinstance(shape, tuple | list) else (shape,)
        wanted = tuple(whole_number("a batch", size) for size in sizes)
        with self.lock:
            self._refuse_empty("sampled")
            if self._steps_since_refresh >= PATIENCE and not self._reminded and self.needs_scores:
                self._remind_of_refresh()
            rows = self.sampler.sample_indices(self.rng if rng is None else rng, wanted)
            self._drawn_online = float(self.ledger.is_online(rows).mean())
            self._draws_since_refresh += rows.size
        return rows

    def train(self, rows: Ints, columns: Callable[[Ints], tuple[Any, Any]]) -> None:
        """Let a strategy that learns its weights, such as BERB's, learn from the batch just drawn; others do nothing.

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
        """Figures about the sampling distribution; docs/reference/metrics.md explains them. Looks at every row."""
        with self.lock:
            self._refuse_empty("described")
            figures = describe(self.sampler.probabilities(), self.ledger)
            drawn = {
                "drawn_online_share": self._drawn_online,
                "replay_volume": self._draws_since_refresh / figures["effective_rows"],
            }
            return figures | drawn | self.sampler.metrics()

    def _remind_of_refresh(self) -> None:
        self._reminded = True
        warnings.warn(
            f"{self._steps_since_refresh} steps were added without a refresh, so {type(self.sampler).__name__} does "
            "not follow the policy: call refresh with a score of the current policy every 1,000 steps or so, before "
            "the updates, or let the RefreshCallback or RefreshHook of your adapter do it. (Said once.)",
            stacklevel=5,
        )

    def _refuse_empty(self, done: str) -> None:
        if self.ledger.size == 0:
            raise DataError(f"an empty buffer cannot be {done}: load a dataset or add a step first")

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], dict[str, State]]:
        """Everything that decides future draws: plain values, and groups of arrays, as `write_state` takes them."""
        with self.lock:
            header = {
                "sampler": repr(self.sampler),
                "stream": self.rng.bit_generator.state,
                "draws_since_refresh": self._draws_since_refresh,
            }
            parts = {"ledger": self.ledger.state(), "sampler": self.sampler.state()}
            return header | {"sum": digest(header, parts), "refreshed_at": self.refreshed_at}, parts

    def restore(self, header: dict[str, Any], parts: dict[str, State]) -> None:
        """Continue as the rows whose state this is: the next draws are the ones they would have made.

        A state that was altered, one of another strategy or of other settings is refused with a `DataError`, and
        nothing has changed.
        """
        refuse_altered(header, parts, "sum", ("sampler", "stream", "draws_since_refresh"), ("ledger", "sampler"))
        if header["sampler"] != repr(self.sampler):
            raise DataError(f"what was saved has the sampler {header['sampler']}, this one has {self.sampler!r}")
        refreshed_at = header.get("refreshed_at")
        if not (refreshed_at is None or type(refreshed_at) is int):
            raise DataError(
                f"what was saved says that it was refreshed at {refreshed_at!r}, which is not a number of rows"
            )
        with self.lock:
            ledger = Ledger.from_state(self.ledger.capacity, parts["ledger"])
            vars(self.ledger).update(vars(ledger))
            self.sampler.restore(parts.get("sampler", {}))
            self.rng.bit_generator.state = header["stream"]
            self._steps_since_refresh, self._draws_since_refresh = 0, header["draws_since_refresh"]
            self.refreshed_at = refreshed_at

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.RLock()


def _strategy(sampler: Any) -> Sampler:
    if sampler is None:
        return ARB()
    if isinstance(sampler, type):
        raise DataError(f"sampler is the class {sampler.__name__}: make one of it, {sampler.__name__}()")
    if not isinstance(sampler, Sampler):
        raise DataError(f"sampler must be a strategy, such as arb.ARB('auto'), got {sampler!r}")
    return sampler


def whole_number(name: str, rows: Any) -> int:
    """A number of rows or steps: an integer, of any kind, from 1 on."""
    try:
        number = operator.index(rows)
    except TypeError:
        hint = f": write {int(rows)}" if isinstance(rows, float) and rows.is_integer() else ""
        raise DataError(f"{name} must be a whole number, got {rows!r}{hint}") from None
    if number < 1:
        raise DataError(f"{name} must be at least 1, got {number}")
    return number


def refuse_altered(
    header: dict[str, Any], parts: dict[str, State], name: str, values: Sequence[str], groups: Sequence[str]
) -> None:
    """Raise a `DataError` unless these parts of a saved buffer are as their sum, `header[name]`, says.

    Buffers were saved without sums before; what has none is taken as it is.
    """
    found = digest({key: header.get(key) for key in values}, {key: parts.get(key, {}) for key in groups})
    if header.get(name, found) != found:
        raise DataError("the saved buffer is damaged: it is not what was written; save it again, or start again")
