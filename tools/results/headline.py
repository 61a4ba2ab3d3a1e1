"""What other pages say of the archives: README.md, results/notes.md and docs/temperature.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages import ROOT, filled, table, transparent_svg
from tools.results.claims import by_default, contrast
from tools.results.findings import by_recorders

from arb.lab.strategies import OURS
from arb.progress import counts
from arb.report import stats
from arb.report.plots import scores_and_shares, themed
from arb.report.records import Results, RunGroup, group_runs, read_runs
from arb.report.stats import Comparison, comparisons, verdict

ARCHIVES = ROOT / "results"
CAMPAIGN, REPLICATION, STUDY = (ARCHIVES / f"{name}.jsonl" for name in ("locomotion", "rivals", "temperature"))
"""The archive of the README's plot and numbers, the one that repeats it, and that of docs/temperature.md."""
QUALITIES = ("random", "mixed", "medium", "medium-expert")
SHOWN = "suite:hopper-mixed"
"""The dataset of the plot in docs/temperature.md."""
FIRST_SEEDS = 3
"""Seeds from which the division by recorders was made; later ones test it."""


def pages() -> dict[Path, str]:
    """The pages with their parts brought up to date, and the plots of docs/temperature.md."""
    places = {
        ROOT / "README.md": ("results", readme),
        ARCHIVES / "notes.md": ("later seeds", later_seeds),
        ROOT / "docs" / "temperature.md": ("study", lambda: study_table(_results(STUDY))),
    }
    return {path: filled(path.read_text(), name, text()) for path, (name, text) in places.items()}


def _results(archive: Path) -> Results:
    return group_runs(read_runs([archive]))


def _interval(some: Sequence[Any]) -> str:
    mean, low, high = stats.t_interval(some)
    return f"{mean:+.1f}" if low is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, break_on_hyphens=False, subsequent_indent=indent)


# ---- README.md -------------------------------------------------------------------------------------------------------
def readme() -> str:
    """A plot and a few sentences: what was run, what the differences to naive replay are, and when."""
    found, again = _compared(CAMPAIGN), _compared(REPLICATION)
    clauses, repeated = _clauses(found), "; ".join(_clauses(again).values())
    ours = [clauses[name] for name in OURS[::-1] if name in clauses]
    others = [clause for name, clause in clauses.items() if name not in OURS]
    (auto,) = (one for one in found if one.strategy == "arb_auto")
    several, single = (_interval(auto.over(tasks)) for tasks in by_recorders(auto.normalised))
    name = f"docs/results/{CAMPAIGN.stem}-iql-differences"
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{name}-dark.svg">'
    plot = f'<picture>{source}<img src="{name}.svg" alt="Paired differences to naive replay"></picture>'
    first = (
        "First edition, made with networks below the size at which IQL works, and being replaced. "
        f"IQL on {len(auto.normalised)} datasets of the [suite](docs/suite.md), {_seeds(found)} each, 40,000 updates "
        "offline and 40,000 steps online, a twenty-fifth of the paper's. Differences to naive replay in points of the "
        "area under the online curve, with 95 % intervals, marked where they are significant after Holm's correction:"
    )
    points = [
        f"**On average**: {'; '.join(ours)}. ARB auto is this library's variant, ARB the paper's.",
        f"**Rivals**: {'; '.join(others)}.",
        f"**Again**, on data recorded on another processor, {_seeds(again)} each: {repeated}.",
        f"**When**: ARB auto gains {several} where several policies recorded the data, {single} where one did, a "
        "division made after the first seeds. On locomotion, its first refresh [predicts where it gains]"
        "(docs/results.md#what-the-first-refresh-predicts), with IQL and FamO2O but not with PEX.",
    ]
    bullets = "\n".join(_wrapped(f"- {point}", "  ") for point in points)
    last = "[Results](docs/results.md) has every number, where ARB loses, and what this cannot show."
    return "\n\n".join([plot, _wrapped(first), bullets, last])


def _compared(archive: Path) -> list[Comparison]:
    """What was compared with naive replay by default on all datasets of an archive, IQL alone."""
    found = [one for one in comparisons(_results(archive), "naive") if one.agent == "iql"]
    found = [one for one in found if all(by_default(run) for pairs in one.pairs.values() for run, _ in pairs)]
    most = max(len(one.normalised) for one in found)
    return [one for one in found if len(one.normalised) == most]


def _clauses(found: Sequence[Comparison]) -> dict[str, str]:
    """By strategy: the difference to naive replay, and what may be said of it."""
    values = {one.strategy: one.over(one.normalised) for one in found}
    corrected = stats.holm({name: stats.p_value(some) for name, some in values.items()})
    said = {}
    for one in found:
        word = verdict(values[one.strategy], corrected[one.strategy])
        mark = f" ({word})" if word in ("better", "worse") else ""
        said[one.strategy] = f"{one.variant} {_interval(values[one.strategy])}{mark}"
    return said


def _seeds(found: Sequence[Comparison]) -> str:
    return counts((len(pairs) for one in found for pairs in one.pairs.values()), "seed")


# ---- results/notes.md ------------------------------------------------------------------------------------------------
def later_seeds() -> str:
    """ARB auto minus naive replay by who recorded the data, with seeds that were run after the division was made."""
    found = comparisons(_results(CAMPAIGN), "naive")
    (auto,) = (one for one in found if (one.agent, one.strategy) == ("iql", "arb_auto"))
    later: dict[str, Any] = {}
    seeds = set()
    for task, values in auto.differences().items():
        own = [(run.seed, value) for (run, _), value in zip(auto.pairs[task], values, strict=True)]
        later[task] = np.array([value for seed, value in own if seed >= FIRST_SEEDS])
        seeds |= {seed for seed, _ in own if seed >= FIRST_SEEDS}
    several, single = ([later[task] for task in tasks if len(later[task])] for tasks in by_recorders(later))

    def gains(some: Sequence[Any]) -> str:
        return f"{_interval(some)}, ahead on {sum(values.mean() > 0 for values in some)} of {len(some)} datasets"

    return _wrapped(
        f"With seed{'s' * (len(seeds) > 1)} {' and '.join(map(str, sorted(seeds)))} alone, ARB auto minus naive replay "
        f"in points of area: {gains(several)}, where several policies recorded the data; {gains(single)}, where one "
        f"did; the first minus the second {_interval(contrast(several, single))}."
    )


# ---- docs/temperature.md ---------------------------------------------------------------------------------------------
def study_table(results: Results) -> str:
    """One row per strategy: the area on every dataset, the difference to naive replay, and what is replayed."""
    tasks = sorted(results.tasks("iql"), key=lambda task: QUALITIES.index(task.partition("-")[2]))
    differences = {one.variant: one.over(one.normalised) for one in comparisons(results, "naive")}
    rows = []
    for variant in results.variants("iql"):
        found = [results.group(task, "iql", variant) for task in tasks]
        cells = [cell for cell in found if cell and cell.finished]
        areas = [cell.values("area").mean() if cell in cells else None for cell in found]
        areas.append(None if None in areas else sum(areas) / len(areas))
        against = _interval(differences[variant]) if variant in differences else ""
        shares = [_at_the_end(cells, name) for name in ("replay.effective_share", "replay.online_share")]
        rows.append([variant, *("" if area is None else f"{area:.1f}" for area in areas), against, *shares])
    head = ["", *(task.partition("-")[2] for task in tasks), "mean", "minus Naive [95 %]", "ESS, % of rows"]
    seeds = counts((len(cell.runs) for cell in results.groups if cell.finished), "seed")
    return table([*head, "online, % of a batch"], rows) + f"\n\nSeeds per cell: {seeds.removesuffix(' seeds')}."


def _at_the_end(cells: Iterable[RunGroup], metric: str) -> str:
    """From where to where a replay metric reaches over the datasets at the end of fine-tuning, in per cent."""
    ends = [100 * float(found[1][:, -1].mean()) for cell in cells if (found := cell.metric(metric))]
    low, high = (f"{end(ends):.0f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def study_plots() -> dict[Path, bytes]:
    """The plot of docs/temperature.md on light and dark ground; other versions of Matplotlib give other bytes."""
    results = _results(STUDY)
    three = tuple(cell for cell in results.groups if cell.task == SHOWN and cell.strategy == "arb")
    found = {}
    for ground, ending in (("light", ""), ("dark", "-dark")):
        with themed(ground):
            figure = scores_and_shares(replace(results, groups=three), "Three temperatures on one dataset")
            found[ROOT / "docs" / f"temperature{ending}.svg"] = transparent_svg(figure)
    return found
