"""PEX (Zhang et al. 2023): keep the pre-trained policy, and let a new one grow beside it.

Before `begin_online` this is IQL. After it the old policy is frozen, a new one is trained, and each action is chosen
between the two by a softmax over κ·Q. Every detail and its source: docs/algorithms/pex.md.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import jax
from jax import Array

from arb.agents import nn
from arb.agents.agent import Agent, KeySequence, Metrics, Transitions, constant, pytree
from arb.agents.iql import Critics, IQLConfig, actor_lr, awr_loss, policy_weight
from arb.errors import DataError
from arb.policies.actors import Gaussian, PEXPolicy, clip_action


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PEXConfig(IQLConfig):
    """IQL's fields and how the two policies meet; the defaults are the paper's locomotion values."""

    inverse_temperature: float = 3.0
    """κ of the softmax over κ·Q (the paper's β_PEX)."""
    epsilon: float = 0.1
    """At evaluation, probability of a sample instead of the mode, in the new policy and in the choice."""
    new_policy: Literal["random", "copy"] = "random"
    """How the new policy starts: with random weights, or as a copy of the old one."""
    policy_actions: Literal["composite", "buffer"] = "composite"
    """The actions the new policy is fitted to: the pair's own choice at the batch's states, or those of the batch."""


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class PEX(Agent):
    """A PEX agent, as a value. `new` is made at creation and waits, untrained, until `begin_online`."""

    critics: Critics
    old: Gaussian
    new: Gaussian
    adam: dict[str, nn.AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: PEXConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: PEXConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or PEXConfig()
        if config.actions == "discrete":
            raise DataError("PEX supports only continuous actions: its config cannot have actions='discrete'")
        k_critics, k_old, k_new = jax.random.split(key, 3)
        sizes = (obs_dim, *config.hidden_dims, action_dim)
        old, new = nn.create_gaussian(k_old, sizes), nn.create_gaussian(k_new, sizes, nn.xavier, lowest=-5.0)
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden_dims)
        return cls(critics, old, new, nn.adam(old=old), obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update of the critics and of the policy in training: the old one, or after `begin_online` the new."""
        critics, advantage, metrics = self.critics.update(batch, batch.action, self.config)
        action = batch.action
        if self.online and self.config.policy_actions == "composite":
            pair = replace(self.pair, q=critics.q)
            # Values are of the clipped action, the likelihood of the sample itself: fitted to its own clipped samples,
            # a policy would grow narrower without any reason in its values.
            action = jax.lax.stop_gradient(pair.sample(batch.obs, KeySequence(key)))
            advantage = critics.advantage(batch.obs, clip_action(action))
        weight, of_weight = policy_weight(advantage, self.config)

        def policy_loss(policy: Gaussian) -> tuple[Array, None]:
            return awr_loss(weight, policy.log_prob(batch.obs, action)), None

        name = "new" if self.online else "old"
        agent, loss, _ = self.apply_loss(name, policy_loss, actor_lr(self.config, self.online, self.adam[name]))
        return replace(agent, critics=critics), metrics | of_weight | {"policy_loss": loss}

    @property
    def pair(self) -> PEXPolicy:
        """Both policies and the critic that chooses between them."""
        return PEXPolicy(self.old, self.new, self.critics.q, self.config.inverse_temperature, self.config.epsilon)

    @property
    def actor(self) -> Gaussian | PEXPolicy:
        """The networks that choose actions."""
        return self.pair if self.online else self.old

    def begin_online(self) -> Self:
        """Freeze the old policy and start training the new one, with an optimiser that has seen nothing."""
        new = nn.tree_copy(self.old) if self.config.new_policy == "copy" else self.new
        return replace(self, online=True, new=new, adam=nn.adam(new=new))
