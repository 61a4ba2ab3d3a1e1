"""What is settled before the first run of a sweep, and what the folder of a sweep says about its cells."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arb.data.load import locate
from arb.data.tasks import task_of
from arb.errors import DataError
from arb.files import check_folder, read_json, write_text
from arb.lab.checkpoint import SHARED
from arb.lab.config import RETIRED, Config, configure, flat
from arb.lab.folder import finished, refuse_other_config, refuse_other_data
from arb.lab.grid import Cell
from arb.lab.runfolder import PLAN, RunFolder
from arb.lab.setup import Problem

_NAMES = {"task": "task", "env": "env", "agent": "agent", "strategy": "replay.strategy"}
LOCK = ".lock"


def done(out: Path, cell: Cell) -> bool:
    """Whether a cell's run is finished."""
    return finished(out / cell.folder, cell.config)


# ---- folders ---------------------------------------------------------------------------------------------------------
def placed(out: Path, cells: Iterable[Cell]) -> list[Cell]:
    """The cells with the folders that they have in this sweep.

    A run that the plan knows keeps its folder, whatever today's grid would call it. Where the plan has given a name to
    another run, the name with all given settings is taken. A folder that holds something else is refused.
    """
    check_folder(out)
    cells = list(cells)
    asked_for = {(cell.config.agent, cell.config.replay.strategy) for cell in cells}
    planned = {folder: _of_today(config, asked_for) for folder, config in _planned(out).items()}
    known = {_frozen(config): folder for folder, config in planned.items() if _is_cell(folder)}
    found = []
    for cell in cells:
        asked = flat(cell.config)
        _refuse_other_version(out, planned, asked)
        folder = known.get(_frozen(asked), cell.full if planned.get(cell.folder, asked) != asked else cell.folder)
        held = planned.get(folder, asked)
        if held != asked:
            leaf = next(leaf for leaf in sorted(held.keys() | asked.keys()) if held.get(leaf) != asked.get(leaf))
            raise DataError(
                f"{out} plans {folder} with {leaf} = {held.get(leaf)!r}, not {asked.get(leaf)!r}: "
                "choose another folder with --out"
            )
        refuse_other_config(out / folder, cell.config)
        found.append(cell._replace(folder=folder))
    return found


def _of_today(held: dict[str, Any], asked_for: Collection[tuple[str, str]]) -> dict[str, Any]:
    """A planned configuration with today's settings: new ones have their defaults, retired ones are left out.

    Only agents and strategies that the command names are looked up: a file must not load a plug-in.
    """
    if (held.get("agent"), held.get("replay.strategy")) not in asked_for:
        return held
    kept = {leaf: value for leaf, value in held.items() if (leaf, value) not in RETIRED}
    try:
        names = {name: kept[leaf] for name, leaf in _NAMES.items()}
        return flat(configure(**names)) | kept
    except (KeyError, TypeError, ValueError):  # not a configuration of today: `_refuse_other_version` says so
        return kept


def _refuse_other_version(out: Path, planned: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any]) -> None:
    """Refuse a plan whose runs of this agent and strategy have other settings than this version knows."""
    alike = ("agent", "replay.strategy")
    for held in planned.values():
        other = sorted(held.keys() ^ asked.keys())
        if other and all(held.get(leaf) == asked[leaf] for leaf in alike):
            raise DataError(
                f"{out} was planned by another version of arb, in which settings differ ({', '.join(other[:3])}): "
                "choose another folder with --out"
            )


def _frozen(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _is_cell(folder: str) -> bool:
    """Whether a plan's text is a folder as `grid` makes them, and no path to anywhere else."""
    parts = folder.split("/")
    return len(parts) == 4 and all(re.fullmatch(r"[\w+=(),-][\w.+=(),-]*", part) for part in parts)


def write_plan(out: Path, cells: Sequence[Cell]) -> None:
    """Add cells to plan.json; those of earlier calls stay."""
    planned = _planned(out) | {cell.folder: flat(cell.config) for cell in cells}
    rows = [{"folder": folder, "config": config} for folder, config in planned.items()]
    write_text(out / PLAN, json.dumps({"cells": rows}, indent=1))


def write_failure(out: Path, cell: Cell, reason: str, traceback: str) -> None:
    """Leave the reason, in one line, and the traceback in the folder of a cell."""
    write_text(RunFolder(out / cell.folder).failure_mark, f"{' '.join(reason.split())}\n\n{traceback}")


def forget_failure(out: Path, cell: Cell) -> None:
    """The cell has succeeded after all."""
    RunFolder(out / cell.folder).failure_mark.unlink(missing_ok=True)


def remember(out: Path, group: str, kept: str) -> None:
    """Note under which name the cache holds the pre-training of a group."""
    write_text(out / SHARED / f"of-{group}", kept)


def remembered(out: Path, group: str) -> str | None:
    """That name, if the pre-training is still there; its reader checks whether it fits today's data and versions."""
    note = out / SHARED / f"of-{group}"
    kept = note.read_text() if note.exists() else ""
    return kept if re.fullmatch(r"\w+", kept) and (out / SHARED / kept).is_dir() else None


def _planned(out: Path) -> dict[str, dict[str, Any]]:
    path = out / PLAN
    if not path.exists():
        return {}
    try:
        planned = {str(cell["folder"]): dict(cell["config"]) for cell in read_json(path)["cells"]}
        if not all(isinstance(config.get(leaf, ""), str) for config in planned.values() for leaf in _NAMES.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is damaged: move it away; the runs beside it keep their own config.json") from None
    return planned


# ---- what would make every run of its kind fail ----------------------------------------------------------------------
def refuse_hopeless(out: Path, cells: Sequence[Cell]) -> None:
    """Refuse data and environments that cannot be used, each looked at once, and data that has changed since."""
    left = [cell for cell in cells if not done(out, cell)]
    for task in dict.fromkeys(cell.config.task for cell in left):
        refuse_unknown(task)
    kinds: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        kinds.setdefault(_kind(cell.config), []).append(cell)
    for members in kinds.values():
        config = next((cell.config for cell in members if cell in left), None)
        if config is None and not _is_readable(members[0].config.task):
            continue  # all of them are finished, and their data is gone
        data_hash = _refuse_problem(config or members[0].config)
        for cell in members:
            if data_hash is not None:
                refuse_other_data(out / cell.folder, cell.config, data_hash)


def refuse_unknown(task: str) -> None:
    """Refuse a source that no machine would know; the file of a D4RL task may be on another machine."""
    if task_of(task) is not None and not Path(task).suffix:
        return
    kind, path = locate(task)
    if kind != "minari" and not Path(path).exists():
        raise DataError(f"there is no file {path}")


def _kind(config: Config) -> tuple[str, ...]:
    """Configurations alike in this meet the same data or environment."""
    return (config.agent, config.task, config.env) if _is_here(config.task) else (_env(config),)


def _is_here(source: str) -> bool:
    """Whether the command reads the data itself: D4RL's may be on other machines, and so may Minari's."""
    return task_of(source) is None and locate(source)[0] != "minari"


def _is_readable(source: str) -> bool:
    return _is_here(source) and Path(locate(source)[1]).exists()


def _env(config: Config) -> str:
    task = task_of(config.task)
    return config.env or (task.env if task else "")


def _refuse_problem(config: Config) -> str | None:
    """Look at the data and the environment, as far as they are here; the hash of the data, if it was read."""
    from arb.envs import make

    if _is_here(config.task):
        return Problem.of(config).data_hash
    if env := _env(config):
        make(env).close()
    return None
