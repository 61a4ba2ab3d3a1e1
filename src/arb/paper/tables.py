"""The paper's tables and figures, with our runs beside the published numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from arb.errors import DataError, suggest
from arb.lab.agents import agent_label
from arb.paper import published
from arb.paper.experiments import HOPPERS
from arb.paper.published import GROUPS, STRATEGIES, Published
from arb.progress import counts
from arb.report.page import missing_text, write_files
from arb.report.plots import looks, rendered, scores_and_shares, themed, tidy
from arb.report.records import Record, Results, RunGroup, Runs, format_value, group_runs, read_runs
from arb.report.stats import bootstrap, profile
from arb.report.tables import Entry, Table, mean_entry, steps_of, with_best

Rendered = tuple[Table, Figure | None]
TableRow = tuple[tuple[str, ...], tuple[Entry, ...]]
SETTINGS = {"replay.clip": [-12.0, 7.0], "replay.level": "trajectory"}


def render(name: str, paths: Sequence[Path], out: Path) -> str:
    """Write one of the paper's tables with our numbers into a folder, with a plot where there is one.

    Args:
        name: of `PAPER`.
        paths: folders with our runs.
        out: where `tables/paper-NAME.*` and `figures/paper-NAME.*` go.

    Returns:
        The table for a terminal.
    """
    if name not in PAPER:
        raise DataError(f"the paper has no {name!r} here{suggest(name, PAPER)}; there are {', '.join(PAPER)}")
    runs = read_runs(paths)
    results = group_runs(runs)
    with themed("light"):
        table, figure = PAPER[name](results)
        drawn = rendered(figure) if figure else {}
    content = {path: text.encode() for path, text in table.files().items()}
    write_files(out, content | {f"figures/{table.name}.{ending}": data for ending, data in drawn.items()})
    return "\n".join([table.text(), *([missing_text(results)] if runs.missing else []), *runs.unreadable])


def ours(results: Results, agent: str, task: str, strategy: str) -> RunGroup | None:
    """Our runs of a cell of the paper; of several settings the paper's, and of those the longest training."""

    def likeness(group: RunGroup) -> tuple[int, int]:
        config = group.runs[0].config
        wanted = {**SETTINGS, "replay.temperature": published.TEMPERATURES.get(agent, config.get("replay.temperature"))}
        online = config.get("schedule.online", 0)
        return sum(config.get(key) == value for key, value in wanted.items()), online if isinstance(online, int) else 0

    groups = [group for group in results.of(agent, task) if group.strategy == strategy]
    return max((group for group in groups if group.finished and group.normalised), key=likeness, default=None)


def about_ours(groups: Iterable[RunGroup | None]) -> str:
    """How many seeds and steps our numbers rest on, beside the paper's."""
    found = [group for group in groups if group is not None]
    theirs = f"the paper has {published.SEEDS} seeds of {published.STEPS:,} updates offline and as many steps online"
    if not found:
        return f"None of our runs belongs here; {theirs}."
    seeds = counts((len(group.runs) for group in found), "seed")
    return f"Ours: {seeds} (in parentheses) of {steps_of(found)}, last evaluation; {theirs}."


def _printed(cell: Published, digits: int = 2) -> Entry:
    return Entry(cell.mean, cell.std, digits=digits)


def _is_empty(entries: Iterable[Entry]) -> bool:
    return all(entry.value is None for entry in entries)


def _average(groups: Sequence[RunGroup | None], digits: int = 1) -> Entry:
    """The mean over tasks of the means over seeds, with the fewest seeds that a task has; needs all tasks."""
    values = [group.values("last") for group in groups if group]
    if not values or len(values) < len(groups):
        return Entry()
    return Entry(float(np.mean([v.mean() for v in values])), n=min(map(len, values)), digits=digits)


# ---- returns ---------------------------------------------------------------------------------------------------------
def detailed_table(results: Results, agent: str) -> Rendered:
    """Every task of the paper with one algorithm, and then those tasks of ours that the paper does not have."""
    rows: list[TableRow] = []
    used: dict[tuple[str, str], RunGroup | None] = {}

    def add_ours(task: str) -> None:
        groups = [used.setdefault((task, s), ours(results, agent, task, s)) for s in STRATEGIES]
        entries = [replace(mean_entry(group.values("last")), digits=2) if group else Entry() for group in groups]
        if not _is_empty(entries):
            rows.append(((task, "ours"), with_best(entries)))

    for group, tasks in published.tasks().items():
        for task in tasks:
            printed = [_printed(published.detailed()[agent, task, s]) for s in STRATEGIES]
            rows.append(((task, "paper"), with_best(printed)))
            add_ours(task)
        printed = [_printed(published.averages()[agent, group, s]) for s in STRATEGIES]
        rows.append(((f"average, {GROUPS[group]}", "paper"), with_best(printed)))
        means = [_average([used[task, s] for task in tasks], 2) for s in STRATEGIES]
        if not _is_empty(means):
            rows.append(((f"average, {GROUPS[group]}", "ours"), with_best(means)))
    for task in results.tasks(agent):
        if (task, "arb") not in used:
            add_ours(task)
    rows += _interquartile(used, ("all tasks, IQM", "ours"))
    title = f"Normalised returns with {agent_label(agent)}, published and ours"
    notes = (about_ours(used.values()), IQM_NOTE)
    table = Table(f"paper-{agent}", title, ("task", "source"), tuple(STRATEGIES.values()), tuple(rows), notes)
    return table, profiles(results, used, title)


def summary_table(results: Results) -> Rendered:
    """The paper's main table: means over groups of tasks."""
    agents = ("calql", "pex", "famo2o")
    rows: list[TableRow] = []
    notes: list[str] = []
    used: dict[tuple[str, str], RunGroup | None] = {}
    for group, title in GROUPS.items():
        tasks = published.tasks()[group]
        own: list[list[Entry]] = []
        for agent in (*agents, "average"):
            name = "Average" if agent == "average" else agent_label(agent)
            printed = [_printed(published.averages("summary")[agent, group, s], 1) for s in STRATEGIES]
            rows.append(((title, name, "paper"), with_best(printed)))
            if agent == "average":
                entries = [_mean_of(column) for column in zip(*own, strict=True)]
            else:
                found = {(task, s): ours(results, agent, task, s) for task in tasks for s in STRATEGIES}
                present = [s for s in STRATEGIES if any(found[task, s] for task in tasks)]
                shared = [task for task in tasks if present and all(found[task, s] for s in present)]
                entries = [_average([found[task, s] for task in shared] if shared else []) for s in STRATEGIES]
                if shared and len(shared) < len(tasks):
                    entries = [replace(e, mark="§" * (e.value is not None)) for e in entries]
                    few = f"{len(shared)} of {len(tasks)} tasks ({', '.join(shared)})"
                    notes.append(f"§ {title}, {name}: ours is over {few}.")
                used |= {(f"{agent} {task}", s): found[task, s] for task in shared for s in STRATEGIES}
                own.append(entries)
            if not _is_empty(entries):
                rows.append(((title, name, "ours"), with_best(entries)))
    known = {task for tasks in published.tasks().values() for task in tasks}
    for agent in agents:  # tasks of which the paper knows nothing, each by its own name
        for task in results.tasks(agent):
            groups = {s: ours(results, agent, task, s) for s in STRATEGIES}
            if task not in known and any(groups.values()):
                used |= {(f"{agent} {task}", s): group for s, group in groups.items()}
                means = [_average([group]) for group in groups.values()]
                rows.append(((task, agent_label(agent), "ours"), with_best(means)))
    rows += _interquartile(used, ("all tasks, IQM", "all", "ours"))
    title, corner = "Average normalised returns, published and ours", ("tasks", "algorithm", "source")
    notes += [about_ours(used.values()), IQM_NOTE]
    table = Table("paper-main", title, corner, tuple(STRATEGIES.values()), tuple(rows), tuple(notes))
    return table, profiles(results, used, title)


def _mean_of(entries: Sequence[Entry]) -> Entry:
    """Over algorithms; only where all of them have all tasks."""
    values = [e.value for e in entries if e.value is not None and not e.mark]
    if len(values) < len(entries):
        return Entry()
    return Entry(float(np.mean(values)), n=min(e.n for e in entries if e.n is not None))


IQM_NOTE = (
    "IQM: interquartile mean of all runs of tasks that all strategies have, with a stratified bootstrap interval."
)
Used = Mapping[tuple[str, str], RunGroup | None]


def _shared(used: Used) -> dict[str, list[Any]]:
    """The last scores of each strategy by task, of tasks that all strategies with runs have."""
    present = [s for s in STRATEGIES if any(group for (_, name), group in used.items() if name == s)]
    tasks = [task for task in dict.fromkeys(task for task, _ in used) if all(used[task, s] for s in present)]
    return {s: [group.values("last") for task in tasks if (group := used[task, s])] for s in present if tasks}


def _interquartile(used: Used, labels: tuple[str, ...]) -> list[TableRow]:
    found = {s: bootstrap(scores) for s, scores in _shared(used).items()}
    entries = [Entry(found[s].value, None, found[s].low, found[s].high) if s in found else Entry() for s in STRATEGIES]
    return [] if _is_empty(entries) else [(labels, tuple(entries))]


def profiles(results: Results, used: Used, title: str) -> Figure | None:
    """The share of runs above each score, of tasks that all strategies have."""
    shared = _shared(used)
    if not shared:
        return None
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    thresholds = np.linspace(min(0.0, *(v.min() for some in shared.values() for v in some)), 120.0, 241)
    for strategy, scores in shared.items():
        label = STRATEGIES[strategy]
        colour = looks(results).get(label, (None, ""))[0]
        axes.plot(thresholds, 100.0 * profile(scores, thresholds), label=label, color=colour)
    axes.set_xlabel("normalised score τ")
    axes.set_ylabel("runs above τ, %")
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.suptitle(title)
    return figure


# ---- analyses of ARB itself ------------------------------------------------------------------------------------------
def _chosen(results: Results, agent: str, tasks: Sequence[str], key: str = "") -> tuple[Results, bool, str]:
    """Our runs for an analysis, whether they are on the paper's agent and tasks, and what to say about that.

    With a key, those of ARB; on other tasks only where the setting varies.
    """

    def varies(run: Record) -> bool:
        alike = [other for other in runs if (other.agent, other.task) == (run.agent, run.task)]
        return len({str(other.config.get(key)) for other in alike}) > 1

    runs = [run for run in results.runs.all if run.curves and (not key or run.strategy == "arb")]
    same = [run for run in runs if run.agent == agent and run.task in tasks]
    others = [run for run in runs if not key or varies(run)]
    said = f"The paper shows {agent_label(agent)} on {', '.join(tasks)}."
    if others and not same:
        said += " Ours are on other tasks or agents."
    return group_runs(Runs(tuple(same or others))), bool(same) or not others, said


def online_ratio(results: Results) -> Rendered:
    """Where batches come from over steps, and whether that is above the buffer's share."""
    chosen, _, said = _chosen(results, "famo2o", HOPPERS)
    rows = []
    for group in chosen.groups:
        share, buffer = group.metric("replay.online_share"), group.metric("replay.online_rows")
        if share and buffer:
            mine, whole = share[1].mean(0), buffer[1].mean(0)
            at = [mine[round(part * (len(mine) - 1))] for part in (0.1, 0.5, 1.0)]
            numbers = [*at, whole[-1], np.mean(mine >= whole)]
            entries = tuple(Entry(float(100.0 * n), n=len(share[1]) if i == 0 else None) for i, n in enumerate(numbers))
            rows.append(((group.task, agent_label(group.agent), group.variant), entries))
    meaning = (
        "In percent: online share of a batch; that of the buffer at the end; the time in which it is not below it."
    )
    notes = (f"{said} It gives a plot without numbers.", meaning, about_ours(chosen.groups))
    columns = ("at 10%", "at 50%", "at the end", "buffer", "not below")
    title = "Online share of the batches"
    table = Table("paper-online-ratio", title, ("task", "agent", "strategy"), columns, tuple(rows), notes)
    return table, scores_and_shares(chosen, title) if rows else None


def ablation(everything: Results, *, key: str, default: Any, agent: str, task: str, title: str) -> Rendered:
    """One row per value of a setting: the published score where one is printed, ours, and our online share."""
    results, as_paper, said = _chosen(everything, agent, (task,), key)
    printed = _printed(published.detailed()[agent, task, "arb"])
    rows: list[TableRow] = []
    values = [group.runs[0].config.get(key) for group in results.groups]
    if as_paper and default not in values:
        rows.append((("", "", format_value(default)), (printed, Entry(), Entry())))
    for value, group in zip(values, results.groups, strict=True):
        share = group.metric("replay.online_share")
        end = Entry(float(100.0 * share[1].mean(0)[-1])) if share else Entry()
        theirs = printed if as_paper and value == default else Entry()
        labels = (group.task, agent_label(group.agent), format_value(value))
        rows.append((labels, (theirs, mean_entry(group.values("last")), end)))
    notes = (f"{said} The number printed for the default is from its detailed table.", about_ours(results.groups))
    name, columns = key.rpartition(".")[2], ("paper", "ours", "online share at the end, %")
    file = "paper-trajectory" if name == "level" else f"paper-{name}"
    table = Table(file, title, ("task", "agent", name), columns, tuple(rows), notes)
    return table, scores_and_shares(results, title) if results.groups else None


def clip(results: Results) -> Rendered:
    """ARB's clipping bounds, each varied while the other keeps its default."""
    chosen, _, said = _chosen(results, "pex", ("antmaze-large-diverse-v2",), "replay.clip")
    where = list(dict.fromkeys((group.agent, group.task) for group in chosen.groups))
    own: dict[tuple[str, float, tuple[str, str]], RunGroup] = {}
    for group in chosen.groups:
        low, high = group.runs[0].config.get("replay.clip", (-12.0, 7.0))
        if high == 7.0:
            own["low", float(low), (group.agent, group.task)] = group
        if low == -12.0:
            own["high", float(high), (group.agent, group.task)] = group
    keys = sorted(
        {*published.clip(), *((bound, value) for bound, value, _ in own)}, key=lambda k: (k[0] == "high", k[1])
    )
    rows = []
    for bound, value in keys:
        groups = [own.get((bound, value, place)) for place in where]
        printed = _printed(published.clip()[bound, value]) if (bound, value) in published.clip() else Entry()
        entries = (printed, *(mean_entry(group.values("last")) if group else Entry() for group in groups))
        rows.append((({"low": "lower", "high": "upper"}[bound], f"{value:g}"), entries))
    columns = ("paper", *(f"ours, {agent_label(agent)} on {task}" for agent, task in where))
    notes = (said, about_ours(chosen.groups))
    return Table("paper-clip", "ARB's clipping bounds", ("bound", "value"), columns, tuple(rows), notes), None


PAPER: Mapping[str, Callable[[Results], Rendered]] = {
    "main": summary_table,
    **{agent: partial(detailed_table, agent=agent) for agent in ("calql", "pex", "famo2o", "iql")},
    "online-ratio": online_ratio,
    "trajectory": partial(
        ablation, key="replay.level", default="trajectory", agent="calql", task="antmaze-large-play-v2",
        title="ARB by trajectory and by transition",
    ),
    "temperature": partial(
        ablation, key="replay.temperature", default=0.5, agent="pex", task="antmaze-large-diverse-v2",
        title="ARB's temperature λ",
    ),
    "clip": clip,
}  # fmt: skip
"""How our runs are shown beside the paper's, under the names of its experiments."""
