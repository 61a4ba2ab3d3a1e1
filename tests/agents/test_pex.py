"""PEX: the choice between two policies, by hand and at extreme values, and the switch to online."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb.agents import IQL, PEX, IQLConfig, PEXConfig
from arb.agents.agent import KeySequence
from arb.agents.pex import PEXPolicy
from arb.policies.actors import Gaussian, old_probability
from arb.policies.networks import MLP, Ensemble
from tests.agents.conftest import random_batches, updated

SMALL = PEXConfig(hidden_dims=(8, 8))


def linear(weights: list[float], bias: list[float], inputs: int) -> MLP:
    return MLP((jnp.array(weights, jnp.float32).reshape(inputs, -1),), (jnp.array(bias, jnp.float32),))


def pair(old_mean: float, new_mean: float, slope: float, **settings: float) -> PEXPolicy:
    """Two policies of almost no width, and Q(s, a) = slope * a."""
    old, new = (Gaussian(linear([0.0], [math.atanh(mean)], 1), jnp.array([-15.0])) for mean in (old_mean, new_mean))
    q = linear([0.0, slope], [0.0], 2)
    return PEXPolicy(old, new, Ensemble((q, q)), **{"inverse_temperature": 3.0, "epsilon": 0.1, **settings})


def test_probabilities_worked_by_hand():
    # Softmax of (3 ln 2, 0): 8 / 9.
    assert float(old_probability(jnp.log(jnp.array(2.0)), jnp.array(0.0), 3.0)) == pytest.approx(8 / 9)
    assert float(old_probability(jnp.array(-7.0), jnp.array(-7.0), 10.0)) == 0.5


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.sampled_from([3.0, 10.0]))
def test_the_softmax_is_stable_where_exponentials_overflow(a, b, kappa):
    p, other = (float(old_probability(*map(np.float32, q), kappa)) for q in ((a, b), (b, a)))
    assert math.isfinite(p)
    assert p + other == pytest.approx(1.0, abs=1e-6)
    if abs(a - b) > 1e-3:
        assert (p >= 0.5) == (a > b)


def test_actions_are_chosen_with_those_probabilities():
    # Q differs by 1 between the actions 0.5 and -0.5, so the old one is taken with probability 1 / (1 + e^-3).
    actions = np.asarray(pair(0.5, -0.5, 1.0).act(jnp.zeros((20_000, 1)), KeySequence(jax.random.key(0))))[:, 0]
    share = np.mean(np.isclose(actions, 0.5, atol=1e-3))
    assert share + np.mean(np.isclose(actions, -0.5, atol=1e-3)) == 1.0
    assert share == pytest.approx(1 / (1 + math.exp(-3)), abs=0.006)


def test_evaluation_is_greedy_and_with_a_key_nearly_so():
    obs, both = jnp.zeros((20_000, 1)), pair(0.5, -0.5, 1.0)
    assert np.allclose(both.mode(obs), 0.5, atol=1e-3)
    assert np.allclose(pair(0.5, -0.5, -1.0).mode(obs), -0.5, atol=1e-3)
    share = np.mean(np.isclose(both.mode(obs, KeySequence(jax.random.key(0))), -0.5, atol=1e-3))
    # One time in ten the choice is drawn, and then it is the worse action with probability 1 / (1 + e^3).
    assert share == pytest.approx(0.1 / (1 + math.exp(3)), abs=0.002)


def test_evaluation_with_a_key_now_and_then_draws_from_the_new_policy():
    both = pair(-0.5, 0.5, 1.0)  # the new policy's action is the better one
    both = replace(both, new=replace(both.new, log_std=jnp.array([-3.0])))
    actions = np.asarray(both.mode(jnp.zeros((20_000, 1)), KeySequence(jax.random.key(0))))[:, 0]
    drawn = ~(np.isclose(actions, 0.5, atol=1e-5) | np.isclose(actions, -0.5, atol=1e-5))
    # One time in ten it is a draw, and 0.9 + 0.1 / (1 + e^-3) of these are taken.
    assert drawn.mean() == pytest.approx(0.1 * (0.9 + 0.1 / (1 + math.exp(-3))), abs=0.007)
    assert actions[drawn].std() == pytest.approx(math.exp(-3.0), rel=0.1)


def test_the_new_policy_has_a_floor_of_its_own_under_its_width():
    agent = PEX.create(jax.random.key(0), 4, 2, SMALL)
    narrow = [replace(policy, log_std=jnp.full(2, -99.0)) for policy in (agent.old, agent.new)]
    assert [policy.bounded_log_std().tolist() for policy in narrow] == [[-20.0] * 2, [-5.0] * 2]


def test_offline_it_is_iql_with_its_falling_rate():
    batch, key = random_batches(16), jax.random.key(1)
    pex = PEX.create(jax.random.key(0), 4, 2, replace(SMALL, lr_decay_steps=1))
    iql = IQL.create(jax.random.key(0), 4, 2, IQLConfig(hidden_dims=(8, 8), lr_decay_steps=1))
    iql = replace(iql, critics=pex.critics, policy=pex.old)
    (pex, ours), (iql, theirs) = updated(pex, batch, key), updated(iql, batch, key)
    assert {k: float(v) for k, v in ours.items()} == pytest.approx({k: float(v) for k, v in theirs.items()}, rel=1e-5)
    np.testing.assert_allclose(pex.mode(batch.obs), iql.mode(batch.obs), rtol=1e-5)
    np.testing.assert_allclose(pex.score(batch.obs, batch.action), iql.score(batch.obs, batch.action), rtol=1e-4)
    later, _ = updated(pex, batch, key)  # after one update the policy's rate is 0
    np.testing.assert_array_equal(later.mode(batch.obs), pex.mode(batch.obs))
    assert (later.critics.value.biases[-1] != pex.critics.value.biases[-1]).all()


@pytest.mark.parametrize(("start", "same"), [("copy", True), ("random", False)])
def test_the_new_policy_starts_as_asked(start, same):
    agent = PEX.create(jax.random.key(0), 4, 2, replace(SMALL, new_policy=start))
    agent = agent.apply_gradients("old", agent.old, 0.1).begin_online()  # after a step along any gradient
    obs = jnp.array(random_batches(16).obs)
    assert bool(jnp.allclose(agent.old.mode(obs), agent.new.mode(obs))) is same
    assert not any(x.any() for x in jax.tree.leaves(agent.adam))


@pytest.mark.parametrize("source", ["composite", "buffer"])
def test_the_new_policy_learns_from_the_actions_asked_for(source):
    agent = PEX.create(jax.random.key(0), 4, 2, replace(SMALL, policy_actions=source)).begin_online()
    batch = random_batches(16)
    other = batch._replace(action=-batch.action)
    # With the critics' step taken out, the batch's actions reach the policy only through its own loss.
    still = replace(agent.config, actor_lr=0.0, critic_lr=0.0, tau=0.0)
    losses = [
        float(updated(replace(agent, config=still), b, jax.random.key(1))[1]["policy_loss"]) for b in (batch, other)
    ]
    assert (losses[0] == losses[1]) is (source == "composite")


def test_the_new_policy_keeps_its_width_where_all_its_actions_are_worth_the_same():
    # A fit to its own clipped draws would narrow it: a standard normal clipped to one unit has a deviation of 0.72.
    size = 8
    config = replace(SMALL, hidden_dims=(2 * size,), beta=0.0, actor_lr=3e-3, critic_lr=3e-3)
    agent = PEX.create(jax.random.key(0), 1, size, config).begin_online()
    still = jax.tree.map(jnp.zeros_like, agent.old)
    eye = jnp.eye(size)  # Q(s, a) = 1000 * sum |a|: always the new policy's draw, never the old one's zero
    q = MLP((jnp.vstack([jnp.zeros((1, 2 * size)), jnp.hstack([eye, -eye])]), jnp.full((2 * size, 1), 1e3)),
            (jnp.zeros(2 * size), jnp.zeros(1)))  # fmt: skip
    critics = replace(agent.critics, q=Ensemble((q, q)))
    batch = random_batches(64, obs_dim=1, action_dim=size)

    def step(new, key):
        after, _ = replace(agent, critics=critics, old=still, new=new[0], adam=new[1]).update(batch, key)
        return (after.new, after.adam), None

    (policy, _), _ = jax.lax.scan(step, (agent.new, agent.adam), jax.random.split(jax.random.key(1), 300))
    assert np.exp(policy.bounded_log_std()).mean() == pytest.approx(1.0, abs=0.05)


def test_the_policy_loss_worked_from_the_critics_after_their_step():
    config = replace(SMALL, actor_lr=0.05, critic_lr=0.05, tau=0.5, beta=1.0, inverse_temperature=30.0)
    agent = PEX.create(jax.random.key(0), 4, 2, config).begin_online()
    batch, key = random_batches(64), jax.random.key(1)
    after, metrics = updated(agent, batch, key)
    chance = KeySequence(key)
    old = agent.old.mode(batch.obs)
    new = agent.new.mode(batch.obs) + chance.standard_normal(old.shape)  # of deviation 1
    boxed = jnp.clip(new, -1, 1)
    assert (boxed != new).any(), "a draw must leave the box for this test to see where the values are taken"
    q_old, q_new = (after.critics.q.min_q(batch.obs, a) for a in (old, boxed))
    chosen = (chance.random(q_old.shape) < jax.nn.sigmoid(30.0 * (q_old - q_new)))[:, None]
    value = after.critics.target.min_q(batch.obs, jnp.where(chosen, old, boxed))
    weight = jnp.minimum(jnp.exp(value - after.critics.value.scalar(batch.obs)), 100.0)
    z = jnp.where(chosen, old, new) - agent.new.mode(batch.obs)
    log_prob = jnp.sum(-0.5 * z**2 - 0.5 * math.log(2 * math.pi), axis=-1)
    assert float(metrics["policy_loss"]) == pytest.approx(float(-jnp.mean(weight * log_prob)), rel=1e-4)


def test_the_score_is_of_the_new_policy():
    batch = random_batches(16)
    agent = PEX.create(jax.random.key(0), 4, 2, SMALL).begin_online()
    np.testing.assert_array_equal(agent.score(batch.obs, batch.action), agent.new.score(batch.obs, batch.action))


def test_discrete_actions_are_refused():
    with pytest.raises(ValueError, match="supports only continuous actions"):
        PEX.create(jax.random.key(0), 4, 2, replace(SMALL, actions="discrete"))
