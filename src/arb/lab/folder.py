"""What a run claims and leaves in its folder: its name, the configuration it belongs to, its scores."""

import json
import re
from pathlib import Path
from typing import Any

from arb.data.load import without_suffix
from arb.errors import DataError
from arb.files import write_text
from arb.lab.config import RETIRED, Config, configure, flat
from arb.lab.plugins import label_of
from arb.lab.runfolder import RunFolder
from arb.lab.strategies import strategy_row

LENGTH = "schedule.online"
"""The one setting that may grow: more steps continue a run."""


def default_folder(config: Config, preset: str) -> Path:
    """Where `arb run` keeps a run: `runs/TASK-AGENT-STRATEGY-PRESET-SEED`.

    >>> default_folder(Config(task="suite:hopper-mixed"), "demo")
    PosixPath('runs/suite-hopper-mixed-iql-arb-demo-0')
    """
    task = without_suffix(config.task.partition("?")[0].rstrip("/").rpartition("/")[2])
    names = (task, label_of(config.agent), label_of(config.replay.strategy), preset, config.seed)
    return Path("runs") / "-".join(re.sub(r"[^\w.+-]+", "-", str(name)).strip("-.") for name in names)


def finished(folder: Path, config: Config) -> bool:
    """Whether a folder holds this very run and nothing is left to do; one that shall be longer now is not finished."""
    place = RunFolder(folder)
    if not place.done:
        return False
    refuse_other_config(folder, config)
    return bool(place.description().config.get(LENGTH) == config.schedule.online)


def write_config(folder: Path, config: Config, described: dict[str, Any]) -> None:
    """Write config.json: everything that belongs beside the results."""
    refuse_other_config(folder, config)
    refuse_other_data(folder, config, described["data"]["sha256"])
    write_text(RunFolder(folder).config_file, json.dumps(described, indent=1))


def refuse_other_data(folder: Path, config: Config, data_hash: str) -> None:
    """Refuse to continue a run, or to return it, when its data has changed."""
    if not RunFolder(folder).config_file.exists():
        return
    if RunFolder(folder).description().data.get("sha256", data_hash) != data_hash:
        raise DataError(
            f"the data of {config.task} has changed since the run in {folder} began: choose another folder, or put the "
            "data back"
        )


def refuse_other_config(folder: Path, config: Config) -> None:
    """Refuse to mix two runs in one folder, naming the first setting in which they differ.

    More online steps than before continue the run. A setting that did not exist when the run began has its default.
    """
    if not RunFolder(folder).config_file.exists():
        return
    held, asked = dict(RunFolder(folder).description().config), flat(config)
    if not asked.keys() <= held.keys():
        default = configure(task=config.task, env=config.env, agent=config.agent, strategy=config.replay.strategy)
        held = flat(default) | held
    for leaf in sorted(held.keys() | asked.keys()):
        longer = leaf == LENGTH and isinstance(held.get(leaf), int) and held[leaf] < asked[leaf]
        if longer and strategy_row(config.replay.strategy).whole_length:
            raise DataError(
                f"{folder} holds a run with {leaf} = {held[leaf]!r}, and {config.replay.strategy} depends on that "
                "length from the first step: choose another folder"
            )
        if held.get(leaf) != asked.get(leaf) and not longer and (leaf, held.get(leaf)) not in RETIRED:
            raise DataError(
                f"{folder} holds a run with {leaf} = {held.get(leaf)!r}, not {asked.get(leaf)!r}: choose another "
                "folder, or ask for the same to continue it"
            )
