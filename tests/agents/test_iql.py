"""IQL: formulas by hand, five updates against the reference, and what depends on what."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb.agents import IQL, IQLConfig
from arb.agents.iql import actor_lr, advantage_weight, awr_loss, critic_loss, expectile_loss, td_target
from arb.agents.nn import adam
from arb.replay.storage import Batch
from tests.agents.conftest import network, twin, updated

SMALL = IQLConfig(hidden_dims=(8, 8))
CLONING = replace(SMALL, beta=0.0, lr_decay_steps=1)


def test_losses_worked_by_hand():
    # 0.7 * 2^2 and 0.3 * 1^2, halved.
    assert float(expectile_loss(jnp.array([2.0, -1.0]), 0.7)) == pytest.approx(1.55)
    np.testing.assert_allclose(
        td_target(jnp.array([1.0, 1.0]), jnp.array([0.9, 0.0]), jnp.array([10.0, 10.0])), [10, 1]
    )
    assert float(critic_loss((jnp.array([1.0, 3.0]), jnp.array([2.0, 2.0])), jnp.array([1.0, 1.0]))) == pytest.approx(
        1.5
    )
    np.testing.assert_allclose(
        advantage_weight(jnp.array([0.0, 1.0, 999.0]), 2.0, 100.0), [1, np.exp(2), 100], rtol=1e-6
    )
    assert float(awr_loss(jnp.array([1.0, 3.0]), jnp.array([-2.0, -4.0]))) == 7.0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-10, 10, width=32), min_size=8, max_size=8), st.floats(0.05, 0.95))
def test_an_expectile_loss_falls_towards_the_values_and_is_least_at_the_expectile(values, tau):
    q, slope = np.array(values, np.float32), jax.jit(jax.grad(lambda v, q, tau: expectile_loss(q - v, tau)))
    assert slope(np.float32(q.min() - 1), q, tau) < 0 < slope(np.float32(q.max() + 1), q, tau)
    low, high = float(q.min()) - 1, float(q.max()) + 1
    for _ in range(60):  # where the slope vanishes, tau of the distance above balances 1 - tau of that below
        middle = (low + high) / 2
        low, high = (middle, high) if slope(np.float32(middle), q, tau) < 0 else (low, middle)
    above, below = np.maximum(q - low, 0).sum(), np.maximum(low - q, 0).sum()
    assert tau * above == pytest.approx((1 - tau) * below, rel=1e-2, abs=1e-3)


def reference_agent(golden, phase):
    names = {"expectile": "expectile", "beta": "temperature", "discount": "discount", "tau": "target_rate"}
    config = IQLConfig(**{name: float(golden[theirs]) for name, theirs in names.items()})
    agent = IQL.create(jax.random.key(0), golden["obs"].shape[-1], golden["action"].shape[-1], config)
    critics = replace(
        agent.critics,
        q=twin(golden, f"{phase}.q1", f"{phase}.q2"),
        target=twin(golden, f"{phase}.target1", f"{phase}.target2"),
        value=network(golden, f"{phase}.value"),
    )
    policy = replace(
        agent.policy, net=network(golden, f"{phase}.policy"), log_std=jnp.array(golden[f"{phase}.log_std"])
    )
    return replace(agent, critics=critics, policy=policy)


def networks(agent):
    return (agent.critics.q, agent.critics.target, agent.critics.value, agent.policy)


@pytest.mark.parametrize("task", ["locomotion", "antmaze"])
def test_five_updates_equal_the_reference(task, extract, complete):
    golden = dict(extract("iql_locomotion") if task == "locomotion" else complete("iql_antmaze"))
    names = [key.removeprefix("before.") for key in golden if key.startswith("before.")]
    for name in names:  # extracts keep the change of each parameter, in half precision: it is below 0.0015
        if f"moved.{name}" in golden:
            golden[f"after.{name}"] = golden[f"before.{name}"] + golden[f"moved.{name}"].astype(np.float32)
    agent = reference_agent(golden, "before")
    start = networks(agent)
    for i in range(5):
        columns = (golden[k][i] for k in ("obs", "action", "reward", "next_obs"))
        agent, metrics = updated(agent, Batch(*columns, 1.0 - golden["terminal"][i], golden["reward"][i]))
        for name in ("value", "critic", "policy"):
            assert float(metrics[f"{name}_loss"]) == pytest.approx(golden[f"loss.{name}"][i], rel=1e-4)
    assert len(names) == len(jax.tree.leaves(start)) == 37
    expected = networks(reference_agent(golden, "after"))
    for now, after, before in zip(*map(jax.tree.leaves, (networks(agent), expected, start)), strict=True):
        np.testing.assert_allclose(now, after, atol=5e-6)
        assert float(jnp.abs(now - before).max()) > 1e-6  # all were trained, so equality means something


def test_the_policy_rate_falls_offline_and_is_constant_online():
    config = replace(SMALL, lr_decay_steps=100)
    state = adam(x=jnp.zeros(1))["x"]._replace(count=jnp.array(50))
    assert float(actor_lr(config, False, state)) == pytest.approx(1.5e-4)
    assert actor_lr(config, True, state) == actor_lr(SMALL, False, state) == 3e-4


def test_discrete_actions_are_numbers(batches):
    agent = IQL.create(jax.random.key(0), 4, 3, replace(SMALL, actions="discrete"))
    batch = batches(16)._replace(action=np.random.default_rng(0).integers(3, size=16))
    agent, metrics = updated(agent, batch)
    assert all(np.isfinite(v) for v in metrics.values())
    probabilities = [np.exp(agent.score(batch.obs, np.full(16, a))) for a in range(3)]
    np.testing.assert_allclose(np.sum(probabilities, axis=0), 1.0, rtol=1e-5)
    assert set(np.asarray(agent.act(jnp.array(batch.obs), jax.random.key(0))).tolist()) <= {0, 1, 2}


def test_the_policy_rests_when_its_rate_has_fallen_and_the_critics_go_on(batches):
    agent, _ = updated(IQL.create(jax.random.key(0), 4, 2, CLONING), batches(16))
    later, _ = updated(agent, batches(16))
    for now, before in zip(*map(jax.tree.leaves, (later.policy, agent.policy)), strict=True):
        np.testing.assert_array_equal(now, before)
    assert (later.critics.value.biases[-1] != agent.critics.value.biases[-1]).all()


def test_behaviour_cloning_is_iql_at_temperature_zero(batches):
    agent, batch = IQL.create(jax.random.key(0), 4, 2, CLONING), batches(16)
    after, metrics = updated(agent, batch)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a != b).any()), after.policy, agent.policy))
    assert float(metrics["policy_loss"]) == pytest.approx(-float(agent.policy.log_prob(batch.obs, batch.action).mean()))


def test_the_papers_values():
    config = IQLConfig()
    assert (config.discount, config.expectile, config.beta, config.tau) == (0.99, 0.7, 3.0, 0.005)
    assert (config.hidden_dims, config.max_weight) == ((256, 256), 100.0)
    assert config.actor_lr == config.critic_lr == 3e-4
