"""Many updates in one call: equal to one by one, guarded, and scores of many rows."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import (
    IQL,
    PEX,
    CalQL,
    CalQLConfig,
    FamO2O,
    FamO2OConfig,
    IQLConfig,
    NotFiniteError,
    PEXConfig,
    learn,
    on_host,
    scores,
)
from arb.buffer.batch import Batch
from tests.agents.conftest import random_batches, updated

AGENTS = {
    "IQL": (IQL, IQLConfig(hidden=(6,))),
    "PEX": (PEX, PEXConfig(hidden=(6,))),
    "FamO2O": (FamO2O, FamO2OConfig(hidden=(6,))),
    "CalQL": (CalQL, CalQLConfig(policy_hidden=(6,), critic_hidden=(6,), actions=2)),
}


def fresh(name: str, online: bool = False):
    kind, config = AGENTS[name]
    agent = kind.create(jax.random.key(0), 4, 2, config)
    return agent.begin_online() if online else agent


def same(a, b, **tolerance) -> bool:
    close = partial(np.allclose, **tolerance) if tolerance else np.array_equal
    return jax.tree.all(jax.tree.map(lambda x, y: bool(close(x, y)), a, b))


@pytest.mark.parametrize(("name", "online"), [("IQL", False), ("PEX", True), ("FamO2O", True), ("CalQL", False)])
def test_one_call_equals_updates_one_by_one(name, online):
    batches, key = random_batches(3, 16), jax.random.key(1)
    agent, means = learn(fresh(name, online), batches, key, unroll=2 if name == "IQL" else 1)
    slow, metrics = fresh(name, online), []
    for i, k in enumerate(jax.random.split(key, 3)):
        slow, m = updated(slow, Batch(*(c[i] for c in batches)), k)
        metrics.append(m)
    assert same(agent, slow, rtol=1e-4, atol=1e-6)
    for name in means:
        assert means[name] == pytest.approx(np.mean([float(m[name]) for m in metrics]), rel=1e-3, abs=1e-6)


def test_the_agent_passed_in_is_used_up_and_the_one_returned_goes_on():
    agent = fresh("IQL")
    newer, _ = learn(agent, random_batches(2, 8), jax.random.key(0), unroll=1)
    assert agent.critics.q.first.weights[0].is_deleted()
    newest, _ = learn(newer, random_batches(2, 8), jax.random.key(0), unroll=1)
    assert int(newest.policy_adam.count) == 4


def test_a_loss_that_is_not_finite_stops_with_its_name_and_the_last_good_state():
    batches = random_batches(5, 8)
    batches.reward[3, 2] = np.nan  # reaches the critic's loss only
    with pytest.raises(NotFiniteError, match=r"critic_loss or its gradient is not finite at update 3") as caught:
        learn(fresh("IQL"), batches, jax.random.key(0), unroll=1)
    good, _ = learn(fresh("IQL"), Batch(*(c[:3] for c in batches)), jax.random.key(0), unroll=1)
    assert same(caught.value.agent, good, rtol=1e-5, atol=1e-7)
    assert (caught.value.loss, caught.value.update) == ("critic_loss", 3)
    finite = Batch(*(c[4:] for c in batches))
    after, _ = learn(caught.value.agent, finite, jax.random.key(0))
    assert int(after.policy_adam.count) == 4


@pytest.mark.parametrize("name", AGENTS)
def test_scores_of_many_rows_are_the_agents_score(name):
    agent, batch = fresh(name), random_batches(23)
    for likelihood in ("standard", "density"):
        expected = agent.score(jnp.array(batch.obs), jnp.array(batch.action), likelihood)
        result = scores(agent, batch.obs, batch.action, likelihood, chunk=5)
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert scores(agent, batch.obs[:0], batch.action[:0]).shape == (0,)


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_on_the_host_the_same_action_without_jax(name, online):
    agent, obs = fresh(name, online), random_batches(5).obs
    host, rng = on_host(agent.actor), np.random.default_rng(0)
    np.testing.assert_allclose(host.mode(obs), agent.mode(jnp.array(obs)), rtol=1e-4, atol=1e-5)
    for action in (host.mode(obs), host.act(obs, rng), host.mode(obs, rng)):
        assert isinstance(action, np.ndarray)
        assert (action.dtype, action.shape) == (np.float32, (5, 2))
        assert np.abs(action).max() <= 1.0
    assert host.act(obs[0], rng).shape == (2,)


@pytest.mark.parametrize("name", AGENTS)
def test_equal_keys_give_equal_actions(name):
    agent, obs = fresh(name, online=True), jnp.array(random_batches(5).obs)
    one, two, other = (agent.act(obs, jax.random.key(k)) for k in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()
