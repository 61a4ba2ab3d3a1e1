"""Past experience as arrays: what a dict with D4RL's keys must look like, checked once at the border."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, refuse_non_finite

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations", "episode_ids")

Array = NDArray[Any]
Obs = Array | dict[str, Array]
"""An observation (or a stack of them): one array of any shape and dtype, or a flat dict of arrays."""
Leaves = dict[str, Array]
"""An observation as a flat dict of arrays; a plain array stands under the empty key."""


@dataclass(frozen=True)
class Recorded:
    """A checked dataset: one row per step, in the order in which the steps were taken."""

    obs: Leaves
    action: Array
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_] | None
    next_obs: Leaves | None
    episode: Array | None

    def __len__(self) -> int:
        return len(self.reward)


def leaves(obs: Any) -> Leaves:
    """An observation, array or dict of arrays, as a flat dict in which all floats are float32."""
    if type(obs) is not np.ndarray and isinstance(obs, Mapping):
        return {key: single_precision(np.asarray(value)) for key, value in sorted(obs.items())}
    return {"": single_precision(np.asarray(obs))}


def unwrapped(columns: Leaves) -> Obs:
    """The inverse of `leaves`: a plain array where there is only the unnamed one."""
    return columns.get("", columns)


def single_precision(column: Array) -> Array:
    """Floats become float32, which is what networks read and wide enough for whatever comes later; the rest stays."""
    if column.dtype.kind != "f" or column.dtype == np.float32:
        return column
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return column.astype(np.float32)


def check_dataset(dataset: Mapping[str, Any]) -> Recorded:
    """Read a dict of arrays with D4RL's keys, or raise a `DataError` that says in one line what is wrong.

    Required are `observations` (an array, or a dict of arrays), `actions`, `rewards` (shape (N,) or (N, 1)) and
    `terminals` (bool, or 0 and 1 in any dtype). Optional are `timeouts`, `next_observations`, and `episode_ids`, an
    integer per row that settles where trajectories end. Other keys (`infos/...`) are passed over.
    """
    _refuse_missing_keys(dataset)
    obs = {key: _column("observations", key, value) for key, value in _items(dataset["observations"])}
    rows = len(next(iter(obs.values())))
    if rows == 0:
        raise DataError("dataset['observations'] has no rows: there is nothing to load")

    def column(name: str) -> Array:
        values = np.asarray(dataset[name])
        _refuse_other_length(name, values, rows)
        return values

    next_obs = None
    if dataset.get("next_observations") is not None:
        next_obs = {key: _column("next_observations", key, v) for key, v in _items(dataset["next_observations"])}
        if {k: v.shape for k, v in next_obs.items()} != {k: v.shape for k, v in obs.items()}:
            raise DataError("dataset['next_observations'] must have the keys and shapes of dataset['observations']")
    for key, values in obs.items():
        _refuse_other_length(_named("observations", key), values, rows)
    action = single_precision(column("actions"))
    refuse_non_finite("dataset['actions']", action)
    given = {name: dataset.get(name) is not None for name in OPTIONAL}
    return Recorded(
        obs=obs,
        action=action,
        reward=_rewards(column("rewards")),
        terminated=flags("dataset['terminals']", column("terminals"), "row"),
        truncated=flags("dataset['timeouts']", column("timeouts"), "row") if given["timeouts"] else None,
        next_obs=next_obs,
        episode=_integers("episode_ids", column("episode_ids")) if given["episode_ids"] else None,
    )


def _refuse_missing_keys(dataset: Mapping[str, Any]) -> None:
    if not isinstance(dataset, Mapping):
        raise DataError(
            f"a dataset is a dict of arrays with the keys {', '.join(REQUIRED)}; got {type(dataset).__name__}"
        )
    missing = [name for name in REQUIRED if name not in dataset]
    if missing:
        present = [str(key) for key in dataset]
        unknown = [key for key in present if key not in REQUIRED + OPTIONAL]
        near = difflib.get_close_matches(missing[0], unknown, n=1)
        hint = f" (rename {near[0]!r}?)" if near else ""
        raise DataError(
            f"the dataset has no {missing[0]!r}{hint}; it needs {', '.join(REQUIRED)} and has {', '.join(present)}"
        )


def _items(obs: Any) -> list[tuple[str, Any]]:
    if not isinstance(obs, Mapping):
        return [("", obs)]
    if not obs:
        raise DataError("dataset['observations'] is a dict without arrays")
    return sorted(obs.items())


def _named(name: str, key: str) -> str:
    return f"{name}']['{key}" if key else name


def _column(name: str, key: str, values: Any) -> Array:
    column = np.asarray(values)
    if column.ndim == 0 or column.dtype == object:
        raise DataError(f"dataset['{_named(name, key)}'] must be an array with one row per step")
    column = single_precision(column)
    refuse_non_finite(f"dataset['{_named(name, key)}']", column)
    return column


def _refuse_other_length(name: str, column: Array, rows: int) -> None:
    if column.ndim == 0 or len(column) != rows:
        found = "no" if column.ndim == 0 else len(column)
        raise DataError(
            f"dataset['{name}'] has {found} rows but dataset['observations'] has {rows}: "
            "every column needs one row per step"
        )


def _rewards(column: Array) -> NDArray[np.float32]:
    column = one_per_row("dataset['rewards']", column, "row")
    if column.dtype.kind not in "biuf":
        raise DataError(f"dataset['rewards'] must be numbers, got dtype {column.dtype}")
    column = column.astype(np.float32, copy=False)
    refuse_non_finite("dataset['rewards']", column)
    return column


def flags(name: str, values: Any, whose: str, hint: str = "") -> NDArray[np.bool_]:
    """Flags as bool; numbers must be 0 and 1, and anything else is a mistake."""
    column = one_per_row(name, np.asarray(values), whose)
    if column.dtype == np.bool_:
        return column
    fits = (column == 0) | (column == 1) if column.dtype.kind in "iuf" else np.zeros(len(column), bool)
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(f"{name} must be True or False, got {column.tolist()[row]!r} in row {row}{hint}")
    return column.astype(bool)


def one_per_row(name: str, column: Array, whose: str) -> Array:
    """A column of shape (N,) or (N, 1) as one of shape (N,)."""
    if column.ndim == 0 or column.size != len(column):
        raise DataError(f"{name} must be one value per {whose}, got shape {column.shape}")
    return column.reshape(-1)


def _integers(name: str, column: Array) -> Array:
    if not np.issubdtype(column.dtype, np.integer) or column.ndim != 1:
        raise DataError(f"dataset['{name}'] must be one integer per row, got {column.dtype} of shape {column.shape}")
    return column
