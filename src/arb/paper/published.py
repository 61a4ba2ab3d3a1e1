"""The paper's numbers, and where they contradict one another.

Source: Song, Lee and Park, Adaptive Replay Buffer for Offline-to-Online Reinforcement Learning (AISTATS 2026). In
`published_numbers`, `summary.csv` is its table of average normalised returns, `detailed.csv` and `averages.csv` are the
tables of the appendix with Cal-QL, PEX, FamO2O and IQL and the rows "Average" printed in them, `clip.csv` is the
sensitivity to the clipping bounds. Numbers are as printed.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

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
"""The paper's sets of tasks, with its names for them."""
TEMPERATURES = {"calql": 5.0, "pex": 0.5, "famo2o": 0.5}
"""λ of ARB as printed. `arb.lab.algorithms` holds what runs use, also for IQL, for which the paper names none."""
SEEDS = 4
STEPS = 1_000_000
"""Environment steps online, after as many updates offline."""


class Published(NamedTuple):
    """A printed number."""

    mean: float
    std: float | None = None


class Contradiction(NamedTuple):
    """A printed number and what the paper's own detailed table gives instead."""

    printed: float
    recomputed: float


Key = tuple[str, str, str]
"""Agent, task or group of tasks, strategy."""


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("arb.paper").joinpath("published_numbers", f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def _published(row: Mapping[str, str]) -> Published:
    return Published(float(row["mean"]), float(row["std"]) if "std" in row else None)


def _by(name: str, place: str) -> Mapping[Key, Published]:
    return {(row["agent"], row[place], row["strategy"]): _published(row) for row in _rows(name)}


@cache
def detailed() -> Mapping[Key, Published]:
    """By agent, task and strategy."""
    return _by("detailed", "task")


@cache
def tasks() -> Mapping[str, tuple[str, ...]]:
    """The tasks of each group."""
    found: dict[str, dict[str, None]] = {}
    for row in _rows("detailed"):
        found.setdefault(row["group"], {})[row["task"]] = None
    return {group: tuple(names) for group, names in found.items()}


@cache
def averages() -> Mapping[Key, Published]:
    """The rows "Average" of the detailed tables, by agent, group and strategy."""
    return _by("averages", "group")


@cache
def summary() -> Mapping[Key, Published]:
    """The summary table, by agent (or `average`), group and strategy."""
    return _by("summary", "group")


@cache
def clip() -> Mapping[tuple[str, float], Published]:
    """Scores by bound (`low` or `high`) and its value, with PEX on antmaze-large-diverse-v2."""
    return {(row["bound"], float(row["value"])): _published(row) for row in _rows("clip")}


def group_mean(agent: str, group: str, strategy: str) -> float:
    """The mean of a group's rows in a detailed table."""
    return float(np.mean([detailed()[agent, task, strategy].mean for task in tasks()[group]]))


def _contradictions(table: Mapping[Key, Published], least: float) -> Mapping[Key, Contradiction]:
    """Cells that differ from what the detailed table gives by so much or more."""
    means = {key: group_mean(*key) for key in table if key[0] != "average"}
    found = {key: Contradiction(table[key].mean, mean) for key, mean in means.items()}
    return {key: cell for key, cell in found.items() if abs(cell.printed - cell.recomputed) >= least}


@cache
def summary_contradictions() -> Mapping[Key, Contradiction]:
    """Cells of the summary that differ from the detailed table by a unit of their last digit or more."""
    return _contradictions(summary(), 0.1)


@cache
def average_contradictions() -> Mapping[Key, Contradiction]:
    """Cells "Average" of the detailed tables that differ from the mean of their column, beyond rounding."""
    return _contradictions(averages(), 0.01)


@cache
def unattainable() -> frozenset[tuple[str, str, str]]:
    """AntMaze cells that no four seeds can give, each with a whole number of successes in 100 episodes.

    Neither with the sample standard deviation nor with that of a population.
    """
    cells = {key: cell for key, cell in detailed().items() if key[1].startswith("antmaze")}
    return frozenset(key for key, cell in cells.items() if not _attainable(cell))


def _attainable(cell: Published) -> bool:
    assert cell.std is not None
    total = round(SEEDS * cell.mean)
    reach = cell.std * SEEDS**0.5 + 1.0  # of the seed farthest from the mean, if it carried all of the deviation
    near = np.arange(max(0, int(cell.mean - reach)), min(100, int(cell.mean + reach) + 1) + 1)
    a, b, c = np.meshgrid(near, near, near, indexing="ij", sparse=True)
    d = total - a - b - c
    squares = (a**2 + b**2 + c**2 + d**2)[(a <= b) & (b <= c) & (c <= d) & (d <= 100)]
    deviations = np.unique(squares) - total**2 / SEEDS
    return any(bool(np.any(np.abs(np.sqrt(deviations / n) - cell.std) <= 0.00501)) for n in (SEEDS, SEEDS - 1))


def likeness(agent: str, other: str) -> tuple[float, float]:
    """How alike two detailed locomotion tables are: median difference, and share of cells within 2 points."""
    names = [task for group, of_group in tasks().items() if group != "antmaze" for task in of_group]
    keys = [(task, strategy) for task in names for strategy in STRATEGIES]
    apart = np.abs([detailed()[agent, *key].mean - detailed()[other, *key].mean for key in keys])
    return float(np.median(apart)), float(np.mean(apart <= 2.0))
