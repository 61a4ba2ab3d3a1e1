"""Find runs in folders and archives and read them; what cannot be read is listed with its reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.files import read_json
from arb.lab.runfolder import PLAN, RunFolder
from arb.report.lines import from_line
from arb.report.record import Record, described, from_folder, tame

MOST_LINE = 2**24
"""Bytes of a line of an archive."""
ARCHIVE = ".jsonl"
_RUN = RunFolder("")
"""For the names of its files."""


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
        folders |= {file.parent for mark in (_RUN.config_file, _RUN.failure_mark) for file in _visible(path, mark.name)}
        archives |= {file.resolve(): file for file in sorted(_visible(path, f"*{ARCHIVE}"))}
        for plan in _visible(path, PLAN):
            try:
                planned |= _planned(plan)
            except (OSError, ValueError, KeyError, TypeError) as problem:
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
    """The runs of an archive; a line that cannot be read is a failed run, a file that is not an archive an error."""
    found = []
    try:
        with path.open("rb") as file:
            for line, content in enumerate(iter(lambda: file.readline(MOST_LINE + 1), b""), start=1):
                where = f"{tame(path)}, line {line}"
                if line == 1 and not content.startswith(b'{"arb":'):
                    raise DataError(f"{path} is not an archive of runs: `arb report --pack` makes one")
                if len(content) > MOST_LINE:
                    raise DataError(f"{where} is longer than {MOST_LINE // 2**20} MB: this is not an archive of runs")
                try:
                    found.append(from_line(tame(path), content.decode()))
                except (DataError, UnicodeDecodeError) as problem:
                    found.append(Record(where, status="failed", reason=f"cannot be read: {_said(problem)}"))
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {_said(problem)}") from None
    return found


def _visible(path: Path, name: str) -> Iterator[Path]:
    """Files of a name below a path; hidden folders hold caches and unfinished work, policies their own settings."""
    for file in path.rglob(name):
        inner = file.relative_to(path).parts[:-1]
        hidden = any(part.startswith(".") or part in (_RUN.policies.name, _RUN.checkpoints.name) for part in inner)
        if not hidden and file.is_file():
            yield file


def _planned(plan: Path) -> dict[Path, Mapping[str, Any]]:
    cells = read_json(plan)["cells"]
    found = {}
    for cell in cells:
        folder = cell["folder"]
        if not isinstance(folder, str) or folder != tame(folder, 1000):
            raise DataError("a folder is not a name")
        found[plan.parent / folder] = described("", {"config": cell["config"]}).config
    return found


def _read(folder: Path, planned: Mapping[str, Any]) -> Record:
    """A folder's content; a file that is broken fails the run, not the report."""
    run = RunFolder(folder)
    if not run.config_file.exists():
        return Record(tame(folder, 1000), planned, "failed", tame(run.failure))
    try:
        return from_folder(folder)
    except (OSError, ValueError) as problem:
        said = _said(problem).replace(f"{folder}/", "")
        return Record(tame(folder, 1000), planned, "failed", f"cannot be read: {said}")


def _said(problem: Exception) -> str:
    text = tame(" ".join(str(problem).split()) or type(problem).__name__)
    return f"{text} is missing" if isinstance(problem, KeyError) else text
