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

from arb.agents import nn
from arb.agents.agent import Agent, KeySequence, Metrics, Transitions, constant, pytree
from arb.agents.iql import Critics, IQLConfig, actor_lr, advantage_weight, awr_loss, weight_metrics
from arb.errors import DataError
from arb.policies.actors import Balance, Gaussian, PolicyFamily, Rng, rescale


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FamO2OConfig(IQLConfig):
    """IQL's fields and the family's; `beta` and `effective` are not read, since b takes their place."""

    beta_min: float = 1.0
    """Lower end of the range of b: the most cautious policy."""
    beta_max: float = 5.0
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


def member_value(family: PolicyFamily, model: Balance, obs: Array, critics: Critics, rng: Rng) -> tuple[Array, Array]:
    """min Q̄ of an action of the member sampled by the balance model, and the log-density of that sample."""
    balance, log_prob = model.sample(obs, rng)
    action = family.universal.sample(family.conditioned(obs, balance), rng)
    return critics.target.min_q(obs, action), log_prob


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class FamO2O(Agent):
    """A FamO2O agent, as a value."""

    critics: Critics
    universal: Gaussian
    balance: Balance
    log_temperature: Array
    adam: dict[str, nn.AdamState]
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
        sizes = (obs_dim + config.code_size, *config.hidden_dims, action_dim)
        universal = nn.create_gaussian(k_universal, sizes, lowest=-5.0)
        net = nn.create_mlp(k_balance, (obs_dim, *config.hidden_dims, 1))
        balance = Balance(net, jnp.zeros(()), config.beta_min, config.beta_max)
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden_dims)
        log_temperature = jnp.zeros(())
        adam = nn.adam(universal=universal, balance=balance, log_temperature=log_temperature)
        return cls(critics, universal, balance, log_temperature, adam, obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: critics, universal policy, balance model, its temperature, each at the others' old values."""
        config, family = self.config, self.actor
        k_member, k_balance = jax.random.split(key)
        critics, advantage, metrics = self.critics.update(batch, batch.action, config)
        member = self._members(batch.obs, KeySequence(k_member))
        weight = advantage_weight(advantage, member, config.max_weight)

        def policy_loss(universal: Gaussian) -> tuple[Array, None]:
            log_prob = universal.log_prob(family.conditioned(batch.obs, member), batch.action)
            return awr_loss(weight, log_prob), None

        rate = actor_lr(config, self.online, self.adam["universal"])
        agent, loss, _ = self.apply_loss("universal", policy_loss, rate)

        def model_loss(model: Balance) -> tuple[Array, Array]:
            q, log_prob = member_value(family, model, batch.obs, self.critics, KeySequence(k_balance))
            return balance_loss(jnp.exp(self.log_temperature), log_prob, q), jax.lax.stop_gradient(-log_prob)

        agent, b_loss, entropy = agent.apply_loss("balance", model_loss, config.actor_lr)

        def temperature_loss(log_temperature: Array) -> tuple[Array, None]:
            return entropy_loss(log_temperature, entropy, config.target_entropy), None

        agent, _, _ = agent.apply_loss("log_temperature", temperature_loss, config.actor_lr)
        own = {"policy_loss": loss, "balance_loss": b_loss, "balance": member.mean(), "entropy": entropy.mean()}
        return replace(agent, critics=critics), metrics | weight_metrics(weight, config) | own

    def _members(self, obs: Array, rng: KeySequence) -> Array:
        """The balance of each sample: anywhere in the range, or after `begin_online` the balance model's sample."""
        if self.online:
            return jnp.asarray(jax.lax.stop_gradient(self.balance.sample(obs, rng)[0]))
        uniform = 2.0 * rng.random(obs.shape[:-1]) - 1.0
        return jnp.asarray(rescale(uniform, self.config.beta_min, self.config.beta_max))

    @property
    def actor(self) -> PolicyFamily:
        """The networks that choose actions."""
        return PolicyFamily(self.universal, self.balance, self.config.code_size)
