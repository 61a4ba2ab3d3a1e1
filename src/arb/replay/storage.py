"""What is in a row: the columns of a ring, in which no observation is stored twice.

The observation after a step is the next row's observation, except at the end of an episode; there it is kept once per
episode, beside the ring. An open episode keeps the observation it has reached in the same place, so nothing special
happens to its newest step.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Array, Ints, Leaves, cast_like, unwrapped
from arb.replay.samplers import State

if TYPE_CHECKING:
    from arb.replay.index import ReplayIndex

Some = Ints | slice
"""Rows, by their numbers or as a stretch."""

_PLAIN = {"reward": np.float32, "terminated": np.bool_, "return_to_go": np.float32}


class Batch(NamedTuple):
    """Transitions with leading axes `(B,)` or `(updates, B)`, as NumPy arrays (or whatever a caller maps them to)."""

    obs: Any
    """An array, or a dict of arrays if observations are dicts."""
    action: Array
    reward: NDArray[np.float32]
    """The reward; with `n_step=k` the discounted sum of the next k rewards, or of as many as the episode has left."""
    next_obs: Any
    mask: NDArray[np.float32]
    """0 where the task ended, 1 where it continued or was cut off by a time limit. Multiply your gamma with it.
    With `n_step=k`, a step that was followed by m - 1 others has gamma^(m - 1) in place of 1: your target
    `reward + gamma * mask * value(next_obs)` stays as it is."""
    return_to_go: NDArray[np.float32]
    """Discounted Monte-Carlo return from this step on; `-inf` while its episode is open, so `max(q, .)` is q."""


def n_step_return(path: Ints, reward: Array, gamma: float) -> tuple[Ints, NDArray[np.float64], Ints]:
    """Of each path as `ReplayIndex.path` makes them: its last row, its discounted reward, and its number of steps.

    >>> n_step_return(np.array([[0, 2], [1, -1]]), np.array([1.0, 4.0, 7.0]), gamma=0.5)
    (array([1, 2]), array([3., 7.]), array([2, 1]))
    """
    steps = (path >= 0).sum(0)
    discounts = gamma ** np.arange(len(path), dtype=np.float64)
    total = discounts @ np.where(path >= 0, reward[path], 0.0)
    return path[steps - 1, np.arange(len(steps))], total, steps


class Storage:
    """Columns for `capacity` steps, allocated when the first step shows their shapes."""

    def __init__(self, capacity: int, *, next_obs: bool = False):
        self.capacity, self.next_obs = capacity, next_obs
        self.columns: dict[str, Array] = {}
        """By name: obs (or obs.name for each part of it), action, reward, terminated, return_to_go.

        With `next_obs` also next_obs, for steps that need not begin where the last one led.
        """
        self._final: Leaves = {}

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self.columns.values()) + sum(f.nbytes for f in self._final.values())

    def fit(self, obs: Leaves, action: Array, next_obs: Leaves) -> tuple[Leaves, Array, Leaves]:
        """These arrays in the dtypes of the columns, which are allocated if there are none yet."""
        if not self.columns:
            held = {**self.named(obs, obs), "action": action}
        elif obs.keys() == self._final.keys():
            held = self.columns
        else:
            raise DataError(f"observations have the keys {list(obs)}, but the buffer holds {list(self._final)}")
        before = {key: cast_like(_obs_key(key), column, held[_obs_key(key)]) for key, column in obs.items()}
        after = {key: cast_like(f"next_{_obs_key(key)}", c, held[_obs_key(key)]) for key, c in next_obs.items()}
        action = cast_like("action", action, held["action"])
        if not self.columns:
            made = {name: np.zeros((self.capacity, *c.shape[1:]), c.dtype) for name, c in held.items()}
            self.columns = made | {name: np.zeros(self.capacity, dtype) for name, dtype in _PLAIN.items()}
            self._final = {key: np.zeros((0, *column.shape[1:]), column.dtype) for key, column in obs.items()}
        return before, action, after

    def named(self, obs: Leaves, next_obs: Leaves) -> dict[str, Array]:
        """The parts of observations by the names of their columns."""
        before = {_obs_key(key): column for key, column in obs.items()}
        return before | {f"next_{_obs_key(key)}": c for key, c in next_obs.items()} if self.next_obs else before

    def write(self, first: int, n: int, columns: dict[str, Any]) -> None:
        """Fill n rows from `first` on, round the end of the ring; a column may be one value for all."""
        split = self.capacity - first
        for name, values in columns.items():
            held = self.columns[name]
            if n <= split:
                held[first : first + n] = values
            else:
                both = np.broadcast_to(values, (n, *held.shape[1:]))
                held[first:], held[: n - split] = both[:split], both[split:]

    def write_final(self, episodes: Ints | list[int], obs: Leaves) -> None:
        """Keep the observation that follows the newest step of each of these episodes."""
        needed = int(episodes.max() if isinstance(episodes, np.ndarray) else max(episodes)) + 1
        for key, column in obs.items():
            held = self._final[key]
            if len(held) < needed:
                grown = np.zeros((max(needed, len(held) * 5 // 4), *held.shape[1:]), held.dtype)
                grown[: len(held)] = held
                self._final[key] = held = grown
            if len(column) == 1:
                held[needed - 1] = column[0]  # quicker than by a list of one
            else:
                held[episodes] = column

    def final(self, episodes: Any) -> Leaves:
        return {key: column.take(episodes, axis=0) for key, column in self._final.items()}

    def observations(self, rows: Some) -> Leaves:
        return {key: self.at(_obs_key(key), rows) for key in self._final}

    def at(self, name: str, rows: Some) -> Array:
        """A column in some rows: a view for a slice, a copy for numbers."""
        column = self.columns[name]
        return column[rows] if isinstance(rows, slice) else column.take(rows, axis=0)

    def gather(self, rows: Ints, index: "ReplayIndex", n_step: int, gamma: float) -> Batch:
        last, reward = rows, self.at("reward", rows)
        factor: Any = np.float32(1.0)
        if n_step > 1:
            path = index.path(rows, n_step, self.columns["terminated"])
            last, reward, steps = n_step_return(path, self.columns["reward"], gamma)
            factor = gamma ** (steps - 1)
        following = index.next_index.take(last)
        next_obs = self.observations(following)  # of row -1 where there is none, and replaced
        at_end = np.flatnonzero(following < 0)
        if self.next_obs:
            next_obs = {key: self.at(f"next_{_obs_key(key)}", last) for key in next_obs}
        elif len(at_end):
            for key, column in self.final(index.episode_ids[last[at_end]]).items():
                next_obs[key][at_end] = column
        return Batch(
            obs=unwrapped(self.observations(rows)),
            action=self.at("action", rows),
            reward=reward.astype(np.float32, copy=False),
            next_obs=unwrapped(next_obs),
            mask=(factor * ~self.at("terminated", last)).astype(np.float32, copy=False),
            return_to_go=self.at("return_to_go", rows),
        )

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self, rows: Some) -> State:
        held = {f"column.{name}": column[rows] for name, column in self.columns.items()}
        return held | {f"final.{key}": column for key, column in self._final.items()}

    def check_fits(self, state: State) -> None:
        """Raise a `DataError` if a saved state has columns of other names, shapes or types than there are here."""
        saved = {name: (column.shape[1:], column.dtype) for name, column in _group(state, "column.").items()}
        here = {name: (column.shape[1:], column.dtype) for name, column in self.columns.items()} or saved
        for name in saved.keys() | here.keys() if saved else ():
            if saved.get(name) != here.get(name):
                raise DataError(f"{name} of the saved buffer has shape, type {saved.get(name)}, not {here.get(name)}")

    def restore(self, state: State, rows: Some) -> None:
        """Put a state that fits back into these rows; rows beside them stay as they are."""
        columns = _group(state, "column.")
        if not self.columns:
            self.columns = {name: np.zeros((self.capacity, *c.shape[1:]), c.dtype) for name, c in columns.items()}
        self._final = _group(state, "final.")
        for name, column in columns.items():
            self.columns[name][rows] = column


def _group(state: State, kind: str) -> dict[str, Array]:
    return {key.removeprefix(kind): column for key, column in state.items() if key.startswith(kind)}


@cache
def _obs_key(key: str) -> str:
    return f"obs.{key}" if key else "obs"
