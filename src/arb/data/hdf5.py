"""HDF5: what a file holds, listed within bounds; and D4RL's layout, written whole."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from arb.data.columns import flat_columns
from arb.data.contents import MOST_ENTRIES, MOST_TEXT, Contents, Leaf, first_line, size_of
from arb.errors import DataError
from arb.files import atomic_write

DEEPEST = 8
MOST_CHUNKS = 1_000_000
ROOM = 1 << 24
"""Bytes that a chunk may have beyond twice its array."""


@contextmanager
def open_hdf5(path: Path) -> Iterator[Contents]:
    """The contents of a file. External files, virtual datasets and links to other places are never followed."""
    size = size_of(path)
    # The library below raises whatever it happens upon in broken bytes, so every exception is a broken file here.
    try:
        file = h5py.File(path, "r", locking=False)
    except Exception as problem:
        raise DataError(f"{path}: not a readable HDF5 file ({first_line(problem)})") from None
    with file:
        leaves: dict[str, Leaf] = {}
        refused: dict[str, str] = {}
        try:
            _list(file, "", leaves, refused, {_address(file)}, [0])
            attributes = _attributes(file)
        except DataError as problem:
            raise DataError(f"{path}: {problem}") from None
        except Exception as problem:
            raise DataError(f"{path}: its list of contents cannot be read ({first_line(problem)})") from None
        yield Contents(str(path), size, leaves, attributes, refused)


def _list(
    group: Any, above: str, leaves: dict[str, Leaf], refused: dict[str, str], seen: set[Any], count: list[int]
) -> None:
    """Collect the datasets below a group. A group is entered once, by whichever name comes first."""
    for key in group:
        name = f"{above}{key}"
        count[0] += 1
        if count[0] > MOST_ENTRIES:
            raise DataError(f"it has more than {MOST_ENTRIES:,} entries")
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            refused[name] = "is a link to another place, which is not followed"
            continue
        item = group[key]
        if isinstance(item, h5py.Group):
            address = _address(item)
            if address not in seen and name.count("/") < DEEPEST:
                seen.add(address)
                _list(item, f"{name}/", leaves, refused, seen, count)
        elif isinstance(item, h5py.Dataset):
            leaves[name] = _leaf(item)
            reason = _refusal(item)
            if reason:
                refused[name] = reason


def _address(item: Any) -> Any:
    return h5py.h5o.get_info(item.id).addr


def _refusal(item: Any) -> str:
    if item.is_virtual:
        return "is a virtual dataset, which may lie in other files: copy the data into this file"
    if item.external:
        return "is stored in another file: copy the data into this file"
    if item.shape is None:
        return "is empty"
    if item.chunks:
        chunk = int(np.prod(item.chunks, dtype=object)) * item.dtype.itemsize
        chunks = int(
            np.prod([-(-rows // step) for rows, step in zip(item.shape, item.chunks, strict=True)], dtype=object)
        )
        if chunk > 2 * item.nbytes + ROOM or chunks > MOST_CHUNKS:
            return f"is stored in {chunks:,} chunks of {chunk:,} bytes: rewrite the file with larger or smaller chunks"
    return ""


def _leaf(item: Any) -> Leaf:
    def read() -> Any:
        return item.astype(np.float32)[()] if item.dtype.kind == "f" else item[()]

    return Leaf(tuple(item.shape or ()), item.dtype, read)


def _attributes(file: Any) -> dict[str, Any]:
    """Numbers and short texts; whatever else a file says about itself is left out."""
    found = {}
    for key in list(file.attrs)[:100]:
        kind = file.attrs.get_id(key)
        if kind.get_storage_size() <= MOST_TEXT and (
            kind.dtype.kind in "fiubSU" or h5py.check_string_dtype(kind.dtype)
        ):
            value = _plain(file.attrs[key])
            if not isinstance(value, str) or len(value) <= MOST_TEXT:
                found[key] = value
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()] if value.ndim else _plain(value.item())
    return value.item() if isinstance(value, np.generic) else value


def write_hdf5(path: Path, columns: Mapping[str, Any], attributes: Mapping[str, Any], effort: int = 9) -> None:
    """A file in D4RL's layout, compressed without loss; it appears under its name only when it is complete.

    It is made in memory first: on a full disk the HDF5 library brings down the process.
    """
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for name, column in flat_columns(columns).items():
            file.create_dataset(name, data=column, compression="gzip", compression_opts=effort, shuffle=True)
        for name, value in attributes.items():
            file.attrs[name] = value
    with atomic_write(path) as temporary:
        temporary.write_bytes(made.getbuffer())
