"""Monte-Carlo returns, for all episodes of a column of rewards at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array


def return_to_go(
    reward: Array,
    stop: NDArray[np.bool_],
    gamma: float,
    *,
    failure_reward: float | None = None,
) -> NDArray[np.float64]:
    """Discounted sum of rewards from each step to the end of its episode.

    `stop[i]` says that nothing after row i counts for it: the task ended there, or the episode was cut off. A cut-off
    episode is not bootstrapped: its return is what was seen.

    `failure_reward` is for tasks with sparse rewards, where an episode that was cut off would look better than it is
    because it was short: an episode in which *every* reward has that value is taken to fail forever, so its return is
    failure_reward / (1 - gamma) (the rule of Cal-QL's authors).

    The recursion G[i] = r[i] + gamma * G[i + 1] is composed with itself over distances 1, 2, 4, ..., so a million rows
    cost about ten passes instead of a loop.

    >>> return_to_go(np.array([1.0, 1.0, 1.0, 5.0]), np.array([False, False, True, True]), gamma=0.5)
    array([1.75, 1.5 , 1.  , 5.  ])
    """
    total = np.asarray(reward, np.float64).copy()
    factor = np.where(stop, 0.0, gamma)
    factor[-1:] = 0.0
    distance = 1
    while distance < len(total) and factor.any():
        total[:-distance] += factor[:-distance] * total[distance:]
        factor[:-distance] *= factor[distance:]
        distance *= 2
    if failure_reward is not None:
        if gamma >= 1.0:
            raise ValueError("failure_reward needs gamma < 1: failing forever has no finite return otherwise")
        episode = np.concatenate([[0], np.cumsum(stop[:-1])]) if len(total) else np.zeros(0, np.int64)
        succeeded = np.bincount(episode, weights=np.asarray(reward) != failure_reward) > 0
        total[~succeeded[episode]] = failure_reward / (1.0 - gamma)
    return total
