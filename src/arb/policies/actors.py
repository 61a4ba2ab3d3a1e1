"""Policies as they act: a network, how its outputs make an action, and where chance enters.

`act(obs, chance)` explores, `mode(obs, chance=None)` is the action for evaluation. Observations are those the agent
sees, actions lie in [−1, 1] or are numbers from 0. `arb.agents` adds what training needs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arb.policies.networks import MLP, Array, Twin, constant, namespace


class Chance(Protocol):
    """What a policy needs of a random generator: `numpy.random.Generator` has it, `arb.agents` wraps JAX keys so."""

    def standard_normal(self, size: Any = ..., dtype: Any = ...) -> Any:
        """Standard normal numbers."""

    def random(self, size: Any = ..., dtype: Any = ...) -> Any:
        """Uniform numbers in [0, 1)."""


def in_box(action: Array) -> Array:
    """The nearest action in [−1, 1]: the one that is executed and stored."""
    return namespace(action).clip(action, -1.0, 1.0)


# One network ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution around a tanh-bounded mean, with one log-deviation per action dimension for all states."""

    net: MLP
    log_std: Array
    lowest: float = constant(default=-20.0)
    highest: float = constant(default=2.0)

    def mode(self, obs: Array, chance: Chance | None = None) -> Array:  # noqa: ARG002
        """The mean action."""
        raw = self.net(obs)
        return namespace(raw).tanh(raw)

    def bounded_log_std(self) -> Array:
        """The log-deviation, clipped."""
        return namespace(self.log_std).clip(self.log_std, self.lowest, self.highest)

    def sample(self, obs: Array, chance: Chance) -> Array:
        """A draw, differentiable in the parameters and not clipped."""
        mean = self.mode(obs)
        noise: Array = chance.standard_normal(mean.shape, dtype=mean.dtype)
        return mean + namespace(mean).exp(self.bounded_log_std()) * noise

    def act(self, obs: Array, chance: Chance) -> Array:
        """A draw inside the action box [−1, 1]."""
        return in_box(self.sample(obs, chance))


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

    def mode(self, obs: Array, chance: Chance | None = None) -> Array:  # noqa: ARG002
        """tanh of the mean."""
        mean, _ = self.parameters(obs)
        return namespace(mean).tanh(mean)

    def act(self, obs: Array, chance: Chance) -> Array:
        """A draw."""
        mean, log_std = self.parameters(obs)
        xp = namespace(mean)
        return xp.tanh(mean + xp.exp(log_std) * chance.standard_normal(mean.shape, dtype=mean.dtype))


@dataclass(frozen=True, eq=False)
class Categorical:
    """Probabilities over a finite set of actions, numbered from 0."""

    net: MLP

    def mode(self, obs: Array, chance: Chance | None = None) -> Array:  # noqa: ARG002
        """The most probable action."""
        logits = self.net(obs)
        return namespace(logits).argmax(logits, axis=-1)

    def act(self, obs: Array, chance: Chance) -> Array:
        """A draw, by the Gumbel trick."""
        logits = self.net(obs)
        xp = namespace(logits)
        # 1 − u is in (0, 1], so the inner logarithm is finite.
        return xp.argmax(logits - xp.log(-xp.log1p(-chance.random(logits.shape, dtype=logits.dtype)) + 1e-30), axis=-1)


# PEX: an old and a new policy ----------------------------------------------------------------------------------------
def old_probability(q_old: Array, q_new: Array, sharpness: float) -> Array:
    """Softmax over κ·Q of two actions, of the old policy's: a logistic of the difference, finite for every finite Q."""
    xp = namespace(q_old)
    return 0.5 * (1.0 - xp.tanh(0.5 * sharpness * (q_new - q_old)))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two policies and the critics that choose between their actions."""

    old: Gaussian
    new: Gaussian
    q: Twin
    sharpness: float = constant()
    greed: float = constant()

    def sample(self, obs: Array, chance: Chance) -> Array:
        """The old policy's mean or a draw from the new one, at random by their values; the draw is not clipped.

        The value of the draw is that of the action in the box, because that is the one an environment executes.
        """
        a_old, a_new = self.old.mode(obs), self.new.sample(obs, chance)
        p_old = old_probability(self.q.least(obs, a_old), self.q.least(obs, in_box(a_new)), self.sharpness)
        return _pick(chance.random(p_old.shape, dtype=p_old.dtype) < p_old, a_old, a_new)

    def act(self, obs: Array, chance: Chance) -> Array:
        """A sample inside the action box [−1, 1]."""
        return in_box(self.sample(obs, chance))

    def mode(self, obs: Array, chance: Chance | None = None) -> Array:
        """With probability `greed` the new policy's mode and the better action; without `chance`, always both."""
        a_old, a_new = self.old.mode(obs), self.new.mode(obs)
        if chance is not None:
            explore = chance.random(a_old.shape[:-1], dtype=a_old.dtype) >= self.greed
            a_new = _pick(explore, self.new.act(obs, chance), a_new)
        p_old = old_probability(self.q.least(obs, a_old), self.q.least(obs, a_new), self.sharpness)
        choice = p_old > 0.5
        if chance is not None:
            explore = chance.random(p_old.shape, dtype=p_old.dtype) >= self.greed
            drawn = chance.random(p_old.shape, dtype=p_old.dtype) < p_old
            choice = namespace(p_old).where(explore, drawn, choice)
        return _pick(choice, a_old, a_new)


def _pick(first: Array, a: Array, b: Array) -> Array:
    xp = namespace(a)
    return xp.where(xp.asarray(first)[..., None], a, b)


# FamO2O: a family of policies ----------------------------------------------------------------------------------------
def divisors(size: int) -> NDArray[np.float32]:
    """10000^(2i/size) for i = 0, 1, ...: what b is divided by in its code."""
    return np.asarray(10_000.0 ** (2.0 * np.arange(size // 2) / size), np.float32)


def encode(balance: Array, size: int = 6) -> Array:
    """sin and cos of b over its divisors, interleaved: shape (..., size)."""
    xp = namespace(balance)
    angle = balance[..., None] / divisors(size)
    return xp.stack([xp.sin(angle), xp.cos(angle)], axis=-1).reshape(*balance.shape, size)


def into_range(squashed: Array, low: float, high: float) -> Array:
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
        """The balance of the mean."""
        mean = self.net.scalar(obs)
        return into_range(namespace(mean).tanh(mean), self.low, self.high)


@dataclass(frozen=True, eq=False)
class PolicyFamily:
    """The universal policy under the balance model's mode."""

    universal: Gaussian
    balance: Balance
    code_size: int = constant()

    def conditioned(self, obs: Array, balance: Array) -> Array:
        """The universal policy's input."""
        return namespace(obs, balance).concatenate([obs, encode(balance, self.code_size)], axis=-1)

    def act(self, obs: Array, chance: Chance) -> Array:
        """A draw from the member that the balance model prefers."""
        return self.universal.act(self.conditioned(obs, self.balance.mode(obs)), chance)

    def mode(self, obs: Array, chance: Chance | None = None) -> Array:  # noqa: ARG002
        """The mean of the member that the balance model prefers."""
        return self.universal.mode(self.conditioned(obs, self.balance.mode(obs)))
