"""Soft actor-critic (Haarnoja et al. 2018): off-policy learning with a tanh-Gaussian policy and a tuned temperature.

The critics learn r + γ·(min Q̄(s', a') − α·log π(a'|s')), the policy minimises α·log π − min Q, and α is tuned towards a
target entropy. `layer_norm` normalises the critics' hidden layers as RLPD does (Ball et al. 2023), which keeps Q finite
where the data has no actions. Every detail and its source: docs/algorithms/sac.md.
"""

from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import Agent, Draws, Metrics, Transitions, constant, pytree
from arb.agents.iql import td_target, twin_loss
from arb.agents.nets import AdamState, Precision, Twin, adam, copied, descend, fan_in_uniform, follow, with_precision
from arb.agents.policies import TanhGaussian
from arb.errors import check_choices


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SACConfig:
    """The defaults are the values of SAC's authors."""

    hidden: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, in every network."""
    discount: float = 0.99
    """γ: what a reward one step later is worth."""
    target_rate: float = 0.005
    """Share of the way that the target critics move towards the critics at each update."""
    learning_rate: float = 3e-4
    """Of the policy, the critics and the temperature."""
    target_entropy: float | None = None
    """The entropy the temperature is tuned towards; None is minus the number of action dimensions."""
    layer_norm: bool = False
    """Normalise the critics' hidden layers, as RLPD does."""
    precision: Precision = "float32"
    """Of the matrix products between hidden layers: float32, or bfloat16 summed in float32."""

    def __post_init__(self) -> None:
        check_choices(self)


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


# Steps of the policy and of its temperature --------------------------------------------------------------------------
def improve(
    policy: TanhGaussian, state: AdamState, q: Twin, log_alpha: Array, obs: Array, key: Array, rate: float
) -> tuple[TanhGaussian, AdamState, Array, Array]:
    """One step of the policy: the new one, its optimiser, its loss, and the log-densities of its draws."""

    def loss(policy: TanhGaussian) -> tuple[Array, Array]:
        action, log_prob = policy.draw(obs, Draws(key), 1)
        return policy_loss(jnp.exp(log_alpha), log_prob, q.least(obs[:, None], action)), log_prob

    return descend(loss, policy, state, rate)


def tune(
    log_alpha: Array, state: AdamState, log_prob: Array, target_entropy: float, rate: float
) -> tuple[Array, AdamState]:
    """One step of the temperature towards the target entropy."""

    def loss(log_alpha: Array) -> tuple[Array, None]:
        return temperature_loss(log_alpha, jax.lax.stop_gradient(log_prob), target_entropy), None

    log_alpha, state, _, _ = descend(loss, log_alpha, state, rate)
    return log_alpha, state


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class SAC(Agent):
    """A SAC agent, as a value."""

    q: Twin
    target: Twin
    policy: TanhGaussian
    log_alpha: Array
    q_adam: AdamState
    policy_adam: AdamState
    alpha_adam: AdamState
    obs_dim: int = constant()
    action_dim: int = constant()
    config: SACConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: SACConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or SACConfig()
        k_q, k_policy = jax.random.split(key)
        q = Twin.create(k_q, (obs_dim + action_dim, *config.hidden, 1), layer_norm=config.layer_norm)
        policy = TanhGaussian.create(k_policy, (obs_dim, *config.hidden, action_dim), fan_in_uniform, offset=0.0)
        log_alpha = jnp.zeros(())
        states = (adam(q), adam(policy), adam(log_alpha))
        agent = cls(q, copied(q), policy, log_alpha, *states, obs_dim, action_dim, config)
        return with_precision(agent, config.precision)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: every loss is taken at the networks as they were before it."""
        config, rate = self.config, self.config.learning_rate
        k_next, k_policy = jax.random.split(key)
        alpha = jnp.exp(self.log_alpha)
        next_action, next_log_prob = self.policy.draw(batch.next_obs, Draws(k_next), 1)
        next_q = self.target.least(batch.next_obs[:, None], next_action)
        next_value = soft_value(next_q, alpha, next_log_prob)[:, 0]
        target = td_target(batch.reward, config.discount * batch.mask, next_value)

        def critic_loss(q: Twin) -> tuple[Array, Array]:
            values = q(batch.obs, batch.action)
            return twin_loss(values, target), jnp.minimum(*values).mean()

        q, q_adam, q_loss, q_mean = descend(critic_loss, self.q, self.q_adam, rate)
        policy, policy_adam, p_loss, log_prob = improve(
            self.policy, self.policy_adam, self.q, self.log_alpha, batch.obs, k_policy, rate
        )
        entropy = -float(self.action_dim) if config.target_entropy is None else config.target_entropy
        log_alpha, alpha_adam = tune(self.log_alpha, self.alpha_adam, log_prob, entropy, rate)
        agent = replace(
            self,
            q=q,
            target=follow(self.target, q, config.target_rate),
            policy=policy,
            log_alpha=log_alpha,
            q_adam=q_adam,
            policy_adam=policy_adam,
            alpha_adam=alpha_adam,
        )
        return agent, {
            "critic_loss": q_loss,
            "policy_loss": p_loss,
            "q": q_mean,
            "alpha": alpha,
            "entropy": -log_prob.mean(),
        }
