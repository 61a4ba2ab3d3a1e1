"""The paper's claims about ARB, each with a verdict that follows from the differences between our runs."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arb.lab.agents import agent_label
from arb.lab.strategies import strategy_label
from arb.replay.arb import EFFECTIVE
from arb.report import stats
from arb.report.records import MEASURES, PRIMARY, Floats, Record, Results
from arb.report.stats import CONFIDENCE, comparisons
from arb.report.tables import Table, estimated

Differences = dict[str, Floats]
"""One array per task; positive where a claim holds."""
Found = Iterator[tuple[Record, float]]
"""Runs with the differences between them and others."""


@dataclass(frozen=True)
class Claim:
    """Something the paper says, and the differences that would be positive if it were so."""

    says: str
    number: str
    """What the differences are."""
    pairs: Callable[[Sequence[Results]], Found]
    deterministic: bool = False
    """Whether two runs that differ in nothing but this must agree to the last digit if it has no effect."""

    def of(self, everything: Sequence[Results]) -> Differences:
        """Differences by agent, task and setting, one for each seed: seeds are independent, strategies of one are not.

        A setting is all that ARB and its rivals share: budget, hyper-parameters of the agent, and the recorded data.
        """
        seeds: dict[str, dict[int, list[float]]] = {}
        for run, difference in self.pairs(everything):
            seeds.setdefault(_setting(run), {}).setdefault(run.seed, []).append(difference)
        return {setting: np.array([np.mean(values) for values in of.values()]) for setting, of in seeds.items()}


def _setting(run: Record) -> str:
    shared = {name: value for name, value in run.config.items() if name != "seed" and not name.startswith("replay.")}
    return json.dumps([run.agent, run.task, run.data.get("sha256"), shared], sort_keys=True)


def _against(
    baseline: str, agent: str | None = None, task: str = "", measure: str = PRIMARY
) -> Callable[[Sequence[Results]], Found]:
    """A measure of ARB as published minus that of another strategy."""
    number = MEASURES[measure].of

    def pairs(everything: Sequence[Results]) -> Found:
        for results in everything:
            for one in comparisons(results, baseline):
                if one.strategy == "arb" and agent in (None, one.agent):
                    for run, other in itertools.chain(*(one.pairs[name] for name in one.normalised if task in name)):
                        a, b = number(run), number(other)
                        if a is not None and b is not None and by_default(run):
                            yield run, a - b

    return pairs


def by_default(run: Record) -> bool:
    """Whether a run has one update per step and, of ARB, the settings of this library; of fixed λ, the paper's."""
    heat = {"replay.temperature": _ARB_TEMPERATURE.get(run.agent, 0.5)}
    wanted = {
        "replay.level": "trajectory",
        "replay.likelihood": "standard",
        "replay.clip": [-12.0, 7.0],
        "schedule.updates": run.config.get("schedule.collect"),
        **(heat if run.strategy == "arb" else {"replay.effective": EFFECTIVE}),
    }
    return all(run.config.get(leaf, value) == value for leaf, value in wanted.items())


def _of_arb(results: Results) -> list[Record]:
    return [run for cell in results.groups if cell.finished and cell.strategy == "arb" for run in cell.runs]


def _varied(
    leaf: str,
    holds: Callable[[Any, Any], bool],
    number: Callable[[Record], float | None],
    likelihood: str = "standard",
) -> Callable[[Sequence[Results]], Found]:
    """Runs of ARB that differ in one setting: the number of the one minus that of the other, where the order holds."""

    def pairs(everything: Sequence[Results]) -> Found:
        for results in everything:
            same: dict[str, list[Record]] = {}
            for run in _of_arb(results):
                if run.config.get("replay.likelihood", "standard") != likelihood:
                    continue
                rest = {name: value for name, value in run.config.items() if name != leaf}
                same.setdefault(json.dumps([rest, run.data.get("sha256")], sort_keys=True), []).append(run)
            for alike in same.values():
                for one, other in itertools.permutations(alike, 2):
                    a, b = number(one), number(other)
                    if a is not None and b is not None and holds(one.config.get(leaf), other.config.get(leaf)):
                        yield one, a - b

    return pairs


def _lower(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, float) and a < b


def _upper_bound(a: Any, b: Any) -> bool:
    """Two clips that differ in their upper bound alone."""
    pairs = isinstance(a, list) and isinstance(b, list) and len(a) == len(b) == 2
    return pairs and a[0] == b[0] and a[1] > b[1]


def _share(run: Record, part: float) -> float | None:
    """The online share of a batch after a part of the steps, in percent."""
    column = run.metrics.get("online", {}).get("replay.online_share")
    return None if column is None or not len(column) else float(100.0 * column[round(part * (len(column) - 1))])


def _above_buffer(everything: Sequence[Results]) -> Found:
    """The mean over steps of the online share of ARB's batches minus that of the buffer, in points."""
    for run in itertools.chain(*map(_of_arb, everything)):
        columns = run.metrics.get("online", {})
        if by_default(run) and {"replay.online_share", "replay.online_rows"} <= columns.keys():
            apart = columns["replay.online_share"] - columns["replay.online_rows"]
            yield run, float(100.0 * np.nanmean(apart))


def _poor_before_good(everything: Sequence[Results]) -> Found:
    """The online share at the end on `random` data minus that on `medium-expert` data of the same robot and seed."""
    for results in everything:
        runs = {(run.agent, run.task, run.seed): run for run in _of_arb(results) if by_default(run)}
        for (agent, task, seed), run in runs.items():
            other = runs.get((agent, task.replace("-random", "-medium-expert"), seed))
            poor, good = _share(run, 1.0), _share(other, 1.0) if other else None
            if "-random" in task and poor is not None and good is not None:
                yield run, poor - good


_area = MEASURES[PRIMARY].of
_ARB_TEMPERATURE = {"calql": 5.0, "sac": 5.0}
"""λ with which the archived runs of fixed λ were made, 0.5 for all other agents."""
PUBLISHED = ("iql", "calql", "pex", "famo2o")
POINTS = "area under the online curve, points"
BOUNDS = "area with the higher bound minus area with the lower, points"
CLAIMS: tuple[Claim, ...] = (
    *(Claim(f"With {agent_label(a)}, ARB beats naive replay", POINTS, _against("naive", a)) for a in PUBLISHED),
    *(Claim(f"ARB beats {strategy_label(s)}", POINTS, _against(s)) for s in ("parallel", "top_n", "berb")),
    Claim(
        "IQL gains on hopper-random (54 against 15 in the end)", "last evaluation, points",
        _against("naive", "iql", "hopper-random", "last"),
    ),
    Claim(
        "ARB's batches hold more online data than the buffer does", "online share minus the buffer's, points",
        _above_buffer,
    ),
    Claim(
        "The online share is highest where the dataset is poor",
        "online share at the end, random minus medium-expert, points", _poor_before_good,
    ),
    Claim(
        "Weights by trajectory are better than weights by transition", POINTS,
        _varied("replay.level", lambda a, b: (a, b) == ("trajectory", "transition"), _area),
    ),
    Claim(
        "A lower temperature draws online data sooner", "online share after a tenth of the steps, points",
        _varied("replay.temperature", _lower, lambda run: _share(run, 0.1)),
    ),
    Claim("The upper clipping bound matters", BOUNDS, _varied("replay.clip", _upper_bound, _area), True),
    Claim(
        "The upper clipping bound matters if the score is the density of the action", BOUNDS,
        _varied("replay.clip", _upper_bound, _area, "density"), True,
    ),
)  # fmt: skip


def verdicts(everything: Sequence[Results]) -> Table:
    """Every claim with the mean difference, its interval, and what follows: corrected for the number of claims."""
    found = {claim.says: claim.of(everything) for claim in CLAIMS}
    corrected = stats.holm({says: stats.p_value(list(d.values())) if d else None for says, d in found.items()})
    rows = []
    for claim in CLAIMS:
        differences = found[claim.says]
        says = _verdict(claim, differences, corrected[claim.says])
        interval = stats.t_interval(list(differences.values())) if differences else None
        entry = estimated(interval, n=sum(map(len, differences.values())))
        rows.append(((claim.says, says, claim.number), (entry,)))
    notes = (
        f"Mean difference, Student's {CONFIDENCE:.0%} interval and number of pairs; positive speaks for the claim.",
        "Confirmed or contradicted: the difference has this sign at the 5% level after correction for all claims "
        "tested here (Holm). Not confirmed: not significant. The claims are the paper's, the budgets are ours.",
        "All archives are taken together. A task counts once for each budget, each setting of the agent and each "
        "recording of its data, which are never averaged within a seed.",
        "The paper's score is negative, so that no upper bound above zero can have an effect.",
    )
    return Table("claims", "The paper's claims", ("claim", "verdict", "measured"), ("difference",), tuple(rows), notes)


def _verdict(claim: Claim, differences: Mapping[str, Floats], corrected: float | None) -> str:
    if not differences:
        return "not tested"
    if claim.deterministic and all(np.all(values == 0.0) for values in differences.values()):
        return "contradicted: it has no effect"
    if corrected is None or corrected >= 1.0 - CONFIDENCE:
        return "not confirmed"
    return "confirmed" if stats.mean_of(list(differences.values())) > 0 else "contradicted"


def contrast(some: stats.ByTask, others: stats.ByTask) -> list[Floats]:
    """Numbers whose mean is that of some tasks minus that of others, with the variance of both."""
    tasks = len(some) + len(others)
    return [values * tasks / len(some) for values in some] + [-values * tasks / len(others) for values in others]
