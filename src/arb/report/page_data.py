"""What the page shows, as plain values for JSON."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.lab.algorithms import agent_label
from arb.lab.strategies import FIGURES
from arb.progress import count
from arb.report import statistics
from arb.report.cells import MEASURES, Results, Seeds
from arb.report.comparison import Group
from arb.report.looks import looks
from arb.report.record import Record
from arb.report.tables import Entry, Table

MOST_POINTS = 150
"""Per line of a diagnostic; a run of the paper has a thousand."""

DIAGNOSTICS = {
    # column of metrics.csv: title, meaning, whether it lies between 0 and 1
    "online_share": ("Online share", "The part of a batch that comes from online data; grey: of the buffer.", True),
    "drawn_online_share": ("Drawn online share", "The same, counted over the batches that were drawn.", True),
    "effective_share": ("Effective share", "Effective sample size 1/Σp² per row: 1 if sampling is uniform.", True),
    "entropy": ("Entropy", "Of the sampling distribution, relative to a uniform one: 1 if sampling is uniform.", True),
    "top_trajectories": ("Top trajectories", "The mass that the heaviest 1% of the trajectories hold.", True),
    "clipped_low": ("Clipped below", "The part of the scores at the lower bound of the clip.", True),
    "clipped_high": ("Clipped above", "The part of the scores at the upper bound of the clip.", True),
    "temperature": ("Temperature", "ARB: the temperature λ in use; where it sets itself, as solved.", False),
    "replay_volume": ("Replay volume", "Draws per effective row since the last refresh.", False),
    "age": ("Age", "The expected age of a drawn row, in insertions.", False),
    "collected_return": ("Collected return", "Mean raw return of the episodes that ended while collecting.", False),
    "ratio_loss": ("Ratio loss", "BERB: the loss of the learned density ratio.", False),
    "online_priority": ("Online priority", "BERB: the mean priority of online rows.", False),
}

MEANINGS = {
    "IQM": "interquartile mean: of the middle half of all runs",
    "median": "of all runs",
    "mean": "of all runs",
    "optimality gap": "how far below 100 on average; lower is better",
}


def page_data(results: Results, together: Sequence[Group], tables: Sequence[Table]) -> dict[str, Any]:
    """Everything the page needs."""
    look = looks({cell.variant: cell.strategy for cell in results.cells})
    return {
        "subtitle": _subtitle(results),
        "facts": _facts(results),
        "variants": [{"name": v, "colour": look[v][0], "dash": look[v][1]} for v in results.variants()],
        "agents": [{"id": a, "name": agent_label(a), "tasks": results.tasks(a)} for a in results.agents()],
        "measures": [
            {"id": name, "title": kind.title}
            for name, kind in MEASURES.items()
            if any(table.name.startswith(f"{name}-") for table in tables)
        ],
        "meanings": MEANINGS,
        "tables": [_table(table) for table in tables],
        "cells": [_cell(cell) for cell in results.cells],
        "diagnostics": _diagnostics(results),
        "groups": [_group(group) for group in together],
        "settings": _settings(results),
        "origins": _origins(results.runs.all),
        "damaged": list(results.runs.damaged),
        "runs": [_run(run, run in results.doubles) for run in results.runs.all],
    }


def embedded(data: Any) -> str:
    """JSON that may stand inside a script tag: no letter of it can end the tag or start a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _numbers(values: ArrayLike) -> list[float | None]:
    """With five digits, which no eye on a chart exceeds; NaN becomes null."""
    found = np.asarray(values, float).tolist()
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in found]


def _subtitle(results: Results) -> str:
    agents = ", ".join(agent_label(agent) for agent in results.agents())
    variants = results.variants()
    if not variants:
        return "No run has been evaluated yet; what was found is listed below."
    named = ", ".join(variants[:-1]) + " and " + variants[-1] if len(variants) > 1 else variants[0]
    return f"{agents} fine-tuned with {named}."


def _facts(results: Results) -> list[tuple[str, str]]:
    counts = [len(cell.runs) for cell in results.cells if cell.finished] or [0]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
    tasks = {cell.task for cell in results.cells}
    return [
        ("finished runs", str(len(results.runs.done))),
        ("tasks", str(len(tasks))),
        ("strategies", str(len(results.variants()))),
        ("seeds per cell", seeds),
        ("not in the tables", str(len(results.runs.lacking))),
    ]


def _table(table: Table) -> dict[str, Any]:
    kind = table.name.partition("-")[0]
    rows = [{"labels": labels, "entries": [_entry(e) for e in entries]} for labels, entries in table.rows]
    return {
        "name": table.name, "kind": kind, "title": table.title, "marked": table.marked, "corner": table.corner,
        "columns": table.columns, "rows": rows, "notes": table.notes,
    }  # fmt: skip


def _entry(entry: Entry) -> dict[str, Any]:
    """The number apart from what is said about it, so that the page can set the latter smaller."""
    if entry.value is None:
        return {"value": None, "mark": entry.mark}
    whole = replace(entry, mark="").shown()
    alone = f"{entry.value:.{entry.digits}f}"
    return {
        "value": entry.value, "text": alone, "more": whole.removeprefix(alone).strip(), "best": entry.best,
        "mark": entry.mark,
    }  # fmt: skip


def _cell(cell: Seeds) -> dict[str, Any]:
    curve = []
    for phase, (steps, values) in cell.curve.items():
        if len(steps):
            curve.append(_banded(steps - (steps[-1] if phase == "pretrain" else 0), values))
    metrics = {}
    for name in ("online_rows", *_figures([cell])):
        found = cell.metric(f"replay.{name}")
        if found:
            chosen = statistics.spaced(len(found[0]), MOST_POINTS)
            metrics[name] = _banded(found[0][chosen], found[1][:, chosen])
    return {
        "task": cell.task, "agent": cell.agent, "variant": cell.variant, "strategy": cell.strategy, "unit": cell.unit,
        "finished": cell.finished, "seeds": len(cell.runs), "curve": curve, "metrics": metrics,
    }  # fmt: skip


def _banded(steps: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, Any]:
    """Mean over seeds with one standard deviation; without a band for one seed."""
    mean = values.mean(0)
    band: dict[str, Any] = {"low": None, "high": None}
    if len(values) > 1:
        std = values.std(0, ddof=1)
        band = {"low": _numbers(mean - std), "high": _numbers(mean + std)}
    return {"x": steps.astype(int).tolist(), "y": _numbers(mean), **band}


def _diagnostics(results: Results) -> list[dict[str, Any]]:
    return [
        {"id": name, "title": title, "meaning": meaning, "share": share}
        for name, (title, meaning, share) in _figures(results.cells).items()
        if any(cell.metric(f"replay.{name}") for cell in results.cells)
    ]


def _figures(cells: Sequence[Seeds]) -> dict[str, tuple[str, str, bool]]:
    """The diagnostics, and after them the figures that strategies report beside `FIGURES`, under their own names."""
    columns = set().union(*(run.metrics.get("online", ()) for cell in cells for run in cell.runs))
    replay = {column.removeprefix("replay.") for column in columns if column.startswith("replay.")}
    own = sorted(replay - {*FIGURES, *DIAGNOSTICS})
    titles = {name: name.replace("_", " ").capitalize() for name in own}
    return DIAGNOSTICS | {name: (titles[name], "Reported by the strategy itself.", False) for name in own}


def _group(group: Group) -> dict[str, Any]:
    computed = group.aggregates
    by_statistic = {
        name: [{"variant": variant, **found[name]._asdict()} for variant, found in computed.items()]
        for name in next(iter(computed.values()))
    }
    hero = group.hero
    better = [
        {"variant": other, **found._asdict()} for (one, other), found in group.improvements.items() if one == hero
    ]
    thresholds = group.thresholds
    profile = []
    for variant, scores in group.scores.items():
        band = statistics.profile_band(scores, thresholds)
        low, high = (_numbers(side) for side in band) if band else (None, None)
        y = _numbers(statistics.profile(scores, thresholds))
        profile.append({"variant": variant, "x": _numbers(thresholds), "y": y, "low": low, "high": high})
    about = f"{', '.join(group.tasks)}; {group.seeds} per cell, areas under the online curves."
    return {
        "agent": agent_label(group.agent), "name": group.name, "about": about, "normalised": group.normalised,
        "aggregates": by_statistic, "hero": hero, "improvements": better, "profile": profile,
    }  # fmt: skip


def _settings(results: Results) -> dict[str, Any]:
    """Settings that differ, per cell; and those that do not."""
    runs = [run for cell in results.cells for run in cell.runs]
    leaves = sorted(set().union(*(run.config for run in runs)) - {"seed"}) if runs else []
    values = {leaf: {_spelt(run.config.get(leaf)) for run in runs} for leaf in leaves}
    shown = ("task", "agent", "replay.strategy")
    differing = [leaf for leaf in leaves if len(values[leaf]) > 1 and leaf not in shown]
    rows = [
        [f"{cell.task} · {agent_label(cell.agent)} · {cell.variant}",
         *(_spelt(cell.runs[0].config.get(leaf)) for leaf in differing)]
        for cell in results.cells
    ]  # fmt: skip
    common = [[leaf, next(iter(values[leaf]))] for leaf in leaves if len(values[leaf]) == 1]
    return {"differing": differing, "common": common, "rows": rows}


def _origins(runs: Sequence[Record]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Tables of what the runs were made with: versions, and data."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, []).append(version)
    data = Counter(
        (run.task, run.env, *(str(run.data.get(name, "?")) for name in ("rows", "sha256"))) for run in runs if run.data
    )
    found = []
    if versions:
        lines = [[name, told(used)] for name, used in versions.items()]
        found.append(("Versions", ["package", "version"], lines))
    if data:
        head = ["task", "environment", "rows", "SHA-256", "runs"]
        found.append(("Data", head, [[*key, str(n)] for key, n in sorted(data.items())]))
    return found


def told(values: Iterable[object]) -> str:
    """What runs have in common, or every value that there is with its number of runs.

    >>> told(["1.2", "1.2"]), told(["b", "a", "b", None])
    ('1.2', 'a (1 run), b (2 runs), not recorded (1 run)')
    """
    counts = Counter(str(value or "not recorded") for value in values)
    return ", ".join(
        counts if len(counts) == 1 else (f"{value} ({count(n, 'run')})" for value, n in sorted(counts.items()))
    )


def _run(run: Record, double: bool) -> dict[str, Any]:
    what = f"{run.task} · {agent_label(run.agent)} · {run.strategy} · seed {run.seed}" if run.config else ""
    reason = "another folder holds the same setting and seed; only one of them counts" if double else run.reason
    return {"folder": run.place, "status": run.status, "what": what, "reason": reason}


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
