"""Curves for a terminal: one character per point."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.algorithms import agent_label
from arb.report.cells import Results, Seeds

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 20
"""Points of a curve at the most."""
MOST_PANELS = 6
"""Agents and tasks to be drawn; more than that are for the page."""


def spark(values: ArrayLike, low: float, high: float) -> str:
    """Values as bars of eight heights between low and high; what is not finite is a gap.

    >>> spark([0.0, 0.5, 1.0, float("nan")], 0.0, 1.0)
    '▁▅█ '
    """
    scaled = (np.asarray(values, float) - low) / ((high - low) or 1.0)
    return "".join(BARS[int(np.clip(8 * x, 0, 7))] if np.isfinite(x) else " " for x in scaled)


def curves(results: Results) -> str:
    """Score while fine-tuning and online share of the batches, for each strategy, unless there are too many."""
    panels = [(agent, task) for agent in results.agents() for task in results.tasks(agent)]
    if len(panels) > MOST_PANELS:
        return ""
    found = []
    for agent, task in panels:
        cells = [cell for cell in results.cells if (cell.agent, cell.task) == (agent, task) and "online" in cell.curve]
        if cells:
            found.append(_panel(f"{agent_label(agent)} on {task}", cells))
    return "\n".join(found)


def _panel(title: str, cells: Sequence[Seeds]) -> str:
    means = [_thinned(cell.curve["online"][1].mean(0)) for cell in cells]
    low, high = min(map(np.min, means)), max(map(np.max, means))
    steps = cells[0].curve["online"][0][-1]
    name = max(len(cell.variant) for cell in cells)
    width = max(map(len, means))
    lines = [f"{title}, steps 0 to {steps:,.0f}: {cells[0].unit} from {low:.1f} to {high:.1f}, and online share"]
    for cell, mean in zip(cells, means, strict=True):
        line = f"  {cell.variant:<{name}}  {spark(mean, low, high):<{width}}  {mean[-1]:9.1f}"
        shares = cell.metric("replay.online_share")
        if shares:
            share = _thinned(shares[1].mean(0))
            line += f"   {spark(share, 0.0, 1.0):<{WIDTH}} {share[-1]:4.0%}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _thinned(values: ArrayLike) -> NDArray[np.float64]:
    """At most `WIDTH` of the values, evenly spaced, the last among them."""
    curve = np.asarray(values, float)
    chosen = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), WIDTH)).round().astype(int))
    return np.asarray(curve[chosen])
