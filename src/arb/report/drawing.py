"""How figures look and how they are written: colours, grid, light and dark ground, the same bytes every time."""

import io
from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from arb.report.cells import Results
from arb.report.looks import looks

PALE = "#868e96"
TITLE = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold"}
GROUNDS: Mapping[str, tuple[str, str]] = {"light": ("#1f2933", "#e9ecef"), "dark": ("#d7dde3", "#353c44")}
"""Ink and grid, on white and on nearly black paper."""
FORMATS: Mapping[str, Mapping[str, Any]] = {
    # ending: what matplotlib would write into the file that changes from day to day, or from version to version
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


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


def styles(results: Results) -> dict[str, dict[str, Any]]:
    """Colour and line style per variant."""
    found = looks({cell.variant: cell.strategy for cell in results.cells})
    return {name: {"color": colour, "linestyle": _line(dash)} for name, (colour, dash) in found.items()}


def _line(dash: str) -> Any:
    return (0, tuple(float(part) / 2 for part in dash.split())) if dash else "-"


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
