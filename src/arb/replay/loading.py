"""A dataset on its way into a buffer: whole trajectories at once, and a name for all that was loaded."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arb.errors import DataError
from arb.replay.dataset import Boundaries, Dataset, as_dataset, leaves, return_to_go
from arb.replay.intake import Intake


class Loaded(NamedTuple):
    """What `ReplayBuffer.load_dataset` took in."""

    rows: int
    trajectories: int
    dropped: int
    """Last steps of cut-off trajectories; the data does not hold where they led, so they cannot be bootstrapped."""


def load_dataset(
    dataset: Dataset | Mapping[str, Any], intake: Intake, boundaries: Boundaries, online: bool, before: str
) -> tuple[Loaded, str]:
    """Append a dataset to the rows and columns of an intake; `before` and the new name are those of what was loaded."""
    data, capacity = as_dataset(dataset, boundaries), intake.rows.ledger.capacity
    known = data.final_observations is not None
    unusable = np.zeros(len(data), bool) if known else data.timeouts
    lengths = data.lengths - unusable[data.ends]
    last = data.ends[lengths > 0]
    lengths = lengths[lengths > 0]
    obs = leaves(data.observations)
    final = leaves(data.final_observations) if known else {key: column[last] for key, column in obs.items()}
    rows = int(lengths.sum())
    if rows > capacity:
        raise DataError(
            f"the dataset has {rows} rows but the buffer a capacity of {capacity}: make the buffer larger "
            "(offline rows plus online steps keeps everything), or load less"
        )
    intake.check_bounds("dataset['actions']", data.actions)
    stop = data.terminals.copy()
    stop[data.ends] = True
    returns = return_to_go(data.rewards, stop, intake.gamma, failure_reward=intake.failure_reward)
    columns = {"reward": data.rewards, "terminated": data.terminals, "return_to_go": returns}
    with intake.rows.lock:
        obs, action, final = intake.storage.fitted(obs, data.actions, final)
        if rows:
            places, slots = intake.rows.extend(lengths, online=online)
            first = int(places[0])
            del places  # as large as a column
            kept = ~unusable if unusable.any() else None
            intake.storage.load(first, obs, {**columns, "action": action}, kept)
            intake.storage.write_final(slots, final)
        intake.offline += 0 if online else rows
        name = hashlib.sha256((before + data.fingerprint).encode()).hexdigest()
        return Loaded(rows, len(lengths), int(unusable.sum())), name
