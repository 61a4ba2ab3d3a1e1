"""Is this data what it says it is? Every check is a function from a dataset to findings; the table is at the end."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from arb.data.columns import Data, borders, finish, flat_columns, some_rows, unknown_starts
from arb.data.load import Source, read_raw
from arb.data.tasks import task_of
from arb.data.world import Bounds, World, known_world
from arb.errors import DataError
from arb.replay.dataset import leaves
from arb.replay.episodes import differs

FAULT, REMARK = "fault", "remark"
OUTLIER_SPANS = 10.0
"""A reward is an outlier this many spans (of the middle 99.8 %) outside of the span."""
ROUNDING = 1e-6
REMEDY = "set timeouts in the last row of every episode, or give every row the number of its episode (episode_ids)"
USUAL: Bounds = (np.array(-1.0, np.float32), np.array(1.0, np.float32))
"""Where no bounds are known, actions that keep these are taken to be meant for them, as in D4RL."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found: a fault makes a dataset unsound, a remark is worth knowing."""

    check: str
    level: str
    text: str


@dataclass(frozen=True)
class Audit:
    """What was found in a dataset."""

    source: str
    rows: int
    episodes: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether there is no fault."""
        return all(finding.level != FAULT for finding in self.findings)

    @property
    def verdict(self) -> str:
        """In words."""
        faults = [finding.check for finding in self.findings if finding.level == FAULT]
        remarks = len(self.findings) - len(faults)
        if faults:
            return f"unsound: {', '.join(dict.fromkeys(faults))}"
        return f"sound, with {remarks} remark{'s' * (remarks > 1)}" if remarks else "sound"


def audit(source: Source, env: str = "", columns: str = "") -> Audit:
    """Run every check on a dataset.

    Args:
        source: whatever `arb.data.load` reads.
        env: the environment that the data is held against, if not the one that its file or task names.
        columns: other names of columns, see `arb.data.load`.
    """
    try:
        raw, name, attributes = read_raw(source, columns)
    except DataError as problem:
        return Audit(str(source), 0, 0, (Finding("unreadable", FAULT, str(problem)),))
    broken = tuple(_non_finite(raw))
    try:
        data = finish(raw, name, attributes)
    except DataError as problem:
        return Audit(name, 0, 0, broken or (Finding("unusable", FAULT, str(problem)),))
    repaired = [Finding("borders", REMARK, note) for note in data.notes]
    found = [finding for check in CHECKS for finding in check(data, raw)]
    world = known_world(data.attributes, env, _origin(source))
    held = (*_actions(data, world.bounds), *_observations(data, world), *_limits(data, world))
    return Audit(name, len(data), len(borders(data.columns)[0]), (*broken, *repaired, *found, *held))


def serious(data: Data, raw: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a dataset that was read already, in a line each."""
    yield from (finding.text for check in CHECKS for finding in check(data, raw) if finding.level == FAULT)


def _origin(source: Source) -> str:
    task = None if isinstance(source, Mapping) else task_of(os.fspath(source))
    return task.env if task else ""


def _non_finite(raw: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in flat_columns(raw).items():
        column = np.asarray(value)
        if column.dtype.kind == "f" and column.ndim and not np.isfinite(column).all():
            rows = np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(1))
            yield Finding("non-finite", FAULT, f"{name} has values that are not finite in {some_rows(rows)}")


def _jumps(data: Data, raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Rows whose successor does not begin where they led to, although no flag says that an episode ends there."""
    columns = data.columns
    if "next_observations" not in columns or len(data) < 2:
        return
    led_to, begins = leaves(columns["next_observations"]), leaves(columns["observations"])
    jump = differs({k: v[:-1] for k, v in led_to.items()}, {k: v[1:] for k, v in begins.items()})
    inside = np.flatnonzero(jump & (columns["episode_ids"][1:] == columns["episode_ids"][:-1]))
    if len(inside):
        yield Finding("jumps", FAULT, f"the observations jump inside an episode in {some_rows(inside)}")
    flagged = columns["terminals"].copy()
    if "timeouts" in raw:
        flagged |= np.asarray(raw["timeouts"]).reshape(-1).astype(bool)
    unflagged = np.setdiff1d(np.flatnonzero(jump & ~flagged[:-1]), inside)
    if len(unflagged) and "episode_ids" not in raw:
        text = f"no flag says that an episode ends in {some_rows(unflagged)}, where the observations jump: ended there"
        yield Finding("borders", REMARK, text)


def _missing_borders(data: Data, raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Rows inside an episode that look like a fresh start, and episodes longer than the time limit."""
    first, stop = borders(data.columns)
    obs = data.columns["observations"]
    if "next_observations" not in data.columns and not isinstance(obs, Mapping):
        rows = unknown_starts(obs, first)
        if rows is not None and len(rows):
            yield Finding(
                "missing borders", FAULT, f"a new episode seems to begin unflagged in {some_rows(rows)}: {REMEDY}"
            )
    lengths = stop - first
    cut = Counter(lengths[(data.columns["timeouts"] & ~data.columns["terminals"])[stop - 1]].tolist())
    limit, times = cut.most_common(1)[0] if cut else (0, 0)
    if times >= 2 and 2 * times > cut.total() and lengths.max() > limit:
        long = first[lengths > limit]
        yield Finding(
            "missing borders",
            FAULT,
            f"longer than the time limit of {limit}: the episode from {some_rows(long)}: {REMEDY}",
        )
    if "timeouts" not in raw and "next_observations" not in raw and "episode_ids" not in raw:
        text = (
            "neither timeouts nor next_observations: episodes that were cut off cannot be told apart; "
            "record timeouts, or a number per episode (episode_ids)"
        )
        yield Finding("missing borders", REMARK, text)


def _terminals(data: Data, _: Mapping[str, Any]) -> Iterator[Finding]:
    ids, terminal = data.columns["episode_ids"], data.columns["terminals"]
    inside = np.flatnonzero(terminal[:-1] & (ids[1:] == ids[:-1]))
    if len(inside):
        text = (
            f"terminals without a reset in {some_rows(inside)}: they end the task, not the trajectory (as in AntMaze)"
        )
        yield Finding("terminals", REMARK, text)


def _constant(data: Data, _: Mapping[str, Any]) -> Iterator[Finding]:
    if len(data) < 2:
        return
    for name in ("observations", "actions", "rewards"):
        for key, column in leaves(data.columns[name]).items():
            flat = column.reshape(len(column), -1)
            still = np.flatnonzero((flat == flat[0]).all(0))
            if len(still):
                numbers = "" if flat.shape[1] == 1 else f", column {', '.join(map(str, still[:5]))}"
                yield Finding("constant", REMARK, f"{name}{'/' * bool(key)}{key}{numbers} never changes")


def _actions(data: Data, bounds: Bounds | None) -> Iterator[Finding]:
    action = data.columns["actions"]
    flat, continuous = action.reshape(len(action), -1), action.dtype.kind == "f"
    if bounds is None:
        if not continuous:
            return
        reach = float(np.abs(flat).max(initial=0.0))
        if reach > 1.0 + ROUNDING:
            text = f"actions reach {reach:g}: if the environment's bounds are wider than 1, fine; --env ID checks it"
            yield Finding("actions", REMARK, text)
            return
    low, high = USUAL if bounds is None else bounds
    if any(bound.ndim and bound.shape != flat.shape[1:] for bound in (low, high)):
        text = f"an action has {flat.shape[1]} entries, its lower bound {low.size} and its upper bound {high.size}"
        yield Finding("actions", FAULT, f"{text}: action_low and action_high, or the environment, are not this data's")
        return
    named = f"[{low.min():g}, {high.max():g}]"
    beyond = np.flatnonzero(((flat < low - ROUNDING) | (flat > high + ROUNDING)).any(1))
    if len(beyond):
        yield Finding("actions", FAULT, f"actions leave {named} in {some_rows(beyond)}: clip or rescale them")
    at = np.mean((flat <= low + ROUNDING) | (flat >= high - ROUNDING))
    if at > 0.01 and continuous:
        yield Finding("actions", REMARK, f"{at:.1%} of the action entries are at or beyond the bounds {named}")


def _observations(data: Data, world: World) -> Iterator[Finding]:
    size = sum(int(np.prod(part.shape[1:])) for part in leaves(data.columns["observations"]).values())
    if world.size is not None and world.size != size:
        text = (
            f"an observation has {size} numbers, one of {world.name} has {world.size}: recorded in another environment?"
        )
        yield Finding("observations", FAULT, text)


def _limits(data: Data, world: World) -> Iterator[Finding]:
    if text := limits_as_terminals(data.columns, world.limit):
        yield Finding("time limits", FAULT, text)
    if text := joined_episodes(data.columns, world.limit):
        yield Finding("missing borders", FAULT, text)


def limits_as_terminals(columns: Mapping[str, Any], limit: int | None) -> str:
    """What is to be said if time limits seem to be recorded as terminals; nothing if not.

    A critic learns that nothing follows a terminal. Where at least half of the episodes that ended did so exactly at
    the limit of the environment, they were cut off.
    """
    first, stop = borders(columns)
    ended = np.asarray(columns["terminals"])[stop - 1]
    at = (stop - first == limit) & ended
    if limit is None or not ended.any() or 2 * at.sum() < ended.sum():
        return ""
    return (
        f"{at.sum():,} of {ended.sum():,} ends are terminals exactly at the time limit of {limit} steps, first in "
        f"{some_rows(stop[at][:1] - 1)}: clear terminals there and set timeouts"
    )


def joined_episodes(columns: Mapping[str, Any], limit: int | None) -> str:
    """What is to be said if episodes seem to be joined: one takes at least twice the time limit of the environment."""
    first, stop = borders(columns)
    long = first[stop - first >= 2 * limit] if limit else first[:0]
    if len(long) == 0:
        return ""
    return (
        f"the episode from {some_rows(long)} has {(stop - first).max():,} steps, and the time limit is {limit}: "
        f"borders are missing; {REMEDY}"
    )


def _duplicates(data: Data, _: Mapping[str, Any]) -> Iterator[Finding]:
    obs, action = leaves(data.columns["observations"]), np.ascontiguousarray(data.columns["actions"])
    seen: dict[bytes, int] = {}
    copies = []
    for start, stop in zip(*borders(data.columns), strict=True):
        parts = (*(np.ascontiguousarray(column[start:stop]) for column in obs.values()), action[start:stop])
        digest = blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()
        if seen.setdefault(digest, start) != start:
            copies.append(start)
    if copies:
        text = f"{len(copies)} episodes repeat an earlier one, beginning in {some_rows(np.array(copies))}"
        yield Finding("duplicates", FAULT, text)


def _rewards(data: Data, _: Mapping[str, Any]) -> Iterator[Finding]:
    reward = data.columns["rewards"]
    low, high = np.quantile(reward, [0.001, 0.999])
    span = high - low
    rows = np.flatnonzero((reward < low - OUTLIER_SPANS * span) | (reward > high + OUTLIER_SPANS * span))
    if span > 0 and len(rows):
        worst = reward[rows[np.argmax(np.abs(reward[rows]))]]
        text = f"rewards far outside {low:.3g} .. {high:.3g} in {some_rows(rows)} (largest {worst:.3g})"
        yield Finding("rewards", FAULT, text)


Check = Callable[[Data, Mapping[str, Any]], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (_jumps, _missing_borders, _terminals, _constant, _duplicates, _rewards)
