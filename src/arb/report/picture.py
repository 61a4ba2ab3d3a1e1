"""The picture of one run: score over both phases, and where its batches came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from arb.files import read_json, whole
from arb.runfolder import RunFolder

INK, ACCENT, PALE = "#1f2933", "#0b7285", "#adb5bd"


def learning_curve(folder: Path, path: Path) -> None:
    """Draw a run folder's tables into one image file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    described = read_json(folder / "config.json")
    config = described["config"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), width_ratios=(3, 2), layout="constrained")
    _score_panel(left, folder, described)
    _share_panel(right, folder)
    title = f"{config['task']}   {config['agent']}   {config['replay.strategy']}   seed {config['seed']}"
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e9ecef")
        axes.set_axisbelow(True)
        axes.tick_params(colors=INK, labelsize=9)
    with whole(path) as unfinished:
        figure.savefig(unfinished, dpi=130)
    plt.close(figure)


def _score_panel(axes: Any, folder: Path, described: dict[str, Any]) -> None:
    """Mean score with the middle half of the episodes; pre-training to the left of zero."""
    pretrain = described["config"]["schedule.pretrain"]
    scores: dict[float, list[float]] = {}
    for phase, curve in RunFolder(folder).curves().items():
        for step, values in zip(curve.steps, curve.scores, strict=True):
            at = step - (pretrain if phase == "pretrain" else 0)
            if phase == "pretrain" and step == pretrain:
                at = -1  # just before the switch, beside online step 0
            scores[at] = [*values, *scores.get(at, [])]
    x = np.array(sorted(scores))
    mean = np.array([np.mean(scores[at]) for at in x])
    low, high = (np.array([np.percentile(scores[at], q) for at in x]) for q in (25, 75))
    axes.fill_between(x, low, high, color=ACCENT, alpha=0.15, linewidth=0, label="middle half of the episodes")
    axes.plot(x, mean, color=ACCENT, marker="o", markersize=3.5, label="mean")
    axes.axvline(0, color=PALE, linestyle="--", linewidth=1)
    axes.annotate("online", (0, 1), (4, -4), xycoords=("data", "axes fraction"), textcoords="offset points",
                  va="top", color=INK, fontsize=9)  # fmt: skip
    axes.set_xlabel("updates before the switch, environment steps after it", color=INK)
    axes.set_ylabel("normalised score" if described["reference"] else "return", color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.legend(frameon=False, fontsize=9, loc="best")


def _share_panel(axes: Any, folder: Path) -> None:
    """The paper's online-ratio figure, for one run."""
    columns = RunFolder(folder).metrics()["online"]
    for name, label, colour in (("online_share", "of a batch", ACCENT), ("online_rows", "of the buffer", PALE)):
        axes.plot(columns["step"], columns[f"replay.{name}"], color=colour, label=label)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel("online share", color=INK)
    axes.legend(frameon=False, fontsize=9)
