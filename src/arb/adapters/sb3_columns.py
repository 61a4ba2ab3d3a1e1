"""The columns of Stable-Baselines3's replay buffers, row by row.

They have the shape (positions, environments, ...), or are dicts of such arrays. Row r of ours is position
r // environments, environment r % environments. Nothing here needs the host to be imported.
"""

import copy
from typing import Any

import numpy as np

from arb.errors import DataError, check_bounds
from arb.replay.dataset import Array, Dataset, Ints, Leaves, leaves, unwrapped

_COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def named(columns: Any) -> Leaves:
    """A column as a dict of arrays; a plain array stands under the empty key."""
    return columns if isinstance(columns, dict) else {"": columns}


def by_row(column: Array) -> Array:
    """A column with one row per step: a view, as the host's columns are contiguous."""
    return column.reshape(-1, *column.shape[2:])


def observed(buffer: Any, rows: Ints | slice) -> tuple[Any, Array]:
    """The observations and actions in these rows, as they are stored."""
    obs = {key: by_row(column)[rows] for key, column in named(buffer.observations).items()}
    return unwrapped(obs), by_row(buffer.actions)[rows]


def one_environment_wide(buffer: Any) -> Any:
    """The same buffer, on the same memory, with one row per position.

    The host draws the environment of each sample by chance; with a single one it has no choice.
    """
    if buffer.n_envs == 1:
        return buffer
    narrow = copy.copy(buffer)
    narrow.n_envs = 1
    for name in _COLUMNS:
        column = {key: by_row(column)[:, None] for key, column in named(getattr(buffer, name)).items()}
        setattr(narrow, name, unwrapped(column))
    return narrow


def refuse_misfit(buffer: Any, data: Dataset) -> None:
    """Raise a `DataError` that says in one line what of a dataset does not fit the spaces of a buffer."""
    held, space, obs = named(buffer.observations), buffer.action_space, leaves(data.observations)
    found = {key: column.shape[1:] or (1,) for key, column in obs.items()}
    wanted = {key: column.shape[2:] for key, column in held.items()}
    if found != wanted:
        raise DataError(
            f"dataset['observations'] has shape {found.get('', found)} per step, but the environment's observations "
            f"have {wanted.get('', wanted)}"
        )
    if (data.actions.shape[1:] or (1,)) not in (space.shape, (buffer.action_dim,)):
        raise DataError(
            f"dataset['actions'] has shape {data.actions.shape[1:]} per step, but the environment's actions have "
            f"{space.shape}"
        )
    for column, ours in [*((obs[key], held[key]) for key in held), (data.actions, buffer.actions)]:
        if not np.can_cast(column.dtype, ours.dtype, "same_kind"):
            raise DataError(f"the dataset holds {column.dtype} where the environment has {ours.dtype}: convert it")
    low, high = (space.low, space.high) if hasattr(space, "low") else (space.start, space.start + space.n - 1)
    check_bounds("dataset['actions']", data.actions.reshape(len(data), *space.shape), low, high)


def write(buffer: Any, past: Dataset, places: Ints) -> None:
    """Fill as many rows as there are places, in the host's convention.

    Its actions lie in [-1, 1]; its `dones` are all ends of episodes, of which `timeouts` are taken back if it handles
    them.
    """
    over = past.terminals.copy()
    over[past.ends] = True
    columns = {
        "observations": past.observations,
        "next_observations": past.next_observations,
        "actions": _on_host_scale(buffer.action_space, past.actions.reshape(len(over), buffer.action_dim)),
        "rewards": past.rewards,
        "dones": over,
        "timeouts": over & ~past.terminals & buffer.handle_timeout_termination,
    }
    for name, values in columns.items():
        given = named(values)
        for key, column in named(getattr(buffer, name)).items():
            by_row(column)[places] = given[key][: len(places)].reshape(len(places), *column.shape[2:])


def _on_host_scale(space: Any, action: Array) -> Array:
    if not hasattr(space, "low"):
        return action
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    return np.asarray(2.0 * (action - low) / (high - low) - 1.0)
