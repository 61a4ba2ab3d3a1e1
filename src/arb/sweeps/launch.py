"""Work off a grid: skip what is finished, go on with what was interrupted, retry what failed, and say what is left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from arb.report.counting import count
from arb.runs.config import flat
from arb.runs.stopping import Interrupted, stoppable
from arb.sweeps import plan
from arb.sweeps.grid import Cell
from arb.sweeps.pool import Pool
from arb.sweeps.progress import View, Work
from arb.sweeps.roster import Failure, Job, Roster
from arb.sweeps.worker import Answer, Order

HEAR_SECONDS = 0.5


class Crew(Protocol):
    """Who does the jobs: a `Pool` of this machine, or a `Cluster`."""

    @property
    def size(self) -> int:
        """How many jobs it does at a time."""

    def seats(self) -> Iterable[int]:
        """Who can take a job now."""

    def give(self, seat: int, key: Hashable, order: Order, /) -> None:
        """Let one do something."""

    def hear(self, timeout: float) -> list[tuple[Any, Answer]]:
        """What was answered meanwhile, each with the key of its job."""

    def stop(self) -> None:
        """Ask all to save and stop."""

    def close(self) -> None:
        """End all."""


class Outcome(NamedTuple):
    """What became of the cells, by their folders."""

    done: list[str]
    skipped: list[str]
    """Were finished before."""
    failed: dict[str, str]
    """With the reason."""


def sweep(
    cells: Sequence[Cell],
    out: str | Path,
    *,
    workers: int | None = None,
    crew: Crew | None = None,
    retry: int = 1,
    view: View | None = None,
) -> Outcome:
    """Run the cells of a grid below a folder; what is finished there is skipped, what was interrupted goes on.

    Args:
        cells: of `arb.sweeps.grid.grid`.
        out: the folder of the sweep.
        workers: processes on this machine, one per core if not given.
        crew: who else is to do the work, e.g. a `Cluster`; closed at the end.
        retry: how often a failed job is tried again.
        view: what is shown meanwhile.
    """
    out, crew = Path(out).absolute(), crew or Pool(workers)
    try:
        plan.check(out, cells)
        skipped = [cell.folder for cell in cells if plan.done(out, cell)]
        roster = Roster([cell for cell in cells if cell.folder not in skipped], retry)
        with plan.locked(out), stoppable() as asked_to_stop:
            plan.write_plan(out, cells)
            shift = _Shift(out, roster, crew, view or View(Work(cells)))
            while not roster.over:
                if asked_to_stop():
                    shift.end()
                    left = roster.waiting + len(roster.running)
                    raise Interrupted(f"stopped with {count(left, 'run')} to go; the same command goes on from there")
                shift.go_on()
    finally:
        crew.close()
    failed = {job.cell.folder: failure.reason for job, failure in roster.failed.items()}
    return Outcome([job.cell.folder for job in roster.done], skipped, failed)


class _Shift:
    """The crew at work on a roster."""

    def __init__(self, out: Path, roster: Roster, crew: Crew, view: View):
        self.out, self.roster, self.crew, self.view = out, roster, crew, view
        self._last: dict[int, tuple[str, str, str]] = {}

    def go_on(self) -> None:
        """Give out what can be given, and take in what was answered."""
        for seat in self.crew.seats():
            job = self.roster.next(self._last.get(seat))
            if job is None:
                break
            self._last[seat] = job.likeness
            self.view.begins(job)
            self.crew.give(seat, job, self._order(job))
        for job, answer in self.crew.hear(HEAR_SECONDS):
            self._take_in(job, answer)

    def end(self) -> None:
        """Let all save and stop, and wait for it."""
        self.view.say("stopping: every worker finishes the chunk at hand and saves; once more to stop at once")
        self.crew.stop()
        running = set(self.roster.running)
        while running:
            for job, answer in self.crew.hear(HEAR_SECONDS):
                if answer["answer"] == "told":
                    continue
                running.discard(job)
                if answer["answer"] == "done":
                    self._take_in(job, answer)

    def _order(self, job: Job) -> Order:
        cache = self.out / plan.CACHE
        folder = self.out / job.cell.folder if job.kind == "run" else cache / f"under-way-{job.group}"
        return {
            "kind": job.kind,
            "config": flat(job.cell.config),
            "folder": str(folder),
            "cache": str(cache),
            "kept": plan.remembered(self.out, job.group),
        }

    def _take_in(self, job: Job, answer: Answer) -> None:
        if answer["answer"] == "told":
            self.view.told(job, answer["phase"], answer["step"], answer["total"], answer["figures"])
        elif answer["answer"] == "done":
            self.roster.finish(job)
            if job.kind == "pretrain":
                plan.remember(self.out, job.group, answer["kept"])
            else:
                plan.forget_failure(self.out, job.cell)
            self.view.ends(job, answer.get("score"))
        else:
            failure = Failure(answer["reason"], answer.get("traceback", ""), answer.get("final", False))
            lost = self.roster.fail(job, failure)
            for run in lost:
                why = self.roster.failed[run]
                plan.write_failure(self.out, run.cell, why.reason, why.traceback)
            self.view.fails(job, failure.reason, lost)
