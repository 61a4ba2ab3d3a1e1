"""Which rows next: the interface of a sampler, and the two samplers that need nothing but the origin of a row.

A sampler sees the ledger and one number per row, never the columns. That is why the same object serves this project's
buffer and the buffers of other libraries, which keep columns of their own.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.index import Ints, Ledger, State


class Sampler(ABC):
    """Chooses rows. Subclass it and override what your strategy needs, at least `sample_indices` and `probabilities`.

    A sampler never sees observations or rewards. It sees `self.ledger`, which knows of every row who put it there:

    * `ledger.size`: rows in the buffer, numbered 0..size-1; `ledger.capacity`: how many there can be.
    * `ledger.head`: rows ever added. `ledger.sequence(rows)`: when each was added, from 0 on; the newest is head - 1.
    * `ledger.is_online(rows)`: whether each was added online.

    Take all randomness from the generator that is passed in, and keep what decides future draws in `state`.
    `arb.testing.check_sampler` tests a class of your own.

    >>> class NewestHalf(Sampler):
    ...     def sample_indices(self, rng, shape):
    ...         newest = self.ledger.head - 1 - rng.integers(self._rows(), size=shape)
    ...         return newest % self.ledger.capacity
    ...     def probabilities(self):
    ...         age = self.ledger.head - 1 - self.ledger.sequence(np.arange(self.ledger.size))
    ...         return np.where(age < self._rows(), 1.0 / self._rows(), 0.0)
    ...     def _rows(self):
    ...         return (self.ledger.size + 1) // 2
    >>> from arb import ReplayBuffer
    >>> from arb.testing import check_sampler
    >>> check_sampler(NewestHalf)
    >>> buffer = ReplayBuffer(capacity=100, sampler=NewestHalf(), seed=0)
    >>> for step in range(6):
    ...     buffer.add([step], [0.0], reward=step, next_obs=[step + 1], terminated=False)
    >>> rows = buffer.sample_indices((2, 4))              # which rows: two batches of four
    >>> buffer.gather(rows).reward.shape          # what is in them
    (2, 4)
    >>> int(rows.min()), int(rows.max())
    (3, 5)
    """

    needs_scores: bool = False
    """Whether a refresh must score all rows under the current policy and hand the scores to `update_weights`."""
    trainable: bool = False
    """Whether the weights change with every batch: batches are then drawn one at a time, and `train` follows each.

    It must not depend on the agent, which learns from a whole block of batches after all of them were drawn.
    """
    needs_critic: bool = False
    """Whether `update_from_critic` must be called before every block of updates."""
    warm_up: int = 0
    """Online steps that a run collects before its first update."""
    ledger: Ledger

    def bind(self, ledger: Ledger) -> None:
        """Called once, before anything else, with the ledger of the buffer this sampler serves."""
        if getattr(self, "ledger", ledger) is not ledger:
            raise DataError(f"this {type(self).__name__} already serves another buffer: make a new one for each buffer")
        self.ledger = ledger

    def insert(self, rows: Ints) -> None:
        """These rows have just been written; what was in them before is gone."""

    def update_weights(self, scores: NDArray[np.floating[Any]], head: int) -> None:
        """Take the scores that a refresh found, one per row 0..size-1 as they were when `head` was the next to come.

        Rows may have been added since, and some of those scored overwritten.
        """

    @abstractmethod
    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape, drawn with replacement; the last axis is a batch."""

    @abstractmethod
    def probabilities(self) -> NDArray[np.float64]:
        """For every row 0..size-1, the probability of one draw to be that row."""

    def train(self, rows: Ints, gather: Callable[[Ints], Any], rng: np.random.Generator) -> float:  # noqa: ARG002
        """Strategies with `trainable` do so here, after each batch that was drawn; returns their loss.

        `rows` were drawn; `gather` turns rows into transitions, as `ReplayBuffer.gather` does.
        """
        return math.nan

    def update_from_critic(
        self, advantage: Callable[[Ints], NDArray[np.floating[Any]]], rng: np.random.Generator
    ) -> None:
        """Strategies with `needs_critic` look here at Q(s, π(s)) − Q(s, a) of any rows, under the current critics."""

    def metrics(self) -> dict[str, float]:
        """Figures about itself that a strategy adds to the buffer's statistics."""
        return {}

    def __repr__(self) -> str:
        arguments = inspect.signature(type(self)).parameters.values()
        kept = {a.name: (vars(self)[a.name], a.default) for a in arguments if a.name in vars(self)}
        told = [f"{name}={value!r}" for name, (value, default) in kept.items() if value not in (None, default)]
        return f"{type(self).__name__}({', '.join(told)})"

    def state(self) -> State:
        """Everything that decides its future draws, as arrays."""
        return {}

    def restore(self, state: State) -> None:
        """Continue as the sampler whose state this is; the ledger has been restored before."""


class Uniform(Sampler):
    """Uniform over all rows (the paper's Naive)."""

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape."""
        return rng.integers(self.ledger.size, size=shape)

    def probabilities(self) -> NDArray[np.float64]:
        """1 / size for all."""
        return np.full(self.ledger.size, 1.0 / self.ledger.size)


class Mixed(Sampler):
    """A fixed share of every batch from offline rows, the rest from online rows (the paper's Parallel, at one half).

    Counts are exact in every batch, offline rows first. While one of the two has no rows, the other fills the batch.
    """

    def __init__(self, offline_share: float = 0.5):
        if not 0.0 <= offline_share <= 1.0:
            raise DataError(f"offline_share must lie between 0 and 1, got {offline_share}")
        self.offline_share = offline_share

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape; of the n rows along the last axis, floor(n * offline_share) are offline."""
        offline = int(shape[-1] * self._offline_share_now())
        rows = np.empty(shape, np.int64)
        rows[..., :offline] = self._uniform(rng, (*shape[:-1], offline), online=False)
        rows[..., offline:] = self._uniform(rng, (*shape[:-1], shape[-1] - offline), online=True)
        return rows

    def probabilities(self) -> NDArray[np.float64]:
        """The share of each origin, uniform over its rows."""
        online = self.ledger.is_online(np.arange(self.ledger.size))
        share = self._offline_share_now()
        counts = np.maximum([(~online).sum(), online.sum()], 1)
        return np.asarray(np.where(online, (1.0 - share) / counts[1], share / counts[0]))

    def _offline_share_now(self) -> float:
        if len(self.ledger.spans(online=True)[0]) == 0:
            return 1.0
        if len(self.ledger.spans(online=False)[0]) == 0:
            return 0.0
        return self.offline_share

    def _uniform(self, rng: np.random.Generator, shape: tuple[int, ...], *, online: bool) -> Ints:
        start, length = self.ledger.spans(online)
        if 0 in shape:
            return np.zeros(shape, np.int64)
        stop = np.cumsum(length)
        place = rng.integers(stop[-1], size=shape)
        span = np.searchsorted(stop, place, side="right")
        return np.asarray((start[span] + place - (stop - length)[span]) % self.ledger.capacity)
