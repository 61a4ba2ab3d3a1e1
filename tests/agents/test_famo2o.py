"""FamO2O: code, range, weights and losses by hand, and who picks the member."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import FamO2O, FamO2OConfig
from arb.agents.agent import KeySequence
from arb.agents.famo2o import balance_loss, entropy_loss, member_value
from arb.agents.iql import advantage_weight
from arb.policies.actors import Balance, encode, rescale
from arb.policies.networks import MLP
from arb.replay.scores import tanh_gaussian_log_likelihood
from tests.agents.conftest import random_batches, updated

SMALL = FamO2OConfig(hidden_dims=(8, 8))
ONCE = replace(SMALL, actor_lr=0.01, critic_lr=0.01, lr_decay_steps=1)


def test_the_code_worked_by_hand():
    expected = [f(5.0 / d) for d in (1.0, 21.5443469, 464.1588834) for f in (math.sin, math.cos)]
    np.testing.assert_allclose(encode(jnp.array(5.0)), expected, rtol=1e-5)
    assert encode(np.zeros((3, 2), np.float32)).shape == (3, 2, 6)
    assert isinstance(encode(np.float32([1.0])), np.ndarray)


def test_range_and_losses_worked_by_hand():
    np.testing.assert_allclose(rescale(jnp.array([-1.0, 0.0, 1.0]), 8.0, 14.0), [8.0, 11.0, 14.0])
    assert float(balance_loss(jnp.array(2.0), jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]))) == 3.0
    assert float(entropy_loss(jnp.log(jnp.array(2.0)), jnp.array([0.5, 0.5]), -0.5)) == pytest.approx(2.0)


def test_every_sample_is_weighted_by_its_own_balance():
    # The release of FamO2O broadcasts (B,) against (B, 1) here, so that every sample is weighted by all balances.
    weight = advantage_weight(jnp.array([1.0, 1.0, -1.0]), jnp.array([1.0, 2.0, 3.0]), 100.0)
    np.testing.assert_allclose(weight, np.exp([1.0, 2.0, -3.0]), rtol=1e-6)
    agent = FamO2O.create(jax.random.key(0), 4, 2, ONCE)
    batch, key = random_batches(8), jax.random.key(1)
    _, metrics = updated(agent, batch, key)
    member = agent._members(jnp.array(batch.obs), KeySequence(jax.random.split(key)[0]))
    advantage = agent.critics.advantage(batch.obs, batch.action)
    log_prob = agent.universal.log_prob(agent.actor.conditioned(batch.obs, member), batch.action)
    triples = zip(member.tolist(), advantage.tolist(), log_prob.tolist(), strict=True)
    expected = -sum(math.exp(b * u) * p for b, u, p in triples) / 8
    assert float(metrics["policy_loss"]) == pytest.approx(expected, rel=1e-4)


def test_steps_have_their_rates_and_only_the_universal_policys_falls():
    agent, batch, key = FamO2O.create(jax.random.key(0), 4, 2, ONCE), random_batches(8), jax.random.key(1)
    after, metrics = updated(agent, batch, key)
    later, _ = updated(after, batch, key)

    def step(before, now) -> float:
        return max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (before, now)), strict=True))

    parts = [(a.universal, a.balance, a.log_temperature) for a in (agent, after, later)]
    # Adam's first step has the length of its rate; after one update lr_decay_steps leaves nothing of the policy's.
    assert list(map(step, parts[0], parts[1])) == pytest.approx([0.01] * 3, rel=1e-3)
    assert [step(a, b) > 0.0 for a, b in zip(parts[1], parts[2], strict=True)] == [False, True, True]
    # Adam's first moment is a tenth of the gradient, which at temperature 1 is the entropy above its target.
    assert float(after.adam["log_temperature"].mu) == pytest.approx(0.1 * (float(metrics["entropy"]) + 0.5), rel=1e-4)


def test_members_are_uniform_offline_and_picked_online():
    agent = FamO2O.create(jax.random.key(0), 4, 2, SMALL)
    obs, chance = jnp.zeros((5000, 4)), KeySequence(jax.random.key(2))
    offline = np.asarray(agent._members(obs, chance))
    assert 1.0 <= offline.min() < 1.01 < 4.99 < offline.max() <= 5.0
    assert offline.mean() == pytest.approx(3.0, abs=0.1)
    narrow = replace(agent.balance, log_std=jnp.array(-10.0))
    agent = replace(agent.begin_online(), balance=narrow)
    np.testing.assert_allclose(agent._members(obs, chance), narrow.mode(obs), atol=1e-3)


def test_the_balance_stays_in_its_range_and_knows_its_density():
    net = MLP((jnp.zeros((1, 1)),), (jnp.array([0.7]),))
    balance = Balance(net, jnp.array(-20.0), 1.0, 5.0)
    value, _ = balance.sample(jnp.zeros((4, 1)), KeySequence(jax.random.key(0)))
    assert float(balance.mode(jnp.zeros((1, 1)))[0]) == pytest.approx(3 + 2 * math.tanh(0.7))
    x = np.arctanh(np.clip((np.asarray(value, np.float64) - 3) / 2, -1, 1))
    std = math.exp(-10.0)  # the clip of log_std
    np.testing.assert_allclose(x, 0.7, atol=5 * std)
    wider = replace(balance, log_std=jnp.array(-0.5))
    value, log_prob = wider.sample(jnp.zeros((50, 1)), KeySequence(jax.random.key(0)))
    squashed, mean, log_std = (np.asarray(value)[:, None] - 3) / 2, np.full((50, 1), 0.7), np.full((50, 1), -0.5)
    np.testing.assert_allclose(
        log_prob, tanh_gaussian_log_likelihood(squashed, mean, log_std, "density"), rtol=1e-3, atol=1e-3
    )
    wide, _ = replace(balance, log_std=jnp.array(2.0)).sample(jnp.zeros((1000, 1)), KeySequence(jax.random.key(0)))
    assert 1.0 <= float(wide.min()) < float(wide.max()) <= 5.0


def test_acting_and_scoring_use_the_balance_of_the_mean():
    agent, batch = FamO2O.create(jax.random.key(0), 4, 2, SMALL), random_batches(6)
    b = agent.balance.mode(batch.obs)
    chosen = jnp.concatenate([batch.obs, encode(b)], axis=-1)
    np.testing.assert_allclose(agent.mode(batch.obs), agent.universal.mode(chosen), rtol=1e-5)
    expected = agent.universal.score(chosen, batch.action)
    np.testing.assert_allclose(agent.score(batch.obs, batch.action), expected, rtol=1e-5)


def test_a_balance_is_judged_by_the_smaller_target_critic():
    agent, obs = FamO2O.create(jax.random.key(0), 4, 2, SMALL), jnp.array(random_batches(6).obs)
    family = replace(agent.actor, universal=replace(agent.universal, log_std=jnp.full(2, -20.0), lowest=-20.0))
    critics = replace(agent.critics, q=jax.tree.map(lambda x: 3.0 * x, agent.critics.q))
    value, _ = member_value(family, family.balance, obs, critics, KeySequence(jax.random.key(1)))
    balance, _ = family.balance.sample(obs, KeySequence(jax.random.key(1)))
    action = family.universal.mode(family.conditioned(obs, balance))
    first, second = critics.target(obs, action)
    np.testing.assert_allclose(value, jnp.minimum(first, second), atol=1e-5)


def test_the_universal_policy_has_a_floor_under_its_width():
    universal = FamO2O.create(jax.random.key(0), 4, 2, SMALL).universal
    assert replace(universal, log_std=jnp.full(2, -99.0)).bounded_log_std().tolist() == [-5.0, -5.0]


def test_an_odd_code_is_refused():
    with pytest.raises(ValueError, match="code_size is 5; give an even number"):
        FamO2O.create(jax.random.key(0), 4, 2, replace(SMALL, code_size=5))
