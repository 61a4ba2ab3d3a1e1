"""D4RL's HDF5 layout: read with care, written whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from arb.buffer.dataset import OPTIONAL, REQUIRED
from arb.data.columns import refuse_missing
from arb.errors import DataError
from arb.files import whole

STATE = ("infos/qpos", "infos/qvel")
MOST_COMPRESSED = 2000
"""No filter of HDF5 shrinks more (deflate ends at 1032): a file that claims to unfold further is broken."""


def read_hdf5(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw columns and attributes of a file in D4RL's layout; keys that do not belong to transitions are passed over.

    Where a file has no `next_observations` but records the simulator's state after every step (`infos/qpos` and
    `infos/qvel`, as AntMaze does), and that state is what the next row observes, they are taken from there.
    """
    # The parsers below raise whatever they happen upon in broken bytes, so every exception is a broken file here.
    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as problem:
        raise DataError(f"{path}: not a readable HDF5 file ({_first_line(problem)})") from None
    with file:
        limit = MOST_COMPRESSED * path.stat().st_size
        try:
            names = [str(name) for name in file]
            present = [name for name in (*REQUIRED, *OPTIONAL, *STATE) if name in file]
            attributes = {key: _plain(value) for key, value in file.attrs.items()}
        except Exception as problem:
            raise DataError(f"{path}: its list of contents cannot be read ({_first_line(problem)})") from None
        columns = {name: _read(file, name, path, limit) for name in present if name not in STATE}
        refuse_missing(str(path), names)
        if "next_observations" not in columns and "observations" in columns and set(STATE) <= set(present):
            after = _state_after([_read(file, name, path, limit) for name in STATE], columns["observations"])
            if after is not None:
                columns["next_observations"] = after
    return columns, attributes


def _read(file: Any, name: str, path: Path, limit: int) -> Any:
    """One column, floats as float32, or a dict of columns where the file has a group."""
    try:
        item = file[name]
        if isinstance(item, h5py.Group):
            return {key: _read(file, f"{name}/{key}", path, limit) for key in item}
        size = int(np.prod(item.shape, dtype=object)) * item.dtype.itemsize
        if item.dtype.kind in "fiub" and size <= limit:
            return item.astype(np.float32)[()] if item.dtype.kind == "f" else item[()]
    except DataError:
        raise
    except Exception as problem:
        raise DataError(f"{path}: {name} cannot be read ({_first_line(problem)})") from None
    if item.dtype.kind not in "fiub":
        raise DataError(f"{path}: {name} holds {item.dtype}, not numbers")
    raise DataError(f"{path}: {name} claims {size:,} bytes of shape {item.shape}, far more than the file can hold")


def _state_after(parts: list[Any], observations: Any) -> Any:
    if isinstance(observations, Mapping) or np.ndim(observations) != 2:
        return None
    if any(np.ndim(part) != 2 or len(part) != len(observations) for part in parts):
        return None
    after = np.concatenate(parts, 1)
    if after.shape != observations.shape or len(after) < 2:
        return None
    # In D4RL's locomotion files the recorded state is that before the step; only AntMaze's is the one after it.
    same = (after[:-1] == observations[1:]).all(1).mean()
    return after if same > 0.9 else None


def write_hdf5(path: Path, columns: Mapping[str, Any], attributes: Mapping[str, Any], effort: int = 9) -> None:
    """A file in D4RL's layout, compressed without loss; it appears under its name only when it is complete."""
    with whole(path) as temporary, h5py.File(temporary, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip", compression_opts=effort, shuffle=True)
        for name, value in attributes.items():
            file.attrs[name] = value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
