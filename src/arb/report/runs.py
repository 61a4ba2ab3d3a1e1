"""Find runs in folders and archives and read them; what cannot be read is listed with its reason."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.report import record as records
from arb.report.record import Curve, Floats, Record, Status, tame

MOST_BYTES = {"config.json": 2**22, "machine.json": 2**20, "plan.json": 2**27, "FAILED": 2**20}
"""How large a file of a run may be; tables may have a quarter of a gigabyte, a line of an archive 16 megabytes."""
MOST_TABLE, MOST_LINE = 2**28, 2**24
ARCHIVE = ".jsonl"


@dataclass(frozen=True)
class Records:
    """All runs below some paths, in a stable order."""

    paths: tuple[Path, ...]
    all: tuple[Record, ...]
    damaged: tuple[str, ...] = ()
    """A sentence for each plan or archive that cannot be read: nobody knows which runs it holds."""

    @property
    def done(self) -> tuple[Record, ...]:
        """The finished ones, from which all tables are made."""
        return tuple(run for run in self.all if run.status == "done")

    @property
    def lacking(self) -> tuple[Record, ...]:
        """The others."""
        return tuple(run for run in self.all if run.status != "done")


def read_runs(paths: Sequence[Path]) -> Records:
    """Every run folder, planned run and archive at any depth below the paths, which may also name archives."""
    planned: dict[Path, Mapping[str, Any]] = {}
    damaged: list[str] = []
    folders: set[Path] = set()
    archives: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_file() and path.suffix == ARCHIVE:
            archives[path.resolve()] = path
            continue
        if not path.is_dir():
            raise DataError(f"{path} is neither a folder of runs or sweeps nor an archive of runs (*{ARCHIVE})")
        folders |= {file.parent for name in ("config.json", "FAILED") for file in _visible(path, name)}
        archives |= {file.resolve(): file for file in sorted(_visible(path, f"*{ARCHIVE}"))}
        for plan in _visible(path, "plan.json"):
            try:
                planned |= _planned(plan)
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
                damaged.append(f"{plan} cannot be read ({_said(problem)}): runs that were not started are not counted")
    # A run is done once per place, whatever way its path is spelt.
    places = {folder.resolve(): folder for folder in sorted(folders)}
    missing = {folder.resolve(): folder for folder in sorted(planned) if folder.resolve() not in places}
    plans = {folder.resolve(): config for folder, config in planned.items()}
    found = [_read(folder, plans.get(place, {})) for place, folder in places.items()]
    found += [
        Record(tame(folder), plans[place], "missing", "planned, but not started") for place, folder in missing.items()
    ]
    for archive in archives.values():
        try:
            found += read_archive(archive)
        except DataError as problem:
            damaged.append(str(problem))
    return Records(tuple(map(Path, paths)), tuple(sorted(found, key=lambda run: run.place)), tuple(damaged))


def read_archive(path: Path) -> list[Record]:
    """The runs of an archive; a line that cannot be read is a failed run, a file that is no archive a mistake."""
    found = []
    try:
        with path.open("rb") as file:
            for line, content in enumerate(iter(lambda: file.readline(MOST_LINE + 1), b""), start=1):
                where = f"{tame(path)}, line {line}"
                if line == 1 and not content.startswith(b'{"arb":'):
                    raise DataError(f"{path} is no archive of runs: `arb report --pack` makes one")
                if len(content) > MOST_LINE:
                    raise DataError(f"{where} is longer than {MOST_LINE // 2**20} MB: this is no archive of runs")
                try:
                    found.append(records.from_line(tame(path), content.decode()))
                except (DataError, UnicodeDecodeError) as problem:
                    found.append(Record(where, status="failed", reason=f"cannot be read: {_said(problem)}"))
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {_said(problem)}") from None
    return found


def _visible(path: Path, name: str) -> Iterator[Path]:
    """Files of a name below a path; hidden folders hold caches and unfinished work, policies their own settings."""
    for file in path.rglob(name):
        inner = file.relative_to(path).parts[:-1]
        hidden = any(part.startswith(".") or part in ("policy", "checkpoint") for part in inner)
        if not hidden and file.is_file():
            yield file


def _text(path: Path) -> str:
    """The content of a small file."""
    most = MOST_BYTES[path.name]
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path.name} is larger than {most // 2**20} MB")
    return content.decode()


def _planned(plan: Path) -> dict[Path, Mapping[str, Any]]:
    cells = json.loads(_text(plan))["cells"]
    found = {}
    for cell in cells:
        folder = cell["folder"]
        if not isinstance(folder, str) or "\0" in folder:
            raise DataError("a folder is no name")
        found[plan.parent / folder] = records.described("", {"config": cell["config"]}).config
    return found


def _read(folder: Path, planned: Mapping[str, Any]) -> Record:
    """A folder's content; a file that is broken fails the run, not the report."""
    failed, place = folder / "FAILED", tame(folder, 1000)
    reason = ""
    if failed.exists():
        with failed.open("rb") as file:
            lines = file.read(MOST_BYTES["FAILED"]).decode(errors="replace").strip().splitlines()
        reason = tame((lines or ["no reason given"])[0])
    try:
        if not (folder / "config.json").exists():
            return Record(place, planned, "failed", reason)
        values = json.loads(_text(folder / "config.json"))
        machine = folder / "machine.json"
        if isinstance(values, dict) and machine.is_file():
            values["machine"] = json.loads(_text(machine))
        run = records.described(place, values)
        curves, metrics = _curves(folder / "eval.csv", run.reference), _metrics(folder / "metrics.csv")
    except (OSError, ValueError, csv.Error, RecursionError) as problem:
        return Record(place, planned, "failed", f"cannot be read: {_said(problem)}")
    status: Status = "unfinished"
    if (folder / "DONE").exists():
        status, reason = "done", ""
    elif failed.exists():
        status = "failed"
    else:
        reason = _progress(run.config, curves, metrics)
    return records.judged(replace(run, status=status, reason=reason, curves=curves, metrics=metrics))


def _curves(path: Path, reference: tuple[float, float] | None) -> dict[str, Curve]:
    found: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for line, row in _rows(path, ("phase", "step", "episode", "return", "score")):
        step = records.number(row["step"], f"{path.name}, line {line}: step")
        episodes = found.setdefault(tame(row["phase"], 40), {}).setdefault(int(step), {})
        if row["episode"] in episodes:
            raise DataError(f"{path.name}, line {line}: episode {tame(row['episode'], 40)} of this step stands twice")
        names = [name for name in ("return", "score", "success") if row.get(name)]
        episodes[row["episode"]] = {
            name: records.number(row[name], f"{path.name}, line {line}: {name}") for name in names
        }
    curves = {}
    for phase, steps in found.items():
        part: dict[str, Any] = {"step": sorted(steps)}
        for name in ("return", "score", "success"):
            values = [[episode.get(name) for episode in steps[step].values()] for step in sorted(steps)]
            part[name] = None if all(value is None for row_ in values for value in row_) else values
        curves[phase] = records.curve_of(part, reference)
    return curves


def _metrics(path: Path) -> dict[str, dict[str, Floats]]:
    found: dict[str, dict[str, list[str]]] = {}
    for _, row in _rows(path, ("phase", "step")):
        columns = found.setdefault(tame(row["phase"], 40), {})
        for name, text in row.items():
            if name == "step" or name.startswith("replay."):
                columns.setdefault(name, []).append(text)
    return {phase: records.metrics_of(columns) for phase, columns in found.items()}


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table with their lines; one that was cut off in the middle is an error that names its line."""
    if not path.is_file():
        return
    if path.stat().st_size > MOST_TABLE:
        raise DataError(f"{path.name} is larger than {MOST_TABLE // 2**20} MB")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, restkey="?")
        lacking = [name for name in needed if name not in (reader.fieldnames or ())]
        if lacking:
            raise DataError(f"{path.name} lacks the column {lacking[0]}")
        for row in reader:
            if None in row.values() or "?" in row:
                columns = len(reader.fieldnames or ())
                raise DataError(f"{path.name}, line {reader.line_num}: {columns} columns expected")
            yield reader.line_num, row


def _progress(config: Mapping[str, Any], curves: Mapping[str, Curve], metrics: Mapping[str, Any]) -> str:
    for phase in ("online", "pretrain"):
        steps = metrics.get(phase, {}).get("step", curves[phase].steps if phase in curves else ())
        if len(steps):
            total = config.get(f"schedule.{phase}", "?")
            of = f"{total:,}" if isinstance(total, int) else total
            return f"at {phase} step {int(max(steps)):,} of {of}"
    return "nothing done yet"


def _said(problem: Exception) -> str:
    text = tame(" ".join(str(problem).split()) or type(problem).__name__)
    return f"{text} is missing" if isinstance(problem, KeyError) else text
