"""The weights of advantage-weighted regression: given β, β that sets itself, and what is reported of both."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb.agents import IQL, PEX, FamO2O, FamO2OConfig, IQLConfig, PEXConfig
from arb.agents.iql import balanced_weight, effective_share, policy_weight
from arb.errors import DataError
from arb.replay.arb import effective_rows, temperature_for
from tests.agents.conftest import random_batches, updated

balanced = jax.jit(balanced_weight)


def test_the_effective_share_worked_by_hand():
    # (1 + 1 + 2)² / (3·(1 + 1 + 4)) = 16/18
    assert float(effective_share(jnp.array([1.0, 1.0, 2.0]))) == pytest.approx(8 / 9)
    assert float(effective_share(jnp.full(7, 3.0))) == pytest.approx(1.0)


def test_a_balanced_weight_worked_by_hand():
    # One row is ahead of three by 2. With w the weight of the one against the three, (w + 3)² = 4·s·(w² + 3); at
    # s = 0.75 that is w² - 3w = 0, so w = 3 and β = ln 3 / 2. The mean of (3, 1, 1, 1) is 1.5.
    weight, beta = balanced(jnp.array([5.0, 3.0, 3.0, 3.0]), 0.75)
    assert float(beta) == pytest.approx(math.log(3.0) / 2.0, rel=1e-4)
    np.testing.assert_allclose(weight, [2.0, 2 / 3, 2 / 3, 2 / 3], rtol=1e-4)


advantages = st.lists(st.floats(-50, 50, width=32), min_size=8, max_size=8, unique=True)


@settings(max_examples=60, deadline=None)
@given(advantages, st.floats(0.2, 0.95))
def test_the_weights_have_the_share_that_is_asked_for(values, share):
    weight, beta = balanced(np.array(values, np.float32), share)
    assert float(effective_share(weight)) == pytest.approx(share, abs=2e-3)
    assert float(jnp.mean(weight)) == pytest.approx(1.0, rel=1e-4)
    assert float(weight.max()) <= math.sqrt(8 / share) * 1.01
    assert float(beta) > 0.0


@settings(max_examples=60, deadline=None)
@given(advantages, st.sampled_from([1e-3, 0.1, 7.0, 1e4]), st.floats(-5, 5, width=32))
def test_neither_the_scale_of_rewards_nor_the_level_of_values_matters(values, scale, level):
    values = np.array(values, np.float32)
    values -= values.min()  # so that the scaled numbers keep their digits
    weight, beta = balanced(values, 0.5)
    scaled, scaled_beta = balanced(np.float32(scale) * values, 0.5)
    np.testing.assert_allclose(scaled, weight, rtol=1e-3, atol=1e-5)
    assert float(scaled_beta) * scale == pytest.approx(float(beta), rel=1e-3)
    shifted, _ = balanced(values + np.float32(level * max(values.max(), 1e-3)), 0.5)
    np.testing.assert_allclose(shifted, weight, rtol=2e-2, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(advantages)
def test_it_is_the_equation_of_arbs_temperature(values):
    below = np.array(values, np.float64) - max(values)
    temperature = temperature_for(below, np.ones(8, np.int64), target=4.0)
    assert effective_rows(below / temperature, np.ones(8, np.int64)) == pytest.approx(4.0, rel=1e-3)
    _, beta = balanced(np.array(values, np.float32), 0.5)
    assert float(beta) == pytest.approx(1.0 / temperature, rel=1e-2)


def test_equal_advantages_weigh_the_same_and_ties_at_the_top_are_the_least_there_can_be():
    weight, beta = balanced(jnp.full(5, 3.0), 0.5)
    assert (weight.tolist(), float(beta)) == ([1.0] * 5, 0.0)
    weight, beta = balanced(jnp.array([1.0, 1.0, 1.0, 0.0]), 0.5)  # three of four cannot count as two
    np.testing.assert_allclose(weight, [4 / 3] * 3 + [0.0], atol=1e-5)
    assert np.isfinite(beta)


def test_the_weights_are_constants_of_the_policys_loss():
    slope = jax.grad(lambda a: jnp.sum(balanced_weight(a, 0.5)[0] * jnp.arange(3.0)))(jnp.array([1.0, 2.0, 4.0]))
    assert slope.tolist() == [0.0, 0.0, 0.0]


def test_what_is_reported_of_a_given_beta():
    weight, metrics = policy_weight(jnp.log(jnp.array([1.0, 2.0, 4.0, 1e9])), IQLConfig(beta=1.0, max_weight=4.0))
    np.testing.assert_allclose(weight, [1.0, 2.0, 4.0, 4.0], rtol=1e-6)
    assert float(metrics["weight_clipped"]) == 0.5  # the third row is there, the fourth is held there
    assert float(metrics["weight_effective"]) == pytest.approx(11**2 / (4 * 37))
    assert float(metrics["beta"]) == 1.0


CASES = {"IQL": (IQL, IQLConfig), "PEX": (PEX, PEXConfig)}


@pytest.mark.parametrize("name", CASES)
def test_an_update_with_a_beta_of_its_own(name):
    kind, config = CASES[name]
    agent = kind.create(jax.random.key(0), 4, 2, config(hidden_dims=(8,), beta="auto", effective=0.4))
    agent = agent.begin_online() if name == "PEX" else agent
    after, metrics = updated(agent, random_batches(64), jax.random.key(1))
    assert float(metrics["weight_effective"]) == pytest.approx(0.4, abs=1e-3)
    assert float(metrics["weight_clipped"]) == 0.0
    assert np.isfinite(float(metrics["policy_loss"]))
    assert [int(state.count) for state in after.adam.values()] == [1]


def test_the_first_policy_step_does_not_depend_on_the_scale_of_values():
    agent, batch = IQL.create(jax.random.key(0), 4, 2, IQLConfig(hidden_dims=(8,), beta="auto")), random_batches(64)

    def larger_values(net):
        weights, biases = ((*x[:-1], 100 * x[-1]) for x in (net.weights, net.biases))
        return replace(net, weights=weights, biases=biases)

    target = replace(agent.critics.target, members=tuple(larger_values(m) for m in agent.critics.target.members))
    larger = replace(agent, critics=replace(agent.critics, target=target, value=larger_values(agent.critics.value)))
    (one, m), (other, n) = updated(agent, batch), updated(larger, batch)
    assert float(m["beta"]) == pytest.approx(100 * float(n["beta"]), rel=1e-3)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=2e-5), one.policy, other.policy))


def test_famo2o_reports_its_weights_too():
    agent = FamO2O.create(jax.random.key(0), 4, 2, FamO2OConfig(hidden_dims=(8,)))
    _, metrics = updated(agent, random_batches(16), jax.random.key(1))
    assert 0.0 < float(metrics["weight_effective"]) <= 1.0
    assert float(metrics["weight_clipped"]) == 0.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"beta": "automatic"}, r"beta of IQLConfig must be 'auto', not 'automatic' \(did you mean 'auto'\?\)"),
        ({"effective": 1.0}, "effective of IQLConfig must be between 0 and 1, not 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed, message):
    with pytest.raises(DataError, match=message):
        IQLConfig(**changed)
    assert IQLConfig(beta=2).beta == 2
