"""The plots of a report: colours of strategies, learning curves, shares of batches, differences.

Matplotlib writes the same bytes every time.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from arb.data.tasks import normalised
from arb.files import atomic_write
from arb.lab.agents import agent_label
from arb.lab.strategies import strategy_label
from arb.progress import count, counts
from arb.report import stats
from arb.report.records import Floats, Results, RunGroup, group_runs, read_runs

COLOURS = {
    "naive": "#e69f00", "parallel": "#009e73", "top_n": "#cc79a7", "berb": "#d55e00", "arb": "#0072b2",
    "arb_auto": "#56b4e9", "offline": "#6c757d", "annealed": "#999933", "recent": "#aa4499",
    "warm_start:WarmStart": "#cc6677", "road:Road": "#4b9b3a",
}  # fmt: skip
"""By strategy, from the palette of Okabe and Ito (Color Universal Design, 2008)."""
OTHER_COLOURS = ("#7a5195", "#8c6d31", "#4d4d4d")
PALE = "#868e96"
TITLE = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold"}
THEMES: Mapping[str, tuple[str, str]] = {"light": ("#1f2933", "#e9ecef"), "dark": ("#d7dde3", "#353c44")}
"""Colours of text and grid."""
FORMATS: Mapping[str, Mapping[str, Any]] = {
    # ending: what matplotlib would write into the file that changes from day to day, or from version to version
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
BUFFER, BOUND, EFFECTIVE = "online share of the buffer", "its upper bound", "effective sample size, share of the rows"
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "10 4")
_COLUMNS = 3


# ---- how strategies look ---------------------------------------------------------------------------------------------
def looks(results: Results) -> dict[str, tuple[str, str]]:
    """Colour and dash pattern of each variant; variants of one strategy run from dark to light."""
    by_strategy: dict[str, dict[str, None]] = {}
    for group in results.groups:
        by_strategy.setdefault(group.strategy, {})[group.variant] = None
    found = {}
    for strategy, names in by_strategy.items():
        # The colour of a plug-in depends on its name alone.
        colour = COLOURS.get(strategy, OTHER_COLOURS[sum(strategy.encode()) % len(OTHER_COLOURS)])
        for i, name in enumerate(names):
            share, parts = 0.55 * i / max(1, len(names) - 1), (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            lighter = "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
            found[name] = lighter, _DASHES[i % len(_DASHES)]
    return found


def _styles(results: Results) -> dict[str, dict[str, Any]]:
    dashes: dict[str, Any] = {dash: (0, tuple(float(part) / 2 for part in dash.split())) for dash in _DASHES[1:]}
    return {n: {"color": colour, "linestyle": dashes.get(dash, "-")} for n, (colour, dash) in looks(results).items()}


# ---- what is drawn, for Matplotlib and for the page ------------------------------------------------------------------
def reference_lines(groups: Sequence[RunGroup]) -> dict[str, float]:
    """Scores of the dataset's mean and best episode and of behaviour cloning, where the runs recorded them."""
    found = {}
    for name, words in (("best", "best of the data"), ("mean", "mean of the data"), ("cloning", "cloning")):
        values = [run.data.get(f"{name}_return") for group in groups for run in group.runs]
        value = values[0] if values.count(values[0]) == len(values) else None
        if isinstance(value, int | float) and math.isfinite(value):
            found[words] = float(normalised(np.array(value, float), groups[0].runs[0].reference))
    return found


def band(groups: Sequence[RunGroup], group: RunGroup, phase: str) -> tuple[Floats, Floats, Floats]:
    """Mean scores with a standard deviation over seeds below and above; of a run that is alone, a standard error."""
    mean, low, high = stats.mean_band(group.curve[phase][1])
    if not is_alone(groups):
        return mean, low, high
    (run,) = group.runs
    errors = run.curves[phase].errors
    if phase == "pretrain" and run.config.get("evaluation.by") == "data":  # replicates of an estimate, not episodes
        errors = np.array([scores.std() for scores in run.curves[phase].scores])
    return mean, mean - errors, mean + errors


def is_alone(groups: Sequence[RunGroup]) -> bool:
    return len(groups) == len(groups[0].runs) == 1


def score_range(groups: Sequence[RunGroup]) -> tuple[float, float]:
    """The range of a score axis: all that matters for fine-tuning, without the first half of pre-training.

    An untrained policy may score so low that the online curves would be squeezed into a tenth of the height.
    """
    values = [*reference_lines(groups).values()]
    for group in groups:
        for phase, (steps, _) in group.curve.items():
            late = steps >= (steps[-1] / 2.0 if phase == "pretrain" and "online" in group.curve and len(steps) else 0.0)
            values += [number for numbers in band(groups, group, phase) for number in numbers[late]]
    values = [value for value in values if math.isfinite(value)]
    least, most = (min(values), max(values)) if values else (0.0, 1.0)
    margin = 0.06 * (most - least) or max(1.0, 0.1 * abs(most))
    return least - margin, most + margin


def squeeze(groups: Sequence[RunGroup]) -> float:
    """By how much the axis of pre-training is compressed, so that it takes at most a third of the width."""
    ends = {phase: [c.curve[phase][0][-1] for c in groups if phase in c.curve] for phase in ("pretrain", "online")}
    before, after = (max(ends[phase], default=0.0) for phase in ("pretrain", "online"))
    return max(1.0, 2.0 * before / after) if after else 1.0


def buffer_share(groups: Sequence[RunGroup]) -> tuple[Floats, Floats] | None:
    """The online share of a buffer that keeps all offline rows: strategies that keep fewer have a larger one."""
    found = [shares for group in groups if (shares := group.metric("replay.online_rows"))]
    return min(found, key=lambda shares: float(shares[1].mean(0)[-1]), default=None)


# ---- files -----------------------------------------------------------------------------------------------------------
def rendered(figure: Figure) -> dict[str, bytes]:
    found = {}
    with matplotlib.rc_context({"svg.hashsalt": "arb", "pdf.fonttype": 42}):
        for ending, metadata in FORMATS.items():
            figure.savefig(file := io.BytesIO(), format=ending, dpi=150, metadata=dict(metadata))
            found[ending] = file.getvalue()
    return found


def themed(theme: str) -> Any:
    """The settings under which a figure is made, so that it can be read on light or on dark paper."""
    text, grid = THEMES[theme]
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {**dict.fromkeys(names, text), "grid.color": grid}
    return matplotlib.rc_context(settings)


def plot_run(folder: Path, path: Path) -> None:
    """Draw the curves of one run folder into an image file: its score, and where its batches came from."""
    runs = read_runs([folder])
    results = group_runs(runs)
    run = runs.all[0]
    title = f"{run.task}   {agent_label(run.agent)}   {strategy_label(run.strategy)}   seed {run.seed}"
    with themed("light"):
        figure = scores_and_shares(results, plain(title)) if results.groups else Figure()
    with atomic_write(path) as unfinished, matplotlib.rc_context({"svg.hashsalt": "arb"}):
        figure.savefig(unfinished, dpi=130)


# ---- figures ---------------------------------------------------------------------------------------------------------
def agent_figures(results: Results, agent: str, baseline: str = "naive") -> Iterator[tuple[str, Figure]]:
    """The figures of one agent over all its datasets, with their kinds."""
    tasks = results.tasks(agent)
    columns = min(_COLUMNS, len(tasks))
    size = max(6.0, 4.2 * columns), 3.2 * math.ceil(len(tasks) / columns) + 0.5
    alone = all(is_alone(results.of(agent, task)) for task in tasks)
    words = {"curves": "learning curves" if alone else "learning curves, mean ± standard deviation over seeds"}
    if any(group.metric("replay.online_share") for group in results.of(agent)):
        words["online-share"] = "where batches come from"
    for kind, draw in zip(words, (_score_panel, _share_panel), strict=False):
        panels = [(draw, agent, task) for task in tasks]
        yield kind, _panels(results, panels, tasks, columns, size, f"{agent_label(agent)}: {words[kind]}")
    differences = difference_intervals(results, agent, baseline)
    if differences:
        yield "differences", differences


def scores_and_shares(results: Results, title: str) -> Figure:
    """One row per dataset and agent: scores on the left, the online share of the batches on the right."""
    places = list(dict.fromkeys((group.agent, group.task) for group in results.groups))
    panels = [(draw, *place) for place in places for draw in (_score_panel, _share_panel)]
    headings = [f"{task}, {agent_label(agent)}" for _, agent, task in panels]
    return _panels(results, panels, headings, 2, (9.5, 3.1 * len(places) + 0.6), title)


def difference_intervals(results: Results, agent: str, baseline: str = "naive") -> Figure | None:
    """Paired differences to a baseline: a dot per dataset, their mean with its interval; None without pairs."""
    found = [one for one in stats.compared(results, agent, baseline) if one.normalised]
    if not found:
        return None
    styles = _styles(results)
    figure = Figure(figsize=(7.0, 0.42 * len(found) + 1.5), layout="constrained")
    axes = figure.subplots()
    for place, one in enumerate(found):
        values, colour = one.over(one.normalised), styles[one.variant]["color"]
        mean, low, high = stats.t_interval(stats.headline(values))
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
        axes.plot([mean], [place], marker="|", markersize=13, markeredgewidth=2.5, color=colour)
        axes.plot([seeds.mean() for seeds in values], [place] * len(values), "o", markersize=4, alpha=0.7, color=colour)
    axes.axvline(0.0, color=PALE, linestyle=":", linewidth=1)
    base = strategy_label(found[0].baseline)
    axes.set_xlabel(f"area under the online curve, minus that of {base} with the same seed, in points")
    axes.set_yticks(range(len(found)), [plain(one.variant) for one in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    tidy(axes, "x")
    tasks = len({task for one in found for task in one.normalised})
    pairs = counts((len(seeds) for one in found for seeds in one.over(one.normalised)), "seed")
    over = "datasets" if tasks > 1 else "seeds"
    title = f"{agent_label(agent)} on {count(tasks, 'dataset')} (dots), {pairs} each: mean and 95% interval over {over}"
    figure.suptitle(title, **TITLE)
    return figure


# ---- panels ----------------------------------------------------------------------------------------------------------
def _score_panel(axes: Any, groups: Sequence[RunGroup], styles: Mapping[str, Any]) -> None:
    scale = squeeze(groups)
    for group in groups:
        for phase, (steps, _) in group.curve.items():
            at = (steps - steps[-1]) / scale if phase == "pretrain" and len(steps) else steps
            label = group.variant if phase == "online" or "online" not in group.curve else None
            _banded(axes, at, band(groups, group, phase), label, **styles[group.variant])
    axes.set_ylim(*score_range(groups))
    for name, value in reference_lines(groups).items():
        axes.axhline(value, color=PALE, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.annotate(name, (0.005, value), (0, 2), ("axes fraction", "data"), "offset points", fontsize=7, color=PALE)
    axes.axvline(0, color=PALE, linestyle=":", linewidth=1)
    start = min((-group.curve["pretrain"][0][-1] / scale for group in groups if "pretrain" in group.curve), default=0.0)
    end = max(1.0, axes.get_xlim()[1])
    axes.set_xticks([start, *(tick for tick in MaxNLocator(4).tick_values(0.0, end) if 0 <= tick <= end)])
    axes.xaxis.set_major_formatter(lambda value, _: short(value * scale if value < 0 else value))
    axes.set_ylabel(groups[0].unit + " ± standard error" * is_alone(groups))
    axes.set_xlabel("updates before, steps after the switch")


def _share_panel(axes: Any, groups: Sequence[RunGroup], styles: Mapping[str, Any]) -> None:
    """The online share of a batch; in grey that of the buffer, dashed what bounds ARB's share where λ is automatic.

    A single run has room for its effective sample size too.
    """
    if buffer := buffer_share(groups):
        axes.plot(buffer[0], buffer[1].mean(0), color=PALE, linewidth=2.5, alpha=0.6, label=BUFFER)
    for group in groups:
        colour, alone = styles[group.variant]["color"], is_alone(groups)
        shares, bound = group.metric("replay.online_share"), group.metric("replay.online_bound")
        if shares:
            _banded(axes, shares[0], stats.mean_band(shares[1]), group.variant, **styles[group.variant])
        if bound:
            label = BOUND if alone else None
            axes.plot(bound[0], np.minimum(1.0, bound[1].mean(0)), "--", color=colour, linewidth=0.7, label=label)
        effective = group.metric("replay.effective_share")
        if effective and alone:
            axes.plot(effective[0], effective[1][0], ":", color=colour, linewidth=1.2, label=EFFECTIVE)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_ylabel("online share of a batch")
    axes.set_xlabel("environment steps")


def _panels(
    results: Results,
    panels: Sequence[tuple[Any, str, str]],
    headings: Sequence[str],
    columns: int,
    size: tuple[float, float],
    title: str,
) -> Figure:
    """A figure of panels, each a function that draws with the agent and the dataset that it shows."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(math.ceil(len(panels) / columns), columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, (draw, agent, task), heading in zip(grid.flat, panels, headings, strict=False):
        draw(axes, results.of(agent, task), _styles(results))
        axes.set_title(plain(heading), fontsize=10, loc="left")
        tidy(axes)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    if names := sorted(handles, key=(*results.order, BOUND, BUFFER, EFFECTIVE).index):
        lines = math.ceil(sum(0.55 + 0.085 * len(name) for name in names) / figure.get_figwidth())  # inches, about
        figure.legend([handles[name] for name in names], [plain(name) for name in names], loc="outside lower center",
                      ncols=math.ceil(len(names) / lines), frameon=False, fontsize=9)  # fmt: skip
    figure.suptitle(title, **TITLE)
    return figure


def _banded(axes: Any, steps: Any, found: tuple[Floats, Floats, Floats], label: str | None, **style: Any) -> None:
    mean, low, high = found
    if not np.array_equal(low, high):
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(steps, mean, linewidth=1.6, label=label, **style)


def tidy(axes: Any, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
