"""What the first refresh of ARB auto tells about the rest of a run: how likely the policy's own first steps are.

ARB auto holds the effective sample size at a share ρ of the rows, so that online rows, a share x of them, can make up
at most √(x/ρ) of a batch. Where the policy's first episodes are the most likely ones of all, the first refresh comes
close to that bound. Where parts of the dataset are more likely than what the policy itself does, it stays far below.
"""

import math
from collections.abc import Sequence

import numpy as np

from arb.algorithms import agent_label
from arb.paper.findings import Campaign, distinct, plain
from arb.report import paired
from arb.report.baseline import Comparison, difference_table
from arb.report.record import Record
from arb.report.statistics import ByTask, Floats
from arb.report.tables import Entry, Table, estimated

LOW = 1.0 / 3.0
"""Part of the bound below which the first online share is called low."""


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


def foresight(campaigns: Sequence[Campaign]) -> str:
    """Gains of ARB auto by what its first refresh said: archive by archive, then task by task; empty without runs."""
    groups: dict[tuple[str, ...], dict[str, ByTask]] = {}
    cells: list[tuple[float, tuple[str, str, str], Floats]] = []
    for name, agent, ours in distinct(campaigns):
        found = [
            (share, (agent_label(agent), task, name), values)
            for one in ours
            if one.strategy == "arb_auto"
            for task, share, values in _cells(one)
        ]
        cells += found
        groups |= {(agent_label(agent), name): _split(found)} if found else {}
    if not cells:
        return ""
    by_archive = difference_table(groups, ("agent", "archive"), "naive")
    rows = tuple(
        (labels, (Entry(100.0 * share, digits=0), estimated(paired.t_interval([values]), n=len(values))))
        for share, labels, values in sorted(cells, key=lambda cell: cell[:2])
    )
    columns = ("initial online share, % of its bound", "area, minus naive")
    notes = ("Mean over seeds; lowest first. Student's 95% interval, not corrected, and the number of pairs.",)
    by_task = Table("foresight", "", ("agent", "task", "archive"), columns, rows, notes)
    return (
        "After the first refresh, the online share of ARB auto's batches shows how likely the policy's first episodes "
        "are under it, relative to the dataset. It is low where parts of the dataset are more likely than the policy's "
        "own rollouts. Below a third of its upper bound, √(online rows / ρ), which it cannot quite reach, a task "
        "counts as low here, by its mean over seeds. Rule and cutoff were chosen from some of these runs; the "
        "correction does not account for that.\n\n"
        f"{plain(by_archive)}\n\n{plain(by_task)}"
    )


def _cells(one: Comparison) -> list[tuple[str, float, Floats]]:
    """By task: the first online share, mean over seeds, and the differences to naive replay."""
    found = []
    for task, values in one.differences().items():
        shares = [share for run, _ in one.pairs[task] if (share := first_share(run)) is not None]
        if len(shares) == len(values) and task in one.normalised:
            found.append((task, float(np.mean(shares)), values))
    return found


def _split(cells: Sequence[tuple[float, tuple[str, str, str], Floats]]) -> dict[str, ByTask]:
    low = [values for share, _, values in cells if share < LOW]
    high = [values for share, _, values in cells if share >= LOW]
    both = paired.contrast(low, high) if low and high else []
    return {"low initial share": low, "high initial share": high, "low minus high": both}
