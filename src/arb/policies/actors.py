"""Policies: a network, how its outputs make an action, and how likely an action is, for NumPy and for JAX.

`act(obs, rng)` explores, `mode(obs, rng=None)` is the action for evaluation, `score(obs, action)` is what ARB reads.
Observations are those the agent sees; actions lie in [−1, 1] or are numbers from 0.

`score` has the two readings of `arb.replay.scores`. `"standard"` is the paper's: the log-density of the z-score under a
standard normal, per action dimension, so that neither the policy's width nor the derivative of tanh enters.
`"density"` is the policy's true log-density, summed. A categorical policy has one reading, its log-probability.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from arb.policies.networks import MLP, Array, Ensemble, constant, log_softmax, namespace, softplus
from arb.replay.scores import EDGE, WIDTH, Likelihood, is_standard

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class Rng(Protocol):
    """What a policy needs of a random generator: `numpy.random.Generator` has it, `arb.agents` wraps JAX keys so."""

    def standard_normal(self, size: Any = ..., dtype: Any = ...) -> Any: ...
    def random(self, size: Any = ..., dtype: Any = ...) -> Any: ...


# Densities -----------------------------------------------------------------------------------------------------------
def normal_log_density(x: Array, mean: Array, log_std: Array) -> Array:
    """Log-density of a diagonal normal, per dimension."""
    return -0.5 * ((x - mean) * namespace(log_std).exp(-log_std)) ** 2 - log_std - HALF_LOG_TAU


def standard_score(x: Array, mean: Array, log_std: Array) -> Array:
    """Standard-normal log-density of the z-score, averaged over action dimensions; at most −½·ln 2π."""
    z = (x - mean) * namespace(log_std).exp(-log_std)
    return (-0.5 * z**2 - HALF_LOG_TAU).mean(axis=-1)


def log_tanh_slope(x: Array) -> Array:
    """ln(1 − tanh²x), without the cancellation of that formula at large |x|."""
    return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


def clip_action(action: Array) -> Array:
    """The nearest action in [−1, 1]: the one that is executed and stored."""
    return namespace(action).clip(action, -1.0, 1.0)


def join_chunk(action: Array, chunk: int) -> Array:
    """The actions of a chunk, (..., chunk, action), side by side; one action stays as it is."""
    return action if chunk == 1 else action.reshape(*action.shape[:-2], -1)


# One network ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution around a tanh-bounded mean, with one log-deviation per action dimension for all states."""

    net: MLP
    log_std: Array
    lowest: float = constant(default=-20.0)
    highest: float = constant(default=2.0)

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:  # noqa: ARG002
        raw = self.net(obs)
        return namespace(raw).tanh(raw)

    def bounded_log_std(self) -> Array:
        return namespace(self.log_std).clip(self.log_std, self.lowest, self.highest)

    def sample(self, obs: Array, rng: Rng) -> Array:
        """A random action, differentiable in the parameters and not clipped."""
        mean = self.mode(obs)
        noise: Array = rng.standard_normal(mean.shape, dtype=mean.dtype)
        return mean + namespace(mean).exp(self.bounded_log_std()) * noise

    def act(self, obs: Array, rng: Rng) -> Array:
        return clip_action(self.sample(obs, rng))

    def log_prob(self, obs: Array, action: Array) -> Array:
        return normal_log_density(action, self.mode(obs), self.bounded_log_std()).sum(axis=-1)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        if is_standard(likelihood):
            return standard_score(action, self.mode(obs), self.bounded_log_std())
        return self.log_prob(obs, action)


@dataclass(frozen=True, eq=False)
class TanhGaussian:
    """tanh of a normal whose mean and log-deviation both depend on the state; two learned scalars scale the latter."""

    net: MLP
    multiplier: Array
    offset: Array

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """Mean and log-deviation of the normal before tanh."""
        both = self.net(obs)
        mean, raw = both[..., : both.shape[-1] // 2], both[..., both.shape[-1] // 2 :]
        return mean, namespace(raw).clip(self.multiplier * raw + self.offset, -20.0, 2.0)

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:  # noqa: ARG002
        mean, _ = self.parameters(obs)
        return namespace(mean).tanh(mean)

    def act(self, obs: Array, rng: Rng) -> Array:
        mean, log_std = self.parameters(obs)
        xp = namespace(mean)
        return xp.tanh(mean + xp.exp(log_std) * rng.standard_normal(mean.shape, dtype=mean.dtype))

    def sample(self, obs: Array, rng: Rng, count: int) -> tuple[Array, Array]:
        """`count` differentiable actions per state and their log-densities; the network runs once per state."""
        mean, log_std = (x[..., None, :] for x in self.parameters(obs))
        xp = namespace(mean)
        noise = rng.standard_normal((*mean.shape[:-2], count, mean.shape[-1]), dtype=mean.dtype)
        raw = mean + xp.exp(log_std) * noise
        log_prob = (normal_log_density(raw, mean, log_std) - log_tanh_slope(raw)).sum(axis=-1)
        return xp.tanh(raw), log_prob

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Log-density of an action of [−1, 1], summed over action dimensions."""
        raw = _before_tanh(action)
        return (normal_log_density(raw, *self.parameters(obs)) - log_tanh_slope(raw)).sum(axis=-1)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The number ARB reads, at atanh of the action."""
        if is_standard(likelihood):
            return standard_score(_before_tanh(action), *self.parameters(obs))
        return self.log_prob(obs, action)


def _before_tanh(action: Array) -> Array:
    xp = namespace(action)
    return xp.arctanh(xp.clip(action, -EDGE, EDGE))


@dataclass(frozen=True, eq=False)
class Categorical:
    """Probabilities over a finite set of actions, numbered from 0."""

    net: MLP

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:  # noqa: ARG002
        logits = self.net(obs)
        return namespace(logits).argmax(logits, axis=-1)

    def act(self, obs: Array, rng: Rng) -> Array:
        """A random action, by the Gumbel trick."""
        logits = self.net(obs)
        xp = namespace(logits)
        # 1 − u is in (0, 1], so the inner logarithm is finite.
        return xp.argmax(logits - xp.log(-xp.log1p(-rng.random(logits.shape, dtype=logits.dtype)) + 1e-30), axis=-1)

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Log-probability of the action's number, NaN if there is no action of that number."""
        table = log_softmax(self.net(obs))
        xp = namespace(table)
        number = action.astype(xp.int32)
        known = (number >= 0) & (number < table.shape[-1])
        chosen = xp.take_along_axis(table, xp.where(known, number, 0)[..., None], axis=-1)[..., 0]
        return xp.where(known, chosen, xp.nan)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The log-probability: a mass needs no reading."""
        is_standard(likelihood)
        return self.log_prob(obs, action)


@dataclass(frozen=True, eq=False)
class OneStep:
    """A network that makes an action from an observation and as many normal numbers as the action has (FQL).

    With a `chunk` above 1 it makes so many actions at once (QC-FQL): `act` and `mode` return them with the shape
    (..., chunk, action), and `score` takes them so. It has no likelihood. `score` is `arb.sample_score` with `draws`
    noises, the same for all observations and each with both signs, which cancels most of what they add to it.
    """

    net: MLP
    draws: int = constant(default=8)
    chunk: int = constant(default=1)

    def sample(self, obs: Array, noise: Array) -> Array:
        """The action of this noise, differentiable and not clipped."""
        return self.net(obs, noise)

    def act(self, obs: Array, rng: Rng) -> Array:
        noise = rng.standard_normal((*obs.shape[:-1], self.net.biases[-1].shape[0]), dtype=obs.dtype)
        return self._split(clip_action(self.sample(obs, noise)))

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:
        """A sample, as FQL is evaluated; without `rng` the action of zero noise."""
        if rng is not None:
            return self.act(obs, rng)
        zeros = np.zeros((*obs.shape[:-1], self.net.biases[-1].shape[0]), np.float32)
        return self._split(clip_action(self.sample(obs, zeros)))

    def _split(self, actions: Array) -> Array:
        return actions if self.chunk == 1 else actions.reshape(*actions.shape[:-1], self.chunk, -1)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """How close the nearest samples are: a policy without a likelihood has one reading."""
        is_standard(likelihood)
        action = join_chunk(action, self.chunk)
        half = np.random.default_rng(0).standard_normal((self.draws // 2, action.shape[-1]), dtype=np.float32)
        noises = (sign * np.broadcast_to(noise, action.shape) for noise in half for sign in (1, -1))
        samples = [clip_action(self.sample(obs, noise)) for noise in noises]
        xp = namespace(samples[0])
        near = xp.stack([-0.5 / WIDTH**2 * ((action - near) ** 2).mean(axis=-1) for near in samples])
        most = near.max(axis=0)
        return most + xp.log(xp.exp(near - most).mean(axis=0))


# PEX: an old and a new policy ----------------------------------------------------------------------------------------
def old_probability(q_old: Array, q_new: Array, inverse_temperature: float) -> Array:
    """Softmax over κ·Q of two actions, of the old policy's: a logistic of the difference, finite for every finite Q."""
    xp = namespace(q_old)
    return 0.5 * (1.0 - xp.tanh(0.5 * inverse_temperature * (q_new - q_old)))


@dataclass(frozen=True, eq=False)
class PEXPolicy:
    """Two policies and the critics that choose between their actions."""

    old: Gaussian
    new: Gaussian
    q: Ensemble
    inverse_temperature: float = constant()
    epsilon: float = constant()

    def sample(self, obs: Array, rng: Rng) -> Array:
        """The old policy's mean or a sample of the new one, at random by their values; the sample is not clipped.

        The value of the sample is that of the clipped action, because that is the one an environment executes.
        """
        a_old, a_new = self.old.mode(obs), self.new.sample(obs, rng)
        p_old = self._old_probability(obs, a_old, clip_action(a_new))
        return _pick(rng.random(p_old.shape, dtype=p_old.dtype) < p_old, a_old, a_new)

    def act(self, obs: Array, rng: Rng) -> Array:
        return clip_action(self.sample(obs, rng))

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:
        """The better of both modes; with `rng`, the new mode and the choice are each a sample with probability ε."""
        a_old, a_new = self.old.mode(obs), self.new.mode(obs)
        if rng is not None:
            explore = rng.random(a_old.shape[:-1], dtype=a_old.dtype) >= 1.0 - self.epsilon
            a_new = _pick(explore, self.new.act(obs, rng), a_new)
        p_old = self._old_probability(obs, a_old, a_new)
        choice = p_old > 0.5
        if rng is not None:
            explore = rng.random(p_old.shape, dtype=p_old.dtype) >= 1.0 - self.epsilon
            sampled = rng.random(p_old.shape, dtype=p_old.dtype) < p_old
            choice = namespace(p_old).where(explore, sampled, choice)
        return _pick(choice, a_old, a_new)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The new policy's: the old one is not in training any more."""
        return self.new.score(obs, action, likelihood)

    def _old_probability(self, obs: Array, a_old: Array, a_new: Array) -> Array:
        return old_probability(self.q.min_q(obs, a_old), self.q.min_q(obs, a_new), self.inverse_temperature)


def _pick(first: Array, a: Array, b: Array) -> Array:
    xp = namespace(a)
    return xp.where(xp.asarray(first)[..., None], a, b)


# FamO2O: a family of policies ----------------------------------------------------------------------------------------
def encode(balance: Array, size: int = 6) -> Array:
    """sin and cos of b / 10000^(2i/size) for i = 0, 1, ..., interleaved: shape (..., size)."""
    xp = namespace(balance)
    angle = balance[..., None] / np.asarray(10_000.0 ** (2.0 * np.arange(size // 2) / size), np.float32)
    return xp.stack([xp.sin(angle), xp.cos(angle)], axis=-1).reshape(*balance.shape, size)


def rescale(squashed: Array, low: float, high: float) -> Array:
    """[−1, 1] to [low, high]."""
    return 0.5 * (squashed + 1.0) * (high - low) + low


@dataclass(frozen=True, eq=False)
class Balance:
    """tanh of a normal around a state-dependent mean with one learned deviation, mapped to the range of b."""

    net: MLP
    log_std: Array
    low: float = constant()
    high: float = constant()

    def mode(self, obs: Array) -> Array:
        mean = self.net.scalar(obs)
        return rescale(namespace(mean).tanh(mean), self.low, self.high)

    def sample(self, obs: Array, rng: Rng) -> tuple[Array, Array]:
        """A differentiable random balance and the log-density of its squashed value in [−1, 1]."""
        mean = self.net.scalar(obs)
        xp = namespace(mean)
        log_std = xp.clip(self.log_std, -10.0, 2.0)
        raw = mean + xp.exp(log_std) * rng.standard_normal(mean.shape, dtype=mean.dtype)
        log_prob = normal_log_density(raw, mean, log_std) - log_tanh_slope(raw)
        return rescale(xp.tanh(raw), self.low, self.high), log_prob


@dataclass(frozen=True, eq=False)
class PolicyFamily:
    """A policy conditioned on a balance b: the member of the family that the balance model's mean prefers acts."""

    universal: Gaussian
    balance: Balance
    code_size: int = constant()

    def conditioned(self, obs: Array, balance: Array) -> Array:
        return namespace(obs, balance).concatenate([obs, encode(balance, self.code_size)], axis=-1)

    def act(self, obs: Array, rng: Rng) -> Array:
        return self.universal.act(self.conditioned(obs, self.balance.mode(obs)), rng)

    def mode(self, obs: Array, rng: Rng | None = None) -> Array:  # noqa: ARG002
        return self.universal.mode(self.conditioned(obs, self.balance.mode(obs)))

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        return self.universal.score(self.conditioned(obs, self.balance.mode(obs)), action, likelihood)
