"""A dataset on its way into a buffer: whole trajectories at once, and a name for all that was loaded."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arb.errors import DataError
from arb.replay.dataset import check_dataset
from arb.replay.episodes import Rule, Trajectories, usable_trajectories
from arb.replay.intake import Intake


class Loaded(NamedTuple):
    """What `ReplayBuffer.load` took in."""

    rows: int
    trajectories: int
    dropped: int
    """Last steps of cut-off trajectories; the data does not hold where they led, so they cannot be bootstrapped."""


def load_dataset(
    dataset: Mapping[str, Any], intake: Intake, borders: Rule, online: bool, before: str
) -> tuple[Loaded, str]:
    """Append a dataset to the rows and columns of an intake; `before` and the new name are those of what was loaded."""
    data, capacity = check_dataset(dataset), intake.rows.ledger.capacity
    past = usable_trajectories(data, borders, intake.gamma, intake.failure_reward)
    rows = int(past.lengths.sum())
    if rows > capacity:
        raise DataError(
            f"the dataset has {rows} rows but the buffer a capacity of {capacity}: make the buffer larger "
            "(offline rows plus online steps keeps everything), or load less"
        )
    intake.refuse_out_of_bounds("dataset['actions']", data.action)
    with intake.rows.lock:
        obs, action, final = intake.storage.fitted(past.obs, past.columns["action"], past.final)
        if rows:
            places, slots = intake.rows.extend(past.lengths, online=online)
            first = int(places[0])
            del places  # as large as a column
            intake.storage.load(first, obs, {**past.columns, "action": action}, past.blocks)
            intake.storage.write_final(slots, final)
        intake.offline += 0 if online else rows
        return Loaded(rows, len(past.lengths), past.dropped), _fingerprint(before, past)


def _fingerprint(before: str, past: Trajectories) -> str:
    """A name for the datasets loaded so far: equal data, in equal order, has equal names."""
    digest = hashlib.sha256(before.encode())
    digest.update(past.lengths.data)
    for column in (*past.obs.values(), *past.columns.values()):
        for block in past.blocks(column):
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
