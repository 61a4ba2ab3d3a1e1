"""FamO2O (Wang et al. 2023) on IQL: a family of policies, from cautious to greedy, and a model that picks among them.

The universal policy is conditioned on a coefficient b, which is also the temperature of its own weight
exp(b·advantage). The balance model learns which b has the highest value in each state. Every detail and its source:
docs/algorithms/famo2o.md.
"""

from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import Agent, Draws, Metrics, Transitions, constant, pytree
from arb.agents.iql import Critics, IQLConfig, advantage_weight, policy_rate, weighted_likelihood_loss
from arb.agents.nets import MLP, AdamState, adam, descend, with_precision
from arb.agents.policies import Gaussian, log_tanh_slope, normal_log_density
from arb.errors import DataError
from arb.policies import actors
from arb.policies.actors import Chance, into_range
from arb.replay.scores import Likelihood


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FamO2OConfig(IQLConfig):
    """IQL's fields and the family's; `temperature` is not read, since b takes its place."""

    lowest_balance: float = 1.0
    """Lower end of the range of b: the most cautious policy."""
    highest_balance: float = 5.0
    """Upper end of the range of b: the greediest policy."""
    code_size: int = 6
    """Length of the sinusoidal code of b."""
    target_entropy: float = -0.5
    """Entropy the balance model is held at, before its range is applied."""


# Formulas ------------------------------------------------------------------------------------------------------------
def balance_loss(temperature: Array, log_prob: Array, q: Array) -> Array:
    """High value, at the entropy that the temperature asks for."""
    return jnp.mean(temperature * log_prob - q)


def entropy_loss(log_temperature: Array, entropy: Array, target: float) -> Array:
    """Falls when the temperature falls as long as there is more entropy than asked."""
    return jnp.exp(log_temperature) * jnp.mean(entropy - target)


# Networks ------------------------------------------------------------------------------------------------------------
@pytree
class Balance(actors.Balance):
    """The balance model, with differentiable draws."""

    def draw(self, obs: Array, chance: Chance) -> tuple[Array, Array]:
        """A differentiable balance and the log-density of its squashed value in [−1, 1]."""
        mean, log_std = self.net.scalar(obs), jnp.clip(self.log_std, -10.0, 2.0)
        raw = mean + jnp.exp(log_std) * chance.standard_normal(mean.shape)
        log_prob = normal_log_density(raw, mean, log_std) - log_tanh_slope(raw)
        return into_range(jnp.tanh(raw), self.low, self.high), log_prob


@pytree
class PolicyFamily(actors.PolicyFamily):
    """The universal policy and its balance model."""

    universal: Gaussian
    balance: Balance

    def value_of(self, balance_model: Balance, obs: Array, critics: Critics, chance: Chance) -> tuple[Array, Array]:
        """min Q̄ of an action of the member drawn by `balance_model`, and the log-density of that draw."""
        balance, log_prob = balance_model.draw(obs, chance)
        action = self.universal.sample(self.conditioned(obs, balance), chance)
        return critics.target.least(obs, action), log_prob


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class FamO2O(Agent):
    """A FamO2O agent, as a value."""

    critics: Critics
    family: PolicyFamily
    log_temperature: Array
    universal_adam: AdamState
    balance_adam: AdamState
    temperature_adam: AdamState
    obs_dim: int = constant()
    action_dim: int = constant()
    config: FamO2OConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: FamO2OConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or FamO2OConfig()
        if config.actions == "discrete":
            raise DataError("FamO2O supports only continuous actions: its config cannot have actions='discrete'")
        if config.code_size < 2 or config.code_size % 2:
            raise DataError(f"FamO2O's code_size is {config.code_size}; give an even number, at least 2")
        k_critics, k_universal, k_balance = jax.random.split(key, 3)
        sizes = (obs_dim + config.code_size, *config.hidden, action_dim)
        universal = Gaussian.create(k_universal, sizes, lowest=-5.0)
        net = MLP.create(k_balance, (obs_dim, *config.hidden, 1))
        balance = Balance(net, jnp.zeros(()), config.lowest_balance, config.highest_balance)
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden)
        log_temperature = jnp.zeros(())
        states = (adam(universal), adam(balance), adam(log_temperature))
        family = PolicyFamily(universal, balance, config.code_size)
        agent = cls(critics, family, log_temperature, *states, obs_dim, action_dim, config)
        return with_precision(agent, config.precision)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: critics, universal policy, balance model, its temperature, each at the others' old values."""
        config, family, rate = self.config, self.family, self.config.learning_rate
        k_member, k_balance = jax.random.split(key)
        critics, advantage, metrics = self.critics.update(batch, batch.action, config)
        member = self._members(batch.obs, Draws(k_member))
        weight = advantage_weight(advantage, member, config.largest_weight)

        def imitate(universal: Gaussian) -> tuple[Array, None]:
            log_prob = universal.log_prob(family.conditioned(batch.obs, member), batch.action)
            return weighted_likelihood_loss(weight, log_prob), None

        decayed = policy_rate(config, self.online, self.universal_adam)
        universal, universal_adam, loss, _ = descend(imitate, family.universal, self.universal_adam, decayed)

        def pick(balance: Balance) -> tuple[Array, Array]:
            q, log_prob = family.value_of(balance, batch.obs, self.critics, Draws(k_balance))
            return balance_loss(jnp.exp(self.log_temperature), log_prob, q), jax.lax.stop_gradient(-log_prob)

        balance, balance_adam, b_loss, entropy = descend(pick, family.balance, self.balance_adam, rate)

        def cool(log_temperature: Array) -> tuple[Array, None]:
            return entropy_loss(log_temperature, entropy, config.target_entropy), None

        log_temperature, temperature_adam, _, _ = descend(cool, self.log_temperature, self.temperature_adam, rate)
        agent = replace(
            self,
            critics=critics,
            family=replace(family, universal=universal, balance=balance),
            log_temperature=log_temperature,
            universal_adam=universal_adam,
            balance_adam=balance_adam,
            temperature_adam=temperature_adam,
        )
        own = {"policy_loss": loss, "balance_loss": b_loss, "balance": member.mean(), "entropy": entropy.mean()}
        return agent, metrics | own

    def _members(self, obs: Array, chance: Draws) -> Array:
        """The balance of each sample: anywhere in the range, or after `begin_online` the balance model's draw."""
        if self.online:
            drawn: Array = jax.lax.stop_gradient(self.family.balance.draw(obs, chance)[0])
            return drawn
        uniform = 2.0 * chance.random(obs.shape[:-1]) - 1.0
        anywhere: Array = into_range(uniform, self.config.lowest_balance, self.config.highest_balance)
        return anywhere

    @property
    def actor(self) -> PolicyFamily:
        """The networks that choose actions."""
        return self.family

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """What ARB reads: of the member that the balance model's mean picks."""
        chosen = self.family.conditioned(obs, self.family.balance.mode(obs))
        return self.family.universal.score(chosen, action, likelihood)
