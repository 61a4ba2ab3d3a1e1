"""The experiments of the paper, as grids in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from arb.data.tasks import PAPER, SUITE
from arb.errors import DataError, suggest
from arb.lab.strategies import PAPER as ALL

if TYPE_CHECKING:  # importing JAX takes a second, which `arb reproduce --help` need not wait for
    from arb.lab.sweep import Cell

ONE_PER_GROUP = (
    "hopper-random-v2", "walker2d-medium-replay-v2", "halfcheetah-medium-v2", "hopper-medium-expert-v2",
    "antmaze-umaze-v2",
)  # fmt: skip
"""One task for each row of the main table, for trying it out."""
HOPPERS = tuple(f"hopper-{quality}-v2" for quality in ("random", "medium-replay", "medium", "medium-expert"))
TEMPERATURES = (0.2, 0.5, 1.0, 2.0)
"""The paper varies λ over four values without naming them; these are the ones that its release tries."""
LOWS, HIGHS = (-16.0, -14.0, -12.0, -9.0, -7.0), (2.0, 5.0, 7.0, 9.0, 12.0)
CLIPS = tuple(dict.fromkeys([*((low, 7.0) for low in LOWS), *((-12.0, high) for high in HIGHS)]))


class Experiment(NamedTuple):
    """A table or figure of the paper: what it shows, and its grid."""

    shows: str
    tasks: Sequence[str]
    agents: Sequence[str]
    strategies: Sequence[str] = ALL
    axes: Mapping[str, Sequence[Any]] = {}


EXPERIMENTS: Mapping[str, Experiment] = {
    "main": Experiment(
        "table 1: groups of tasks, three algorithms, five strategies", PAPER, ("calql", "pex", "famo2o")
    ),
    "calql": Experiment("Cal-QL, task by task", PAPER, ("calql",)),
    "pex": Experiment("PEX, task by task", PAPER, ("pex",)),
    "famo2o": Experiment("FamO2O, task by task", PAPER, ("famo2o",)),
    "iql": Experiment("IQL, task by task", PAPER, ("iql",)),
    "online-ratio": Experiment("the online share of batches on hopper with FamO2O", HOPPERS, ("famo2o",)),
    "trajectory": Experiment(
        "weights of trajectories against weights of transitions",
        ("antmaze-large-play-v2",), ("calql",), ("arb",), {"replay.level": ("trajectory", "transition")},
    ),
    "temperature": Experiment(
        "four temperatures λ",
        ("antmaze-large-diverse-v2",), ("pex",), ("arb",), {"replay.temperature": TEMPERATURES},
    ),
    "clip": Experiment(
        "lower and upper bound of the score", ("antmaze-large-diverse-v2",), ("pex",), ("arb",), {"replay.clip": CLIPS}
    ),
}  # fmt: skip

SEEDS: Mapping[str, Sequence[int]] = {"smoke": (0,), "small": (0, 1), "paper": (0, 1, 2, 3)}
"""By preset; the paper has four seeds."""
SHORTER: Mapping[str, Mapping[str, Any]] = {
    # A quarter of the paper's batch size: Cal-QL's five layers on AntMaze would else take most of the time.
    "smoke": {"schedule.pretrain": 100, "schedule.online": 100, "schedule.collect": 20, "schedule.updates": 20,
              "schedule.refresh": 20, "schedule.batch": 64, "evaluation.every": 100, "evaluation.episodes": 1},
}  # fmt: skip
DATA = ("d4rl", "suite")
ROWS_TO_TRY = 2_000
"""Of the suite's datasets with the preset `smoke`."""


def cells_of(name: str, preset: str, data: str) -> list[Cell]:
    """The runs of an experiment, on D4RL's data or on the datasets of the suite that resemble them."""
    from arb.lab.sweep import grid

    for kind, value, known in (("experiment", name, EXPERIMENTS), ("preset", preset, SEEDS), ("data", data, DATA)):
        if value not in known:
            raise DataError(f"there is no {kind} {value!r}{suggest(value, known)}; there are {', '.join(known)}")
    experiment = EXPERIMENTS[name]
    tasks = ONE_PER_GROUP if preset == "smoke" and experiment.tasks == PAPER else experiment.tasks
    return grid(
        [_on_suite(task, preset) for task in tasks] if data == "suite" else tasks,
        experiment.agents,
        experiment.strategies,
        SEEDS[preset],
        experiment.axes,
        preset=preset,
        overrides=SHORTER.get(preset),
    )


def _on_suite(task: str, preset: str) -> str:
    """The dataset of the suite that resembles a task of D4RL."""
    name = "suite:" + task.removesuffix("-v2").replace("medium-replay", "mixed")
    name = name if name in SUITE else f"{name}-play"
    return f"{name}:{ROWS_TO_TRY}" if preset == "smoke" else name
