"""Several steps of one episode from every sampled row on: chunks of actions, and sequences for recurrent learners.

The strategy chooses rows as always. What begins at a row stays within its episode: the steps that this has left are
`valid`, and behind them the last valid one is repeated, so that every number is one that was recorded.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Array, Bools, Ints, Obs, map_leaves
from arb.replay.scores import as_numpy
from arb.replay.storage import Batch, Storage, converted

if TYPE_CHECKING:
    from arb.replay.index import ReplayIndex


class ChunkBatch(NamedTuple):
    """Transitions over h steps, as of `sample(n, chunk=h)`: one observation, and h actions from there on.

    Your target is `reward + gamma * mask * value(next_obs)`, as for single steps.
    """

    obs: Obs
    action: Array
    """Of shape (B, h, ...)."""
    reward: NDArray[np.float32]
    """The discounted sum of the rewards of the valid steps."""
    next_obs: Obs
    """The observation after the last valid step."""
    mask: NDArray[np.float32]
    """0 where the task ended within the chunk; gamma^(m - 1) where m valid steps were followed by another state."""
    return_to_go: NDArray[np.float32]
    valid: Bools
    """Of shape (B, h): whether the episode has this step. `valid[:, -1]` marks the whole chunks."""
    extras: dict[str, Array] = {}  # noqa: RUF012
    """Further columns, of shape (B, h, ...)."""

    def to(self, framework: Any, device: Any = None) -> "ChunkBatch":
        """The batch as arrays of a framework, see `Batch.to`."""
        return ChunkBatch(*converted(tuple(self), framework, device))


class SequenceBatch(NamedTuple):
    """Stretches of episodes, as of `sample(n, length=k, burn_in=b)`: every column has the shape (B, b + k, ...).

    The row that the strategy chose is step b. The steps before it are there to warm up the state of a recurrent
    network; learn from the valid ones behind them.
    """

    obs: Obs
    action: Array
    reward: NDArray[np.float32]
    next_obs: Obs
    mask: NDArray[np.float32]
    return_to_go: NDArray[np.float32]
    valid: Bools
    """Whether the episode has this step: False before its start and after its end."""
    start: Bools
    """Where to reset the state of the network: the first step of its episode that the buffer holds."""
    extras: dict[str, Array] = {}  # noqa: RUF012

    def to(self, framework: Any, device: Any = None) -> "SequenceBatch":
        """The batch as arrays of a framework, see `Batch.to`."""
        return SequenceBatch(*converted(tuple(self), framework, device))


@dataclass(frozen=True)
class Hindsight:
    """Goals in hindsight (HER, Andrychowicz et al. 2017): a goal becomes what was reached later in the same episode.

    Observations are dicts with the parts "achieved_goal" and "desired_goal", as Gymnasium-Robotics has them. The new
    goal is where one of the steps from this one on led, each as likely (the strategy "future").

    >>> Hindsight(lambda achieved, goal: -1.0 * (abs(achieved - goal).max(-1) > 0.05)).share
    0.8

    Args:
        reward: the rewards of steps that led to `achieved` under the goals `goal`, both with one row per step; for
            example `lambda achieved, goal: env.unwrapped.compute_reward(achieved, goal, {})`.
        share: of the transitions that get a new goal. Their `return_to_go` is not known, which is -inf.
    """

    reward: Callable[[Array, Array], Any]
    share: float = 0.8

    def relabel(
        self, batch: Batch, rows: Ints, storage: Storage, index: "ReplayIndex", rng: np.random.Generator
    ) -> Batch:
        if not isinstance(batch.obs, dict) or not {"achieved_goal", "desired_goal"} <= batch.obs.keys():
            raise DataError("hindsight needs dict observations with the parts 'achieved_goal' and 'desired_goal'")
        chosen = rng.random(rows.shape) < self.share
        later = storage.gather(future(index, rows[chosen], rng), index, 1, 1.0)
        obs, next_obs, reward, returns = dict(batch.obs), dict(batch.next_obs), batch.reward, batch.return_to_go
        for part in (obs, next_obs):
            part["desired_goal"][chosen] = later.next_obs["achieved_goal"]
        given = self.reward(next_obs["achieved_goal"][chosen], next_obs["desired_goal"][chosen])
        reward[chosen], returns[chosen] = as_numpy(given).reshape(-1), -np.inf
        return batch._replace(obs=obs, next_obs=next_obs, reward=reward, return_to_go=returns)


def future(index: "ReplayIndex", rows: Ints, rng: np.random.Generator) -> Ints:
    """For each row, itself or a later row of its episode, all with the same probability."""
    chosen, here, walking = rows.copy(), rows, np.arange(len(rows))
    for seen in itertools.count(2):
        here = index.next_index[here]
        walking, here = walking[here >= 0], here[here >= 0]
        if len(walking) == 0:
            return chosen
        taken = rng.random(len(walking)) < 1.0 / seen  # the last of so many, kept with this probability
        chosen[walking[taken]] = here[taken]
    raise AssertionError("an episode without an end")


def gather_chunks(storage: Storage, index: "ReplayIndex", rows: Ints, steps: int, gamma: float) -> ChunkBatch:
    path = index.path(rows, steps, storage.columns["terminated"])
    batch = storage.gather(rows, index, steps, gamma)
    every = _filled(path).T
    batch = batch._replace(action=storage.at("action", every))
    return ChunkBatch(*batch[:6], (path >= 0).T, storage.extras_at(every))


def chunk_actions(storage: Storage, index: "ReplayIndex", rows: Ints, steps: int) -> Array:
    """The actions of the chunks that begin in these rows, as `gather_chunks` gives them."""
    return storage.at("action", _filled(index.path(rows, steps, storage.columns["terminated"])).T)


def gather_sequences(
    storage: Storage, index: "ReplayIndex", rows: Ints, length: int, burn_in: int, n_step: int, gamma: float
) -> SequenceBatch:
    path = np.concatenate([index.path(rows, burn_in + 1, back=True)[:0:-1], index.path(rows, length)])
    filled = _filled(path[::-1])[::-1] if burn_in else path
    steps, valid = _filled(filled).T, (path >= 0).T
    batch = storage.gather(steps.reshape(-1), index, n_step, gamma)
    columns: list[Any] = [reshaped(column, steps.shape) for column in batch]
    return SequenceBatch._make([*columns[:6], valid, valid & (index.previous(steps) < 0), columns[6]])


def _filled(path: Ints) -> Ints:
    """A path, one line per step, in which the last row before it replaces every -1."""
    line = np.maximum.accumulate(np.where(path >= 0, np.arange(len(path))[:, None], 0), axis=0)
    return np.take_along_axis(path, line, axis=0)


def reshaped(column: Any, shape: tuple[int, ...]) -> Any:
    """A column, or a dict or tuple of columns, with these leading axes in place of its first."""
    return map_leaves(lambda values: values.reshape((*shape, *values.shape[1:])), column)
