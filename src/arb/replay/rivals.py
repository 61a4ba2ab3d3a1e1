"""Replay strategies from the literature, one small sampler each.

docs/rivals.md says where each comes from and which parts are our reading.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.index import Ints, State
from arb.replay.samplers import Mixed, Sampler

JUDGED = 1024
"""Rows of each origin from which ROAD estimates the critics' mean advantage."""


class Annealed(Mixed):
    """The offline share of a batch falls linearly to zero (TorchRL's `OfflineToOnlineReplayBuffer.anneal`).

    >>> Annealed(online_steps=100_000)
    Annealed(online_steps=100000)

    Args:
        online_steps: after so many, no offline row is drawn any more; in a run, all of its online steps.
        first_share: offline share of a batch at the first online step.
    """

    figures = ("offline_share",)

    def __init__(self, online_steps: int, first_share: float = 0.5):
        if not online_steps >= 1:
            raise DataError(f"online_steps must be at least 1, got {online_steps}")
        super().__init__(first_share)
        self.online_steps, self.first_share = online_steps, first_share
        self._online = 0

    def insert(self, rows: Ints) -> None:
        """Count online steps."""
        self._online += int(self.ledger.is_online(rows).sum())
        self.offline_share = annealed_share(self.first_share, self._online, self.online_steps)

    def metrics(self) -> dict[str, float]:
        """The share of a batch that is offline."""
        return {"offline_share": self.offline_share}

    def state(self) -> State:
        """The online steps so far."""
        return {"online": np.array(self._online)}

    def restore(self, state: State) -> None:
        """Continue after so many online steps."""
        self._online = int(state["online"])
        self.offline_share = annealed_share(self.first_share, self._online, self.online_steps)


def annealed_share(first: float, step: int, steps: int) -> float:
    """A share that falls from `first` to 0 in a straight line.

    >>> [annealed_share(0.5, step, steps=100) for step in (0, 50, 100, 900)]
    [0.5, 0.25, 0.0, 0.0]
    """
    return first * max(0.0, 1.0 - step / steps)


class WarmStart(Mixed):
    """Online rows alone; a run collects with the pre-trained policy before the first update (WSRL).

    While there is no online row, offline rows fill the batch.

    >>> WarmStart().warm_up
    5000

    Args:
        warm_up: online steps before the first update.
    """

    def __init__(self, warm_up: int = 5000):
        if not warm_up >= 0:
            raise DataError(f"warm_up must be at least 0 steps, got {warm_up}")
        super().__init__(0.0)
        self.warm_up = warm_up


class Recent(Sampler):
    """A row's probability falls geometrically with its age, down to the oldest row (Truncated Geometric replay).

    >>> Recent(half_life=1000)
    Recent(half_life=1000)

    Args:
        half_life: age at which a row is half as likely as the newest one; a share of the rows up to 1, rows above.
    """

    def __init__(self, half_life: float = 0.25):
        if not 0.0 < half_life < math.inf:
            raise DataError(f"half_life must be a share of the rows or a number of rows, got {half_life}")
        self.half_life = half_life

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape, by the inverse of the distribution function of the age."""
        size, rate = self.ledger.size, self._rate()
        age = np.log1p(rng.random(shape) * math.expm1(-rate * size)) / -rate
        newest = self.ledger.head - 1
        return np.asarray((newest - np.minimum(age.astype(np.int64), size - 1)) % self.ledger.capacity)

    def probabilities(self) -> NDArray[np.float64]:
        """exp(-rate · age), normalised."""
        age = self.ledger.head - 1 - self.ledger.sequence(np.arange(self.ledger.size))
        weight = np.exp(-self._rate() * age)
        return np.asarray(weight / weight.sum())

    def _rate(self) -> float:
        """How fast the logarithm of the probability falls, per row."""
        size = self.ledger.size
        half_life = self.half_life * size if self.half_life <= 1.0 else self.half_life
        return math.log(2.0) / half_life


class Road(Mixed):
    """A bandit chooses the offline share of the batches, rewarded by what the critics say (ROAD).

    Before every block of updates `update_from_critic` is called with the critics' advantage. It rewards the last
    block's share and chooses the next.

    Args:
        shares: the offline shares to choose from.
        window: choices that are remembered.
        exploration: c, the weight of what is uncertain.
    """

    needs_critic = True
    figures = ("offline_share", "bandit_reward")

    def __init__(
        self, shares: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9), window: int = 50, exploration: float = 1.0
    ):
        if not shares or not all(0.0 <= share <= 1.0 for share in shares):
            raise DataError(f"shares must lie between 0 and 1, got {shares}")
        if not (window >= len(shares) and exploration >= 0.0):
            raise DataError(f"window must hold {len(shares)} choices or more, and exploration must not be negative")
        super().__init__(0.5)
        self.shares, self.window, self.exploration = tuple(shares), window, exploration
        self._choices, self._rewards = np.zeros(0, np.int64), np.zeros(0)
        self._chosen = -1

    def update_from_critic(
        self, advantage: Callable[[Ints], NDArray[np.floating[Any]]], rng: np.random.Generator
    ) -> None:
        """Reward the share that was used, and choose the next one."""
        if any(len(self.ledger.spans(online=origin)[0]) == 0 for origin in (False, True)):
            return
        if self._chosen >= 0:
            offline, online = (advantage(self._uniform(rng, (JUDGED,), online=origin)) for origin in (False, True))
            self._choices = np.append(self._choices, self._chosen)[-self.window :]
            self._rewards = np.append(self._rewards, offline.mean() - online.mean())[-self.window :]
        self._chosen = best_arm(self._choices, self._rewards, len(self.shares), self.exploration)
        self.offline_share = self.shares[self._chosen]

    def metrics(self) -> dict[str, float]:
        """The share of a batch that is offline, and the last reward."""
        last = float(self._rewards[-1]) if len(self._rewards) else math.nan
        return {"offline_share": self.offline_share, "bandit_reward": last}

    def state(self) -> State:
        """What is remembered, and the choice that holds."""
        return {"choices": self._choices, "rewards": self._rewards, "chosen": np.array(self._chosen)}

    def restore(self, state: State) -> None:
        """Continue with these choices."""
        self._choices, self._rewards, self._chosen = state["choices"], state["rewards"], int(state["chosen"])
        self.offline_share = self.shares[self._chosen] if self._chosen >= 0 else 0.5


def best_arm(choices: Ints, rewards: NDArray[np.float64], arms: int, exploration: float) -> int:
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
