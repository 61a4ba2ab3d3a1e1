"""The paper's tables of returns, with ours: the summary by groups of tasks, and every task of one algorithm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from arb.lab.algorithms import agent_label
from arb.paper import published
from arb.paper.published import STRATEGIES
from arb.progress import counts
from arb.report.records import Results, RunGroup
from arb.report.tables import Entry, Table, mean_entry, steps_of, with_best

Contradictions = Mapping[tuple[str, str, str], published.Contradiction]
TableRow = tuple[tuple[str, ...], tuple[Entry, ...]]
SETTINGS = {"replay.clip": [-12.0, 7.0], "replay.level": "trajectory"}


def ours(results: Results, agent: str, task: str, strategy: str) -> RunGroup | None:
    """Our runs of a cell of the paper; of several settings the paper's, and of those the longest training."""
    cells = [
        cell
        for cell in results.groups
        if (cell.agent, cell.task, cell.strategy) == (agent, task, strategy) and cell.finished and cell.normalised
    ]
    return max(cells, key=_nearness, default=None)


def _nearness(cell: RunGroup) -> tuple[int, int]:
    config = cell.runs[0].config
    wanted: dict[str, object] = dict(SETTINGS)
    if cell.agent in published.TEMPERATURES:
        wanted["replay.temperature"] = published.TEMPERATURES[cell.agent]
    online = config.get("schedule.online", 0)
    return sum(config.get(leaf) == value for leaf, value in wanted.items()), online if isinstance(online, int) else 0


def about_ours(cells: Iterable[RunGroup | None]) -> str:
    """How many seeds and steps our numbers rest on, beside the paper's."""
    found = [cell for cell in cells if cell is not None]
    theirs = f"the paper has {published.SEEDS} seeds of {published.STEPS:,} updates offline and as many steps online"
    if not found:
        return f"None of our runs belongs here; {theirs}."
    seeds = counts((len(cell.runs) for cell in found), "seed")
    return f"Ours: {seeds} (in parentheses) of {steps_of(found)}, last evaluation; {theirs}."


# ---- one algorithm ---------------------------------------------------------------------------------------------------
def detailed_table(results: Results, agent: str) -> Table:
    """Every task of the paper with one algorithm."""
    rows: list[TableRow] = []
    used: list[RunGroup | None] = []
    for group, tasks in published.tasks().items():
        cells = {(task, s): ours(results, agent, task, s) for task in tasks for s in STRATEGIES}
        used += cells.values()
        for task in tasks:
            rows.append(((task, "paper"), with_best([_printed(agent, task, s) for s in STRATEGIES])))
            rows += _own_row(task, [cells[task, s] for s in STRATEGIES])
        rows.append(((f"average, {published.GROUPS[group]}", "paper"), _printed_average(agent, group)))
        means = [_group_entry([cells[task, s] for task in tasks], 2) for s in STRATEGIES]
        if any(e.value is not None for e in means):
            rows.append(((f"average, {published.GROUPS[group]}", "ours"), with_best(means)))
    for task in _unknown(results, agent):
        cells_of = [ours(results, agent, task, s) for s in STRATEGIES]
        used += cells_of
        rows += _own_row(task, cells_of)
    notes = [*_notes_on(agent), about_ours(used)]
    title = f"Normalised returns with {agent_label(agent)}, published and ours"
    return Table(f"paper-{agent}", title, ("task", "source"), tuple(STRATEGIES.values()), tuple(rows), tuple(notes))


def _unknown(results: Results, agent: str) -> list[str]:
    """Tasks with finished runs of ours that the paper does not have."""
    known = {task for tasks in published.tasks().values() for task in tasks}
    tasks = [task for task in results.tasks(agent) if task not in known]
    return [task for task in tasks if any(ours(results, agent, task, s) for s in STRATEGIES)]


def _printed(agent: str, task: str, strategy: str) -> Entry:
    cell = published.detailed()[agent, task, strategy]
    mark = "‡" if (agent, task, strategy) in published.unattainable() else ""
    return Entry(cell.mean, cell.std, digits=2, mark=mark)


def _printed_average(agent: str, group: str) -> tuple[Entry, ...]:
    entries = []
    for strategy in STRATEGIES:
        cell = published.averages()[agent, group, strategy]
        mark = "†" if (agent, group, strategy) in published.average_contradictions() else ""
        entries.append(Entry(cell.mean, cell.std, digits=2, mark=mark))
    return with_best(entries)


def _own_row(task: str, cells: Sequence[RunGroup | None]) -> list[TableRow]:
    """Our numbers for a task; no row where there are none."""
    entries = [replace(mean_entry(cell.values("last")), digits=2) if cell else Entry() for cell in cells]
    return [((task, "ours"), with_best(entries))] if any(cells) else []


def _notes_on(agent: str) -> list[str]:
    notes = []
    for (_, group, strategy), found in _of(published.average_contradictions(), agent):
        notes.append(
            f"† {published.GROUPS[group]}, {STRATEGIES[strategy]}: printed {found.printed:.2f}, "
            f"the column's mean is {found.recomputed:.2f}."
        )
    if any(key[0] == agent for key in published.unattainable()):
        notes.append("‡ No four seeds with whole numbers of successes in 100 episodes have this mean and spread.")
    if agent == "famo2o":
        median, near = published.likeness("famo2o", "calql")
        notes.append(
            f"The published locomotion rows are nearly those of Cal-QL (median difference {median:.2f}, {near:.0%} of "
            "the cells within 2 points) and contradict the paper's summary: no target to reproduce."
        )
    return notes


def _of(contradictions: Contradictions, agent: str) -> list[tuple[tuple[str, str, str], published.Contradiction]]:
    return [(key, found) for key, found in contradictions.items() if key[0] == agent]


# ---- the summary -----------------------------------------------------------------------------------------------------
def summary_table(results: Results) -> Table:
    """The paper's main table: means over groups of tasks."""
    rows: list[TableRow] = []
    notes: list[str] = []
    used: list[RunGroup | None] = []
    for group, title in published.GROUPS.items():
        own: list[list[Entry]] = []
        for agent in ("calql", "pex", "famo2o"):
            name = agent_label(agent)
            rows.append(((title, name, "paper"), _printed_summary(agent, group)))
            notes += _summary_notes(agent, group)
            entries, tasks, cells = _own_summary(results, agent, group)
            used += cells
            own.append(entries)
            if tasks:
                rows.append(((title, name, "ours"), with_best(entries)))
                if len(tasks) < len(published.tasks()[group]):
                    of = len(published.tasks()[group])
                    notes.append(f"§ {title}, {name}: ours is over {len(tasks)} of {of} tasks ({', '.join(tasks)}).")
        rows.append(((title, "Average", "paper"), _printed_summary("average", group)))
        whole = [_mean_of(column) for column in zip(*own, strict=True)]
        if any(e.value is not None for e in whole):
            rows.append(((title, "Average", "ours"), with_best(whole)))
    for agent in ("calql", "pex", "famo2o"):  # tasks of which the paper knows nothing, each by its own name
        for task in _unknown(results, agent):
            row = [ours(results, agent, task, s) for s in STRATEGIES]
            used += row
            rows.append(((task, agent_label(agent), "ours"), with_best([_group_entry([cell]) for cell in row])))
    title = "Average normalised returns, published and ours"
    corner = ("tasks", "algorithm", "source")
    notes.append(about_ours(used))
    return Table("paper-main", title, corner, tuple(STRATEGIES.values()), tuple(rows), tuple(notes))


def _printed_summary(agent: str, group: str) -> tuple[Entry, ...]:
    wrong = published.summary_contradictions()
    return with_best(
        [
            Entry(published.summary()[agent, group, s].mean, mark="†" if (agent, group, s) in wrong else "")
            for s in STRATEGIES
        ]
    )


def _summary_notes(agent: str, group: str) -> list[str]:
    """What the detailed tables give where the summary says something else: one line per row."""
    found = [
        f"{STRATEGIES[s]} {wrong.recomputed:.2f}"
        for (_, of_group, s), wrong in _of(published.summary_contradictions(), agent)
        if of_group == group
    ]
    name = f"{published.GROUPS[group]}, {agent_label(agent)}"
    return [f"† {name}: the paper's detailed table gives {', '.join(found)}."] if found else []


def _own_summary(results: Results, agent: str, group: str) -> tuple[list[Entry], list[str], list[RunGroup]]:
    """Ours over the tasks that all strategies with runs share."""
    tasks = published.tasks()[group]
    cells = {(task, s): ours(results, agent, task, s) for task in tasks for s in STRATEGIES}
    present = [s for s in STRATEGIES if any(cells[task, s] for task in tasks)]
    shared = [task for task in tasks if present and all(cells[task, s] for s in present)]
    entries = [_group_entry([cells[task, s] for task in shared] if shared else []) for s in STRATEGIES]
    if shared and len(shared) < len(tasks):
        entries = [replace(e, mark="§") if e.value is not None else e for e in entries]
    return entries, shared, [cell for (task, _), cell in cells.items() if cell and task in shared]


def _group_entry(cells: Sequence[RunGroup | None], digits: int = 1) -> Entry:
    """The mean over tasks of the means over seeds, with the fewest seeds that a task has; needs all tasks."""
    values = [cell.values("last") for cell in cells if cell]
    if not values or len(values) < len(cells):
        return Entry()
    return Entry(float(np.mean([v.mean() for v in values])), n=min(map(len, values)), digits=digits)


def _mean_of(entries: Sequence[Entry]) -> Entry:
    """Over algorithms; only where all of them have all tasks."""
    values = [e.value for e in entries if e.value is not None and not e.mark]
    if len(values) < len(entries):
        return Entry()
    return Entry(float(np.mean(values)), n=min(e.n for e in entries if e.n is not None))
