"""Soft actor-critic (Haarnoja et al. 2018): off-policy learning with a tanh-Gaussian policy and a tuned temperature.

The critics learn r + γ·(min Q̄(s', a') − α·log π(a'|s')), the policy minimises α·log π − min Q, and α is tuned towards a
target entropy. `layer_norm`, `num_critics`, `critic_subset` and `actor_q` make it RLPD (Ball et al. 2023): normalised
hidden layers keep Q finite where the data has no actions, and an ensemble allows many updates per step. Every detail
and its source: docs/algorithms/sac.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents import nn
from arb.agents.agent import Agent, KeySequence, Metrics, Transitions, constant, pytree
from arb.agents.iql import critic_loss, td_target
from arb.errors import DataError, check_choices
from arb.policies.actors import TanhGaussian
from arb.policies.networks import Ensemble

Critic = Callable[[Array, Array], Array]


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SACConfig:
    """The defaults are the values of SAC's authors."""

    hidden_dims: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, in every network."""
    discount: float = 0.99
    """γ, the discount factor."""
    tau: float = 0.005
    """Rate of the target critics' soft update."""
    actor_lr: float = 3e-4
    """Learning rate of the policy and of its temperature."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    target_entropy: float | None = None
    """The entropy the temperature is tuned towards; None is minus the number of action dimensions."""
    layer_norm: bool = False
    """Normalise the critics' hidden layers, as RLPD does."""
    num_critics: int = 2
    """Critics in the ensemble; RLPD has 10."""
    critic_subset: int | None = None
    """Target critics whose smallest value is bootstrapped from, sampled at every update; None is all. RLPD has 2."""
    actor_q: Literal["min", "mean"] = "min"
    """What the policy improves: the smallest Q, or the mean over the critics, as RLPD does."""
    actor_period: int = 1
    """Updates of the critics for each of the policy and its temperature; RLPD has as many as updates per step."""
    backup_entropy: bool = True
    """Whether the target contains the entropy of the next action."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.actor_period < 1:
            raise DataError(f"SAC's actor_period is {self.actor_period}; give at least 1")
        if not 1 <= (self.num_critics if self.critic_subset is None else self.critic_subset) <= self.num_critics:
            raise DataError(
                f"SAC's critic_subset is {self.critic_subset} and num_critics {self.num_critics}; give at least one "
                "critic, and no larger subset than there are critics"
            )


# Losses --------------------------------------------------------------------------------------------------------------
def soft_value(q: Array, alpha: Array, log_prob: Array) -> Array:
    """Q plus α times the entropy of one sample."""
    return q - alpha * log_prob


def policy_loss(alpha: Array, log_prob: Array, q: Array) -> Array:
    """Soft policy improvement."""
    return jnp.mean(alpha * log_prob - q)


def temperature_loss(log_alpha: Array, log_prob: Array, target_entropy: float) -> Array:
    """Falls when α falls as long as the policy is more random than asked."""
    return -jnp.mean(log_alpha * (log_prob + target_entropy))


def subset_min_q(critics: Ensemble, chosen: Array, obs: Array, action: Array) -> Array:
    """The smallest value of some critics, given by their numbers; only these are evaluated."""
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays)[chosen], *critics.members)
    values: Array = jax.vmap(lambda critic: critic.scalar(obs, action))(stacked)
    return values.min(axis=0)


# Step of the policy and of its temperature ---------------------------------------------------------------------------
def improved(agent: Any, q: Critic, obs: Array, key: Array, target_entropy: float | None = None) -> tuple[Any, Metrics]:
    """The agent after a step of its `policy`, and of `log_alpha` towards the target entropy; Cal-QL has both, too."""
    log_alpha, rate = agent.log_alpha, agent.config.actor_lr
    entropy = -float(agent.action_dim) if target_entropy is None else target_entropy

    def actor_loss(policy: TanhGaussian) -> tuple[Array, Array]:
        action, log_prob = policy.sample(obs, KeySequence(key), 1)
        return policy_loss(jnp.exp(log_alpha), log_prob, q(obs[:, None], action)), log_prob

    agent, loss, log_prob = agent.apply_loss("policy", actor_loss, rate)

    def alpha_loss(log_alpha: Array) -> tuple[Array, None]:
        return temperature_loss(log_alpha, jax.lax.stop_gradient(log_prob), entropy), None

    agent, _, _ = agent.apply_loss("log_alpha", alpha_loss, rate)
    return agent, {"policy_loss": loss, "entropy": -log_prob.mean(), "alpha": jnp.exp(log_alpha)}


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class SAC(Agent):
    """A SAC agent, as a value."""

    q: Ensemble
    target: Ensemble
    policy: TanhGaussian
    log_alpha: Array
    adam: dict[str, nn.AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: SACConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: SACConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or SACConfig()
        k_q, k_policy = jax.random.split(key)
        sizes = (obs_dim + action_dim, *config.hidden_dims, 1)
        q = nn.create_critics(k_q, sizes, layer_norm=config.layer_norm, n=config.num_critics)
        policy = nn.create_tanh_gaussian(
            k_policy, (obs_dim, *config.hidden_dims, action_dim), nn.fan_in_uniform, offset=0.0
        )
        log_alpha = jnp.zeros(())
        adam = nn.adam(q=q, policy=policy, log_alpha=log_alpha)
        return cls(q, nn.tree_copy(q), policy, log_alpha, adam, obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: every loss is taken at the networks as they were before it."""
        config = self.config
        k_next, k_policy = jax.random.split(key)
        next_action, next_log_prob = self.policy.sample(batch.next_obs, KeySequence(k_next), 1)
        next_value = self._next_q(batch.next_obs[:, None], next_action, key)
        if config.backup_entropy:
            next_value = soft_value(next_value, jnp.exp(self.log_alpha), next_log_prob)
        target = td_target(batch.reward, config.discount * batch.mask, next_value[:, 0])

        def q_loss(q: Ensemble) -> tuple[Array, Array]:
            values = q(batch.obs, batch.action)
            return critic_loss(values, target), reduce(jnp.minimum, values).mean()

        agent, of_policy = self._improved(batch.obs, k_policy)
        agent, q_value, q_mean = agent.apply_loss("q", q_loss, config.critic_lr)
        agent = replace(agent, target=nn.soft_update(self.target, agent.q, config.tau))
        return agent, {"critic_loss": q_value, "q": q_mean} | of_policy

    def _improved(self, obs: Array, key: Array) -> tuple[Self, Metrics]:
        """The agent after a step of its policy and temperature, if one is due."""
        config, period = self.config, self.config.actor_period
        q = self.q.min_q if config.actor_q == "min" else self.q.mean_q
        if period == 1:
            return improved(self, q, obs, key, config.target_entropy)
        due = (self.adam["q"].count + 1) % period == 0
        alpha = jnp.exp(self.log_alpha)
        none = {"policy_loss": jnp.zeros(()), "entropy": jnp.zeros(()), "alpha": alpha}
        agent, metrics = jax.lax.cond(
            due, lambda: improved(self, q, obs, key, config.target_entropy), lambda: (self, none)
        )
        # So that the mean over many updates is the mean over those of the policy.
        return agent, {name: period * value for name, value in metrics.items()} | {"alpha": alpha}

    def _next_q(self, obs: Array, action: Array, key: Array) -> Array:
        subset, count = self.config.critic_subset, self.config.num_critics
        if subset is None or subset == count:
            return jnp.asarray(self.target.min_q(obs, action))
        chosen = jax.random.choice(jax.random.fold_in(key, 2), count, (subset,), replace=False)
        return subset_min_q(self.target, chosen, obs, action)
