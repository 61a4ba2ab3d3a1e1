"""Which rows next: the interface of a sampler, and the samplers that need nothing but the origin or age of a row.

A sampler sees the index of the rows and one number per row, never the columns. That is why the same object serves this
project's buffer and the buffers of other libraries, which keep columns of their own.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError
from arb.replay.dataset import Ints

if TYPE_CHECKING:
    from arb.replay.index import ReplayIndex

State = dict[str, NDArray[Any]]


class Sampler(ABC):
    """Chooses rows. Subclass it and override what your strategy needs, at least `sample_indices` and `probabilities`.

    A sampler never sees observations or rewards. It sees `self.index`, which knows the origin of every row:

    * `index.size`: rows in the buffer, numbered 0..size-1; `index.capacity`: how many there can be.
    * `index.num_added`: rows ever added. `index.insertion_order(rows)`: when each was added, from 0 on; the newest is
      num_added - 1.
    * `index.is_online(rows)`: whether each was added online.

    Take all randomness from the generator that is passed in, and keep what decides future samples in `state`.
    `arb.testing.check_sampler` tests a class of your own.

    >>> class NewestHalf(Sampler):
    ...     def sample_indices(self, rng, shape):
    ...         newest = self.index.num_added - 1 - rng.integers(self._rows(), size=shape)
    ...         return newest % self.index.capacity
    ...     def probabilities(self):
    ...         age = self.index.num_added - 1 - self.index.insertion_order(np.arange(self.index.size))
    ...         return np.where(age < self._rows(), 1.0 / self._rows(), 0.0)
    ...     def _rows(self):
    ...         return (self.index.size + 1) // 2
    >>> from arb.testing import check_sampler
    >>> check_sampler(NewestHalf)
    """

    needs_scores: bool = False
    """Whether a refresh must score all rows under the current policy and pass the scores to `update_weights`."""
    trainable: bool = False
    """Whether the weights change with every batch: batches are then drawn one at a time, and `train` follows each."""
    needs_critic: bool = False
    """Whether `update_from_critic` must be called before every block of updates."""
    warm_up: int = 0
    """Online steps that a run collects before its first update."""
    metric_names: tuple[str, ...] = ()
    """What `metrics` reports beyond the metrics of every strategy, for the tables of a run."""
    index: "ReplayIndex"

    def bind(self, index: "ReplayIndex") -> None:
        """Called once, before anything else, with the index of the buffer this sampler serves."""
        if getattr(self, "index", index) is not index:
            raise DataError(f"this {type(self).__name__} already serves another buffer: make a new one for each buffer")
        self.index = index

    def insert(self, rows: Ints) -> None:
        """These rows have just been written; what was in them before is gone."""

    def update_weights(self, scores: NDArray[np.floating[Any]], num_added: int) -> None:
        """Take the scores of a refresh, one per row 0..size-1 as they were when `num_added` rows had been added."""

    @abstractmethod
    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape, drawn with replacement; the last axis is a batch."""

    @abstractmethod
    def probabilities(self) -> NDArray[np.float64]:
        """For every row 0..size-1, the probability of being the next one sampled."""

    def train(self, rows: Ints, gather: Callable[[Ints], Any], rng: np.random.Generator) -> float:  # noqa: ARG002
        """With `trainable`: learn from the rows just sampled, which `gather` turns into a `Batch`; return the loss."""
        return math.nan

    def update_from_critic(
        self, advantage: Callable[[Ints], NDArray[np.floating[Any]]], rng: np.random.Generator
    ) -> None:
        """With `needs_critic`: look at Q(s, π(s)) − Q(s, a) of any rows, under the current critics."""

    def metrics(self) -> dict[str, float]:
        return {}

    def __repr__(self) -> str:
        arguments = inspect.signature(type(self)).parameters.values()
        kept = {a.name: (vars(self)[a.name], a.default) for a in arguments if a.name in vars(self)}
        shown = [f"{name}={value!r}" for name, (value, default) in kept.items() if value not in (None, default)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def state(self) -> State:
        """Everything that decides its future samples, as arrays."""
        return {}

    def restore(self, state: State) -> None:
        """Continue as the sampler whose state this is; the index has been restored before."""


class Uniform(Sampler):
    """Uniform over all rows (the paper's Naive)."""

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        return rng.integers(self.index.size, size=shape)

    def probabilities(self) -> NDArray[np.float64]:
        return np.full(self.index.size, 1.0 / self.index.size)


class Mixed(Sampler):
    """A fixed share of every batch from offline rows, the rest from online rows: the paper's Parallel at one half.

    Counts are exact, offline rows come first, and while one of the two has no rows, the other fills the batch.
    """

    def __init__(self, offline_share: float = 0.5):
        if not 0.0 <= offline_share <= 1.0:
            raise DataError(f"offline_share must lie between 0 and 1, got {offline_share}")
        self.offline_share = offline_share

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        offline = round(shape[-1] * self._offline_share_now())
        rows = np.empty(shape, np.int64)
        rows[..., :offline] = self.uniform(rng, (*shape[:-1], offline), online=False)
        rows[..., offline:] = self.uniform(rng, (*shape[:-1], shape[-1] - offline), online=True)
        return rows

    def probabilities(self) -> NDArray[np.float64]:
        online = self.index.is_online(np.arange(self.index.size))
        share = self._offline_share_now()
        counts = np.maximum([(~online).sum(), online.sum()], 1)
        return np.asarray(np.where(online, (1.0 - share) / counts[1], share / counts[0]))

    def _offline_share_now(self) -> float:
        if len(self.index.spans(online=True)[0]) == 0:
            return 1.0
        if len(self.index.spans(online=False)[0]) == 0:
            return 0.0
        return self.offline_share

    def uniform(self, rng: np.random.Generator, shape: tuple[int, ...], *, online: bool) -> Ints:
        """Uniform samples of the rows with this origin."""
        start, length = self.index.spans(online)
        if 0 in shape:
            return np.zeros(shape, np.int64)
        stop = np.cumsum(length)
        place = rng.integers(stop[-1], size=shape)
        span = np.searchsorted(stop, place, side="right")
        return np.asarray((start[span] + place - (stop - length)[span]) % self.index.capacity)


class Annealed(Mixed):
    """The offline share of a batch falls linearly to zero (TorchRL's `OfflineToOnlineReplayBuffer.anneal`).

    Args:
        online_steps: after so many, no offline row is sampled any more; in a run, all of its online steps.
        first_share: offline share of a batch at the first online step.
    """

    metric_names = ("offline_share",)

    def __init__(self, online_steps: int, first_share: float = 0.5):
        if not online_steps >= 1:
            raise DataError(f"online_steps must be at least 1, got {online_steps}")
        super().__init__(first_share)
        self.online_steps, self.first_share = online_steps, first_share
        self._online = 0

    def insert(self, rows: Ints) -> None:
        self._step_to(self._online + int(self.index.is_online(rows).sum()))

    def _step_to(self, online: int) -> None:
        self._online = online
        self.offline_share = self.first_share * max(0.0, 1.0 - online / self.online_steps)

    def metrics(self) -> dict[str, float]:
        return {"offline_share": self.offline_share}

    def state(self) -> State:
        return {"online": np.array(self._online)}

    def restore(self, state: State) -> None:
        self._step_to(int(state["online"]))


class Recent(Sampler):
    """A row's probability falls geometrically with its age, down to the oldest row (Truncated Geometric replay).

    Args:
        half_life: age at which a row is half as likely as the newest one; a share of the rows up to 1, rows above.
    """

    def __init__(self, half_life: float = 0.25):
        if not 0.0 < half_life < math.inf:
            raise DataError(f"half_life must be a share of the rows or a number of rows, got {half_life}")
        self.half_life = half_life

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        size, rate = self.index.size, self._rate()
        age = np.log1p(rng.random(shape) * math.expm1(-rate * size)) / -rate
        newest = self.index.num_added - 1
        return np.asarray((newest - np.minimum(age.astype(np.int64), size - 1)) % self.index.capacity)

    def probabilities(self) -> NDArray[np.float64]:
        age = self.index.num_added - 1 - self.index.insertion_order(np.arange(self.index.size))
        weight = np.exp(-self._rate() * age)
        return np.asarray(weight / weight.sum())

    def _rate(self) -> float:
        size = self.index.size
        return math.log(2.0) / (self.half_life * size if self.half_life <= 1.0 else self.half_life)


class SumTree:
    """A binary tree of sums over `capacity` weights, all zero at first: for priorities that change row by row (BERB).

    A changed weight rewrites its ancestors as the sum of their two children, never by adding a difference, so no
    rounding error builds up. A draw never enters a child of weight zero, whatever the rounding.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._leaves = 1 << (capacity - 1).bit_length()
        self._node = np.zeros(2 * self._leaves)  # node 1 is the root; the children of i are 2i and 2i + 1

    @property
    def total(self) -> float:
        return float(self._node[1])

    def get(self, rows: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(self._node[self._leaves + np.asarray(rows)])

    def set(self, rows: ArrayLike, weights: ArrayLike) -> None:
        """Give these rows these weights; of a row named twice, the last weight counts."""
        node = self._leaves + np.atleast_1d(np.asarray(rows))
        weight = np.asarray(weights, np.float64)
        if not (np.isfinite(weight) & (weight >= 0.0)).all():
            raise DataError("weights must be finite and not negative")
        self._node[node] = weight
        while node.size and node.flat[0] > 1:
            node = np.unique(node >> 1)
            self._node[node] = self._node[2 * node] + self._node[2 * node + 1]

    def sample(self, rng: np.random.Generator, n: int, *, stratified: bool = False) -> NDArray[np.int64]:
        """n rows in proportion to their weights, with replacement; `stratified` draws one in each n-th of the total."""
        if self.total <= 0.0:
            raise DataError("all weights are zero: nothing can be drawn")
        place = (np.arange(n) + rng.random(n)) / n if stratified else rng.random(n)
        place = place * self.total
        node = np.ones(n, np.int64)
        while node.size and node[0] < self._leaves:
            left, right = self._node[2 * node], self._node[2 * node + 1]
            go_right = ((place >= left) & (right > 0.0)) | (left == 0.0)
            place = np.where(go_right, place - left, place)
            node = 2 * node + go_right
        return node - self._leaves

    def state(self) -> NDArray[np.float64]:
        return self._node[self._leaves : self._leaves + self.capacity].copy()

    def restore(self, weights: NDArray[np.float64]) -> None:
        self.set(np.arange(self.capacity), weights)


# ---- metrics of a distribution ---------------------------------------------------------------------------------------
def effective_sample_size(p: NDArray[np.float64]) -> float:
    """1 / Σp²: how many rows a uniform distribution of the same concentration would have."""
    return float(1.0 / np.square(p).sum())


def relative_entropy(p: NDArray[np.float64]) -> float:
    """Entropy as a share of that of a uniform distribution: 1 if sampling is uniform, 0 if one row has all."""
    if len(p) == 1:
        return 1.0
    positive = p[p > 0.0]
    terms = np.log(positive)
    terms *= positive
    return float(-terms.sum() / np.log(len(p)))


def top_mass(mass: NDArray[np.float64], share: float = 0.01) -> float:
    """The part of the total that the heaviest `share` of the entries (at least one) hold."""
    n = max(1, round(share * len(mass)))
    return float(np.partition(mass, len(mass) - n)[len(mass) - n :].sum() / mass.sum())


def describe(p: NDArray[np.float64], index: "ReplayIndex") -> dict[str, float]:
    rows = np.arange(index.size)
    online, episode = index.is_online(rows), index.episode_ids[: index.size]
    mass = np.bincount(episode, weights=p, minlength=index.num_ids).astype(np.float64)
    mass = mass[np.bincount(episode, minlength=index.num_ids) > 0]
    size = effective_sample_size(p)
    return {
        "rows": float(index.size),
        "trajectories": float(len(mass)),
        "online_rows": float(online.mean()),
        "online_share": float(p[online].sum()),
        "effective_rows": size,
        "effective_share": size / index.size,
        "entropy": relative_entropy(p),
        "top_trajectories": top_mass(mass),
        "age": float(p @ (index.num_added - 1 - index.insertion_order(rows))),
    }
