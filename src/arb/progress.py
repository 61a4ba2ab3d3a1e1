"""Progress of long work on standard error: bars on a terminal, otherwise a plain line now and then."""

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

Tell = Callable[[str, int, int, dict[str, float]], None]
"""Called after every chunk of work with phase, step, total steps and metrics."""
PHASES = {"pretrain": "offline", "online": "online"}
EVERY_SECONDS = 20.0
"""Between two plain lines about one piece of work, unless there is a new score."""
_WORDS = {"score": "score {:.1f}", "replay.online_share": "{:.0%} online", "replay.effective_share": "ESS {:.0%}"}


def described(metrics: Mapping[str, float]) -> str:
    """Metrics in words, e.g. "score 46.1, 31% online, ESS 12%"."""
    return ", ".join(text.format(metrics[name]) for name, text in _WORDS.items() if name in metrics)


def count(number: int, noun: str) -> str:
    """A number and its noun, e.g. "1 run", "1,200 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts(numbers: Iterable[int], noun: str) -> str:
    """The smallest and the largest number with their noun, e.g. "2 to 4 seeds"."""
    low, *_, high = sorted([*numbers] * 2) or (0, 0)
    return count(low, noun) if low == high else f"{low:,} to {high:,} {noun}s"


class Screen:
    """Pieces of work by key: bars where there are some, else a plain line each now and then; `say` prints a line."""

    def __init__(self, say: Callable[[str], None], rows_as_lines: bool = True, bars: Any = None):
        self.say, self.rows_as_lines, self.bars = say, rows_as_lines, bars
        self.summary: Callable[[], str] = str  # gives a line to show below the bars
        self._known: dict[Hashable, Any] = {}

    def update(self, key: Hashable, name: str, done: int = 0, total: int = 0, metrics: Any = None) -> None:
        words, now = described(metrics or {}), time.monotonic()
        if self.bars:
            if key not in self._known:
                self._known[key] = self.bars.add_task("", total=0, words="")
            room = max(self.bars.console.width - 54, 12)  # for the name, the end of which says more than the beginning
            fields = {"words": words} if words else {}  # the last ones stay in view
            fields["description"] = name if len(name) <= room else "…" + name[1 - room :]
            self.bars.update(self._known[key], completed=done, total=total, **fields)
        elif self.rows_as_lines and total and ("score" in words or done >= total or now >= self._known.get(key, 0.0)):
            self._known[key] = now + EVERY_SECONDS
            self.say("  ".join(filter(None, [name, f"{done:,} of {total:,}", words])))

    def drop(self, key: Hashable) -> None:
        if self.bars and key in self._known:
            self.bars.remove_task(self._known.pop(key))


@contextmanager
def screen(rows_as_lines: bool = True) -> Iterator[Screen]:
    """Bars where standard error is a terminal and Rich is installed; else lines, of rows only if `rows_as_lines`."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield Screen(lambda text: print(text, file=sys.stderr, flush=True), rows_as_lines)
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(14), "{task.completed:,} of {task.total:,}", TimeRemainingColumn())
    bars = Progress(*columns, "{task.fields[words]}", console=Console(stderr=True, highlight=False, markup=False))
    shown = Screen(lambda text: bars.console.print(text, soft_wrap=True), bars=bars)
    with Live(
        get_renderable=lambda: Group(bars, *filter(None, [shown.summary()])), console=bars.console, refresh_per_second=2
    ):
        yield shown


@contextmanager
def live_view() -> Iterator[Tell]:
    """For a single run: one row per phase."""
    with screen() as shown:
        yield lambda phase, step, total, metrics: shown.update(phase, PHASES[phase], step, total, metrics)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to report how much of one piece of work is done."""
    with screen() as shown:
        yield lambda done: shown.update(label, label, done, total)
