"""Soft actor-critic, small: the behaviour policies behind `arb data collect`.

Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905): a tanh-Gaussian actor, twin
critics with slowly moving targets, and a temperature tuned towards an entropy of minus the action dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

Layers = list[tuple[Any, Any]]
LOG_STD = (-20.0, 2.0)


@dataclass(frozen=True)
class Config:
    """Hyperparameters: the paper's, but half its width and batch: one processor core is six times faster with them."""

    hidden: int = 128
    batch: int = 128
    learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 5e-3
    warmup: int = 5_000
    """Steps of uniformly random actions before the first update."""
    chunk: int = 200
    """Environment steps with one policy, followed by as many updates."""


class Rows(NamedTuple):
    """Transitions as SAC reads them; `discount` is 0 where the task ended."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    discount: Any


class Learner(NamedTuple):
    """Everything that an update changes."""

    actor: Layers
    critics: Layers
    """Two critics, stacked along the first axis of every array."""
    target: Layers
    log_alpha: Any
    optimiser: Any
    key: Any


def create(seed: int, obs_dim: int, action_dim: int, config: Config) -> Learner:
    """A fresh learner."""
    actor_key, *critic_keys, key = jax.random.split(jax.random.PRNGKey(seed), 4)
    actor = _layers(actor_key, (obs_dim, config.hidden, config.hidden, 2 * action_dim))
    sizes = (obs_dim + action_dim, config.hidden, config.hidden, 1)
    critics = jax.tree.map(lambda *pair: jnp.stack(pair), *(_layers(each, sizes) for each in critic_keys))
    log_alpha = jnp.zeros(())
    optimiser = optax.adam(config.learning_rate).init((actor, critics, log_alpha))
    return Learner(actor, critics, critics, log_alpha, optimiser, key)


def _layers(key: Any, sizes: tuple[int, ...]) -> Layers:
    """Weights uniform within 1/sqrt(inputs), biases zero."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.uniform(each, (inputs, outputs), minval=-1.0, maxval=1.0) / np.sqrt(inputs), jnp.zeros(outputs))
        for each, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def _forward(layers: Layers, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def _values(critics: Layers, obs: Any, action: Any) -> Any:
    """Both critics' values, of shape (2, batch)."""
    return jax.vmap(_forward, in_axes=(0, None))(critics, jnp.concatenate([obs, action], -1))[..., 0]


def _sample(actor: Layers, obs: Any, key: Any) -> tuple[Any, Any]:
    """Reparametrised actions and their log-density, the correction for tanh in its stable form."""
    mean, log_std = jnp.split(_forward(actor, obs), 2, -1)
    log_std = jnp.clip(log_std, *LOG_STD)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    log_density = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    log_jacobian = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), (log_density - log_jacobian).sum(-1)


def _loss(trained: Any, learner: Learner, rows: Rows, key: Any, config: Config) -> Any:
    """The three losses in one sum: each reads the others' parameters only through `stop_gradient`."""
    actor, critics, log_alpha = trained
    alpha = jax.lax.stop_gradient(jnp.exp(log_alpha))
    next_key, key = jax.random.split(key)
    next_action, next_log_prob = _sample(jax.lax.stop_gradient(actor), rows.next_obs, next_key)
    next_value = _values(learner.target, rows.next_obs, next_action).min(0) - alpha * next_log_prob
    target = rows.reward + config.gamma * rows.discount * next_value
    critic_loss = ((_values(critics, rows.obs, rows.action) - target) ** 2).mean(1).sum()
    action, log_prob = _sample(actor, rows.obs, key)
    value = _values(jax.lax.stop_gradient(critics), rows.obs, action).min(0)
    actor_loss = (alpha * log_prob - value).mean()
    entropy_gap = jax.lax.stop_gradient(log_prob.mean()) - rows.action.shape[-1]
    return critic_loss + actor_loss - log_alpha * entropy_gap


@partial(jax.jit, static_argnames="config")
def update(learner: Learner, batches: Rows, config: Config) -> Learner:
    """As many updates as there are batches along the first axis."""

    def one(learner: Learner, rows: Rows) -> tuple[Learner, None]:
        key, loss_key = jax.random.split(learner.key)
        trained = (learner.actor, learner.critics, learner.log_alpha)
        gradients = jax.grad(_loss)(trained, learner, rows, loss_key, config)
        steps, optimiser = optax.adam(config.learning_rate).update(gradients, learner.optimiser)
        actor, critics, log_alpha = optax.apply_updates(trained, steps)
        target = optax.incremental_update(critics, learner.target, config.tau)
        return Learner(actor, critics, target, log_alpha, optimiser, key), None

    return jax.lax.scan(one, learner, batches)[0]


class Policy:
    """The actor in NumPy, for acting: one observation at a time, a compiled call would cost more than it saves."""

    def __init__(self, layers: Layers) -> None:
        self.layers = [(np.asarray(weight), np.asarray(bias)) for weight, bias in layers]

    def __call__(self, obs: NDArray[Any], rng: np.random.Generator | None = None) -> NDArray[np.float32]:
        """A sampled action, or the mode without a generator."""
        x = np.asarray(obs, np.float32)
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        mean, log_std = np.split(x @ weight + bias, 2, -1)
        if rng is not None:
            mean = mean + np.exp(np.clip(log_std, *LOG_STD)) * rng.standard_normal(mean.shape, np.float32)
        return np.asarray(np.tanh(mean), np.float32)
