"""Many updates in one call: equal to one by one, nan_unless_finite, and scores of many rows."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import (
    FQL,
    IQL,
    PEX,
    SAC,
    CalQL,
    CalQLConfig,
    FamO2O,
    FamO2OConfig,
    FQLConfig,
    IQLConfig,
    NotFiniteError,
    PEXConfig,
    SACConfig,
    clone,
    learn,
    on_host,
    scores,
)
from arb.agents.learn import _scan, advantages
from arb.errors import DataError
from arb.replay.storage import Batch
from tests.agents.conftest import random_batches, updated

AGENTS = {
    "IQL": (IQL, IQLConfig(hidden_dims=(6,))),
    "PEX": (PEX, PEXConfig(hidden_dims=(6,))),
    "FamO2O": (FamO2O, FamO2OConfig(hidden_dims=(6,))),
    "CalQL": (CalQL, CalQLConfig(actor_hidden_dims=(6,), critic_hidden_dims=(6,), cql_n_actions=2)),
    "SAC": (SAC, SACConfig(hidden_dims=(6,), layer_norm=True)),
    "FQL": (FQL, FQLConfig(hidden_dims=(6,))),
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
        slow, m = updated(slow, Batch(*(c[i] for c in batches[:6])), k)
        metrics.append(m)
    assert same(agent, slow, rtol=1e-4, atol=1e-6)
    for name in means:
        assert means[name] == pytest.approx(np.mean([float(m[name]) for m in metrics]), rel=1e-3, abs=1e-6)


def test_a_call_can_be_left_between_any_forty_updates():
    batches, key, pauses = random_batches(51, 8), jax.random.key(1), []
    agent, means = learn(fresh("IQL"), batches, key, unroll=2, pause=lambda: pauses.append(None))
    assert len(pauses) == 2  # before the first 40 and before the last 11
    whole, metrics = _scan(fresh("IQL"), batches, jax.random.split(key, 51), unroll=1)
    assert same(agent, whole, rtol=1e-4, atol=1e-6)
    assert means["critic_loss"] == pytest.approx(float(np.mean(metrics["critic_loss"])), rel=1e-4)


def test_the_agent_passed_in_is_used_up_and_the_one_returned_goes_on():
    agent = fresh("IQL")
    newer, _ = learn(agent, random_batches(2, 8), jax.random.key(0), unroll=1)
    assert agent.critics.q.members[0].weights[0].is_deleted()
    newest, _ = learn(newer, random_batches(2, 8), jax.random.key(0), unroll=1)
    assert int(newest.adam["policy"].count) == 4


def test_a_loss_that_is_not_finite_stops_with_its_name_and_the_last_good_state():
    batches = random_batches(5, 8)
    batches.reward[3, 2] = np.nan  # reaches the critic's loss only
    with pytest.raises(NotFiniteError, match=r"critic_loss or its gradient is not finite at update 3") as caught:
        learn(fresh("IQL"), batches, jax.random.key(0), unroll=1)
    good, _ = learn(fresh("IQL"), Batch(*(c[:3] for c in batches[:6])), jax.random.key(0), unroll=1)
    assert same(caught.value.agent, good, rtol=1e-5, atol=1e-7)
    assert (caught.value.loss, caught.value.update) == ("critic_loss", 3)
    finite = Batch(*(c[4:] for c in batches[:6]))
    after, _ = learn(caught.value.agent, finite, jax.random.key(0))
    assert int(after.adam["policy"].count) == 4


def test_several_futures_start_from_clones():
    agent = fresh("IQL")
    one, two = (learn(clone(agent).begin_online(), random_batches(2, 8), jax.random.key(0), unroll=1) for _ in range(2))
    assert same(one, two)
    learn(agent.begin_online(), random_batches(2, 8), jax.random.key(0), unroll=1)  # without, it takes its source along
    with pytest.raises(
        DataError, match=r"was reused by an earlier learn\(\): .* or call learn\(clone\(agent\), \.\.\.\) to keep the"
    ):
        learn(agent.begin_online(), random_batches(2, 8), jax.random.key(0), unroll=1)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (
            random_batches(8),
            r"needs rewards of shape \(updates, batch\), both at least 1, not \(8,\): draw batches with",
        ),
        (random_batches(0, 8), r"not \(0, 8\)"),
        (random_batches(2, 8)._replace(reward=np.zeros((2, 8, 1))), r"not \(2, 8, 1\)"),
        (random_batches(2, 8, obs_dim=5), r"obs has shape \(2, 8, 5\), but this agent expects \(2, 8, 4\): was it"),
        (random_batches(2, 8, action_dim=1), r"action has shape \(2, 8, 1\), but this agent expects \(2, 8, 2\)"),
        (random_batches(2, 8)._replace(mask=np.ones((2, 8, 1))), r"mask has shape \(2, 8, 1\)"),
        (random_batches(2, 8)._replace(obs={"eye": np.ones((2, 8, 4))}), "obs is a dict of arrays"),
    ],
)
@pytest.mark.parametrize("name", ["IQL", "CalQL"])
def test_batches_of_another_shape_are_refused_with_a_sentence(name, batches, message):
    with pytest.raises(DataError, match=message):
        learn(fresh(name), batches, jax.random.key(0))


@pytest.mark.parametrize("number", [-1, 3])
def test_the_number_of_an_action_that_does_not_exist_is_noticed(number):
    agent = IQL.create(jax.random.key(0), 4, 3, IQLConfig(hidden_dims=(6,), actions="discrete"))
    batches = random_batches(2, 8)._replace(action=np.zeros((2, 8), np.int64))
    batches.action[1, 5] = number
    with pytest.raises(
        NotFiniteError, match=r"policy_loss .* at update 1 of this call; .* discrete actions out of range"
    ):
        learn(agent, batches, jax.random.key(0), unroll=1)


@pytest.mark.parametrize("name", AGENTS)
def test_a_misspelt_likelihood_is_refused(name):
    batch = random_batches(3)
    for read in (partial(scores, fresh(name)), fresh(name).score):
        with pytest.raises(DataError, match=r"not 'densty' \(did you mean 'density'\?\)"):
            read(batch.obs, batch.action, "densty")


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (IQLConfig, {"actions": "Discrete"}, "actions of IQLConfig must be 'continuous' or 'discrete', not 'Discrete'"),
        (PEXConfig, {"new_policy": "Copy"}, r"new_policy of PEXConfig must be .* \(did you mean 'copy'\?\)"),
        (PEXConfig, {"policy_actions": "both"}, "policy_actions of PEXConfig must be 'composite' or 'buffer'"),
        (PEXConfig, {"new_policy": None}, "new_policy of PEXConfig must be 'random' or 'copy', not None"),
        (FamO2OConfig, {"actions": 3}, "actions of FamO2OConfig must be 'continuous' or 'discrete', not 3"),
    ],
)
def test_a_misspelt_choice_is_refused(config, settings, message):
    with pytest.raises(DataError, match=message):
        config(**settings)


@pytest.mark.parametrize("name", AGENTS)
def test_scores_of_many_rows_are_the_agents_score(name):
    agent, batch = fresh(name), random_batches(23)
    for likelihood in ("standard", "density"):
        expected = agent.score(jnp.array(batch.obs), jnp.array(batch.action), likelihood)
        result = scores(agent, batch.obs, batch.action, likelihood, chunk=5)
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert scores(agent, batch.obs[:0], batch.action[:0]).shape == (0,)


@pytest.mark.parametrize("name", AGENTS)
def test_the_advantage_of_the_agents_own_action_over_the_stored_one(name):
    agent, batch = fresh(name, online=True), random_batches(7)
    q = getattr(agent, "critics", agent).q
    own = agent.mode(batch.obs)
    expected = q.min_q(batch.obs, own) - q.min_q(batch.obs, batch.action)
    np.testing.assert_allclose(advantages(agent, batch.obs, batch.action), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(advantages(agent, batch.obs, np.asarray(own)), np.zeros(7), atol=1e-5)


def test_the_advantage_of_discrete_actions():
    agent = IQL.create(jax.random.key(0), 4, 3, IQLConfig(hidden_dims=(6,), actions="discrete"))
    obs = random_batches(5).obs
    own = np.asarray(agent.mode(obs))
    gap = advantages(agent, obs, (own + 1) % 3)
    one_hot = np.eye(3, dtype=np.float32)
    q = agent.critics.q
    np.testing.assert_allclose(gap, q.min_q(obs, one_hot[own]) - q.min_q(obs, one_hot[(own + 1) % 3]), atol=1e-5)


def test_an_agent_without_critics_cannot_be_asked_for_advantages():
    with pytest.raises(DataError, match="str has no critics `q`"):
        advantages("no agent", np.zeros((1, 4)), np.zeros((1, 2)))


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


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_an_update_keeps_the_type_of_every_array(name, online):
    """A weakly typed number, such as `jnp.asarray(1.0)`, would change its type and have the update compiled anew."""
    agent, batch = fresh(name, online), jax.tree.map(jnp.asarray, random_batches(8))
    after = jax.eval_shape(lambda a, b, k: a.update(b, k)[0], agent, batch, jax.random.key(0))
    assert jax.tree.structure(after) == jax.tree.structure(agent)
    before = jax.eval_shape(lambda a: a, agent)
    types = [[(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(tree)] for tree in (before, after)]
    assert types[0] == types[1]
    assert not any(weak for _, _, weak in types[0])


def test_a_phase_compiles_its_updates_once():
    agent, before = fresh("CalQL"), _scan._cache_size()
    for i in range(3):
        agent, _ = learn(agent, random_batches(1, 3, seed=i), jax.random.key(i))
    assert _scan._cache_size() - before == 1
