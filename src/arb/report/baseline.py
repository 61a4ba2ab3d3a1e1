"""Strategies against a baseline, seed by seed: tables of paired differences, and which comparisons need more seeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arb.lab.algorithms import agent_label
from arb.lab.strategies import strategy_label
from arb.progress import count
from arb.report import paired
from arb.report.cells import MEASURES, PRIMARY, Results, Seeds, gather
from arb.report.record import Record
from arb.report.runs import read_runs
from arb.report.statistics import CONFIDENCE, ByTask, Floats
from arb.report.tables import Entry, Table, estimated

BASELINES = ("naive", "parallel")
LEVEL = 1.0 - CONFIDENCE
Rows = Mapping[tuple[str, ...], Mapping[str, ByTask]]
"""Of a table of differences: by the labels of a row, differences by column, one array per task."""
SECONDARY = {"last": "last evaluation", "regret": "regret", "drop": "drop at the switch"}


@dataclass(frozen=True)
class Comparison:
    """A variant against a baseline: runs of the same task, seed, data and settings, those of replay apart."""

    agent: str
    variant: str
    strategy: str
    baseline: str
    pairs: Mapping[str, tuple[tuple[Record, Record], ...]]
    """By task, in the order of seeds: the variant's run, and the baseline's."""

    def differences(self, measure: str = PRIMARY) -> dict[str, Floats]:
        """By task: one number per seed, the variant's minus the baseline's; tasks without a number are left out."""
        found = {}
        for task, pairs in self.pairs.items():
            numbers = [(MEASURES[measure].of(ours), MEASURES[measure].of(theirs)) for ours, theirs in pairs]
            values = [a - b for a, b in numbers if a is not None and b is not None]
            if values:
                found[task] = np.array(values)
        return found

    @property
    def normalised(self) -> tuple[str, ...]:
        """The tasks whose differences may be averaged."""
        return tuple(t for t, pairs in self.pairs.items() if all(run.reference for pair in pairs for run in pair))

    def over(self, tasks: Iterable[str], measure: str = PRIMARY) -> list[Floats]:
        """The differences of some tasks."""
        found = self.differences(measure)
        return [found[task] for task in tasks if task in found]


def comparisons(results: Results, baseline: str) -> list[Comparison]:
    """Every variant that is not the baseline and has at least one pair with it."""
    cells = [cell for cell in results.cells if cell.finished]
    base: dict[str, Record] = {}
    for cell in cells:
        for run in cell.runs if cell.strategy == baseline else ():
            base.setdefault(_start(run), run)
    found = []
    for agent in results.agents():
        for variant in results.variants(agent):
            same = [cell for cell in cells if (cell.agent, cell.variant) == (agent, variant)]
            if same and same[0].strategy != baseline:
                pairs = {cell.task: _paired(cell, base) for cell in same}
                pairs = {task: some for task, some in pairs.items() if some}
                if pairs:
                    found.append(Comparison(agent, variant, same[0].strategy, baseline, pairs))
    return found


def _start(run: Record) -> str:
    """What the runs of a pair share: everything but the replay strategy and its settings."""
    shared = {leaf: value for leaf, value in run.config.items() if not leaf.startswith("replay.")}
    return json.dumps([shared, run.data.get("sha256")], sort_keys=True)


def _paired(cell: Seeds, base: Mapping[str, Record]) -> tuple[tuple[Record, Record], ...]:
    return tuple((run, base[_start(run)]) for run in sorted(cell.runs, key=lambda run: run.seed) if _start(run) in base)


# ---- tables ----------------------------------------------------------------------------------------------------------
def verdict(differences: Sequence[Floats], corrected: float | None, margin: float | None = paired.MARGIN) -> str:
    """What may be said: a corrected p-value below 5%, an interval within the margin, or nothing."""
    found = paired.t_interval(differences)
    if found.low is None or found.high is None or corrected is None:
        return "cannot tell"
    if corrected < LEVEL:
        return "better" if found.value > 0 else "worse"
    if margin is not None and -margin < found.low and found.high < margin:
        return "no difference that matters"
    return "cannot tell"


def overall_table(found: Sequence[Comparison], agent: str, tasks: Sequence[str], name: str) -> Table:
    """One row per variant: differences over some tasks, of the area first."""
    normalised = all(task in one.normalised for one in found for task in tasks if task in one.pairs)
    corrected = paired.holm({one.variant: paired.p_value(one.over(tasks)) for one in found})
    measures = [m for m in SECONDARY if any(one.over(tasks, m) for one in found)]
    rows = []
    for one in found:
        values = one.over(tasks)
        says = verdict(values, corrected[one.variant], paired.MARGIN if normalised else None)
        p = corrected[one.variant]
        entries = [
            estimated(paired.t_interval(values), best=says in ("better", "worse")),
            estimated(paired.bootstrap(values)),
            Entry(p, digits=3),
            estimated(paired.improved(values), digits=2),
            *(estimated(paired.t_interval(v)) if (v := one.over(tasks, m)) else Entry() for m in measures),
        ]
        size = f"{sum(map(len, values))} on {count(len(values), 'task')}"
        rows.append(((one.variant, size, says), tuple(entries)))
    base = strategy_label(found[0].baseline)
    columns = ["area", "area, bootstrap", "p, corrected", "pairs improved", *(SECONDARY[m] for m in measures)]
    where = tasks[0] if len(tasks) == 1 else "all tasks with a normalised score"
    title = f"{agent_label(agent)}: paired difference to {base}, {where}"
    corner = ("strategy", "pairs", "by area")
    return Table(name, title, corner, tuple(columns), tuple(rows), _notes(base, _tested(corrected)), MARKED)


MARKED = "differs from zero at the 5% level after correction"


def _tested(corrected: Mapping[Any, float | None]) -> int:
    """How many comparisons have a p-value: with one seed there is none."""
    return sum(p is not None for p in corrected.values())


def _notes(base: str, comparisons: int) -> tuple[str, ...]:
    return (
        f"A run minus the run of {base} with the same task, seed and pre-trained agent; mean over seeds, then tasks.",
        f"In brackets Student's {CONFIDENCE:.0%} interval of the mean, which is right with few seeds if differences "
        "are about normal. The bootstrap's is too narrow with few seeds: it contains the true difference in 79% of "
        "cases, not 95%, with four seeds of one task, and in 86% with three seeds of twelve tasks.",
        f"p-values are for the area only, corrected for {count(comparisons, 'comparison')} (Holm).",
        f"No difference that matters: the interval lies within ±{paired.MARGIN:g} points of a normalised score.",
    )


def difference_table(
    rows: Rows,
    corner: tuple[str, ...],
    baseline: str,
    title: str = "",
    name: str = "differences",
) -> Table:
    """Differences of the area, each with its interval, and whether it stands after correction for the whole table.

    Args:
        rows: differences to the baseline; none where they are not known.
        corner: what the labels are.
        baseline: the strategy that was subtracted.
        title: of the table.
        name: of its files.
    """
    values = {(labels, column): some for labels, row in rows.items() for column, some in row.items() if some}
    corrected = paired.holm({key: paired.p_value(some) for key, some in values.items()})
    columns = tuple(dict.fromkeys(column for row in rows.values() for column in row))

    def entry(key: tuple[tuple[str, ...], str]) -> Entry:
        if key not in values:
            return Entry()
        some, p = values[key], corrected[key]
        return estimated(paired.t_interval(some), best=p is not None and p < LEVEL, n=sum(map(len, some)))

    order = ", then over tasks" if any(len(some) > 1 for some in values.values()) else ""
    body = tuple((labels, tuple(entry((labels, column)) for column in columns)) for labels in rows)
    remain = "Marked differences remain" if any(e.best for _, entries in body for e in entries) else "None remains"
    notes = (
        f"A run minus the run of {strategy_label(baseline)} with the same seed and pre-trained agent: mean over "
        f"seeds{order}, Student's {CONFIDENCE:.0%} interval, number of pairs.",
        f"{remain} after correction for the {count(_tested(corrected), 'comparison')} of this table with an interval "
        "(Holm).",
    )
    return Table(name, title, corner, columns, body, notes, MARKED)


def task_table(found: Sequence[Comparison], agent: str, name: str) -> Table:
    """Rows are tasks, columns variants."""
    tasks = sorted({task for one in found for task in one.pairs})
    rows: Rows = {(task,): {one.variant: one.over([task]) for one in found} for task in tasks}
    base = found[0].baseline
    title = f"{agent_label(agent)}: paired difference in area to {strategy_label(base)}, task by task"
    return difference_table(rows, ("task",), base, title, name)


def paired_tables(results: Results) -> list[Table]:
    """Differences to each baseline: over all tasks whose scores may be averaged, on single tasks otherwise, by task."""
    made = []
    for baseline in BASELINES:
        everything = comparisons(results, baseline)
        for agent in results.agents():
            found = [one for one in everything if one.agent == agent]
            scored = sorted({task for one in found for task in one.normalised})
            plain = sorted({task for one in found for task in one.pairs} - set(scored))
            for number, tasks in enumerate([tasks for tasks in (scored, *([t] for t in plain)) if tasks], start=1):
                there = [one for one in found if one.over(tasks)]
                made.append(overall_table(there, agent, tasks, f"paired-{baseline}-{number}-{results.file(agent)}"))
            if len(scored) + len(plain) > 1:
                made.append(task_table(found, agent, f"paired-{baseline}-tasks-{results.file(agent)}"))
    return made


# ---- which comparisons need more seeds -------------------------------------------------------------------------------
class Undecided(NamedTuple):
    """A cell that needs more seeds."""

    task: str
    agent: str
    strategy: str
    variant: str
    config: Mapping[str, Any]
    """Of its runs, without the seed."""
    seeds: int
    """Pairs it has."""
    wanted: int
    """Seeds to continue with."""


def undecided(
    paths: Sequence[Path],
    *,
    baseline: str = "naive",
    margin: float | None = paired.MARGIN,
    looks: Sequence[int] = paired.LOOKS,
    confidence: float = CONFIDENCE,
) -> list[Undecided]:
    """The cells whose comparison with the baseline is not decided yet, by the rule of `paired.decide` on the area.

    Every task is a question of its own. The baseline is listed too, with as many seeds as its comparisons ask for. A
    cell without any finished run is not listed: start it with the first of `looks`.

    Args:
        paths: folders of runs, or archives.
        baseline: the strategy to compare with.
        margin: a smaller difference does not matter, in points of a normalised score; plain returns have no margin.
        looks: numbers of seeds at which a comparison may end.
        confidence: of all looks at a comparison together.
    """
    results = gather(read_runs(paths))
    wanted: dict[int, Undecided] = {}
    for cell in (cell for cell in results.cells if cell.finished and cell.strategy != baseline):
        bases = [b for b in results.cells if (b.task, b.agent, b.strategy) == (cell.task, cell.agent, baseline)]
        runs = {_start(run): run for base in bases if base.finished for run in base.runs}
        values = np.array([_area(ours) - _area(theirs) for ours, theirs in _paired(cell, runs)])
        rule = paired.decide([values], looks=looks, margin=margin if cell.normalised else None, confidence=confidence)
        if rule.wanted is None:
            continue
        for one in (cell, *bases):
            if one.finished:
                known = wanted.get(id(one))
                most = max(rule.wanted, known.wanted if known else 0)
                config = {leaf: value for leaf, value in one.runs[0].config.items() if leaf != "seed"}
                wanted[id(one)] = Undecided(one.task, one.agent, one.strategy, one.variant, config, rule.seeds, most)
    return [wanted[id(cell)] for cell in results.cells if id(cell) in wanted]


def _area(run: Record) -> float:
    found = MEASURES[PRIMARY].of(run)
    assert found is not None  # every finished run has an online curve
    return found
