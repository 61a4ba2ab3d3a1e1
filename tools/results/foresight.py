"""What the first refresh of ARB auto tells about the rest of a run: how likely the policy's own first steps are.

ARB auto holds the effective sample size at a share ρ of the rows, so that online rows, a share x of them, can make up
at most √(x/ρ) of a batch. Where the policy's first episodes are the most likely ones of all, the first refresh comes
close to that bound. Where parts of the dataset are more likely than what the policy itself does, it stays far below.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from tools.results.claims import contrast
from tools.results.findings import Campaign, distinct, plain, quality_of

from arb.lab.agents import agent_label
from arb.report import stats
from arb.report.plots import PALE, TITLE, tidy
from arb.report.records import Floats, Record
from arb.report.stats import ByTask, Comparison
from arb.report.tables import Entry, Table, difference_table, estimated

LOW = 1.0 / 3.0
"""Part of the bound below which the first online share is called low."""
_MARKS = (("o", "#0072b2"), ("s", "#d55e00"), ("^", "#009e73"), ("D", "#cc79a7"), ("v", "#e69f00"))


def first_share(run: Record) -> float | None:
    """The online share of a batch after the first refresh, as a part of its upper bound."""
    columns = run.metrics.get("online", {})
    names = ("online_share", "online_rows", "effective_share")
    values = [columns.get(f"replay.{name}") for name in names]
    if any(column is None or not len(column) for column in values):
        return None
    share, rows, effective = (float(column[0]) for column in values if column is not None)
    part = share / math.sqrt(rows / effective) if rows > 0.0 < effective else math.nan
    return part if math.isfinite(part) else None


class Gain(NamedTuple):
    """What ARB auto gained on a task, and what its first refresh was."""

    share: float
    """The first online share, mean over seeds."""
    agent: str
    task: str
    archive: str
    differences: Floats
    """To naive replay, a number per seed."""


def gains(campaigns: Sequence[Campaign]) -> list[Gain]:
    """Archive by archive; nothing that only repeats."""
    return [
        Gain(share, agent, task, name, values)
        for name, agent, ours in distinct(campaigns)
        for one in ours
        if one.strategy == "arb_auto"
        for task, share, values in _cells(one)
    ]


def foresight(campaigns: Sequence[Campaign]) -> str:
    """Gains of ARB auto by what its first refresh said: archive by archive, then task by task; empty without runs."""
    found = gains(campaigns)
    if not found:
        return ""
    groups: dict[tuple[str, ...], list[Gain]] = {}
    for gain in found:
        groups.setdefault((agent_label(gain.agent), gain.archive), []).append(gain)
    rows = {labels: _split(some) for labels, some in groups.items()}
    by_archive = difference_table(rows, ("agent", "archive"), "naive")
    body = tuple(
        ((agent_label(agent), task, name), (Entry(100.0 * share, digits=0), _gain(values)))
        for share, agent, task, name, values in sorted(found, key=lambda gain: gain[:4])
    )
    columns = ("initial online share, % of its bound", "area, minus naive")
    notes = ("Mean over seeds; lowest first. Student's 95% interval, not corrected, and the number of pairs.",)
    by_task = Table("foresight", "", ("agent", "task", "archive"), columns, body, notes)
    return (
        "After the first refresh, the online share of ARB auto's batches shows how likely the policy's first episodes "
        "are under it, relative to the dataset. It is low where parts of the dataset are more likely than the policy's "
        "own rollouts. Below a third of its upper bound, √(online rows / ρ), which it cannot quite reach, a task "
        "counts as low here, by its mean over seeds. Rule and cutoff were chosen from some of these runs; the "
        "correction does not account for that.\n\n"
        f"{plain(by_archive)}\n\n{plain(by_task)}"
    )


def _gain(values: Floats) -> Entry:
    return estimated(stats.t_interval([values]), n=len(values))


def picture(campaigns: Sequence[Campaign]) -> Figure | None:
    """Gains over the first online share, a mark per task and archive; hollow where it is not locomotion."""
    found = gains(campaigns)
    if not found:
        return None
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    agents = list(dict.fromkeys(gain.agent for gain in found))
    for agent, (marker, colour) in zip(agents, itertools.cycle(_MARKS), strict=False):
        for hollow in (False, True):
            some = [gain for gain in found if gain.agent == agent and (quality_of(gain.task) == "") == hollow]
            label = agent_label(agent) + ", AntMaze" * hollow
            if some:
                axes.scatter(
                    [100.0 * gain.share for gain in some],
                    [float(gain.differences.mean()) for gain in some],
                    s=34,
                    marker=marker,
                    edgecolors=colour,
                    facecolors="none" if hollow else colour,
                    alpha=0.85,
                    label=label,
                )
    axes.axhline(0.0, color=PALE, linewidth=1)
    axes.axvline(100.0 * LOW, color=PALE, linestyle=":", linewidth=1)
    axes.set_xlabel("initial online share of ARB auto's batches, % of its upper bound")
    axes.set_ylabel("area, minus that of Naive, points")
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle("What the first refresh predicts, task by task", **TITLE)
    return figure


def _cells(one: Comparison) -> list[tuple[str, float, Floats]]:
    """By task: the first online share, mean over seeds, and the differences to naive replay."""
    found = []
    for task, values in one.differences().items():
        shares = [share for run, _ in one.pairs[task] if (share := first_share(run)) is not None]
        if len(shares) == len(values) and task in one.normalised:
            found.append((task, float(np.mean(shares)), values))
    return found


def _split(some: Sequence[Gain]) -> dict[str, ByTask]:
    low = [gain.differences for gain in some if gain.share < LOW]
    high = [gain.differences for gain in some if gain.share >= LOW]
    both = contrast(low, high) if low and high else []
    return {"low initial share": low, "high initial share": high, "low minus high": both}
