"""The jobs of a sweep: which comes next, and what became of the others.

Pre-trainings come first, because runs wait for them; then the runs that share them.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from arb.lab.config import deciding_leaves
from arb.lab.grid import Cell


@dataclass(frozen=True)
class Job:
    """A pre-training that a group of cells shares, named after its first cell, or the run of one cell."""

    kind: Literal["pretrain", "run"]
    cell: Cell
    group: str

    @property
    def name(self) -> str:
        """The name that people see."""
        if self.kind == "run":
            return self.cell.folder
        task, agent, *_, seed = self.cell.folder.split("/")
        return f"{task}/{agent}/{seed}"

    @property
    def likeness(self) -> tuple[str, str]:
        """Jobs alike in this share compiled code, so one worker does them faster in a row."""
        return self.cell.config.agent, self.cell.config.task

    @property
    def updates(self) -> float:
        """How much work it is."""
        plan = self.cell.config.schedule
        return plan.pretrain if self.kind == "pretrain" else plan.online * plan.updates / plan.collect


class Failure(NamedTuple):
    """Why a job did not succeed."""

    reason: str
    traceback: str = ""
    final: bool = False
    """Whether another attempt would fail in the same way, for instance because the data cannot be used."""


def group_of(cell: Cell) -> str:
    """A name for the pre-training of a cell; cells of the same name share it."""
    return hashlib.sha256(json.dumps(deciding_leaves(cell.config), sort_keys=True).encode()).hexdigest()[:24]


class Roster:
    """The jobs of a sweep, and what became of them.

    A run becomes ready when the pre-training of its group is done. A job that fails is tried again until it has failed
    more than `retry` times, or for a reason that will not go away. A pre-training that has failed for good takes the
    runs of its group with it.
    """

    def __init__(self, cells: Iterable[Cell], retry: int = 1):
        self.retry = retry
        self.done: list[Job] = []
        self.failed: dict[Job, Failure] = {}
        self.running: list[Job] = []
        self._attempts: dict[Job, int] = {}
        self._waiting: dict[str, list[Job]] = {}
        for cell in cells:
            group = group_of(cell)
            self._waiting.setdefault(group, []).append(Job("run", cell, group))
        groups = sorted(self._waiting.values(), key=lambda jobs: -len(jobs))  # the longest queue first; else in order
        self._ready = [Job("pretrain", jobs[0].cell, jobs[0].group) for jobs in groups]

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not (self._ready or self.running or self._waiting)

    def next(self, like: tuple[str, str] | None = None) -> Job | None:
        """A job to begin now: pre-trainings first, and if possible one like the worker's last."""
        if not self._ready:
            return None
        urgent = [job for job in self._ready if job.kind == "pretrain"] or self._ready
        job = next((job for job in urgent if job.likeness == like), urgent[0])
        self._ready.remove(job)
        self.running.append(job)
        return job

    def finish(self, job: Job) -> None:
        """A job has succeeded."""
        self.running.remove(job)
        if job.kind == "pretrain":
            self._ready += self._waiting.pop(job.group)
        else:
            self.done.append(job)

    def fail(self, job: Job, failure: Failure) -> list[Job]:
        """A job has failed. Returns the runs that are lost with it, none if it will be tried again."""
        self.running.remove(job)
        self._attempts[job] = self._attempts.get(job, 0) + 1
        if self._attempts[job] <= self.retry and not failure.final:
            self._ready.append(job)
            return []
        if job.kind == "run":
            lost = [job]
        else:
            lost = self._waiting.pop(job.group)
            failure = failure._replace(reason=f"its pre-training failed: {failure.reason}")
        self.failed |= dict.fromkeys(lost, failure)
        return lost
