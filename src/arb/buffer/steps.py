"""New steps of one or several environments, checked once at the border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.buffer.batch import Array, Obs
from arb.buffer.dataset import Leaves, leaves, single_precision
from arb.errors import DataError, refuse_non_finite


class Steps(NamedTuple):
    """Checked steps of several environments, one row each."""

    obs: Leaves
    action: Array
    reward: NDArray[np.float32]
    next_obs: Leaves
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    envs: list[int]


def check_steps(
    obs: Obs,
    action: ArrayLike,
    reward: ArrayLike,
    next_obs: Obs,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    envs: Sequence[int] | None,
    valid: ArrayLike | None,
) -> Steps:
    """Bring the arguments of `ReplayBuffer.add_batch` into shape, or say in one line what is wrong with them."""
    columns: dict[str, Any] = {
        "action": single_precision(np.asarray(action)),
        "reward": _rewards(reward),
        "terminated": _flags("terminated", terminated),
    }
    n = len(columns["reward"])
    columns["truncated"] = np.zeros(n, bool) if truncated is None else _flags("truncated", truncated)
    before, after = leaves(obs), leaves(next_obs)
    if before.keys() != after.keys():
        raise DataError(f"obs has the keys {list(before)} but next_obs {list(after)}")
    for name, column in [*columns.items(), *_labelled("obs", before), *_labelled("next_obs", after)]:
        if column.ndim == 0 or len(column) != n:
            raise DataError(f"{name} has shape {column.shape}, but {n} rewards were given: one row per environment")
        if column.dtype.kind in "OUS":
            raise DataError(f"{name} must hold numbers, got dtype {column.dtype}")
        refuse_non_finite(name, column)
    numbers = list(range(n)) if envs is None else [int(env) for env in envs]
    if len(numbers) != n or len(set(numbers)) != n:
        raise DataError(f"envs must name {n} different environments, got {numbers}")
    if valid is not None:
        wanted = _flags("valid", valid)
        if len(wanted) != n:
            raise DataError(f"valid has {len(wanted)} rows, but {n} rewards were given: one per environment")
        chosen = np.flatnonzero(wanted)
        columns = {name: column[chosen] for name, column in columns.items()}
        before, after = ({key: column[chosen] for key, column in side.items()} for side in (before, after))
        numbers = [numbers[i] for i in chosen]
    return Steps(obs=before, next_obs=after, envs=numbers, **columns)


def _rewards(reward: ArrayLike) -> NDArray[np.float32]:
    try:
        column = np.asarray(reward, np.float32)
    except (TypeError, ValueError) as wrong:
        raise DataError(f"reward must be one number per environment: {wrong}") from None
    return _one_per_row("reward", column)


def _flags(name: str, values: ArrayLike) -> NDArray[np.bool_]:
    """Flags as bool; numbers must be 0 and 1, and anything else is a mistake, such as an info in another's place."""
    column = _one_per_row(name, np.asarray(values))
    if column.dtype == np.bool_:
        return column
    fits = np.isin(column, (0, 1)) if column.dtype.kind in "iuf" else np.zeros(len(column), bool)
    if not fits.all():
        raise DataError(
            f"{name} must be True or False, got {column.tolist()[np.argmin(fits)]!r}: an environment's step returns "
            "obs, reward, terminated, truncated, info, in this order"
        )
    return column.astype(bool)


def _one_per_row(name: str, column: Array) -> Array:
    if column.ndim == 1:
        return column
    if column.ndim == 0 or column.size != len(column):
        raise DataError(f"{name} must be one value per environment, got shape {column.shape}")
    return column.reshape(-1)


def _labelled(name: str, columns: Leaves) -> list[tuple[str, Array]]:
    return [(f"{name}[{key!r}]" if key else name, column) for key, column in columns.items()]


def one_row(obs: Any) -> Obs:
    """A single observation with a leading axis of length one."""
    if isinstance(obs, Mapping):
        return {key: np.asarray(column)[None] for key, column in obs.items()}
    return np.asarray(obs)[None]
