"""FQL (Park, Li, Levine 2025): flow Q-learning, and with chunks of actions QC-FQL (Li, Zhou, Levine 2025).

A flow clones the data: its velocity field leads from noise to actions in a few Euler steps. A second network makes the
action from the same noise in one step. It is distilled from the flow and pushed by Q, so no gradient goes through the
steps of the flow. This one-step actor acts, is bootstrapped from, and is what ARB scores; the flow only clones the
data. With a `chunk` above 1 all of this is done for so many actions at once, which are carried out one after the other,
and Q learns from the return over them. Every detail and its source: docs/algorithms/fql.md.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents import nn
from arb.agents.agent import Agent, KeySequence, Metrics, Transitions, constant, pytree
from arb.agents.iql import critic_loss, td_target
from arb.errors import DataError, check_choices
from arb.policies.actors import OneStep, clip_action, join_chunk
from arb.policies.networks import MLP, Ensemble


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FQLConfig:
    """The defaults are the values of FQL's authors; `alpha` is to be chosen for each task."""

    hidden_dims: tuple[int, ...] = (512, 512, 512, 512)
    """Units of each hidden layer, in every network."""
    discount: float = 0.99
    """γ, the discount factor."""
    tau: float = 0.005
    """Rate of the target critics' soft update."""
    actor_lr: float = 3e-4
    """Learning rate of the flow and of the one-step actor."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    alpha: float = 10.0
    """Weight of the distillation against Q: the larger, the closer the actor stays to the data."""
    normalize_q: bool = False
    """Divide Q in the actor's loss by its mean absolute value, so that `alpha` does not depend on the reward's unit."""
    flow_steps: int = 10
    """Euler steps from noise to an action of the flow."""
    target_q: Literal["mean", "min"] = "mean"
    """What is bootstrapped from: the mean of both target critics, or the smaller one."""
    layer_norm: bool = True
    """Normalise the critics' hidden layers."""
    chunk: int = 1
    """Actions that are chosen at once and carried out without looking again; QC-FQL has 5."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("flow_steps", "chunk"):
            if getattr(self, name) < 1:
                raise DataError(f"FQL's {name} is {getattr(self, name)}; give at least 1")


# Losses --------------------------------------------------------------------------------------------------------------
def flow_matching_loss(
    flow: MLP, obs: Array, action: Array, noise: Array, t: Array, valid: Array | float = 1.0
) -> Array:
    """Mean squared error of the velocity on the straight line from noise at t = 0 to the action at t = 1.

    Entries that are not `valid`, behind the end of an episode, count as 0.
    """
    velocity = flow(obs, (1.0 - t) * noise + t * action, t)
    return jnp.mean(valid * (velocity - (action - noise)) ** 2)


def integrate(flow: MLP, obs: Array, noise: Array, steps: int) -> Array:
    """The flow's action for this noise, by Euler's method."""

    def step(i: Array, x: Array) -> Array:
        t = jnp.full((*x.shape[:-1], 1), i / steps, x.dtype)
        moved: Array = x + flow(obs, x, t) / steps
        return moved

    action: Array = clip_action(jax.lax.fori_loop(0, steps, step, noise))
    return action


def distillation_loss(action: Array, flow_action: Array) -> Array:
    """Mean squared distance of the one-step actor from the flow, at the same noise."""
    return jnp.mean((action - flow_action) ** 2)


def improvement_loss(q: Array, normalize: bool) -> Array:
    """Minus the mean of Q, in units of its mean absolute value if asked for."""
    scale = jax.lax.stop_gradient(1.0 / jnp.maximum(jnp.mean(jnp.abs(q)), 1e-6)) if normalize else 1.0
    return -scale * jnp.mean(q)


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class FQL(Agent):
    """An FQL agent, as a value."""

    q: Ensemble
    target: Ensemble
    flow: MLP
    policy: OneStep
    adam: dict[str, nn.AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: FQLConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: FQLConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or FQLConfig()
        k_q, k_flow, k_policy = jax.random.split(key, 3)
        out, hidden = action_dim * config.chunk, config.hidden_dims
        both = obs_dim + out
        q = nn.create_critics(k_q, (both, *hidden, 1), layer_norm=config.layer_norm)
        flow = nn.create_mlp(k_flow, (both + 1, *hidden, out))
        policy = OneStep(nn.create_mlp(k_policy, (both, *hidden, out)), chunk=config.chunk)
        adam = nn.adam(q=q, flow=flow, policy=policy)
        return cls(q, nn.tree_copy(q), flow, policy, adam, obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: every loss is taken at the networks as they were before it."""
        config, rng = self.config, KeySequence(key)
        data = join_chunk(batch.action, config.chunk)
        whole: Array | float = 1.0  # critics learn from whole chunks, the flow from the steps that there are
        valid: Array | float = 1.0
        if config.chunk > 1:
            whole = batch.valid[:, -1]
            valid = jnp.repeat(batch.valid, self.action_dim, axis=-1)
        next_action = join_chunk(self.policy.act(batch.next_obs, rng), config.chunk)
        next_q = self.target.mean_q if config.target_q == "mean" else self.target.min_q
        target = td_target(batch.reward, config.discount * batch.mask, next_q(batch.next_obs, next_action))

        def q_loss(q: Ensemble) -> tuple[Array, Array]:
            values = q(batch.obs, data)
            return critic_loss(values, target, whole), reduce(jnp.minimum, values).mean()

        noise, t = rng.standard_normal(data.shape), rng.random((len(batch.reward), 1))

        def flow_loss(flow: MLP) -> tuple[Array, None]:
            return flow_matching_loss(flow, batch.obs, data, noise, t, valid), None

        start = rng.standard_normal(data.shape)
        flow_action = integrate(self.flow, batch.obs, start, config.flow_steps)

        def policy_loss(policy: OneStep) -> tuple[Array, Array]:
            action = policy.sample(batch.obs, start)
            distilled = distillation_loss(action, flow_action)
            improved = improvement_loss(self.q.mean_q(batch.obs, clip_action(action)), config.normalize_q)
            return config.alpha * distilled + improved, distilled

        agent, q_value, q_mean = self.apply_loss("q", q_loss, config.critic_lr)
        agent, flow_value, _ = agent.apply_loss("flow", flow_loss, config.actor_lr)
        agent, loss, distilled = agent.apply_loss("policy", policy_loss, config.actor_lr)
        agent = replace(agent, target=nn.soft_update(self.target, agent.q, config.tau))
        metrics = {"critic_loss": q_value, "flow_loss": flow_value, "distillation_loss": distilled, "policy_loss": loss}
        return agent, metrics | {"q": q_mean}
