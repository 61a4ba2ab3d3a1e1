"""Several steps of one episode from every sampled row on: chunks of actions, and sequences for recurrent learners.

The strategy chooses rows as always. What begins at a row stays within its episode: the steps that this has left are
`valid`, and behind them the last valid one is repeated, so that every number is one that was recorded.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.replay.dataset import Array, Bools, Ints, Obs
from arb.replay.storage import Storage

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
    """A column, or a dict of columns, with these leading axes in place of its first."""
    if isinstance(column, dict):
        return {key: reshaped(values, shape) for key, values in column.items()}
    return column.reshape((*shape, *column.shape[1:]))
