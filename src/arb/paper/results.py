"""The results page: from archives to one Markdown file and its figures, so that no number is written by hand.

Every archive is a campaign of its own, with its own tables: budgets and datasets are never mixed. `notes.md` beside the
archives holds what no program can know (commands, how settings were chosen, known deviations) and is taken over.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from arb.algorithms import agent_label
from arb.errors import DataError
from arb.paper.claims import by_default, verdicts
from arb.progress import count, counts
from arb.report import paired
from arb.report.baseline import Comparison, comparisons, grouped_table, paired_tables, verdict
from arb.report.cells import Results, Seeds, gather
from arb.report.comparison import episodes_of, score_table, steps_of
from arb.report.drawing import drawing, themed
from arb.report.figures import learning_curves, online_share
from arb.report.intervals import difference_intervals
from arb.report.page import write_files
from arb.report.page_data import told
from arb.report.record import Record
from arb.report.runs import ARCHIVE, Records, read_archive
from arb.report.tables import Entry, Table, estimated
from arb.strategies import OURS, strategy_label
from arb.tasks import family_of

NOTES = "notes.md"
_SHOWN = {
    "-curves": "learning curves",
    "-online-share": "online share of the batches",
    "-differences": "paired differences to naive replay",
}
"""What a figure shows, by a part of its name."""
SAID: Mapping[str, str] = {
    "better": "it helps on average",
    "worse": "it hurts on average",
    "no difference that matters": "no difference that matters",
    "cannot tell": "we cannot tell",
}


class Campaign(NamedTuple):
    """An archive and what it holds."""

    name: str
    results: Results

    @property
    def runs(self) -> tuple[Record, ...]:
        """The finished ones."""
        return self.results.runs.done


def write_results(folder: Path, page: Path) -> tuple[Path, ...]:
    """Write the results page and its figures from the archives of a folder; the same archives give the same bytes.

    Args:
        folder: with archives `NAME.jsonl`, and perhaps `notes.md`.
        page: the Markdown file; its figures go into a folder of the same name beside it.
    """
    archives = sorted(folder.glob(f"*{ARCHIVE}")) if folder.is_dir() else []
    if not archives:
        raise DataError(f"there is no archive (*{ARCHIVE}) in {folder}: `arb report --pack RUNS` makes one")
    campaigns = [Campaign(path.stem, gather(Records((path,), tuple(read_archive(path))))) for path in archives]
    campaigns.sort(key=lambda campaign: -len({run.task for run in campaign.runs}))
    notes = folder / NOTES
    text, figures = results_page(campaigns, notes.read_text() if notes.is_file() else "", page.stem)
    return write_files(page.parent, {**figures, page.name: text.encode()})


def results_page(campaigns: Sequence[Campaign], notes: str, stem: str) -> tuple[str, dict[str, bytes]]:
    """The text of the page, and its figures by file name."""
    figures: dict[str, bytes] = {}
    parts = [
        "# Results",
        "<!-- Made by `arb report results --page docs/results.md` from the archives in results/. Do not edit. -->",
        "**Question.** Does the Adaptive Replay Buffer help when a policy that was pre-trained offline is fine-tuned "
        "online, and when?",
        "**Answer.** " + answer(campaigns),
        _scope(campaigns),
        *by_quality(campaigns),
        "## The paper's claims\n\n" + _plain(verdicts([campaign.results for campaign in campaigns])),
        "## Where ARB loses\n\n" + losses(campaigns),
        "## What the temperature does\n\n" + _plain(temperatures(campaigns)),
    ]
    for campaign in campaigns:
        drawn = dict(_figures(campaign, stem))
        figures |= drawn
        parts.append(_campaign(campaign, sorted(name for name in drawn if not name.endswith("-dark.svg"))))
    parts += ["## Protocol\n\n" + protocol(campaigns), "## Raw data\n\n" + _raw(campaigns)]
    if notes.strip():
        parts.append(notes.strip())
    return "\n\n".join(parts) + "\n", figures


def _plain(table: Table) -> str:
    """A table under a heading of its own."""
    return table.markdown().partition("\n\n")[2].rstrip()


# ---- the answer ------------------------------------------------------------------------------------------------------
def _found(campaigns: Iterable[Campaign], baseline: str = "naive") -> Iterator[tuple[Campaign, Comparison]]:
    for campaign in campaigns:
        for one in comparisons(campaign.results, baseline):
            if one.strategy in OURS and one.normalised:
                yield campaign, one


def answer(campaigns: Sequence[Campaign]) -> str:
    """Two sentences: ARB, and ARB with its own temperature, by default, against naive replay where most pairs are."""
    found = list(_found(campaigns))
    chosen: dict[str, Comparison] = {}
    for _, one in found:
        known = chosen.get(one.strategy)
        if known is None or _weight(one) > _weight(known):
            chosen[one.strategy] = one
    values = {name: one.over(one.normalised) for name, one in chosen.items()}
    corrected = paired.holm({name: paired.p_value(some) for name, some in values.items()})
    sentences = []
    for strategy in OURS:
        if strategy not in chosen:
            sentences.append(f"{strategy_label(strategy)} has not been compared with naive replay yet.")
            continue
        one, some = chosen[strategy], values[strategy]
        mean, low, high = paired.t_interval(some)
        where = f"{agent_label(one.agent)}, {count(len(some), 'task')}, {counts(map(len, some), 'seed')} each"
        reach = "without an interval" if low is None or high is None else f"95% interval {low:+.1f} to {high:+.1f}"
        sentences.append(
            f"{one.variant} against naive replay ({where}): {mean:+.1f} points of the area under the online curve "
            f"({reach}); {SAID[verdict(some, corrected[strategy])]}."
        )
    return " ".join(sentences)


def _weight(one: Comparison) -> tuple[bool, int]:
    """The settings that are recommended first, then the most pairs."""
    return _by_default(one), sum(map(len, one.over(one.normalised)))


def by_quality(campaigns: Sequence[Campaign]) -> list[str]:
    """Differences to naive replay by quality of the data, of the first archive that has several robots of each."""
    for name, results in campaigns:
        for agent in results.agents():
            table = quality_table(results, agent)
            if table:
                return [f"## By quality of the data\n\n{agent_label(agent)}, archive `{name}`:\n\n{_plain(table)}"]
    return []


def quality_table(results: Results, agent: str) -> Table | None:
    """Rows are qualities of data, columns variants; None where a quality has one robot only."""
    qualities: dict[str, list[str]] = {}
    for task in (task for task in results.tasks(agent) if family_of(task).name == "locomotion"):
        qualities.setdefault(task.rpartition(":")[2].partition("-")[2], []).append(task)
    found = [one for one in comparisons(results, "naive") if one.agent == agent and one.normalised]
    if not found or min(map(len, qualities.values()), default=0) < 2:
        return None
    return grouped_table(found, qualities, "data", "", "quality")


def _by_default(one: Comparison) -> bool:
    return all(by_default(run) for task in one.normalised for run, _ in one.pairs[task])


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
    return _plain(Table("losses", "", corner, ("area",), body, notes, "the interval lies below zero"))


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


# ---- one campaign ----------------------------------------------------------------------------------------------------
def _campaign(campaign: Campaign, figures: Sequence[str]) -> str:
    results = campaign.results
    parts = [f"## Archive `{campaign.name}`"]
    parts += [table.markdown().rstrip() for table in paired_tables(results)]
    parts += [score_table(results, agent, measure).markdown().rstrip()
              for agent in results.agents() for measure in ("area", "last")]  # fmt: skip
    for name in figures:
        dark = name.replace(".svg", "-dark.svg")
        kind = next(what for word, what in _SHOWN.items() if word in name)
        parts.append(f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
                     f'<img src="{name}" alt="{campaign.name}: {kind}"></picture>')  # fmt: skip
    lacking = results.runs.lacking
    if lacking:
        parts.append(f"{count(len(lacking), 'run')} of {len(results.runs.all)} failed and are in no table: "
                     + "; ".join(sorted({run.reason for run in lacking})) + ".")  # fmt: skip
    return "\n\n".join(parts)


def _figures(campaign: Campaign, stem: str) -> Iterator[tuple[str, bytes]]:
    results = campaign.results
    for ground, ending in (("light", ".svg"), ("dark", "-dark.svg")):
        with themed(ground):
            for agent in results.agents():
                name = f"{stem}/{campaign.name}-{results.file(agent)}"
                yield f"{name}-curves{ending}", drawing(learning_curves(results, agent))
                if any(cell.metric("replay.online_share") for cell in results.of(agent)):
                    yield f"{name}-online-share{ending}", drawing(online_share(results, agent))
                differences = difference_intervals(results, agent)
                if differences:
                    yield f"{name}-differences{ending}", drawing(differences)


# ---- how it was done -------------------------------------------------------------------------------------------------
def _scope(campaigns: Sequence[Campaign]) -> str:
    """How much there is; a run that is in two archives counts once."""
    found = (run for campaign in campaigns for run in campaign.runs)
    runs = list({json.dumps([run.config, run.data.get("sha256")], sort_keys=True): run for run in found}.values())
    tasks = {run.task for run in runs}
    hours = sum(run.minutes or 0.0 for run in runs) / 60.0
    known = f", {hours:.1f} hours of wall time with pre-training counted for every run that shares it" if hours else ""
    return (
        f"{count(len(runs), 'finished run')} on {count(len(tasks), 'task')} in {count(len(campaigns), 'archive')}"
        f"{known}. Differences are paired: strategies of one seed start from the same pre-trained agent. The area "
        "under the online curve decides; [the report's page](report.md) defines every number."
    )


def protocol(campaigns: Sequence[Campaign]) -> str:
    """Budgets, evaluations, versions, commits, machines and minutes per run, as the archives hold them."""
    lines = []
    for campaign in campaigns:
        cells = [cell for cell in campaign.results.cells if cell.finished]
        every = told(run.config.get("evaluation.every") for run in campaign.runs)
        lines += [
            f"**`{campaign.name}`**: {count(len(campaign.runs), 'run')} of {steps_of(cells)}; an evaluation every "
            f"{every} steps, with {episodes_of(cells)}.",
            "",
            f"- minutes per run: {_minutes(campaign.runs)}",
            f"- processor: {told(run.machine.get('cpu') for run in campaign.runs)}",
            f"- commit: {told(str(run.machine.get('commit') or '')[:12] for run in campaign.runs)}",
            f"- versions: {_versions(campaign.runs)}",
            "",
        ]
    return "\n".join([*lines, "Everything on this page is rebuilt without training by `arb report results --page "
                      "docs/results.md`."])  # fmt: skip


def _versions(runs: Sequence[Record]) -> str:
    names = sorted({name for run in runs for name in run.versions})
    return "; ".join(f"{name} {told(run.versions.get(name) for run in runs)}" for name in names)


def _minutes(runs: Sequence[Record]) -> str:
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.minutes is not None:
            found.setdefault(f"{agent_label(run.agent)} with {strategy_label(run.strategy)}", []).append(run.minutes)
    return ", ".join(f"{name} {np.median(values):.1f}" for name, values in sorted(found.items())) or "not recorded"


def _raw(campaigns: Sequence[Campaign]) -> str:
    rows = []
    for campaign in campaigns:
        hashes = sorted({(run.task, str(run.data.get("sha256", "?"))[:12]) for run in campaign.runs})
        data = ", ".join(f"{task} {sha}" for task, sha in hashes)
        rows.append(f"- `results/{campaign.name}{ARCHIVE}`: {count(len(campaign.runs), 'run')}; data (SHA-256): {data}")
    return "\n".join(["One JSON line per run, with every episode's return:", "", *rows])
