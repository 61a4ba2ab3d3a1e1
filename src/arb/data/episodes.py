"""From the columns of a file to a `Dataset`: what D4RL's files need before their episodes are known.

Three defects are worked around, and each is noted in `provenance["repaired"]`: next observations that are observations
shifted by one row, time limits that are flagged where the episode continues, and terminals that may not be ends in data
without next observations (AntMaze).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Array, Columns, Dataset, check_columns, discontinuities, episode_ends, leaves, unwrapped

STATE = ("infos/qpos", "infos/qvel")  # the simulator's state in D4RL's files
FEWEST = 5  # with fewer known starts their spread says nothing
MOST_UNFLAGGED = 2  # for each start that is known, at most so many may be unflagged
ROUNDING = 1e-6


class DataWarning(UserWarning):
    """Something in a file that was wrong and has been repaired."""


def make_dataset(raw: Mapping[str, Any], source: str, attributes: Mapping[str, Any] | None = None) -> Dataset:
    """Check the columns of a file, under D4RL's names, and find where its episodes end.

    Args:
        raw: the columns as they are in the file, from every row of it.
        source: where they come from; the beginning of every error message.
        attributes: what the file says about itself. They become the provenance, with `source` and `repaired`.
    """
    try:
        after = state_after(raw)
        columns = {name: column for name, column in raw.items() if name not in STATE}
        data = check_columns(columns if after is None else {**columns, "next_observations": after})
    except DataError as problem:
        raise DataError(f"{source}: {problem}") from None
    data, notes = _repaired(data, measured=after is not None)
    provenance = {**(attributes or {}), "source": source}
    return Dataset.from_columns(data, find_ends(data), provenance | ({"repaired": notes} if notes else {}))


def repair_dataset(
    raw: Mapping[str, Any],
    attributes: Mapping[str, Any],
    source: str,
    time_limit: int | None = None,
    reward: Callable[[Any, Any, Any], Any] | None = None,
) -> Dataset:
    """The dataset of a log, with what can be repaired; each change is a line of `provenance["repaired"]`.

    Args:
        raw: the columns of a file. Rows that are not finite are dropped, and the episode is cut off before them.
        attributes: what the file says about itself.
        source: where they come from.
        time_limit: terminals of episodes of exactly this many steps become time limits.
        reward: gives the rewards anew, from observations, actions and next observations of all rows.
    """
    names = {"observations", "next_observations", "actions", "rewards"} & raw.keys()
    finite = {name: _finite(raw[name]) for name in names}
    data = make_dataset({**raw, **finite}, source, attributes)
    rows, columns, notes = np.arange(len(data)), data.to_dict(), list(data.provenance.get("repaired", ()))
    at = data.ends[(data.lengths == time_limit) & data.terminals[data.ends]]
    if len(at):
        columns["terminals"] = data.terminals & ~np.isin(rows, at)
        text = f"{len(at):,} terminals after {time_limit} steps are time limits now"
        notes.append(f"{text}, first in {some_rows(at[:1])}")
    bad = {
        name: np.any([~np.isfinite(part).reshape(len(part), -1).all(1) for part in leaves(raw[name]).values()], 0)
        for name in finite
    }
    lost = bad["observations"] | bad["actions"] | bad["rewards"]
    if data.final_observations is not None:  # then where a row led is known, and must be finite too
        after = np.roll(bad["observations"], -1)
        after[data.ends] = bad.get("next_observations", after)[data.ends]
        lost = lost | after
    if lost.all():
        raise DataError(f"{source}: no row is finite")
    if lost.any():
        columns["episode_ids"] = np.cumsum(np.isin(rows, data.starts) | np.roll(lost, 1))
        columns = {name: unwrapped({k: c[~lost] for k, c in leaves(v).items()}) for name, v in columns.items()}
        notes.append(f"{lost.sum():,} rows dropped, because values are not finite in {some_rows(np.flatnonzero(lost))}")
    del columns["timeouts"]
    fixed = Dataset.from_dict(columns, provenance={**data.provenance, "repaired": notes})
    if reward is None:
        return fixed
    values = np.asarray(reward(fixed.observations, fixed.actions, fixed.next_observations), np.float32)
    if values.shape != (len(fixed),) or not np.isfinite(values).all():
        raise DataError(f"the reward function gave shape {values.shape}; {len(fixed)} finite numbers are needed")
    notes.append(
        f"rewards given anew: their mean is {values.mean():.6g}, from {values.min():.6g} to {values.max():.6g}"
    )
    return replace(fixed, rewards=values)


def _finite(column: Any) -> Any:
    parts = leaves(column).items()
    return unwrapped({k: np.where(np.isfinite(p), p, 0) if p.dtype.kind == "f" else p for k, p in parts})


def state_after(raw: Mapping[str, Any]) -> Array | None:
    """Next observations from the simulator's state, where a file records it after every step as AntMaze's do.

    D4RL's locomotion files record the state before the step: there it is not what the next row observes.
    """
    if not isinstance(raw, Mapping) or raw.get("next_observations") is not None:
        return None
    obs, *parts = (np.asarray(raw.get(name)) for name in ("observations", *STATE))
    if any(part.ndim != 2 or len(part) != len(obs) for part in (obs, *parts)) or len(obs) < 2:
        return None
    after: Array = np.concatenate(parts, 1)
    return after if after.shape == obs.shape and (after[:-1] == obs[1:]).all(1).mean() > 0.9 else None


def _repaired(data: Columns, measured: bool) -> tuple[Columns, list[str]]:
    """Without next observations that are only shifted, and without time limits that the observations contradict.

    Shifted next observations hide every end without a flag, and every wrong time limit cuts an episode in two. Those
    that were measured (`state_after`) are not a shifted column, however the rows follow each other.
    """
    if data.next_obs is None or data.truncated is None or data.episode is not None or len(data) < 2:
        return data, []
    flagged, ends = (data.truncated | data.terminated)[:-1], discontinuities(data)[:-1]
    if flagged.any() and not ends.any() and not measured:
        text = f"next_observations is observations shifted by one row, also across {flagged.sum()} flagged ends"
        return replace(data, next_obs=None), [f"{text}: not used"]
    wrong = np.flatnonzero(data.truncated[:-1] & ~ends)
    truncated = data.truncated.copy()
    truncated[wrong] = False
    text = f"timeouts is set where the episode continues ({some_rows(wrong)}): taken from the discontinuities instead"
    return replace(data, truncated=truncated), [text] if len(wrong) else []


def find_ends(data: Columns) -> NDArray[np.bool_]:
    """Where episodes end; known starts decide where next observations are missing and terminals may not be ends.

    In D4RL's AntMaze the ant walks on after a terminal. Whether it did shows in the row after: a reset looks like the
    rows that follow the time limits.
    """
    if data.next_obs is None and data.truncated is not None and data.episode is None and set(data.obs) == {""}:
        ends = data.truncated.copy()
        open_terminals = np.flatnonzero(data.terminated[:-1] & ~ends[:-1])
        starts = np.concatenate([[0], np.flatnonzero(ends[:-1]) + 1])
        more = unknown_starts(data.obs[""], starts) if len(open_terminals) else None
        if more is not None:
            ends[np.intersect1d(open_terminals, more - 1)] = True
            ends[-1] = True
            return ends
    return episode_ends(data)


def unknown_starts(obs: Array, known: NDArray[np.integer[Any]]) -> NDArray[np.intp] | None:
    """Rows that look like a start without being known as one, or None where starts cannot be told from other rows.

    Environments start in a small region and hardly ever come back to all of it at once, so known first observations
    tell unknown ones from ordinary steps. They cannot if they are too few, or if an environment starts anywhere: then
    more rows lie in the box around them than there could well be forgotten starts.
    """
    if len(known) < FEWEST or obs.dtype.kind != "f":
        return None
    flat, rows = obs.reshape(len(obs), -1), np.setdiff1d(np.arange(len(obs)), known)
    low, high = flat[known].min(0), flat[known].max(0)
    half = (1.25 + 10.0 / len(known)) * (high - low) / 2 + ROUNDING  # the fewer are known, the less they have spanned
    for column in range(flat.shape[1]):  # a column at a time: no temporary as large as the data
        rows = rows[np.abs(flat[rows, column] - (low[column] + high[column]) / 2) <= half[column]]
    return rows if len(rows) <= MOST_UNFLAGGED * len(known) else None


def some_rows(rows: NDArray[np.integer[Any]]) -> str:
    """The first of some rows, in words.

    >>> some_rows(np.array([7])), some_rows(np.arange(5))
    ('row 7', 'rows 0, 1, 2 and 2 more')
    """
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    return f"row{'s' * (len(rows) > 1)} {', '.join(str(row) for row in rows[:3])}{more}"
