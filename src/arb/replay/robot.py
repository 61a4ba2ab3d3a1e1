"""The robot's side of a run: limits of actions, and episodes in files. It needs NumPy alone.

A file of a `Recorder` is a saved `Dataset` with a checksum, so one that is half-written or damaged is recognised.
"""

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, check_finite
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset, leaves

MOST_STEPS = 100_000
"""Of one file."""
LARGEST = 1 << 30
"""Bytes of arrays beyond which a file is not one of a recorder."""


def limited(
    action: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    before: ArrayLike | None = None,
    change: ArrayLike = np.inf,
) -> NDArray[Any]:
    """The action within bounds, and within a `change` of the action `before` it, nearest to the one that is asked for.

    >>> limited([0.9, -3.0], low=-1.0, high=1.0, before=[0.0, 0.0], change=0.5)
    array([ 0.5, -0.5])
    """
    wanted = np.asarray(action)
    if before is not None:
        wanted = np.clip(wanted, np.subtract(before, change), np.add(before, change))
    return np.asarray(np.clip(wanted, low, high))


class Recorder:
    """Records what a robot does, for `arb run --collect FOLDER` and `arb run --from RUN --new FILES`.

    >>> recorder = Recorder(version=0)
    >>> recorder.add([0.0, 1.0], [0.5], reward=1.0, next_obs=[0.1, 1.0], terminated=False)
    >>> recorder.add([0.1, 1.0], [0.4], reward=1.0, next_obs=[0.2, 1.0], terminated=True)
    >>> file = recorder.save("episodes")      # doctest: +SKIP

    Args:
        version: of the policy that acts, `policy.version`; -1 if it was another controller.
    """

    def __init__(self, version: int = -1):
        self.version = int(version)
        self._begin()

    def _begin(self) -> None:
        self._steps = ReplayBuffer(MOST_STEPS, autoreset="disabled")
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"

    def __len__(self) -> int:
        return len(self._steps)

    def add(
        self, obs: Any, action: ArrayLike, reward: float, next_obs: Any, terminated: bool, truncated: bool = False
    ) -> None:
        """Add a step, in the robot's own units and with the action that was carried out.

        `terminated` says that the task ended, `truncated` that the episode was cut off. A step that cannot be learned
        from, such as one with a value that is not finite, is a `DataError` and is not added.
        """
        if len(self) == MOST_STEPS:
            raise DataError(f"a file holds at most {MOST_STEPS:,} steps: save the episode now")
        self._steps.add(obs, action, reward, next_obs, terminated, truncated)

    def save(self, folder: str | os.PathLike[str]) -> Path | None:
        """Write the steps to a new file in a folder, whole or not at all; None if there are none.

        An episode that has not ended counts as cut off. The next step begins another one.
        """
        if not len(self):
            return None
        path = Path(folder) / f"episode-{self._name}.npz"
        data = replace(self._steps.to_dataset(), extras={}, provenance={"id": self._name, "version": self.version})
        data.save(path)
        self._begin()
        return path


def read_recorded(path: Path) -> Dataset:
    """What a recorder saved; a file that is not whole, or holds what cannot be learned from, is a `DataError`."""
    data = Dataset.load(path, LARGEST)
    if len(data) > MOST_STEPS or data.final_observations is None:
        raise DataError(f"{path} was not saved by arb.Recorder")
    parts = (*leaves(data.observations).values(), *leaves(data.final_observations).values())
    for column in (*parts, data.actions, data.rewards):
        check_finite(str(path), column)
    return data


def named_episodes(data: Dataset) -> Iterator[tuple[str, Dataset]]:
    """Every episode with a name that follows from what is in it, and from the name its recorder gave it.

    So a copy has the name of its original, and two episodes of a robot that repeats itself have two.
    """
    for episode in data.episodes():
        episode = replace(episode, extras={})
        name = sha256(f"{episode.fingerprint} {data.provenance.get('id', '')}".encode()).hexdigest()
        yield name[:32], episode
