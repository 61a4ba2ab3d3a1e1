"""The figures of a report, as matplotlib figures that come out in the same bytes every time."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from arb.algorithms import agent_label
from arb.files import whole
from arb.report import statistics
from arb.report.cells import Results, Seeds, gather
from arb.report.comparison import Group
from arb.report.looks import looks
from arb.report.runs import read_runs

PALE = "#868e96"
BUFFER, BOUND, EFFECTIVE = "online share of the buffer", "its upper bound", "effective sample size, share of the rows"
GROUNDS: Mapping[str, tuple[str, str]] = {"light": ("#1f2933", "#e9ecef"), "dark": ("#d7dde3", "#353c44")}
"""Ink and grid, on white and on nearly black paper."""
FORMATS: Mapping[str, Mapping[str, Any]] = {
    # ending: what matplotlib would write into the file that changes from day to day, or from version to version
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_COLUMNS = 3


def rendered(figure: Figure) -> dict[str, bytes]:
    """A figure in every format, by ending."""
    found = {}
    with matplotlib.rc_context({"svg.hashsalt": "arb", "pdf.fonttype": 42}):
        for ending, metadata in FORMATS.items():
            file = io.BytesIO()
            figure.savefig(file, format=ending, dpi=150, metadata=dict(metadata))
            found[ending] = file.getvalue()
    return found


def themed(ground: str) -> Any:
    """The settings under which a figure is made, so that it can be read on light or on dark paper."""
    ink, grid = GROUNDS[ground]
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {**dict.fromkeys(inked, ink), "grid.color": grid}
    return matplotlib.rc_context(settings)


def drawing(figure: Figure) -> bytes:
    """A figure as SVG with a transparent ground and text that stays text, for a page in the repository."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "arb", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata=dict(FORMATS["svg"]), transparent=True)
    return file.getvalue()


def figures(results: Results, together: Sequence[Group]) -> Iterator[tuple[str, Figure]]:
    """Every figure of a report, with its name."""
    for agent in results.agents():
        yield f"curves-{results.file(agent)}", learning_curves(results, agent)
        if any(cell.metric("replay.online_share") for cell in results.cells if cell.agent == agent):
            yield f"online-share-{results.file(agent)}", online_share(results, agent)
    for number, group in enumerate(together, start=1):
        name = f"{number}-{results.file(group.agent)}"
        yield f"aggregate-{name}", aggregate_intervals(results, group)
        yield f"profile-{name}", performance_profile(results, group)
        if len(group.scores) > 1:
            yield f"improvement-{name}", improvement_intervals(results, group)


def styles(results: Results) -> dict[str, dict[str, Any]]:
    """Colour and line style per variant."""
    found = looks({cell.variant: cell.strategy for cell in results.cells})
    return {name: {"color": colour, "linestyle": _line(dash)} for name, (colour, dash) in found.items()}


def _line(dash: str) -> Any:
    return (0, tuple(float(part) / 2 for part in dash.split())) if dash else "-"


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
        cells = [cell for cell in results.cells if (cell.agent, cell.task) == (agent, task)]
        for axes, draw in ((left, _score_panel), (right, _share_panel)):
            draw(axes, cells, styles(results))
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
    with whole(path) as unfinished, matplotlib.rc_context({"svg.hashsalt": "arb"}):
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
    """The online share of a batch; in grey that of the buffer, dashed what bounds ARB's share where λ sets itself.

    A single run has room for its effective sample size too.
    """
    # Top-N keeps fewer offline rows: its buffer is not that of the others.
    buffers = [cell.metric("replay.online_rows") for cell in cells if cell.strategy != "top_n"]
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


TITLE = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold"}


def _panels(results: Results, agent: str, draw: Any, tasks: Sequence[str] | None = None) -> Figure:
    names = list(tasks if tasks is not None else results.tasks(agent))
    columns = min(_COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(max(6.0, 4.2 * columns), 3.2 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, task in zip(grid.flat, names, strict=False):
        draw(axes, [cell for cell in results.cells if (cell.agent, cell.task) == (agent, task)], styles(results))
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


def aggregate_intervals(results: Results, group: Group) -> Figure:
    """Statistics over all runs of a group, with their intervals."""
    computed, style = group.aggregates, styles(results)
    names = list(next(iter(computed.values())))
    figure = Figure(figsize=(2.6 * len(names) + 1.4, 0.42 * len(computed) + 1.5), layout="constrained")
    grid = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axes, name in zip(grid, names, strict=True):
        for place, (variant, found) in enumerate(computed.items()):
            _interval(axes, place, found[name], style[variant]["color"])
        axes.set_title(name, fontsize=10, loc="left")
        _rows(axes, list(computed))
    figure.suptitle(f"{agent_label(group.agent)}: {plain(group.name)}, {group.seeds} per cell", **TITLE)
    return figure


def improvement_intervals(results: Results, group: Group) -> Figure:
    """The probability that one variant, ARB where it is there, improves over each other one."""
    style = styles(results)
    hero = group.hero
    found = {other: value for (one, other), value in group.improvements.items() if one == hero}
    figure = Figure(figsize=(6.0, 0.42 * len(found) + 1.5), layout="constrained")
    axes = figure.subplots()
    for place, (other, value) in enumerate(found.items()):
        _interval(axes, place, value, style[other]["color"])
    axes.axvline(0.5, color=PALE, linestyle=":", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"probability that {plain(hero)} scores above")
    _rows(axes, list(found))
    figure.suptitle(f"{agent_label(group.agent)}: {plain(group.name)}", **TITLE)
    return figure


def performance_profile(results: Results, group: Group) -> Figure:
    """The share of runs above every score, with pointwise bootstrap bands."""
    style = styles(results)
    thresholds = profile_thresholds(group)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for variant, scores in group.scores.items():
        axes.plot(thresholds, statistics.profile(scores, thresholds), linewidth=1.6, label=variant, **style[variant])
        band = statistics.profile_band(scores, thresholds)
        if band:
            axes.fill_between(thresholds, *band, color=style[variant]["color"], alpha=0.12, linewidth=0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("normalised score τ" if group.normalised else "return τ")
    axes.set_ylabel("runs above τ")
    tidy(axes)
    axes.legend(frameon=False, fontsize=9)
    figure.suptitle(f"{agent_label(group.agent)}: {plain(group.name)}, performance profile", **TITLE)
    return figure


def profile_thresholds(group: Group, points: int = 101) -> Any:
    """Evenly spaced thresholds a little beyond all scores of a group."""
    scores = np.concatenate([values for by_task in group.scores.values() for values in by_task])
    margin = 0.05 * (float(np.ptp(scores)) or 1.0)
    return np.linspace(scores.min() - margin, scores.max() + margin, points)


def _interval(axes: Any, place: int, found: statistics.Estimate, colour: str) -> None:
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
    axes.plot([found.value], [place], marker="|", markersize=13, markeredgewidth=2.5, color=colour)


def _rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    tidy(axes, "x")


def tidy(axes: Any, grid: str = "y") -> None:
    """Spines and grid as all figures have them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def short(value: float) -> str:
    """A number of steps."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
