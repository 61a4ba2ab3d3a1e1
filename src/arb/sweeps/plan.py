"""What the folder of a sweep says about its cells: planned, done, or failed and why."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.files import read_json, refuse_file, write_text
from arb.runs.config import flat
from arb.runs.folder import refuse_other_config
from arb.sweeps.grid import Cell

PLAN, FAILED, CACHE = "plan.json", "FAILED", ".pretrained"


def done(out: Path, cell: Cell) -> bool:
    """Whether a cell's run is finished."""
    return (out / cell.folder / "DONE").exists()


def check(out: Path, cells: Sequence[Cell]) -> None:
    """Refuse a folder in which other runs have the names of these cells, and what is no folder."""
    refuse_file(out)
    planned = _planned(out)
    for cell in cells:
        refuse_other_config(out / cell.folder, cell.config)
        held, asked = planned.get(cell.folder), flat(cell.config)
        if held is not None and held != asked:
            leaf = next(leaf for leaf in sorted(held.keys() | asked.keys()) if held.get(leaf) != asked.get(leaf))
            raise DataError(
                f"{out} plans {cell.folder} with {leaf} = {held.get(leaf)!r}, not {asked.get(leaf)!r}: "
                "choose another folder with --out"
            )


def write_plan(out: Path, cells: Sequence[Cell]) -> None:
    """Add cells to plan.json; those of earlier calls stay."""
    planned = _planned(out) | {cell.folder: flat(cell.config) for cell in cells}
    out.mkdir(parents=True, exist_ok=True)
    rows = [{"folder": folder, "config": config} for folder, config in planned.items()]
    write_text(out / PLAN, json.dumps({"cells": rows}, indent=1))


def write_failure(out: Path, cell: Cell, reason: str, traceback: str) -> None:
    """Leave the reason, in one line, and the traceback in the folder of a cell."""
    (out / cell.folder).mkdir(parents=True, exist_ok=True)
    write_text(out / cell.folder / FAILED, f"{' '.join(reason.split())}\n\n{traceback}")


def forget_failure(out: Path, cell: Cell) -> None:
    """The cell has succeeded after all."""
    (out / cell.folder / FAILED).unlink(missing_ok=True)


def remember(out: Path, group: str, kept: str) -> None:
    """Note under which name the cache holds the pre-training of a group."""
    write_text(out / CACHE / f"of-{group}", kept)


def remembered(out: Path, group: str) -> str | None:
    """That name, if the pre-training is still there; whether it fits today's data and versions its reader checks."""
    note = out / CACHE / f"of-{group}"
    kept = note.read_text() if note.exists() else ""
    return kept if kept and (out / CACHE / kept).is_dir() else None


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep a second sweep out of the folder: two would train the same cells."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another sweep is at work in {out}: wait for it, or choose another --out") from None
        yield


def _planned(out: Path) -> dict[str, dict[str, Any]]:
    path = out / PLAN
    if not path.exists():
        return {}
    try:
        return {cell["folder"]: cell["config"] for cell in read_json(path)["cells"]}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is damaged: move it away, the runs beside it keep their own configurations") from None
