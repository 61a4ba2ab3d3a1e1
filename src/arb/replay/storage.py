"""What is in a row: the columns of a ring, in which no observation is stored twice.

The observation after a step is the next row's observation, except at the end of a trajectory; there it is kept once
per trajectory, beside the ring. An open trajectory keeps the observation it has reached in the same place, so nothing
special happens to its newest step.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Array, Leaves, Obs, cast_like, unwrapped
from arb.replay.index import Bools, Ints, Ledger, State

Some = Ints | slice
"""Rows, by their numbers or as a stretch."""

_CHUNK = 1 << 16
_PLAIN = {"reward": np.float32, "terminated": np.bool_, "return_to_go": np.float32}


class Batch(NamedTuple):
    """Transitions with leading axes `(B,)` or `(updates, B)`, as NumPy arrays (or whatever a caller maps them to)."""

    obs: Obs
    action: Array
    reward: NDArray[np.float32]
    """The reward; with `n_step=k` the discounted sum of the next k rewards, or of as many as the episode has left."""
    next_obs: Obs
    mask: NDArray[np.float32]
    """0 where the task ended, 1 where it went on or was cut off by a time limit. Multiply your gamma with it.
    With `n_step=k`, a step that was followed by m - 1 others has gamma^(m - 1) in place of 1: your target
    `reward + gamma * mask * value(next_obs)` stays as it is."""
    return_to_go: NDArray[np.float32]
    """Discounted Monte-Carlo return from this step on; `-inf` while its episode is open, so `max(q, .)` is q."""

    def reshape(self, shape: tuple[int, ...]) -> "Batch":
        """The same transitions with other leading axes."""
        return Batch(*(_reshaped(column, shape) for column in self))


class TracedBatch(NamedTuple):
    """A `Batch` that also says where each transition comes from: `ReplayBuffer.sample(n, trace=True)`."""

    obs: Obs
    action: Array
    reward: NDArray[np.float32]
    next_obs: Obs
    mask: NDArray[np.float32]
    return_to_go: NDArray[np.float32]
    row: Ints
    """The row in the buffer."""
    online: NDArray[np.bool_]
    """Whether it was added online."""
    probability: NDArray[np.float64]
    """The probability of one draw to be this row."""


def _reshaped(column: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(column, dict):
        return {key: _reshaped(values, shape) for key, values in column.items()}
    return column.reshape(*shape, *column.shape[1:])


def along(path: Ints, reward: Array, gamma: float) -> tuple[Ints, NDArray[np.float64], Ints]:
    """Of each path as `Ledger.path` makes them: its last row, its discounted reward, and its number of steps.

    >>> along(np.array([[0, 2], [1, -1]]), np.array([1.0, 4.0, 7.0]), gamma=0.5)
    (array([1, 2]), array([3., 7.]), array([2, 1]))
    """
    steps = (path >= 0).sum(0)
    discounts = gamma ** np.arange(len(path), dtype=np.float64)
    total = discounts @ np.where(path >= 0, reward[path], 0.0)
    return path[steps - 1, np.arange(len(steps))], total, steps


class Storage:
    """Columns for `capacity` steps, allocated when the first step shows their shapes."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.columns: dict[str, Array] = {}
        self._final: Leaves = {}
        self.vectors: tuple[Array, Array, Array] | None = None
        """The columns of observation, action and final observation, if observations are one float vector each."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated for columns and final observations."""
        return sum(c.nbytes for c in self.columns.values()) + sum(f.nbytes for f in self._final.values())

    def fitted(self, obs: Leaves, action: Array, next_obs: Leaves) -> tuple[Leaves, Array, Leaves]:
        """These arrays in the dtypes of the columns, which are allocated if there are none yet.

        A value that a column cannot hold is refused, not wrapped around or rounded.
        """
        given = {**_columns_of(obs), "action": action}
        held = self.columns or given
        if self.columns and obs.keys() != self._final.keys():
            raise DataError(f"observations have the keys {list(obs)}, but the buffer holds {list(self._final)}")
        before = {key: cast_like(_obs_key(key), column, held[_obs_key(key)]) for key, column in obs.items()}
        after = {key: cast_like(f"next_{_obs_key(key)}", c, held[_obs_key(key)]) for key, c in next_obs.items()}
        action = cast_like("action", action, held["action"])
        if not self.columns:
            made = {name: np.zeros((self.capacity, *c.shape[1:]), c.dtype) for name, c in given.items()}
            self.columns = made | {name: np.zeros(self.capacity, dtype) for name, dtype in _PLAIN.items()}
            self._final = {key: np.zeros((0, *column.shape[1:]), column.dtype) for key, column in obs.items()}
            self._find_vectors()
        return before, action, after

    def write(self, first: int, n: int, obs: Leaves, columns: dict[str, Any]) -> None:
        """Fill n rows from `first` on, round the end of the ring; a column may be one value for all."""
        fits = first + n <= self.capacity
        split = n if fits else self.capacity - first
        for name, values in {**_columns_of(obs), **columns}.items():
            held = self.columns[name]
            if fits:
                held[first : first + n] = values
            else:
                both = np.broadcast_to(values, (n, *held.shape[1:]))
                held[first:], held[: n - split] = both[:split], both[split:]

    def load(self, first: int, obs: Leaves, columns: Leaves, kept: Bools | None) -> None:
        """Fill the rows from `first` on with the rows that are kept, a part at a time to spare memory."""
        for name, column in {**_columns_of(obs), **columns}.items():
            if kept is None:
                self.write(first, len(column), {}, {name: column})
                continue
            place = first
            for start in range(0, len(column), _CHUNK):
                block = column[start : start + _CHUNK][kept[start : start + _CHUNK]]
                self.write(place, len(block), {}, {name: block})
                place = (place + len(block)) % self.capacity

    def write_final(self, slots: Ints | list[int], obs: Leaves) -> None:
        """Keep the observation that follows the newest step of each of these trajectories."""
        needed = int(max(slots) if isinstance(slots, list) else slots.max(initial=-1)) + 1
        for key, column in obs.items():
            held = self._final[key]
            if len(held) < needed:
                grown = np.zeros((max(needed, len(held) * 5 // 4), *held.shape[1:]), held.dtype)
                grown[: len(held)] = held
                self._final[key] = held = grown
                self._find_vectors()
            held[slots] = column

    def final(self, slots: Any) -> Leaves:
        """The observations that follow the newest steps of these trajectories."""
        return {key: column[slots] for key, column in self._final.items()}

    def _find_vectors(self) -> None:
        obs, final = self.columns.get("obs"), self._final.get("")
        plain = obs is not None and final is not None and obs.ndim == 2 and obs.dtype == np.float32
        self.vectors = (obs, self.columns["action"], final) if plain else None  # type: ignore[assignment]

    def observations(self, rows: Some) -> Leaves:
        """Observations of some rows: views for a slice, copies for numbers."""
        return {key: self._at(_obs_key(key), rows) for key in self._final}

    def actions(self, rows: Some) -> Array:
        """Actions of some rows: a view for a slice, a copy for numbers."""
        return self._at("action", rows)

    def gather(self, rows: Ints, ledger: Ledger, n_step: int, gamma: float) -> Batch:
        """The transitions in some rows, or those over `n_step` steps from them on."""
        last, reward = rows, self._at("reward", rows)
        factor: Any = np.float32(1.0)
        if n_step > 1:
            path = ledger.path(rows, n_step, self.columns["terminated"])
            last, reward, steps = along(path, self.columns["reward"], gamma)
            factor = gamma ** (steps - 1)
        return Batch(
            obs=unwrapped(self.observations(rows)),
            action=self.actions(rows),
            reward=reward.astype(np.float32, copy=False),
            next_obs=unwrapped(self._next(ledger, last)),
            mask=(factor * ~self._at("terminated", last)).astype(np.float32, copy=False),
            return_to_go=self._at("return_to_go", rows),
        )

    def _next(self, ledger: Ledger, rows: Ints) -> Leaves:
        following = ledger.following.take(rows)
        next_obs = self.observations(following)  # of row -1 where there is none, and replaced
        final = np.flatnonzero(following < 0)
        if len(final):
            for key, column in self.final(ledger.trajectory[rows[final]]).items():
                next_obs[key][final] = column
        return next_obs

    def _at(self, name: str, rows: Some) -> Array:
        column = self.columns[name]
        return column[rows] if isinstance(rows, slice) else column.take(rows, axis=0)

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self, rows: Some) -> State:
        """These rows of every column, and the final observations."""
        held = {f"column.{name}": column[rows] for name, column in self.columns.items()}
        return held | {f"final.{key}": column for key, column in self._final.items()}

    def refuse_other_columns(self, state: State) -> None:
        """Raise a `DataError` if a saved state has columns of other names, shapes or types than there are here."""
        saved = {name: (column.shape[1:], column.dtype) for name, column in _named(state, "column.").items()}
        here = {name: (column.shape[1:], column.dtype) for name, column in self.columns.items()} or saved
        for name in sorted(saved.keys() | here.keys()) if saved else ():
            if saved.get(name) != here.get(name):
                raise DataError(
                    f"{name} of the saved buffer has shape and type {saved.get(name)}, not {here.get(name)}"
                )

    def restore(self, state: State, rows: Some) -> None:
        """Put a state that fits back into these rows; rows beside them stay as they are."""
        columns = _named(state, "column.")
        if not self.columns:
            self.columns = {name: np.zeros((self.capacity, *c.shape[1:]), c.dtype) for name, c in columns.items()}
        self._final = _named(state, "final.")
        for name, column in columns.items():
            self.columns[name][rows] = column
        self._find_vectors()


def _named(state: State, kind: str) -> dict[str, Array]:
    return {key.removeprefix(kind): column for key, column in state.items() if key.startswith(kind)}


def _obs_key(key: str) -> str:
    return f"obs.{key}" if key else "obs"


def _columns_of(obs: Leaves) -> dict[str, Array]:
    return {_obs_key(key): column for key, column in obs.items()}
