"""Is this data what it says it is? Every check is a function from a dataset to findings; the table is at the end.

`describe` says what is in a dataset, in numbers.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from arb.data.episodes import make_dataset, some_rows, unknown_starts
from arb.data.formats import Source, read_columns, split_columns
from arb.data.tasks import Reference, env_reference, normalised, task_of
from arb.errors import DataError
from arb.replay.dataset import LONG, Dataset, leaves

FAULT, REMARK, UNKNOWN = "fault", "remark", "unknown"
OUTLIER_SPANS = 10.0  # a reward is an outlier this many spans (of the middle 99.8 %) outside of the span
ROUNDING = 1e-6
FROZEN = 20  # rows for which a sensor stands still
MOST_ENTRIES, MOST_FITTED = 200, 5_000  # entries of an observation, and rows, that are looked at for shifted columns
REMEDY = "set timeouts in the last row of every episode, or give every row the number of its episode (episode_ids)"
Bounds = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Lowest and highest action: without a dimension for all entries, else one number for each."""
USUAL: Bounds = (np.array(-1.0, np.float32), np.array(1.0, np.float32))
"""Where no bounds are known, actions that keep these are taken to be meant for them, as in D4RL."""


class Finding(NamedTuple):
    """One thing that was found: a fault makes a dataset unsound, a remark is worth knowing, unknown was not checked."""

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
    checked: tuple[str, ...] = ()
    """What was looked for."""
    unknown: str = ""
    """What could not be checked, and what to give for it."""

    @property
    def ok(self) -> bool:
        return all(finding.level != FAULT for finding in self.findings)

    @property
    def verdict(self) -> str:
        """`no fault found`, also with remarks, or the checks that found one."""
        faults = dict.fromkeys(finding.check for finding in self.findings if finding.level == FAULT)
        remarks = sum(finding.level == REMARK for finding in self.findings)
        if faults:
            return f"faults: {', '.join(faults)}"
        return f"no fault found, {remarks} remark{'s' * (remarks > 1)}" if remarks else "no fault found"


def audit(source: Source | Mapping[str, Any] | Dataset, env: str = "", columns: str = "") -> Audit:
    """Run every check on a dataset.

    Args:
        source: a file as `arb.data.formats.read_dataset` takes it, a dict of arrays with D4RL's keys, or a dataset. A
            file says most: what is repaired or refused in reading it is found too.
        env: the environment that the data is compared with, if not the one that its file or task names.
        columns: names in the file, as for `read_dataset`.
    """
    name, raw = "dataset", cast(Mapping[str, Any], source)
    attributes: Mapping[str, Any] = {}
    try:
        if isinstance(source, Dataset):
            name, raw, attributes = str(source.provenance.get("source", name)), source.to_dict(), source.provenance
        elif not isinstance(source, Mapping):
            name = split_columns(source)[0]
            raw, attributes = read_columns(source, columns)
    except DataError as problem:
        return Audit(name, 0, 0, (Finding("unreadable", FAULT, str(problem)),))
    broken = tuple(_non_finite(raw))
    try:
        data = make_dataset(raw, name, attributes)
    except DataError as problem:
        return Audit(name, 0, 0, broken or (Finding("unusable", FAULT, str(problem)),))
    task = task_of(name)
    world = known_environment({"env": task.env, **attributes} if task else attributes, env)
    found = [Finding("repaired", REMARK, note) for note in data.provenance.get("repaired", ())]
    found += [finding for check in CHECKS.values() for finding in check(data, raw)]
    found += [*_actions(data, world.bounds), *_environment(data, world)]
    lacks = {"the size of observations": world.size, "the bounds of actions": world.bounds, "a time limit": world.limit}
    missing = ", ".join(what for what, known in lacks.items() if known is None and not world.name)
    unknown = [missing and f"{missing} (--env ID says them)", *(f.text for f in found if f.level == UNKNOWN)]
    told = tuple(finding for finding in (*broken, *found) if finding.level != UNKNOWN)
    checked = tuple(name for name in (*CHECKS, "actions") if (name, UNKNOWN) not in {f[:2] for f in found})
    return Audit(
        name, len(data), data.num_episodes, told, ("finite values", *checked), "; ".join(filter(None, unknown))
    )


def faults(data: Dataset, limit: int | None = None) -> list[str]:
    """What speaks against training on a dataset, in a line each; `limit` is the environment's time limit."""
    found = [finding for check in CHECKS.values() for finding in check(data, {"timeouts": data.timeouts})]
    found += _environment(data, Environment(limit=limit))
    return [finding.text for finding in found if finding.level == FAULT or finding.check == "no rewards"]


# ---- what is known about the environment -----------------------------------------------------------------------------
class Environment(NamedTuple):
    """What is known about the environment of a dataset; None for what is not."""

    name: str = ""
    bounds: Bounds | None = None
    limit: int | None = None
    """Steps after which an episode is cut off."""
    size: int | None = None
    """Numbers of an observation, flattened."""


def known_environment(attributes: Mapping[str, Any], env: str = "") -> Environment:
    """The environment of a dataset: `env`, which must exist, else the one that the attributes of its file name.

    `action_low` and `action_high` among the attributes are its bounds.
    """
    if env:
        return _made(env)
    name, known = str(attributes.get("env") or ""), Environment()
    if name and ":" not in name:  # Gymnasium would import the module before the colon: not on the word of a file
        with suppress(Exception):  # an environment may raise anything where it does not find what it needs
            known = _made(name)
    if "action_low" in attributes and "action_high" in attributes:
        try:
            low, high = (np.asarray(attributes[name], np.float32) for name in ("action_low", "action_high"))
        except (TypeError, ValueError):  # a file may call anything so
            low = high = np.empty(0, np.float32)
        known = known._replace(bounds=(low, high))
    return known


def _made(env: str) -> Environment:
    import gymnasium

    from arb.envs import flattened, make

    with warnings.catch_warnings():  # that there is a newer version of the environment does not matter here
        warnings.simplefilter("ignore")
        made = flattened(make(env))
    seen, space = made.observation_space, made.action_space
    limit = made.spec.max_episode_steps if made.spec else None
    made.close()
    size = int(np.prod(seen.shape)) if isinstance(seen, gymnasium.spaces.Box) else None
    bounds: Bounds | None = None
    if isinstance(space, gymnasium.spaces.Discrete):
        bounds = np.array([space.start], np.float32), np.array([space.start + space.n - 1], np.float32)
    elif isinstance(space, gymnasium.spaces.Box):
        bounds = space.low.reshape(-1).astype(np.float32), space.high.reshape(-1).astype(np.float32)
    return Environment(env, bounds, limit, size)


# ---- checks ----------------------------------------------------------------------------------------------------------
def _non_finite(raw: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in raw.items():
        for key, part in value.items() if isinstance(value, Mapping) else [("", value)]:
            column = np.asarray(part)
            if column.dtype.kind == "f" and column.ndim and not np.isfinite(column).all():
                rows = np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(1))
                text = f"{name}{'/' * bool(key)}{key} has values that are not finite in {some_rows(rows)}"
                yield Finding("non-finite", FAULT, text)


def _discontinuities(data: Dataset, raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Ends of episodes that only the observations show."""
    if data.final_observations is None:
        return
    ends = data.ends[:-1]
    if raw.get("episode_ids") is not None:
        ids = np.asarray(raw["episode_ids"]).reshape(-1)
        inside = ends[ids[ends] == ids[ends + 1]]
        if len(inside):
            text = f"the observations are discontinuous inside an episode in {some_rows(inside)}: ended there"
            yield Finding("discontinuities", FAULT, text)
        return
    flagged = data.terminals.copy()
    if raw.get("timeouts") is not None:
        flagged |= np.asarray(raw["timeouts"]).reshape(-1).astype(bool)
    unflagged = ends[~flagged[ends]]
    if len(unflagged):
        text = f"no flag says that an episode ends in {some_rows(unflagged)}, where the observations are discontinuous"
        yield Finding("repaired", REMARK, f"{text}: ended there")


def _missing_ends(data: Dataset, raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Rows inside an episode that look like a fresh start, and episodes longer or shorter than the time limit."""
    if data.final_observations is None and not isinstance(data.observations, Mapping):
        rows = unknown_starts(data.observations, data.starts)
        if rows is not None and (rows := _jumps(data, rows)).size:
            text = f"a new episode seems to begin unflagged in {some_rows(rows)}: {REMEDY}"
            yield Finding("missing ends", FAULT, text)
    if data.num_episodes == 1 and len(data) > LONG and raw.get("episode_ids") is None:
        yield Finding("missing ends", FAULT, f"all {len(data):,} rows are taken for one episode: {REMEDY}")
    cut_off = ~data.terminals[data.ends]
    limit, times = next(iter(Counter(data.lengths[cut_off].tolist()).most_common(1)), (0, 0))
    long, short = data.starts[data.lengths > limit], data.starts[:-1][(cut_off & (data.lengths < limit))[:-1]]
    usual = times >= 2 and 2 * times > cut_off.sum()
    if usual and len(long):
        text = f"longer than the time limit of {limit}: the episode from {some_rows(long)}: {REMEDY}"
        yield Finding("missing ends", FAULT, text)
    if usual and len(short):
        text = f"cut off before the others' {limit} steps: the episode from {some_rows(short)}"
        yield Finding("missing rows", REMARK, f"{text}: was it stopped early, or are rows missing?")
    if all(raw.get(name) is None for name in ("timeouts", "next_observations", "episode_ids")):
        text = "neither timeouts nor next_observations: episodes that were cut off cannot be told apart; "
        yield Finding("missing ends", REMARK, text + "record timeouts, or a number per episode (episode_ids)")


def _jumps(data: Dataset, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of some rows to which no ordinary step leads: other ones resemble a start by coincidence."""
    flat = leaves(data.observations)[""].reshape(len(data), -1)
    ordinary = np.setdiff1d(np.arange(1, len(data)), [*rows, *data.starts])
    if not len(ordinary):
        return rows
    usual = np.abs(flat[ordinary] - flat[ordinary - 1]).max(0)
    return np.asarray(rows[(np.abs(flat[rows] - flat[rows - 1]) > usual).any(1)])


def _frozen(data: Dataset, _: Mapping[str, Any]) -> Iterator[Finding]:
    """Entries of observations that move at nearly every step, and then stand still while others move."""
    inside = np.ones(len(data), bool)
    inside[data.starts] = False
    for key, part in leaves(data.observations).items():
        flat = part.reshape(len(data), -1)
        if part.dtype.kind != "f" or not 2 <= flat.shape[1] <= MOST_ENTRIES:
            continue
        moves = np.diff(flat, axis=0, prepend=flat[:1]) != 0
        others = np.count_nonzero(moves, 1)
        for entry in np.flatnonzero(moves[inside].mean(0) > 0.75):
            column = flat[:, entry]
            still = ~moves[:, entry] & (others > 0) & (column != column.min()) & (column != column.max())
            edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(np.int8), [0]])))
            long = edges[::2][np.diff(edges)[::2] >= FROZEN]
            if len(long):
                text = f"entry {entry} of observations{'/' * bool(key)}{key} stands still from {some_rows(long)} on"
                yield Finding("frozen sensors", FAULT, f"{text} while others move: drop these episodes or this entry")


def _shifted(data: Dataset, _: Mapping[str, Any]) -> Iterator[Finding]:
    """Actions and rewards that fit the observations better when they are taken from the row before or after.

    By linear models: of the step to the next observation, with an action of a row near; and of a reward near.
    """
    parts = [part.reshape(len(data), -1) for part in leaves(data.observations).values()]
    inside = np.setdiff1d(np.arange(1, len(data) - 2), [*data.starts, *data.ends, *(data.ends - 1)])
    rows = inside[:: max(1, len(inside) // MOST_FITTED)]
    entries = sum(part.shape[1] for part in parts)
    if len(rows) < 100 + 10 * entries or entries > MOST_ENTRIES or data.actions.dtype.kind != "f":
        yield Finding("shifted columns", UNKNOWN, "shifted columns (too few rows, many entries, or discrete actions)")
        return
    near = {shift: rows + shift for shift in (-1, 0, 1)}
    obs, after = (_standardised(np.concatenate([part[near[k]] for part in parts], 1)) for k in (0, 1))
    actions = {k: _standardised(data.actions[near[k]].reshape(len(rows), -1)) for k in near}
    step = after - obs
    alone = unexplained(obs, step)
    gains = {k: float(np.mean(alone - unexplained(np.hstack([obs, actions[k]]), step))) for k in near}
    seen = np.hstack([obs, actions[0], after])
    errors = {k: float(unexplained(np.hstack([seen, seen**2]), data.rewards[near[k], None])[0]) for k in near}
    for k, row in ((-1, "before"), (1, "after")):
        if gains[k] > max(0.02, 1.5 * gains[0]):
            shares = f"{gains[k]:.2f} of its variance, {gains[0]:.2f}"
            text = f"the action of the row {row} explains a step better than the row's own ({shares})"
            yield Finding("shifted columns", REMARK, f"{text}: are actions shifted by a row, or take effect late?")
        if errors[k] < min(0.5, 0.5 * errors[0] - 1e-4):
            shares = f"unexplained {errors[k]:.3f}, {errors[0]:.3f}"
            text = f"the reward of the row {row} fits a row's observations and action better than its own ({shares})"
            yield Finding("shifted columns", REMARK, f"{text}: are they shifted?")


def _standardised(x: NDArray[Any]) -> NDArray[np.float64]:
    x = x.astype(np.float64)
    return np.asarray((x - x.mean(0)) / np.maximum(x.std(0), 1e-9))


def unexplained(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """The share of the variance of every column of `y` that no linear function of `x` explains.

    >>> x = np.arange(4.0)[:, None]
    >>> unexplained(x, np.hstack([2 * x + 1, [[1.0], [-1.0], [-1.0], [1.0]]])).round(6)
    array([0., 1.])
    """
    x = np.hstack([np.ones((len(x), 1)), x])
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return np.asarray(np.mean(rest**2, 0) / np.maximum(np.var(y, 0), 1e-12))


def _terminals(data: Dataset, _: Mapping[str, Any]) -> Iterator[Finding]:
    inside = np.setdiff1d(np.flatnonzero(data.terminals), data.ends)
    if len(inside):
        text = f"terminals without a reset in {some_rows(inside)}: they end the task, not the episode (as in AntMaze)"
        yield Finding("terminals", REMARK, text)


def _duplicates(data: Dataset, _: Mapping[str, Any]) -> Iterator[Finding]:
    columns = [np.ascontiguousarray(column) for column in (*leaves(data.observations).values(), data.actions)]
    seen: dict[bytes, int] = {}
    copies = []
    for start, end in zip(data.starts.tolist(), data.ends.tolist(), strict=True):
        content = b"".join(column[start : end + 1].tobytes() for column in columns)
        if seen.setdefault(blake2b(content, digest_size=16).digest(), start) != start:
            copies.append(start)
    if copies:
        text = f"{len(copies)} episodes repeat an earlier one, beginning in {some_rows(np.array(copies))}"
        yield Finding("duplicates", FAULT, text)


def _rewards(data: Dataset, _: Mapping[str, Any]) -> Iterator[Finding]:
    low, high = np.quantile(data.rewards, [0.001, 0.999])
    if data.rewards.min() == data.rewards.max() and (low == 0.0 or not data.terminals.any()):
        text = f"every reward is {low:g}, so there is nothing to learn from: `arb data repair --reward` gives them anew"
        yield Finding("no rewards", REMARK, text)
    reach = OUTLIER_SPANS * (high - low)
    rows = np.flatnonzero((data.rewards < low - reach) | (data.rewards > high + reach))
    if reach > 0 and len(rows):
        worst = data.rewards[rows[np.argmax(np.abs(data.rewards[rows]))]]
        text = f"rewards far outside {low:.3g} .. {high:.3g} in {some_rows(rows)} (largest {worst:.3g})"
        yield Finding("rewards", FAULT, text)


Check = Callable[[Dataset, Mapping[str, Any]], Iterator[Finding]]
CHECKS: Mapping[str, Check] = {
    "discontinuities": _discontinuities, "missing ends": _missing_ends, "terminals": _terminals,
    "duplicates": _duplicates, "rewards": _rewards, "frozen sensors": _frozen, "shifted columns": _shifted,
}  # fmt: skip
"""What needs no environment, from a dataset and its columns as they were in the file."""


def _actions(data: Dataset, bounds: Bounds | None) -> Iterator[Finding]:
    flat, continuous = data.actions.reshape(len(data), -1), data.actions.dtype.kind == "f"
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


def _environment(data: Dataset, env: Environment) -> Iterator[Finding]:
    """Observations of another size, time limits recorded as terminals, episodes of at least twice the time limit.

    A critic learns that nothing follows a terminal. Where at least half of the episodes that ended did so exactly at
    the limit of the environment, they were cut off.
    """
    size = sum(int(np.prod(part.shape[1:])) for part in leaves(data.observations).values())
    if env.name and env.size is None:
        text = f"{env.name} gives observations that are no vectors, which no agent reads"
        yield Finding("observations", FAULT, f"{text}: register it wrapped in gymnasium.wrappers.FlattenObservation")
    elif env.size is not None and env.size != size:
        text = f"an observation has {size} numbers, one of {env.name} has {env.size}: recorded in another environment?"
        yield Finding("observations", FAULT, text)
    ended = data.terminals[data.ends]
    limit, whose = env.limit, "exactly at the time limit of"
    longest = data.lengths == data.lengths.max()
    if limit is None and longest.sum() >= 5 and ended[longest].all() and data.lengths.max() > 1:
        limit, whose = int(data.lengths.max()), "after exactly as many steps, as at a time limit of"
    at = (data.lengths == limit) & ended
    if at.any() and 2 * at.sum() >= ended.sum():
        text = f"{at.sum():,} of {ended.sum():,} ends are terminals {whose} {limit} steps"
        first = some_rows(data.ends[at][:1])
        yield Finding("time limits", FAULT, f"{text}, first in {first}: clear terminals there and set timeouts")
    long = data.starts[data.lengths >= 2 * (env.limit or len(data))]
    if len(long) and env.limit:
        text = f"the episode from {some_rows(long)} has {data.lengths.max():,} steps, and the time limit is {env.limit}"
        yield Finding("missing ends", FAULT, f"{text}: ends are missing; {REMEDY}")


# ---- in numbers ------------------------------------------------------------------------------------------------------
def reference_of(source: str, data: Dataset) -> Reference | None:
    """The score reference of a dataset: of its task, else of the environment its file names."""
    task = task_of(source)
    return task.reference if task else env_reference(str(data.provenance.get("env", "")))


def describe(data: Dataset, reference: Reference | None) -> Iterator[str]:
    """Size, episodes, returns and score of a dataset, line by line."""
    about, ended = dict(data.provenance), data.terminals[data.ends]
    shapes = " ".join(f"{name}{list(part.shape[1:])}" for name, part in leaves(data.observations).items())
    yield str(about.pop("source", "dataset"))
    notes = about.pop("repaired", ())
    episodes = f"{data.num_episodes:,} episodes: {ended.sum():,} ended, {(~ended).sum():,} cut off"
    lines = [*about.items(), ("rows", f"{len(data):,} in {episodes}")]
    lines += [("observations", f"{shapes}, actions {list(data.actions.shape[1:])}")]
    lines += [("also", ", ".join(data.extras))] if data.extras else []
    lines += [("fingerprint", data.fingerprint[:16]), *(("repaired", note) for note in notes)]
    yield from (f"  {name:<14} {value}" for name, value in lines)
    columns = {"worst": 0.0, "10 %": 0.1, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "90 %": 0.9, "best": 1.0}
    yield f"\n  {'episodes':<10}" + "".join(f"{label:>10}" for label in (*columns, "mean"))
    score = {"score": normalised(data.episode_returns, reference)} if reference else {}
    for label, values in {"return": data.episode_returns, **score, "length": data.lengths}.items():
        numbers = (*np.quantile(values, [*columns.values()]), values.mean())
        yield f"  {label:<10}" + "".join(f"{number:>10.1f}" for number in numbers)
