"""Files that are either whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arb.buffer.errors import DataError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there at the end of the block, removed if the block fails.

    The content is on disk before the name is, so that not even a power cut leaves half a file under it. Folders above
    are made where they are missing; the temporary name ends like the real one, for writers that go by the ending.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_file(folder: Path) -> None:
    """Refuse a place for a folder where there is a file, or that lies below one."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise DataError(f"{there} is a file, no folder: choose another with --out")


def write_text(path: Path, text: str) -> None:
    """A small text file, whole or not at all."""
    with whole(path) as unfinished:
        unfinished.write_text(text)


def to_disk(path: Path) -> None:
    """Wait until a file or folder has left the system's memory for the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
