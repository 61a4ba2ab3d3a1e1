"""What a run writes into its folder beside its tables: the configuration it belongs to, and the scores it came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from arb.errors import DataError
from arb.files import write_text
from arb.runfolder import RunFolder
from arb.runs.config import Config, flat


class Result(NamedTuple):
    """Scores of a finished run: normalised where the task has a reference, plain returns otherwise."""

    folder: Path
    pretrained: float
    last: float
    best: float
    """The best evaluation after online updates. It was chosen afterwards, so it flatters."""
    drop: float
    """Pre-trained score minus the first one after online updates: positive if the switch cost something."""
    success: float | None = None
    """The share of successful episodes in the last evaluation, where the environment reports success."""


def result(folder: Path) -> Result:
    """The scores of a finished run."""
    return Result(folder, *RunFolder(folder).scores())


def write_config(folder: Path, config: Config, described: dict[str, Any]) -> None:
    """Write config.json: everything that belongs beside the results."""
    refuse_other_config(folder, config)
    refuse_other_data(folder, config, described["data"]["sha256"])
    write_text(RunFolder(folder).config_file, json.dumps(described, indent=1))


def refuse_other_data(folder: Path, config: Config, data_hash: str) -> None:
    """Refuse to go on with a run, or to return it, when its data is not the same any more."""
    if not RunFolder(folder).config_file.exists():
        return
    if RunFolder(folder).description().data.get("sha256", data_hash) != data_hash:
        raise DataError(
            f"the data of {config.task} has changed since the run in {folder} began: choose another folder, or put the "
            "data back"
        )


def refuse_other_config(folder: Path, config: Config) -> None:
    """Refuse to mix two runs in one folder, naming the first setting in which they differ."""
    if not RunFolder(folder).config_file.exists():
        return
    held, asked = RunFolder(folder).description().config, flat(config)
    for leaf in sorted(held.keys() | asked.keys()):
        if held.get(leaf) != asked.get(leaf):
            raise DataError(
                f"{folder} holds a run with {leaf} = {held.get(leaf)!r}, not {asked.get(leaf)!r}: choose another "
                "folder, or ask for the same to continue it"
            )
