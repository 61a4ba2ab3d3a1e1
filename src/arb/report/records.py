"""Runs as plain values: read from folders and archives, packed into archives, and grouped by their settings.

An archive holds many runs in one file, a JSON line each, small enough to be committed. A line has the complete
configuration, the data's hash, versions, processor, commit and seconds per phase, the return of every episode of every
evaluation (6 significant digits), and the replay metrics (4 digits, at most 200 points).

Files may be damaged, or made by someone else. Text is sanitized, numbers have bounds, and whatever does not fit makes
one run unreadable, never the report.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.data.tasks import normalised, read_reference
from arb.errors import DataError, suggest
from arb.files import atomic_write, check_folder, read_json
from arb.lab.agents import AGENTS
from arb.lab.folder import PLAN, Curve, RunFolder
from arb.lab.strategies import STRATEGIES, strategy_label

Floats = NDArray[np.float64]
Status = Literal["done", "unfinished", "failed", "missing"]
"""A run that cannot be read counts as failed; a planned run without a folder is missing."""

ARCHIVE = ".jsonl"
FORMAT = 1  # of a line in an archive
MAX_LINE = 2**24  # bytes of a line in an archive
MAX_POINTS = 200  # that an archive keeps of a replay metric, evenly spaced, the last among them
LARGEST = 1e12  # no score, return or step is beyond it, so that sums and squares of such numbers are finite
_RUN = RunFolder("")  # for the names of its files


@dataclass(frozen=True, eq=False)
class Record:
    """What is known of one run, or why nothing is."""

    place: str
    """Its folder, or its archive and name there; for people, never a path to open or to write to."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Every setting under its full name, e.g. `replay.strategy`."""
    status: Status = "missing"
    reason: str = ""
    env: str = ""
    reference: tuple[float, float] | None = None
    """Returns of score 0 and 100; None where scores are plain returns."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Of the dataset: `rows`, `sha256`; where they were recorded `mean_return`, `best_return`, `cloning_return`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Processor, commit and seconds per phase, where they were recorded."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    """By phase and column; always with the column `step`, which increases."""
    archive: str = ""
    """The archive that it comes from; empty for a run folder."""

    @property
    def task(self) -> str:
        return str(self.config.get("task", "?")).removeprefix("d4rl:")

    @property
    def agent(self) -> str:
        return str(self.config.get("agent", "?"))

    @property
    def strategy(self) -> str:
        """Its name; Parallel with offline rows alone is training on without an environment."""
        alone = self.config.get("replay.strategy") == "parallel" and self.config.get("replay.offline_share") == 1.0
        return "offline" if alone else str(self.config.get("replay.strategy", "?"))

    @property
    def seed(self) -> int:
        """The seed; -1 where the configuration has none."""
        seed = self.config.get("seed", -1)
        return seed if isinstance(seed, int) else -1

    @property
    def data_hash(self) -> str:
        return str(self.data.get("sha256") or "")

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall time by phase; a pre-training that several runs share is in all of them."""
        found = self.machine.get("seconds")
        return found if isinstance(found, Mapping) else {}

    @property
    def minutes(self) -> float | None:
        """Wall time of all phases; None where it was not recorded."""
        return sum(self.seconds.values()) / 60.0 if self.seconds else None


@dataclass(frozen=True)
class Runs:
    """All runs below some paths, in a stable order."""

    all: tuple[Record, ...]
    unreadable: tuple[str, ...] = ()
    """A sentence for each plan or archive that cannot be read, so that nobody knows which runs it holds."""

    @property
    def done(self) -> tuple[Record, ...]:
        return tuple(run for run in self.all if run.status == "done")

    @property
    def missing(self) -> tuple[Record, ...]:
        return tuple(run for run in self.all if run.status != "done")

    def by_archive(self) -> dict[str, "Runs"]:
        """One part per archive, by name, and one of all run folders, named `run folders`."""
        files = {run.archive for run in self.all if run.archive}
        above = os.path.commonpath([Path(file).parent for file in files]) if files else ""
        names = {file: str(Path(file).relative_to(above).with_suffix("")) for file in files}
        parts: dict[str, list[Record]] = {}
        for run in self.all:
            parts.setdefault(names.get(run.archive, "run folders"), []).append(run)
        return {name: Runs(tuple(parts[name])) for name in sorted(parts)}


# ---- what may stand in a file ----------------------------------------------------------------------------------------
def sanitize(value: Any, most: int = 300) -> str:
    """Text on one line, without control characters, lone surrogates or marks that change the direction of writing."""
    text = str(value)
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:most])
    return shown + ("…" if len(text) > most else "")


def _plain(value: Any, name: str, depth: int = 4) -> Any:
    """A value of a JSON file with sanitized text; an error where it is too deep, too long or out of range."""
    if isinstance(value, str):
        return sanitize(value)
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if depth and isinstance(value, list | tuple) and len(value) <= 1000:
        return [_plain(part, name, depth - 1) for part in value]
    if depth and isinstance(value, Mapping) and len(value) <= 1000:
        return {sanitize(key): _plain(part, sanitize(key), depth - 1) for key, part in value.items()}
    raise DataError(f"{name} is too long, too deep, out of range, or not a plain value")


def _number(value: Any, name: str, gap: bool = False) -> float:
    """A number, or NaN for null where there may be gaps."""
    if value is None and gap:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise DataError(f"{name} must be a finite number, not {sanitize(value, 40)!r}")
    return float(value)


def _described(place: str, values: Any) -> Record:
    """The part of a record that config.json holds."""
    if not isinstance(values, Mapping) or not isinstance(values.get("config"), Mapping):
        raise DataError("config is missing")
    parts = {name: _plain(values.get(name) or {}, name) for name in ("config", "data", "versions", "machine")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise DataError(f"{name} must hold names and values")
    machine = parts["machine"]
    if isinstance(machine.get("seconds"), dict):
        machine["seconds"] = {phase: _number(value, "seconds") for phase, value in machine["seconds"].items()}
    reference = None if values.get("reference") is None else read_reference(values["reference"])
    return Record(place, env=sanitize(values.get("env") or ""), reference=reference, **parts)


def _checked(record: Record, curves: Mapping[str, Curve], metrics: Mapping[str, Mapping[str, Floats]]) -> Record:
    """With its curves, all in bounds, and its replay metrics, in which what is infinite or enormous is a gap."""
    if not all(np.all(np.abs(v) <= LARGEST) for curve in curves.values() for v in (*curve.scores, *curve.returns)):
        raise DataError("a score or return is too large to be one")
    kept = {
        phase: {name: np.where(np.abs(values) <= LARGEST, values, math.nan) for name, values in columns.items()
                if name == "step" or name.startswith("replay.")}
        for phase, columns in metrics.items()
    }  # fmt: skip
    record = replace(record, curves=curves, metrics=kept)
    online = curves.get("online")
    if record.status == "done" and (online is None or not any(online.steps > 0)):
        return replace(record, status="failed", reason="says it is done, but has no online evaluation")
    return record


# ---- a run folder ----------------------------------------------------------------------------------------------------
def from_folder(path: Path) -> Record:
    """A run from its folder, as far as it has come; a `DataError` says what is wrong with it."""
    folder = RunFolder(path)
    about = folder.description()
    record = _described(sanitize(path, 1000), {**vars(about), "machine": folder.machine()})
    curves, metrics = folder.curves(), folder.metrics()
    if folder.done:
        return _checked(replace(record, status="done"), curves, metrics)
    steps = {phase: max(curve.steps) for phase, curve in curves.items()}
    steps |= {phase: max(columns["step"]) for phase, columns in metrics.items()}
    phase = "online" if "online" in steps else "pretrain"
    total = record.config.get(f"schedule.{phase}", "?")
    of = f"{total:,}" if isinstance(total, int) else total
    progress = f"at {phase} step {int(steps[phase]):,} of {of}" if steps else "nothing done yet"
    status: Status = "failed" if folder.failure else "unfinished"
    return _checked(replace(record, status=status, reason=sanitize(folder.failure) or progress), curves, metrics)


# ---- a line of an archive --------------------------------------------------------------------------------------------
def to_line(record: Record, name: str) -> str:
    """A run as one line of an archive: the same bytes every time."""
    values = {
        "arb": FORMAT, "run": name, "status": record.status, "reason": record.reason, "config": record.config,
        "env": record.env, "reference": record.reference, "data": record.data, "versions": record.versions,
        "machine": record.machine,
        "evaluations": {
            phase: {"step": [int(step) for step in curve.steps], "return": _rounded(curve.returns, 6),
                    **({"success": _rounded(curve.successes, 3)} if curve.successes is not None else {})}
            for phase, curve in record.curves.items()
        },
    }  # fmt: skip
    metrics: dict[str, Any] = {}
    for phase, columns in record.metrics.items():
        kept = {name: v for name, v in columns.items() if name.startswith("replay.") and np.isfinite(v).any()}
        chosen = spaced(len(columns["step"]), MAX_POINTS)
        if kept:
            metrics[phase] = {name: _rounded([values[chosen]], 4)[0] for name, values in kept.items()}
            metrics[phase]["step"] = [int(step) for step in columns["step"][chosen]]
    return json.dumps(values | {"metrics": metrics}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _rounded(rows: Iterable[Floats], digits: int) -> list[list[float | int | None]]:
    short = ((float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in row) for row in rows)
    return [[int(x) if x is not None and x == int(x) else x for x in row] for row in short]


def from_line(archive: str, text: str) -> Record:
    """A run from a line of an archive; a `DataError` says what is wrong with it."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {sanitize(error, 80)}") from None
    if not isinstance(values, Mapping) or values.get("arb") != FORMAT:
        raise DataError(f'is not a run in format {FORMAT}: it lacks "arb": {FORMAT}')
    record = _described(f"{archive}: {sanitize(values.get('run', '?'))}", values)
    if values.get("status") not in ("done", "failed"):
        raise DataError("status must be done or failed")
    parts = {name: values.get(name) or {} for name in ("evaluations", "metrics")}
    if not all(isinstance(part, Mapping) and len(part) <= 10 for part in parts.values()):
        raise DataError("evaluations and metrics must be given by phase")
    record = replace(record, status=values["status"], reason=sanitize(values.get("reason") or ""), archive=archive)
    curves = {sanitize(phase): _curve(part, record.reference) for phase, part in parts["evaluations"].items()}
    metrics = {
        sanitize(phase): {sanitize(name): np.array([_number(value, sanitize(name), True) for value in values])
                          for name, values in _columns(part, "metrics").items()}
        for phase, part in parts["metrics"].items()
    }  # fmt: skip
    return _checked(record, curves, metrics)


def _columns(part: Any, name: str) -> dict[str, Any]:
    """Lists by name, all as long as that of the steps, which must be increasing whole numbers."""
    if not isinstance(part, Mapping) or len(part) > 1000 or not isinstance(part.get("step"), list):
        raise DataError(f"{name} must hold step and other columns by name")
    steps = np.array([_number(value, f"a step of {name}") for value in part["step"]])
    if not len(steps) or np.any(steps % 1 != 0) or np.any(np.diff(steps, prepend=-1) <= 0):
        raise DataError(f"the steps of {name} must be increasing whole numbers")
    for column, values in part.items():
        if not isinstance(values, list) or len(values) != len(steps):
            raise DataError(f"{sanitize(column)} is not a list of {len(steps)} values, one per step")
    return dict(part)


def _curve(part: Any, reference: tuple[float, float] | None) -> Curve:
    columns = _columns(part, "evaluations")
    found = {}
    for name in {"return", "success"} & {"return", *columns}:
        if not all(isinstance(episodes, list) and episodes for episodes in columns.get(name, [None])):
            raise DataError(f"{name} must hold a list of episodes for each evaluation")
        found[name] = tuple(np.array([_number(value, name) for value in episodes]) for episodes in columns[name])
    scores = tuple(normalised(values, reference) for values in found["return"])
    return Curve(np.array(columns["step"], float), scores, found["return"], found.get("success"))


def spaced(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers 0..n-1, evenly spaced, the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


# ---- finding and reading ---------------------------------------------------------------------------------------------
def read_runs(paths: Sequence[Path]) -> Runs:
    """Every run folder, planned run and archive at any depth below the paths, which may also name archives."""
    planned: dict[Path, tuple[Path, Mapping[str, Any]]] = {}
    unreadable: list[str] = []
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
            except (OSError, ValueError, KeyError, TypeError) as error:
                unreadable.append(f"{plan} cannot be read ({_message(error)}): runs not started are not counted")
    # A run is done once per place, however its path is written.
    places = {folder.resolve(): folder for folder in sorted(folders)}
    found = [_read(folder, planned.get(place, ("", {}))[1]) for place, folder in places.items()]
    never = [plan for place, plan in planned.items() if place not in places]
    found += [Record(sanitize(folder), config, "missing", "planned, but not started") for folder, config in never]
    for archive in archives.values():
        try:
            found += read_archive(archive)
        except DataError as error:
            unreadable.append(str(error))
    return Runs(tuple(sorted(found, key=lambda run: run.place)), tuple(unreadable))


def read_archive(path: Path) -> list[Record]:
    """The runs of an archive; a line that cannot be read is a failed run, a file that is not an archive an error."""
    found = []
    archive = sanitize(path)
    try:
        with path.open("rb") as file:
            for line, content in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), start=1):
                where = f"{archive}, line {line}"
                if line == 1 and not content.startswith(b'{"arb":'):
                    raise DataError(f"{path} is not an archive of runs: `arb report --pack` makes one")
                if len(content) > MAX_LINE:
                    raise DataError(f"{where} is longer than {MAX_LINE // 2**20} MB: this is not an archive of runs")
                try:
                    found.append(from_line(archive, content.decode()))
                except (DataError, UnicodeDecodeError) as error:
                    reason = f"cannot be read: {_message(error)}"
                    found.append(Record(where, status="failed", reason=reason, archive=archive))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {_message(error)}") from None
    return found


def _visible(path: Path, name: str) -> Iterator[Path]:
    """Files of a name below a path; hidden folders hold caches and unfinished work, policies their own settings."""
    for file in path.rglob(name):
        inner = file.relative_to(path).parts[:-1]
        hidden = any(part.startswith(".") or part in (_RUN.policies.name, _RUN.checkpoints.name) for part in inner)
        if not hidden and file.is_file():
            yield file


def _planned(plan: Path) -> dict[Path, tuple[Path, Mapping[str, Any]]]:
    found = {}
    for cell in read_json(plan)["cells"]:
        folder = cell["folder"]
        if not isinstance(folder, str) or folder != sanitize(folder, 1000):
            raise DataError("a folder is not a name")
        path = plan.parent / folder
        found[path.resolve()] = path, _described("", {"config": cell["config"]}).config
    return found


def _read(folder: Path, planned: Mapping[str, Any]) -> Record:
    """A folder's content; a file that is broken fails the run, not the report."""
    place, run = sanitize(folder, 1000), RunFolder(folder)
    if not run.config_file.exists():
        return Record(place, planned, "failed", sanitize(run.failure))
    try:
        return from_folder(folder)
    except (OSError, ValueError) as error:
        return Record(place, planned, "failed", f"cannot be read: {_message(error).replace(f'{folder}/', '')}")


def _message(error: Exception) -> str:
    said = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
    text = sanitize(" ".join(said.split()) or type(error).__name__)
    return f"{text} is missing" if isinstance(error, KeyError) else text


# ---- packing ---------------------------------------------------------------------------------------------------------
class Packed(NamedTuple):
    """What an archive holds now: `kept` runs were in it and not found again, `left_out` ones are not in it."""

    runs: int
    kept: int
    left_out: tuple[str, ...]
    size: int


def pack(paths: Sequence[Path], out: Path) -> Packed:
    """Write finished and failed runs into an archive; runs that are already in it stay.

    The same runs give the same bytes. A run that is found again replaces the line it had. Unfinished runs are left out.

    Args:
        paths: folders of runs or sweeps, or other archives.
        out: the archive, `NAME.jsonl`.
    """
    if out.suffix != ARCHIVE or (out.exists() and not out.is_file()):
        raise DataError(f"{out} is not a file whose name ends in {ARCHIVE}: choose another with --out")
    check_folder(out.parent)
    held = read_archive(out) if out.exists() else []
    for run in held:
        if not run.config:
            raise DataError(f"{run.place} is damaged: repair or move the archive before adding to it")
    runs = read_runs(paths)
    lines: dict[str, tuple[tuple[object, ...], str]] = {}
    left_out, kept = [*runs.unreadable], 0
    # Finished runs before failed ones, and newly found ones before those that the archive holds.
    found = [*((False, run) for run in runs.all), *((True, run) for run in held)]
    for old, run in sorted(found, key=lambda one: (one[1].status != "done", one[0])):
        key = json.dumps([run.config, run.data.get("sha256")], sort_keys=True)
        if run.status not in ("done", "failed") or not run.config:  # without the failed, results would look too good
            left_out.append(f"{run.place}: {run.status}, {run.reason}")
        elif not all(  # an archive keeps the returns alone
            np.allclose(scores, normalised(returns, run.reference), rtol=1e-6, atol=1e-6)
            for curve in run.curves.values()
            for scores, returns in zip(curve.scores, curve.returns, strict=True)
        ):
            reason = "the scores in eval.csv do not follow from its returns and the reference in config.json"
            left_out.append(f"{run.place}: {reason}")
        elif key not in lines:
            order = (run.task, run.agent, run.strategy, run.seed, key)
            lines[key] = order, to_line(run, _name(run, paths))
            kept += old
    if not lines:
        raise DataError("; ".join([f"there is nothing to pack below {', '.join(map(str, paths))}", *left_out[:3]]))
    data = "".join(line + "\n" for _, line in sorted(lines.values())).encode()
    with atomic_write(out) as unfinished:
        unfinished.write_bytes(data)
    return Packed(len(lines), kept, tuple(left_out), len(data))


def _name(run: Record, paths: Sequence[Path]) -> str:
    """Where a run was, below the path that was given; a run of an archive keeps its name."""
    if run.archive:
        return run.place.removeprefix(f"{run.archive}: ")
    place = Path(run.place)
    above = next((path for path in paths if place.is_relative_to(path) and place != path), place.parent)
    return place.relative_to(above).as_posix()


def archived_run(text: str) -> Record:
    """The run that `ARCHIVE:RUN` names."""
    file, _, name = text.rpartition(f"{ARCHIVE}:")
    runs = {run.place.partition(": ")[2]: run for run in read_archive(Path(file + ARCHIVE))} if file else {}
    if name not in runs:
        hint = suggest(name, runs) or (f"; the first is {next(iter(runs))!r}" if runs else "")
        raise DataError(f"{text}: there is no such run{hint}; write NAME{ARCHIVE}:RUN")
    if not runs[name].config:
        raise DataError(f"{text} {runs[name].reason}")
    return runs[name]


def agreement(archived: Record, again: Record) -> tuple[bool, str]:
    """Whether every evaluation of two runs has the same returns, in an archive's six digits, and how they differ."""
    total = 0
    for phase, curve in archived.curves.items():
        other = again.curves.get(phase)
        for step, theirs, ours in zip(curve.steps, curve.returns, other.returns if other else (), strict=False):
            total += 1
            if _rounded([theirs], 6) != _rounded([ours], 6):
                first = f"first at {phase} step {int(step):,}: mean return {theirs.mean():.6g}, here {ours.mean():.6g}"
                areas = [MEASURES[PRIMARY].of(run) for run in (archived, again)]
                return False, f"differs, {first}; area {areas[0]:.1f}, here {areas[1]:.1f}"
        if other is None or len(other.steps) != len(curve.steps):
            return False, f"differs: it has other evaluations of the phase {phase}"
    return True, f"agrees: {total} evaluations, every return in six digits"


# ---- one number per run ----------------------------------------------------------------------------------------------
class Measure(NamedTuple):
    """One number of a finished run."""

    of: Callable[[Record], float | None]
    title: str
    meaning: str


def area(steps: ArrayLike, scores: ArrayLike) -> float:
    """The area under a curve divided by its width: the score at an average moment of training.

    >>> area([0, 10, 20], [0.0, 10.0, 10.0])
    7.5
    """
    steps, scores = np.asarray(steps, float), np.asarray(scores, float)
    if len(steps) == 1:
        return float(scores[0])
    return float((np.diff(steps) * (scores[1:] + scores[:-1]) / 2.0).sum() / (steps[-1] - steps[0]))


def _online(run: Record) -> Floats:
    curve = run.curves["online"]
    return np.asarray(curve.means[curve.steps > 0], float)


def _pretrained(run: Record) -> float | None:
    return float(run.curves["pretrain"].means[-1]) if "pretrain" in run.curves else None


MEASURES: Mapping[str, Measure] = {
    "area": Measure(lambda run: area(run.curves["online"].steps, run.curves["online"].means),
                    "Area under the online curve", "the area under the online learning curve divided by its width, "
                    "that is, the score at an average step"),
    "last": Measure(lambda run: float(_online(run)[-1]), "Last evaluation", "the last online evaluation"),
    "best": Measure(lambda run: float(_online(run).max()), "Best evaluation", "the best online evaluation of each "
                    "seed, chosen afterwards and therefore too optimistic"),
    "drop": Measure(lambda run: None if (before := _pretrained(run)) is None else before - float(_online(run)[0]),
                    "Drop at the offline-to-online switch", "the pre-trained score minus the first one after "
                    "online updates; positive if the switch cost something"),
    "success": Measure(lambda run: 100.0 * float(all_[-1].mean()) if (all_ := run.curves["online"].successes) else None,
                       "Success rate", "the successful episodes of the last online evaluation, in %"),
    "pretrained": Measure(_pretrained, "Pre-trained", "the last evaluation before fine-tuning"),
}  # fmt: skip
PRIMARY = "area"
"""Single evaluations are noisy, the whole curve is less so. Comparisons are decided by it."""


# ---- runs that belong together ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RunGroup:
    """The finished seeds of one task, agent and variant of a strategy; unfinished ones, for curves, where none is."""

    task: str
    agent: str
    variant: str
    strategy: str
    runs: tuple[Record, ...]
    finished: bool

    @property
    def normalised(self) -> bool:
        return all(run.reference is not None for run in self.runs)

    @property
    def unit(self) -> str:
        return "normalised score" if self.normalised else "return"

    def values(self, measure: str) -> Floats:
        """One number per finished seed, of a row of `MEASURES`."""
        numbers = [MEASURES[measure].of(run) for run in self.runs] if self.finished else []
        return np.array([number for number in numbers if number is not None], float)

    @cached_property
    def curve(self) -> dict[str, tuple[Floats, Floats]]:
        """Per phase the steps at which all seeds were evaluated, and the mean score of each seed there."""
        found = {}
        for phase in ("pretrain", "online"):
            curves = [run.curves[phase] for run in self.runs if phase in run.curves]
            if len(curves) == len(self.runs):
                found[phase] = _aligned([(curve.steps, curve.means) for curve in curves])
        return found

    def metric(self, name: str, phase: str = "online") -> tuple[Floats, Floats] | None:
        """The steps and the values per seed of a column of metrics.csv; None where no seed has a number."""
        columns = [run.metrics.get(phase, {}) for run in self.runs]
        if not all(name in column for column in columns):
            return None
        steps, values = _aligned([(column["step"], column[name]) for column in columns])
        return (steps, values) if np.isfinite(values).any() else None


def _aligned(series: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """The steps that all series have, and their values there, one row per series."""
    steps = series[0][0]
    for other, _ in series[1:]:
        steps = np.intersect1d(steps, other)
    return steps, np.array([values[np.searchsorted(own, steps)] for own, values in series])


@dataclass(frozen=True)
class Results:
    """All groups of some runs, in the order in which they are shown."""

    runs: Runs
    groups: tuple[RunGroup, ...]
    order: tuple[str, ...]
    """All variants: strategies in the paper's order; within one, as their settings grow."""
    duplicates: tuple[Record, ...]
    """Runs with the settings and seed of another one; only the first counts."""

    def agents(self) -> list[str]:
        return sorted({group.agent for group in self.groups}, key=lambda name: (_rank(name, AGENTS), name))

    def file(self, agent: str) -> str:
        return file_names(self.agents())[agent]

    def tasks(self, agent: str) -> list[str]:
        return sorted({group.task for group in self.of(agent)})

    def of(self, agent: str, task: str | None = None) -> list[RunGroup]:
        return [group for group in self.groups if group.agent == agent and task in (None, group.task)]

    def variants(self, agent: str | None = None) -> list[str]:
        there = {group.variant for group in self.groups if agent in (None, group.agent)}
        return [variant for variant in self.order if variant in there]

    def group(self, task: str, agent: str, variant: str) -> RunGroup | None:
        return next((group for group in self.of(agent, task) if group.variant == variant), None)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Parts of file names for names that come from files and must not lead elsewhere; each is unique.

    >>> file_names(["iql", "my_module:A/B", "my_module:A-B"])
    {'iql': 'iql', 'my_module:A/B': 'my_module-A-B', 'my_module:A-B': 'my_module-A-B-2'}
    """
    found: dict[str, str] = {}
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9_]+", "-", name)[:60].strip("-") or "unnamed"
        found[name] = f"{safe}-{len(found)}" if safe in found.values() else safe
    return found


_SHORT = {
    "replay.temperature": "λ", "replay.effective": "ρ", "replay.clip": "clip", "replay.level": "level",
    "replay.likelihood": "likelihood", "schedule.online": "online", "schedule.pretrain": "pretrain",
    "schedule.updates": "updates",
}  # fmt: skip
"""How settings are named in a label; these also come first where runs must be told apart."""


def group_runs(runs: Runs) -> Results:
    """Group runs by task, agent and variant; settings other than the seed that differ become part of its name."""
    shown = [run for run in runs.all if run.curves]
    keys = _distinguishing_keys(shown)
    plain = _same_in_a_task(shown, {key for some in keys.values() for key in some})
    found: dict[tuple[str, str, str], list[Record]] = {}
    duplicates = []
    for run in sorted(shown, key=lambda run: (run.status != "done", run.seed, run.place)):
        label = _label(run, [key for key in keys[run.agent, run.strategy] if key not in plain[run.agent, run.task]])
        group = found.setdefault((run.task, run.agent, label), [])
        if any(other.seed == run.seed for other in group):
            duplicates.append(run)
        else:
            group.append(run)
    groups = []
    for (task, agent, variant), some in found.items():
        done = tuple(run for run in some if run.status == "done")
        groups.append(RunGroup(task, agent, variant, some[0].strategy, done or tuple(some), bool(done)))
    groups.sort(
        key=lambda group: (
            _rank(group.strategy, STRATEGIES), _rank(group.agent, AGENTS), group.agent, group.task, group.strategy,
            [(0, float(value), "") if isinstance(value, int | float) else (1, 0.0, format_value(value))
             for key in keys[group.agent, group.strategy] for value in [group.runs[0].config.get(key)]],
        )
    )  # fmt: skip
    order = list(dict.fromkeys(group.variant for group in groups))
    groups.sort(key=lambda group: (_rank(group.agent, AGENTS), group.agent, group.task, order.index(group.variant)))
    return Results(runs, tuple(groups), tuple(order), tuple(duplicates))


def _distinguishing_keys(runs: Sequence[Record]) -> dict[tuple[str, str], list[str]]:
    """Per agent and strategy the fewest settings that tell apart what differs by more than its seed."""
    found: dict[tuple[str, str], list[str]] = {}
    by_task: dict[tuple[str, str, str], list[Record]] = {}
    for run in runs:
        found.setdefault((run.agent, run.strategy), [])
        by_task.setdefault((run.agent, run.strategy, run.task), []).append(run)
    for (agent, strategy, _), some in by_task.items():
        chosen = found[agent, strategy]
        parts = {tuple(format_value(run.config.get(key)) for key in chosen) for run in some}
        for key in sorted(_differing(some), key=lambda key: (_rank(key, _SHORT), key)):
            finer = {tuple(format_value(run.config.get(k)) for k in (*chosen, key)) for run in some}
            if key not in chosen and len(finer) > len(parts):
                chosen.append(key)
                parts = finer
    # A setting that is not replay's own is named for all strategies of an agent, or for none.
    for (agent, _), chosen in found.items():
        others = [key for (a, _), keys in found.items() if a == agent for key in keys if key not in chosen]
        chosen += dict.fromkeys(key for key in others if not key.startswith("replay."))
    return found


def _same_in_a_task(runs: Sequence[Record], keys: Iterable[str]) -> dict[tuple[str, str], set[str]]:
    """Per agent and task the settings, not replay's own, with one value there that no other task has."""
    found: dict[tuple[str, str], set[str]] = {(run.agent, run.task): set() for run in runs}
    for key in (key for key in keys if not key.startswith("replay.")):
        values = {
            place: {format_value(r.config.get(key)) for r in runs if (r.agent, r.task) == place} for place in found
        }
        for place, here in values.items():
            others = (some for other, some in values.items() if other[0] == place[0] and other != place)
            if len(here) == 1 and not here & set().union(*others):
                found[place].add(key)
    return found


def _differing(runs: Sequence[Record]) -> set[str]:
    """The settings in which runs differ; one that a run does not have does not tell it apart."""
    keys = set().union(*(run.config for run in runs)) - {"seed", "task"}
    return {key for key in keys if len({format_value(run.config[key]) for run in runs if key in run.config}) > 1}


def _label(run: Record, keys: Sequence[str]) -> str:
    """A variant's name: the strategy and the settings that tell it apart; of several settings, those not at default."""
    row = STRATEGIES.get(run.strategy)
    defaults = asdict(row.settings("")) if row and len(keys) > 1 else {}
    values = {key: format_value(run.config.get(key)) for key in keys}
    shown = [key for key in keys if values[key] != format_value(defaults.get(key.removeprefix("replay."), defaults))]
    return " ".join([strategy_label(run.strategy), *(f"{_SHORT.get(key, key)}={values[key]}" for key in shown)])


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(format_value, value)) + "]"
    return str(value)


def _rank(name: str, order: Iterable[str]) -> int:
    return [*order, name].index(name)  # what is not in the table comes last
