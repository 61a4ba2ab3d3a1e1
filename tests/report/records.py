"""Runs as plain values, for what needs no files: curves by their scores, replay figures by their columns."""

import numpy as np

from arb.lab.folder import Curve
from arb.report.records import Record, Runs, group_runs
from tests.report.folders import config_of


def curve(scores, every=2000, successes=None):
    """Evaluations at 0, `every`, ...: a number each, or the numbers of their episodes."""
    each = tuple(np.atleast_1d(np.asarray(score, float)) for score in scores)
    told = None if successes is None else tuple(np.asarray(one, float) for one in successes)
    return Curve(every * np.arange(len(each), dtype=float), each, each, told)


def record(online=(50.0, 60.0, 80.0), offline=(0.0, 50.0), *, reference=(0.0, 100.0), place="", **more):
    """A finished run; `figures` are columns of metrics.csv, `leaves` settings, `every` the steps of an evaluation."""
    given = {name: more.pop(name) for name in ("task", "agent", "strategy", "seed") if name in more}
    config = config_of(**given, **more.pop("leaves", {}))
    every, figures = more.pop("every", 2000), more.pop("figures", {})
    curves = {"pretrain": curve(offline), "online": curve(online, every, more.pop("successes", None))}
    columns = {name: np.asarray(values, float) for name, values in figures.items()}
    steps = {"step": np.arange(1, 1 + max(map(len, columns.values()), default=1), dtype=float)}
    named = place or "/".join(str(config[leaf]) for leaf in ("task", "agent", "replay.strategy", "seed"))
    data, versions = more.pop("data", {"rows": 1000, "sha256": "0f"}), more.pop("versions", {"numpy": "2.0"})
    status, reason = more.pop("status", "done"), more.pop("reason", "")
    assert not more, more
    held = {phase: one for phase, one in curves.items() if len(one.steps)}
    about = (named, config, status, reason, "Env-v0", reference, data, versions, {})
    return Record(*about, held, {"online": {**steps, **columns}})


def flat(score, **more):
    """A run that scores the same at every evaluation, so that all its measures are known at sight."""
    return record((score, score, score), **more)


def results(*runs):
    return group_runs(Runs(tuple(runs)))


HOPPER, WALKER = "hopper-medium-v2", "walker2d-medium-v2"


def grid(scores, **more):
    """Runs by strategy and task: one for each score, which is that of all its evaluations."""
    return [
        flat(score, strategy=strategy, task=task, seed=seed, **more)
        for strategy, by_task in scores.items()
        for task, values in by_task.items()
        for seed, score in enumerate(values)
    ]


TWO_BY_TWO = {
    "naive": {HOPPER: (10.0, 20.0), WALKER: (30.0, 40.0)},
    "arb": {HOPPER: (50.0, 60.0), WALKER: (70.0, 120.0)},
}
