"""What a person sees while a run goes on: a bar with figures on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Tell = Callable[[str, int, int, dict[str, float]], None]
"""Called after every chunk of work with phase, step, total steps and figures."""
EVERY_SECONDS = 20.0
_PHASES = {"pretrain": "offline", "online": "online"}


@contextmanager
def live_view() -> Iterator[Tell]:
    """A `tell` for `arb.runs.run.run`."""
    if sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _lines()


def described(figures: dict[str, float]) -> str:
    """Figures as people read them.

    >>> described({"score": 46.13, "online_share": 0.314})
    'score 46.1, 31% of a batch online'
    """
    parts = []
    if "score" in figures:
        parts.append(f"score {figures['score']:.1f}")
    if "online_share" in figures:
        parts.append(f"{figures['online_share']:.0%} of a batch online")
    if "effective_share" in figures:
        parts.append(f"{figures['effective_share']:.0%} of the rows in effect")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(600)
    '10 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Pace:
    """Steps per second of a phase, counted from where this process began it."""

    def __init__(self) -> None:
        self._phase, self._begun, self._first = "", 0.0, 0

    def rate(self, phase: str, step: int) -> float:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._begun, self._first = phase, now, step
        return (step - self._first) / max(now - self._begun, 1e-9)


def _lines() -> Tell:
    pace, last = _Pace(), 0.0

    def tell(phase: str, step: int, total: int, figures: dict[str, float]) -> None:
        nonlocal last
        rate, now = pace.rate(phase, step), time.monotonic()
        if "score" not in figures and now - last < EVERY_SECONDS:
            return
        last = now
        left = f", {(total - step) / rate:.0f} s left" if rate > 0 and step < total else ""
        speed = f"{rate:.0f}/s" if rate > 0 else "starting"
        print(f"{_PHASES[phase]:<8}{step:>9,} of {total:,}  {speed}{left}  {described(figures)}", flush=True)

    return tell


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[figures]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        rows: dict[str, Any] = {}
        known: dict[str, dict[str, float]] = {}
        pace = _Pace()

        def tell(phase: str, step: int, total: int, figures: dict[str, float]) -> None:
            if phase not in rows:
                rows[phase] = progress.add_task(_PHASES[phase], total=total, speed="", figures="")
            known.setdefault(phase, {}).update(figures)  # the last score stays in view between evaluations
            rate = pace.rate(phase, step)
            speed = f"{rate:.0f}/s" if rate > 0 else ""
            progress.update(rows[phase], completed=step, speed=speed, figures=described(known[phase]))

        yield tell
