"""What is in a row: the columns of a ring, in which no observation is stored twice.

The observation after a step is the next row's observation, except at the end of a trajectory; there it is kept once
per trajectory, beside the ring. An open trajectory keeps the observation it has reached in the same place, so nothing
special happens to its newest step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array, Batch
from arb.buffer.dataset import Leaves, unwrapped
from arb.buffer.ledger import Ints, Successors
from arb.errors import DataError

Rows = Ints | slice


class Storage:
    """Columns for `capacity` steps, allocated when the first step shows their shapes."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.columns: dict[str, Array] = {}
        self._final: Leaves = {}

    @property
    def nbytes(self) -> int:
        """Bytes allocated for columns and final observations."""
        return sum(c.nbytes for c in self.columns.values()) + sum(f.nbytes for f in self._final.values())

    def fit(self, obs: Leaves, action: Array, next_obs: Leaves | None = None) -> None:
        """Allocate columns like these arrays, or check that these arrays fit the columns there are."""
        given = {**_columns_of(obs), "action": action}
        held = self.columns or given
        if self.columns and obs.keys() != self._final.keys():
            raise DataError(f"observations have the keys {list(obs)}, but the buffer holds {list(self._final)}")
        for name, column in given.items():
            _refuse_misfit(name, column, held[name])
        for key, column in (next_obs or {}).items():
            _refuse_misfit(f"next_{_obs_key(key)}", column, held[_obs_key(key)])
        if not self.columns:
            for name, column in given.items():
                self.columns[name] = np.zeros((self.capacity, *column.shape[1:]), column.dtype)
            self.columns["reward"] = np.zeros(self.capacity, np.float32)
            self.columns["terminated"] = np.zeros(self.capacity, bool)
            self.columns["return_to_go"] = np.zeros(self.capacity, np.float32)
            self._final = {key: np.zeros((0, *column.shape[1:]), column.dtype) for key, column in obs.items()}

    def write(self, rows: Ints, obs: Leaves, columns: dict[str, Array]) -> None:
        """Fill these rows, which are consecutive in the ring."""
        split = min(self.capacity - int(rows[0]), len(rows)) if len(rows) else 0
        for name, values in {**_columns_of(obs), **columns}.items():
            held = self.columns[name]
            held[rows[0] : rows[0] + split] = values[:split]
            held[: len(rows) - split] = values[split:]

    def write_final(self, runs: Ints, obs: Leaves) -> None:
        """Keep the observation that follows the newest step of each run."""
        needed = int(runs.max(initial=-1)) + 1
        for key, column in obs.items():
            held = self._final[key]
            if len(held) < needed:
                grown = np.zeros((max(needed, len(held) * 5 // 4), *held.shape[1:]), held.dtype)
                grown[: len(held)] = held
                self._final[key] = held = grown
            held[runs] = column

    def final(self, runs: Ints) -> Leaves:
        """The observations that follow the newest steps of these runs."""
        return {key: column[runs] for key, column in self._final.items()}

    def observations(self, rows: Rows) -> Leaves:
        """Observations of some rows: views for a slice, copies for numbers."""
        return {key: self._at(_obs_key(key), rows) for key in self._final}

    def actions(self, rows: Rows) -> Array:
        """Actions of some rows: a view for a slice, a copy for numbers."""
        return self._at("action", rows)

    def take(self, rows: Ints, after: Successors) -> Batch:
        """The transitions in some rows."""
        next_obs = self.observations(after.row)
        final = np.flatnonzero(after.final)
        if len(final):
            for key, column in self.final(after.run[final]).items():
                next_obs[key][final] = column
        return Batch(
            obs=unwrapped(self.observations(rows)),
            action=self.actions(rows),
            reward=self._at("reward", rows),
            next_obs=unwrapped(next_obs),
            discount=np.subtract(1.0, self._at("terminated", rows), dtype=np.float32),
            return_to_go=self._at("return_to_go", rows),
        )

    def state(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """These rows of every column, and the final observations."""
        held = {f"column.{name}": column[rows] for name, column in self.columns.items()}
        return held | {f"final.{key}": column for key, column in self._final.items()}

    def restore(self, state: dict[str, NDArray[Any]], rows: Rows) -> None:
        """Put a saved state back into these rows; rows beside them stay as they are."""
        self._final = {k.removeprefix("final."): v for k, v in state.items() if k.startswith("final.")}
        for key, saved in state.items():
            if key.startswith("column."):
                name = key.removeprefix("column.")
                if name not in self.columns:
                    self.columns[name] = np.zeros((self.capacity, *saved.shape[1:]), saved.dtype)
                self.columns[name][rows] = saved

    def _at(self, name: str, rows: Rows) -> Array:
        column = self.columns[name]
        return column[rows] if isinstance(rows, slice) else column.take(rows, axis=0)


def _obs_key(key: str) -> str:
    return f"obs.{key}" if key else "obs"


def _columns_of(obs: Leaves) -> dict[str, Array]:
    return {_obs_key(key): column for key, column in obs.items()}


def _refuse_misfit(name: str, column: Array, held: Array) -> None:
    if column.shape[1:] != held.shape[1:]:
        raise DataError(f"{name} has shape {column.shape[1:]} per step, but the buffer holds {held.shape[1:]}")
    if not np.can_cast(column.dtype, held.dtype, "same_kind"):
        raise DataError(f"{name} has dtype {column.dtype}, which does not fit the {held.dtype} that came first")
