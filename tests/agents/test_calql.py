"""Cal-QL: formulas by hand, the critic loss against the reference, and the chunks of the fan."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import CalQL, CalQLConfig
from arb.agents.agent import KeySequence
from arb.agents.calql import (
    SampledActions,
    calibrated,
    conservative_gap,
    conservative_terms,
    critic_gradient,
    critic_terms,
    error_and_gap,
    multiplier_loss,
    sample_actions,
)
from arb.agents.iql import td_target
from arb.errors import DataError
from arb.replay.storage import Batch
from tests.agents.conftest import random_batches, twin, updated

SMALL = CalQLConfig(actor_hidden_dims=(8,), critic_hidden_dims=(8, 8), cql_n_actions=3, chunk=4)
RATES = replace(SMALL, cql_lagrange=True, actor_lr=0.01, critic_lr=0.02, tau=0.25)
"""A multiplier, and rates that tell who uses which."""
FILES = ["calql_locomotion", "calql_antmaze", "cql_antmaze"]


def test_formulas_worked_by_hand():
    q = jnp.array([[1.0, 5.0], [1.0, 5.0]])
    assert calibrated(q, jnp.array([3.0, -jnp.inf])).tolist() == [[3.0, 5.0], [1.0, 5.0]]
    # Two actions of value ln 2 and ln 6, both drawn with density 1/2: log-sum of 4 and 12 is ln 16.
    gap = conservative_gap(jnp.log(jnp.array([[2.0, 6.0]])), jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([1.0]))
    assert float(gap[0]) == pytest.approx(math.log(16) - 1.0)
    assert conservative_gap(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.array([500.0]), -200.0).tolist() == [-200.0]
    held = conservative_terms(jnp.array([1.8]), jnp.array(99.0), replace(SMALL, cql_lagrange=True))
    np.testing.assert_allclose(held, [1e7], rtol=1e-5)  # a multiplier of at most a million, times 10, times a gap of 1
    with_multiplier = conservative_terms(jnp.array([1.0, 2.0]), jnp.array(0.0), replace(SMALL, cql_lagrange=True))
    np.testing.assert_allclose(with_multiplier, [2.0, 12.0], rtol=1e-6)
    np.testing.assert_allclose(conservative_terms(jnp.array([1.0, 2.0]), jnp.array(0.0), SMALL), [10.0, 20.0])


def test_the_multiplier_rises_while_the_gaps_exceed_their_target():
    # Half of 10 * (1.0 - 0.8) + 10 * (2.0 - 0.8), times the multiplier e^0, with the other sign.
    slope = jax.value_and_grad(partial(multiplier_loss, config=replace(SMALL, cql_lagrange=True)), argnums=1)
    np.testing.assert_allclose(slope(jnp.array([1.0, 2.0]), jnp.array(0.0)), [-7.0, -7.0], rtol=1e-6)
    np.testing.assert_allclose(slope(jnp.array([0.3, 0.3]), jnp.array(0.0)), [5.0, 5.0], rtol=1e-6)


def settings_of(golden) -> tuple[CalQLConfig, bool]:
    lowest = float(golden["clip_diff_min"])
    config = CalQLConfig(
        cql_alpha=float(golden["cql_alpha"]),
        cql_lagrange=bool(golden["lagrange"]),
        cql_target_action_gap=float(golden["target_action_gap"]),
        cql_max_target_backup=bool(golden["max_target_backup"]),
        cql_clip_diff_min=None if lowest == -math.inf else lowest,
        chunk=8,
    )
    return config, bool(golden["calibrate"])


@pytest.mark.parametrize("name", FILES)
def test_the_critic_loss_equals_the_reference_for_given_values(name, extract):
    golden = extract(name)
    config, calibrate = settings_of(golden)
    uniform = np.full((32, 10), golden["action"].shape[-1] * math.log(0.5), np.float32)
    log_prob = np.concatenate([uniform, golden["next_log_prob"], golden["current_log_prob"]], axis=1)
    next_value = np.minimum(golden["target1"], golden["target2"]).max(1)
    y = td_target(golden["reward"], 0.99 * (1 - golden["terminal"]), next_value)
    both = [error_and_gap(golden[q], y, log_prob, golden["return_to_go"], config, calibrate) for q in ("q1", "q2")]
    errors, gaps = (jnp.stack(x) for x in zip(*both, strict=True))
    terms = conservative_terms(gaps, golden["log_alpha_prime"], config)
    np.testing.assert_allclose(errors, [golden["loss.td1"], golden["loss.td2"]], rtol=1e-4)
    assert float(errors.sum() + terms.sum()) == pytest.approx(float(golden["loss.total"]), rel=1e-4)
    if config.cql_lagrange:
        loss = multiplier_loss(gaps, golden["log_alpha_prime"], config)
        assert float(loss) == pytest.approx(float(golden["alpha_prime_loss"]), rel=1e-4)


@pytest.mark.parametrize("name", FILES)
def test_the_critic_loss_equals_the_reference_from_its_networks(name, complete):
    golden = complete(name)
    config, calibrate = settings_of(golden)
    target_action = golden["target_action"].reshape(32, -1, 3)
    keys = ("random_action", "current_action", "current_log_prob", "next_action", "next_log_prob")
    fan = SampledActions(*(jnp.array(golden[k]) for k in keys), jnp.array(target_action))
    columns = [jnp.array(golden[k]) for k in ("obs", "action", "reward", "next_obs")]
    batch = Batch(*columns, 1.0 - golden["terminal"], jnp.array(golden["return_to_go"]))
    q, target = twin(golden, "q1", "q2"), twin(golden, "target1", "target2")
    chunked = jax.jit(partial(critic_gradient, config=config, calibrate=calibrate))
    loss, _, _ = chunked(q, target, batch, fan, jnp.array(golden["log_alpha_prime"]))
    assert float(loss) == pytest.approx(float(golden["loss.total"]), rel=1e-4)


@cache
def agent_batch_fan(config: CalQLConfig = SMALL):
    agent = CalQL.create(jax.random.key(0), 4, 2, config)
    batch = jax.tree.map(jnp.array, random_batches(12))
    return agent, batch, sample_actions(agent.policy, batch, KeySequence(jax.random.key(1)), config)


@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_chunks_give_the_gradient_of_the_whole(chunk):
    config = replace(SMALL, chunk=chunk, cql_lagrange=True, cql_max_target_backup=True)
    agent, batch, fan = agent_batch_fan(config)

    def whole(q):
        errors, gaps = critic_terms(q, agent.target, batch, fan, config, True)
        return errors.sum() + conservative_terms(gaps, agent.log_multiplier, config).sum()

    value, expected = jax.jit(jax.value_and_grad(whole))(agent.q)
    chunked = jax.jit(partial(critic_gradient, config=config, calibrate=True))
    loss, _, gradient = chunked(agent.q, agent.target, batch, fan, agent.log_multiplier)
    assert float(loss) == pytest.approx(float(value), rel=1e-5)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_the_fan_has_the_right_actions_and_no_gradient():
    agent, batch, fan = agent_batch_fan(replace(SMALL, cql_max_target_backup=True))
    assert fan.uniform.shape == fan.current.shape == fan.next.shape == fan.target.shape == (12, 3, 2)
    assert float(jnp.abs(fan.uniform).max()) <= 1.0
    assert float(fan.uniform.min()) < -0.5
    assert agent_batch_fan()[2].target.shape == (12, 1, 2)
    gradient = jax.grad(
        lambda p: sum(x.sum() for x in sample_actions(p, batch, KeySequence(jax.random.key(1)), SMALL))
    )(agent.policy)
    assert not any(g.any() for g in jax.tree.leaves(gradient))


def test_the_fan_is_drawn_where_its_names_say():
    agent, batch, _ = agent_batch_fan()
    narrow = replace(agent.policy, offset=jnp.array(-20.0))  # its draws are its mode
    fan = sample_actions(narrow, batch, KeySequence(jax.random.key(1)), SMALL)
    for drawn, obs in ((fan.current, batch.obs), (fan.next, batch.next_obs), (fan.target, batch.next_obs)):
        np.testing.assert_allclose(drawn, jnp.broadcast_to(narrow.mode(obs)[:, None], drawn.shape), atol=1e-5)


def test_an_open_episode_is_not_calibrated_and_a_known_return_is_a_bound():
    agent, batch, fan = agent_batch_fan()
    plain = critic_terms(agent.q, agent.target, batch, fan, SMALL, False)
    unknown = batch._replace(return_to_go=jnp.full(12, -jnp.inf))
    np.testing.assert_array_equal(plain[1], critic_terms(agent.q, agent.target, unknown, fan, SMALL, True)[1])
    high = batch._replace(return_to_go=jnp.full(12, 100.0))
    assert (critic_terms(agent.q, agent.target, high, fan, SMALL, True)[1] > 90.0).all()


def test_calibration_online_is_a_choice_of_its_own():
    config = replace(SMALL, calibrate_online=False)
    high = random_batches(12)._replace(return_to_go=np.full(12, 100.0, np.float32))
    agent = CalQL.create(jax.random.key(0), 4, 2, config)
    gaps = [float(updated(a, high, jax.random.key(1))[1]["gap"]) for a in (agent, agent.begin_online())]
    assert gaps[0] > 90.0 > gaps[1]


def test_an_online_update_calibrates_and_takes_every_step_with_its_own_rate_and_sense():
    agent = CalQL.create(jax.random.key(0), 4, 2, RATES).begin_online()
    agent = replace(agent, target=jax.tree.map(lambda x: 0.5 * x, agent.target))
    high = random_batches(12)._replace(return_to_go=np.full(12, 100.0, np.float32))
    after, metrics = updated(agent, high, jax.random.key(1))
    gap = float(metrics["gap"])
    assert gap > 90.0
    # Adam's first step has the length of its rate.
    for part, rate in {"q": 0.02, "policy": 0.01, "log_alpha": 0.01, "log_multiplier": 0.02}.items():
        steps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), getattr(after, part), getattr(agent, part))
        assert max(jax.tree.leaves(steps)) == pytest.approx(rate, rel=1e-3), part
    for new, old, q in zip(*map(jax.tree.leaves, (after.target, agent.target, after.q)), strict=True):
        np.testing.assert_allclose(new - old, 0.25 * (q - old), atol=1e-6)
    # Its first moment is a tenth of the gradient: of log α · (entropy + action_dim), and of -e · 10 · (gap - 0.8).
    assert float(after.adam["log_alpha"].mu) == pytest.approx(0.1 * (float(metrics["entropy"]) + 2), rel=1e-4)
    assert float(after.adam["log_multiplier"].mu) == pytest.approx(-math.e * (gap - 0.8), rel=1e-4)
    assert after.log_multiplier > agent.log_multiplier


def test_a_chunk_without_states_is_refused():
    with pytest.raises(DataError, match="chunk is 0; it is a number of states, at least 1"):
        CalQL.create(jax.random.key(0), 4, 2, replace(SMALL, chunk=0))
