"""TD3+BC (Fujimoto, Gu 2021, arXiv 2106.06860): a deterministic actor as a plug-in, replayed by ARB.

    cd examples/agents
    arb run --agent td3_bc:TD3BC --strategy arb_auto

TD3 with one more term: the actor is pulled to the data's actions, and Q is divided by its mean absolute value, so that
`alpha` does not depend on the rewards. A deterministic policy has no likelihood. ARB reads minus the squared distance
from its action (`arb.distance_score`); with `arb_auto` the unit of that number does not matter.

`python td3_bc.py` checks the promises of an agent.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from arb.agents import Agent, constant, pytree
from arb.agents.nn import AdamState, adam, create_critics, create_gaussian, soft_update, tree_copy
from arb.policies.actors import Gaussian
from arb.policies.networks import Ensemble
from arb.testing import check_agent


@dataclass(frozen=True)
class TD3BCSettings:
    """The defaults are the values of TD3+BC's authors."""

    hidden_dims: tuple[int, ...] = (256, 256)
    discount: float = 0.99
    tau: float = 0.005
    learning_rate: float = 3e-4
    alpha: float = 2.5
    """Weight of Q against the distance from the data's actions."""
    exploration: float = 0.1
    """Standard deviation of the noise on actions while collecting."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target's action."""
    noise_clip: float = 0.5
    policy_delay: int = 2
    """Updates of the critics for each of the actor and the targets."""


def smoothed(action, noise, config):
    """The target's action with clipped noise, so that one sharp peak of Q is not believed."""
    return jnp.clip(action + jnp.clip(config.policy_noise * noise, -config.noise_clip, config.noise_clip), -1.0, 1.0)


def actor_loss(action, data_action, q, alpha):
    """Squared distance from the data minus Q in units of its size."""
    unit = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
    return jnp.mean((action - data_action) ** 2) - alpha * jnp.mean(q) / jnp.maximum(unit, 1e-6)


@pytree
class TD3BC(Agent):
    """A TD3+BC agent. Its policy explores with fixed noise, so it is a `Gaussian` whose width is never trained."""

    q: Ensemble
    q_target: Ensemble
    policy: Gaussian
    policy_target: Gaussian
    adam: dict[str, AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: TD3BCSettings = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key, obs_dim, action_dim, config):
        k_q, k_policy = jax.random.split(key)
        q = create_critics(k_q, (obs_dim + action_dim, *config.hidden_dims, 1))
        policy = create_gaussian(k_policy, (obs_dim, *config.hidden_dims, action_dim))
        policy = replace(policy, log_std=jnp.full(action_dim, math.log(config.exploration)))
        copies = (tree_copy(q), tree_copy(policy))
        return cls(q, copies[0], policy, copies[1], adam(q=q, policy=policy), obs_dim, action_dim, config)

    def update(self, batch, key):
        config, rate = self.config, self.config.learning_rate
        noise = jax.random.normal(key, batch.action.shape)
        next_action = smoothed(self.policy_target.mode(batch.next_obs), noise, config)
        y = batch.reward + config.discount * batch.mask * self.q_target.min_q(batch.next_obs, next_action)

        def critic_loss(q):
            values = q(batch.obs, batch.action)
            return sum(jnp.mean((value - y) ** 2) for value in values), values[0].mean()

        learned, q_loss, q_mean = self.apply_loss("q", critic_loss, rate)

        def policy_loss(policy):
            action = policy.mode(batch.obs)
            return actor_loss(action, batch.action, learned.q(batch.obs, action)[0], config.alpha), None

        moved, p_loss, _ = learned.apply_loss("policy", policy_loss, rate)
        moved = replace(
            moved,
            q_target=soft_update(self.q_target, moved.q, config.tau),
            policy_target=soft_update(self.policy_target, moved.policy, config.tau),
        )
        due = learned.adam["q"].count % config.policy_delay == 0
        agent = jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, learned)
        return agent, {"critic_loss": q_loss, "policy_loss": p_loss, "q": q_mean}

    def score(self, obs, action, likelihood="standard"):  # noqa: ARG002 - a distance has one reading
        return -0.5 * jnp.mean((action - self.policy.mode(obs)) ** 2, axis=-1)


if __name__ == "__main__":
    check_agent(TD3BC, TD3BCSettings(hidden_dims=(8, 8)))
