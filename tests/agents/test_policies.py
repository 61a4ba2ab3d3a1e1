"""Samples, likelihoods and scores of the three kinds of policy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arb.agents.agent import KeySequence
from arb.agents.nn import create_gaussian, create_mlp, create_tanh_gaussian
from arb.policies.actors import Categorical, Gaussian, TanhGaussian, log_tanh_slope, standard_score
from arb.policies.networks import MLP
from arb.replay.scores import gaussian_log_likelihood, tanh_gaussian_log_likelihood

PEAK = -0.5 * math.log(2 * math.pi)


def constant(outputs) -> MLP:
    """A network that ignores its input of two numbers."""
    outputs = jnp.array(outputs, jnp.float32)
    return MLP((jnp.zeros((2, len(outputs))),), (outputs,))


def test_gaussian_scores_worked_by_hand():
    policy = Gaussian(constant([0.0, 0.0]), jnp.log(jnp.array([0.5, 2.0])))
    obs, action = jnp.zeros((1, 2)), jnp.array([[0.5, 1.0]])
    # z = (1, 0.5): mean of -z^2/2 is -0.3125.
    assert float(policy.score(obs, action)[0]) == pytest.approx(PEAK - 0.3125, rel=1e-6)
    # The true density adds -log(0.5) - log(2) = 0 here, and is a sum.
    assert float(policy.score(obs, action, "density")[0]) == pytest.approx(2 * PEAK - 0.625, rel=1e-6)


def test_scores_equal_the_reference_numbers(extract):
    golden = extract("scores")
    score = standard_score(golden["action"], golden["gaussian.mean"], golden["gaussian.log_std"])
    np.testing.assert_allclose(score, golden["gaussian.score"], rtol=1e-4)
    outputs = np.concatenate([golden["tanh.mean"], golden["tanh.raw_log_std"]], axis=-1)
    unchanged = MLP((jnp.eye(6),), (jnp.zeros(6),))
    policy = TanhGaussian(unchanged, jnp.array(1.0), jnp.array(-1.0))
    np.testing.assert_allclose(policy.score(outputs, golden["action"]), golden["tanh.score"], rtol=1e-4)


@pytest.mark.parametrize("likelihood", ["standard", "density"])
def test_scores_equal_the_buffers_own(likelihood):
    rng = np.random.default_rng(0)
    obs, action = rng.standard_normal((50, 3)).astype(np.float32), rng.uniform(-1, 1, (50, 2)).astype(np.float32)
    action[0] = 1.0
    gaussian, tanh = (create(jax.random.key(0), (3, 16, 2)) for create in (create_gaussian, create_tanh_gaussian))
    expected = gaussian_log_likelihood(action, np.asarray(gaussian.mode(obs)), np.zeros(2), likelihood)
    np.testing.assert_allclose(gaussian.score(obs, action, likelihood), expected, rtol=1e-4)
    mean, log_std = map(np.asarray, tanh.parameters(obs))
    expected = tanh_gaussian_log_likelihood(action, mean, log_std, likelihood)
    # The clamped action sits where atanh is steepest, so float32 keeps three digits of it.
    np.testing.assert_allclose(tanh.score(obs, action, likelihood), expected, rtol=5e-3, atol=5e-3)


@settings(max_examples=50, deadline=None)
@given(st.floats(-1, 1), st.floats(-3, 3), st.floats(-5, 2))
def test_no_standard_score_exceeds_its_peak(action, mean, log_std):
    assert float(standard_score(jnp.array([action]), jnp.array([mean]), jnp.array([log_std]))) <= PEAK + 1e-6


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 3))
def test_the_slope_of_tanh(x):
    assert float(log_tanh_slope(jnp.array(x))) == pytest.approx(math.log(1 - math.tanh(x) ** 2), abs=1e-4)


def test_the_slope_of_tanh_keeps_its_digits_far_out():
    # ln(1 - tanh(50)^2) = ln 4 - 100 to sixteen digits; the direct formula gives ln 0.
    assert float(log_tanh_slope(jnp.array(50.0))) == pytest.approx(math.log(4) - 100)


def test_gaussian_samples_follow_the_policy_and_its_box():
    policy = Gaussian(constant([0.0]), jnp.log(jnp.array([0.3])))
    obs = jnp.zeros((20_000, 2))
    sample = np.asarray(policy.sample(obs, KeySequence(jax.random.key(0))))
    assert stats.kstest(sample[:, 0] / 0.3, "norm").pvalue > 1e-3
    wide = Gaussian(constant([0.0]), jnp.array([2.0]))
    action = np.asarray(wide.act(obs, KeySequence(jax.random.key(0))))
    assert (np.abs(action).max(), np.abs(wide.sample(obs, KeySequence(jax.random.key(0)))).max() > 5) == (1.0, True)


def test_log_std_is_clipped():
    assert Gaussian(constant([0.0]), jnp.array([-9.0]), -5.0).bounded_log_std().tolist() == [-5.0]
    assert Gaussian(constant([0.0]), jnp.array([9.0])).bounded_log_std().tolist() == [2.0]


def test_tanh_draws_carry_their_own_density():
    policy = TanhGaussian(constant([0.3, -0.5, 0.2, -0.1]), jnp.array(0.5), jnp.array(-1.0))
    mean, log_std = policy.parameters(jnp.zeros((3, 2)))
    np.testing.assert_allclose(log_std[0], [-0.9, -1.05], rtol=1e-6)
    action, log_prob = policy.sample(jnp.zeros((3, 2)), KeySequence(jax.random.key(1)), 5)
    assert (action.shape, log_prob.shape) == ((3, 5, 2), (3, 5))
    expected = tanh_gaussian_log_likelihood(
        np.asarray(action), np.asarray(mean)[:, None], np.asarray(log_std)[:, None], "density"
    )
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-4)


def test_categorical_probabilities_are_those_of_its_logits():
    policy = Categorical(constant(np.log([0.2, 0.3, 0.5])))
    obs = jnp.zeros((30_000, 2))
    assert policy.mode(obs)[0] == 2
    np.testing.assert_allclose(policy.score(obs[:3], jnp.arange(3)), np.log([0.2, 0.3, 0.5]), rtol=1e-5)
    counts = np.bincount(policy.act(obs, KeySequence(jax.random.key(0))), minlength=3)
    assert stats.chisquare(counts, 30_000 * np.array([0.2, 0.3, 0.5])).pvalue > 1e-3


@pytest.mark.parametrize("create", [create_gaussian, create_tanh_gaussian, lambda *a: Categorical(create_mlp(*a))])
def test_policies_on_the_host_act_in_float32_numpy(create):
    policy = jax.tree.map(np.asarray, create(jax.random.key(0), (3, 8, 2)))
    obs, rng = np.ones(3, np.float32), np.random.default_rng(0)
    for action in (policy.act(obs, rng), policy.mode(obs)):
        assert isinstance(action, np.ndarray | np.integer)
        if not isinstance(policy, Categorical):
            assert (action.dtype, action.shape) == (np.float32, (2,))


def test_a_fresh_squashed_policy_reads_its_width_from_the_network():
    policy = create_tanh_gaussian(jax.random.key(0), (3, 8, 2))
    assert (float(policy.multiplier), float(policy.offset)) == (1.0, -1.0)
    assert policy.net.weights[-1].shape == (8, 4)  # a mean and a width for each of two dimensions
