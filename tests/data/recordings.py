"""Small datasets whose boundaries are known, and the files they are kept in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from arb.data.episodes import make_dataset
from arb.data.formats import read_dataset
from arb.replay.dataset import Dataset

Columns = dict[str, Any]


def walk(lengths: list[int], seed: int = 0, dim: int = 3) -> dict[str, Any]:
    """Episodes of a random walk that starts near the origin and drifts away from it."""
    rng = np.random.default_rng(seed)
    parts = []
    for length in lengths:
        steps = rng.uniform(0.5, 1.5, (length, dim))
        parts.append(np.concatenate([rng.uniform(-0.1, 0.1, (1, dim)), steps]).cumsum(0).astype(np.float32))
    ends = np.cumsum(lengths) - 1
    rows = sum(lengths)
    return {
        "observations": np.concatenate([part[:-1] for part in parts]),
        "next_observations": np.concatenate([part[1:] for part in parts]),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.isin(np.arange(rows), ends),
    }


def load(source: Any, columns: str = "") -> Dataset:
    """A dataset from a dict of columns or from a file."""
    return make_dataset(source, "dataset") if isinstance(source, dict) else read_dataset(source, columns)


def lengths_of(dataset: Dataset) -> list[int]:
    return list(dataset.lengths)


def without(columns: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in columns.items() if key not in names}


LENGTHS = [12, 9, 12, 7, 12, 8, 12]
"""Five of them cut off by a time limit of 12."""


def sound() -> dict[str, Any]:
    raw = walk(LENGTHS)
    ends = np.cumsum(LENGTHS) - 1
    raw["terminals"][ends] = np.array(LENGTHS) < 12
    raw["timeouts"] &= ~raw["terminals"]
    return raw


def as_hdf5(path: Path, columns: Columns) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file[name] = column
    return path


def as_npz(path: Path, columns: Columns) -> Path:
    np.savez(path, **columns)
    return path
