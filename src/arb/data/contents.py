"""What a file holds, before any of it is read: names, shapes and types, and the bounds that every reader keeps.

A file comes from somewhere else. Whatever it claims is checked against its size and this machine's memory before a
column is read; it is never executed, never unpickled, and no other file is opened on its word.
"""

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError

Array = NDArray[Any]
MOST_ENTRIES = 200_000
MOST_COMPRESSED = 100
"""Recorded data shrinks by less (D4RL's by 1.1 to 4); a file that unpacks to more is broken, or made to do harm."""
ALWAYS_FINE = 1 << 26
"""Bytes that may be unpacked from a file of any size."""
MOST_TEXT = 1 << 16
"""Bytes of an attribute; longer ones are left out."""


class Leaf(NamedTuple):
    """One array of a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        """As it is declared."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


@dataclass(frozen=True)
class Contents:
    """The arrays of a file by their names (`group/name`), and what the file says about itself."""

    path: str
    size: int
    """Of the file, in bytes."""
    leaves: Mapping[str, Leaf]
    attributes: dict[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Names that are there and may not be read, and why."""

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Some of the arrays, floats as float32, after a check of how much they are together."""
        names = list(names)
        for name in names:
            self._refuse(name)
        refuse_too_large(self.path, sum(self.leaves[name].nbytes for name in names), self.size)
        return {name: self._one(name) for name in names}

    def _refuse(self, name: str) -> None:
        leaf = self.leaves.get(name)
        if leaf is not None:
            refuse_too_large(self.path, leaf.nbytes, self.size, f"{name} of shape {leaf.shape}")
        if name in self.refused:
            raise DataError(f"{self.path}: {name} {self.refused[name]}")
        if leaf is None or leaf.dtype.kind not in "fiub":
            raise DataError(f"{self.path}: {name} holds {'nothing' if leaf is None else leaf.dtype}, not numbers")

    def _one(self, name: str) -> Array:
        # The parsers below raise whatever they happen upon in broken bytes, so every exception is a broken file here.
        try:
            column = self.leaves[name].read()
        except DataError:
            raise
        except Exception as problem:
            raise DataError(f"{self.path}: {name} cannot be read ({first_line(problem)})") from None
        return column.astype(np.float32) if column.dtype.kind == "f" and column.dtype != np.float32 else column


def size_of(path: Path) -> int:
    """The size of a regular file; a folder, a pipe or a device is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as problem:
        raise DataError(f"{path}: cannot be opened ({first_line(problem)})") from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is not a regular file")
    return status.st_size


def refuse_too_large(path: str, wanted: int, size: int, what: str = "the data") -> None:
    """Refuse what cannot be in a file of this size, and what does not fit into memory."""
    if wanted > max(ALWAYS_FINE, MOST_COMPRESSED * size):
        raise DataError(f"{path}: {what} claims {wanted:,} bytes, far more than a file of {size:,} bytes can hold")
    free = free_memory()
    if free is not None and wanted > free:
        raise DataError(f"{path}: {what} needs about {wanted / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping, where the system tells it (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def first_line(problem: Exception) -> str:
    """What an exception says, in one line."""
    text = (str(problem).splitlines() or [""])[0].strip()
    return text[:300] or type(problem).__name__
