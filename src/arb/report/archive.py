"""Archives: many runs in one file, a JSON line each, small enough to be committed and compared line by line.

A line holds the complete configuration, the data's hash, versions, processor, commit and seconds per phase, the return
of every episode of every evaluation (6 significant digits), and the replay figures (4 digits, at most 200 points).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arb.data.tasks import normalised
from arb.errors import DataError
from arb.files import atomic_write, check_folder
from arb.report.lines import to_line
from arb.report.record import Record
from arb.report.runs import ARCHIVE, read_archive, read_runs


@dataclass(frozen=True)
class Packed:
    """What an archive holds now."""

    path: Path
    runs: int
    kept: int
    """Runs that the archive held before and that were not found again."""
    left_out: tuple[str, ...]
    """Runs that are not in it, with the reason."""
    size: int


def pack(paths: Sequence[Path], out: Path) -> Packed:
    """Write finished and failed runs into an archive; runs that are already in it stay.

    The same runs give the same bytes. A run that is found again replaces the line it had. Unfinished runs are left out.

    Args:
        paths: folders of runs or sweeps, or other archives.
        out: the archive, `NAME.jsonl`.
    """
    if out.suffix != ARCHIVE:
        raise DataError(f"{out}: the name of an archive ends in {ARCHIVE}")
    if out.is_dir() or (out.exists() and not out.is_file()):
        raise DataError(f"{out} is not a regular file: choose another with --out")
    check_folder(out.parent)
    held = read_archive(out) if out.exists() else []
    broken = [run.place for run in held if not run.config]
    if broken:
        raise DataError(f"{broken[0]} is damaged: repair or move the archive before adding to it")
    runs = read_runs(paths)
    lines: dict[str, tuple[tuple[object, ...], str]] = {}
    left_out = [*runs.damaged]
    kept = 0
    for old, run in sorted([*((False, run) for run in runs.all), *((True, run) for run in held)], key=_first):
        key = json.dumps([run.config, run.data.get("sha256")], sort_keys=True)
        reason = _why_not(run)
        if reason:
            left_out.append(f"{run.place}: {reason}")
        elif key not in lines:
            order = (run.task, run.agent, run.strategy, run.seed, key)
            lines[key] = order, to_line(run, _name(run, paths))
            kept += old
    if not lines:
        raise DataError("; ".join([f"there is nothing to pack below {', '.join(map(str, paths))}", *left_out[:3]]))
    text = "".join(line + "\n" for _, line in sorted(lines.values()))
    with atomic_write(out) as unfinished:
        unfinished.write_bytes(text.encode())
    return Packed(out, len(lines), kept, tuple(left_out), len(text.encode()))


def _first(found: tuple[bool, Record]) -> tuple[bool, bool]:
    """Finished runs before failed ones, and newly found ones before those that an archive holds."""
    old, run = found
    return run.status != "done", old


def _why_not(run: Record) -> str:
    """Why a run does not belong in an archive; nothing if it does. Failures do: leaving them out would flatter."""
    if run.status not in ("done", "failed"):
        return f"{run.status}, {run.reason}"
    if not run.config:
        return run.reason
    for curve in run.curves.values():
        for scores, returns in zip(curve.scores, curve.returns, strict=True):
            if not np.allclose(scores, normalised(returns, run.reference), rtol=1e-6, atol=1e-6):
                return "the scores in eval.csv do not follow from its returns and the reference in config.json"
    return ""


def _name(run: Record, paths: Sequence[Path]) -> str:
    """Where a run was, below the path that was given; what an archive called it stays."""
    _, colon, name = run.place.partition(f"{ARCHIVE}: ")
    if colon:
        return name
    for path in paths:
        place = Path(run.place)
        if place.is_relative_to(path):
            return place.relative_to(path).as_posix() if place != path else place.name
    return Path(run.place).name
