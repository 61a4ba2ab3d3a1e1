"""A run as one line of an archive: written the same way every time, and checked when it is read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arb.data.tasks import normalised
from arb.errors import DataError
from arb.lab.runfolder import Curve
from arb.report.record import Floats, Record, bounded, described, figures, judged, number, tame
from arb.report.statistics import spaced

FORMAT = 1
"""Of a line in an archive."""
DIGITS = 6
"""Significant digits of what an archive keeps of a return."""
MOST_POINTS = 200
"""Points that an archive keeps of a replay figure, evenly spaced, the last among them."""


def to_line(record: Record, name: str) -> str:
    """A run as one line of an archive: the same bytes every time."""
    values = {
        "arb": FORMAT, "run": name, "status": record.status, "reason": record.reason, "config": record.config,
        "env": record.env, "reference": record.reference, "data": record.data, "versions": record.versions,
        "machine": record.machine,
        "evaluations": {phase: _packed_curve(curve) for phase, curve in record.curves.items()},
        "metrics": {phase: found for phase, columns in record.metrics.items() if (found := _packed_metrics(columns))},
    }  # fmt: skip
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _packed_curve(curve: Curve) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": [int(step) for step in curve.steps],
        "return": [[_rounded(value, DIGITS) for value in values] for values in curve.returns],
    }
    if curve.successes is not None:
        found["success"] = [[_rounded(value, 3) for value in values] for values in curve.successes]
    return found


def _packed_metrics(columns: Mapping[str, Floats]) -> dict[str, Any]:
    """The replay figures that have a number."""
    kept = {
        name: values for name, values in columns.items() if name.startswith("replay.") and np.isfinite(values).any()
    }
    if not kept:
        return {}
    chosen = spaced(len(columns["step"]), MOST_POINTS)
    found = {name: [_rounded(value, 4) for value in values[chosen]] for name, values in kept.items()}
    return {"step": [int(step) for step in columns["step"][chosen]], **found}


def _rounded(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


def from_line(place: str, text: str) -> Record:
    """A run from a line of an archive; a `DataError` says what is wrong with it."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DataError(f"is not JSON: {tame(problem, 80)}") from None
    if not isinstance(values, Mapping) or values.get("arb") != FORMAT:
        raise DataError(f'is not a run in format {FORMAT}: it lacks "arb": {FORMAT}')
    record = described(f"{place}: {tame(values.get('run', '?'))}", values)
    if values.get("status") not in ("done", "failed"):
        raise DataError("status must be done or failed")
    parts = {name: values.get(name) or {} for name in ("evaluations", "metrics")}
    if not all(isinstance(part, Mapping) and len(part) <= 10 for part in parts.values()):
        raise DataError("evaluations and metrics must be given by phase")
    return judged(
        replace(
            record,
            status=values["status"],
            reason=tame(values.get("reason") or ""),
            curves={tame(p): _curve(part, record.reference) for p, part in parts["evaluations"].items()},
            metrics={tame(p): _metrics(part) for p, part in parts["metrics"].items()},
        )
    )


def _curve(part: Any, reference: tuple[float, float] | None) -> Curve:
    """The evaluations of a phase from lists of steps and returns; scores follow from the returns."""
    if not isinstance(part, Mapping):
        raise DataError("evaluations must hold step and return")
    steps = _steps(part.get("step"), "an evaluation")
    found = {
        name: _episodes(part.get(name), len(steps), name)
        for name in ("return", "success")
        if name == "return" or part.get(name) is not None
    }
    scores = tuple(normalised(values, reference) for values in found["return"])
    return bounded(Curve(steps, scores, found["return"], found.get("success")))


def _episodes(values: Any, evaluations: int, name: str) -> tuple[Floats, ...]:
    if not isinstance(values, list) or len(values) != evaluations:
        raise DataError(f"{name} must hold a list of episodes for each evaluation")
    if not all(isinstance(episodes, list) and episodes for episodes in values):
        raise DataError(f"{name} has an evaluation without an episode")
    return tuple(np.array([number(value, name) for value in episodes], float) for episodes in values)


def _metrics(part: Any) -> dict[str, Floats]:
    """The figures of a phase, from columns by name."""
    if not isinstance(part, Mapping) or len(part) > 1000:
        raise DataError("metrics must hold columns by name")
    steps = _steps(part.get("step"), "metrics")
    columns = {tame(name): _column(values, tame(name)) for name, values in part.items() if name != "step"}
    for name, values in columns.items():
        if len(values) != len(steps):
            raise DataError(f"{name} has {len(values)} values for {len(steps)} steps")
    return {"step": steps, **columns}


def _column(values: Any, name: str) -> Floats:
    """A column of a replay figure, from a list of numbers and gaps."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DataError(f"{name} is not a list of numbers")
    try:
        found = np.array([math.nan if value is None else float(value) for value in values], float)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{name} has a value that is not a number") from None
    return figures(found)


def _steps(values: Any, name: str) -> Floats:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DataError(f"{name} has no list of steps")
    steps = np.array([number(value, f"a step of {name}") for value in values], float)
    if len(steps) == 0 or np.any(steps != np.floor(steps)) or np.any(steps < 0) or np.any(np.diff(steps) <= 0):
        raise DataError(f"the steps of {name} must be increasing whole numbers")
    return steps
