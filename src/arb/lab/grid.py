"""Grids of runs: every combination of tasks, agents, strategies, settings and seeds, and the folder of each."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from arb.data.formats import without_suffix
from arb.data.tasks import task_of
from arb.errors import DataError
from arb.files import check_folder, digest, locked, read_json, write_text
from arb.lab.agents import DEFAULT_AGENT, settings_class
from arb.lab.config import OPTIONS, Config, configure, flat, pretraining_keys
from arb.lab.folder import PLAN, RunFolder
from arb.lab.strategies import DEFAULT, STRATEGIES, strategy_row
from arb.progress import count
from arb.suite.datasets import locate

LONGEST_NAME = 120
"""Characters of a folder's name; a longer one ends in a hash instead."""


class Cell(NamedTuple):
    """One run of a grid, and its folder below that of the sweep."""

    folder: str
    config: Config


def grid(
    tasks: Iterable[str],
    agents: Iterable[str] = (DEFAULT_AGENT,),
    strategies: Iterable[str] = (DEFAULT,),
    seeds: Iterable[int] = (0,),
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    env: str = "",
    preset: str = "demo",
    overrides: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """All combinations, in order; a setting of an agent or a strategy is for those that have it.

    A folder is named after the values of the axes that are not the preset's.

    >>> [cell.folder for cell in grid(["hopper-medium-v2"], strategies=["naive", "arb"],
    ...                               axes={"replay.temperature": [0.2, 2]})]     # doctest: +NORMALIZE_WHITESPACE
    ['hopper-medium-v2/iql/naive/seed-0',
     'hopper-medium-v2/iql/arb/seed-0',
     'hopper-medium-v2/iql/arb-replay.temperature=2.0/seed-0']

    Args:
        tasks: tasks, files or other sources of offline data.
        agents: algorithms.
        strategies: replay strategies.
        seeds: seeds.
        axes: values to try by setting, e.g. `{"replay.temperature": [0.5, 2]}`.
        env: Gymnasium id, for data that does not name its own.
        preset: how much training.
        overrides: one value by setting, for all cells; never part of a name.
    """
    overrides, pairs, seeds = dict(overrides or {}), list(itertools.product(agents, strategies)), list(seeds)
    values = {key: [value] for key, value in overrides.items()} | dict(sorted((axes or {}).items()))
    for key in values:
        _check_axis(key, values[key], pairs)
    cells: dict[str, Cell] = {}
    for task, (agent, strategy) in itertools.product(tasks, pairs):
        named: dict[str, Any] = {"task": task, "env": env, "agent": agent, "strategy": strategy, "preset": preset}
        read = [key for key in values if _reads(agent, strategy, key)]
        usual = flat(configure(**named, overrides={key: overrides[key] for key in read if key in overrides}))
        for given, seed in itertools.product(list(itertools.product(*(values[key] for key in read))), seeds):
            config = configure(**named, seed=seed, overrides=dict(zip(read, given, strict=True)))
            cell = Cell(_folder(config, [key for key in read if flat(config)[key] != usual[key]]), config)
            if cells.setdefault(cell.folder, cell) != cell:
                raise DataError(f"two different runs would be kept in {cell.folder}: give them different settings")
    return list(cells.values())


def _reads(agent: str, strategy: str, key: str) -> bool:
    """Whether an agent and a strategy have a setting, and one that can be chosen."""
    group, _, name = key.partition(".")
    if group == "replay":
        return name in strategy_row(strategy).reads
    return group != "settings" or name in {f.name for f in fields(settings_class(agent))}


def _check_axis(key: str, values: Sequence[Any], pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a setting that has an option of its own, or that no pair of agent and strategy reads."""
    if key in OPTIONS or not any(_reads(*pair, key) for pair in pairs):
        readers = [name for name in STRATEGIES if key.startswith("replay.") and _reads(pairs[0][0], name, key)]
        if readers and key not in OPTIONS:
            only = f"{key} is read only by {' and '.join(readers)}, which is not among the strategies"
            raise DataError(f"{only}: add --strategy {readers[0]}")
        configure(agent=pairs[0][0], strategy=pairs[0][1], overrides={key: values[0]})  # says what is wrong


def _folder(config: Config, keys: Iterable[str]) -> str:
    strategy = folder_name(config.replay.strategy)
    name = "-".join([strategy, *(f"{key}={_text(flat(config)[key])}" for key in keys)])
    if len(name) > LONGEST_NAME:
        name = f"{strategy}-{digest(name, {})[:12]}"
    return "/".join((folder_name(config.task), folder_name(config.agent), name, f"seed-{config.seed}"))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({','.join(map(_text, value))})"
    return folder_name(value) if isinstance(value, str) else str(value)


def folder_name(text: str) -> str:
    """A text as the name of a folder; where that loses something, a hash tells it from its like."""
    plain = text.replace(":", "-", 1)
    if re.fullmatch(r"[\w.+=(),-]+", plain) and plain == without_suffix(plain) and plain[0] != ".":
        return plain
    stem = re.sub(r"[^\w.+=(),-]+", "-", without_suffix(text.rstrip("/").rpartition("/")[2]))
    return f"{stem.strip('.-') or 'data'}-{digest(text, {})[:8]}"


def comparison(task: str, agent: str, preset: str) -> tuple[Path, str]:
    """The folder of a comparison that names none, and the title of its report."""
    folder = Path("compare") / f"{folder_name(task)}-{folder_name(agent)}-{preset}"
    return folder, f"Replay strategies for {agent} on {task}"


def split_list(text: str) -> list[str]:
    """A list as it is written on the command line: commas separate, but not inside brackets.

    >>> split_list("(-12,7),(-9,7)")
    ['(-12,7)', '(-9,7)']
    """
    parts = [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text)]
    if not all(part and len(re.findall(r"[(\[]", part)) == len(re.findall(r"[)\]]", part)) for part in parts):
        raise DataError(f"{text!r} is not a list: write A,B,C, a tuple in brackets, e.g. replay.clip='(-12,7),(-9,7)'")
    return parts


def seed_range(text: str) -> list[int]:
    """Seeds as they are written on the command line.

    >>> seed_range("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in split_list(text):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise DataError(f"{part!r} is not a seed: write 3, or 0-3, or 0,2,5-7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(seeds))


# ---- the folders of a sweep ------------------------------------------------------------------------------------------
class Plan(NamedTuple):
    """The cells with the folders that they have in a sweep, and those of them that are not finished."""

    out: Path
    cells: list[Cell]
    left: list[Cell]

    def lines(self, one_by_one: bool) -> Iterator[str]:
        """How many runs and pre-trainings, and a line per task and agent, or per run."""
        shared = count(len({pretraining_of(cell.config) for cell in self.cells}), "pre-training")
        done = len(self.cells) - len(self.left)
        yield f"{count(len(self.cells), 'run')} ({done} finished), {shared}, in {self.out}"
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(f"  {cell.config.task}  {cell.config.agent}", []).append(cell)
        for place, members in groups.items():
            variants = dict.fromkeys(cell.folder.split("/")[2] for cell in members)
            seeds = sorted({cell.config.seed for cell in members})
            yield f"{place}  {', '.join(variants)}  seeds {', '.join(map(str, seeds))}"
        for cell in self.cells if one_by_one else ():
            yield f"  {'to do  ' if cell in self.left else 'done   '} {cell.folder}"


def plan(cells: Iterable[Cell], out: str | Path) -> Plan:
    """Look at the folders of the cells, and refuse what would make every run of its kind fail; nothing is written."""
    out, cells = Path(out).absolute(), list(cells)
    check_folder(out)
    for cell in cells:
        RunFolder(out / cell.folder).check_config(cell.config)
    left = [cell for cell in cells if not RunFolder(out / cell.folder).finished(cell.config)]
    _check_possible(left)
    return Plan(out, cells, left)


def _check_possible(cells: Sequence[Cell]) -> None:
    """Refuse data and environments that cannot be used, each looked at once; D4RL's files may be on other machines."""
    from arb.envs import make
    from arb.lab.setup import Setup

    for agent, task, env in dict.fromkeys((c.config.agent, c.config.task, c.config.env) for c in cells):
        known = task_of(task)
        if known is None and not locate(task).startswith("minari:"):
            Setup.of(next(c.config for c in cells if (c.config.agent, c.config.task) == (agent, task)))
        elif name := env or (known.env if known else ""):
            make(name).close()


def write_plan(plan: Plan) -> None:
    """Add the cells to plan.json; two sweeps may do so at once."""
    file = plan.out / PLAN
    with locked(plan.out / ".lock"):
        try:
            rows = {row["folder"]: row["config"] for row in read_json(file)["cells"]} if file.exists() else {}
        except (ValueError, KeyError, TypeError):
            damaged = f"{file} is damaged: move it away; the runs beside it keep their own config.json"
            raise DataError(damaged) from None
        rows |= {cell.folder: flat(cell.config) for cell in plan.cells}
        write_text(file, json.dumps({"cells": [{"folder": f, "config": c} for f, c in rows.items()]}, indent=1))


def pretraining_of(config: Config) -> str:
    """A name for the pre-training of a run; runs with the same name share it."""
    return digest(pretraining_keys(config), {})[:24]
