"""From raw columns to a dataset with true borders: the one way every loader takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.files import flattened
from arb.replay.dataset import Recorded, check_dataset, unwrapped
from arb.replay.episodes import episode_ends, jumps

Array = NDArray[Any]
Dataset = dict[str, Any]
"""D4RL's keys to arrays (observations may be a dict of arrays), with `episode_ids`: one number per trajectory."""

FEWEST = 5
"""With fewer known starts their spread says nothing."""
MOST_FORGOTTEN = 2
"""For each start that is known, so many may be unflagged."""
ROUNDING = 1e-6


class DataWarning(UserWarning):
    """Something in a file that was wrong and has been read with care."""


@dataclass(frozen=True)
class Data:
    """A dataset, where it came from, and what had to be repaired to read it."""

    columns: Dataset
    source: str
    notes: tuple[str, ...] = ()
    """One line for every defect that was worked around."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about itself: its environment, how it was made."""

    def __len__(self) -> int:
        return len(self.columns["rewards"])


def finish(raw: Mapping[str, Any], source: str, attributes: Mapping[str, Any] | None = None) -> Data:
    """Check the columns of a file and find where its episodes end, from every row of it.

    `terminals` stay as they are: they say where the task ended. `timeouts` become true at every end of a trajectory
    that no terminal explains, so that the two together with `episode_ids` tell what was cut off from what was over.
    """
    after = state_after(raw)
    try:
        data = check_dataset(raw if after is None else {**raw, "next_observations": after})
    except DataError as problem:
        raise DataError(f"{source}: {problem}") from None
    data, notes = _repaired(data, measured=after is not None)
    ends = episode_ends(_settled(data))
    recorded = np.zeros(len(data), bool) if data.truncated is None else data.truncated
    columns: Dataset = {
        "observations": unwrapped(data.obs),
        "actions": data.action,
        "rewards": data.reward,
        "terminals": data.terminated,
        "timeouts": ends & (recorded | ~data.terminated),
        "episode_ids": np.concatenate([[0], np.cumsum(ends[:-1])]).astype(np.int32),
    }
    if data.next_obs is not None:
        columns["next_observations"] = unwrapped(data.next_obs)
    return Data(columns, source, tuple(notes), dict(attributes or {}))


def state_after(raw: Mapping[str, Any]) -> Array | None:
    """Next observations from the simulator's state, where a file records it after every step as AntMaze's do.

    D4RL's locomotion files record the state before the step: there it is not what the next row observes.
    """
    if not isinstance(raw, Mapping) or raw.get("next_observations") is not None:
        return None
    obs, *parts = (np.asarray(raw.get(name)) for name in ("observations", "infos/qpos", "infos/qvel"))
    if any(part.ndim != 2 for part in (obs, *parts)):
        return None
    if (
        any(len(part) != len(obs) for part in parts)
        or len(obs) < 2
        or sum(part.shape[1] for part in parts) != obs.shape[1]
    ):
        return None
    after: Array = np.concatenate(parts, 1)
    return after if (after[:-1] == obs[1:]).all(1).mean() > 0.9 else None


def _repaired(data: Recorded, measured: bool) -> tuple[Recorded, list[str]]:
    """Without next observations that are only shifted, and without time limits that the observations contradict.

    Next observations that were measured (`state_after`) are no shifted column, however the rows follow each other.
    Taken as they are, shifted ones hide 1,486 of the 1,578 ends in the suite's hopper-mixed, and every false limit cuts
    an episode in two (`python benchmarks/borders.py`).
    """
    notes: list[str] = []
    if data.next_obs is None or data.truncated is None or data.episode is not None or len(data) < 2:
        return data, notes
    flagged = np.flatnonzero((data.truncated | data.terminated)[:-1])
    if len(flagged) == 0:
        return data, notes
    jump = jumps(data)[:-1]
    if not jump.any() and not measured:
        notes.append(
            f"next_observations is observations shifted by one row, also across {len(flagged)} flagged ends: not used"
        )
        return _replace(data, next_obs=None), notes
    wrong = np.flatnonzero(data.truncated[:-1] & ~jump)
    if len(wrong):
        notes.append(f"timeouts is set where the episode goes on ({some_rows(wrong)}): taken from the jumps instead")
        truncated = data.truncated.copy()
        truncated[wrong] = False
        data = _replace(data, truncated=truncated)
    return data, notes


def _settled(data: Recorded) -> Recorded:
    """With episodes that known starts decide, where next observations are missing and terminals may not be ends.

    In D4RL's AntMaze the ant walks on after a terminal. Whether it did shows in the row after: a reset looks like the
    rows that follow the time limits. On the suite's six AntMaze sets this finds all ends and no false one, where the
    buffer's own test, which sees the data one step at a time, leaves 23 (`python benchmarks/borders.py`).
    """
    if data.next_obs is not None or data.truncated is None or data.episode is not None or set(data.obs) != {""}:
        return data
    ends = data.truncated.copy()
    open_terminals = np.flatnonzero(data.terminated[:-1] & ~ends[:-1])
    starts = np.concatenate([[0], np.flatnonzero(ends[:-1]) + 1])
    more = unknown_starts(data.obs[""], starts) if len(open_terminals) else None
    if more is None:
        return data
    ends[np.intersect1d(open_terminals, more - 1)] = True
    return _replace(data, episode=np.concatenate([[0], np.cumsum(ends[:-1])]))


def _replace(data: Recorded, **changes: Any) -> Recorded:
    return Recorded(**{**vars(data), **changes})


def some_rows(rows: NDArray[np.integer[Any]]) -> str:
    """The first of some rows, in words.

    >>> some_rows(np.array([7])), some_rows(np.arange(5))
    ('row 7', 'rows 0, 1, 2 and 2 more')
    """
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    return f"row{'s' * (len(rows) > 1)} {', '.join(str(row) for row in rows[:3])}{more}"


def widening(known: int) -> float:
    """How much wider than the span of the known starts the box is: the fewer there are, the less they have spanned."""
    return 1.25 + 10.0 / known


def unknown_starts(obs: NDArray[Any], known: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Rows that look like a start without being known as one, or None where starts cannot be told from other rows.

    Environments start in a small region (D4RL's: noise of a few thousandths on positions, a tenth on velocities), and
    hardly ever come back to all of it at once. So known first observations tell unknown ones from ordinary steps; in
    nine D4RL-like sets of 1.7 million rows the box around them holds no row but the true starts.

    They cannot if they are too few, or if an environment starts anywhere (a pendulum at any angle): then more rows
    than there could well be forgotten starts lie in the box.
    """
    if len(known) < FEWEST or obs.dtype.kind != "f":
        return None
    rows = np.setdiff1d(np.arange(len(obs)), known)
    rows = rows[_in_box(obs, known, rows)]
    return rows if len(rows) <= MOST_FORGOTTEN * len(known) else None


def _in_box(obs: NDArray[Any], known: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    flat = obs.reshape(len(obs), -1)
    low, high = flat[known].min(0), flat[known].max(0)
    half = widening(len(known)) * (high - low) / 2 + ROUNDING
    inside = np.ones(len(rows), bool)
    for column in range(flat.shape[1]):  # a column at a time: no temporary as large as the data
        inside &= np.abs(flat[rows, column] - (low[column] + high[column]) / 2) <= half[column]
    return inside


def borders(columns: Mapping[str, Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First row of every trajectory, and the row after its last."""
    ids = columns["episode_ids"]
    cuts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
    return np.concatenate([[0], cuts]), np.concatenate([cuts, [len(ids)]])


def episode_returns(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    """The undiscounted raw return of every trajectory."""
    first, _ = borders(columns)
    return np.add.reduceat(np.asarray(columns["rewards"], np.float64), first)


def flat_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Every array under one name; the named parts of observations become `observations/name`."""
    plain = {name: column for name, column in columns.items() if not isinstance(column, Mapping)}
    return plain | flattened({name: column for name, column in columns.items() if name not in plain})


def fingerprint(columns: Mapping[str, Any]) -> str:
    """SHA-256 over names, types, shapes and bytes: the same for the same data, whatever file it came in."""
    digest = sha256()
    for name in sorted(columns):
        parts = columns[name].items() if isinstance(columns[name], Mapping) else [("", columns[name])]
        for key, part in sorted(parts):
            array = np.ascontiguousarray(part)
            digest.update(f"{name}/{key}:{array.dtype.str}{array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()
