"""The deterministic plug-in of examples/agents: worked by hand, scored by distance, and run, killed and exported."""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb import distance_score
from arb.lab.config import configure
from arb.lab.training import run
from arb.policies import load_policy
from arb.testing import check_agent
from tests.agents.conftest import random_batches, updated
from tests.lab import tiny

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "agents"))

from td3_bc import TD3BC, TD3BCSettings, actor_loss, smoothed

SMALL = TD3BCSettings(hidden_dims=(8, 8), learning_rate=0.01)


def test_it_keeps_the_promises_of_an_agent():
    check_agent(TD3BC, SMALL)


def test_losses_worked_by_hand():
    # Distances 0.25 and 0, mean 1/8; Q of 1 and -3 has the mean -1 and the size 2, so minus 2.5·(-1)/2.
    loss = actor_loss(jnp.array([[0.5], [1.0]]), jnp.array([[0.0], [1.0]]), jnp.array([1.0, -3.0]), 2.5)
    assert float(loss) == pytest.approx(0.125 + 1.25)
    np.testing.assert_allclose(smoothed(jnp.array([0.0, 0.0, 0.9]), jnp.array([1.0, -9.0, 9.0]), SMALL), [0.2, -0.5, 1])


def test_the_critics_move_at_every_update_and_the_rest_at_every_second():
    agent = TD3BC.create(jax.random.key(0), 4, 2, SMALL)
    batch = random_batches(32)
    noise = jax.random.normal(jax.random.key(1), (32, 2))
    next_q = agent.q_target.min_q(batch.next_obs, smoothed(agent.policy_target.mode(batch.next_obs), noise, SMALL))
    y = batch.reward + 0.99 * batch.mask * next_q
    one, metrics = updated(agent, batch, jax.random.key(1))
    expected = sum(float(jnp.mean((q - y) ** 2)) for q in agent.q(batch.obs, batch.action))
    assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-4)
    two, _ = updated(one, batch, jax.random.key(2))

    def moved(name, before, after):
        pairs = zip(jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)), strict=True)
        return any((np.asarray(a) != np.asarray(b)).any() for a, b in pairs)

    parts = ("policy", "policy_target", "q_target")
    assert [moved(name, agent, one) for name in ("q", *parts)] == [True, False, False, False]
    assert [moved(name, one, two) for name in ("q", *parts)] == [True, True, True, True]
    np.testing.assert_allclose(np.exp(two.policy.log_std), 0.1, rtol=1e-6)  # no part of the training


def test_its_score_is_the_distance_from_its_action():
    agent, batch = TD3BC.create(jax.random.key(0), 4, 2, SMALL), random_batches(32)
    expected = distance_score(lambda obs: np.asarray(agent.mode(obs)))(np.asarray(batch.obs), np.asarray(batch.action))
    np.testing.assert_allclose(agent.score(batch.obs, batch.action), expected, rtol=1e-5)


def test_a_run_with_arb_auto_leaves_a_policy_for_numpy(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    settings = tiny.SMALL | {"settings.hidden_dims": (8, 8)}
    config = configure(
        task=str(tmp_path / "data.npz"), env="Pendulum-v1", agent="td3_bc:TD3BC", strategy="arb_auto",
        overrides=settings,
    )  # fmt: skip
    result = run(config, tmp_path / "run")
    assert np.isfinite(result.last)
    assert abs(float(load_policy(tmp_path / "run")([1.0, 0.0, 0.0])[0])) <= 2.0


def test_it_follows_the_data_where_nothing_is_known_of_values():
    agent = TD3BC.create(jax.random.key(0), 4, 2, replace(SMALL, alpha=0.0, policy_delay=1))
    for i in range(400):
        batch = random_batches(64, seed=i)
        batch = batch._replace(action=np.tanh(batch.obs[:, :2]))
        agent, _ = updated(agent, batch, jax.random.key(i))
    assert float(jnp.mean((agent.mode(batch.obs) - batch.action) ** 2)) < 0.01
