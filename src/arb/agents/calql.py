"""Cal-QL (Nakamoto et al. 2023): conservative Q-learning that never pushes Q below the return the data has shown.

SAC without entropy in the backup, plus a term that lowers Q at sampled actions (30 per state) and raises it at the
data's. Calibration replaces Q of the policy's actions by max(Q, return-to-go); an open episode has return −inf, which
is no bound. Every detail and its source: docs/algorithms/calql.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents import nn
from arb.agents.agent import Agent, KeySequence, Metrics, Transitions, constant, pytree
from arb.agents.iql import td_target
from arb.agents.sac import improved
from arb.errors import DataError
from arb.policies.actors import TanhGaussian
from arb.policies.networks import Ensemble


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CalQLConfig:
    """The defaults are the locomotion values of the paper and its release; `arb.lab.agents` holds AntMaze's."""

    actor_hidden_dims: tuple[int, ...] = (256, 256, 256)
    """Units of each hidden layer of the policy."""
    critic_hidden_dims: tuple[int, ...] = (256, 256, 256)
    """Units of each hidden layer of the critics."""
    discount: float = 0.99
    """γ, the discount factor."""
    tau: float = 0.005
    """Rate of the target critics' soft update."""
    actor_lr: float = 3e-5
    """Learning rate of the policy and of its temperature."""
    critic_lr: float = 3e-4
    """Learning rate of the critics and of the Lagrange multiplier."""
    cql_alpha: float = 10.0
    """Weight of the conservative term."""
    cql_n_actions: int = 10
    """Sampled actions per state and source: uniform, policy at s, policy at s'."""
    calibrate: bool = True
    """Never push Q below the return that the data has shown, while pre-training."""
    calibrate_online: bool = True
    """The same while fine-tuning."""
    cql_lagrange: bool = False
    """Tune a multiplier so that the conservative gap stays at `cql_target_action_gap`."""
    cql_target_action_gap: float = 0.8
    """The conservative gap that the multiplier holds; not used without `cql_lagrange`."""
    cql_max_target_backup: bool = False
    """Bootstrap from the best of `cql_n_actions` next actions instead of from one."""
    cql_clip_diff_min: float | None = None
    """Lower clip of the gap of each state."""
    chunk: int = 16
    """States processed at once: 16 states x 31 actions x 256 units stay in the cache of one core."""


# Losses --------------------------------------------------------------------------------------------------------------
def calibrated(q: Array, return_to_go: Array) -> Array:
    """Q of sampled actions (B, n), not below the return of its state (B,)."""
    return jnp.maximum(q, return_to_go[:, None])


def conservative_gap(q_sampled: Array, log_prob: Array, q_data: Array, lowest: float | None = None) -> Array:
    """Soft maximum of Q over the sampled actions, weighted by their inverse density, minus Q of the data: (B,)."""
    gap = jax.nn.logsumexp(q_sampled - log_prob, axis=-1) - q_data
    return gap if lowest is None else jnp.maximum(gap, lowest)


# Critic loss over sampled actions -----------------------------------------------------------------------------------
class SampledActions(NamedTuple):
    """Sampled actions; all but `target` are evaluated at the batch's own state, wherever they were sampled."""

    uniform: Array
    """(B, n, d) in [−1, 1]."""
    current: Array
    current_log_prob: Array
    next: Array
    next_log_prob: Array
    target: Array
    """(B, n, d) with max backup, else (B, 1, d): actions at the next state for the bootstrap."""


def sample_actions(policy: TanhGaussian, batch: Transitions, rng: KeySequence, config: CalQLConfig) -> SampledActions:
    """New actions, detached from the policy."""
    current, current_log_prob = policy.sample(batch.obs, rng, config.cql_n_actions)
    following, next_log_prob = policy.sample(batch.next_obs, rng, config.cql_n_actions)
    target, _ = policy.sample(batch.next_obs, rng, config.cql_n_actions if config.cql_max_target_backup else 1)
    uniform = 2.0 * rng.random(current.shape) - 1.0
    return jax.lax.stop_gradient(SampledActions(uniform, current, current_log_prob, following, next_log_prob, target))


def error_and_gap(
    q: Array, y: Array, log_prob: Array, return_to_go: Array, config: CalQLConfig, calibrate: bool
) -> tuple[Array, Array]:
    """Mean squared TD error and mean conservative gap of one critic.

    `q` is (B, 3n + 1): uniform actions, the policy's at s', the policy's at s, the data's; `log_prob` (B, 3n) likewise.
    """
    uniform, policy, data = q[:, : config.cql_n_actions], q[:, config.cql_n_actions : -1], q[:, -1]
    if calibrate:
        policy = calibrated(policy, return_to_go)
    gap = conservative_gap(jnp.concatenate([uniform, policy], axis=1), log_prob, data, config.cql_clip_diff_min)
    return jnp.mean((data - y) ** 2), jnp.mean(gap)


def critic_terms(
    q: Ensemble, target: Ensemble, batch: Transitions, sampled: SampledActions, config: CalQLConfig, calibrate: bool
) -> tuple[Array, Array]:
    """`error_and_gap` of both critics: two arrays of shape (2,)."""
    obs, next_obs = batch.obs[:, None], batch.next_obs[:, None]
    next_value = target.min_q(next_obs, sampled.target).max(axis=-1)
    y = td_target(batch.reward, config.discount * batch.mask, next_value)
    uniform_log_prob = jnp.full(sampled.uniform.shape[:2], batch.action.shape[-1] * math.log(0.5))
    log_prob = jnp.concatenate([uniform_log_prob, sampled.next_log_prob, sampled.current_log_prob], axis=1)
    actions = jnp.concatenate([sampled.uniform, sampled.next, sampled.current, batch.action[:, None]], axis=1)
    terms = [error_and_gap(v, y, log_prob, batch.return_to_go, config, calibrate) for v in q(obs, actions)]
    return jnp.stack([error for error, _ in terms]), jnp.stack([gap for _, gap in terms])


def conservative_terms(gaps: Array, log_multiplier: Array, config: CalQLConfig) -> Array:
    """What each critic's gap adds to its loss."""
    if config.cql_lagrange:
        multiplier = jnp.clip(jnp.exp(log_multiplier), 0.0, 1e6)
        return multiplier * config.cql_alpha * (gaps - config.cql_target_action_gap)
    return config.cql_alpha * gaps


def multiplier_loss(gaps: Array, log_multiplier: Array, config: CalQLConfig) -> Array:
    """Falls when the multiplier rises as long as the gaps exceed their target."""
    return -0.5 * jnp.sum(conservative_terms(gaps, log_multiplier, config))


def critic_gradient(
    q: Ensemble,
    target: Ensemble,
    batch: Transitions,
    sampled: SampledActions,
    log_multiplier: Array,
    config: CalQLConfig,
    calibrate: bool,
) -> tuple[Array, Array, Ensemble]:
    """Loss, gaps (2,) and gradient of the critics, summed over chunks of states that fit the cache.

    The loss is a mean over states, so the mean over equal chunks is the same number. The chunks are the largest equal
    ones of at most `chunk` states that the batch divides into: of one state each if its size is a larger prime.
    """
    size = len(batch.reward)
    count = next(c for c in range(-(-size // config.chunk), size + 1) if size % c == 0)

    def loss(net: Ensemble, part: tuple[Transitions, SampledActions]) -> tuple[Array, Array]:
        errors, gaps = critic_terms(net, target, *part, config, calibrate)
        return jnp.sum(errors) + jnp.sum(conservative_terms(gaps, log_multiplier, config)), gaps

    def add(total: Any, part: tuple[Transitions, SampledActions]) -> tuple[Any, None]:
        (value, gaps), gradient = jax.value_and_grad(loss, has_aux=True)(q, part)
        return jax.tree.map(lambda t, x: t + x / count, total, (value, gaps, gradient)), None

    zero = (jnp.zeros(()), jnp.zeros(2), jax.tree.map(jnp.zeros_like, q))
    parts = jax.tree.map(lambda x: x.reshape(count, size // count, *x.shape[1:]), (batch, sampled))
    (value, gaps, gradient), _ = jax.lax.scan(add, zero, parts)
    return value, gaps, gradient


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class CalQL(Agent):
    """A Cal-QL agent, as a value."""

    q: Ensemble
    target: Ensemble
    policy: TanhGaussian
    log_alpha: Array
    log_multiplier: Array
    adam: dict[str, nn.AdamState]
    obs_dim: int = constant()
    action_dim: int = constant()
    config: CalQLConfig = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key: Array, obs_dim: int, action_dim: int, config: CalQLConfig | None = None) -> Self:
        """A fresh agent; actions are in [−1, 1]."""
        config = config or CalQLConfig()
        if config.chunk < 1:
            raise DataError(f"Cal-QL's chunk is {config.chunk}; it is a number of states, at least 1")
        k_q, k_policy = jax.random.split(key)
        q = nn.create_critics(k_q, (obs_dim + action_dim, *config.critic_hidden_dims, 1), nn.orthogonal)
        policy = nn.create_tanh_gaussian(k_policy, (obs_dim, *config.actor_hidden_dims, action_dim))
        log_alpha, log_multiplier = jnp.zeros(()), jnp.ones(())
        adam = nn.adam(q=q, policy=policy, log_alpha=log_alpha, log_multiplier=log_multiplier)
        return cls(q, nn.tree_copy(q), policy, log_alpha, log_multiplier, adam, obs_dim, action_dim, config)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: every loss is taken at the networks as they were before it."""
        config = self.config
        k_policy, k_actions = jax.random.split(key)
        sampled = sample_actions(self.policy, batch, KeySequence(k_actions), config)
        calibrate = config.calibrate_online if self.online else config.calibrate
        q_loss, gaps, gradient = critic_gradient(
            self.q, self.target, batch, sampled, self.log_multiplier, config, calibrate
        )
        agent, of_policy = improved(self, self.q.min_q, batch.obs, k_policy)
        agent = agent.apply_gradients("q", gradient, config.critic_lr)
        agent = replace(agent, target=nn.soft_update(self.target, agent.q, config.tau))
        if config.cql_lagrange:

            def loss(log_multiplier: Array) -> tuple[Array, None]:
                return multiplier_loss(gaps, log_multiplier, config), None

            agent, _, _ = agent.apply_loss("log_multiplier", loss, config.critic_lr)
        return agent, {"critic_loss": nn.nan_unless_finite(q_loss, gradient), "gap": gaps.mean()} | of_policy
