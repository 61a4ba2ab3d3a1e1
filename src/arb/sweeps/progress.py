"""What a person sees of a sweep: a table that changes on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from arb.progress import described, duration
from arb.report.counting import count
from arb.sweeps.grid import Cell
from arb.sweeps.roster import Job, Roster

MOST_ROWS = 24
_PHASES = {"pretrain": "offline", "online": "online"}


class Work:
    """How much of a sweep's work is done, in updates."""

    def __init__(self, cells: Sequence[Cell], finished_before: int = 0):
        self.cells, self.before, self.started = len(cells), finished_before, time.monotonic()
        self.runs, self.failed = 0, 0
        schedules = {job: _updates(job) for job in _jobs(cells)}
        self._total, self._done = sum(schedules.values()), dict.fromkeys(schedules, 0.0)

    def told(self, job: Job, step: int, total: int) -> None:
        """A job has come to a step."""
        self._done[job] = _updates(job) * step / max(total, 1)

    def over(self, job: Job) -> None:
        """A job is at its end, good or bad."""
        self._done[job] = _updates(job)
        self.runs += job.kind == "run"

    def lost(self, jobs: Sequence[Job]) -> None:
        """Runs that will not be."""
        self.failed += len(jobs)
        for job in jobs:
            self._done[job] = _updates(job)

    def summary(self) -> str:
        """One line.

        >>> Work([]).summary()
        '0 of 0 runs done'
        """
        text = f"{self.runs + self.before} of {count(self.cells + self.before, 'run')} done"
        if self.failed:
            text += f", {self.failed} failed"
        share, passed = sum(self._done.values()) / max(self._total, 1), time.monotonic() - self.started
        if 0.02 < share < 1:
            text += f", about {duration(passed * (1 - share) / share)} to go"
        return text


def _jobs(cells: Sequence[Cell]) -> list[Job]:
    """All jobs of a roster of these cells."""
    roster, jobs = Roster(cells), []
    while (job := roster.next()) is not None:
        jobs.append(job)
        roster.finish(job)
    return jobs


def _updates(job: Job) -> float:
    plan = job.cell.config.schedule
    return plan.pretrain if job.kind == "pretrain" else plan.online * plan.updates / plan.collect


class View:
    """Hears what happens in a sweep: a line for every job that ends, and rows for those at work."""

    def __init__(self, work: Work, say: Callable[[str], None] = lambda _: None):
        self.work, self.say = work, say
        self.rows: dict[Job, tuple[str, str, str]] = {}
        """Of the jobs at work: phase, step, and the last figures."""

    def begins(self, job: Job) -> None:
        """A job is given to somebody."""
        self.rows[job] = ("starting", "", "")

    def told(self, job: Job, phase: str, step: int, total: int, figures: dict[str, float]) -> None:
        """Progress of a job."""
        self.work.told(job, step, total)
        before = self.rows.get(job, ("", "", ""))[2]  # the last score stays in view between evaluations
        self.rows[job] = (
            _PHASES[phase],
            f"{step:,} of {total:,}",
            described(figures) if "score" in figures else before,
        )

    def ends(self, job: Job, score: float | None) -> None:
        """A job is done; with the last score if it was a run."""
        self.rows.pop(job, None)
        self.work.over(job)
        text = "pre-trained" if score is None else described({"score": score})
        self.say(f"{job.name}  {text}  ({self.work.summary()})")

    def fails(self, job: Job, reason: str, lost: Sequence[Job]) -> None:
        """A job failed; the runs that are thereby lost, none if it is tried again."""
        self.rows.pop(job, None)
        self.work.lost(lost)
        self.say(f"{job.name}  {'failed' if lost else 'failed, will be tried again'}: {reason}")

    def table(self) -> Any:
        """The rows, for a terminal."""
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), caption=self.work.summary(), caption_justify="left")
        for name in ("run", "phase", "step", "figures"):
            table.add_column(name, style="dim" if name == "figures" else "")
        for job, row in list(self.rows.items())[:MOST_ROWS]:
            table.add_row(job.name, *row)
        if len(self.rows) > MOST_ROWS:
            table.add_row(f"and {len(self.rows) - MOST_ROWS} more")
        return table


@contextmanager
def live_view(cells: Sequence[Cell], finished_before: int) -> Iterator[View]:
    """A view of cells that are to run: a changing table on a terminal, lines elsewhere."""
    work = Work(cells, finished_before)
    if not sys.stderr.isatty():
        yield View(work, lambda text: print(text, flush=True))
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    view = View(work, lambda text: console.print(text, markup=False, highlight=False))
    with Live(get_renderable=view.table, console=console, refresh_per_second=2):
        yield view
