"""Tables as values, written as text, Markdown, LaTeX or CSV; and the tables of a report."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arb.lab.agents import agent_label
from arb.lab.strategies import strategy_label
from arb.progress import count, counts
from arb.report import stats
from arb.report.records import MEASURES, PRIMARY, Floats, Results, RunGroup
from arb.report.stats import CONFIDENCE, LEVEL, MARGIN, ByTask, Comparison, Estimate


@dataclass(frozen=True)
class Entry:
    """A number in a table with what is known about its uncertainty; no value is shown as a dash."""

    value: float | None = None
    std: float | None = None  # over seeds
    low: float | None = None
    high: float | None = None
    n: int | None = None  # seeds, or pairs
    bold: bool = False
    mark: str = ""  # of a footnote
    digits: int = 1
    signed: bool = False  # whether a plus sign is shown, as for differences

    def shown(self) -> str:
        """The number, its uncertainty and its seeds.

        >>> Entry(6.3, low=3.8, high=8.8, n=4, signed=True).shown(), Entry(46.1, 2.5, n=3).shown()
        ('+6.3 [+3.8, +8.8] (4)', '46.1 ± 2.5 (3)')
        """
        if self.value is None:
            return "—" + self.mark
        style = f"{'+' if self.signed else ''}z.{self.digits}f"
        text = format(self.value, style)
        if self.std is not None:
            text += f" ± {self.std:.{self.digits}f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low:{style}}, {self.high:{style}}]"
        return text + self.mark + (f" ({self.n})" if self.n is not None else "")


@dataclass(frozen=True)
class Table:
    """Rows of entries under named columns."""

    name: str  # of its files
    title: str
    corner: tuple[str, ...]  # what the leading columns hold
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]  # labels and entries
    notes: tuple[str, ...] = ()
    bold: str = "best of its row"  # what bold type, or a star, means

    @property
    def legend(self) -> str:
        return self.bold if any(e.bold for _, entries in self.rows for e in entries) else ""

    def text(self) -> str:
        """The table for a terminal; a star stands for bold type."""
        grid = [[*self.corner, *(f"{name} " for name in self.columns)]]
        grid += [[*labels, *(e.shown() + ("*" if e.bold else " ") for e in entries)] for labels, entries in self.rows]
        sides = "<" * len(self.corner) + ">" * len(self.columns)
        styles = [f"{side}{max(map(len, column))}" for side, column in zip(sides, zip(*grid, strict=True), strict=True)]
        lines = ["  ".join(map(format, line, styles)) for line in grid]
        notes = [f"  {note}" for note in ([f"* {self.legend}"] if self.legend else []) + [*self.notes]]
        head, *rest = (line.rstrip() for line in lines)
        return "\n".join([self.title, head, "─" * max(map(len, lines)), *rest, *notes]) + "\n"

    def markdown(self) -> str:
        def escaped(text: str) -> str:
            return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", " ".join(text.split()))

        def piped(cells: Iterable[str]) -> str:
            return "| " + " | ".join(cells) + " |"

        lines = [f"**{escaped(self.title)}**", "", piped(map(escaped, (*self.corner, *self.columns)))]
        lines.append(piped(["---"] * len(self.corner) + ["---:"] * len(self.columns)))
        for labels, entries in self.rows:
            numbers = [f"**{escaped(e.shown())}**" if e.bold else escaped(e.shown()) for e in entries]
            lines.append(piped([*map(escaped, labels), *numbers]))
        notes = (f"Bold: {self.legend}.", *self.notes) if self.legend else self.notes
        return "\n".join([*lines, "", *(f"{escaped(note)}  " for note in notes)]) + "\n"

    def latex(self) -> str:
        def number(entry: Entry) -> str:
            text = re.sub(r"-(?=[\d.])", "$-$", _tex(entry.shown()))
            return rf"\textbf{{{text}}}" if entry.bold else text

        notes = (self.title, *((f"Bold: {self.legend}.",) if self.legend else ()), *self.notes)
        lines = [r"% needs \usepackage{booktabs}", *(rf"% {' '.join(note.split())}" for note in notes)]
        lines += [rf"\begin{{tabular}}{{{'l' * len(self.corner)}{'r' * len(self.columns)}}}", r"\toprule"]
        lines += [" & ".join(map(_tex, (*self.corner, *self.columns))) + r" \\", r"\midrule"]
        lines += [" & ".join([*map(_tex, labels), *map(number, entries)]) + r" \\" for labels, entries in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """For a program: one line per number, in full precision."""

        def harmless(text: str) -> str:  # a spreadsheet must not take it for a formula
            return "'" + text if text[:1] in tuple("=+-@\t\r") else text

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.corner, "column", "value", "std", "low", "high", "n", "bold", "mark"])
        for labels, entries in self.rows:
            for name, e in zip(self.columns, entries, strict=True):
                numbers = ["" if x is None else x for x in (e.value, e.std, e.low, e.high, e.n)]
                writer.writerow([*map(harmless, labels), harmless(name), *numbers, int(e.bold), e.mark])
        return text.getvalue()

    def files(self, folder: str = "tables") -> dict[str, str]:
        formats = {"txt": self.text(), "md": self.markdown(), "tex": self.latex(), "csv": self.csv()}
        return {f"{folder}/{self.name}.{ending}": text for ending, text in formats.items()}


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "λ": r"$\lambda$", "ρ": r"$\rho$", "<": r"$<$", ">": r"$>$",
    "†": r"$^\dagger$", "§": r"\S{}", "‡": r"$^\ddagger$", "—": "---", "–": "--", "±": r"$\pm$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split()))


def mean_entry(values: Floats) -> Entry:
    """Mean and sample standard deviation (divided by n - 1) over seeds."""
    if not len(values):
        return Entry()
    return Entry(float(values.mean()), float(np.std(values, ddof=1)) if len(values) > 1 else None, n=len(values))


def estimated(found: Estimate | None, *, bold: bool = False, n: int | None = None) -> Entry:
    """A difference with its interval; no difference is an empty entry."""
    if found is None:
        return Entry()
    return Entry(found.value, None, found.low, found.high, n, bold, signed=True)


def with_best(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The best of a row in bold, as shown, ties included; where all are equal, or one is alone, none is best."""
    shown = {i: round(e.value, e.digits) for i, e in enumerate(entries) if e.value is not None}
    if len(set(shown.values())) < 2:
        return tuple(entries)
    best = max(shown.values())
    return tuple(replace(e, bold=True) if shown.get(i) == best else e for i, e in enumerate(entries))


# ---- scores ----------------------------------------------------------------------------------------------------------
STARTED = ("area", "last", "best")  # measures whose tables show the pre-trained score beside them


def score_table(results: Results, agent: str, measure: str = PRIMARY) -> Table:
    """Rows are datasets, columns the variants of strategies, after the pre-trained score that they start from."""
    kind, tasks, variants, own = MEASURES[measure], results.tasks(agent), results.variants(agent), results.of(agent)
    rows = []
    for task in tasks:
        groups = [results.group(task, agent, variant) for variant in variants]
        entries = [mean_entry(group.values(measure)) if group else Entry() for group in groups]
        if measure in STARTED:  # the strategies of a seed share the score before fine-tuning
            finished = (run for group in groups if group and group.finished for run in group.runs)
            before = {run.seed: MEASURES["pretrained"].of(run) for run in finished}
            entries.insert(0, mean_entry(np.array([value for value in before.values() if value is not None], float)))
        rows.append(((task,), tuple(entries)))
    empty = sum(e.value is None for _, entries in rows for e in entries[-len(variants) :])
    notes = [f"Mean ± sample standard deviation over seeds (their number) of {kind.meaning}."]
    curves = (curve for group in own for run in group.runs for curve in run.curves.values())
    episodes = counts((len(scores) for curve in curves for scores in curve.scores), "episode")
    notes.append(f"Runs of {steps_of(own)}; an evaluation has {episodes}.")
    plain = sorted({group.task for group in own if not group.normalised})
    if plain and len(plain) < len(tasks):
        notes.append(f"Plain returns, not scores: {', '.join(plain)}.")
    if empty:
        notes.append(f"{empty} of {len(tasks) * len(variants)} entries have no finished run.")
    if any(e.n == 1 for _, entries in rows for e in entries):
        notes.append("One seed has no standard deviation: it does not show how much seeds differ.")
    if any(len({e.n for e in entries[-len(variants) :] if e.n}) > 1 for _, entries in rows):
        notes.append("Strategies may have different seeds: compare them by their paired differences.")
    title = f"{agent_label(agent)}: {kind.title.lower()}, {' or '.join(sorted({group.unit for group in own}))}"
    columns = (*(["pre-trained"] if measure in STARTED else []), *variants)
    return Table(f"{measure}-{results.file(agent)}", title, ("dataset",), columns, tuple(rows), tuple(notes))


def steps_of(groups: Iterable[RunGroup]) -> str:
    """How much training the runs had."""

    def amount(value: object) -> str:
        return f"{value:,}" if isinstance(value, int) else str(value)

    keys = ("schedule.pretrain", "schedule.online")
    numbers = [tuple(run.config.get(key, "?") for key in keys) for group in groups for run in group.runs]
    plans = {tuple(map(amount, plan)) for plan in numbers}
    if len(plans) > 2 and all(isinstance(number, int) for plan in numbers for number in plan):
        offline, online = zip(*numbers, strict=True)
        return f"{counts(offline, 'update')} offline and {counts(online, 'step')} online"
    return " or ".join(f"{offline} updates offline and {online} steps online" for offline, online in sorted(plans))


# ---- paired differences ----------------------------------------------------------------------------------------------
DifferenceRows = Mapping[tuple[str, ...], Mapping[str, ByTask]]
"""Of a table of differences: by the labels of a row, differences by column, one array per task."""
SECONDARY = {"last": "last evaluation", "drop": "drop at the switch"}
SIGNIFICANT = "differs from zero at the 5% level after Holm's correction"


def overall_table(found: Sequence[Comparison], agent: str, tasks: Sequence[str], name: str) -> Table:
    """One row per variant: its differences on some datasets, of the area first."""
    several = len(tasks) > 1
    normalised = all(task in one.normalised for one in found for task in tasks if task in one.pairs)
    corrected = stats.holm({one.variant: stats.p_value(stats.headline(one.over(tasks))) for one in found})
    measures = [m for m in SECONDARY if any(one.over(tasks, m) for one in found)]
    rows = []
    for one in found:
        values, p = one.over(tasks), corrected[one.variant]
        means = [float(seeds.mean()) for seeds in values]
        says = stats.verdict(stats.headline(values), p, MARGIN if normalised else None)
        entries = [estimated(stats.t_interval(stats.headline(values)), bold=says in ("better", "worse"))]
        if several:
            entries += [estimated(stats.t_interval(values)), Entry(float(np.median(means)), signed=True)]
        others = (stats.headline(one.over(tasks, measure)) for measure in measures)
        entries += [Entry(p, digits=3), *(estimated(stats.t_interval(other) if other else None) for other in others)]
        numbers, noun = (means, "dataset") if several else ([x for seeds in values for x in seeds], "seed")
        gains = f"{sum(x > 0 for x in numbers)} of {count(len(numbers), noun)}"
        rows.append(((one.variant, says, f"{sum(map(len, values))}", gains), tuple(entries)))
    base = strategy_label(found[0].baseline)
    columns = ["area", *(["area, over seeds", "median"] if several else []), "p (Holm)", *map(SECONDARY.get, measures)]
    unit = "datasets" if several else "seeds"
    notes = [
        f"A run minus the run of {base} with the same dataset, seed and pre-trained agent; mean over seeds, then "
        f"datasets. In brackets Student's {CONFIDENCE:.0%} interval over {unit}: right for few numbers if they are "
        "about normal."
    ]
    if several:
        notes.append("The interval over datasets is about further datasets of this kind, that over seeds about these.")
    tested = count(sum(p is not None for p in corrected.values()), "comparison")
    notes.append(f"p: Student's test over {unit}, for the area only, corrected for {tested} (Holm).")
    if normalised:
        notes.append(f"No difference that matters: the interval lies within ±{MARGIN:g} points of a normalised score.")
    where = "all datasets with a normalised score" if several else tasks[0]
    title = f"{agent_label(agent)}: paired difference to {base}, {where}"
    corner = ("strategy", "by area", "pairs", "gain on")
    return Table(name, title, corner, tuple(map(str, columns)), tuple(rows), tuple(notes), SIGNIFICANT)


def difference_table(
    rows: DifferenceRows, corner: tuple[str, ...], baseline: str, title: str = "", name: str = "differences"
) -> Table:
    """Differences of the area as given, each with its interval; significance is corrected for the whole table."""
    values = {(labels, column): some for labels, row in rows.items() for column, some in row.items() if some}
    corrected = stats.holm({key: stats.p_value(some) for key, some in values.items()})
    columns = tuple(dict.fromkeys(column for row in rows.values() for column in row))
    entries = {
        key: estimated(stats.t_interval(some), bold=(corrected[key] or 1.0) < LEVEL, n=sum(map(len, some)))
        for key, some in values.items()
    }
    order = ", then over datasets" if any(len(some) > 1 for some in values.values()) else ""
    body = tuple((labels, tuple(entries.get((labels, column), Entry()) for column in columns)) for labels in rows)
    tested = count(sum(p is not None for p in corrected.values()), "comparison")
    bold = any(entry.bold for entry in entries.values())
    notes = (
        f"A run minus the run of {strategy_label(baseline)} with the same seed and pre-trained agent: mean over "
        f"seeds{order}, Student's {CONFIDENCE:.0%} interval, number of pairs.",
        f"{'Bold differences are' if bold else 'No difference is'} significant after Holm's correction for the "
        f"{tested} of this table with an interval.",
    )
    return Table(name, title, corner, columns, body, notes, SIGNIFICANT)


def paired_tables(results: Results, baseline: str = "naive") -> list[Table]:
    """Differences to a baseline: over all datasets whose scores may be averaged, on others one by one, by dataset."""
    made = []
    for agent in results.agents():
        found = stats.compared(results, agent, baseline)
        scored = sorted({task for one in found for task in one.normalised})
        plain = sorted({task for one in found for task in one.pairs} - set(scored))
        file = results.file(agent)
        for number, tasks in enumerate([tasks for tasks in (scored, *([t] for t in plain)) if tasks], start=1):
            there = [one for one in found if one.over(tasks)]
            made.append(overall_table(there, agent, tasks, f"paired-{number}-{file}"))
        if len(scored) + len(plain) > 1:
            rows: DifferenceRows = {
                (task,): {one.variant: one.over([task]) for one in found} for task in sorted([*scored, *plain])
            }
            base = found[0].baseline
            title = f"{agent_label(agent)}: paired difference in area to {strategy_label(base)}, by dataset"
            made.append(difference_table(rows, ("dataset",), base, title, f"paired-datasets-{file}"))
    return made


def tables(results: Results, baseline: str = "naive") -> list[Table]:
    found = [
        score_table(results, agent, measure)
        for measure in MEASURES
        for agent in results.agents()
        if measure != "pretrained" and any(group.values(measure).size for group in results.of(agent))
    ]
    return found + paired_tables(results, baseline)
