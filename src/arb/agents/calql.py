"""Cal-QL (Nakamoto et al. 2023): conservative Q-learning that never pushes Q below the return the data has shown.

SAC without entropy in the backup, plus a term that lowers Q at a fan of sampled actions (30 per state) and raises it at
the data's. Calibration replaces Q of the policy's actions by max(Q, return-to-go); an open episode has return −inf,
which is no bound. Every detail and its source: docs/algorithms/calql.md.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.agent import Agent, Draws, Metrics, Transitions, constant, pytree
from arb.agents.iql import td_target
from arb.agents.nets import (
    AdamState,
    Precision,
    Twin,
    adam,
    copied,
    descend,
    follow,
    guarded,
    move,
    orthogonal,
    with_precision,
)
from arb.agents.policies import TanhGaussian
from arb.agents.sac import improve, tune
from arb.errors import DataError, check_choices


# Configuration -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CalQLConfig:
    """The defaults are the locomotion values of the paper and its release; `arb.lab.algorithms` holds AntMaze's."""

    policy_hidden: tuple[int, ...] = (256, 256, 256)
    """Units of each hidden layer of the policy."""
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    """Units of each hidden layer of the critics."""
    discount: float = 0.99
    """γ: what a reward one step later is worth."""
    target_rate: float = 0.005
    """Share of the way that the target critics move towards the critics at each update."""
    policy_rate: float = 3e-5
    """Learning rate of the policy and of its temperature."""
    critic_rate: float = 3e-4
    """Learning rate of the critics and of the Lagrange multiplier."""
    conservatism: float = 10.0
    """Weight of the conservative term."""
    samples: int = 10
    """Sampled actions per state and source: uniform, policy at s, policy at s'."""
    calibrate: bool = True
    """Never push Q below the return that the data has shown, while pre-training."""
    calibrate_online: bool = True
    """The same while fine-tuning."""
    lagrange: bool = False
    """Tune a multiplier so that the conservative gap stays at `target_gap`."""
    target_gap: float = 0.8
    """The conservative gap that the multiplier holds; not used without `lagrange`."""
    max_backup: bool = False
    """Bootstrap from the best of `samples` next actions instead of from one."""
    lowest_gap: float | None = None
    """Lower clip of the gap of each state."""
    chunk: int = 16
    """States whose fan is processed at once: 16 states x 31 actions x 256 units stay in the cache of one core."""
    precision: Precision = "float32"
    """Of the matrix products between hidden layers: float32, or bfloat16 summed in float32."""

    def __post_init__(self) -> None:
        check_choices(self)


# Losses --------------------------------------------------------------------------------------------------------------
def calibrated(q: Array, return_to_go: Array) -> Array:
    """Q of a fan (B, n), not below the return of its state (B,)."""
    return jnp.maximum(q, return_to_go[:, None])


def conservative_gap(q_fan: Array, log_prob: Array, q_data: Array, lowest: float | None = None) -> Array:
    """Soft maximum of Q over the fan, actions weighted by how rarely they are drawn, minus Q of the data: (B,)."""
    gap = jax.nn.logsumexp(q_fan - log_prob, axis=-1) - q_data
    return gap if lowest is None else jnp.maximum(gap, lowest)


def multiplier(log_multiplier: Array) -> Array:
    """The Lagrange multiplier, held in [0, 1e6]."""
    return jnp.clip(jnp.exp(log_multiplier), 0.0, 1e6)


# Critic loss over the fan --------------------------------------------------------------------------------------------
class Fan(NamedTuple):
    """Sampled actions; all but `target` are evaluated at the batch's own state, wherever they were drawn."""

    uniform: Array
    """(B, n, d) in [−1, 1]."""
    current: Array
    current_log_prob: Array
    next: Array
    next_log_prob: Array
    target: Array
    """(B, n, d) with max backup, else (B, 1, d): actions at the next state for the bootstrap."""


def draw_fan(policy: TanhGaussian, batch: Transitions, chance: Draws, config: CalQLConfig) -> Fan:
    """A fresh fan, detached from the policy."""
    current, current_log_prob = policy.draw(batch.obs, chance, config.samples)
    following, next_log_prob = policy.draw(batch.next_obs, chance, config.samples)
    target, _ = policy.draw(batch.next_obs, chance, config.samples if config.max_backup else 1)
    uniform = 2.0 * chance.random(current.shape) - 1.0
    return jax.lax.stop_gradient(Fan(uniform, current, current_log_prob, following, next_log_prob, target))


def error_and_gap(
    q: Array, y: Array, log_prob: Array, return_to_go: Array, config: CalQLConfig, calibrate: bool
) -> tuple[Array, Array]:
    """Mean squared TD error and mean conservative gap of one critic.

    `q` is (B, 3n + 1): uniform actions, the policy's at s', the policy's at s, the data's; `log_prob` (B, 3n) likewise.
    """
    uniform, policy, data = q[:, : config.samples], q[:, config.samples : -1], q[:, -1]
    if calibrate:
        policy = calibrated(policy, return_to_go)
    gap = conservative_gap(jnp.concatenate([uniform, policy], axis=1), log_prob, data, config.lowest_gap)
    return jnp.mean((data - y) ** 2), jnp.mean(gap)


def critic_terms(
    q: Twin, target: Twin, batch: Transitions, fan: Fan, config: CalQLConfig, calibrate: bool
) -> tuple[Array, Array]:
    """`error_and_gap` of both critics: two arrays of shape (2,)."""
    obs, next_obs = batch.obs[:, None], batch.next_obs[:, None]
    next_value = target.least(next_obs, fan.target).max(axis=-1)
    y = td_target(batch.reward, config.discount * batch.mask, next_value)
    uniform_log_prob = jnp.full(fan.uniform.shape[:2], batch.action.shape[-1] * math.log(0.5))
    log_prob = jnp.concatenate([uniform_log_prob, fan.next_log_prob, fan.current_log_prob], axis=1)
    actions = jnp.concatenate([fan.uniform, fan.next, fan.current, batch.action[:, None]], axis=1)
    terms = [error_and_gap(v, y, log_prob, batch.return_to_go, config, calibrate) for v in q(obs, actions)]
    return jnp.stack([error for error, _ in terms]), jnp.stack([gap for _, gap in terms])


def conservative_terms(gaps: Array, log_multiplier: Array, config: CalQLConfig) -> Array:
    """What each critic's gap adds to its loss."""
    if config.lagrange:
        return multiplier(log_multiplier) * config.conservatism * (gaps - config.target_gap)
    return config.conservatism * gaps


def multiplier_loss(gaps: Array, log_multiplier: Array, config: CalQLConfig) -> Array:
    """Falls when the multiplier rises as long as the gaps exceed their target."""
    return -0.5 * jnp.sum(conservative_terms(gaps, log_multiplier, config))


def critic_gradient(
    q: Twin, target: Twin, batch: Transitions, fan: Fan, log_multiplier: Array, config: CalQLConfig, calibrate: bool
) -> tuple[Array, Array, Twin]:
    """Loss, gaps (2,) and gradient of the critics, summed over chunks of states that fit the cache.

    The loss is a mean over states, so the mean over equal chunks is the same number. The chunks are the largest equal
    ones of at most `chunk` states that the batch divides into: of one state each if its size is a larger prime.
    """
    size = len(batch.reward)
    count = next(c for c in range(-(-size // config.chunk), size + 1) if size % c == 0)

    def loss(net: Twin, part: tuple[Transitions, Fan]) -> tuple[Array, Array]:
        errors, gaps = critic_terms(net, target, *part, config, calibrate)
        return jnp.sum(errors) + jnp.sum(conservative_terms(gaps, log_multiplier, config)), gaps

    def add(total: tuple[Array, Array, Twin], part: tuple[Transitions, Fan]) -> tuple[tuple[Array, Array, Twin], None]:
        (value, gaps), gradient = jax.value_and_grad(loss, has_aux=True)(q, part)
        return jax.tree.map(lambda t, x: t + x / count, total, (value, gaps, gradient)), None

    zero = (jnp.zeros(()), jnp.zeros(2), jax.tree.map(jnp.zeros_like, q))
    parts = jax.tree.map(lambda x: x.reshape(count, size // count, *x.shape[1:]), (batch, fan))
    total, _ = jax.lax.scan(add, zero, parts)
    return total


# Agent ---------------------------------------------------------------------------------------------------------------
@pytree
class CalQL(Agent):
    """A Cal-QL agent, as a value."""

    q: Twin
    target: Twin
    policy: TanhGaussian
    log_alpha: Array
    log_multiplier: Array
    q_adam: AdamState
    policy_adam: AdamState
    alpha_adam: AdamState
    multiplier_adam: AdamState
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
        q = Twin.create(k_q, (obs_dim + action_dim, *config.critic_hidden, 1), orthogonal)
        policy = TanhGaussian.create(k_policy, (obs_dim, *config.policy_hidden, action_dim))
        log_alpha, log_multiplier = jnp.zeros(()), jnp.ones(())
        states = (adam(q), adam(policy), adam(log_alpha), adam(log_multiplier))
        agent = cls(q, copied(q), policy, log_alpha, log_multiplier, *states, obs_dim, action_dim, config)
        return with_precision(agent, config.precision)

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One update: every loss is taken at the networks as they were before it."""
        config = self.config
        k_policy, k_fan = jax.random.split(key)
        fan = draw_fan(self.policy, batch, Draws(k_fan), config)
        calibrate = config.calibrate_online if self.online else config.calibrate
        q_loss, gaps, gradient = critic_gradient(
            self.q, self.target, batch, fan, self.log_multiplier, config, calibrate
        )

        policy, policy_adam, p_loss, log_prob = improve(
            self.policy, self.policy_adam, self.q, self.log_alpha, batch.obs, k_policy, config.policy_rate
        )
        log_alpha, alpha_adam = tune(
            self.log_alpha, self.alpha_adam, log_prob, -float(self.action_dim), config.policy_rate
        )
        q, q_adam = move(self.q, gradient, self.q_adam, config.critic_rate)
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
        if config.lagrange:

            def tighten(log_multiplier: Array) -> tuple[Array, None]:
                return multiplier_loss(gaps, log_multiplier, config), None

            log_m, adam_m, _, _ = descend(tighten, self.log_multiplier, self.multiplier_adam, config.critic_rate)
            agent = replace(agent, log_multiplier=log_m, multiplier_adam=adam_m)
        return agent, {
            "critic_loss": guarded(q_loss, gradient),
            "policy_loss": p_loss,
            "gap": gaps.mean(),
            "alpha": jnp.exp(self.log_alpha),
            "entropy": -log_prob.mean(),
        }
