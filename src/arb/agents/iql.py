"""Implicit Q-learning (Kostrikov et al. 2022), for continuous and for discrete actions.

V is fitted to an expectile of min Q̄ over the data's actions, Q to r + γV(s'), and the policy to the data's actions
weighted by exp(β·advantage): nothing is ever evaluated at an action outside the data. β is given, or set in every batch
so that the weights keep an effective sample size. `Critics`, the half that learns V and Q, also serves PEX and FamO2O.
Every detail and its source: docs/algorithms/iql.md.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents import nn
from arb.agents.agent import Agent, Metrics, Transitions, constant, pytree
from arb.errors import DataError, check_choices
from arb.policies.actors import Categorical, Gaussian
from arb.policies.networks import MLP, Ensemble


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class IQLConfig:
    """The defaults are the paper's locomotion values; `arb.lab.agents` holds AntMaze's."""

    hidden_dims: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, in every network."""
    expectile: float = 0.7
    """τ: 0.5 is the mean over the data's actions, towards 1 their best."""
    beta: float | Literal["auto"] = 3.0
    """β of the weight exp(β·advantage); "auto" sets it in every batch, by `effective`, and makes the mean weight 1."""
    effective: float = 0.5
    """With beta "auto": effective sample size of the weights, as a share of the batch."""
    max_weight: float = 100.0
    """Upper bound of that weight."""
    discount: float = 0.99
    """γ, the discount factor."""
    tau: float = 0.005
    """Rate of the target critics' soft update."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    critic_lr: float = 3e-4
    """Learning rate of Q and V."""
    lr_decay_steps: int | None = None
    """Updates in which the policy's learning rate falls to 0 along half a cosine; constant after `begin_online`."""
    actions: Literal["continuous", "discrete"] | None = None
    """Kind of actions; None is what a run's environment has, and continuous for an agent made by hand."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0.0 < self.effective < 1.0:
            raise DataError(f"effective of {type(self).__name__} must be between 0 and 1, not {self.effective}")


# Losses --------------------------------------------------------------------------------------------------------------
def expectile_loss(gap: Array, expectile: float) -> Array:
    """Squares of the gap, weighted τ above and 1 − τ below zero."""
    return jnp.mean(jnp.where(gap < 0, 1.0 - expectile, expectile) * gap**2)


def td_target(reward: Array, discount: Array, next_value: Array) -> Array:
    """r + discount·V(s'), where `discount` is γ, or 0 at a termination."""
    return reward + discount * next_value


def critic_loss(values: tuple[Array, ...], target: Array, weight: Array | float = 1.0) -> Array:
    """Mean over the critics of their mean squared errors, each row's times its weight."""
    total: Array = sum(jnp.mean(weight * (value - target) ** 2) for value in values)  # type: ignore[assignment]
    return total / len(values)


def advantage_weight(advantage: Array, beta: float | Array, largest: float) -> Array:
    """exp(β·advantage), at most `largest`."""
    return jnp.minimum(jnp.exp(beta * advantage), largest)


def effective_share(weight: Array) -> Array:
    """Effective sample size (Σw)²/Σw² of weights, as a share of their number."""
    return jnp.sum(weight) ** 2 / (weight.size * jnp.sum(weight**2))


def balanced_weight(advantage: Array, effective: float) -> tuple[Array, Array]:
    """exp(β·advantage) divided by its mean, and the β at which its effective sample size is a share of the batch.

    The share falls with β, from 1 to that of the rows with the greatest advantage, so bisection finds the one solution,
    or its end of the range. Neither the scale nor the level of the advantages matters for the weights. None of them
    exceeds √(rows / effective).
    """
    below = jax.lax.stop_gradient(advantage - jnp.max(advantage))
    extent = -jnp.mean(below)
    unit = below / jnp.where(extent > 0.0, extent, 1.0)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        too_even = effective_share(jnp.exp(jnp.exp(middle) * unit)) > effective
        return jnp.where(too_even, middle, low), jnp.where(too_even, high, middle)

    # In units of the mean distance from the greatest advantage, the solution is always within these limits.
    ends = (jnp.log(jnp.float32(1e-3)), jnp.log(jnp.float32(1e3)))
    low, high = jax.lax.fori_loop(0, 24, halve, ends)
    steepness = jnp.exp(0.5 * (low + high))
    weight = jnp.exp(steepness * unit)
    return weight / jnp.mean(weight), jnp.where(extent > 0.0, steepness / extent, 0.0)


def policy_weight(advantage: Array, config: IQLConfig) -> tuple[Array, Metrics]:
    """The weight of every row in the policy's loss, at most `max_weight`, and what there is to know about it."""
    if isinstance(config.beta, str):
        weight, beta = balanced_weight(advantage, config.effective)
        weight = jnp.minimum(weight, config.max_weight)
    else:
        weight, beta = advantage_weight(advantage, config.beta, config.max_weight), jnp.float32(config.beta)
    return weight, {"beta": beta} | weight_metrics(weight, config)


def weight_metrics(weight: Array, config: IQLConfig) -> Metrics:
    """The effective sample size of the weights as a share of the batch, and the share of rows at the upper bound."""
    clipped = jnp.mean(weight >= config.max_weight)
    return {"weight_effective": effective_share(weight), "weight_clipped": clipped}


def awr_loss(weight: Array, log_prob: Array) -> Array:
    """Negative weighted log-likelihood."""
    return -jnp.mean(weight * log_prob)


# Critics -------------------------------------------------------------------------------------------------------------
@pytree
class Critics(nn.Trainable):
    """V and two Q with their target and optimisers."""

    q: Ensemble
    target: Ensemble
    value: MLP
    adam: dict[str, nn.AdamState]

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, hidden_dims: tuple[int, ...]) -> Self:
        """Fresh critics whose target equals Q."""
        k_q, k_value = jax.random.split(key)
        q = nn.create_critics(k_q, (obs_dim + action_dim, *hidden_dims, 1))
        value = nn.create_mlp(k_value, (obs_dim, *hidden_dims, 1))
        return cls(q, nn.tree_copy(q), value, nn.adam(q=q, value=value))

    def advantage(self, obs: Array, action: Array) -> Array:
        """min Q̄(s, a) − V(s)."""
        gap: Array = self.target.min_q(obs, action) - self.value.scalar(obs)
        return gap

    def update(self, batch: Transitions, action: Array, config: IQLConfig) -> tuple["Critics", Array, Metrics]:
        """One step of V, Q and the target; the advantage and the next value are those of V before its step."""
        q_data = self.target.min_q(batch.obs, action)
        next_value = self.value.scalar(batch.next_obs)

        def value_loss(value: MLP) -> tuple[Array, Array]:
            gap = q_data - value.scalar(batch.obs)
            return expectile_loss(gap, config.expectile), gap

        def q_loss(q: Ensemble) -> tuple[Array, None]:
            target = td_target(batch.reward, config.discount * batch.mask, next_value)
            return critic_loss(q(batch.obs, action), target), None

        critics, v_value, gap = self.apply_loss("value", value_loss, config.critic_lr)
        critics, q_value, _ = critics.apply_loss("q", q_loss, config.critic_lr)
        critics = replace(critics, target=nn.soft_update(self.target, critics.q, config.tau))
        metrics = {"value_loss": v_value, "critic_loss": q_value, "q": q_data.mean(), "advantage": gap.mean()}
        return critics, gap, metrics


def actor_lr(config: IQLConfig, online: bool, state: nn.AdamState) -> float | Array:
    """The policy's learning rate at its next step."""
    if online or config.lr_decay_steps is None:
        return config.actor_lr
    return config.actor_lr * nn.cosine(state.count, config.lr_decay_steps)


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class IQL(Agent):
    """An IQL agent, as a value."""

    critics: Critics
    policy: Gaussian | Categorical
    adam: dict[str, nn.AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: IQLConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: IQLConfig | None = None) -> Self:
        """A fresh agent; with discrete actions `action_dim` is their number and an action is one of 0, 1, ..."""
        config = config or IQLConfig()
        k_critics, k_policy = jax.random.split(key)
        sizes = (obs_dim, *config.hidden_dims, action_dim)
        discrete = config.actions == "discrete"
        policy = Categorical(nn.create_mlp(k_policy, sizes)) if discrete else nn.create_gaussian(k_policy, sizes)
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden_dims)
        return cls(critics, policy, nn.adam(policy=policy), obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array | None = None) -> tuple[Self, Metrics]:  # noqa: ARG002
        """One update of all networks; it needs no randomness."""
        action = batch.action
        if self.config.actions == "discrete":  # the critics read them as one-hot vectors
            action = jax.nn.one_hot(action, self.action_dim)
        critics, advantage, metrics = self.critics.update(batch, action, self.config)
        weight, of_weight = policy_weight(advantage, self.config)

        def policy_loss(policy: Gaussian | Categorical) -> tuple[Array, None]:
            return awr_loss(weight, policy.log_prob(batch.obs, batch.action)), None

        rate = actor_lr(self.config, self.online, self.adam["policy"])
        agent, loss, _ = self.apply_loss("policy", policy_loss, rate)
        return replace(agent, critics=critics), metrics | of_weight | {"policy_loss": loss}
