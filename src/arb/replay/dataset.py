"""Past experience: one row per step, episode after episode, checked once where it enters.

Two rules say where an episode ends, because the ARB paper's text and its code differ on data that passes through a goal
without stopping:

* `"resets"` (default): an episode ends where the environment was reset: at a time limit, at a discontinuity (the next
  row does not start where this one led, seen only if next observations are given), or at a terminal step, unless the
  data shows that the episode continued. D4RL's AntMaze flags every step near the goal as terminal and walks on.
* `"terminals"`: the rule of the paper's release, in which any terminal flag ends an episode as well; AntMaze then has
  many episodes of a single step.

A column `episode_ids` takes the place of time limits and terminals. A discontinuity ends an episode in any case, so
next observations that were given are never replaced by those of other rows.
"""

import difflib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, check_choice, check_finite
from arb.files import digest, read_json, read_state, write_state, write_text

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.signedinteger[Any]]
Obs = Any
"""An observation (or a stack of them): an array of any shape and dtype, or a dict or tuple of observations."""
Leaves = dict[str, Array]
"""An observation as a flat dict of arrays: a plain array stands under the empty key, `{"a": (x, y)}` under `a//#0` and
`a//#1`."""
Boundaries = Literal["resets", "terminals"]

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations", "episode_ids")
TIMEOUTS = ("timeout", "time_outs", "truncated", "truncateds", "truncation", "truncations")
"""Other names of the column `timeouts`."""
DONES = {"done", "dones"}
DISCONTINUITY = 1e-6
"""Observations further apart than this (Euclidean distance) are not the same; the value of the paper's release."""
LONG = 10_000
"""Rows beyond which a dataset that seems to be a single episode has probably lost its ends."""

_CHUNK = 1 << 16
_FORMAT = "arb dataset 1"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Past experience: one row per step, episode after episode.

    Make one with `from_dict`, which checks everything, or from arrays that are known to be sound.

    >>> data = Dataset.from_dict({"observations": np.zeros((3, 2)), "actions": np.zeros((3, 1)),
    ...                           "rewards": [1.0, 1.0, 5.0], "terminals": [0, 1, 1]})
    >>> data
    Dataset(3 rows, 2 episodes)
    >>> data.lengths, data.episode_returns
    (array([2, 1]), array([2., 5.]))
    """

    observations: Obs
    """An array (rows, ...) or a dict of arrays; floats are float32."""
    actions: Array
    rewards: NDArray[np.float32]
    terminals: Bools
    """Whether the task ended at this row; an episode of AntMaze may continue after it."""
    lengths: NDArray[np.int64]
    """Rows of each episode, in order."""
    final_observations: Obs | None = None
    """Where the last row of each episode led, (episodes, ...); None if that was not recorded."""
    extras: Mapping[str, Array] = field(default_factory=dict)
    """Further columns, one row per step."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the data comes from, as plain values: its environment, its source, the command that made it."""

    def __post_init__(self) -> None:
        final = self.final_observations
        settled = {
            "observations": unwrapped(leaves(self.observations)),
            "actions": single_precision(np.asarray(self.actions)),
            "rewards": np.asarray(self.rewards, np.float32),
            "terminals": np.asarray(self.terminals, bool),
            "lengths": np.asarray(self.lengths, np.int64),
            "final_observations": None if final is None else unwrapped(leaves(final)),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        rows, episodes = len(self.rewards), len(self.lengths)
        for name, column in self._columns().items():
            if len(column) != rows:
                raise DataError(f"{name} of the dataset has {len(column)} rows, but there are {rows} rewards")
        if episodes == 0 or int(np.min(self.lengths)) < 1 or int(np.sum(self.lengths)) != rows:
            raise DataError(f"episode lengths must be positive and add up to {rows} rows, got {self.lengths.sum()}")
        if self.final_observations is not None:
            found = {key: column.shape for key, column in leaves(self.final_observations).items()}
            if found != {key: (episodes, *column.shape[1:]) for key, column in leaves(self.observations).items()}:
                raise DataError("final_observations must be one observation per episode, shaped like the others")

    # ---- made of -------------------------------------------------------------------------------------------------
    @classmethod
    def from_dict(
        cls,
        columns: Mapping[str, Any],
        *,
        boundaries: Boundaries = "resets",
        provenance: Mapping[str, Any] | None = None,
    ) -> Self:
        """Check a dict of arrays with D4RL's keys and find its episodes, or raise a `DataError` of one line.

        Args:
            columns: `observations` (an array, or a dict or tuple of them), `actions`, `rewards` (shape (N,) or (N, 1))
                and `terminals` (bool, or 0 and 1 in any dtype). Optional are `timeouts`, `next_observations`, and
                `episode_ids`, an integer per row that changes where an episode ends. Other columns with one row per
                step become `extras`; what has no row per step is passed over.
            boundaries: where episodes end, see `arb.replay.dataset`.
            provenance: where the data comes from.
        """
        checked = check_columns(columns)
        ends = episode_ends(checked, boundaries)
        if len(checked) > LONG and checked.episode is None and np.count_nonzero(ends) == 1:
            warnings.warn(
                f"the dataset's {len(checked)} rows are taken for a single trajectory, as nothing says where episodes "
                "end: add 'timeouts', 'next_observations' or 'episode_ids' (if all are equal, they confirm it)",
                stacklevel=2,
            )
        return cls.from_columns(checked, ends, provenance)

    @classmethod
    def from_columns(cls, columns: "Columns", ends: Bools, provenance: Mapping[str, Any] | None = None) -> Self:
        """The dataset of checked columns whose episodes end in these rows."""
        last, after = np.flatnonzero(ends), columns.next_obs
        return cls(
            observations=unwrapped(columns.obs),
            actions=columns.action,
            rewards=columns.reward,
            terminals=columns.terminated,
            lengths=np.diff(last, prepend=-1),
            final_observations=None if after is None else unwrapped({key: c[last] for key, c in after.items()}),
            extras=columns.extras,
            provenance=dict(provenance or {}),
        )

    @classmethod
    def concatenate(cls, datasets: Sequence["Dataset"]) -> "Dataset":
        """One dataset after the other; their provenance and final observations are kept where all agree."""
        if not datasets:
            raise DataError("there is no dataset to concatenate")
        parts = [dataset._flat() for dataset in datasets]
        names = [name for name in parts[0] if all(name in part for part in parts)]
        if any(dataset._columns().keys() != datasets[0]._columns().keys() for dataset in datasets):
            raise DataError("datasets that do not have the same columns cannot be joined")
        origins = [dataset.provenance.items() for dataset in datasets]
        common = {name: value for name, value in origins[0] if all((name, value) in other for other in origins)}
        return _from_flat({name: np.concatenate([part[name] for part in parts]) for name in names}, common)

    # ---- what it says --------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"Dataset({len(self):,} rows, {self.num_episodes:,} episode{'s' * (self.num_episodes != 1)})"

    @property
    def num_episodes(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Ints:
        """The first row of every episode."""
        return self.ends - self.lengths + 1

    @cached_property
    def ends(self) -> Ints:
        """The last row of every episode."""
        return np.cumsum(self.lengths, dtype=np.int64) - 1

    @cached_property
    def episode_ids(self) -> Ints:
        """The number of every row's episode: 0, 1, 2, ..."""
        return np.repeat(np.arange(self.num_episodes), self.lengths)

    @cached_property
    def episode_returns(self) -> NDArray[np.float64]:
        """The undiscounted sum of the rewards of every episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.starts)

    @property
    def timeouts(self) -> Bools:
        """Whether the episode was cut off at this row: its last one, and the task had not ended."""
        flags = np.zeros(len(self), bool)
        flags[self.ends] = ~self.terminals[self.ends]
        return flags

    @property
    def next_observations(self) -> Obs:
        """Where every row led; without final observations the last of an episode to itself, see `usable`."""
        final = self.final_observations
        last = {key: c[self.ends] for key, c in leaves(self.observations).items()} if final is None else leaves(final)
        after = {key: np.roll(column, -1, axis=0) for key, column in leaves(self.observations).items()}
        for key, column in after.items():
            column[self.ends] = last[key]
        return unwrapped(after)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything but the provenance: equal for equal experience, whatever file it came in."""
        return digest(_FORMAT, self._flat())

    # ---- parts of it ---------------------------------------------------------------------------------------------
    def select(self, episodes: Ints | Bools | Sequence[int] | slice) -> "Dataset":
        """Some of the episodes: their numbers, a slice, or a mask with one flag per episode."""
        if not isinstance(episodes, slice):
            episodes = np.asarray(episodes)
        try:
            chosen = np.arange(self.num_episodes)[episodes]
        except IndexError:
            raise DataError(f"there are {self.num_episodes} episodes, 0 to {self.num_episodes - 1}") from None
        if len(chosen) == 0:
            raise DataError("a dataset needs at least one episode, and none was selected")
        lengths, starts = self.lengths[chosen], self.starts[chosen]
        rows: Any = slice(int(starts[0]), int(starts[0] + lengths.sum()))
        if (np.diff(chosen) != 1).any():  # not side by side: copies instead of views
            rows = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        final = None if self.final_observations is None else (self.final_observations, chosen)
        return self._taken(rows, lengths, final)

    def _taken(self, rows: Any, lengths: Ints, final: tuple[Obs, Any] | None) -> "Dataset":
        """Some rows, as episodes of these lengths, with some of the final observations."""
        columns = {name: column[rows] for name, column in self._columns().items()}
        if final is not None:
            columns |= {_key("final", key): column[final[1]] for key, column in leaves(final[0]).items()}
        return _from_flat(columns | {"lengths": lengths}, self.provenance)

    def episodes(self) -> "Episodes":
        """Every episode as a dataset of its own; views, not copies."""
        return Episodes(self)

    def split_at_terminals(self) -> "Dataset":
        """The same rows with an episode ending at every terminal, as in the paper's release (`boundaries`)."""
        ends = self.terminals.copy()
        ends[self.ends] = True
        last = np.flatnonzero(ends)
        final = None if self.final_observations is None else (self.next_observations, last)
        return self._taken(slice(None), np.diff(last, prepend=-1), final)

    def usable(self) -> "Dataset":
        """Without the last rows of cut-off episodes if where they led was not recorded: they cannot be bootstrapped.

        The observation of a dropped row is then the final one of its episode.
        """
        if self.final_observations is not None:
            return self
        dropped = self.timeouts
        lengths = self.lengths - dropped[self.ends]
        if not lengths.any():
            raise DataError("no row can be used: every episode is a single step, and where it led was not recorded")
        return self._taken(~dropped, lengths[lengths > 0], (self.observations, self.ends[lengths > 0]))

    # ---- other forms ---------------------------------------------------------------------------------------------
    def to_dict(self) -> dict[str, Any]:
        """D4RL's keys to arrays, from which `from_dict` makes the same dataset."""
        names = [*REQUIRED, "timeouts", "episode_ids"]
        if self.final_observations is not None:
            names.append("next_observations")
        return {**{name: getattr(self, name) for name in names}, **self.extras}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file."""
        write_state(path, {"format": _FORMAT, "provenance": dict(self.provenance)}, {"dataset": self._flat()})

    @classmethod
    def load(cls, path: str | os.PathLike[str], most: float = math.inf) -> "Dataset":
        """Read what `save` wrote, if it has at most so many bytes."""
        header, parts = read_state(path, most)
        if header.get("format") != _FORMAT:
            raise DataError(f"{path} is not a saved dataset")
        try:
            return _from_flat(parts["dataset"], header["provenance"])
        except (KeyError, TypeError, ValueError) as problem:
            raise DataError(f"{path} is not a saved dataset ({problem})") from None

    def write_files(self, folder: Path) -> None:
        """Write every column to a file of its own, for `mapped`."""
        columns = self._flat()
        for place, column in enumerate(columns.values()):
            np.save(folder / f"{place}.npy", column)
        write_text(folder / "columns.json", json.dumps([list(columns), dict(self.provenance)]))

    @classmethod
    def mapped(cls, folder: Path) -> "Dataset":
        """What `write_files` wrote, read only where it is looked at: processes that map the same files share memory."""
        names, provenance = read_json(folder / "columns.json")
        columns = {name: np.load(folder / f"{place}.npy", mmap_mode="r") for place, name in enumerate(names)}
        return _from_flat(columns, provenance)

    def _columns(self) -> dict[str, Array]:
        """Every column with one row per step, by a name of its own."""
        return {
            **{_key("observations", key): column for key, column in leaves(self.observations).items()},
            "actions": self.actions,
            "rewards": self.rewards,
            "terminals": self.terminals,
            **{f"extras/{name}": column for name, column in self.extras.items()},
        }

    def _flat(self) -> dict[str, Array]:
        final = {} if self.final_observations is None else leaves(self.final_observations)
        named = {_key("final", key): column for key, column in final.items()}
        return {**self._columns(), **named, "lengths": self.lengths}


class Episodes(Sequence[Dataset]):
    """The episodes of a dataset, as a sequence of datasets."""

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return self.dataset.num_episodes

    def __getitem__(self, place: Any) -> Any:
        chosen = range(len(self))[place]
        return self.dataset.select([chosen]) if isinstance(chosen, int) else [self.dataset.select([i]) for i in chosen]


def _key(name: str, key: str) -> str:
    return f"{name}/{key}" if key else name


def _from_flat(columns: Mapping[str, Array], provenance: Mapping[str, Any]) -> Dataset:
    def part(name: str) -> Leaves:
        return {key[len(name) + 1 :]: c for key, c in columns.items() if key == name or key.startswith(f"{name}/")}

    obs, final = unwrapped(part("observations")), unwrapped(part("final")) if part("final") else None
    plain = {name: columns[name] for name in ("actions", "rewards", "terminals", "lengths")}
    return Dataset(obs, **plain, final_observations=final, extras=part("extras"), provenance=dict(provenance))


def as_dataset(data: "Dataset | Mapping[str, Any]", boundaries: Boundaries = "resets") -> Dataset:
    """A dataset as it is, a dict of columns as one; `"terminals"` splits both at every terminal."""
    if isinstance(data, Dataset):
        check_choice("boundaries", boundaries, ("resets", "terminals"))
        return data.split_at_terminals() if boundaries == "terminals" else data
    return Dataset.from_dict(data, boundaries=boundaries)


def keep_best(transitions: int = 50_000) -> Callable[[Dataset | Mapping[str, Any]], Dataset]:
    """A filter that keeps the episodes with the highest return until they hold more than `transitions` rows (Top-N).

    The return is the plain sum of the rewards as they are in the dataset, so filter before you scale or shift them.

    >>> best = keep_best(1)({"observations": np.zeros((3, 1)), "actions": np.zeros((3, 1)),
    ...                      "rewards": np.array([1.0, 5.0, 1.0]), "terminals": np.array([1, 0, 1])})
    >>> best.rewards, best.lengths
    (array([5., 1.], dtype=float32), array([2]))
    """
    if transitions < 1:
        raise DataError(f"keep_best needs at least 1 transition, got {transitions}")

    def select(dataset: Dataset | Mapping[str, Any]) -> Dataset:
        dataset = as_dataset(dataset)
        order = np.argsort(-dataset.episode_returns, kind="stable")
        before = np.cumsum(dataset.lengths[order]) - dataset.lengths[order]
        return dataset.select(np.sort(order[before <= transitions]))

    return select


# ---- columns before their episodes are known -------------------------------------------------------------------------
@dataclass(frozen=True)
class Columns:
    """Checked columns of which it is not yet known where episodes end."""

    obs: Leaves
    action: Array
    reward: NDArray[np.float32]
    terminated: Bools
    truncated: Bools | None
    next_obs: Leaves | None
    episode: Array | None
    extras: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.reward)


def leaves(obs: Any) -> Leaves:
    """An observation as a flat dict in which all floats are float32."""
    return {key: single_precision(np.asarray(part)) for key, part in _flattened(obs).items()}


def _flattened(obs: Any) -> dict[str, Any]:
    parts = _branches(obs)
    if parts is None:
        return {"": obs}
    return {
        f"{name}//{key}" if key else name: column for name, part in parts for key, column in _flattened(part).items()
    }


def _branches(obs: Any) -> list[tuple[str, Any]] | None:
    """The parts of a dict or tuple; a tuple of numbers is an array."""
    if type(obs) is np.ndarray:
        return None
    if isinstance(obs, Mapping):
        wrong = [key for key in obs if not isinstance(key, str) or "//" in key or key.startswith("#")]
        if wrong:
            raise DataError(f"an observation's key must be text without // and no # at its start, got {wrong[0]!r}")
        return sorted(obs.items())
    if isinstance(obs, tuple) and any(getattr(part, "ndim", 0) or _branches(part) is not None for part in obs):
        return [(f"#{place}", part) for place, part in enumerate(obs)]
    return None


def unwrapped(columns: Leaves) -> Obs:
    """The inverse of `leaves`.

    >>> unwrapped({"a//#0": 1, "a//#1": 2, "b": 3})
    {'a': (1, 2), 'b': 3}
    """
    if not any("//" in key or key.startswith("#") for key in columns):
        return columns.get("", columns)
    parts: dict[str, Any] = {}
    for key, column in columns.items():
        name, _, rest = key.partition("//")
        parts.setdefault(name, {})[rest] = column
    made = {name: unwrapped(inner) for name, inner in parts.items()}
    return tuple(made[f"#{place}"] for place in range(len(made))) if "#0" in made else made


def map_leaves(f: Callable[[Any], Any], value: Any) -> Any:
    """f of an array, or of every array in dicts and tuples of them."""
    if isinstance(value, dict):
        return {key: map_leaves(f, part) for key, part in value.items()}
    return tuple(map_leaves(f, part) for part in value) if isinstance(value, tuple) else f(value)


def single_precision(column: Array) -> Array:
    """Floats become float32, which is what networks read and wide enough for whatever comes later; the rest stays."""
    if column.dtype.kind != "f" or column.dtype == np.float32:
        return column
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return column.astype(np.float32)


def check_columns(columns: Mapping[str, Any]) -> Columns:
    """Read a dict of arrays with D4RL's keys, see `Dataset.from_dict`."""
    if not isinstance(columns, Mapping):
        raise DataError(f"a dataset is a dict of arrays with {', '.join(REQUIRED)}; got {type(columns).__name__}")
    missing = next((name for name in REQUIRED if name not in columns), None)
    if missing:
        present = [str(key) for key in columns]
        near = difflib.get_close_matches(missing, set(present) - {*REQUIRED, *OPTIONAL}, n=1)
        hint = f" (rename {near[0]!r}?)" if near else ""
        if missing == "terminals" and not near and DONES & set(present):
            hint = " ('dones' may mean it, or also time limits, which belong in 'timeouts')"
        needed = f"{', '.join(REQUIRED)} and has {', '.join(present)}"
        raise DataError(f"the dataset has no {missing!r}{hint}; it needs {needed}")
    given = {name: value for name, value in columns.items() if value is not None}
    obs = _parts("observations", given["observations"])
    rows = len(next(iter(obs.values())))
    if rows == 0:
        raise DataError("dataset['observations'] has no rows: there is nothing to load")
    next_obs = None
    if "next_observations" in given:
        after = _parts("next_observations", given["next_observations"])
        if {k: v.shape for k, v in after.items()} != {k: v.shape for k, v in obs.items()}:
            raise DataError("dataset['next_observations'] must have the keys and shapes of dataset['observations']")
        next_obs = {key: cast_like(_key("next_obs", key), value, obs[key]) for key, value in after.items()}
    rewards = one_per_row("dataset['rewards']", _column("dataset['rewards']", given["rewards"], rows), "row")
    episode = None
    if "episode_ids" in given:
        episode = _column("dataset['episode_ids']", given["episode_ids"], rows)
        if episode.dtype.kind not in "iu" or episode.ndim != 1:
            raise DataError(f"dataset['episode_ids'] must be one integer per row, got {episode.dtype} {episode.shape}")
    terminated = _flags(given, "terminals", rows)
    return Columns(
        obs=obs,
        action=_column("dataset['actions']", given["actions"], rows),
        reward=rewards.astype(np.float32, copy=False),
        terminated=terminated,
        truncated=_time_limits(given, terminated, rows),
        next_obs=next_obs,
        episode=episode,
        extras=_extras(given, rows),
    )


def _time_limits(given: Mapping[str, Any], terminated: Bools, rows: int) -> Bools | None:
    """The column `timeouts` under any of its names, or what `dones` say beyond the terminals."""
    names = [name for name in ("timeouts", *TIMEOUTS) if name in given]
    if len(names) > 1:
        raise DataError(f"dataset['{names[0]}'] and dataset['{names[1]}'] mean the same: give one of them")
    truncated = _flags(given, names[0], rows) if names else None
    for name in DONES & given.keys():
        done = _flags(given, name, rows)
        if (terminated & ~done).any() or (truncated is not None and ((terminated | truncated) != done).any()):
            raise DataError(f"dataset['{name}'] contradicts 'terminals' and 'timeouts', which suffice: leave it out")
        truncated = done & ~terminated if truncated is None else truncated
    return truncated


def _extras(given: Mapping[str, Any], rows: int) -> dict[str, Array]:
    found: dict[str, Any] = {}
    for name in (name for name in given if name not in {*REQUIRED, *OPTIONAL, *TIMEOUTS, *DONES}):
        near = difflib.get_close_matches(str(name), set(OPTIONAL) - given.keys(), n=1, cutoff=0.85)
        if near or name in ("next_obs", "next_states"):
            near = near or ["next_observations"]
            raise DataError(f"dataset[{name!r}] is not known: rename it {near[0]!r}, or drop it")
        parts = given[name].items() if isinstance(given[name], Mapping) else [("", given[name])]
        found |= {_key(str(name), key): np.asarray(part) for key, part in parts if not isinstance(part, Mapping)}
    whole = {name: c for name, c in found.items() if c.ndim and len(c) == rows and not c.dtype.hasobject}
    return {name: single_precision(column) for name, column in whole.items()}


def _parts(name: str, obs: Any) -> Leaves:
    """Checked observations, the parts of which all have as many rows."""
    if isinstance(obs, Mapping) and not obs:
        raise DataError("dataset['observations'] is a dict without arrays")
    found: Leaves = {}
    rows = None
    for key, values in _flattened(obs).items():
        found[key] = _column(f"dataset['{name}']" + (f"['{key}']" if key else ""), values, rows)
        rows = len(found[key])
    return found


def _column(name: str, values: Any, rows: int | None) -> Array:
    """A column of finite numbers, with this many rows if that is known."""
    column = np.asarray(values)
    if column.ndim == 0 or column.dtype == object:
        raise DataError(f"{name} must be an array with one row per step")
    if rows is not None and len(column) != rows:
        raise DataError(f"{name} has {len(column)} rows but dataset['observations'] has {rows}: one per step is needed")
    if column.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers, got dtype {column.dtype}")
    column = single_precision(column)
    check_finite(name, column)
    return column


def _flags(given: Mapping[str, Any], name: str, rows: int) -> Bools:
    return flags(f"dataset['{name}']", _column(f"dataset['{name}']", given[name], rows), "row")


def flags(name: str, values: Any, whose: str, hint: str = "") -> Bools:
    """Flags as bool; numbers must be 0 and 1, and anything else is a mistake."""
    column = one_per_row(name, np.asarray(values), whose)
    if column.dtype.kind == "b":
        return column
    fits = (column == 0) | (column == 1) if column.dtype.kind in "iuf" else np.zeros(len(column), bool)
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(f"{name} must be True or False, got {column.tolist()[row]!r} in row {row}{hint}")
    return column.astype(bool)


def one_per_row(name: str, column: Array, whose: str) -> Array:
    """A column of shape (N,) or (N, 1) as one of shape (N,)."""
    if column.ndim == 1:
        return column
    if column.ndim == 0 or column.size != len(column):
        raise DataError(f"{name} must be one value per {whose}, got shape {column.shape}")
    return column.reshape(-1)


def cast_like(name: str, column: Array, held: Array) -> Array:
    """A column in the dtype of the one that is held; refused if it has another shape or does not fit."""
    if column.shape[1:] != held.shape[1:]:
        raise DataError(f"{name} has shape {column.shape[1:]} per step, but the buffer holds {held.shape[1:]}")
    if column.dtype is held.dtype:
        return column
    if not np.can_cast(column.dtype, held.dtype, "same_kind"):
        raise DataError(
            f"{name} has dtype {column.dtype}, which does not fit the {held.dtype} that came first: convert one of them"
        )
    cast = column.astype(held.dtype, copy=False)
    if not (np.can_cast(column.dtype, held.dtype, "safe") or np.array_equal(cast, column)):
        problem = f"{name} has values of dtype {column.dtype} that do not fit the {held.dtype} that came first"
        raise DataError(f"{problem}: convert the data that comes first to {column.dtype}")
    return cast


# ---- where episodes end ----------------------------------------------------------------------------------------------
def differs(a: Leaves, b: Leaves, tolerance: float = DISCONTINUITY) -> Bools:
    """Per row, whether two observations differ: floats by Euclidean distance, anything else at all."""
    apart = np.zeros(len(next(iter(a.values()))), bool)
    for key in a:
        left, right = a[key].reshape(len(apart), -1), b[key].reshape(len(apart), -1)
        unequal = left != right
        if left.dtype.kind != "f":
            apart |= unequal.any(1)
        elif np.count_nonzero(unequal):  # equality is the usual case, and quicker than distances
            with np.errstate(over="ignore"):
                gap = left - right
                apart |= np.einsum("ij,ij->i", gap, gap) > tolerance**2
    return apart


def episode_ends(data: Columns, boundaries: Boundaries = "resets") -> Bools:
    """Per row, whether it is the last of its episode."""
    check_choice("boundaries", boundaries, ("resets", "terminals"))
    ends = discontinuities(data)
    ends[-1] = True
    if data.episode is not None:
        ends[:-1] |= data.episode[1:] != data.episode[:-1]
    else:
        if data.truncated is not None:
            ends |= data.truncated
        ends |= data.terminated & ~_continues(data, ends)
    return ends | data.terminated if boundaries == "terminals" else ends


def discontinuities(data: Columns) -> Bools:
    """Per row, whether the next row does not start where this one led to; never, where that is unknown."""
    found = np.zeros(len(data), bool)
    after = data.next_obs or {}
    for start in range(0, len(data) - 1, _CHUNK) if after else ():
        stop = min(start + _CHUNK, len(data) - 1)
        led_to = {key: column[start:stop] for key, column in after.items()}
        begins = {key: column[start + 1 : stop + 1] for key, column in data.obs.items()}
        found[start:stop] = differs(led_to, begins)
    return found


def _continues(data: Columns, known_ends: Bools) -> Bools:
    """Per terminal row, whether the data shows that no reset followed.

    Next observations settle it in a file as recorded (it has `timeouts`); D4RL's `qlearning_dataset` puts the following
    row there in any case. Else look at the step to the next row: if no coordinate moves further than in ordinary steps,
    it was one. That test is trusted only if it recognises the resets that are known from elsewhere.
    """
    terminal = np.flatnonzero(data.terminated[:-1])
    verdict = np.zeros(len(data), bool)
    if data.next_obs is not None and data.truncated is not None:
        verdict[terminal] = ~known_ends[terminal]
        return verdict
    known = np.flatnonzero(known_ends[:-1])
    ordinary = np.flatnonzero(~known_ends[:-1] & ~data.terminated[:-1])
    floats = [column for column in data.obs.values() if column.dtype.kind == "f"]
    if 0 in (len(terminal), len(known), len(ordinary)) or len(floats) < len(data.obs):
        return verdict

    def step(column: Array, rows: Ints) -> Array:
        return np.asarray(np.abs(column[rows + 1] - column[rows]).reshape(len(rows), -1))

    usual = [step(column, ordinary).max(0) for column in floats]

    def looks_ordinary(rows: Ints) -> Bools:
        calm = [(step(column, rows) <= limit).all(1) for column, limit in zip(floats, usual, strict=True)]
        return np.asarray(np.logical_and.reduce(calm))

    if looks_ordinary(known).mean() < 0.1:
        verdict[terminal] = looks_ordinary(terminal)
    return verdict


# ---- what they return ------------------------------------------------------------------------------------------------
def return_to_go(
    reward: Array, stop: Bools, gamma: float, *, failure_reward: float | None = None
) -> NDArray[np.float64]:
    """Discounted sum of rewards from each step to the end of its episode.

    `stop[i]` says that nothing after row i counts for it: the task ended there, or the episode was cut off; its return
    is then what was seen. `failure_reward` is for sparse rewards, where a short episode that was cut off would look
    better than it is: one in which *every* reward has that value is taken to fail forever, with a return of
    failure_reward / (1 - gamma) (the rule of Cal-QL's authors).

    >>> return_to_go(np.array([1.0, 1.0, 1.0, 5.0]), np.array([False, False, True, True]), gamma=0.5)
    array([1.75, 1.5 , 1.  , 5.  ])
    """
    total = np.asarray(reward, np.float64).copy()
    factor = np.where(stop, 0.0, gamma)
    factor[-1:] = 0.0
    distance = 1  # G[i] = r[i] + gamma * G[i + 1], composed with itself over distances 1, 2, 4, ...
    while distance < len(total) and factor.any():
        total[:-distance] += factor[:-distance] * total[distance:]
        factor[:-distance] *= factor[distance:]
        distance *= 2
    if failure_reward is not None:
        if gamma >= 1.0:
            raise DataError("failure_reward needs gamma < 1: failing forever has no finite return otherwise")
        episode = np.concatenate([[0], np.cumsum(stop[:-1])]) if len(total) else np.zeros(0, np.int64)
        succeeded = np.bincount(episode, weights=np.asarray(reward) != failure_reward) > 0
        total[~succeeded[episode]] = failure_reward / (1.0 - gamma)
    return total
