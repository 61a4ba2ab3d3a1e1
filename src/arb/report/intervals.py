"""Figures of statistics over runs: intervals side by side, and performance profiles."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from arb.lab.algorithms import agent_label
from arb.lab.strategies import strategy_label
from arb.progress import count
from arb.report import paired, statistics
from arb.report.baseline import comparisons
from arb.report.cells import Results
from arb.report.comparison import Group
from arb.report.drawing import PALE, TITLE, plain, styles, tidy


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


def difference_intervals(results: Results, agent: str, baseline: str = "naive") -> Figure | None:
    """Paired differences to a baseline: a dot per task, their mean over all with its interval; None without pairs."""
    found = [one for one in comparisons(results, baseline) if one.agent == agent and one.normalised]
    if not found:
        return None
    style = styles(results)
    figure = Figure(figsize=(7.0, 0.42 * len(found) + 1.5), layout="constrained")
    axes = figure.subplots()
    for place, one in enumerate(found):
        values, colour = one.over(one.normalised), style[one.variant]["color"]
        _interval(axes, place, paired.t_interval(values), colour)
        axes.plot([seeds.mean() for seeds in values], [place] * len(values), "o", markersize=4, alpha=0.7, color=colour)
    axes.axvline(0.0, color=PALE, linestyle=":", linewidth=1)
    base = strategy_label(baseline)
    axes.set_xlabel(f"area under the online curve, minus that of {base} with the same seed, in points")
    _rows(axes, [one.variant for one in found])
    tasks = count(len({task for one in found for task in one.normalised}), "task")
    pairs = sorted({len(seeds) for one in found for seeds in one.over(one.normalised)})
    seeds = f"{pairs[0]} to {pairs[-1]} seeds" if pairs[1:] else count(pairs[0], "seed")
    figure.suptitle(f"{agent_label(agent)} on {tasks} (dots), {seeds} each: mean and 95% interval", **TITLE)
    return figure


def performance_profile(results: Results, group: Group) -> Figure:
    """The share of runs above every score, with pointwise bootstrap bands."""
    style, thresholds = styles(results), group.thresholds
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


def _interval(axes: Any, place: int, found: statistics.Estimate, colour: str) -> None:
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
    axes.plot([found.value], [place], marker="|", markersize=13, markeredgewidth=2.5, color=colour)


def _rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    tidy(axes, "x")
