"""A report: one HTML page that needs nothing else, with its tables and figures as files beside it."""

import html
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arb.errors import DataError
from arb.files import atomic_write, check_folder
from arb.lab.agents import agent_label
from arb.lab.metrics import REPLAY, Metric
from arb.progress import count
from arb.report import plots, stats
from arb.report.records import MEASURES, Floats, Record, Results, RunGroup, file_names, group_runs, read_runs, spaced
from arb.report.stats import mean_band
from arb.report.tables import Entry, Table, tables

PathLike = str | os.PathLike[str]
TITLE = "Offline-to-online runs compared"
MAX_POINTS = 150
"""Per line of a replay metric; a run of the paper has a thousand."""


@dataclass(frozen=True)
class Report:
    """What was written: the most important tables as text, the page, and all files with it."""

    text: str
    page: Path
    files: tuple[Path, ...]


def make_report(
    paths: PathLike | Iterable[PathLike], out: PathLike = "report", *, title: str = TITLE, baseline: str = "naive"
) -> Report:
    """Tables, figures and an interactive page of runs; `make_report(...).text` is the most important part in words.

    Several archives get a section each: their budgets and datasets do not belong in one table.

    >>> print(arb.make_report("runs", out="report").text)      # doctest: +SKIP

    Args:
        paths: a folder of runs or sweeps, at any depth, or an archive (`NAME.jsonl`), or several of them.
        out: the folder to write into. Other files in it are left alone.
        title: of the page.
        baseline: the strategy that others are compared with; the first that an agent has where this one is missing.
    """
    places = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    out = Path(out)
    if not places:
        raise DataError("a report needs a folder of runs or an archive: arb.make_report('runs')")
    check_folder(out)
    runs = read_runs(places)
    if not runs.all:
        nothing = f"there are no runs below {', '.join(map(str, places))}: a run folder holds a config.json"
        raise DataError("; ".join([nothing, *runs.unreadable]))
    parts = runs.by_archive()
    if sum(1 for part in parts.values() if part.all[0].archive) < 2:
        parts = {"": runs}
    folders = {name: f"/{file}" if name else "" for name, file in file_names(parts).items()}
    content: dict[str, bytes] = {}
    sections, texts = [], []
    for name, part in parts.items():
        results = group_runs(part)
        made = tables(results, baseline)
        for table in made:
            content |= {file: text.encode() for file, text in table.files(f"tables{folders[name]}").items()}
        with plots.themed("light"):
            for agent in results.agents():
                for kind, figure in plots.agent_figures(results, agent, baseline):
                    file = f"figures{folders[name]}/{kind}-{results.file(agent)}"
                    content |= {f"{file}.{ending}": data for ending, data in plots.rendered(figure).items()}
        sections.append(page_data(results, made, name, baseline))
        kinds = ("paired-1-",) if name else ("area-", "last-", "paired-1-")
        head = f"{name}\n{'═' * len(name)}\n" if name else ""
        shown = (table.text() for table in made if table.name.startswith(kinds))
        texts.append(head + "\n".join([*shown, missing_text(results)]))
    content["index.html"] = page(sections, runs.unreadable, title).encode()
    return Report("\n".join([*texts, *runs.unreadable]), out / "index.html", write_files(out, content))


def missing_text(results: Results, most: int = 10) -> str:
    runs = results.runs
    lines = ["The run is finished." if len(runs.all) == 1 else f"All {len(runs.all)} runs are finished."]
    if runs.missing:
        are = "is" if len(runs.missing) == 1 else "are"
        lines = [f"{len(runs.missing)} of {count(len(runs.all), 'run')} {are} missing from the tables:"]
        lines += [f"  {run.status:<10} {run.place}: {run.reason}" for run in runs.missing[:most]]
        if len(runs.missing) > most:
            lines.append(f"  ... and {len(runs.missing) - most} more, listed on the page")
    if results.duplicates:
        lines.append(f"{count(len(results.duplicates), 'run')} with the settings and seed of another: not counted.")
    return "\n".join(lines) + "\n"


# ---- the page --------------------------------------------------------------------------------------------------------
def live_page(paths: Sequence[Path], out: Path, seconds: int, title: str = TITLE) -> bool:
    """Write the page alone, for runs that go on: it loads itself anew; whether all runs are finished."""
    runs = read_runs(paths)
    results = group_runs(runs)
    content = page([page_data(results, tables(results))], runs.unreadable, title, seconds)
    write_files(out, {"index.html": content.encode()})
    return bool(runs.all) and not runs.missing


def page(sections: Sequence[Mapping[str, Any]], unreadable: Sequence[str], title: str, refresh: int = 0) -> str:
    """The HTML page; one that loads itself anew after some seconds, where they are given."""
    folder = resources.files("arb.report").joinpath("page_files")
    scripts = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("chart.js", "page.js")]
    parts = {
        "TITLE": html.escape(title),
        "REFRESH": f'<meta http-equiv="refresh" content="{refresh}">' if refresh else "",
        "STYLE": folder.joinpath("page.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join(scripts),
        "DATA": embedded({"sections": sections, "unreadable": unreadable}),
    }
    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    # In one pass: what is put in is not searched again.
    return re.sub("@(TITLE|REFRESH|STYLE|SCRIPT|DATA)@", lambda found: parts[found[1]], template)


def embedded(data: Any) -> str:
    """JSON that may stand inside a script tag: no letter of it can end the tag or start a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(results: Results, made: Sequence[Table], name: str = "", baseline: str = "naive") -> dict[str, Any]:
    """Everything that a section of the page shows, as plain values for JSON."""
    look, variants, runs = plots.looks(results), results.variants(), results.runs.all
    metrics = [metric for metric in _metrics(results) if any(g.metric(f"replay.{metric.name}") for g in results.groups)]
    subtitle = "No run has been evaluated yet; what was found is listed below."
    if variants:
        named = ", ".join(variants) if len(variants) <= 8 else f"{len(variants)} variants of replay"
        subtitle = f"{', '.join(map(agent_label, results.agents()))} fine-tuned with {named}."
    seeds = [len(group.runs) for group in results.groups if group.finished] or [0]
    return {
        "name": name,
        "subtitle": subtitle,
        "facts": [
            ("finished runs", str(len(results.runs.done))),
            ("datasets", str(len({group.task for group in results.groups}))),
            ("strategies", str(len(variants))),
            ("seeds", f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)}–{max(seeds)}"),
            ("not in the tables", str(len(results.runs.missing))),
        ],
        "variants": [{"name": v, "colour": look[v][0], "dash": look[v][1]} for v in variants],
        "agents": [{"id": a, "name": agent_label(a), "tasks": results.tasks(a)} for a in results.agents()],
        "measures": [
            {"id": measure, "title": kind.title}
            for measure, kind in MEASURES.items()
            if any(table.name.startswith(f"{measure}-") for table in made)
        ],
        "tables": [_table(table) for table in made],
        "differences": [found for agent in results.agents() if (found := _differences(results, agent, baseline))],
        "panels": [_panel(results.of(a, task), metrics) for a in results.agents() for task in results.tasks(a)],
        "metrics": [{"id": m.name, "title": m.title, "meaning": _meaning(m), "share": m.share} for m in metrics],
        "settings": _settings(results),
        "origins": _origins(runs),
        "runs": [_run(run, run in results.duplicates) for run in runs],
    }


def _numbers(values: ArrayLike) -> list[float | None]:
    """With five digits, which no eye on a chart exceeds; NaN becomes null."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def _table(table: Table) -> dict[str, Any]:
    rows = [{"labels": labels, "entries": [_entry(e) for e in entries]} for labels, entries in table.rows]
    return {
        "name": table.name, "kind": table.name.partition("-")[0], "title": table.title, "bold": table.legend,
        "corner": table.corner, "columns": table.columns, "rows": rows, "notes": table.notes,
    }  # fmt: skip


def _entry(entry: Entry) -> dict[str, Any]:
    if entry.value is None:
        return {"value": None, "mark": entry.mark}
    alone = replace(entry, std=None, low=None, high=None, n=None, mark="").shown()
    more = replace(entry, mark="").shown().removeprefix(alone).strip()
    minus = str.maketrans({"-": "−"})
    return {
        "value": entry.value, "text": alone.translate(minus), "more": more.translate(minus), "bold": entry.bold,
        "mark": entry.mark,
    }  # fmt: skip


def _differences(results: Results, agent: str, baseline: str) -> dict[str, Any] | None:
    """Paired differences to the baseline: their mean over datasets with its interval, and every dataset's."""
    rows = []
    for one in (one for one in stats.compared(results, agent, baseline) if one.normalised):
        values = one.over(one.normalised)
        dots = [{"name": task, "value": float(v.mean())} for task, v in zip(one.normalised, values, strict=True)]
        rows.append({"variant": one.variant, "dots": dots, **stats.t_interval(stats.headline(values))._asdict()})
    several = any(len(row["dots"]) > 1 for row in rows)
    return {"agent": agent_label(agent), "over": "datasets" if several else "seeds", "rows": rows} if rows else None


def _panel(groups: Sequence[RunGroup], metrics: Sequence[Metric]) -> dict[str, Any]:
    buffer, shown = plots.buffer_share(groups), []
    for group in groups:
        curve = [
            _banded(steps - (steps[-1] if phase == "pretrain" else 0), plots.band(groups, group, phase))
            for phase, (steps, _) in group.curve.items()
            if len(steps)
        ]
        series = {metric.name: group.metric(f"replay.{metric.name}") for metric in metrics}
        shown.append({
            "variant": group.variant, "finished": group.finished, "seeds": len(group.runs), "curve": curve,
            "metrics": {name: _metric(*found) for name, found in series.items() if found},
        })  # fmt: skip
    return {
        "task": groups[0].task, "agent": groups[0].agent,
        "unit": groups[0].unit + " ± standard error" * plots.is_alone(groups),
        "range": plots.score_range(groups), "squeeze": plots.squeeze(groups),
        "lines": [{"name": name, "y": y} for name, y in plots.reference_lines(groups).items()],
        "buffer": _metric(*buffer) if buffer else None, "groups": shown,
    }  # fmt: skip


def _metric(steps: Floats, values: Floats) -> dict[str, Any]:
    chosen = spaced(len(steps), MAX_POINTS)
    return _banded(steps[chosen], mean_band(values[:, chosen]))


def _banded(steps: Floats, found: tuple[Floats, Floats, Floats]) -> dict[str, Any]:
    mean, low, high = map(_numbers, found)
    band = {"low": None, "high": None} if low == high else {"low": low, "high": high}
    return {"x": steps.astype(int).tolist(), "y": mean, **band}


def _metrics(results: Results) -> list[Metric]:
    """The metrics of all strategies, and after them those that strategies report themselves, under their own names."""
    columns = set().union(*(run.metrics.get("online", ()) for group in results.groups for run in group.runs))
    names = {column.removeprefix("replay.") for column in columns if column.startswith("replay.")}
    own = sorted(names - {metric.name for metric in REPLAY})
    shown = [metric for metric in REPLAY if metric.name not in ("online_rows", "online_bound")]  # drawn with the share
    shown.sort(key=lambda metric: metric.name != "online_share")
    return [*shown, *(Metric(name, "reported by the strategy itself") for name in own)]


def _meaning(metric: Metric) -> str:
    text = ". ".join(part[:1].upper() + part[1:] for part in (metric.definition, metric.reading) if part)
    grey = " Grey: the online share of the buffer." if metric.name == "online_share" else ""
    return text.replace("`", "") + "." + grey


def _settings(results: Results) -> dict[str, Any]:
    """Settings that differ, per group; and those that do not."""
    runs = [run for group in results.groups for run in group.runs]
    keys = sorted(set().union(*(run.config for run in runs)) - {"seed"}) if runs else []
    values = {key: {_shown(run.config, key) for run in runs} for key in keys}
    differing = [k for k in keys if len(values[k]) > 1 and k not in ("task", "agent", "replay.strategy")]
    rows = [
        [f"{group.task} · {agent_label(group.agent)} · {group.variant}",
         *(_shown(group.runs[0].config, key) for key in differing)]
        for group in results.groups
    ]  # fmt: skip
    common = [[key, next(iter(values[key]))] for key in keys if len(values[key]) == 1]
    return {"differing": differing, "common": common, "rows": rows}


def _shown(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key, "—")
    return value if isinstance(value, str) else json.dumps(value)


def _origins(runs: Sequence[Record]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Tables of what the runs were made with: versions, and data."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, []).append(version)
    data = Counter(
        (run.task, run.env, str(run.data.get("rows", "?")), run.data_hash or "?") for run in runs if run.data
    )
    found = []
    if versions:
        found.append(("Versions", ["package", "version"], [[name, summarise(used)] for name, used in versions.items()]))
    if data:
        head = ["dataset", "environment", "rows", "SHA-256", "runs"]
        found.append(("Data", head, [[*key, str(n)] for key, n in sorted(data.items())]))
    return found


def summarise(values: Iterable[object]) -> str:
    """What runs have in common, or every value that there is with its number of runs."""
    found = Counter(str(value or "not recorded") for value in values)
    shown = found if len(found) == 1 else (f"{value} ({count(n, 'run')})" for value, n in sorted(found.items()))
    return ", ".join(shown)


def _run(run: Record, duplicate: bool) -> dict[str, Any]:
    what = f"{run.task} · {agent_label(run.agent)} · {run.strategy} · seed {run.seed}" if run.config else ""
    reason = "another run has the same settings and seed; only one of them counts" if duplicate else run.reason
    return {"folder": run.place, "status": run.status, "what": what, "reason": reason}


# ---- files -----------------------------------------------------------------------------------------------------------
def write_files(out: Path, content: Mapping[str, bytes]) -> tuple[Path, ...]:
    check_folder(out)
    for name, data in content.items():
        with atomic_write(out / name) as unfinished:
            unfinished.write_bytes(data)
    return tuple(out / name for name in content)
