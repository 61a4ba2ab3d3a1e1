"""Did a change to agents or buffer change what is learned, or how long it takes? A small fixed grid, one table.

    python benchmarks/regress.py           four agents, three strategies, two seeds on Pendulum, six minutes on a core
    python benchmarks/regress.py --quick   IQL, two strategies, one seed, a few hundred steps
    python benchmarks/regress.py --save    and keep the runs as the archive that later versions are compared with

Runs are those of `arb run`; the archives beside this file (`regress.jsonl`, `regress-quick.jsonl`) hold the ones of the
last version. A run whose episodes all return what they did is the same; where it is not, the mean over seeds of the
difference in area under the online curve is shown, and minutes beside minutes. An archive of another processor says
nothing about time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from arb.lab.agents import settings_class
from arb.report.records import MEASURES, PRIMARY, Record, pack, read_archive
from arb.report.tables import Entry, Table

HERE = Path(__file__).parent
TASK = "bundled:pendulum-random"
GRID = {"agents": ("iql", "calql", "pex", "famo2o"), "strategies": ("naive", "arb", "arb_auto"), "seeds": (0, 1)}
QUICK = {"agents": ("iql",), "strategies": ("naive", "arb"), "seeds": (0,)}
HIDDEN = (64, 64)
SCHEDULE = {"schedule.pretrain": 2000, "schedule.online": 2000, "evaluation.every": 500, "evaluation.episodes": 5}


def compared(old: Sequence[Record], new: Sequence[Record]) -> Table:
    """One row per agent and strategy: how many runs are the same, how far apart they are, how long they took."""
    before = {_key(run): run for run in old if run.status == "done"}
    rows = []
    for agent, strategy in dict.fromkeys((run.agent, run.strategy) for run in new):
        ours = [run for run in new if (run.agent, run.strategy) == (agent, strategy)]
        pairs = [(before[_key(run)], run) for run in ours if _key(run) in before and run.status == "done"]
        failed = sum(run.status != "done" for run in ours)
        same = sum(_same(*pair) for pair in pairs)
        says = f"{same} of {len(pairs)} the same" if pairs else "not in the archive"
        says += f", {failed} failed" if failed else ""
        apart = [_area(b) - _area(a) for a, b in pairs]
        minutes = [[run.minutes for run in side if run.minutes is not None] for side in ([a for a, _ in pairs], ours)]
        times = [Entry(float(np.mean(side)), digits=2) if side else Entry() for side in minutes]
        entries = (
            Entry(float(np.mean([_area(a) for a, _ in pairs])) if pairs else None),
            Entry(float(np.mean([_area(run) for run in ours])) if not failed else None),
            Entry(float(np.mean(apart)), n=len(apart)) if pairs else Entry(),
            *times,
        )
        rows.append(((agent, strategy, says), entries))
    columns = ("area before", "area now", "difference", "minutes before", "minutes now")
    machines = {str(run.machine.get("cpu", "?")) for run in (*old, *new)}
    notes = ("The archive is of another processor: minutes cannot be compared.",) if len(machines) > 1 else ()
    title = f"Runs on {TASK} against the archive"
    return Table("regress", title, ("agent", "strategy", "runs"), columns, tuple(rows), notes)


def _key(run: Record) -> tuple[str, str, int]:
    """Settings may get new names from version to version; what is run stays."""
    return run.agent, run.strategy, run.seed


def _area(run: Record) -> float:
    return MEASURES[PRIMARY].of(run) or 0.0


def _same(old: Record, new: Record) -> bool:
    """Whether every episode of every evaluation returned the same."""
    if old.curves.keys() != new.curves.keys():
        return False
    return all(
        len(a.returns) == len(b.returns)
        and all(len(x) == len(y) and np.allclose(x, y, rtol=1e-5) for x, y in zip(a.returns, b.returns, strict=True))
        for a, b in ((old.curves[phase], new.curves[phase]) for phase in old.curves)
    )


def train(grid: dict[str, Sequence[Any]], folder: Path, preset: str, schedule: Mapping[str, int]) -> None:
    """Run the grid, one run after the other, with small networks."""
    from arb.lab.config import configure
    from arb.lab.training import run

    for agent in grid["agents"]:
        layers = [f.name for f in fields(settings_class(agent)) if f.name.endswith("hidden_dims")]
        settings = {**schedule, **{f"settings.{name}": HIDDEN for name in layers}}
        for seed in grid["seeds"]:
            for strategy in grid["strategies"]:
                config = configure(
                    task=TASK, agent=agent, strategy=strategy, seed=seed, preset=preset, overrides=settings
                )
                print(f"{agent} {strategy} {seed}", flush=True)
                run(config, folder / f"{agent}-{strategy}-{seed}")


def main() -> None:
    """Train, compare, perhaps save."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a minute instead of ten")
    options.add_argument("--save", action="store_true", help="replace the archive by these runs")
    chosen = options.parse_args()
    kept = HERE / ("regress-quick.jsonl" if chosen.quick else "regress.jsonl")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if chosen.quick:
            train(QUICK, folder / "runs", "smoke", {})
        else:
            train(GRID, folder / "runs", "demo", SCHEDULE)
        pack([folder / "runs"], folder / "new.jsonl")
        print(compared(read_archive(kept) if kept.exists() else [], read_archive(folder / "new.jsonl")).text())
        if chosen.save:
            kept.write_bytes((folder / "new.jsonl").read_bytes())
            print(f"kept in {kept.name}")


if __name__ == "__main__":
    main()
