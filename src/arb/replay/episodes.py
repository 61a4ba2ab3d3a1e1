"""Trajectories cut from checked columns, for those who do not yet take a `Dataset`."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from arb.replay.dataset import Array, Boundaries, Columns, Leaves, discontinuities, episode_ends, return_to_go
from arb.replay.dataset import differs as differs

jumps = discontinuities
_CHUNK = 1 << 16


class Trajectories(NamedTuple):
    """Whole trajectories, row after row, among rows that are not used."""

    obs: Leaves
    columns: dict[str, Array]
    """action, reward, terminated and return_to_go of every row."""
    kept: NDArray[np.bool_] | None
    """The rows that are used; None if all are."""
    lengths: NDArray[np.int64]
    final: Leaves
    """Per trajectory, the observation its last step led to."""
    dropped: int
    """Last steps of cut-off trajectories that cannot be bootstrapped, as the data does not hold where they led."""

    def blocks(self, column: Array) -> Iterator[Array]:
        """The used rows of a column, block by block: a copy of all of them would double the memory of a large one."""
        if self.kept is None:
            yield column
            return
        for start in range(0, len(column), _CHUNK):
            yield column[start : start + _CHUNK][self.kept[start : start + _CHUNK]]

    def cut(self) -> Self:
        """The same without the rows that are not used."""
        if self.kept is None:
            return self
        obs, columns = ({key: c[self.kept] for key, c in part.items()} for part in (self.obs, self.columns))
        return self._replace(obs=obs, columns=columns, kept=None)

    @property
    def next_obs(self) -> Leaves:
        """Where every row of `cut()` led to: the next row's observation, or the final one of its trajectory."""
        last = np.cumsum(self.lengths) - 1
        led_to = {}
        for key, column in self.obs.items():
            led_to[key] = np.roll(column, -1, axis=0)
            led_to[key][last] = self.final[key]
        return led_to


def usable_trajectories(data: Columns, rule: Boundaries, gamma: float, failure_reward: float | None) -> Trajectories:
    """Cut a dataset into trajectories and drop the steps that no algorithm could learn from.

    Without next observations, the last step of a cut-off trajectory leads nowhere; it is dropped, as D4RL's own loader
    does. Its reward still counts in the returns of the steps before, and its observation is where they led.
    """
    ends = episode_ends(data, rule)
    returns = return_to_go(data.reward, ends | data.terminated, gamma, failure_reward=failure_reward)
    dropped = np.zeros(len(data), bool) if data.next_obs is not None else ends & ~data.terminated
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1) - dropped[last]
    last = last[lengths > 0]
    led_to = data.obs if data.next_obs is None else data.next_obs
    return Trajectories(
        obs=data.obs,
        columns={"action": data.action, "reward": data.reward, "terminated": data.terminated, "return_to_go": returns},
        kept=~dropped if dropped.any() else None,
        lengths=lengths[lengths > 0],
        final={key: column[last] for key, column in led_to.items()},
        dropped=int(dropped.sum()),
    )
