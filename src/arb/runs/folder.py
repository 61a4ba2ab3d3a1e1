"""What a run leaves in its folder beside its tables: the configuration it belongs to, and the scores it came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arb.errors import DataError
from arb.files import read_json, write_text
from arb.runfolder import Table
from arb.runs.config import Config
from arb.runs.problem import Problem, describe_run


class Result(NamedTuple):
    """Scores of a finished run: normalised where the task has a reference, plain returns otherwise."""

    folder: Path
    pretrained: float
    last: float
    best: float
    drop: float
    """Pre-trained score minus the first one after online updates: positive if the switch cost something."""


def result(folder: Path) -> Result:
    """The scores in a run's eval.csv."""
    means: dict[tuple[str, int], list[float]] = {}
    for row in Table(folder / "eval.csv").rows():
        means.setdefault((row["phase"], int(row["step"])), []).append(float(row["score"]))
    scores = {place: float(np.mean(values)) for place, values in means.items()}
    before = [score for (phase, _), score in scores.items() if phase == "pretrain"]
    online = [score for (phase, step), score in scores.items() if phase == "online" and step > 0]
    if not before or not online:
        raise DataError(f"{folder} holds no finished evaluation of both phases")
    return Result(folder, before[-1], online[-1], max(online), before[-1] - online[0])


def write_config(folder: Path, config: Config, problem: Problem) -> None:
    """Write config.json: everything that belongs beside the results."""
    refuse_other_config(folder, config)
    held = _held(folder).get("data", {}).get("sha256", problem.data_hash)
    if held != problem.data_hash:
        raise DataError(
            f"the data of {config.task} has changed since the run in {folder} began: choose another folder, or put the "
            "data back"
        )
    write_text(folder / "config.json", json.dumps(describe_run(config, problem), indent=1))


def refuse_other_config(folder: Path, config: Config) -> None:
    """Refuse to mix two runs in one folder, naming the first setting in which they differ."""
    held, asked = _held(folder).get("config"), describe_run(config)["config"]
    if held is None:
        return
    for leaf in sorted(held.keys() | asked.keys()):
        if held.get(leaf) != asked.get(leaf):
            raise DataError(
                f"{folder} holds a run with {leaf} = {held.get(leaf)!r}, not {asked.get(leaf)!r}: choose another "
                "folder, or ask for the same to continue it"
            )


def _held(folder: Path) -> dict[str, Any]:
    """What config.json says, nothing if there is none."""
    path = folder / "config.json"
    try:
        held = read_json(path) if path.exists() else {}
    except ValueError:
        held = None
    if not isinstance(held, dict):
        raise DataError(f"{path} is damaged: choose another folder, or delete this one")
    return held
