"""What a sweep will cost: each agent is timed for a moment in each environment, by workers like those of the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arb.progress import duration
from arb.report.counting import count
from arb.runs.config import Config, flat
from arb.runs.estimate import TOO_SMALL, Estimate
from arb.sweeps import plan
from arb.sweeps.grid import Cell
from arb.sweeps.pool import Pool
from arb.sweeps.roster import group_of
from arb.tasks import task_of


class Cost(NamedTuple):
    """Of the cells that are not done yet."""

    cpu_seconds: float
    longest: float
    """Seconds of the longest chain of a pre-training and a run, which no number of workers shortens."""
    memory: float
    """Bytes of the largest run."""
    unknown: dict[str, str]
    """What could not be measured, with the reason."""

    def lines(self, workers: int) -> list[str]:
        """For people."""
        wall = max(self.cpu_seconds / workers, self.longest)
        found = [f"cannot be estimated: {name}: {reason}" for name, reason in self.unknown.items()]
        if self.cpu_seconds:
            found.append(
                f"about {duration(self.cpu_seconds)} of CPU time, {duration(wall)} on {count(workers, 'worker')} "
                f"with up to {self.memory / 1e9:.1f} GB of memory each (berb takes longer)"
            )
        return found


def cost(cells: Sequence[Cell], out: Path, workers: int | None = None) -> Cost:
    """Measure on this machine; pre-trainings are counted once."""
    left = [cell for cell in cells if not plan.done(out, cell)]
    kinds = {_kind(cell.config): cell for cell in left if _worth(cell.config)}
    measured, unknown = _measured(kinds, workers)
    groups: dict[str, float] = {}
    total = longest = memory = 0.0
    for cell in left:
        found = measured.get(_kind(cell.config))
        if found is not None:
            groups[group_of(cell)] = found.pretrain
            total, longest, memory = total + found.online, max(longest, found.seconds), max(memory, found.memory)
    return Cost(total + sum(groups.values()), longest, memory, unknown)


Kind = tuple[str, str]


def _measured(kinds: dict[Kind, Cell], workers: int | None) -> tuple[dict[Kind, Estimate], dict[str, str]]:
    pool, waiting = Pool(workers), list(kinds.items())
    measured: dict[Kind, Estimate] = {}
    unknown: dict[str, str] = {}
    try:
        while len(measured) + len(unknown) < len(kinds):
            for seat, (kind, cell) in zip(pool.seats(), waiting, strict=False):
                pool.give(seat, kind, {"kind": "estimate", "config": flat(cell.config)})
                waiting = waiting[1:]
            for kind, answer in pool.hear(0.5):
                if answer["answer"] == "done":
                    measured[kind] = Estimate(*answer["estimate"])
                else:
                    unknown[f"{kind[0]} on {kinds[kind].config.task}"] = answer["reason"]
    finally:
        pool.close()
    return measured, unknown


def _kind(config: Config) -> Kind:
    """Runs alike in this cost the same; datasets of one robot differ in little that matters here."""
    task = task_of(config.task)
    return config.agent, config.env or (task.env if task else config.task)


def _worth(config: Config) -> bool:
    return config.schedule.pretrain + config.schedule.online >= TOO_SMALL
