"""A table as a value, written as text, Markdown, LaTeX or CSV; each says what it holds."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from arb.report.statistics import Estimate


@dataclass(frozen=True)
class Entry:
    """A number in a table with what is known about its uncertainty; no value is shown as a dash."""

    value: float | None = None
    spread: float | None = None
    """Sample standard deviation over seeds."""
    low: float | None = None
    high: float | None = None
    """Bootstrap interval."""
    n: int | None = None
    """Seeds."""
    best: bool = False
    mark: str = ""
    """A footnote's sign."""
    digits: int = 1

    def shown(self) -> str:
        """The number, its uncertainty and its seeds."""
        if self.value is None:
            return "—" + self.mark
        text = f"{self.value:.{self.digits}f}"
        if self.spread is not None:
            text += f" ± {self.spread:.{self.digits}f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low:.{self.digits}f}{'–' if self.low >= 0 else ' to '}{self.high:.{self.digits}f}]"
        return text + self.mark + (f" ({self.n})" if self.n is not None else "")


@dataclass(frozen=True)
class Table:
    """Rows of entries under named columns."""

    name: str
    """Of its files."""
    title: str
    corner: tuple[str, ...]
    """What the leading columns hold."""
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]
    """Labels and entries."""
    notes: tuple[str, ...] = ()
    marked: str = "best of its row"
    """What a star, or bold type, means."""

    @property
    def _legend(self) -> str:
        return self.marked if any(e.best for _, entries in self.rows for e in entries) else ""

    def text(self) -> str:
        """For a terminal; the best of a row has a star."""
        cells = [[e.shown() + ("*" if e.best else " ") for e in entries] for _, entries in self.rows]
        grid = [[*self.corner, *(f"{name} " for name in self.columns)]]
        grid += [[*labels, *line] for (labels, _), line in zip(self.rows, cells, strict=True)]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lead = len(self.corner)
        lines = [
            "  ".join(c.ljust(w) if i < lead else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
            for line in grid
        ]
        rule = "─" * max(map(len, lines))
        star = (f"* {self._legend}",) if self._legend else ()
        notes = [f"  {note}" for note in (*star, *self.notes)]
        body = [lines[0], rule, *lines[1:]]
        return "\n".join([self.title, *(line.rstrip() for line in body), *notes]) + "\n"

    def markdown(self) -> str:
        """For a README; the best of a row is bold."""

        def escaped(text: str) -> str:
            return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", _one_line(text))

        head = [*self.corner, *self.columns]
        lines = [f"**{escaped(self.title)}**", "", _piped(map(escaped, head))]
        lines.append(_piped(["---"] * len(self.corner) + ["---:"] * len(self.columns)))
        for labels, entries in self.rows:
            numbers = [f"**{escaped(e.shown())}**" if e.best else escaped(e.shown()) for e in entries]
            lines.append(_piped([*map(escaped, labels), *numbers]))
        notes = (f"Bold: {self._legend}.", *self.notes) if self._legend else self.notes
        return "\n".join([*lines, "", *(f"{escaped(note)}  " for note in notes)]) + "\n"

    def latex(self) -> str:
        """For a paper (booktabs); the best of a row is bold."""

        def number(entry: Entry) -> str:
            text = _tex(entry.shown())
            return rf"\textbf{{{text}}}" if entry.best else text

        layout = "l" * len(self.corner) + "r" * len(self.columns)
        bold = (f"Bold: {self._legend}.",) if self._legend else ()
        lines = [rf"% {_one_line(note)}" for note in (self.title, *bold, *self.notes)]
        lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
        lines += [" & ".join(map(_tex, (*self.corner, *self.columns))) + r" \\", r"\midrule"]
        lines += [" & ".join([*map(_tex, labels), *map(number, entries)]) + r" \\" for labels, entries in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """For a program: one line per number, in full precision."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.corner, "column", "value", "std", "low", "high", "seeds", "best", "mark"])
        for labels, entries in self.rows:
            for name, e in zip(self.columns, entries, strict=True):
                numbers = ["" if x is None else x for x in (e.value, e.spread, e.low, e.high, e.n)]
                writer.writerow([*map(_harmless, labels), _harmless(name), *numbers, int(e.best), e.mark])
        return text.getvalue()

    def files(self) -> dict[str, str]:
        """The table in every format, by file name."""
        formats: Mapping[str, Callable[[], str]] = {
            "txt": self.text, "md": self.markdown, "tex": self.latex, "csv": self.csv
        }  # fmt: skip
        return {f"tables/{self.name}.{ending}": write() for ending, write in formats.items()}


def estimated(found: Estimate | None, *, best: bool = False, n: int | None = None, digits: int = 1) -> Entry:
    """A number with its interval; no number is an empty entry."""
    return Entry() if found is None else Entry(found.value, None, found.low, found.high, n, best, digits=digits)


def with_best(entries: Sequence[Entry], lowest: bool = False) -> tuple[Entry, ...]:
    """Mark the best of a row as it is shown, ties included; where all are equal, or one is alone, none is best."""
    shown = {i: round(e.value, e.digits) for i, e in enumerate(entries) if e.value is not None}
    if len(set(shown.values())) < 2:
        return tuple(entries)
    best = (min if lowest else max)(shown.values())
    return tuple(replace(e, best=True) if shown.get(i) == best else e for i, e in enumerate(entries))


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "λ": r"$\lambda$", "ρ": r"$\rho$", "<": r"$<$", ">": r"$>$",
    "†": r"$^\dagger$", "§": r"\S{}", "‡": r"$^\ddagger$", "—": "---", "–": "--", "±": r"$\pm$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in _one_line(text))


def _harmless(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return "'" + text if text[:1] in tuple("=+-@\t\r") else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
