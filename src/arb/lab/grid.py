"""A grid: tasks × agents × strategies × seeds × any settings, as cells with a folder each."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from arb.data.load import without_suffix
from arb.errors import DataError
from arb.lab.algorithms import DEFAULT_AGENT, settings_class
from arb.lab.config import OPTIONS, Config, configure, flat
from arb.lab.strategies import DEFAULT, STRATEGIES, strategy_row

LONGEST_NAME = 120
"""Characters of a folder's name; a longer one ends in a hash instead."""


class Cell(NamedTuple):
    """One run of a grid, and its folder below that of the sweep."""

    folder: str
    config: Config
    full: str = ""
    """The folder's name with all settings that were given, for a sweep that has given `folder` to another run."""


def grid(
    tasks: Iterable[str],
    agents: Iterable[str] = (DEFAULT_AGENT,),
    strategies: Iterable[str] = (DEFAULT,),
    seeds: Iterable[int] = (0,),
    leaves: Mapping[str, Sequence[Any]] | None = None,
    *,
    env: str = "",
    preset: str = "demo",
    overrides: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """All combinations, in order; a setting of an agent or a strategy is for those that have it.

    Folders are named after the settings that differ between cells.

    >>> [cell.folder for cell in grid(["hopper-medium-v2"], strategies=["naive", "arb"],
    ...                               leaves={"replay.temperature": [0.5, 2], "schedule.online": [500]})]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['hopper-medium-v2/iql/naive/seed-0',
     'hopper-medium-v2/iql/arb-replay.temperature=0.5/seed-0',
     'hopper-medium-v2/iql/arb-replay.temperature=2.0/seed-0']

    Args:
        tasks: tasks, files or other sources of offline data.
        agents: algorithms.
        strategies: replay strategies.
        seeds: seeds.
        leaves: values to try by setting, e.g. `{"replay.temperature": [0.5, 2]}`.
        env: Gymnasium id, for data that does not name its own.
        preset: how much training.
        overrides: one value by setting, for all cells; never part of a name.
    """
    axes, agents, strategies, seeds = dict(sorted((leaves or {}).items())), list(agents), list(strategies), list(seeds)
    pairs = list(itertools.product(agents, strategies))
    _refuse_leaves_without_reader(axes, pairs)
    nobodys = {leaf for leaf in (overrides or {}) if not any(_has(*pair, leaf) for pair in pairs)}  # refused below
    made: list[tuple[Config, list[str]]] = []
    for task, (agent, strategy) in itertools.product(tasks, pairs):
        read = {leaf: values for leaf, values in axes.items() if _reads(agent, strategy, leaf)}
        own = {k: v for k, v in (overrides or {}).items() if k in nobodys or _has(agent, strategy, k)}
        for values, seed in itertools.product(list(itertools.product(*read.values())), seeds):
            given = dict(zip(read, values, strict=True))
            config = configure(
                task=task, env=env, agent=agent, strategy=strategy, seed=seed, preset=preset, overrides={**own, **given}
            )
            made.append((config, list(read)))
    varied = _varied(made)
    cells: dict[str, Cell] = {}
    for config, read_leaves in made:
        short = _folder(config, [leaf for leaf in read_leaves if leaf in varied])
        cell = Cell(short, config, _folder(config, read_leaves))
        if cells.setdefault(cell.folder, cell) != cell:
            raise DataError(f"two different runs would be kept in {cell.folder}: give them different settings")
    return list(cells.values())


def _varied(made: Sequence[tuple[Config, list[str]]]) -> set[str]:
    """The settings that have more than one value among the configurations that read them."""
    values: dict[str, set[str]] = {}
    for config, leaves in made:
        held = flat(config)
        for leaf in leaves:
            values.setdefault(leaf, set()).add(repr(held[leaf]))
    return {leaf for leaf, found in values.items() if len(found) > 1}


def pieces(text: str) -> list[str]:
    """A list as it is written on the command line: commas separate, but not inside brackets or quotes.

    >>> pieces("(-12,7),(-9,7)")
    ['(-12,7)', '(-9,7)']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    parts = [part.strip() for part in parts]
    if depth or quote or not all(parts):
        raise DataError(f"{text!r} is not a list: write A,B,C, a tuple in brackets, e.g. replay.clip='(-12,7),(-9,7)'")
    return parts


def seed_range(text: str) -> list[int]:
    """Seeds as they are written on the command line.

    >>> seed_range("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in pieces(text):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise DataError(f"{part!r} is not a seed: write 3, or 0-3, or 0,2,5-7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(seeds))


def _has(agent: str, strategy: str, leaf: str) -> bool:
    """Whether an agent and a strategy have a setting, and one that they leave open."""
    group, _, name = leaf.partition(".")
    if group not in ("replay", "settings"):
        return True
    if group == "replay" and name in strategy_row(strategy).defaults:
        return False
    held = strategy_row(strategy).settings if group == "replay" else settings_class(agent)
    return name in {f.name for f in fields(held)}


def _reads(agent: str, strategy: str, leaf: str) -> bool:
    """Whether a setting changes what they do; one that defines the strategy, as `arb_auto`'s, does not vary."""
    group, _, name = leaf.partition(".")
    if group != "replay":
        return _has(agent, strategy, leaf)
    row = strategy_row(strategy)
    return name in row.reads and name not in row.defaults


def _refuse_leaves_without_reader(axes: Mapping[str, Sequence[Any]], pairs: Sequence[tuple[str, str]]) -> None:
    configure(overrides={leaf: values for leaf, values in axes.items() if leaf in OPTIONS})  # refuses them
    for leaf, values in axes.items():
        if not any(_reads(agent, strategy, leaf) for agent, strategy in pairs):
            readers = [name for name in STRATEGIES if _reads(pairs[0][0], name, leaf)]
            if readers:
                only = f"{leaf} is read only by {' and '.join(readers)}, which is not among the strategies"
                raise DataError(f"{only}: add --strategy {readers[0]}")
            configure(agent=pairs[0][0], strategy=pairs[0][1], overrides={leaf: values[0]})  # says what is wrong


def _folder(config: Config, leaves: Iterable[str]) -> str:
    values = flat(config)
    strategy = named(config.replay.strategy)
    name = "-".join([strategy, *(f"{leaf}={_text(values[leaf])}" for leaf in leaves)])
    if len(name) > LONGEST_NAME:
        name = f"{strategy}-{_hash(name)}"
    return "/".join((named(config.task), named(config.agent), name, f"seed-{config.seed}"))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({','.join(map(_text, value))})"
    return named(value) if isinstance(value, str) else str(value)


def comparison(task: str, agent: str, preset: str) -> tuple[Path, str]:
    """The folder of a comparison that names none, and the title of its report."""
    return Path("compare") / f"{named(task)}-{named(agent)}-{preset}", f"Replay strategies for {agent} on {task}"


def named(text: str) -> str:
    """A text as the name of a folder; where that loses something, a hash tells it from its like."""
    plain = text.replace(":", "-", 1)
    if re.fullmatch(r"[\w.+=(),-]+", plain) and plain == without_suffix(plain) and plain[0] != ".":
        return plain
    stem = re.sub(r"[^\w.+=(),-]+", "-", without_suffix(text.rstrip("/").rpartition("/")[2]))
    return f"{stem.strip('.-') or 'data'}-{_hash(text)[:8]}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def counted(cells: Sequence[Cell]) -> Iterator[str]:
    """A line per task and agent: how many strategies or variants, and seeds."""
    groups: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for cell in cells:
        *_, variant, _ = cell.folder.split("/")
        groups.setdefault((cell.config.task, cell.config.agent), set()).add((variant, cell.config.seed))
    for (task, agent), found in groups.items():
        variants = list(dict.fromkeys(variant for variant, _ in sorted(found)))
        seeds = sorted({seed for _, seed in found})
        yield f"  {task}  {agent}  {', '.join(variants)}  seeds {', '.join(map(str, seeds))}"
