"""The paper's tables and figures, with our runs beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arb.errors import DataError, suggest
from arb.paper.ablations import clip, online_ratio, temperature, trajectory
from arb.paper.tables import detailed_table, summary_table
from arb.report.page import missing_text, write_files
from arb.report.records import Results, group_runs, read_runs
from arb.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Rendered = Callable[["Results"], tuple["Table", "Figure | None"]]


def _detailed(agent: str) -> Rendered:
    return lambda results: (detailed_table(results, agent), None)


PAPER: Mapping[str, Rendered] = {
    "main": lambda results: (summary_table(results), None),
    **{agent: _detailed(agent) for agent in ("calql", "pex", "famo2o", "iql")},
    "online-ratio": online_ratio,
    "trajectory": trajectory,
    "temperature": temperature,
    "clip": clip,
}
"""How our runs are shown beside the paper's, under the names of its experiments."""


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
        raise DataError(f"the paper has no {name!r} here{suggest(name, PAPER)}; there are {', '.join(PAPER)}")
    runs = read_runs(paths)
    results = group_runs(runs)
    table, figure = PAPER[name](results)
    content = {path: text.encode() for path, text in table.files().items()}
    if figure is not None:
        from arb.report.plots import rendered

        content |= {f"figures/{table.name}.{ending}": drawn for ending, drawn in rendered(figure).items()}
    write_files(out, content)
    return "\n".join([table.text(), *([missing_text(results)] if runs.missing else []), *runs.unreadable])
