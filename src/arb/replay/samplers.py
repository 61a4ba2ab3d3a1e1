"""Which rows next: the interface of a sampler, and the samplers that need nothing but the origin or age of a row.

A sampler sees the index of the rows and one number per row, never the columns. That is why the same object serves this
project's buffer and the buffers of other libraries, which keep columns of their own.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
    NewestHalf: all checks passed
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
    beta: float = 1.0
    """How much of the preference for some rows `sample(n, weights=True)` undoes: 1 is all of it, 0 nothing."""
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

    def probabilities_of(self, rows: Ints) -> NDArray[np.float64]:
        """The probabilities of some rows, for importance weights."""
        return self.probabilities()[rows]

    def update_priorities(self, rows: Ints, errors: NDArray[Any]) -> None:  # noqa: ARG002
        """The TD errors of these rows under the current critics."""
        raise DataError(f"{type(self).__name__} has no priorities: make the buffer with arb.Prioritized()")

    def renumber(self, rows: Ints) -> None:
        """Of all rows, these are left, as the rows 0, 1, ...; the others were removed."""

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
    """A fixed share of every batch from each origin: the paper's Parallel at one half.

    `offline_share` is that of rows that are not online; or the share of each origin, by its name in
    `load_dataset(dataset, origin=name)`. Rows of origins that are not named are not sampled. Counts are exact to a row,
    rows of one origin lie side by side, and what an origin without rows lacks comes from the others in proportion.

    >>> Mixed({"offline": 0.25, "demos": 0.25, "online": 0.5})
    Mixed(offline_share={'offline': 0.25, 'demos': 0.25, 'online': 0.5})
    """

    def __init__(self, offline_share: float | Mapping[str, float] = 0.5):
        if isinstance(offline_share, Mapping):
            shares = list(offline_share.values())
            if not shares or min(shares) < 0.0 or abs(sum(shares) - 1.0) > 1e-6:
                raise DataError(f"the shares of all origins must not be negative and add up to 1, got {offline_share}")
        elif not 0.0 <= offline_share <= 1.0:
            raise DataError(f"offline_share must lie between 0 and 1, got {offline_share}")
        self.offline_share: Any = offline_share

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        rows, size, first, share = np.empty(shape, np.int64), shape[-1], 0, 0.0
        origins = self._origins_now()
        for number, (own, spans) in enumerate(origins, 1):
            share += own
            last = size if number == len(origins) else round(size * share)
            rows[..., first:last] = self._uniform(rng, (*shape[:-1], last - first), spans)
            first = last
        return rows

    def probabilities(self) -> NDArray[np.float64]:
        p = np.zeros(self.index.size)
        for share, (starts, lengths) in self._origins_now():
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                p[self.index.rows_between(start, start + length)] = share / lengths.sum()
        return p

    def _origins_now(self) -> list[tuple[float, tuple[Ints, Ints]]]:
        """The share and the stretches of every origin that has rows."""
        if isinstance(self.offline_share, Mapping):
            named = [(share, self.index.spans(origin=name)) for name, share in self.offline_share.items()]
        else:
            shares = (self.offline_share, 1.0 - self.offline_share)
            named = [(share, self.index.spans(online)) for share, online in zip(shares, (False, True), strict=True)]
        found = [(share, spans) for share, spans in named if len(spans[0])]
        if not found:
            raise DataError(f"no row has an origin of {self!r}: the buffer holds {', '.join(self.index.origins)}")
        total = sum(share for share, _ in found) if len(found) < len(named) else 1.0
        return [(share / total if total else 1.0 / len(found), spans) for share, spans in found]

    def uniform(self, rng: np.random.Generator, shape: tuple[int, ...], *, online: bool) -> Ints:
        """Uniform samples of the rows that are online, or not."""
        return self._uniform(rng, shape, self.index.spans(online))

    def _uniform(self, rng: np.random.Generator, shape: tuple[int, ...], spans: tuple[Ints, Ints]) -> Ints:
        start, length = spans
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
        """Give the first rows these weights, and the others none."""
        self._node[:] = 0.0
        self.set(np.arange(len(weights)), weights)


class Prioritized(Sampler):
    """Rows in proportion to |TD error|^alpha (Schaul et al., 2016); new rows get the largest priority so far.

    >>> from arb import ReplayBuffer
    >>> buffer = ReplayBuffer(100, Prioritized(), seed=0)
    >>> for t in range(3):
    ...     buffer.add([t], [0.0], 1.0, [t + 1], terminated=t == 2)
    >>> batch = buffer.sample(256, weights=True)
    >>> rows, weights = batch.extras["rows"], batch.extras["weights"]    # multiply the loss by the weights
    >>> buffer.update_priorities(rows, batch.reward - 1.0)               # your TD errors
    >>> round(buffer.stats()["entropy"], 6)
    1.0

    Args:
        alpha: how much the errors matter; 0 samples uniformly.
        beta: how much of it the importance weights undo. Schaul et al. raise it to 1 during training: set
            `buffer.sampler.beta`.
        epsilon: added to every error, so that none has a priority of zero.
    """

    def __init__(self, alpha: float = 0.6, beta: float = 0.4, epsilon: float = 1e-6):
        if not (alpha >= 0.0 and 0.0 <= beta <= 1.0 and epsilon > 0.0):
            found = f"got alpha={alpha}, beta={beta}, epsilon={epsilon}"
            raise DataError(f"Prioritized needs alpha from 0 on, beta from 0 to 1 and epsilon above 0, {found}")
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        self._largest = 1.0

    def bind(self, index: "ReplayIndex") -> None:
        super().bind(index)
        self._tree = SumTree(index.capacity)

    def insert(self, rows: Ints) -> None:
        self._tree.set(rows, np.full(len(rows), self._largest))

    def update_priorities(self, rows: Ints, errors: NDArray[Any]) -> None:
        priority = (np.abs(errors, dtype=np.float64) + self.epsilon) ** self.alpha
        self._tree.set(rows.reshape(-1), priority.reshape(-1))
        self._largest = max(self._largest, float(priority.max(initial=0.0)))

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        return self._tree.sample(rng, math.prod(shape)).reshape(shape)

    def probabilities(self) -> NDArray[np.float64]:
        return self.probabilities_of(np.arange(self.index.size))

    def probabilities_of(self, rows: Ints) -> NDArray[np.float64]:
        return self._tree.get(rows) / self._tree.total

    def renumber(self, rows: Ints) -> None:
        self._tree.restore(self._tree.get(rows))

    def __repr__(self) -> str:
        return f"Prioritized(alpha={self.alpha}, epsilon={self.epsilon})"  # beta may change during training

    def state(self) -> State:
        return {"tree": self._tree.get(np.arange(self.index.size)), "largest": np.array(self._largest)}

    def restore(self, state: State) -> None:
        self._tree.restore(state["tree"])
        self._largest = float(state["largest"])


def importance_weights(p: NDArray[np.float64], rows: int, beta: float) -> NDArray[np.float64]:
    """(rows · p)^-beta, divided by the largest of each batch, which is the last axis.

    >>> importance_weights(np.array([0.5, 0.125]), rows=2, beta=0.5)
    array([0.5, 1. ])
    """
    weight = (rows * p) ** -beta
    return np.asarray(weight / weight.max(axis=-1, keepdims=True, initial=0.0))


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
    size, named = effective_sample_size(p), {}
    if len(index.origins) > 2:
        origin = index.origin(rows)
        for code, name in enumerate(index.origins):
            named[f"{name}_rows"], named[f"{name}_share"] = (origin == code).mean(), p[origin == code].sum()
    return {
        **{name: float(value) for name, value in named.items()},
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
