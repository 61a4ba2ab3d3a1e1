"""The paper's analyses of ARB itself: online share, trajectory or transition, temperature, clipping bounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from arb.lab.algorithms import agent_label
from arb.paper import published
from arb.paper.experiments import HOPPERS
from arb.paper.tables import about_ours
from arb.report.plots import scores_and_shares
from arb.report.records import Record, Results, RunGroup, Runs, format_value, group_runs
from arb.report.tables import Entry, Table, mean_entry

Chosen = tuple[Results, bool, str]
"""Our runs for an analysis, whether they are on the paper's agent and tasks, and what to say about that."""


def _chosen(results: Results, agent: str, tasks: Sequence[str], leaf: str | None = None) -> Chosen:
    """Ours for an analysis of a setting of ARB, or of all strategies; elsewhere only where the setting varies."""
    runs = [run for run in results.runs.all if run.curves and (leaf is None or run.strategy == "arb")]
    same = [run for run in runs if run.agent == agent and run.task in tasks]
    others = [run for run in runs if leaf is None or len(_values(runs, run, leaf)) > 1]
    said = f"The paper shows {agent_label(agent)} on {', '.join(tasks)}."
    if others and not same:
        said += " Ours are on other tasks or agents."
    return group_runs(Runs(results.runs.paths, tuple(same or others))), bool(same) or not others, said


def _values(runs: Sequence[Record], like: Record, leaf: str) -> set[str]:
    return {str(run.config.get(leaf)) for run in runs if (run.agent, run.task) == (like.agent, like.task)}


def online_ratio(results: Results) -> tuple[Table, Figure | None]:
    """Where batches come from over steps, and whether that is above the buffer's share."""
    chosen, _, said = _chosen(results, "famo2o", HOPPERS)
    rows = []
    for cell in chosen.groups:
        share, buffer = cell.metric("replay.online_share"), cell.metric("replay.online_rows")
        if share and buffer:
            mine, whole = share[1].mean(0), buffer[1].mean(0)
            at = [mine[round(part * (len(mine) - 1))] for part in (0.1, 0.5, 1.0)]
            numbers = [*at, whole[-1], np.mean(mine >= whole)]
            entries = tuple(Entry(float(100.0 * n), n=len(share[1]) if i == 0 else None) for i, n in enumerate(numbers))
            rows.append(((cell.task, agent_label(cell.agent), cell.variant), entries))
    notes = (
        said
        + " It gives a picture without numbers, and says that ARB's curve lies above the buffer's share throughout "
        "and rises most where the dataset is poor.",
        "In percent: the online share of a batch after a tenth, half and all of the steps, that of the buffer at the "
        "end, and the part of the time in which the former is not below the latter.",
        about_ours(chosen.groups),
    )
    columns = ("at 10%", "at 50%", "at the end", "buffer", "not below")
    title = "Online share of the batches"
    table = Table("paper-online-ratio", title, ("task", "agent", "strategy"), columns, tuple(rows), notes)
    return table, scores_and_shares(chosen, title) if rows else None


def trajectory(results: Results) -> tuple[Table, Figure | None]:
    """ARB that weighs trajectories, and ARB that weighs transitions."""
    known = {"trajectory": published.detailed()["calql", "antmaze-large-play-v2", "arb"]}
    claim = "It says that transitions draw more online data and end in lower scores."
    chosen = _chosen(results, "calql", ("antmaze-large-play-v2",), "replay.level")
    return _ablation("trajectory", "replay.level", chosen, known, claim, "ARB by trajectory and by transition")


def temperature(results: Results) -> tuple[Table, Figure | None]:
    """ARB's temperature."""
    known = {0.5: published.detailed()["pex", "antmaze-large-diverse-v2", "arb"]}
    claim = "It tests four temperatures without naming them, and says that a lower one draws online data sooner."
    chosen = _chosen(results, "pex", ("antmaze-large-diverse-v2",), "replay.temperature")
    return _ablation("temperature", "replay.temperature", chosen, known, claim, "ARB's temperature λ")


def _ablation(
    name: str, leaf: str, chosen: Chosen, known: dict[Any, published.Published], claim: str, title: str
) -> tuple[Table, Figure | None]:
    """One row per value of a setting: the published score where one is printed, ours, and our online share."""
    results, as_paper, said = chosen
    found = [(cell.runs[0].config.get(leaf), cell) for cell in results.groups]
    own = [value for value, _ in found]
    unrun = [value for value in known if as_paper and value not in own]
    rows = [(("", "", format_value(value)), (_printed(known[value]), Entry(), Entry())) for value in unrun]
    for value, cell in found:
        share = cell.metric("replay.online_share")
        end = Entry(float(100.0 * share[1].mean(0)[-1])) if share else Entry()
        printed = _printed(known[value]) if as_paper and value in known else Entry()
        rows.append(
            ((cell.task, agent_label(cell.agent), format_value(value)), (printed, mean_entry(cell.values("last")), end))
        )
    notes = (
        f"{said} {claim} The number printed for its default is that of its detailed table.",
        about_ours(results.groups),
    )
    corner = ("task", "agent", leaf.rpartition(".")[2])
    columns = ("paper", "ours", "online share at the end, %")
    table = Table(f"paper-{name}", title, corner, columns, tuple(rows), notes)
    return table, scores_and_shares(results, title) if results.groups else None


def clip(results: Results) -> tuple[Table, Figure | None]:
    """ARB's clipping bounds, each varied while the other keeps its default."""
    chosen, _, said = _chosen(results, "pex", ("antmaze-large-diverse-v2",), "replay.clip")
    where = list(dict.fromkeys((cell.agent, cell.task) for cell in chosen.groups))
    own: dict[tuple[str, float, tuple[str, str]], RunGroup] = {}
    for cell in chosen.groups:
        bounds = cell.runs[0].config.get("replay.clip", (-12.0, 7.0))
        if not (isinstance(bounds, list | tuple) and len(bounds) == 2 and all(isinstance(b, float) for b in bounds)):
            continue
        low, high = bounds
        if high == 7.0:
            own["low", float(low), (cell.agent, cell.task)] = cell
        if low == -12.0:
            own["high", float(high), (cell.agent, cell.task)] = cell
    keys = sorted(
        {*published.clip(), *((bound, value) for bound, value, _ in own)}, key=lambda key: (key[0] == "high", key[1])
    )
    rows = []
    for bound, value in keys:
        cells = [own.get((bound, value, place)) for place in where]
        printed = _printed(published.clip()[bound, value]) if (bound, value) in published.clip() else Entry()
        if bound == "high" and printed.value is not None:
            printed = replace(printed, mark="†")
        entries = (printed, *(mean_entry(cell.values("last")) if cell else Entry() for cell in cells))
        rows.append((({"low": "lower", "high": "upper"}[bound], f"{value:g}"), entries))
    notes = (
        said,
        "† The likelihood of the paper's appendix, a standard normal density averaged over action dimensions, is never "
        "above -0.919: no upper bound of this column can bind, so its differences cannot be an effect of the bound.",
        about_ours(chosen.groups),
    )
    columns = ("paper", *(f"ours, {agent_label(agent)} on {task}" for agent, task in where))
    return Table("paper-clip", "ARB's clipping bounds", ("bound", "value"), columns, tuple(rows), notes), None


def _printed(cell: published.Published) -> Entry:
    return Entry(cell.mean, cell.std, digits=2)
