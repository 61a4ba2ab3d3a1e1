"""The commands from Python: `arb.run`, `arb.sweep` and `arb.compare` do what `arb run` ... do, without printing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arb.data.tasks import FIRST
from arb.lab.agents import DEFAULT_AGENT
from arb.lab.strategies import DEFAULT

if TYPE_CHECKING:
    from arb.lab.folder import Result
    from arb.lab.sweep import Outcome
    from arb.report.page import Report

PathLike = str | os.PathLike[str]


def run(
    task: str = FIRST,
    agent: str = DEFAULT_AGENT,
    strategy: str = DEFAULT,
    seed: int = 0,
    *,
    env: str = "",
    preset: str = "demo",
    settings: Mapping[str, Any] | None = None,
    out: PathLike | None = None,
) -> Result:
    """Pre-train offline and fine-tune online; an interrupted run continues, a finished one is returned.

    >>> arb.run(task="hopper-medium-v2", agent="iql", strategy="arb", seed=0).last      # doctest: +SKIP

    Args:
        task: a D4RL task, a file, or another source of past data.
        agent: `iql`, `calql`, `pex`, `famo2o`, `sac`, `rlpd`, `fql`, `qcfql`, or `my_module:MyAgent`.
        strategy: `arb`, `arb_auto`, `naive`, `parallel`, `top_n`, `berb` ..., or `my_module:MyStrategy`.
        seed: random seed.
        env: Gymnasium id, for data that does not say its own.
        preset: how much training: `smoke`, `demo`, `small` or `paper`.
        settings: any setting by its full name, e.g. `{"schedule.online": 50_000, "replay.temperature": 2}`.
        out: the folder of the run; `runs/TASK-AGENT-STRATEGY-PRESET-SEED` if not given.
    """
    from arb.lab.config import configure
    from arb.lab.folder import RunFolder, default_folder
    from arb.lab.training import run as run_folder
    from arb.report.plots import plot_run

    config = configure(task=task, env=env, agent=agent, strategy=strategy, seed=seed, preset=preset, overrides=settings)
    result = run_folder(config, Path(out) if out else default_folder(config, preset))
    plot = RunFolder(result.folder).picture_file
    if not plot.exists():
        plot_run(result.folder, plot)
    return result


def sweep(
    tasks: Iterable[str] = (FIRST,),
    agents: Iterable[str] = (DEFAULT_AGENT,),
    strategies: Iterable[str] = (DEFAULT,),
    seeds: Iterable[int] = (0,),
    *,
    env: str = "",
    preset: str = "demo",
    settings: Mapping[str, Sequence[Any]] | None = None,
    out: PathLike | None = None,
    workers: int | None = None,
) -> Outcome:
    """All combinations, on the cores of this machine; what is finished is skipped.

    >>> arb.sweep(strategies=["naive", "arb"], seeds=range(3), out="sweeps/first")      # doctest: +SKIP

    Args:
        tasks: sources of past data.
        agents: algorithms.
        strategies: replay strategies.
        seeds: seeds.
        env: Gymnasium id, for data that does not say its own.
        preset: how much training.
        settings: values to try by setting, e.g. `{"replay.temperature": [0.5, 2]}`.
        out: the folder of the sweep; `sweeps/PRESET` if not given.
        workers: processes, one per core if not given.
    """
    from arb.lab.sweep import grid
    from arb.lab.sweep import sweep as sweep_cells

    cells = grid(tasks, agents, strategies, seeds, settings, env=env, preset=preset)
    return sweep_cells(cells, Path(out) if out else Path("sweeps") / preset, workers=workers)


def compare(
    task: str = FIRST,
    agent: str = DEFAULT_AGENT,
    strategies: Iterable[str] | None = None,
    seeds: Iterable[int] = (0, 1, 2),
    *,
    env: str = "",
    preset: str = "demo",
    settings: Mapping[str, Any] | None = None,
    out: PathLike | None = None,
    workers: int | None = None,
) -> Report:
    """Strategies on one task from the same pre-trainings, and a report of them in the folder `report` below.

    >>> print(arb.compare("hopper-medium-v2", strategies=["naive", "arb"], seeds=[0]).text)      # doctest: +SKIP

    Args:
        task: source of past data.
        agent: algorithm.
        strategies: those of the paper and ARB auto if not given.
        seeds: seeds.
        env: Gymnasium id, for data that does not say its own.
        preset: how much training.
        settings: one value by setting, for all runs.
        out: the folder of the comparison; `compare/TASK-AGENT-PRESET` if not given.
        workers: processes, one per core if not given.
    """
    from arb.lab.strategies import COMPARED
    from arb.lab.sweep import comparison, grid
    from arb.lab.sweep import sweep as sweep_cells
    from arb.report.page import make_report

    chosen = COMPARED if strategies is None else strategies
    cells = grid([task], [agent], chosen, seeds, env=env, preset=preset, overrides=settings)
    folder, title = comparison(task, agent, preset)
    folder = Path(out) if out else folder
    sweep_cells(cells, folder, workers=workers)
    return make_report(folder, folder / "report", title=title)
