"""The figures of a report, as matplotlib figures that come out in the same bytes every time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from arb.files import atomic_write
from arb.lab.algorithms import agent_label
from arb.lab.strategies import STRATEGIES
from arb.report.cells import Results, Seeds, gather
from arb.report.comparison import Group
from arb.report.drawing import PALE, TITLE, plain, short, styles, themed, tidy
from arb.report.intervals import aggregate_intervals, difference_intervals, improvement_intervals, performance_profile
from arb.report.runs import read_runs

BUFFER, BOUND, EFFECTIVE = "online share of the buffer", "its upper bound", "effective sample size, share of the rows"
_COLUMNS = 3


def figures(results: Results, together: Sequence[Group]) -> Iterator[tuple[str, Figure]]:
    """Every figure of a report, with its name."""
    for agent in results.agents():
        for kind, figure in agent_figures(results, agent):
            yield f"{kind}-{results.file(agent)}", figure
    for number, group in enumerate(together, start=1):
        name = f"{number}-{results.file(group.agent)}"
        yield f"aggregate-{name}", aggregate_intervals(results, group)
        yield f"profile-{name}", performance_profile(results, group)
        if len(group.scores) > 1:
            yield f"improvement-{name}", improvement_intervals(results, group)


def agent_figures(results: Results, agent: str) -> Iterator[tuple[str, Figure]]:
    """The figures of one agent over all its tasks, with their kinds."""
    yield "curves", learning_curves(results, agent)
    if any(cell.metric("replay.online_share") for cell in results.of(agent)):
        yield "online-share", online_share(results, agent)
    differences = difference_intervals(results, agent)
    if differences:
        yield "differences", differences


def learning_curves(results: Results, agent: str) -> Figure:
    """Score over both phases, one panel per task: mean over seeds, and one standard deviation around it."""
    figure = _panels(results, agent, _score_panel)
    figure.suptitle(f"{agent_label(agent)}: learning curves, mean ± standard deviation over seeds", **TITLE)
    return figure


def online_share(results: Results, agent: str, tasks: Sequence[str] | None = None) -> Figure:
    """The online share of the batches over steps, with that of the buffer in grey."""
    figure = _panels(results, agent, _share_panel, tasks)
    figure.suptitle(f"{agent_label(agent)}: where batches come from", **TITLE)
    return figure


def scores_and_shares(results: Results, title: str) -> Figure:
    """One row per task and agent: scores on the left, the online share of the batches on the right."""
    places = list(dict.fromkeys((cell.agent, cell.task) for cell in results.cells))
    figure = Figure(figsize=(9.5, 3.1 * len(places) + 0.6), layout="constrained")
    grid = figure.subplots(len(places), 2, squeeze=False)
    handles: dict[str, Any] = {}
    for (agent, task), (left, right) in zip(places, grid, strict=True):
        for axes, draw in ((left, _score_panel), (right, _share_panel)):
            draw(axes, results.of(agent, task), styles(results))
            _finish(axes, f"{task}, {agent_label(agent)}", handles)
    _legend(figure, handles, results.order)
    figure.suptitle(title, **TITLE)
    return figure


def run_picture(folder: Path, path: Path) -> None:
    """Draw the curves of one run folder into an image file: its score, and where its batches came from."""
    runs = read_runs([folder])
    results = gather(runs)
    run = runs.all[0]
    title = f"{run.task}   {run.agent}   {run.strategy}   seed {run.seed}"
    with themed("light"):
        figure = scores_and_shares(results, plain(title)) if results.cells else Figure()
    with atomic_write(path) as unfinished, matplotlib.rc_context({"svg.hashsalt": "arb"}):
        figure.savefig(unfinished, dpi=130)


# ---- panels ----------------------------------------------------------------------------------------------------------
def _score_panel(axes: Any, cells: Sequence[Seeds], style: Mapping[str, Any]) -> None:
    """Score over both phases; of a single run the middle half of its episodes, of several their standard deviation."""
    for cell in cells:
        for phase, (steps, values) in cell.curve.items():
            at = steps - (steps[-1] if phase == "pretrain" and len(steps) else 0)
            label = cell.variant if phase == "online" or "online" not in cell.curve else None
            _banded(axes, at, values, label, **style[cell.variant])
            if len(cells) == len(cell.runs) == 1:
                ends = [np.percentile(scores, (25, 75)) for scores in cell.runs[0].curves[phase].scores]
                axes.fill_between(at, *np.transpose(ends), color=style[cell.variant]["color"], alpha=0.15, linewidth=0)
    axes.axvline(0, color=PALE, linestyle=":", linewidth=1)
    axes.set_ylabel(cells[0].unit)
    axes.set_xlabel("updates before, steps after the switch")


def _share_panel(axes: Any, cells: Sequence[Seeds], style: Mapping[str, Any]) -> None:
    """The online share of a batch; in grey that of the buffer, dashed what bounds ARB's share where λ is automatic.

    A single run has room for its effective sample size too.
    """
    # A strategy that keeps fewer offline rows has not the buffer of the others.
    filters = {name for name, row in STRATEGIES.items() if not row.keeps_all}
    buffers = [cell.metric("replay.online_rows") for cell in cells if cell.strategy not in filters]
    for steps, rows in [buffer for buffer in buffers if buffer][:1]:
        axes.plot(steps, rows.mean(0), color=PALE, linewidth=2.5, alpha=0.6, label=BUFFER)
    for cell in cells:
        shares, bound = cell.metric("replay.online_share"), cell.metric("replay.online_bound")
        if shares:
            _banded(axes, *shares, cell.variant, **style[cell.variant])
        alone = len(cells) == len(cell.runs) == 1
        if bound:
            axes.plot(bound[0], np.minimum(1.0, bound[1].mean(0)), color=style[cell.variant]["color"], linewidth=0.7,
                      linestyle="--", label=BOUND if alone else None)  # fmt: skip
        effective = cell.metric("replay.effective_share")
        if effective and alone:
            axes.plot(effective[0], effective[1][0], color=style[cell.variant]["color"], linewidth=1.2, linestyle=":",
                      label=EFFECTIVE)  # fmt: skip
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylabel("online share of a batch")
    axes.set_xlabel("environment steps")


def _panels(results: Results, agent: str, draw: Any, tasks: Sequence[str] | None = None) -> Figure:
    names = list(tasks if tasks is not None else results.tasks(agent))
    columns = min(_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(max(6.0, 4.2 * columns), 3.2 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, task in zip(grid.flat, names, strict=False):
        draw(axes, results.of(agent, task), styles(results))
        _finish(axes, task, handles)
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    _legend(figure, handles, results.order)
    return figure


def _finish(axes: Any, title: str, handles: dict[str, Any]) -> None:
    axes.set_title(plain(title), fontsize=10, loc="left")
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    tidy(axes)
    handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))


def _legend(figure: Figure, handles: Mapping[str, Any], order: Sequence[str]) -> None:
    names = sorted(handles, key=(*order, BOUND, BUFFER, EFFECTIVE).index)
    if names:
        lines = math.ceil(sum(0.55 + 0.085 * len(name) for name in names) / figure.get_figwidth())  # inches, about
        figure.legend([handles[name] for name in names], [plain(name) for name in names], loc="outside lower center",
                      ncols=math.ceil(len(names) / lines), frameon=False, fontsize=9)  # fmt: skip


def _banded(axes: Any, steps: Any, values: Any, label: str | None, **style: Any) -> None:
    """A mean over seeds with one standard deviation around it."""
    mean = values.mean(0)
    if len(values) > 1:
        std = values.std(0, ddof=1)
        axes.fill_between(steps, mean - std, mean + std, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(steps, mean, linewidth=1.6, label=label, **style)
