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


# ---- returns ---------------------------------------------------------------------------------------------------------
class _Returns:
    """The rows of a table with a column per strategy, and our runs behind them by task and strategy."""

    def __init__(self, results: Results):
        self.results, self.rows = results, list[TableRow]()
        self.used: dict[tuple[str, str], RunGroup | None] = {}

    def find(self, agent: str, task: str, key: str) -> list[RunGroup | None]:
        """Our runs of a task, one group per strategy, remembered under a key."""
        return [self.used.setdefault((key, s), ours(self.results, agent, task, s)) for s in STRATEGIES]

    def add(self, labels: tuple[str, ...], entries: Sequence[Entry], best: bool = True) -> None:
        """A row, unless it is empty."""
        if any(entry.value is not None for entry in entries):
            self.rows.append((labels, with_best(entries) if best else tuple(entries)))

    def finished(self, name: str, title: str, corner: tuple[str, ...], notes: Sequence[str] = ()) -> Rendered:
        """With the interquartile mean and the profile of all runs of tasks that all strategies with runs have."""
        present = [s for s in STRATEGIES if any(group for (_, name), group in self.used.items() if name == s)]
        tasks = [t for t in dict.fromkeys(task for task, _ in self.used) if all(self.used[t, s] for s in present)]
        shared = {s: [g.values("last") for t in tasks if (g := self.used[t, s])] for s in present if tasks}
        found = {s: bootstrap(scores) for s, scores in shared.items()}
        iqm = [Entry(found[s].value, None, found[s].low, found[s].high) if s in found else Entry() for s in STRATEGIES]
        self.add(("all tasks, IQM", *["all"] * (len(corner) - 2), "ours"), iqm, best=False)
        meaning = "interquartile mean of all runs of tasks that all strategies have"
        said = (*notes, about_ours(self.used.values()), f"IQM: {meaning}, with a stratified bootstrap interval.")
        table = Table(name, title, corner, tuple(STRATEGIES.values()), tuple(self.rows), said)
        if not shared:
            return table, None
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        thresholds = np.linspace(min(0.0, *(v.min() for some in shared.values() for v in some)), 120.0, 241)
        for strategy, scores in shared.items():
            label = STRATEGIES[strategy]
            colour = looks(self.results).get(label, (None, ""))[0]
            axes.plot(thresholds, 100.0 * profile(scores, thresholds), label=label, color=colour)
        axes.set_xlabel("normalised score τ")
        axes.set_ylabel("runs above τ, %")
        tidy(axes)
        figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
        figure.suptitle(title)
        return table, figure


def _average(groups: Sequence[RunGroup | None], digits: int = 1) -> Entry:
    """The mean over tasks of the means over seeds, with the fewest seeds that a task has; needs all tasks."""
    values = [group.values("last") for group in groups if group]
    if not values or len(values) < len(groups):
        return Entry()
    return Entry(float(np.mean([v.mean() for v in values])), n=min(map(len, values)), digits=digits)


def detailed_table(results: Results, agent: str) -> Rendered:
    """Every task of the paper with one algorithm, and then those tasks of ours that the paper does not have."""
    made, known = _Returns(results), published.tasks()

    def add(task: str) -> None:
        groups = made.find(agent, task, task)
        made.add((task, "ours"), [replace(mean_entry(g.values("last")), digits=2) if g else Entry() for g in groups])

    for group, tasks in known.items():
        for task in tasks:
            made.add((task, "paper"), [_printed(published.detailed()[agent, task, s]) for s in STRATEGIES])
            add(task)
        average = f"average, {GROUPS[group]}"
        made.add((average, "paper"), [_printed(published.averages()[agent, group, s]) for s in STRATEGIES])
        made.add((average, "ours"), [_average([made.used[task, s] for task in tasks], 2) for s in STRATEGIES])
    for task in results.tasks(agent):
        if not any(task in tasks for tasks in known.values()):
            add(task)
    title = f"Normalised returns with {agent_label(agent)}, published and ours"
    return made.finished(f"paper-{agent}", title, ("task", "source"))


def summary_table(results: Results) -> Rendered:
    """The paper's main table: means over groups of tasks."""
    made, agents, notes = _Returns(results), ("calql", "pex", "famo2o"), []
    for group, title in GROUPS.items():
        tasks = published.tasks()[group]
        own: list[list[Entry]] = []
        for agent in (*agents, "average"):
            name = "Average" if agent == "average" else agent_label(agent)
            printed = published.averages("summary")
            made.add((title, name, "paper"), [_printed(printed[agent, group, s], 1) for s in STRATEGIES])
            if agent == "average":  # only where all algorithms have all tasks
                whole = [[e for e in column if e.value is not None and not e.mark] for column in zip(*own, strict=True)]
                entries = [
                    Entry(float(np.mean([e.value for e in column])), n=min(e.n or 0 for e in column))
                    if len(column) == len(agents) else Entry()
                    for column in whole
                ]  # fmt: skip
            else:
                found = {(task, s): ours(results, agent, task, s) for task in tasks for s in STRATEGIES}
                present = [s for s in STRATEGIES if any(found[task, s] for task in tasks)]
                shared = [task for task in tasks if present and all(found[task, s] for s in present)]
                entries = [_average([found[task, s] for task in shared]) for s in STRATEGIES]
                if 0 < len(shared) < len(tasks):
                    entries = [replace(e, mark="§" * (e.value is not None)) for e in entries]
                    few = f"{len(shared)} of {len(tasks)} tasks ({', '.join(shared)})"
                    notes.append(f"§ {title}, {name}: ours is over {few}.")
                made.used |= {(f"{agent} {task}", s): found[task, s] for task in shared for s in STRATEGIES}
                own.append(entries)
            made.add((title, name, "ours"), entries)
    known = {task for tasks in published.tasks().values() for task in tasks}
    for agent in agents:  # tasks of which the paper knows nothing, each by its own name
        for task in results.tasks(agent):
            if task not in known:
                means = [_average([group]) for group in made.find(agent, task, f"{agent} {task}")]
                made.add((task, agent_label(agent), "ours"), means)
    title = "Average normalised returns, published and ours"
    return made.finished("paper-main", title, ("tasks", "algorithm", "source"), notes)


def _printed(cell: Published, digits: int = 2) -> Entry:
    return Entry(cell.mean, cell.std, digits=digits)


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
    meaning = "online share of a batch; that of the buffer at the end; the time in which it is not below it"
    notes = (f"{said} It gives a plot without numbers.", f"In percent: {meaning}.", about_ours(chosen.groups))
    columns = ("at 10%", "at 50%", "at the end", "buffer", "not below")
    title = "Online share of the batches"
    table = Table("paper-online-ratio", title, ("task", "agent", "strategy"), columns, tuple(rows), notes)
    return table, scores_and_shares(chosen, title) if rows else None


def ablation(everything: Results, *, key: str, agent: str, task: str, title: str, default: Any = None) -> Rendered:
    """One row per value of a setting: the published score where one is printed, ours, and our online share.

    Of most settings the paper prints the score of the default; of the clipping bounds, that of each value of one while
    the other keeps its default.
    """
    results, as_paper, said = _chosen(everything, agent, (task,), key)
    printed = [(default, published.detailed()[agent, task, "arb"])]
    if default is None:
        bounds = published.clip().items()
        printed = [([value, 7.0] if end == "low" else [-12.0, value], cell) for (end, value), cell in bounds]
    theirs = {format_value(value): _printed(cell) for value, cell in printed} if as_paper else {}
    rows: list[TableRow] = []
    for group in results.groups:
        value, share = format_value(group.runs[0].config.get(key)), group.metric("replay.online_share")
        end = Entry(float(100.0 * share[1].mean(0)[-1])) if share else Entry()
        entries = (theirs.pop(value, Entry()), mean_entry(group.values("last")), end)
        rows.append(((group.task, agent_label(group.agent), value), entries))
    rows = [*((("", "", value), (cell, Entry(), Entry())) for value, cell in theirs.items()), *rows]
    name, columns = key.rpartition(".")[2], ("paper", "ours", "online share at the end, %")
    file = "paper-trajectory" if name == "level" else f"paper-{name}"
    table = Table(file, title, ("task", "agent", name), columns, tuple(rows), (said, about_ours(results.groups)))
    return table, scores_and_shares(results, title) if results.groups else None


LARGE = "antmaze-large-diverse-v2"
PAPER: Mapping[str, Callable[[Results], Rendered]] = {
    "main": summary_table,
    **{agent: partial(detailed_table, agent=agent) for agent in ("calql", "pex", "famo2o", "iql")},
    "online-ratio": online_ratio,
    "trajectory": partial(
        ablation, key="replay.level", agent="calql", task="antmaze-large-play-v2",
        title="ARB by trajectory and by transition", default="trajectory",
    ),
    "temperature": partial(
        ablation, key="replay.temperature", agent="pex", task=LARGE, title="ARB's temperature λ", default=0.5
    ),
    "clip": partial(ablation, key="replay.clip", agent="pex", task=LARGE, title="ARB's clipping bounds"),
}  # fmt: skip
"""How our runs are shown beside the paper's, under the names of its experiments."""
