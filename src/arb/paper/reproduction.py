"""The paper's tables and figures, with our runs beside the published numbers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arb.errors import DataError
from arb.paper.ablations import clip, online_ratio, temperature, trajectory
from arb.paper.tables import detailed_table, summary_table
from arb.report.cells import Results, gather
from arb.report.page import lacking, write_files
from arb.report.runs import read_runs
from arb.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Experiment(NamedTuple):
    """Something the paper shows."""

    purpose: str
    of: Callable[[Results], tuple[Table, Figure | None]]


def _detailed(agent: str) -> Callable[[Results], tuple[Table, Figure | None]]:
    return lambda results: (detailed_table(results, agent), None)


PAPER: Mapping[str, Experiment] = {
    "main": Experiment(
        "average normalised returns of Cal-QL, PEX and FamO2O by group of tasks", lambda r: (summary_table(r), None)
    ),
    "calql": Experiment("every task with Cal-QL", _detailed("calql")),
    "pex": Experiment("every task with PEX", _detailed("pex")),
    "famo2o": Experiment("every task with FamO2O", _detailed("famo2o")),
    "iql": Experiment("every task with IQL", _detailed("iql")),
    "online-ratio": Experiment("the online share of the batches over steps, FamO2O on hopper", online_ratio),
    "trajectory": Experiment("ARB by trajectory and by transition, Cal-QL on antmaze-large-play-v2", trajectory),
    "temperature": Experiment("ARB's temperature, PEX on antmaze-large-diverse-v2", temperature),
    "clip": Experiment("ARB's clipping bounds, PEX on antmaze-large-diverse-v2", clip),
}
"""What can be rendered, under its name."""


def render(name: str, paths: Sequence[Path], out: Path) -> str:
    """Write one of the paper's tables with our numbers into a folder, its picture too where the paper has one.

    Args:
        name: of `PAPER`.
        paths: folders with our runs.
        out: where `tables/paper-NAME.*` and `figures/paper-NAME.*` go.

    Returns:
        The table for a terminal.
    """
    if name not in PAPER:
        near = difflib.get_close_matches(name, PAPER, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise DataError(f"the paper has no {name!r} here{hint}; there are {', '.join(PAPER)}")
    runs = read_runs(paths)
    table, figure = PAPER[name].of(gather(runs))
    content = {path: text.encode() for path, text in table.files().items()}
    if figure is not None:
        from arb.report.figures import rendered

        content |= {f"figures/{table.name}.{ending}": drawn for ending, drawn in rendered(figure).items()}
    write_files(out, content)
    return "\n".join([table.text(), lacking(runs)] if runs.lacking or runs.damaged else [table.text()])
