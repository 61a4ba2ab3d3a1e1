"""New steps of one or several environments, checked once at the border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.buffer.batch import Array, Obs
from arb.buffer.dataset import Leaves, leaves, single_precision
from arb.buffer.errors import DataError, refuse_non_finite


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
        "reward": np.asarray(reward, np.float32),
        "terminated": np.asarray(terminated, bool),
    }
    n = len(columns["reward"])
    columns["truncated"] = np.zeros(n, bool) if truncated is None else np.asarray(truncated, bool)
    before, after = leaves(obs), leaves(next_obs)
    if before.keys() != after.keys():
        raise DataError(f"obs has the keys {list(before)} but next_obs {list(after)}")
    for name, column in [*columns.items(), *_labelled("obs", before), *_labelled("next_obs", after)]:
        if column.ndim == 0 or len(column) != n:
            raise DataError(f"{name} has shape {column.shape}, but {n} rewards were given: one row per environment")
        refuse_non_finite(name, column)
    numbers = list(range(n)) if envs is None else [int(env) for env in envs]
    if len(numbers) != n or len(set(numbers)) != n:
        raise DataError(f"envs must name {n} different environments, got {numbers}")
    if valid is not None:
        chosen = np.flatnonzero(np.asarray(valid, bool))
        columns = {name: column[chosen] for name, column in columns.items()}
        before, after = ({key: column[chosen] for key, column in side.items()} for side in (before, after))
        numbers = [numbers[i] for i in chosen]
    return Steps(obs=before, next_obs=after, envs=numbers, **columns)


def _labelled(name: str, columns: Leaves) -> list[tuple[str, Array]]:
    return [(f"{name}[{key!r}]" if key else name, column) for key, column in columns.items()]


def one_row(obs: Any) -> Obs:
    """A single observation with a leading axis of length one."""
    if isinstance(obs, Mapping):
        return {key: np.asarray(column)[None] for key, column in obs.items()}
    return np.asarray(obs)[None]
