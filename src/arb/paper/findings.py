"""What the archives say: the answer, for which data it holds, where ARB loses, and what the temperature does."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arb.algorithms import agent_label
from arb.paper.claims import by_default
from arb.progress import count, counts
from arb.report import paired
from arb.report.baseline import Comparison, Rows, comparisons, difference_table, verdict
from arb.report.cells import Results, Seeds
from arb.report.record import Record
from arb.report.statistics import CONFIDENCE, ByTask
from arb.report.tables import Entry, Table, estimated
from arb.strategies import OURS, strategy_label
from arb.tasks import family_of

SAID: Mapping[str, str] = {
    "better": "it helps on average",
    "worse": "it hurts on average",
    "no difference that matters": "no difference that matters",
    "cannot tell": "we cannot tell",
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
    chosen: dict[str, tuple[Campaign, Comparison]] = {}
    for campaign, one in _found(campaigns):
        if one.strategy not in chosen or _weight(one) > _weight(chosen[one.strategy][1]):
            chosen[one.strategy] = campaign, one
    said: dict[str, list[str]] = {}  # by where it was measured
    for strategy in OURS:
        if strategy not in chosen:
            said[f"{strategy_label(strategy)} has not been compared with naive replay yet."] = []
            continue
        campaign, one = chosen[strategy]
        rivals = [o for o in comparisons(campaign.results, "naive") if o.agent == one.agent and o.normalised]
        corrected = paired.holm({o.variant: paired.p_value(o.over(o.normalised)) for o in rivals})
        some = one.over(one.normalised)
        where = f"{agent_label(one.agent)} on {count(len(some), 'task')}: "
        seeds = f", {counts(map(len, some), 'seed')} each"
        clause = f"{one.variant} {_points(some, seeds)}, {SAID[verdict(some, corrected[one.variant])]}"
        said.setdefault(f"Area under the online curve, minus that of naive replay, {where}", []).append(clause)
    sentences = [where + "; ".join(clauses) + "." * bool(clauses) for where, clauses in said.items()]
    return " ".join(sentences + [when for _, one in chosen.values() if (when := _when(one))][-1:])


def _weight(one: Comparison) -> tuple[bool, int]:
    """The settings that are recommended first, then the most pairs."""
    return _by_default(one), sum(map(len, one.over(one.normalised)))


def _points(some: ByTask, more: str = "") -> str:
    mean, low, high = paired.t_interval(some)
    reach = "without an interval" if low is None or high is None else f"95% interval {low:+.1f} to {high:+.1f}"
    return f"{mean:+.1f} points ({reach}{more})"


def _when(one: Comparison) -> str:
    """Whether it depends on who recorded the data, one policy or several, where there are tasks of both kinds."""
    several, single = (one.over(tasks) for tasks in by_recorders(one.normalised))
    if not several or not single:
        return ""
    p = paired.p_value(paired.contrast(several, single))
    depends = "It depends" if p is not None and p < 1.0 - CONFIDENCE else "We cannot tell whether it depends"
    return (
        f"{depends} on who recorded the data: {one.variant} gains {_points(several)} where several policies did, and "
        f"{_points(single)} where one did."
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
    """Columns are variants; rows are qualities, then who recorded the data. None where a quality has one robot only."""
    qualities: dict[str, list[str]] = {}
    for task in filter(quality_of, results.tasks(agent)):
        qualities.setdefault(quality_of(task), []).append(task)
    found = [one for one in comparisons(results, "naive") if one.agent == agent and one.normalised]
    if not found or min(map(len, qualities.values()), default=0) < 2:
        return []
    rows: Rows = {(name,): {one.variant: one.over(tasks) for one in found} for name, tasks in qualities.items()}
    tables = [difference_table(rows, ("data",), "naive")]
    several, single = by_recorders(results.tasks(agent))
    if several and single:
        names = [", ".join(q for q in qualities if (q in SEVERAL) == many) for many in (True, False)]
        parts = {one.variant: (one.over(several), one.over(single)) for one in found}
        rows = {
            (f"several policies: {names[0]}",): {variant: many for variant, (many, _) in parts.items()},
            (f"one policy: {names[1]}",): {variant: alone for variant, (_, alone) in parts.items()},
            ("several minus one",): {
                variant: paired.contrast(many, alone) if many and alone else []
                for variant, (many, alone) in parts.items()
            },
        }
        tables.append(difference_table(rows, ("recorded by",), "naive"))
    return tables


def by_agent(campaigns: Sequence[Campaign]) -> list[str]:
    """Differences to naive replay of each agent in each archive, by default; no row repeats the runs of another."""
    rows: dict[tuple[str, ...], dict[str, ByTask]] = {}
    seen: set[str] = set()
    for name, results in campaigns:
        found = [one for one in comparisons(results, "naive") if one.normalised]
        for agent in results.agents():
            ours = [one for one in found if one.agent == agent and _by_default(one)]
            runs = {identity(run) for one in ours for pairs in one.pairs.values() for run, _ in pairs}
            if any(one.strategy in OURS for one in ours) and not runs <= seen:
                tasks = len({task for one in ours for task in one.normalised})
                labels = (agent_label(agent), count(tasks, "task"), name)
                rows[labels] = {strategy_label(one.strategy): one.over(one.normalised) for one in ours}
            seen |= runs
    if len(rows) < 2:
        return []
    return ["## By agent\n\n" + plain(difference_table(rows, ("agent", "on", "archive"), "naive"))]


def identity(run: Record) -> str:
    """Equal for copies of a run in several archives."""
    return json.dumps([run.config, run.data.get("sha256")], sort_keys=True)


def _by_default(one: Comparison) -> bool:
    return all(by_default(run) for task in one.normalised for run, _ in one.pairs[task])


# ---- losses, temperatures --------------------------------------------------------------------------------------
def losses(campaigns: Sequence[Campaign]) -> str:
    """The tasks on which ARB by default is below naive or parallel replay, and whether that may be chance."""
    rows: list[tuple[float, tuple[tuple[str, ...], tuple[Entry, ...]]]] = []
    seen = set()  # runs may be in several archives
    for baseline in ("naive", "parallel"):
        for campaign, one in _found(campaigns, baseline):
            for task, values in one.differences().items() if _by_default(one) else ():
                found = paired.t_interval([values])
                same = (baseline, one.agent, one.strategy, task, *values)
                if found.value < 0.0 and same not in seen:
                    seen.add(same)
                    sure = found.high is not None and found.high < 0.0
                    labels = (campaign.name, agent_label(one.agent), task, one.variant, strategy_label(baseline))
                    rows.append((found.value, (labels, (estimated(found, best=sure, n=len(values)),))))
    if not rows:
        return "Nowhere in these runs." if any(_found(campaigns)) else "Nothing has been compared yet."
    corner = ("archive", "agent", "task", "strategy", "against")
    notes = (
        "Mean paired difference with Student's 95% interval, not corrected, and the number of pairs; worst first.",
    )
    body = tuple(row for _, row in sorted(rows, key=lambda row: (row[0], row[1][0])))
    return plain(Table("losses", "", corner, ("area",), body, notes, "the interval lies below zero"))


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


def _at_the_end(cells: Sequence[Seeds], figure: str) -> float | None:
    """The last value of a replay figure, mean over seeds and then over tasks."""
    last = [found[1][:, -1] for cell in cells if (found := cell.metric(f"replay.{figure}"))]
    ends = [float(np.nanmean(values)) for values in last if np.isfinite(values).any()]
    return float(np.mean(ends)) if ends else None
