"""Find run folders and read them; what cannot be read is listed with its reason."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError

Floats = NDArray[np.float64]
Status = Literal["done", "unfinished", "failed", "missing"]
"""A folder that cannot be read counts as failed."""


@dataclass(frozen=True)
class Curve:
    """The evaluations of one phase: per step the scores and returns of its episodes."""

    steps: Floats
    scores: tuple[Floats, ...]
    returns: tuple[Floats, ...]

    @property
    def means(self) -> Floats:
        """The mean score of each evaluation."""
        return np.array([values.mean() for values in self.scores])


@dataclass(frozen=True)
class Run:
    """What one folder holds, or why it does not."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    """Every setting under its full name, e.g. `replay.strategy`."""
    status: Status = "missing"
    reason: str = ""
    env: str = ""
    reference: tuple[float, float] | None = None
    """Returns of score 0 and 100; None where scores are plain returns."""
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By phase, `pretrain` and `online`."""
    metrics: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    """By phase and column; always with the column `step`."""

    @property
    def task(self) -> str:
        """The task, without the prefix that D4RL's may have."""
        return str(self.config.get("task", "?")).removeprefix("d4rl:")

    @property
    def agent(self) -> str:
        """The algorithm."""
        return str(self.config.get("agent", "?"))

    @property
    def strategy(self) -> str:
        """The replay strategy."""
        return str(self.config.get("replay.strategy", "?"))

    @property
    def seed(self) -> int:
        """The seed; -1 where the configuration has none."""
        seed = self.config.get("seed", -1)
        return seed if isinstance(seed, int) else -1


@dataclass(frozen=True)
class Runs:
    """All runs below some paths, in a stable order."""

    paths: tuple[Path, ...]
    all: tuple[Run, ...]
    damaged: tuple[str, ...] = ()
    """A sentence for each plan that cannot be read: what it planned and was not started, nobody knows."""

    @property
    def done(self) -> tuple[Run, ...]:
        """The finished ones, from which all tables are made."""
        return tuple(run for run in self.all if run.status == "done")

    @property
    def lacking(self) -> tuple[Run, ...]:
        """The others."""
        return tuple(run for run in self.all if run.status != "done")


def read_runs(paths: Sequence[Path]) -> Runs:
    """Every run folder, and every planned run, at any depth below the paths."""
    planned: dict[Path, Mapping[str, Any]] = {}
    damaged: list[str] = []
    folders: set[Path] = set()
    for path in map(Path, paths):
        if not path.is_dir():
            raise DataError(f"{path} is no folder: name folders of runs, or of sweeps")
        folders |= {file.parent for name in ("config.json", "FAILED") for file in _visible(path, name)}
        for plan in _visible(path, "plan.json"):
            try:
                planned |= _planned(plan)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                damaged.append(f"{plan} cannot be read ({_said(problem)}): runs that were not started are not counted")
    # A run is done once per place, whatever way its path is spelt.
    places = {folder.resolve(): folder for folder in sorted(folders)}
    missing = {folder.resolve(): folder for folder in sorted(planned) if folder.resolve() not in places}
    plans = {folder.resolve(): config for folder, config in planned.items()}
    found = [_read(folder, plans.get(place, {})) for place, folder in places.items()]
    found += [Run(folder, plans[place], "missing", "planned, but not started") for place, folder in missing.items()]
    return Runs(tuple(map(Path, paths)), tuple(sorted(found, key=lambda run: str(run.folder))), tuple(damaged))


def _visible(path: Path, name: str) -> Iterator[Path]:
    """Files of a name below a path; hidden folders hold caches and unfinished work, policies their own settings."""
    for file in path.rglob(name):
        inner = file.relative_to(path).parts[:-1]
        if not any(part.startswith(".") or part in ("policy", "checkpoint") for part in inner):
            yield file


def _planned(plan: Path) -> dict[Path, Mapping[str, Any]]:
    cells = json.loads(plan.read_text())["cells"]
    return {plan.parent / cell["folder"]: dict(cell["config"]) for cell in cells}


def _read(folder: Path, planned: Mapping[str, Any]) -> Run:
    """A folder's content; a file that is broken fails the run, not the report."""
    failed = folder / "FAILED"
    try:
        reason = (failed.read_text(errors="replace").strip().splitlines() or ["no reason given"])[0]
    except OSError:
        reason = ""
    try:
        if not (folder / "config.json").exists():
            return Run(folder, planned, "failed", reason)
        run = _described(folder)
        curves, metrics = _curves(folder / "eval.csv"), _metrics(folder / "metrics.csv")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return Run(folder, planned, "failed", f"cannot be read: {_said(problem)}")
    status: Status = "unfinished"
    if (folder / "DONE").exists():
        status, reason = "done", ""
        if "online" not in curves or not any(curves["online"].steps > 0):
            status, reason = "failed", "has DONE, but no online evaluation in eval.csv"
    elif failed.exists():
        status = "failed"
    else:
        reason = _progress(run.config, curves, metrics)
    return replace(run, status=status, reason=reason, curves=curves, metrics=metrics)


def _described(folder: Path) -> Run:
    described = json.loads((folder / "config.json").read_text())
    reference = described.get("reference")
    return Run(
        folder,
        dict(described["config"]),
        env=str(described.get("env", "")),
        reference=(float(reference[0]), float(reference[1])) if reference else None,
        data=dict(described.get("data") or {}),
        versions={str(name): str(version) for name, version in (described.get("versions") or {}).items()},
    )


def _curves(path: Path) -> dict[str, Curve]:
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in _rows(path):
        steps = found.setdefault(row["phase"], {})
        steps.setdefault(int(row["step"]), []).append((float(row["score"]), float(row["return"])))
    curves = {}
    for phase, steps in found.items():
        episodes = [np.array(steps[step]) for step in sorted(steps)]
        scores, returns = (tuple(values[:, column] for values in episodes) for column in (0, 1))
        curves[phase] = Curve(np.array(sorted(steps), float), scores, returns)
    return curves


def _metrics(path: Path) -> dict[str, dict[str, Floats]]:
    found: dict[str, dict[str, list[float]]] = {}
    for row in _rows(path):
        columns = found.setdefault(row["phase"], {})
        for name, text in row.items():
            if name != "phase":
                columns.setdefault(name, []).append(float(text) if text else np.nan)
    return {phase: {name: np.array(values) for name, values in columns.items()} for phase, columns in found.items()}


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table; one that was cut off in the middle is an error that names its line."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, restkey="?")
        for row in reader:
            if None in row.values() or "?" in row:
                raise ValueError(
                    f"{path.name}, line {reader.line_num}: {len(reader.fieldnames or ())} columns expected"
                )
            yield row


def _progress(config: Mapping[str, Any], curves: Mapping[str, Curve], metrics: Mapping[str, Any]) -> str:
    for phase in ("online", "pretrain"):
        steps = metrics.get(phase, {}).get("step", curves[phase].steps if phase in curves else ())
        if len(steps):
            total = config.get(f"schedule.{phase}", "?")
            of = f"{total:,}" if isinstance(total, int) else total
            return f"at {phase} step {int(max(steps)):,} of {of}"
    return "nothing done yet"


def _said(problem: Exception) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return f"{text} is missing" if isinstance(problem, KeyError) else text
