"""How strategies look: colours and dashes in figures and on the page, and in a terminal bars of one character."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.lab.algorithms import agent_label
from arb.lab.strategies import strategy_colour
from arb.report.cells import Results, Seeds
from arb.report.statistics import spaced

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 20
"""Points of a curve at the most."""
MOST_PANELS = 6
"""Agents and tasks to be drawn; more than that are for the page."""
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "10 4")


def looks(variants: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Colour and dash pattern of each variant, given its strategy; they are told apart with colour-blind eyes too.

    Variants of one strategy run from dark to light. The first has a whole line, its relatives other patterns.
    """
    found = {}
    for strategy in variants.values():
        names = [name for name, own in variants.items() if own == strategy]
        for i, name in enumerate(names):
            colour = _lightened(strategy_colour(strategy), 0.55 * i / max(1, len(names) - 1))
            found[name] = colour, _DASHES[i % len(_DASHES)]
    return found


def _lightened(colour: str, share: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


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
        cells = [cell for cell in results.of(agent, task) if "online" in cell.curve]
        if cells:
            found.append(_panel(f"{agent_label(agent)} on {task}", cells))
    return "\n".join(found)


def _panel(title: str, cells: Sequence[Seeds]) -> str:
    means = [_thinned(cell.curve["online"][1]) for cell in cells]
    low, high = min(map(np.min, means)), max(map(np.max, means))
    steps = cells[0].curve["online"][0][-1]
    name = max(len(cell.variant) for cell in cells)
    width = max(map(len, means))
    lines = [f"{title}, steps 0 to {steps:,.0f}: {cells[0].unit} from {low:.1f} to {high:.1f}, and online share"]
    for cell, mean in zip(cells, means, strict=True):
        line = f"  {cell.variant:<{name}}  {spark(mean, low, high):<{width}}  {mean[-1]:9.1f}"
        shares = cell.metric("replay.online_share")
        if shares:
            share = _thinned(shares[1])
            line += f"   {spark(share, 0.0, 1.0):<{WIDTH}} {share[-1]:4.0%}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over seeds, at so many points as there is room for."""
    return np.asarray(values.mean(0)[spaced(values.shape[1], WIDTH)])
