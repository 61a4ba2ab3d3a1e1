"""Policies that learn: likelihoods, differentiable draws, and the score that ARB reads; `arb.policies.actors` acts.

`score` has the two readings of `arb.replay.scores`. `"standard"` is the paper's: the log-density of the z-score
under a standard normal, per action dimension, so that neither the policy's width nor the derivative of tanh enters.
`"density"` is the policy's true log-density, summed. A categorical policy has one reading, its log-probability.
"""

import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import pytree
from arb.agents.nets import MLP, Initialiser, fan_in_uniform, orthogonal
from arb.policies import actors
from arb.policies.actors import Chance
from arb.replay.scores import EDGE, Likelihood, is_standard

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


# Densities -----------------------------------------------------------------------------------------------------------
def normal_log_density(x: Array, mean: Array, log_std: Array) -> Array:
    """Log-density of a diagonal normal, per dimension."""
    return -0.5 * ((x - mean) * jnp.exp(-log_std)) ** 2 - log_std - HALF_LOG_TAU


def log_tanh_slope(x: Array) -> Array:
    """ln(1 − tanh²x), without the cancellation of that formula at large |x|."""
    slope: Array = 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))
    return slope


def standard_score(x: Array, mean: Array, log_std: Array) -> Array:
    """Standard-normal log-density of the z-score, averaged over action dimensions; at most −½·ln 2π."""
    z = (x - mean) * jnp.exp(-log_std)
    return jnp.mean(-0.5 * z**2 - HALF_LOG_TAU, axis=-1)


# Policies ------------------------------------------------------------------------------------------------------------
@pytree
class Gaussian(actors.Gaussian):
    """A normal distribution around a tanh-bounded mean."""

    @classmethod
    def create(
        cls, key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, lowest: float = -20.0
    ) -> Self:
        """A policy of unit deviation; `log_std` is held in [lowest, 2]."""
        return cls(MLP.create(key, sizes, initialise), jnp.zeros(sizes[-1]), lowest)

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Log-density, summed over action dimensions."""
        return jnp.sum(normal_log_density(action, self.mode(obs), self.bounded_log_std()), axis=-1)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The number ARB reads."""
        if is_standard(likelihood):
            return standard_score(action, self.mode(obs), self.bounded_log_std())
        return self.log_prob(obs, action)


@pytree
class TanhGaussian(actors.TanhGaussian):
    """tanh of a normal whose mean and log-deviation both depend on the state."""

    @classmethod
    def create(
        cls, key: Array, sizes: tuple[int, ...], initialise: Initialiser = orthogonal, offset: float = -1.0
    ) -> Self:
        """A policy over `sizes[-1]` action dimensions: log σ = multiplier·net + offset; the multiplier starts at 1."""
        wide = (*sizes[:-1], 2 * sizes[-1])
        return cls(MLP.create(key, wide, initialise), jnp.ones(()), jnp.asarray(offset))

    def draw(self, obs: Array, chance: Chance, count: int) -> tuple[Array, Array]:
        """`count` differentiable draws per state and their log-densities; the network runs once per state."""
        mean, log_std = (x[..., None, :] for x in self.parameters(obs))
        raw = mean + jnp.exp(log_std) * chance.standard_normal((*mean.shape[:-2], count, mean.shape[-1]))
        density = jnp.sum(normal_log_density(raw, mean, log_std) - log_tanh_slope(raw), axis=-1)
        return jnp.tanh(raw), density

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The number ARB reads, at atanh of the action."""
        mean, log_std = self.parameters(obs)
        raw = jnp.arctanh(jnp.clip(action, -EDGE, EDGE))
        if is_standard(likelihood):
            return standard_score(raw, mean, log_std)
        return jnp.sum(normal_log_density(raw, mean, log_std) - log_tanh_slope(raw), axis=-1)


@pytree
class Categorical(actors.Categorical):
    """Probabilities over a finite set of actions, numbered from 0."""

    @classmethod
    def create(cls, key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform) -> Self:
        """A policy over `sizes[-1]` actions."""
        return cls(MLP.create(key, sizes, initialise))

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Log-probability of the action's number, NaN if there is no action of that number."""
        table = jax.nn.log_softmax(self.net(obs))
        number = action[..., None].astype(jnp.int32)
        number = jnp.where(number < 0, table.shape[-1], number)  # a negative index would count from the end
        return jnp.take_along_axis(table, number, axis=-1, mode="fill")[..., 0]

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The log-probability: a mass needs no reading."""
        is_standard(likelihood)
        return self.log_prob(obs, action)
