"""NumPy's `.npz`: what an archive holds, without unpickling anything."""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arb.data.columns import flat_columns
from arb.data.contents import MOST_ENTRIES, MOST_TEXT, Array, Contents, Leaf, first_line, size_of
from arb.errors import DataError
from arb.files import write_npz

MOST_ATTRIBUTES = 100


@contextmanager
def open_npz(path: Path) -> Iterator[Contents]:
    """The contents of a file. Scalars and strings, and the bounds of actions, become attributes as well."""
    size = size_of(path)
    try:
        archive = zipfile.ZipFile(path)
    except Exception as problem:
        raise DataError(f"{path}: not a readable npz file ({first_line(problem)})") from None
    with archive:
        leaves: dict[str, Leaf] = {}
        refused: dict[str, str] = {}
        attributes: dict[str, Any] = {}
        if len(archive.infolist()) > MOST_ENTRIES:
            raise DataError(f"{path}: it has more than {MOST_ENTRIES:,} entries")
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            try:
                leaf = _leaf(archive, member)
                if leaf.nbytes > member.file_size:
                    refused[name] = f"claims shape {leaf.shape}, more than the {member.file_size:,} bytes it has"
                elif _describes(name, leaf) and len(attributes) < MOST_ATTRIBUTES:
                    attributes[name] = leaf.read().tolist()
            except Exception as problem:  # a broken archive can make its parsers raise anything
                leaf = Leaf((), np.dtype(np.float32), lambda: np.zeros(()))
                refused[name] = f"cannot be read ({first_line(problem)})"
            leaves[name] = leaf
        yield Contents(str(path), size, leaves, attributes, refused)


def _describes(name: str, leaf: Leaf) -> bool:
    small = leaf.nbytes < MOST_TEXT and leaf.dtype.kind in "fiubSU"
    return small and (leaf.shape == () or name in ("action_low", "action_high"))


def _leaf(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Leaf:
    def read() -> Array:
        with archive.open(member) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    with archive.open(member) as stream:
        return Leaf(*_header(stream), read)


def _header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    file: BinaryIO = stream
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def write_as_npz(path: Path, columns: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """A dataset and what is to be said about it; named parts of observations become `observations/name`."""
    write_npz(path, {**flat_columns(columns), **attributes})
