"""Runs that belong together: the seeds of one task, agent and variant of a strategy, and their results."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from arb.lab.algorithms import AGENTS
from arb.lab.runfolder import result_of
from arb.lab.strategies import STRATEGIES, strategy_label
from arb.report import statistics
from arb.report.record import Record
from arb.report.runs import Records
from arb.report.statistics import Floats

_SHORT = {
    "replay.temperature": "λ",
    "replay.effective": "ρ",
    "replay.clip": "clip",
    "replay.level": "level",
    "replay.likelihood": "likelihood",
    "schedule.online": "online",
    "schedule.pretrain": "pretrain",
    "schedule.updates": "updates",
}
"""How settings are named in a label; these also come first when runs must be told apart."""


@dataclass(frozen=True)
class Seeds:
    """The finished seeds of one setting; where none is finished, those on their way, for the curves only."""

    task: str
    agent: str
    variant: str
    strategy: str
    runs: tuple[Record, ...]
    finished: bool

    @property
    def normalised(self) -> bool:
        """Whether scores are normalised, and may be averaged over tasks."""
        return all(run.reference is not None for run in self.runs)

    @property
    def unit(self) -> str:
        """What the numbers are."""
        return "normalised score" if self.normalised else "return"

    def values(self, measure: str) -> Floats:
        """One number per finished seed: `last`, `best`, `area` or `drop`."""
        numbers = [MEASURES[measure].of(run) for run in self.runs] if self.finished else []
        return np.array([number for number in numbers if number is not None], float)

    @cached_property
    def curve(self) -> dict[str, tuple[Floats, Floats]]:
        """Per phase the steps at which all seeds were evaluated, and the mean score of each seed there."""
        found = {}
        for phase in ("pretrain", "online"):
            curves = [run.curves[phase] for run in self.runs if phase in run.curves]
            if len(curves) == len(self.runs):
                found[phase] = _aligned([(curve.steps, curve.means) for curve in curves])
        return found

    def metric(self, name: str, phase: str = "online") -> tuple[Floats, Floats] | None:
        """The steps and the values per seed of a column of metrics.csv; None where no seed has a number."""
        columns = [run.metrics.get(phase, {}) for run in self.runs]
        if not all(name in column for column in columns):
            return None
        steps, values = _aligned([(column["step"], column[name]) for column in columns])
        return (steps, values) if np.isfinite(values).any() else None


def _aligned(series: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """The steps that all series have, and their values there, one row per series."""
    steps = series[0][0]
    for other, _ in series[1:]:
        steps = np.intersect1d(steps, other)
    return steps, np.array([values[np.searchsorted(own, steps)] for own, values in series])


# ---- one number per run ----------------------------------------------------------------------------------------------
class Measure(NamedTuple):
    """One number of a finished run."""

    of: Callable[[Record], float | None]
    title: str
    meaning: str
    lower_is_better: bool = False


def _online(run: Record) -> Floats:
    """The evaluations after online updates."""
    curve = run.curves["online"]
    return np.asarray(curve.means[curve.steps > 0], float)


def _pretrained(run: Record) -> float | None:
    return float(run.curves["pretrain"].means[-1]) if "pretrain" in run.curves else None


def _drop(run: Record) -> float | None:
    found = result_of(run.curves)
    return None if found is None else found.drop


def _regret(run: Record) -> float | None:
    if run.reference is None:
        return None
    curve = run.curves["online"]
    return statistics.area(curve.steps, np.maximum(0.0, 100.0 - curve.means))


def _success(run: Record) -> float | None:
    success = run.curves["online"].successes
    return None if success is None else 100.0 * float(success[-1].mean())


MEASURES: Mapping[str, Measure] = {
    "area": Measure(
        lambda run: statistics.area(run.curves["online"].steps, run.curves["online"].means),
        "Area under the online curve",
        "the area under the online learning curve divided by its width, that is, the score at an average step",
    ),
    "last": Measure(lambda run: float(_online(run)[-1]), "Last evaluation", "the last online evaluation"),
    "best": Measure(
        lambda run: float(_online(run).max()),
        "Best evaluation",
        "the best online evaluation of each seed, chosen afterwards and therefore flattering",
    ),
    "regret": Measure(
        _regret,
        "Regret",
        "how far the online learning curve lies below 100 on average; what is above 100 does not make up for it",
        lower_is_better=True,
    ),
    "drop": Measure(
        _drop,
        "Drop at the offline-to-online switch",
        "the pre-trained score minus the first one after online updates; positive if the switch cost something",
        lower_is_better=True,
    ),
    "success": Measure(_success, "Success rate", "the successful episodes of the last online evaluation, in %"),
    "pretrained": Measure(_pretrained, "Pre-trained", "the last evaluation before fine-tuning"),
}
PRIMARY = "area"
"""Single evaluations swing; the whole curve does so less. Comparisons are decided by it, aggregates made of it."""


# ---- telling runs apart ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Results:
    """All cells of some runs, in the order in which they are shown."""

    runs: Records
    cells: tuple[Seeds, ...]
    order: tuple[str, ...]
    """All variants: strategies in the paper's order; within one, as their settings grow."""
    doubles: tuple[Record, ...]
    """Runs of a setting and seed that another folder has too; only the first counts."""

    def agents(self) -> list[str]:
        """The agents, in the paper's order."""
        return sorted({cell.agent for cell in self.cells}, key=lambda name: (_rank(name, AGENTS), name))

    def file(self, agent: str) -> str:
        """An agent's name as a part of file names: it comes from a file, and must not lead elsewhere."""
        names: list[str] = []
        for one in self.agents():
            name = re.sub(r"[^A-Za-z0-9_]+", "-", one)[:60].strip("-") or "agent"
            names.append(f"{name}-{len(names)}" if name in names else name)
        return dict(zip(self.agents(), names, strict=True))[agent]

    def tasks(self, agent: str) -> list[str]:
        """The tasks of an agent, by name."""
        return sorted({cell.task for cell in self.of(agent)})

    def of(self, agent: str, task: str | None = None) -> list[Seeds]:
        """The cells of an agent, or of an agent on a task."""
        return [cell for cell in self.cells if cell.agent == agent and task in (None, cell.task)]

    def variants(self, agent: str | None = None) -> list[str]:
        """The variants of an agent, or of all, in order."""
        there = {cell.variant for cell in self.cells if agent in (None, cell.agent)}
        return [variant for variant in self.order if variant in there]

    def cell(self, task: str, agent: str, variant: str) -> Seeds | None:
        """One cell."""
        wanted = (task, agent, variant)
        return next((cell for cell in self.cells if (cell.task, cell.agent, cell.variant) == wanted), None)


def gather(runs: Records) -> Results:
    """Group runs into cells; settings other than the seed that differ become part of a variant's name.

    So does the data, where a seed was run with several recordings of it.
    """
    shown = [run for run in runs.all if run.curves]
    leaves = _telling_leaves(shown)
    several = _recorded_again(shown)
    groups: dict[tuple[str, str, str], list[Record]] = {}
    doubles = []
    for run in sorted(shown, key=lambda run: (run.status != "done", run.seed, run.place)):
        recording = f" data={_hash(run)[:8]}" if (run.task, run.agent) in several else ""
        variant = label(run, leaves[run.agent, run.strategy]) + recording
        group = groups.setdefault((run.task, run.agent, variant), [])
        if any(other.seed == run.seed for other in group):
            doubles.append(run)
        else:
            group.append(run)
    cells = []
    for (task, agent, variant), group in groups.items():
        done = tuple(run for run in group if run.status == "done")
        cells.append(Seeds(task, agent, variant, group[0].strategy, done or tuple(group), bool(done)))
    cells.sort(
        key=lambda cell: (
            _rank(cell.agent, AGENTS), cell.agent, cell.task, _rank(cell.strategy, STRATEGIES), cell.strategy,
            [_sortable(cell.runs[0].config.get(leaf)) for leaf in leaves[cell.agent, cell.strategy]],
        )
    )  # fmt: skip
    order = list(dict.fromkeys(c.variant for c in sorted(cells, key=lambda cell: _rank(cell.strategy, STRATEGIES))))
    cells.sort(key=lambda cell: (_rank(cell.agent, AGENTS), cell.agent, cell.task, order.index(cell.variant)))
    return Results(runs, tuple(cells), tuple(order), tuple(doubles))


def _hash(run: Record) -> str:
    return str(run.data.get("sha256") or "")


def _recorded_again(runs: Sequence[Record]) -> set[tuple[str, str]]:
    """Tasks and agents with runs that differ in nothing but the data, which has changed under the same name."""
    found: dict[str, set[str]] = {}
    for run in filter(_hash, runs):
        found.setdefault(json.dumps([run.task, run.agent, run.config], sort_keys=True), set()).add(_hash(run))
    return {(task, agent) for task, agent, _ in (json.loads(key) for key, hashes in found.items() if len(hashes) > 1)}


def _telling_leaves(runs: Sequence[Record]) -> dict[tuple[str, str], list[str]]:
    """Per agent and strategy the fewest settings that tell apart what differs by more than its seed."""
    found: dict[tuple[str, str], list[str]] = {}
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for run in runs:
        found.setdefault((run.agent, run.strategy), [])
        groups.setdefault((run.agent, run.strategy, run.task), []).append(run)
    for (agent, strategy, _), group in groups.items():
        chosen = found[agent, strategy]
        for leaf in sorted(_differing(group), key=lambda leaf: (_rank(leaf, _SHORT), leaf)):
            if leaf not in chosen and len(_parts(group, [*chosen, leaf])) > len(_parts(group, chosen)):
                chosen.append(leaf)
    # A setting that is not replay's own is named for all strategies of an agent, or for none.
    for (agent, _), chosen in found.items():
        others = [leaf for (a, _), leaves in found.items() if a == agent for leaf in leaves if leaf not in chosen]
        chosen += dict.fromkeys(leaf for leaf in others if not leaf.startswith("replay."))
    return found


def _differing(runs: Sequence[Record]) -> set[str]:
    """The settings in which runs differ; one that did not exist when a run was made has its default there."""
    leaves = set().union(*(run.config for run in runs)) - {"seed", "task"}
    return {leaf for leaf in leaves if len({spelt(run.config[leaf]) for run in runs if leaf in run.config}) > 1}


def _parts(runs: Iterable[Record], leaves: Iterable[str]) -> set[tuple[str, ...]]:
    return {tuple(spelt(run.config.get(leaf)) for leaf in leaves) for run in runs}


def label(run: Record, leaves: Sequence[str]) -> str:
    """A variant's name: the strategy, and the settings that tell it from its like; of several, the unusual ones."""
    row = STRATEGIES.get(run.strategy)
    usual = asdict(row.settings(**row.defaults)) if row and len(leaves) > 1 else {}
    told = {leaf: spelt(run.config.get(leaf)) for leaf in leaves}
    unusual = (leaf for leaf in leaves if told[leaf] != spelt(usual.get(leaf.removeprefix("replay."), usual)))
    return " ".join([strategy_label(run.strategy), *(f"{_SHORT.get(leaf, leaf)}={told[leaf]}" for leaf in unusual)])


def spelt(value: Any) -> str:
    """The value of a setting in a label."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(spelt, value)) + "]"
    return str(value)


def _sortable(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, spelt(value))


def _rank(name: str, order: Iterable[str]) -> int:
    """The place of a name in a table; what is not in it comes last."""
    return [*order, name].index(name)
