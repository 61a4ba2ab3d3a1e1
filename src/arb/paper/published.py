"""The paper's numbers, as printed.

Source: Song, Lee and Park, Adaptive Replay Buffer for Offline-to-Online Reinforcement Learning (AISTATS 2026). In
`published_numbers`, `summary.csv` is its table of average normalised returns, `detailed.csv` and `averages.csv` are the
tables of the appendix with Cal-QL, PEX, FamO2O and IQL and the rows "Average" printed in them, `clip.csv` is the
sensitivity to the clipping bounds. They contradict one another in places, which docs/report.md lists.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from arb.lab.strategies import PAPER, strategy_label

STRATEGIES = {name: strategy_label(name) for name in PAPER}
"""The paper's, in its order and spelling."""
GROUPS: Mapping[str, str] = {
    "random": "Locomotion (r)",
    "medium-replay": "Locomotion (mr)",
    "medium": "Locomotion (m)",
    "medium-expert": "Locomotion (me)",
    "antmaze": "AntMaze",
}
"""The paper's groups of tasks, with its names for them."""
TEMPERATURES = {"calql": 5.0, "pex": 0.5, "famo2o": 0.5}
"""λ of ARB as printed. `arb.lab.agents` holds what runs use, also for IQL, for which the paper names none."""
SEEDS = 4
STEPS = 1_000_000
"""Environment steps online, after as many updates offline."""


class Published(NamedTuple):
    """A printed number."""

    mean: float
    std: float | None = None


Key = tuple[str, str, str]
"""Agent, task or group of tasks, strategy."""


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("arb.paper").joinpath("published_numbers", f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def _published(row: Mapping[str, str]) -> Published:
    return Published(float(row["mean"]), float(row["std"]) if "std" in row else None)


@cache
def detailed() -> Mapping[Key, Published]:
    """By agent, task and strategy."""
    return {(row["agent"], row["task"], row["strategy"]): _published(row) for row in _rows("detailed")}


@cache
def tasks() -> Mapping[str, tuple[str, ...]]:
    """The tasks of each group."""
    found: dict[str, dict[str, None]] = {}
    for row in _rows("detailed"):
        found.setdefault(row["group"], {})[row["task"]] = None
    return {group: tuple(names) for group, names in found.items()}


@cache
def averages(table: str = "averages") -> Mapping[Key, Published]:
    """The rows "Average" of the detailed tables, by agent, group and strategy; or the table `summary`.

    The summary has its own mean over agents under the name `average`.
    """
    return {(row["agent"], row["group"], row["strategy"]): _published(row) for row in _rows(table)}


@cache
def clip() -> Mapping[tuple[str, float], Published]:
    """Scores by bound (`low` or `high`) and its value, with PEX on antmaze-large-diverse-v2."""
    return {(row["bound"], float(row["value"])): _published(row) for row in _rows("clip")}
