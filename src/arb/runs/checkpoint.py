"""Checkpoints: folders that appear whole, are checked before they are trusted, and of which the last two are kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from arb.files import read_json, to_disk

_SUMS = "sums.json"


def write_checkpoint(folder: Path, number: int, fill: Callable[[Path], None], keep: int = 2) -> None:
    """Let `fill` write files into a new checkpoint; it counts only once all of it is on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    fill(unfinished)
    sums = {path.name: _sum(path) for path in sorted(unfinished.iterdir())}
    (unfinished / _SUMS).write_text(json.dumps(sums))
    for path in unfinished.iterdir():
        to_disk(path)
    to_disk(unfinished)
    final = folder / f"{number:012d}"
    if final.exists():
        shutil.rmtree(final)
    unfinished.replace(final)
    to_disk(folder)
    for old in _numbered(folder)[:-keep]:
        shutil.rmtree(old)


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files are as they were written; damaged ones are passed over."""
    return next((path for path in reversed(_numbered(folder)) if _intact(path)), None)


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir()) if folder.exists() else []


def _intact(path: Path) -> bool:
    try:
        sums = read_json(path / _SUMS)
        return all(_sum(path / name) == value for name, value in sums.items())
    except (OSError, ValueError):
        return False


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
