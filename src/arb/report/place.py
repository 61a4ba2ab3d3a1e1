"""Where results go: a folder, there already or not yet."""

from __future__ import annotations

from pathlib import Path

from arb.buffer.errors import DataError


def refuse_file(out: Path) -> None:
    """Refuse a place for a folder where there is a file, or that lies below one.

    >>> refuse_file(Path(__file__) / "report")
    Traceback (most recent call last):
    arb.buffer.errors.DataError: ...place.py is a file, no folder: choose another with --out
    """
    there = next((path for path in (out, *out.parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise DataError(f"{there} is a file, no folder: choose another with --out")
