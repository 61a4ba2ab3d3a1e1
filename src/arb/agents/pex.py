"""PEX (Zhang et al. 2023): keep the pre-trained policy, and let a new one grow beside it.

Before `begin_online` this is IQL. After it the old policy is frozen, a new one is trained, and each action is chosen
between the two by a softmax over κ·Q. Every detail and its source: docs/algorithms/pex.md.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import Agent, Draws, Metrics, Transitions, constant, pytree
from arb.agents.iql import Critics, IQLConfig, advantage_weight, policy_rate, weighted_likelihood_loss
from arb.agents.nets import AdamState, adam, copied, descend, with_precision, xavier
from arb.agents.policies import Gaussian
from arb.errors import DataError
from arb.policies import actors
from arb.policies.actors import in_box
from arb.replay.scores import Likelihood


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PEXConfig(IQLConfig):
    """IQL's fields and how the two policies meet; the defaults are the paper's locomotion values."""

    sharpness: float = 3.0
    """κ of the softmax over κ·Q (the paper's β_PEX)."""
    greed: float = 0.9
    """At evaluation, probability of the mode instead of a sample, in the new policy and in the choice (1 − ε)."""
    new_policy: Literal["random", "copy"] = "random"
    """How the new policy starts: with random weights, or as a copy of the old one."""
    policy_actions: Literal["composite", "buffer"] = "composite"
    """The actions the new policy is fitted to: the pair's own choice at the batch's states, or those of the batch."""
    scored: Literal["new", "mixture"] = "new"
    """The likelihood ARB reads online: the new policy's, or the pair's."""


# The two policies ----------------------------------------------------------------------------------------------------
@pytree
class Pair(actors.Pair):
    """The networks that choose actions online."""


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class PEX(Agent):
    """A PEX agent, as a value. `new` is drawn at creation and waits, untrained, until `begin_online`."""

    critics: Critics
    old: Gaussian
    new: Gaussian
    policy_adam: AdamState
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
        sizes = (obs_dim, *config.hidden, action_dim)
        old, new = Gaussian.create(k_old, sizes), Gaussian.create(k_new, sizes, xavier, lowest=-5.0)
        critics = Critics.create(k_critics, obs_dim, action_dim, config.hidden)
        return with_precision(cls(critics, old, new, adam(old), obs_dim, action_dim, config), config.precision)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update of the critics and of the policy in training: the old one, or after `begin_online` the new."""
        critics, advantage, metrics = self.critics.update(batch, batch.action, self.config)
        action = batch.action
        if self.online and self.config.policy_actions == "composite":
            pair = replace(self.pair, q=critics.q)
            # Values are of the clipped action, the likelihood of the draw itself: fitted to its own clipped draws, a
            # policy would grow narrower without any reason in its values.
            action = jax.lax.stop_gradient(pair.sample(batch.obs, Draws(key)))
            advantage = critics.advantage(batch.obs, in_box(action))
        weight = advantage_weight(advantage, self.config.temperature, self.config.largest_weight)

        def policy_loss(policy: Gaussian) -> tuple[Array, None]:
            return weighted_likelihood_loss(weight, policy.log_prob(batch.obs, action)), None

        rate = policy_rate(self.config, self.online, self.policy_adam)
        policy, policy_adam, loss, _ = descend(policy_loss, self.policy, self.policy_adam, rate)
        agent = replace(self, critics=critics, policy_adam=policy_adam)
        agent = replace(agent, new=policy) if self.online else replace(agent, old=policy)
        return agent, metrics | {"policy_loss": loss}

    @property
    def policy(self) -> Gaussian:
        """The policy in training."""
        return self.new if self.online else self.old

    @property
    def pair(self) -> Pair:
        """Both policies and the critic that chooses between them."""
        return Pair(self.old, self.new, self.critics.q, self.config.sharpness, self.config.greed)

    @property
    def actor(self) -> Gaussian | Pair:
        """The networks that choose actions."""
        return self.pair if self.online else self.old

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """What ARB reads: of the policy in training, or of the pair weighted by its choice between both modes."""
        if not (self.online and self.config.scored == "mixture"):
            return self.policy.score(obs, action, likelihood)
        q = self.critics.q
        gap = self.config.sharpness * (q.least(obs, self.old.mode(obs)) - q.least(obs, self.new.mode(obs)))
        per = self.action_dim if likelihood == "standard" else 1  # "standard" is a mean, and a mixture needs sums
        parts = [
            jax.nn.log_sigmoid(sign * gap) + per * policy.score(obs, action, likelihood)
            for sign, policy in ((1.0, self.old), (-1.0, self.new))
        ]
        return jnp.logaddexp(parts[0], parts[1]) / per

    def begin_online(self) -> Self:
        """Freeze the old policy and start training the new one, with an optimiser that has seen nothing."""
        new = copied(self.old) if self.config.new_policy == "copy" else self.new
        return replace(self, online=True, new=new, policy_adam=adam(new))
