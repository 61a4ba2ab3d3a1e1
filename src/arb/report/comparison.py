"""Strategies compared: tables per agent, and aggregates over tasks whose scores may be added up."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from arb.lab.algorithms import agent_label
from arb.lab.strategies import OURS
from arb.progress import counts
from arb.report import statistics
from arb.report.baseline import paired_tables
from arb.report.cells import MEASURES, PRIMARY, Results, Seeds
from arb.report.statistics import Estimate, Floats
from arb.report.tables import Entry, Table, estimated, with_best


def entry(values: Floats) -> Entry:
    """Mean and sample standard deviation over seeds."""
    if not len(values):
        return Entry()
    return Entry(float(values.mean()), statistics.spread(values), n=len(values))


def score_table(results: Results, agent: str, measure: str = PRIMARY) -> Table:
    """Rows are tasks, columns the variants of strategies, after the pre-trained score that they start from."""
    kind, tasks, variants = MEASURES[measure], results.tasks(agent), results.variants(agent)
    kinds = {task: {cell.normalised for cell in results.of(agent, task)} for task in tasks}
    units = {task: " / ".join("score" if kind else "return" for kind in sorted(kinds[task])) for task in tasks}
    corner = ("task", "unit") if len(set(units.values())) > 1 else ("task",)
    rows = []
    empty = 0
    for task in tasks:
        cells = [results.cell(task, agent, variant) for variant in variants]
        entries = [entry(cell.values(measure)) if cell else Entry() for cell in cells]
        empty += sum(e.value is None for e in entries)
        before = [_pretrained(cells)] if measure in STARTED else []
        rows.append(((task, units[task])[: len(corner)], (*before, *with_best(entries, kind.lower_is_better))))
    own = results.of(agent)
    notes = [f"Mean ± sample standard deviation over seeds (their number) of {kind.meaning}."]
    notes.append(f"Runs of {steps_of(own)}; an evaluation has {episodes_of(own)}.")
    if empty:
        notes.append(f"{empty} of {len(tasks) * len(variants)} cells have no finished run.")
    if any(e.n == 1 for _, entries in rows for e in entries):
        notes.append("A cell of one seed has no standard deviation: it does not show how much seeds differ.")
    if any(len({e.n for e in entries[-len(variants) :] if e.n}) > 1 for _, entries in rows):
        notes.append("Cells of a row may have different seeds: compare strategies by their paired differences.")
    title = f"{agent_label(agent)}: {kind.title.lower()}, {' or '.join(sorted({cell.unit for cell in own}))}"
    columns = (*(["pre-trained"] if measure in STARTED else []), *variants)
    return Table(f"{measure}-{results.file(agent)}", title, corner, columns, tuple(rows), tuple(notes))


STARTED = ("area", "last", "best")
"""Measures whose tables show the pre-trained score beside them."""


def _pretrained(cells: Iterable[Seeds | None]) -> Entry:
    """The score before fine-tuning, which the strategies of a seed share."""
    by_seed = {
        run.seed: MEASURES["pretrained"].of(run) for cell in cells if cell and cell.finished for run in cell.runs
    }
    return entry(np.array([value for value in by_seed.values() if value is not None], float))


def episodes_of(cells: Iterable[Seeds]) -> str:
    """How many episodes an evaluation has."""
    curves = (curve for cell in cells for run in cell.runs for curve in run.curves.values())
    return counts((len(scores) for curve in curves for scores in curve.scores), "episode")


def _amount(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def steps_of(cells: Iterable[Seeds]) -> str:
    """How much training the runs had."""
    leaves = ("schedule.pretrain", "schedule.online")
    plans = {tuple(_amount(run.config.get(leaf, "?")) for leaf in leaves) for cell in cells for run in cell.runs}
    return " or ".join(f"{offline} updates offline and {online} steps online" for offline, online in sorted(plans))


# ---- over tasks ------------------------------------------------------------------------------------------------------
AGGREGATES: Mapping[str, Callable[..., Floats]] = {
    "IQM": statistics.iqm,
    "median": np.median,
    "mean": np.mean,
    "optimality gap": lambda values, axis: statistics.optimality_gap(values, axis=axis),
}
"""Statistics over all runs of a group; the last needs scores that are normalised."""


@dataclass(frozen=True)
class Group:
    """Tasks of one agent that may be put together, and the scores of each variant on them."""

    agent: str
    name: str
    tasks: tuple[str, ...]
    normalised: bool
    scores: Mapping[str, tuple[Floats, ...]]
    """By variant: one array per task."""
    hero: str
    """The variant whose improvement over the others is shown: ARB where it is there, else the last."""

    @property
    def seeds(self) -> str:
        """How many a cell has."""
        return counts((len(values) for scores in self.scores.values() for values in scores), "seed")

    @property
    def says_more_than_its_cells(self) -> bool:
        """Whether there is something to compare, and more than one run to put together."""
        runs = max(sum(map(len, scores)) for scores in self.scores.values())
        return runs > 1 and len(self.tasks) + len(self.scores) > 2

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Estimate]]:
        """By variant and statistic."""
        kinds = {name: of for name, of in AGGREGATES.items() if self.normalised or name != "optimality gap"}
        return {
            variant: {name: statistics.estimate(scores, of) for name, of in kinds.items()}
            for variant, scores in self.scores.items()
        }

    @cached_property
    def improvements(self) -> dict[tuple[str, str], Estimate]:
        """The probability of improvement of one variant over another, for every ordered pair."""
        return {
            (one, other): statistics.estimate_improvement(self.scores[one], self.scores[other])
            for one, other in permutations(self.scores, 2)
        }

    @property
    def thresholds(self) -> Floats:
        """Where performance profiles are drawn: evenly spaced scores, a little beyond all those of the group."""
        scores = np.concatenate([values for by_task in self.scores.values() for values in by_task])
        margin = 0.05 * (float(np.ptp(scores)) or 1.0)
        return np.linspace(scores.min() - margin, scores.max() + margin, 101)


def groups(results: Results) -> list[Group]:
    """Per agent: all tasks with normalised scores together, and every other task by itself.

    Plain returns of different tasks have different scales and are never put together. To compare like with like, a
    group holds the tasks that all its variants have finished runs of. Where there is nothing to compare or to put
    together, there is no group.
    """
    found = []
    for agent in results.agents():
        cells = [cell for cell in results.of(agent) if cell.finished]
        scored = [cell for cell in cells if cell.normalised]
        found.append(_group(agent, "all tasks with a normalised score", scored, results.order))
        plain: dict[str, list[Seeds]] = {}
        for cell in cells:
            if not cell.normalised:
                plain.setdefault(cell.task, []).append(cell)
        found += [_group(agent, task, same, results.order) for task, same in plain.items()]
    return [group for group in found if group and group.tasks and group.says_more_than_its_cells]


def _group(agent: str, name: str, cells: Sequence[Seeds], order: Sequence[str]) -> Group | None:
    variants = sorted({cell.variant for cell in cells}, key=order.index)
    if not variants:
        return None
    scores = {(cell.variant, cell.task): cell.values(PRIMARY) for cell in cells}
    tasks = [t for t in sorted({cell.task for cell in cells}) if all((v, t) in scores for v in variants)]
    if len(tasks) == 1:
        name = tasks[0]
    by_variant = {variant: tuple(scores[variant, task] for task in tasks) for variant in variants}
    own = {cell.variant for cell in cells if cell.strategy in OURS}
    hero = next((variant for variant in variants if variant in own), variants[-1])
    return Group(agent, name, tuple(tasks), all(cell.normalised for cell in cells), by_variant, hero)


def aggregate_table(group: Group, name: str) -> Table:
    """Rows are variants, columns statistics over all their runs."""
    computed = group.aggregates
    columns = tuple(next(iter(computed.values())))
    rows = [((variant,), tuple(map(estimated, by_name.values()))) for variant, by_name in computed.items()]
    notes = [f"Over the areas under the online curves of {_named(group.tasks)}, {group.seeds} per cell."]
    if statistics.has_interval(*group.scores.values()):
        notes.append(
            f"Intervals: {statistics.CONFIDENCE:.0%}, stratified bootstrap over seeds within tasks, "
            f"{statistics.RESAMPLES:,} resamples. With few seeds they are too narrow: those of an IQM of four seeds "
            "of one task hold the truth in 87% of cases, not 95%. Paired differences have better intervals."
        )
    else:
        notes.append("No intervals where a task has one seed only.")
    title = f"{agent_label(group.agent)}: {group.name}, taken together"
    return Table(name, title, ("strategy",), columns, tuple(rows), tuple(notes))


def improvement_table(group: Group, name: str) -> Table:
    """Rows improve over columns with this probability."""
    pairs = group.improvements
    variants = tuple(group.scores)
    rows = [((one,), tuple(estimated(pairs.get((one, v)), digits=2) for v in variants)) for one in variants]
    notes = (
        f"The probability that a run of the row scores above a run of the column, {group.seeds} per cell, over "
        f"{_named(group.tasks)}; ties count half.",
    )
    title = f"{agent_label(group.agent)}: {group.name}, probability of improvement over ..."
    return Table(name, title, ("strategy",), variants, tuple(rows), notes)


def _named(tasks: Sequence[str]) -> str:
    return ", ".join(tasks) if len(tasks) <= 3 else f"{len(tasks)} tasks"


def tables(results: Results, together: Sequence[Group]) -> list[Table]:
    """Every table of a report."""
    found = [
        score_table(results, agent, measure)
        for measure in MEASURES
        for agent in results.agents()
        if measure != "pretrained" and any(cell.values(measure).size for cell in results.of(agent))
    ]
    found += paired_tables(results)
    for number, group in enumerate(together, start=1):
        found.append(aggregate_table(group, f"aggregate-{number}-{results.file(group.agent)}"))
        if len(group.scores) > 1:
            found.append(improvement_table(group, f"improvement-{number}-{results.file(group.agent)}"))
    return found
