"""Run a grid: skip what is finished, continue what was interrupted, retry what failed, and say what is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arb.files import locked
from arb.lab import plan
from arb.lab.checkpoint import SHARED
from arb.lab.child import Answer, Order
from arb.lab.config import flat
from arb.lab.grid import Cell
from arb.lab.jobs import Failure, Job, Roster, group_of
from arb.lab.pool import Pool
from arb.lab.stopping import Interrupted, stoppable
from arb.progress import PHASES, Screen, count, described, duration, screen

if TYPE_CHECKING:
    from arb.lab.ray_cluster import RayCluster

HEAR_SECONDS = 0.5


class Outcome(NamedTuple):
    """What became of the cells, by their folders."""

    done: list[str]
    skipped: list[str]
    """Runs that were already finished."""
    failed: dict[str, str]
    """With the reason."""


class View:
    """Hears what happens in a sweep: a line for every job that ends, a row for every job at work, and what is left.

    How much is left is measured in updates.
    """

    def __init__(self, cells: Sequence[Cell], finished_before: int = 0, shown: Screen | None = None):
        self.screen = shown or Screen(lambda _: None, rows_as_lines=False)
        self.screen.summary = self.summary
        self._all, self._finished, self._failed = len(cells) + finished_before, finished_before, 0
        groups = {group_of(cell): cell for cell in cells}
        jobs = [Job("pretrain", cell, group) for group, cell in groups.items()]
        self._total = sum(job.updates for job in (*jobs, *(Job("run", cell, "") for cell in cells)))
        self._done: dict[Job, float] = {}
        self._started = time.monotonic()

    def begins(self, job: Job) -> None:
        """A job is given to a worker."""
        self.screen.update(job, job.name)

    def told(self, job: Job, phase: str, step: int, total: int, figures: dict[str, float]) -> None:
        """Progress of a job."""
        self._done[job] = job.updates * step / max(total, 1)
        score = {name: value for name, value in figures.items() if name == "score"}
        self.screen.update(job, f"{job.name}  {PHASES[phase]}", step, total, score)

    def ends(self, job: Job, score: float | None) -> None:
        """A job is done; with the last score if it was a run."""
        self.screen.drop(job)
        self._done[job] = job.updates
        self._finished += job.kind == "run"
        text = "pre-trained" if score is None else described({"score": score})
        self.screen.say(f"{job.name}  {text}  ({self.summary()})")

    def fails(self, job: Job, reason: str, lost: Sequence[Job]) -> None:
        """A job failed; the runs that are lost with it, none if it is tried again."""
        self.screen.drop(job)
        self._failed += len(lost)
        self._done |= {run: run.updates for run in lost}
        self.screen.say(f"{job.name}  {'failed' if lost else 'failed, will be tried again'}: {reason}")

    def summary(self) -> str:
        """How much is done and left, in one line.

        >>> View([]).summary()
        '0 of 0 runs done'
        """
        text = f"{self._finished} of {count(self._all, 'run')} done"
        if self._failed:
            text += f", {self._failed} failed"
        share, passed = sum(self._done.values()) / max(self._total, 1), time.monotonic() - self._started
        if 0.02 < share < 1:
            text += f", about {duration(passed * (1 - share) / share)} left"
        return text


@contextmanager
def live_view(cells: Sequence[Cell], finished_before: int) -> Iterator[View]:
    """A view of the cells that are to run, on standard error."""
    with screen(rows_as_lines=False) as shown:
        yield View(cells, finished_before, shown)


def sweep(
    cells: Sequence[Cell],
    out: str | Path,
    *,
    workers: int | None = None,
    crew: Pool | RayCluster | None = None,
    retry: int = 1,
    view: View | None = None,
) -> Outcome:
    """Run the cells of a grid below a folder; what is finished there is skipped, what was interrupted continues.

    Args:
        cells: made by `arb.lab.grid.grid`.
        out: the folder of the sweep.
        workers: processes on this machine, one per core if not given.
        crew: who else is to do the work, e.g. a `RayCluster`; closed at the end.
        retry: how often a failed job is tried again.
        view: what is shown meanwhile.
    """
    out, crew = Path(out).absolute(), crew or Pool(workers)
    try:
        cells = plan.placed(out, cells)
        skipped = [cell.folder for cell in cells if plan.done(out, cell)]
        roster = Roster([cell for cell in cells if cell.folder not in skipped], retry)
        busy = f"another sweep is running in {out}: wait for it, or choose another --out"
        with locked(out / plan.LOCK, busy), stoppable() as asked_to_stop:
            plan.write_plan(out, cells)
            shift = _Shift(out, roster, crew, view or View(cells))
            while not roster.over:
                if asked_to_stop():
                    shift.end()
                    left = len(cells) - len(skipped) - len(roster.done) - len(roster.failed)
                    raise Interrupted(f"stopped with {count(left, 'run')} left; run the same command to continue")
                shift.go_on()
    finally:
        crew.close()
    failed = {job.cell.folder: failure.reason for job, failure in roster.failed.items()}
    return Outcome([job.cell.folder for job in roster.done], skipped, failed)


class _Shift:
    """The crew at work on a roster."""

    def __init__(self, out: Path, roster: Roster, crew: Pool | RayCluster, view: View):
        self.out, self.roster, self.crew, self.view = out, roster, crew, view
        self._last: dict[int, tuple[str, str]] = {}

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
        self.view.screen.say(f"{self.crew.stopping}; press Ctrl-C again to quit now")
        self.crew.stop()
        running = set(self.roster.running)
        while running:
            for job, answer in self.crew.hear(HEAR_SECONDS):
                if answer["answer"] in ("told", "notice"):
                    continue
                running.discard(job)
                if answer["answer"] == "done":
                    self._take_in(job, answer)

    def _order(self, job: Job) -> Order:
        cache = self.out / SHARED
        folder = self.out / job.cell.folder if job.kind == "run" else cache / f"under-way-{job.group}"
        return {
            "kind": job.kind,
            "config": flat(job.cell.config),
            "folder": str(folder),
            "cache": str(cache),
            "kept": plan.remembered(self.out, job.group),
        }

    def _take_in(self, job: Job, answer: Answer) -> None:
        if answer["answer"] == "notice":
            self.view.screen.say(answer["text"])
        elif answer["answer"] == "told":
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
