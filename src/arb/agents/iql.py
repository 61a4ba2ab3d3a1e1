"""Implicit Q-learning (Kostrikov et al. 2022), for continuous and for discrete actions.

V is fitted to an expectile of min Q̄ over the data's actions, Q to r + γV(s'), and the policy to the data's actions
weighted by exp(β·advantage): nothing is ever evaluated at an action outside the data. `Critics`, the half that learns V
and Q, also serves PEX and FamO2O. Every detail and its source: docs/algorithms/iql.md.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import Agent, Metrics, Transitions, constant, pytree
from arb.agents.nets import MLP, AdamState, Precision, Twin, adam, copied, cosine, descend, follow, with_precision
from arb.agents.policies import Categorical, Gaussian
from arb.errors import check_choices


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class IQLConfig:
    """The defaults are the paper's locomotion values; `arb.lab.algorithms` holds AntMaze's."""

    hidden: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, in every network."""
    expectile: float = 0.7
    """τ: 0.5 is the mean over the data's actions, towards 1 their best."""
    temperature: float = 3.0
    """β of the weight exp(β·advantage)."""
    largest_weight: float = 100.0
    """Upper bound of that weight."""
    discount: float = 0.99
    """γ: what a reward one step later is worth."""
    target_rate: float = 0.005
    """Share of the way that the target critics move towards the critics at each update."""
    learning_rate: float = 3e-4
    """Of all networks (Adam)."""
    policy_decay: int | None = None
    """Updates in which the policy's learning rate falls to 0 along half a cosine; constant after `begin_online`."""
    actions: Literal["continuous", "discrete"] | None = None
    """Their kind; None is what a run's environment has, and continuous for an agent made by hand."""
    precision: Precision = "float32"
    """Of the matrix products between hidden layers: float32, or bfloat16 summed in float32."""

    def __post_init__(self) -> None:
        check_choices(self)


# Losses --------------------------------------------------------------------------------------------------------------
def expectile_loss(gap: Array, expectile: float) -> Array:
    """Squares of the gap, weighted τ above and 1 − τ below zero."""
    return jnp.mean(jnp.where(gap < 0, 1.0 - expectile, expectile) * gap**2)


def td_target(reward: Array, discount: Array, next_value: Array) -> Array:
    """r + discount·V(s'), where `discount` is γ, or 0 at a termination."""
    return reward + discount * next_value


def twin_loss(values: tuple[Array, Array], target: Array) -> Array:
    """Mean of the two mean squared errors."""
    return 0.5 * (jnp.mean((values[0] - target) ** 2) + jnp.mean((values[1] - target) ** 2))


def advantage_weight(advantage: Array, temperature: float | Array, largest: float) -> Array:
    """exp(β·advantage), at most `largest`."""
    return jnp.minimum(jnp.exp(temperature * advantage), largest)


def weighted_likelihood_loss(weight: Array, log_prob: Array) -> Array:
    """Negative weighted log-likelihood."""
    return -jnp.mean(weight * log_prob)


# Critics -------------------------------------------------------------------------------------------------------------
@pytree
class Critics:
    """V and twin Q with their target and optimisers."""

    q: Twin
    target: Twin
    value: MLP
    q_adam: AdamState
    value_adam: AdamState

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, hidden: tuple[int, ...]) -> Self:
        """Fresh critics whose target equals Q."""
        k_q, k_value = jax.random.split(key)
        q = Twin.create(k_q, (obs_dim + action_dim, *hidden, 1))
        value = MLP.create(k_value, (obs_dim, *hidden, 1))
        return cls(q, copied(q), value, adam(q), adam(value))

    def advantage(self, obs: Array, action: Array) -> Array:
        """min Q̄(s, a) − V(s)."""
        gap: Array = self.target.least(obs, action) - self.value.scalar(obs)
        return gap

    def update(self, batch: Transitions, action: Array, config: IQLConfig) -> tuple["Critics", Array, Metrics]:
        """One step of V, Q and the target; the advantage and the next value are those of V before its step."""
        q_data = self.target.least(batch.obs, action)
        next_value = self.value.scalar(batch.next_obs)

        def value_loss(value: MLP) -> tuple[Array, Array]:
            gap = q_data - value.scalar(batch.obs)
            return expectile_loss(gap, config.expectile), gap

        def critic_loss(q: Twin) -> tuple[Array, None]:
            target = td_target(batch.reward, config.discount * batch.mask, next_value)
            return twin_loss(q(batch.obs, action), target), None

        value, value_adam, v_loss, gap = descend(value_loss, self.value, self.value_adam, config.learning_rate)
        q, q_adam, q_loss, _ = descend(critic_loss, self.q, self.q_adam, config.learning_rate)
        critics = Critics(q, follow(self.target, q, config.target_rate), value, q_adam, value_adam)
        return critics, gap, {"value_loss": v_loss, "critic_loss": q_loss, "q": q_data.mean(), "advantage": gap.mean()}


def policy_rate(config: IQLConfig, online: bool, state: AdamState) -> float | Array:
    """The policy's learning rate at its next step."""
    if online or config.policy_decay is None:
        return config.learning_rate
    return config.learning_rate * cosine(state.count, config.policy_decay)


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class IQL(Agent):
    """An IQL agent, as a value."""

    critics: Critics
    policy: Gaussian | Categorical
    policy_adam: AdamState
    obs_dim: int = constant()
    action_dim: int = constant()
    config: IQLConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: IQLConfig | None = None) -> Self:
        """A fresh agent; with discrete actions `action_dim` is their number and an action is one of 0, 1, ..."""
        config = config or IQLConfig()
        k_critics, k_policy = jax.random.split(key)
        kind = Categorical if config.actions == "discrete" else Gaussian
        policy = kind.create(k_policy, (obs_dim, *config.hidden, action_dim))
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden)
        return with_precision(cls(critics, policy, adam(policy), obs_dim, action_dim, config), config.precision)

    def update(self, batch: Transitions, key: Array | None = None) -> tuple[Self, Metrics]:  # noqa: ARG002
        """One update of all networks; it needs no randomness."""
        action = batch.action
        if self.config.actions == "discrete":  # the critics read them as one-hot vectors
            action = jax.nn.one_hot(action, self.action_dim)
        critics, advantage, metrics = self.critics.update(batch, action, self.config)
        weight = advantage_weight(advantage, self.config.temperature, self.config.largest_weight)

        def policy_loss(policy: Gaussian | Categorical) -> tuple[Array, None]:
            return weighted_likelihood_loss(weight, policy.log_prob(batch.obs, batch.action)), None

        rate = policy_rate(self.config, self.online, self.policy_adam)
        policy, policy_adam, loss, _ = descend(policy_loss, self.policy, self.policy_adam, rate)
        agent = replace(self, critics=critics, policy=policy, policy_adam=policy_adam)
        return agent, metrics | {"policy_loss": loss}
