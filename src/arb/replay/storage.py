"""What is in a row: the columns of a ring, in which no observation is stored twice.

The observation after a step is the next row's observation, except at the end of an episode; there it is kept once per
episode, beside the ring. An open episode keeps the observation it has reached in the same place, so nothing special
happens to its newest step.

The columns lie in memory, or in memory-mapped files. There, new steps are written to a log first and then to their
rows, so whoever opens the files of a killed process finds every step that was logged, and no half of one.
"""

import fcntl
import json
import math
import mmap
import os
import shutil
import weakref
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.files import check_folder, read_json, write_text
from arb.replay.dataset import Array, Ints, Leaves, cast_like, map_leaves, unwrapped
from arb.replay.samplers import State

if TYPE_CHECKING:
    from arb.replay.index import ReplayIndex

Some = Ints | slice
"""Rows, by their numbers or as a stretch."""

_PLAIN = {"reward": np.float32, "terminated": np.bool_, "return_to_go": np.float32}
_FILED = {"episode_id": np.int32, "online": np.bool_}
"""Columns in files also hold what the index of a buffer keeps in memory."""


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
    extras: dict[str, Array] = {}  # noqa: RUF012 - never changed
    """Further columns by name: those of the dataset and of `add(..., name=value)`, nan (or 0) where none was given."""

    def to(self, framework: Any, device: Any = None) -> "Batch":
        """The batch as arrays of a framework, `batch.to(torch, "cuda")` or `batch.to(jax)`; see `converted`."""
        return Batch(*converted(tuple(self), framework, device))


def converted(value: Any, framework: Any, device: Any = None) -> Any:
    """NumPy arrays, or dicts and tuples of them, as arrays of the module `torch` or `jax`.

    Without a device they are not copied, where the framework can use the memory of NumPy.
    """
    name = getattr(framework, "__name__", None)
    if name == "jax":
        return framework.device_put(value, device)
    if name != "torch":
        raise DataError(f"batches can be converted to torch or jax, the modules; got {framework!r}")
    tensors = map_leaves(framework.from_numpy, value)
    return tensors if device is None else map_leaves(lambda tensor: tensor.to(device), tensors)


def n_step_return(path: Ints, reward: Array, gamma: float) -> tuple[Ints, NDArray[np.float64], Ints]:
    """Of each path as `ReplayIndex.path` makes them: its last row, its discounted reward, and its number of steps.

    >>> n_step_return(np.array([[0, 2], [1, -1]]), np.array([1.0, 4.0, 7.0]), gamma=0.5)
    (array([1, 2]), array([3., 7.]), array([2, 1]))
    """
    steps = (path >= 0).sum(0)
    discounts = gamma ** np.arange(len(path), dtype=np.float64)
    total = discounts @ np.where(path >= 0, reward[path], 0.0)
    return path[steps - 1, np.arange(len(steps))], total, steps


class Files:
    """A folder of memory-mapped arrays, for one process at a time."""

    def __init__(self, folder: Path):
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, lock = folder, os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        weakref.finalize(self, os.close, lock)
        self._maps: dict[str, mmap.mmap] = {}
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder} is in use: end the process that has it open, or del the buffer") from None
        if not (folder / "buffer.json").exists() and any(path.name != "lock" for path in folder.iterdir()):
            raise DataError(f"{folder} holds other files and no buffer: choose an empty folder, or a new one")

    def describe(self, header: dict[str, Any], nbytes: int) -> None:
        """Say what the arrays will be; so many bytes must be free on the disk."""
        free = shutil.disk_usage(self.folder).free
        if nbytes > free:
            found = f"{nbytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
            raise DataError(f"{self.folder}: the buffer needs {found}; lower the capacity or choose another disk")
        write_text(self.folder / "buffer.json", json.dumps(header))

    def array(self, name: str, rows: int, shape: Iterable[int], dtype: Any, *, held: int = 0) -> Array:
        """An array in a file of its own, which grows to this many rows; new ones are zero, `held` must be there."""
        path, shape = self.folder / f"{name}.bin", tuple(shape)
        row = math.prod(shape) * np.dtype(dtype).itemsize
        with path.open("a+b") as file:
            size = file.seek(0, 2)
            if size < held * row:
                raise DataError(f"{path} is damaged: it has {size} bytes, not {held * row}; make the buffer anew")
            if not rows * row:
                return np.zeros((rows, *shape), dtype)
            file.truncate(rows * row)
            self._maps[name] = mmap.mmap(file.fileno(), rows * row)
        return np.frombuffer(self._maps[name], dtype).reshape(rows, *shape)

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        for memory in self._maps.values():
            memory.flush()

    def __reduce__(self) -> Any:
        raise DataError(f"a buffer in files cannot be copied: copy the folder {self.folder} while it is not open")


class Storage:
    """Columns for `capacity` steps, allocated when the first step shows their shapes, in memory or in a folder."""

    def __init__(self, capacity: int, *, next_obs: bool = False, folder: Path | None = None):
        self.capacity, self.next_obs = capacity, next_obs
        self.files = None if folder is None else Files(folder)
        self.made: dict[str, Any] = {}
        """What else `buffer.json` says of the buffer."""
        self.columns: dict[str, Array] = {}
        """By name: obs (or obs.name for each part of it), action, reward, terminated, return_to_go.

        With `next_obs` also next_obs, for steps that need not begin where the last one led.
        """
        self.extras: dict[str, Array] = {}
        """Further columns by name."""
        self._final: Leaves = {}
        self._log: dict[str, Array] = {}
        self._counts = np.zeros(3, np.int64)
        """In files: rows ever added, and the same before the steps in the log, and how many these are."""

    def open(self) -> int:
        """Map the files that an earlier process left; returns the number of rows ever added to them."""
        if self.files is None or not (place := self.files.folder / "buffer.json").exists():
            return 0
        header, made = read_json(place), {"capacity": self.capacity, **self.made}
        try:
            other = [(name, header[name], ours) for name, ours in made.items() if header[name] != ours]
            said = {name: (tuple(map(int, shape)), np.dtype(kind)) for name, shape, kind in header["columns"]}
        except (KeyError, TypeError, ValueError):
            said, other = {}, []
        for name, theirs, ours in other:
            raise DataError(f"{place}: made with {name}={theirs}, and this buffer has {name}={ours}")
        sound = all(kind.kind in "biuf" and min(shape, default=0) >= 0 for shape, kind in said.values())
        if not sound or not {"action", *_PLAIN, *_FILED} <= said.keys():
            raise DataError(f"{place} is damaged: make the buffer anew")
        self._map(said)
        if self._counts[1] == self._counts[0] and self._counts[2]:  # logged, and perhaps half of it written
            logged = {name: column[: self._counts[2]] for name, column in self._log.items()}
            self._append({name: logged[name] for name in self.columns}, _group(logged, "final."))
        return int(self._counts[0])

    def _map(self, columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        """Allocate columns of these shapes and types, or find them in the files."""
        obs = [name for name in columns if name == "obs" or name.startswith("obs.")]
        if self.files is None:
            self.columns = {name: np.zeros((self.capacity, *shape), kind) for name, (shape, kind) in columns.items()}
            self._final = {name[4:]: np.zeros((0, *columns[name][0]), columns[name][1]) for name in obs}
            return
        self._counts = self.files.array("counts", 3, (), np.int64)
        held = self.capacity if self._counts[0] else 0
        for i, (name, (shape, kind)) in enumerate(columns.items()):
            self.columns[name] = self.files.array(f"column{i}", self.capacity, shape, kind, held=held)
        ids = int(self.columns["episode_id"].max()) + 1 if held else 0
        if held and self.columns["episode_id"].min() < 0:
            raise DataError(f"{self.files.folder} is damaged: make the buffer anew")
        for i, name in enumerate(obs):
            self._final[name[4:]] = self.files.array(f"final{i}", ids, *columns[name], held=ids)
        self._map_log(int(self._counts[2]))

    def _map_log(self, rows: int) -> None:
        if self.files is not None:
            parts = self.columns | {f"final.{key}": column for key, column in self._final.items()}
            self._log = {
                name: self.files.array(f"log{i}", rows, column.shape[1:], column.dtype, held=int(self._counts[2]))
                for i, (name, column) in enumerate(parts.items())
            }

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for part in (self.columns, self.extras, self._final) for c in part.values())

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
            plain = _PLAIN if self.files is None else _PLAIN | _FILED
            columns = {name: (c.shape[1:], c.dtype) for name, c in held.items()}
            columns |= {name: ((), np.dtype(kind)) for name, kind in plain.items()}
            if self.files is not None:
                row = sum(math.prod(shape) * kind.itemsize for shape, kind in columns.values())
                said = [(name, shape, kind.str) for name, (shape, kind) in columns.items()]
                self.files.describe({"capacity": self.capacity, **self.made, "columns": said}, self.capacity * row)
            self._map(columns)
        return before, action, after

    def named(self, obs: Leaves, next_obs: Leaves) -> dict[str, Array]:
        """The parts of observations by the names of their columns."""
        before = {_obs_key(key): column for key, column in obs.items()}
        return before | {f"next_{_obs_key(key)}": c for key, c in next_obs.items()} if self.next_obs else before

    def append(self, order: int, ids: list[int], columns: dict[str, Any], final: Leaves) -> None:
        """Write one new step of each of these episodes, and where it led; in files all of them are kept, or none."""
        if self.files is None:
            self.write(order % self.capacity, len(ids), columns)
            self.write_final(ids, final)
            return
        columns = columns | {"episode_id": ids, "online": True}
        n = len(ids)
        if len(self._log["action"]) < n:
            self._map_log(n)
        for name, values in (columns | {f"final.{key}": column for key, column in final.items()}).items():
            self._log[name][:n] = values
        self._counts[2] = n  # before the place, which makes the log count
        self._counts[1] = order
        self._append(columns, final)

    def _append(self, columns: dict[str, Any], final: Leaves) -> None:
        order, n = int(self._counts[0]), int(self._counts[2])
        self.write_final(np.asarray(columns["episode_id"]), final)  # first: a row's episode has a place for it
        self.write(order % self.capacity, n, columns)
        self.commit(order + n)

    def commit(self, num_added: int) -> None:
        """All rows up to this one are written."""
        self._counts[0] = num_added

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

    def fit_extras(self, extras: Leaves) -> Leaves:
        """Further columns in the dtypes of those that are held."""
        return {name: cast_like(name, c, self.extras[name]) if name in self.extras else c for name, c in extras.items()}

    def write_extras(self, first: int, n: int, extras: Leaves) -> None:
        """Fill n rows of all further columns, new ones among them, which `fit_extras` has checked."""
        rows = np.arange(first, first + n) % self.capacity
        for name, values in extras.items():
            if name not in self.extras:
                self.extras[name] = _nothing(self.capacity, values)
        for name, column in self.extras.items():
            column[rows] = extras.get(name, np.nan if column.dtype.kind == "f" else 0)

    def keep(self, rows: Ints) -> None:
        """Move these rows to the places 0, 1, ..."""
        for column in (*self.columns.values(), *self.extras.values()):
            column[: len(rows)] = column[rows]

    def write_final(self, episodes: Ints | list[int], obs: Leaves) -> None:
        """Keep the observation that follows the newest step of each of these episodes."""
        needed = int(episodes.max() if isinstance(episodes, np.ndarray) else max(episodes)) + 1
        for key, column in obs.items():
            held = self._final[key]
            if len(held) < needed:
                rows, row = max(needed, len(held) * 5 // 4), held.shape[1:]
                if self.files is None:
                    grown = np.zeros((rows, *row), held.dtype)
                    grown[: len(held)] = held
                else:
                    grown = self.files.array(f"final{list(self._final).index(key)}", rows, row, held.dtype)
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
            extras=self.extras_at(rows),
        )

    def extras_at(self, rows: Some) -> Leaves:
        return {name: column[rows] for name, column in self.extras.items()}

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self, rows: Some) -> State:
        held = {f"column.{name}": column[rows] for name, column in self.columns.items()}
        held |= {f"extra.{name}": column[rows] for name, column in self.extras.items()}
        return held | {f"final.{key}": column for key, column in self._final.items()}

    def check_fits(self, state: State) -> None:
        """Raise a `DataError` if a saved state has columns of other names, shapes or types than there are here."""
        saved = {name: (column.shape[1:], column.dtype) for name, column in _group(state, "column.").items()}
        here = {name: (column.shape[1:], column.dtype) for name, column in self.columns.items()} or saved
        for name in saved.keys() | here.keys() if saved else ():
            if saved.get(name) != here.get(name):
                raise DataError(f"{name} of the saved buffer has shape, type {saved.get(name)}, not {here.get(name)}")
        self.fit_extras(_group(state, "extra."))

    def restore(self, state: State, rows: Some) -> None:
        """Put a state that fits back into these rows; rows beside them stay as they are."""
        columns = _group(state, "column.")
        if not self.columns:
            self.columns = {name: np.zeros((self.capacity, *c.shape[1:]), c.dtype) for name, c in columns.items()}
        self._final = _group(state, "final.")
        for name, column in columns.items():
            self.columns[name][rows] = column
        extras = _group(state, "extra.")
        self.extras = {name: self.extras.get(name, _nothing(self.capacity, c)) for name, c in extras.items()}
        for name, column in extras.items():
            self.extras[name][rows] = column


def _nothing(rows: int, like: Array) -> Array:
    """A column in which no row has a value yet."""
    return np.full((rows, *like.shape[1:]), np.nan if like.dtype.kind == "f" else 0, like.dtype)


def _group(state: State, kind: str) -> dict[str, Array]:
    return {key.removeprefix(kind): column for key, column in state.items() if key.startswith(kind)}


@cache
def _obs_key(key: str) -> str:
    return f"obs.{key}" if key else "obs"
