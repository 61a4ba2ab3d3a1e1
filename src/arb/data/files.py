"""Files that are either whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there at the end of the block, removed if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Arrays by name; one that would need a pickle is refused."""
    columns: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    for name, column in columns.items():
        if column.dtype.hasobject:
            raise TypeError(f"{path}: {name} holds Python objects, not numbers")
    with whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **columns)
