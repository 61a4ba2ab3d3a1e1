"""From the names in a file to D4RL's columns: four layouts, one table of other names, and a mapping of one's own."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from arb.data.contents import Array, Contents
from arb.errors import DataError, suggest
from arb.replay.dataset import OPTIONAL, REQUIRED

KNOWN = (*REQUIRED, *OPTIONAL)
STATE = ("infos/qpos", "infos/qvel")
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "observations": ("obs", "observation", "observation.state", "state", "states"),
    "actions": ("act", "action", "acts", "command", "commands"),
    "rewards": ("rew", "reward", "rews", "next.reward"),
    "terminals": (
        "terminal",
        "terminated",
        "terminations",
        "is_terminal",
        "done",
        "dones",
        "next.success",
        "next.done",
    ),
    "timeouts": ("timeout", "truncated", "truncations", "truncation", "is_truncated"),
    "next_observations": ("next_obs", "next_observation", "next_state", "next_states"),
    "episode_ids": ("episode", "episode_id", "episode_index", "episodes"),
}
"""What columns are called elsewhere; used for hints, never without being asked."""
MISSING = {
    "rewards": "record one number per step, or give a column or a constant for it: --columns rewards=NAME or rewards=0",
    "terminals": "mark the steps that ended the task, or say with --columns terminals=0 that none did",
}
"""What to do about a column that no other name stands for."""
MOST_NAMES = 20
"""So many are told of what a file holds; a file with a group per episode has thousands."""

Mapped = dict[str, tuple[str, ...]]
"""A column to the names it is joined from; a number stands for a constant column."""


def parse_columns(text: str) -> Mapped:
    """A mapping as people type it.

    >>> parse_columns("observations=position+velocity,actions=command,terminals=0")
    {'observations': ('position', 'velocity'), 'actions': ('command',), 'terminals': ('0',)}
    """
    found: Mapped = {}
    for entry in filter(None, text.split(",")):
        name, equals, sources = (part.strip() for part in entry.partition("="))
        if name not in KNOWN:
            raise DataError(f"--columns {entry}: {name!r} is not one of {', '.join(KNOWN)}{suggest(name, KNOWN)}")
        if not equals or not all(sources.split("+")):
            raise DataError(f"--columns {entry}: write {name}=NAME, or {name}=NAME+NAME to join several")
        found[name] = tuple(source.strip() for source in sources.split("+"))
    return found


def raw_columns(contents: Contents, columns: str = "") -> dict[str, Any]:
    """The columns of a file under D4RL's names, unchecked."""
    episodes = _episodes(contents.leaves)
    mapped = parse_columns(columns)
    if episodes:
        return _joined_episodes(contents, episodes, mapped)
    return _flat(contents, mapped)


# ---- one array per column: D4RL, OGBench, CSV, LeRobot ---------------------------------------------------------------
def _flat(contents: Contents, mapped: Mapped) -> dict[str, Any]:
    tree = {name: _below(contents.leaves, name) or (name,) for name in KNOWN if _holds(contents, name)}
    wanted = {name: names for name, names in tree.items() if name not in mapped}
    state = STATE if "next_observations" not in (*wanted, *mapped) and all(s in contents.leaves for s in STATE) else ()
    masks = ("masks",) if "masks" in contents.leaves and "terminals" not in mapped else ()
    sources = {source for names in mapped.values() for source in names if not _number(source)}
    for source in sorted(sources):
        if not _holds(contents, source):
            near = suggest(source, contents.leaves)
            raise DataError(f"{contents.path}: there is no {source!r}{near}; {_has(contents)}")
    refuse_missing(contents.path, [*wanted, *mapped], contents)
    leaves = {leaf for source in sources for leaf in _below(contents.leaves, source) or (source,)}
    arrays = contents.read(sorted({name for names in wanted.values() for name in names} | leaves | {*state, *masks}))
    found = {name: _tree(arrays, name, names) for name, names in wanted.items()}
    rows = len(next(iter(arrays.values()))) if arrays and next(iter(arrays.values())).ndim else 0
    for name, names in mapped.items():
        found[name] = _mapped(contents.path, name, [_source(arrays, contents, one, rows) for one in names])
    found |= {name: arrays[name] for name in state}
    return _with_masks(found, arrays["masks"]) if masks else found


def _with_masks(found: dict[str, Any], masks: Array) -> dict[str, Any]:
    """OGBench: its `terminals` end a trajectory, and `masks` is 0 where the task ended and nothing is bootstrapped."""
    ended = np.asarray(masks).reshape(-1) == 0
    ends = np.asarray(found["terminals"]).reshape(-1) != 0
    if len(ended) != len(ends):
        return {**found, "masks": masks}  # the check of the columns says what is wrong with the lengths
    return {**found, "terminals": ended, "timeouts": ends & ~ended, "episode_ids": np.cumsum(ends) - ends}


def _holds(contents: Contents, name: str) -> bool:
    return name in contents.leaves or name in contents.refused or bool(_below(contents.leaves, name))


def _below(leaves: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(leaf for leaf in leaves if leaf.startswith(f"{name}/"))


def _tree(arrays: Mapping[str, Array], name: str, names: tuple[str, ...]) -> Any:
    return arrays[name] if names == (name,) else {one[len(name) + 1 :]: arrays[one] for one in names}


def _source(arrays: Mapping[str, Array], contents: Contents, name: str, rows: int) -> Any:
    if _number(name):
        return np.full(rows, float(name), np.float32)
    return _tree(arrays, name, _below(contents.leaves, name) or (name,))


def _mapped(path: str, name: str, parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, Mapping) for part in parts) or len({len(part) for part in parts}) > 1:
        raise DataError(f"{path}: the columns joined to {name} must be arrays with the same number of rows")
    return np.concatenate([part.reshape(len(part), -1) for part in parts], 1)


def _number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?\d+(\.\d*)?", text))


# ---- one group per episode: robomimic, Minari ------------------------------------------------------------------------
_GROUP = re.compile(r"((?:data/demo_|episode_)(\d+))/")
_EPISODE_NAMES = {
    "obs": "observations",
    "next_obs": "next_observations",
    "dones": "terminals",
    "terminations": "terminals",
    "truncations": "timeouts",
}
"""Names inside an episode of robomimic and of Minari."""


def _episodes(leaves: Iterable[str]) -> list[str]:
    """The groups that hold an episode each, in the order of their numbers."""
    found = {match[1]: int(match[2]) for match in map(_GROUP.match, leaves) if match}
    return sorted(found, key=lambda group: found[group])


def _joined_episodes(contents: Contents, episodes: list[str], mapped: Mapped) -> dict[str, Any]:
    renamed = {names[0]: name for name, names in mapped.items() if len(names) == 1}
    constants = {name: float(names[0]) for name, names in mapped.items() if len(names) == 1 and _number(names[0])}
    places: dict[str, dict[str, str]] = {group: {} for group in episodes}
    for leaf in contents.leaves:
        match = _GROUP.match(leaf)
        if match:
            head, slash, rest = leaf[match.end() :].partition("/")
            name = renamed.get(head) or (_EPISODE_NAMES.get(head, head) if head not in mapped else head)
            if name in KNOWN and name not in constants:
                places[match[1]][name + slash + rest] = leaf
    shared = set.intersection(*(set(place) for place in places.values()))
    refuse_missing(contents.path, {name.partition("/")[0] for name in shared} | set(constants), contents)
    arrays = contents.read(leaf for place in places.values() for name, leaf in place.items() if name in shared)
    parts = [
        _episode({name: arrays[leaf] for name, leaf in places[group].items() if name in shared}) for group in episodes
    ]
    lengths = [len(part["actions"]) for part in parts]
    found: dict[str, Any] = {}
    for name in parts[0]:
        head, slash, rest = name.partition("/")
        column = np.concatenate([part[name] for part in parts])
        found |= {head: {**found.get(head, {}), rest: column}} if slash else {name: column}
    found |= {name: np.full(sum(lengths), value, np.float32) for name, value in constants.items()}
    return {**found, "episode_ids": np.repeat(np.arange(len(parts), dtype=np.int32), lengths)}


def _episode(columns: dict[str, Array]) -> dict[str, Array]:
    """Minari has one observation more than actions; the last one is only a next observation."""
    rows = len(columns["actions"]) if columns["actions"].ndim else 0
    longer = [name for name in columns if name.partition("/")[0] == "observations" and len(columns[name]) == rows + 1]
    for name in longer:
        columns["next_" + name], columns[name] = columns[name][1:], columns[name][:-1]
    return columns


# ---- what is missing -------------------------------------------------------------------------------------------------
def refuse_missing(path: str, names: Iterable[str], contents: Contents) -> None:
    """Raise a `DataError` that says which column is missing, and how to give it, if one is."""
    names = set(names)
    missing = [name for name in REQUIRED if name not in names]
    if not missing:
        return
    if not contents.leaves and not contents.refused:
        raise DataError(f"{path}: the dataset has no {missing[0]!r}: there is nothing in the file")
    suggestion = suggested({name.split("/")[0] for name in contents.leaves}, missing)
    hint = f"try --columns {suggestion}" if suggestion else ""
    unnamed = [name for name in missing if f"{name}=" not in suggestion and name in MISSING]
    advice = "; ".join([*([hint] if hint else []), *(f"{name}: {MISSING[name]}" for name in unnamed)])
    raise DataError(f"{path}: the dataset has no {missing[0]!r}; {advice + '; ' if advice else ''}{_has(contents)}")


def suggested(present: Iterable[str], missing: Iterable[str]) -> str:
    """A mapping from the names that are there to those that are missing, as far as they can be guessed.

    >>> suggested(["obs", "act", "reward", "done"], ["observations", "actions", "rewards", "terminals"])
    'observations=obs,actions=act,rewards=reward,terminals=done'
    """
    present = set(present)
    more = [name for name in OPTIONAL if name not in present]
    guesses = {name: next((other for other in OTHER_NAMES[name] if other in present), "") for name in (*missing, *more)}
    return ",".join(f"{name}={other}" for name, other in guesses.items() if other)


def _has(contents: Contents) -> str:
    names = sorted({name.split("/")[0] for name in contents.leaves})
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return f"the file has {', '.join([*names[:MOST_NAMES], *more])}"
