"""Progress of long work: rows that change on a terminal, plain lines anywhere else. All of it goes to standard error.

`screen` is the one implementation. `live_view` shows a run on it, `progress` a single count, and `arb.lab.launch` a
row for every run of a sweep.
"""

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

Tell = Callable[[str, int, int, dict[str, float]], None]
"""Called after every chunk of work with phase, step, total steps and figures."""
EVERY_SECONDS = 20.0
"""Between two plain lines about the same row, unless there is a new score."""
MOST_ROWS = 24
BAR = 14
PHASES = {"pretrain": "offline", "online": "online"}
_COLUMNS = ("name", "bar", "count", "left", "speed", "score", "figures")
_LEAST_NAME = 8
_FIGURES = {
    "score": "score {:.1f}",
    "online_share": "{:.0%} of the batch online",
    "effective_share": "effective sample size {:.0%}",
}


def described(figures: Mapping[str, float]) -> str:
    """Figures as people read them.

    >>> described({"score": 46.13, "online_share": 0.314, "effective_share": 0.12})
    'score 46.1, 31% of the batch online, effective sample size 12%'
    """
    return ", ".join(text.format(figures[name]) for name, text in _FIGURES.items() if name in figures)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(600)
    '10 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def count(number: int, noun: str) -> str:
    """A number and its noun, which takes an s unless there is one.

    >>> count(1, "run"), count(0, "run"), count(1200, "pre-training")
    ('1 run', '0 runs', '1,200 pre-trainings')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts(numbers: Iterable[int], noun: str) -> str:
    """The smallest and the largest of some numbers, with their noun.

    >>> counts([3, 1, 2], "seed"), counts([2, 2], "seed")
    ('1 to 3 seeds', '2 seeds')
    """
    low, *_, high = sorted([*numbers] * 2) or (0, 0)
    return count(low, noun) if low == high else f"{low} to {high} {noun}s"


class Row:
    """How far one piece of work has come. Speed counts from where this process took the work up."""

    def __init__(self, name: str):
        self.name = name
        self.done, self.total = 0, 0
        self.figures: dict[str, float] = {}
        self.said = float("-inf")
        """When the last plain line about it was printed."""
        self._begun, self._now, self._first = 0.0, 0.0, 0

    def update(self, now: float, name: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Take in a new count; the last score stays in view between evaluations."""
        if name != self.name or not self.total:  # a new phase has a speed of its own
            self.name, self._begun, self._first = name, now, done
        self.done, self.total = done, total
        self.figures.update(figures)
        self._now = now

    @property
    def rate(self) -> float:
        """Counts per second, 0 while that is not known."""
        return (self.done - self._first) / max(self._now - self._begun, 1e-9) if self.total else 0.0

    def cells(self, bar: str = "#-") -> dict[str, str]:
        """The text of every column."""
        if not self.total:
            return dict.fromkeys(_COLUMNS, "") | {"name": self.name, "count": "starting"}
        filled = round(BAR * min(self.done / self.total, 1.0))
        rate = self.rate
        left = (self.total - self.done) / rate if rate > 0 and self.done < self.total else None
        return {
            "name": self.name,
            "bar": bar[0] * filled + bar[1] * (BAR - filled),
            "count": f"{self.done:,} of {self.total:,}",
            "left": "" if left is None else f"{duration(left)} left",
            "speed": f"{rate:,.0f}/s" if rate > 0 else "",
            "score": described({name: value for name, value in self.figures.items() if name == "score"}),
            "figures": described({name: value for name, value in self.figures.items() if name != "score"}),
        }


def fitted(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Rows as aligned lines of at most `width` characters.

    Count and time left are always kept. A long name is cut at its left, and score, speed, bar and other figures appear
    only where there is room for them, in this order.
    """
    if not rows:
        return []
    widths = {column: max(len(row[column]) for row in rows) for column in _COLUMNS}
    room = width - sum(widths[column] + 2 * (widths[column] > 0) for column in ("count", "left"))
    widths["name"] = min(widths["name"], max(room, _LEAST_NAME))
    room -= widths["name"]
    for column in ("score", "speed", "bar", "figures"):
        if widths[column] + 2 <= room:
            room -= widths[column] + 2
        else:
            widths[column] = 0
    lines = []
    for row in rows:
        name = row["name"] if len(row["name"]) <= widths["name"] else "…" + row["name"][1 - widths["name"] :]
        texts = {**row, "name": name}
        parts = [texts[column].ljust(widths[column]) for column in _COLUMNS if widths[column]]
        lines.append("  ".join(parts).rstrip()[:width])
    return lines


class Screen:
    """Rows by key, and lines said above them. Use `screen` to get one."""

    def __init__(self, say: Callable[[str], None], rows_as_lines: bool = True):
        self.say = say
        """Prints a line for good."""
        self.rows: dict[Hashable, Row] = {}
        self.summary: Callable[[], str] = str
        """A line below the rows."""
        self._rows_as_lines = rows_as_lines

    def update(
        self, key: Hashable, name: str, done: int = 0, total: int = 0, figures: Mapping[str, float] | None = None
    ) -> None:
        """Show how far a row has come; a new key is a new row."""
        row, now = self.rows.setdefault(key, Row(name)), time.monotonic()
        row.update(now, name, done, total, figures or {})
        due = "score" in (figures or {}) or done >= total or now - row.said >= EVERY_SECONDS
        if self._rows_as_lines and total and due:
            row.said = now
            self.say("  ".join(text for column, text in row.cells().items() if text and column != "bar"))

    def drop(self, key: Hashable) -> None:
        """Take a row away."""
        self.rows.pop(key, None)

    def text(self, width: int, bar: str = "#-") -> str:
        """Everything as it stands on a terminal of this width."""
        rows = list(self.rows.values())
        lines = fitted([row.cells(bar) for row in rows[:MOST_ROWS]], width)
        if len(rows) > MOST_ROWS:
            lines.append(f"and {len(rows) - MOST_ROWS} more")
        return "\n".join([*lines, *filter(None, [self.summary()[:width]])])


@contextmanager
def screen(rows_as_lines: bool = True) -> Iterator[Screen]:
    """A screen on standard error; where that is not a terminal, or Rich is not installed, plain lines.

    Args:
        rows_as_lines: whether rows are printed now and then where they cannot change in place.
    """
    stream = getattr(sys.stderr, "terminal", sys.stderr)  # the command line's own standard error escapes control codes
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        terminal = False
    else:
        terminal = bool(stream.isatty())
    if not terminal:
        yield Screen(lambda text: print(text, file=sys.stderr, flush=True), rows_as_lines)
        return
    console = Console(file=stream)
    bar = "━╌" if "utf" in console.encoding else "#-"
    shown = Screen(lambda text: console.print(Text(plain(text)), soft_wrap=True), rows_as_lines=False)

    def render() -> Any:
        return Text(plain(shown.text(console.width, bar)), no_wrap=True)

    with Live(get_renderable=render, console=console, refresh_per_second=2):
        yield shown


@contextmanager
def live_view() -> Iterator[Tell]:
    """A `tell` for `arb.lab.run.run`: one row per phase."""
    with screen() as shown:
        yield lambda phase, step, total, figures: shown.update(phase, PHASES[phase], step, total, figures)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to tell how much of one long piece of work is done."""
    with screen() as shown:
        yield lambda done: shown.update(label, label, done, total)


def plain(text: str) -> str:
    r"""Text without what a terminal would obey or a stream could not encode; line ends and tabs stay.

    >>> plain("\x1b[2J a\tb")
    '\\x1b[2J a\tb'
    """
    return "".join(letter if _harmless(letter) else letter.encode("unicode_escape").decode() for letter in text)


def _harmless(letter: str) -> bool:
    """Whether a letter is neither a control code, nor one that turns the direction of writing, nor half a letter."""
    code = ord(letter)
    control = code < 0x20 or 0x7F <= code < 0xA0
    return (not control and code not in _DIRECTIONS and not 0xD800 <= code < 0xE000) or letter in "\n\t"


_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F}
