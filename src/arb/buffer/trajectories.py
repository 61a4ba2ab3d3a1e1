"""A checked dataset as the trajectories a buffer stores: what of it can be used, and where each of them leads."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array
from arb.buffer.borders import Rule, episode_ends
from arb.buffer.dataset import Leaves, Transitions
from arb.buffer.returns import return_to_go

LONG = 10_000
"""Rows beyond which a dataset that comes to a single trajectory has probably lost its ends."""


class Trajectories(NamedTuple):
    """Whole trajectories, row after row."""

    obs: Leaves
    columns: dict[str, Array]
    """action, reward, terminated and return_to_go of every row."""
    lengths: NDArray[np.int64]
    final: Leaves
    """Per trajectory, the observation its last step led to."""
    dropped: int
    """Last steps of cut-off trajectories that cannot be bootstrapped, as the data does not hold where they led."""

    @property
    def next_obs(self) -> Leaves:
        """Where every row led to: the next row's observation, or the final one of its trajectory."""
        last = np.cumsum(self.lengths) - 1
        led_to = {}
        for key, column in self.obs.items():
            led_to[key] = np.roll(column, -1, axis=0)
            led_to[key][last] = self.final[key]
        return led_to


def usable_trajectories(data: Transitions, rule: Rule, gamma: float, failure_reward: float | None) -> Trajectories:
    """Cut a dataset into trajectories and drop the steps that no algorithm could learn from.

    Without next observations, the last step of a cut-off trajectory leads nowhere; it is dropped, as D4RL's own loader
    does. Its reward still counts in the returns of the steps before, and its observation is where they led.
    """
    ends = episode_ends(data, rule)
    if len(data) > LONG and data.episode is None and np.count_nonzero(ends) == 1:
        warnings.warn(
            f"the dataset's {len(data)} rows are taken for a single trajectory, as nothing in it says where episodes "
            "end: add 'timeouts', 'next_observations' or 'episode_ids' (which, if they are all alike, confirm it)",
            stacklevel=3,
        )
    returns = return_to_go(data.reward, ends | data.terminated, gamma, failure_reward=failure_reward)
    dropped = np.zeros(len(data), bool) if data.next_obs is not None else ends & ~data.terminated
    kept = np.flatnonzero(~dropped) if dropped.any() else slice(None)
    trajectory = np.cumsum(ends, dtype=np.int64) - ends
    lengths = np.bincount(trajectory[kept], minlength=int(trajectory[-1]) + 1)
    last = np.flatnonzero(ends)[lengths > 0]
    led_to = data.obs if data.next_obs is None else data.next_obs
    return Trajectories(
        obs={key: column[kept] for key, column in data.obs.items()},
        columns={
            "action": data.action[kept],
            "reward": data.reward[kept],
            "terminated": data.terminated[kept],
            "return_to_go": returns[kept],
        },
        lengths=lengths[lengths > 0],
        final={key: column[last] for key, column in led_to.items()},
        dropped=int(dropped.sum()),
    )
