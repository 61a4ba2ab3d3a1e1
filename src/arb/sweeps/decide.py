"""More seeds only where they are needed: rounds of runs until every comparison with the baseline is decided."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from arb.report.baseline import Undecided
from arb.runs.config import flat
from arb.sweeps.grid import Cell


def rounds(cells: Sequence[Cell], first: int, ask: Callable[[], Sequence[Undecided]]) -> Iterator[list[Cell]]:
    """The cells to run, round by round: the first seeds of all, then more seeds of what is undecided.

    The caller runs the cells that it is given before it asks for the next round. Rounds end when nothing is undecided,
    or when what is undecided has used all its seeds.

    Args:
        cells: a grid with all seeds that may be used, in the order in which to use them.
        first: seeds of the first round.
        ask: which cells are undecided now, and how many seeds they want.
    """
    seeds = list(dict.fromkeys(cell.config.seed for cell in cells))
    wanted = {_but_seed(flat(cell.config)): first for cell in cells}
    chosen: list[Cell] = []
    while True:
        before, chosen = chosen, []
        for cell in cells:
            if seeds.index(cell.config.seed) < wanted[_but_seed(flat(cell.config))]:
                chosen.append(cell)
        if chosen == before:
            return
        yield chosen
        for one in ask():
            key = _but_seed(one.config)
            if key in wanted:
                wanted[key] = max(wanted[key], one.wanted)


def _but_seed(config: Mapping[str, Any]) -> str:
    return json.dumps({leaf: value for leaf, value in config.items() if leaf != "seed"}, sort_keys=True)
