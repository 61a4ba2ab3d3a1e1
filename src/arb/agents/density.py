"""BERB's learned ratio (Lee et al. 2022): rows weighted by how much more often the online policy would visit them.

A network w(s, a) ≥ 0 learns d_online / d_offline from uniform batches of both origins by a variational bound of the
Jensen-Shannon divergence. A row's priority is w^(1/T) relative to the offline mean; only drawn rows get a new one, all
others keep the last they had. Every detail and its source: docs/algorithms/berb.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from arb.agents import nn
from arb.agents.agent import Transitions, constant, pytree
from arb.agents.learn import NotFiniteError
from arb.errors import DataError
from arb.policies.networks import MLP
from arb.replay.dataset import Ints
from arb.replay.index import ReplayIndex
from arb.replay.samplers import Mixed, Sampler, State, SumTree

SMALLEST = 1e-10
"""Keeps the logarithms and the division finite, as in the authors' code."""
PRIORITY_RANGE = (0.001, 1000.0)


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RatioConfig:
    """The authors' values."""

    hidden_dims: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    temperature: float = 5.0
    """T: priorities are w^(1/T)."""
    batch_size: int = 256
    """Rows of each origin in one step of the network."""
    first_online_share: float = 0.5
    """Share of online rows in the first batches ..."""
    first_steps: int = 1000
    """... if they are drawn after this many online steps."""


# Formulas ------------------------------------------------------------------------------------------------------------
def density_ratio(net: MLP, obs: Array, action: Array) -> Array:
    """w(s, a), not negative; the number of a discrete action is read as a one-hot vector."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        action = jax.nn.one_hot(action, net.weights[0].shape[0] - obs.shape[-1])
    return jax.nn.relu(net.scalar(obs, action))


def jensen_shannon_bound(offline: Array, online: Array) -> Array:
    """E_offline[f*(f'(w))] − E_online[f'(w)] for the Jensen-Shannon f; least where w is the ratio of densities."""
    conjugate = -jnp.log(2.0 / (offline + 1.0) + SMALLEST)
    slope = jnp.log(2.0 * online / (online + 1.0) + SMALLEST)
    return jnp.mean(conjugate) - jnp.mean(slope)


def priority(ratio: Array, offline_ratio: Array, temperature: float) -> Array:
    """w^(1/T) relative to its mean over an offline batch, within `PRIORITY_RANGE`."""
    mean = jnp.mean(offline_ratio ** (1.0 / temperature))
    return jnp.clip(ratio ** (1.0 / temperature) / (mean + SMALLEST), *PRIORITY_RANGE)


def first_online_priority(offline_rows: int, share: float, steps: int) -> float:
    """The weight with which `steps` online rows are `share` of all mass, when every offline row weighs 1."""
    return offline_rows * share / ((1.0 - share) * steps)


# Network -------------------------------------------------------------------------------------------------------------
def hidden_uniform(key: Array, n_in: int, n_out: int) -> tuple[Array, Array]:
    """Weights uniform in ±1/√n_out and zero biases; the authors' library takes the outputs for the fan-in."""
    return jax.random.uniform(key, (n_in, n_out), minval=-1.0, maxval=1.0) / n_out**0.5, jnp.zeros(n_out)


@pytree
class Ratio(nn.Trainable):
    """w(s, a) and its optimiser, as a value."""

    net: MLP
    adam: dict[str, nn.AdamState]
    config: RatioConfig = constant()

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: RatioConfig | None = None) -> Self:
        """A network that says about 1 everywhere: a small last layer with bias 1."""
        config = config or RatioConfig()
        if not (0.0 <= config.first_online_share < 1.0 <= config.first_steps):
            raise DataError(
                f"BERB's first_online_share is {config.first_online_share} of the rows after {config.first_steps} "
                "first_steps; give a share from 0 to below 1, and at least 1 step"
            )
        k_hidden, k_last = jax.random.split(key)
        net = nn.create_mlp(k_hidden, (obs_dim + action_dim, *config.hidden_dims, 1), hidden_uniform)
        last = jax.random.uniform(k_last, (config.hidden_dims[-1], 1), minval=-3e-3, maxval=3e-3)
        net = MLP((*net.weights[:-1], last), (*net.biases[:-1], jnp.ones(1)))
        return cls(net, nn.adam(net=net), config)

    def __call__(self, obs: Array, action: Array) -> Array:
        return density_ratio(self.net, obs, action)

    def update(self, drawn: Transitions, offline: Transitions, online: Transitions) -> tuple["Ratio", Array, Array]:
        """One step of the network; also the drawn rows' priorities, from the network before it, and the loss."""
        weights = priority(self(drawn.obs, drawn.action), self(offline.obs, offline.action), self.config.temperature)

        def bound(net: MLP) -> tuple[Array, None]:
            w_offline, w_online = (density_ratio(net, b.obs, b.action) for b in (offline, online))
            return jensen_shannon_bound(w_offline, w_online), None

        ratio, loss, _ = self.apply_loss("net", bound, self.config.learning_rate)
        return ratio, weights, loss


@partial(jax.jit, donate_argnums=0)
def _step(ratio: Ratio, drawn: Transitions, offline: Transitions, online: Transitions) -> tuple[Ratio, Array, Array]:
    moved, weights, loss = ratio.update(drawn, offline, online)
    return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(loss), new, old), moved, ratio), weights, loss


# Sampler -------------------------------------------------------------------------------------------------------------
class DensityRatio(Sampler):
    """Rows in proportion to their priorities, one stratified batch at a time.

    The network learns from the batches: after each is drawn, call `train` with its rows. It never looks at the agent.

    >>> sampler = DensityRatio(Ratio.create(jax.random.key(0), obs_dim=2, action_dim=1))
    >>> sampler.trainable
    True
    """

    trainable = True

    def __init__(self, ratio: Ratio):
        self.ratio = ratio
        self._origins = Mixed(0.5)
        self._greatest = 0.0  # the weight of the next online row; 0 until the first one comes
        self._loss = float("nan")

    def __repr__(self) -> str:
        return f"DensityRatio({self.ratio.config})"  # without the weights, which move while it learns

    def bind(self, index: ReplayIndex) -> None:
        super().bind(index)
        self._origins.bind(index)
        self._tree = SumTree(index.capacity)

    def insert(self, rows: Ints) -> None:
        """Offline rows weigh 1; online rows the most that any row has weighed since the first of them came."""
        online = self.index.is_online(rows)
        if online.any() and self._greatest == 0.0:
            offline_rows = int(self.index.spans(online=False)[1].sum())
            config = self.ratio.config
            first = first_online_priority(offline_rows, config.first_online_share, config.first_steps)
            self._greatest = first or 1.0
        self._tree.set(rows, np.where(online, self._greatest, 1.0))

    def renumber(self, rows: Ints) -> None:
        self._tree.restore(self._tree.get(rows))

    def sample_indices(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Rows of this shape; one draw in each of equal parts of the mass, batch by batch."""
        batches = int(np.prod(shape[:-1], dtype=np.int64))
        rows = [self._tree.sample(rng, shape[-1], stratified=True) for _ in range(batches)]
        return np.reshape(rows, shape)

    def probabilities(self) -> NDArray[np.float64]:
        weights = self._tree.get(np.arange(self.index.size))
        return np.asarray(weights / weights.sum())

    def train(self, rows: Ints, gather: Callable[[Ints], Transitions], rng: np.random.Generator) -> float:
        """One step of the network, then new priorities for the rows just drawn; returns the network's loss.

        `gather` turns rows into transitions, as `ReplayBuffer.gather` does. Before there are rows of both origins there
        is nothing to compare, and nothing happens.
        """
        if any(len(self.index.spans(online=origin)[0]) == 0 for origin in (False, True)):
            return self._loss
        size = self.ratio.config.batch_size
        offline, online = np.split(self._origins.sample_indices(rng, (2 * size,)), 2)
        self.ratio, weights, loss = _step(self.ratio, gather(rows), gather(offline), gather(online))
        self._loss = float(loss)
        if not np.isfinite(self._loss):
            raise NotFiniteError("ratio_loss", int(self.ratio.adam["net"].count), self.ratio, "of the ratio network")
        self.used(rows, np.asarray(weights))
        return self._loss

    def used(self, rows: Ints, weights: NDArray[np.floating[Any]]) -> None:
        self._tree.set(rows, weights)
        self._greatest = max(self._greatest, float(np.max(weights)))

    def metrics(self) -> dict[str, float]:
        """The network's last loss and the weight of a new online row."""
        return {"ratio_loss": self._loss, "online_priority": self._greatest}

    def state(self) -> State:
        weights = self._tree.state()[: self.index.size]
        own = {"tree": weights, "greatest": np.array(self._greatest), "loss": np.array(self._loss)}
        return own | {f"ratio{name}": array for name, array in nn.named_arrays(self.ratio).items()}

    def restore(self, state: State) -> None:
        free = self.index.capacity - self.index.size
        self._tree.restore(np.append(state["tree"], np.zeros(free)))
        self._greatest, self._loss = float(state["greatest"]), float(state["loss"])
        arrays = {k.removeprefix("ratio"): v for k, v in state.items() if k.startswith("ratio")}
        self.ratio = nn.with_arrays(self.ratio, arrays)
