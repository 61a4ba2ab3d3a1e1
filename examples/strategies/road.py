"""ROAD: a bandit chooses the offline share of the batches, rewarded by what the critics say.

    arb run --strategy road:Road                     # in this folder
    arb run --strategy road:Road replay.window=20

docs/rivals.md says where it comes from and which parts are our reading.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import arb

Array = NDArray[Any]

JUDGED = 1024
"""Rows of each origin from which the critics' mean advantage is estimated."""


class Road(arb.Mixed):
    """A bandit chooses the offline share of the batches, rewarded by what the critics say (ROAD).

    Before every block of updates `update_from_critic` is called with the critics' advantage. It rewards the last
    block's share and chooses the next.

    Args:
        shares: the offline shares to choose from.
        window: choices that are remembered.
        exploration: c, the weight of what is uncertain.
    """

    needs_critic = True
    metric_names = ("offline_share", "bandit_reward")

    def __init__(
        self, shares: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9), window: int = 50, exploration: float = 1.0
    ):
        if not shares or not all(0.0 <= share <= 1.0 for share in shares):
            raise arb.DataError(f"shares must lie between 0 and 1, got {shares}")
        if not (window >= len(shares) and exploration >= 0.0):
            raise arb.DataError(f"window must hold {len(shares)} choices or more, and exploration must not be negative")
        super().__init__(0.5)
        self.shares, self.window, self.exploration = tuple(shares), window, exploration
        self._choices, self._rewards = np.zeros(0, np.int64), np.zeros(0)
        self._chosen = -1

    def update_from_critic(self, advantage: Callable[[Array], Array], rng: np.random.Generator) -> None:
        """Reward the share that was used, and choose the next one."""
        if any(len(self.index.spans(online=origin)[0]) == 0 for origin in (False, True)):
            return
        if self._chosen >= 0:
            offline, online = (advantage(self.uniform(rng, (JUDGED,), online=origin)) for origin in (False, True))
            self._choices = np.append(self._choices, self._chosen)[-self.window :]
            self._rewards = np.append(self._rewards, offline.mean() - online.mean())[-self.window :]
        self._chosen = best_arm(self._choices, self._rewards, len(self.shares), self.exploration)
        self.offline_share = self.shares[self._chosen]

    def metrics(self) -> dict[str, float]:
        """The share of a batch that is offline, and the last reward."""
        last = float(self._rewards[-1]) if len(self._rewards) else math.nan
        return {"offline_share": self.offline_share, "bandit_reward": last}

    def state(self) -> dict[str, Array]:
        """What is remembered, and the choice that holds."""
        return {"choices": self._choices, "rewards": self._rewards, "chosen": np.array(self._chosen)}

    def restore(self, state: dict[str, Array]) -> None:
        """Continue with these choices."""
        self._choices, self._rewards, self._chosen = state["choices"], state["rewards"], int(state["chosen"])
        self.offline_share = self.shares[self._chosen] if self._chosen >= 0 else 0.5


def best_arm(choices: Array, rewards: Array, arms: int, exploration: float) -> int:
    """Sliding-window UCB: the arm with the largest mean reward plus √(c · log(t) / times chosen), all in the window.

    Rewards are measured in their standard deviations over the window, so that c does not depend on the scale of the
    critics. An arm that is not in the window comes first.

    >>> best_arm(np.array([0, 1, 1]), np.array([5.0, 1.0, 2.0]), arms=2, exploration=1.0)
    0
    >>> best_arm(np.array([0, 0]), np.array([5.0, 1.0]), arms=3, exploration=1.0)
    1
    """
    times = np.bincount(choices, minlength=arms)
    if (times == 0).any():
        return int(np.argmin(times > 0))
    mean = np.bincount(choices, weights=rewards, minlength=arms) / times
    scale = float(rewards.std()) or 1.0
    return int(np.argmax(mean / scale + np.sqrt(exploration * math.log(len(choices)) / times)))
