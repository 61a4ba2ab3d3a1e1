"""What the archives say: the answer, for which data it holds, where ARB loses, and what the temperature does."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tools.results.claims import by_default, contrast

from arb.data.tasks import family_of
from arb.lab.agents import agent_label
from arb.lab.strategies import OURS, STRATEGIES, strategy_label
from arb.progress import count, counts
from arb.report import stats
from arb.report.records import Record, Results, RunGroup
from arb.report.stats import CONFIDENCE, ByTask, Comparison, comparisons, verdict
from arb.report.tables import DifferenceRows, Entry, Table, difference_table, estimated

SAID: Mapping[str, str] = {
    "better": "it helps on average",
    "worse": "it hurts on average",
    "no difference that matters": "no difference that matters",
    "cannot tell": "we cannot tell",
    "not corrected": "not significant after correction",
}
SEVERAL = ("mixed", "medium-replay", "full-replay", "medium-expert")
"""Qualities of data that several policies recorded; one policy recorded each of the others."""


class Campaign(NamedTuple):
    """An archive and what it holds."""

    name: str
    results: Results

    @property
    def runs(self) -> tuple[Record, ...]:
        """The finished ones."""
        return self.results.runs.done


def plain(table: Table) -> str:
    """A table under a heading of its own."""
    return table.markdown().partition("\n\n")[2].rstrip()


# ---- the answer ------------------------------------------------------------------------------------------------------
def _found(campaigns: Iterable[Campaign], baseline: str = "naive") -> Iterator[tuple[Campaign, Comparison]]:
    for campaign in campaigns:
        for one in comparisons(campaign.results, baseline):
            if one.strategy in OURS and one.normalised:
                yield campaign, one


def answer(campaigns: Sequence[Campaign]) -> str:
    """ARB and ARB with its own temperature against naive replay, by default and where most pairs are; then, when."""
    chosen = _chosen(campaigns)
    said: dict[str, list[str]] = {}  # by where it was measured
    for strategy in OURS:
        if strategy not in chosen:
            label = strategy_label(strategy)
            said[f"{label} has not been compared with naive replay on tasks with a normalised score yet."] = []
            continue
        campaign, one = chosen[strategy]
        rivals = [o for o in comparisons(campaign.results, "naive") if o.agent == one.agent and o.normalised]
        corrected = stats.holm({o.variant: stats.p_value(o.over(o.normalised)) for o in rivals})
        some = one.over(one.normalised)
        where = f"{agent_label(one.agent)} on {count(len(some), 'task')}: "
        seeds = f", {counts(map(len, some), 'seed')} each"
        clause = f"{one.variant} {_points(some, seeds)}, {SAID[_verdict(some, corrected[one.variant])]}"
        said.setdefault(f"Area under the online curve, minus that of naive replay, {where}", []).append(clause)
    sentences = [where + "; ".join(clauses) + "." * bool(clauses) for where, clauses in said.items()]
    whens = [when for _, one in chosen.values() if (when := _when(one))]
    return " ".join([*sentences, *whens[-1:]])


def again(campaigns: Sequence[Campaign]) -> str:
    """The comparison of the answer in other archives that have all its tasks; nothing if there are none."""
    chosen, found = _chosen(campaigns), []
    for campaign in campaigns:
        clauses = [
            f"{one.variant} {_points(one.over(one.normalised))}"
            for _, one in _found([campaign])
            if one.strategy in chosen and _repeats(one, chosen[one.strategy][1])
        ]
        if clauses:
            found.append(f"The same in archive `{campaign.name}`: {'; '.join(clauses)}.")
    return " ".join(found)


def _repeats(one: Comparison, first: Comparison) -> bool:
    """Whether a comparison has all tasks of another, and runs of its own."""
    same = (one.agent, set(one.normalised)) == (first.agent, set(first.normalised))
    runs, known = ({identity(run) for pairs in each.pairs.values() for run, _ in pairs} for each in (one, first))
    return same and _by_default(one) and not runs <= known


def limits(campaigns: Sequence[Campaign]) -> str:
    """What weakens the answer: another measure, how our two strategies differ, and what intervals hold fixed."""
    chosen = _chosen(campaigns)
    last = [f"{one.variant} {_points(one.over(one.normalised, 'last'))}" for _, one in chosen.values()]
    sentences = [f"By the last evaluation: {'; '.join(last)}."] if last else []
    if "arb_auto" in chosen:
        campaign, auto = chosen["arb_auto"]
        sentences += [
            f"{auto.variant} minus ARB: {_points(one.over(one.normalised))} of area."
            for one in comparisons(campaign.results, "arb")
            if (one.agent, one.variant) == (auto.agent, auto.variant) and one.normalised
        ]
    return " ".join([*sentences, "Intervals reflect variation across seeds; they say nothing about other tasks."])


def _chosen(campaigns: Sequence[Campaign]) -> dict[str, tuple[Campaign, Comparison]]:
    """Of each of our strategies, where it was compared with naive replay by default and most often."""
    chosen: dict[str, tuple[Campaign, Comparison]] = {}
    for campaign, one in _found(campaigns):
        if one.strategy not in chosen or _weight(one) > _weight(chosen[one.strategy][1]):
            chosen[one.strategy] = campaign, one
    return {strategy: chosen[strategy] for strategy in OURS if strategy in chosen}


def _verdict(some: ByTask, corrected: float | None) -> str:
    """What may be said, and whether it is the correction that forbids more."""
    says, p = verdict(some, corrected), stats.p_value(some)
    return "not corrected" if says == "cannot tell" and p is not None and p < 1.0 - CONFIDENCE else says


def _weight(one: Comparison) -> tuple[bool, int]:
    """The settings that are recommended first, then the most pairs."""
    return _by_default(one), sum(map(len, one.over(one.normalised)))


def _points(some: ByTask, more: str = "") -> str:
    mean, low, high = stats.t_interval(some)
    reach = "without an interval" if low is None or high is None else f"95% interval {low:+.1f} to {high:+.1f}"
    return f"{mean:+.1f} points ({reach}{more})"


def _when(one: Comparison) -> str:
    """The gains where several policies recorded the data and where one did, if there are tasks of both kinds."""
    several, single = (one.over(tasks) for tasks in by_recorders(one.normalised))
    if not several or not single:
        return ""
    apart = _points(contrast(several, single))
    return (
        f"{one.variant} gains {_points(several)} where several policies recorded the data and {_points(single)} where "
        f"one did, a difference of {apart}; this division was made after runs had been seen."
    )


# ---- by data ---------------------------------------------------------------------------------------------------------
def quality_of(task: str) -> str:
    """What the name of a locomotion task says of its data; nothing for other tasks.

    >>> quality_of("suite:hopper-mixed"), quality_of("hopper-medium-expert-v2"), quality_of("antmaze-umaze-v2")
    ('mixed', 'medium-expert', '')
    """
    if family_of(task).name != "locomotion":
        return ""
    return task.rpartition(":")[2].partition("-")[2].removesuffix("-v2")


def by_recorders(tasks: Iterable[str]) -> tuple[list[str], list[str]]:
    """Tasks whose data several policies recorded, and those where one did."""
    known = [task for task in tasks if quality_of(task)]
    return [t for t in known if quality_of(t) in SEVERAL], [t for t in known if quality_of(t) not in SEVERAL]


def by_quality(campaigns: Sequence[Campaign]) -> list[str]:
    """Differences to naive replay by data, of the first archive that has several robots of each quality."""
    for name, results in campaigns:
        for agent in results.agents():
            found = quality_tables(results, agent)
            if found:
                text = "\n\n".join(map(plain, found))
                return [f"## By quality of the data\n\n{agent_label(agent)}, archive `{name}`:\n\n{text}"]
    return []


def quality_tables(results: Results, agent: str) -> list[Table]:
    """Columns are variants; rows are qualities, who recorded the data, robots. None where a quality has one robot."""
    qualities: dict[str, list[str]] = {}
    for task in filter(quality_of, results.tasks(agent)):
        qualities.setdefault(quality_of(task), []).append(task)
    found = [one for one in comparisons(results, "naive") if one.agent == agent and one.normalised]
    if not found or min(map(len, qualities.values()), default=0) < 2:
        return []
    rows: DifferenceRows = {
        (name,): {one.variant: one.over(tasks) for one in found} for name, tasks in qualities.items()
    }
    tables = [difference_table(rows, ("data",), "naive")]
    several, single = by_recorders(results.tasks(agent))
    if several and single:
        names = [", ".join(q for q in qualities if (q in SEVERAL) == many) for many in (True, False)]
        parts = {one.variant: (one.over(several), one.over(single)) for one in found}
        rows = {
            (f"several policies: {names[0]}",): {variant: many for variant, (many, _) in parts.items()},
            (f"one policy: {names[1]}",): {variant: alone for variant, (_, alone) in parts.items()},
            ("several minus one",): {
                variant: contrast(many, alone) if many and alone else [] for variant, (many, alone) in parts.items()
            },
        }
        tables.append(difference_table(rows, ("recorded by",), "naive"))
    robots: dict[str, list[str]] = {}
    for task in filter(quality_of, results.tasks(agent)):
        robots.setdefault(task.rpartition(":")[2].partition("-")[0], []).append(task)
    rows = {(name,): {one.variant: one.over(tasks) for one in found} for name, tasks in robots.items()}
    return [*tables, difference_table(rows, ("robot",), "naive")]


def by_agent(campaigns: Sequence[Campaign]) -> list[str]:
    """Differences to naive replay of each agent in each archive, by default; no row repeats the runs of another."""
    rows: dict[tuple[str, ...], dict[str, ByTask]] = {}
    for name, agent, ours in distinct(campaigns):
        tasks = sorted({task for one in ours for task in one.normalised})
        labels = (agent_label(agent), tasks[0] if len(tasks) == 1 else count(len(tasks), "task"), name)
        strategies = [one.strategy for one in ours]
        rows[labels] = {
            strategy_label(one.strategy) if strategies.count(one.strategy) == 1 else one.variant: one.over(
                one.normalised
            )
            for one in ours
        }
    if len(rows) < 2:
        return []
    return ["## By agent\n\n" + plain(difference_table(rows, ("agent", "on", "archive"), "naive"))]


def distinct(campaigns: Sequence[Campaign]) -> Iterator[tuple[str, str, list[Comparison]]]:
    """Archive, agent, and what was compared with naive replay by default, ARB among it; nothing that only repeats."""
    seen: set[str] = set()
    for name, results in campaigns:
        found = [one for one in comparisons(results, "naive") if one.normalised]
        for agent in results.agents():
            ours = [one for one in found if one.agent == agent and _by_default(one)]
            runs = {identity(run) for one in ours for pairs in one.pairs.values() for run, _ in pairs}
            if any(one.strategy in OURS for one in ours) and not runs <= seen:
                yield name, agent, ours
            seen |= runs


def identity(run: Record) -> str:
    """Equal for copies of a run in several archives, and not for the same run on another machine."""
    scores = [curve.means.tolist() for curve in run.curves.values()]
    return json.dumps([run.config, run.data.get("sha256"), scores], sort_keys=True)


def _by_default(one: Comparison) -> bool:
    return all(by_default(run) for task in one.normalised for run, _ in one.pairs[task])


# ---- losses, temperatures --------------------------------------------------------------------------------------
RIVALS = (*(name for name in STRATEGIES if name not in OURS), "warm_start:WarmStart", "road:Road")
SMALLEST_LOSS = 1.0
"""In points; smaller ones are counted, but not listed."""


def losses(campaigns: Sequence[Campaign]) -> str:
    """The tasks on which ARB by default is below a rival, and whether that may be chance; without mere repetitions."""
    rows: list[tuple[float, tuple[tuple[str, ...], tuple[Entry, ...]]]] = []
    compared = below = 0
    for rival in RIVALS:
        seen: set[str] = set()
        for campaign, one in _found(campaigns, rival):
            for task, values in one.differences().items() if _by_default(one) else ():
                runs = {identity(run) for run, _ in one.pairs[task]}
                if runs <= seen or task not in one.normalised:
                    continue
                seen |= runs
                found = stats.t_interval([values])
                compared, below = compared + 1, below + (found.value < 0.0)
                if found.value <= -SMALLEST_LOSS:
                    sure = found.high is not None and found.high < 0.0
                    labels = (campaign.name, agent_label(one.agent), task, one.variant, strategy_label(rival))
                    rows.append((found.value, (labels, (estimated(found, bold=sure, n=len(values)),))))
    if not compared:
        return "Nothing has been compared yet."
    said = f"{below} of {count(compared, 'comparison')} of ARB or ARB auto with a rival on one task are below zero"
    if not rows:
        return f"{said}, none of them by {SMALLEST_LOSS:g} point or more."
    corner = ("archive", "agent", "task", "strategy", "against")
    notes = (
        "Mean paired difference with Student's 95% interval, not corrected, and the number of pairs; worst first.",
    )
    body = tuple(row for _, row in sorted(rows, key=lambda row: (row[0], row[1][0])))
    table = Table("losses", "", corner, ("area",), body, notes, "the interval lies below zero")
    return f"{said}. Those by {SMALLEST_LOSS:g} point or more:\n\n{plain(table)}"


def temperatures(campaigns: Sequence[Campaign]) -> Table:
    """λ, the effective sample size and the online share of a batch, at the end of fine-tuning."""
    rows = []
    for campaign in campaigns:
        for agent in campaign.results.agents():
            for variant in campaign.results.variants(agent):
                cells = [cell for cell in campaign.results.of(agent) if cell.variant == variant and cell.finished]
                if not cells or cells[0].strategy not in OURS:
                    continue
                shares = [_at_the_end(cells, name) for name in ("effective_share", "online_share", "online_rows")]
                heat = _at_the_end(cells, "temperature") or cells[0].runs[0].config.get("replay.temperature")
                entries = [Entry(heat, digits=2) if isinstance(heat, float) else Entry()]
                entries += [Entry(None if share is None else 100.0 * share) for share in shares]
                rows.append(((campaign.name, agent_label(agent), variant), tuple(entries)))
    columns = ("λ", "effective sample size, % of rows", "online share of a batch, %", "online share of the buffer, %")
    notes = ("At the last refresh, mean over seeds and tasks.",)
    return Table(
        "temperature", "What the temperature does", ("archive", "agent", "strategy"), columns, tuple(rows), notes
    )


def _at_the_end(cells: Sequence[RunGroup], figure: str) -> float | None:
    """The last value of a replay figure, mean over seeds and then over tasks."""
    last = [found[1][:, -1] for cell in cells if (found := cell.metric(f"replay.{figure}"))]
    ends = [float(np.nanmean(values)) for values in last if np.isfinite(values).any()]
    return float(np.mean(ends)) if ends else None
