"""SAC: its losses by hand, one whole update worked out, layer-normalised critics, and RLPD's ensemble."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import SAC, SACConfig
from arb.agents.agent import KeySequence
from arb.agents.nn import create_critics, create_mlp
from arb.agents.sac import policy_loss, soft_value, subset_min_q, temperature_loss
from arb.errors import DataError
from arb.policies.networks import layer_norm
from arb.replay.scores import tanh_gaussian_log_likelihood
from tests.agents.conftest import random_batches, updated

SMALL = SACConfig(hidden_dims=(8, 8), actor_lr=0.01, critic_lr=0.01, tau=0.25)


def test_losses_worked_by_hand():
    assert soft_value(jnp.array([1.0]), jnp.array(0.5), jnp.array([-4.0])).tolist() == [3.0]
    # Log-densities 1 and 3 are an entropy of -2 where -3 is asked: too random, so the loss falls with alpha.
    assert float(temperature_loss(jnp.array(2.0), jnp.array([1.0, 3.0]), -3.0)) == pytest.approx(2.0)
    assert float(policy_loss(jnp.array(0.5), jnp.array([2.0, 4.0]), jnp.array([1.0, 1.0]))) == pytest.approx(0.5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_losses_of_an_update_worked_from_its_formulas(layer_norm):
    agent = SAC.create(jax.random.key(0), 4, 2, replace(SMALL, layer_norm=layer_norm))
    agent = replace(agent, log_alpha=jnp.log(jnp.array(0.3)), target=jax.tree.map(lambda x: 0.9 * x, agent.q))
    batch, key = random_batches(32), jax.random.key(1)
    after, metrics = updated(agent, batch, key)
    k_next, k_policy = jax.random.split(key)
    (next_action, next_log_prob), (action, log_prob) = (
        jax.tree.map(lambda x: x[:, 0], agent.policy.sample(obs, KeySequence(k), 1))
        for obs, k in ((batch.next_obs, k_next), (batch.obs, k_policy))
    )
    y = batch.reward + 0.99 * batch.mask * (agent.target.min_q(batch.next_obs, next_action) - 0.3 * next_log_prob)
    q1, q2 = agent.q(batch.obs, batch.action)
    expected = {
        "critic_loss": (jnp.mean((q1 - y) ** 2) + jnp.mean((q2 - y) ** 2)) / 2,
        "policy_loss": jnp.mean(0.3 * log_prob - agent.q.min_q(batch.obs, action)),
        "q": jnp.minimum(q1, q2).mean(),
        "alpha": 0.3,
        "entropy": -log_prob.mean(),
    }
    assert {k: float(v) for k, v in metrics.items()} == pytest.approx({k: float(v) for k, v in expected.items()}, 1e-4)
    halfway = jax.tree.map(lambda start, moved: 0.75 * start + 0.25 * moved, agent.target, after.q)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), after.target, halfway)
    assert [int(state.count) for state in (after.adam["q"], after.adam["policy"], after.adam["log_alpha"])] == [1, 1, 1]


@pytest.mark.parametrize(("entropy", "falls"), [(None, True), (-9.0, True), (9.0, False)])
def test_the_temperature_falls_while_the_policy_is_more_random_than_asked(entropy, falls):
    agent = SAC.create(jax.random.key(0), 4, 2, replace(SMALL, target_entropy=entropy))
    after, metrics = updated(agent, random_batches(32), jax.random.key(1))
    assert float(metrics["entropy"]) > -2.0, "which is what is asked of two dimensions if nothing is said"
    assert (float(after.log_alpha) < 0.0) is falls
    assert abs(float(after.log_alpha)) == pytest.approx(0.01, rel=1e-3)  # Adam's first step


def test_layer_normalisation_worked_by_hand():
    # Mean 2 and variance 2/3, in NumPy and in JAX.
    for x in (np.array([1.0, 2.0, 3.0]), jnp.array([1.0, 2.0, 3.0])):
        np.testing.assert_allclose(layer_norm(x, 2.0, 1.0), 1 + 2 * np.array([-1, 0, 1]) * 1.5**0.5, rtol=1e-5)
    net = create_mlp(jax.random.key(0), (3, 5, 4, 1), layer_norm=True)
    net = replace(net, norms=tuple((s + 1.0, b - 0.1) for s, b in net.norms))
    x = jnp.array([0.3, -2.0, 0.7])
    for i in range(2):
        x = jax.nn.relu(layer_norm(x @ net.weights[i] + net.biases[i], *net.norms[i]))
    np.testing.assert_allclose(net(jnp.array([0.3, -2.0, 0.7])), x @ net.weights[2] + net.biases[2], rtol=1e-5)


def test_layer_normalised_critics_stay_bounded_far_from_the_data():
    far = jnp.full((1, 2), 1e4)
    plain, normed = (create_critics(jax.random.key(0), (6, 32, 32, 1), layer_norm=on) for on in (False, True))
    assert abs(float(plain.min_q(jnp.zeros((1, 4)), far)[0])) > 100
    assert abs(float(normed.min_q(jnp.zeros((1, 4)), far)[0])) < 10


def test_the_policy_starts_wide():
    _, log_std = SAC.create(jax.random.key(0), 4, 2, SMALL).policy.parameters(jnp.zeros((1, 4)))
    assert np.abs(log_std).max() < 0.7


# RLPD's ensemble -----------------------------------------------------------------------------------------------------
RLPD = SACConfig(hidden_dims=(8, 8), layer_norm=True, num_critics=5, critic_subset=2, actor_q="mean")


def forward(net, x):
    """The network in plain NumPy and double precision, written anew."""
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = np.asarray(x, np.float64) @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)
        if i < len(net.weights) - 1:
            if net.norms:
                scale, shift = (np.asarray(part, np.float64) for part in net.norms[i])
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale + shift
            x = np.maximum(x, 0.0)
    return x


def sampled(policy, obs, key):
    """An action and its log-density in NumPy; the noise is that of the agent."""
    mean, raw = np.split(forward(policy.net, obs), 2, axis=-1)
    log_std = np.clip(float(policy.multiplier) * raw + float(policy.offset), -20.0, 2.0)
    noise = np.asarray(KeySequence(key).standard_normal((len(obs), 1, mean.shape[-1])))[:, 0]
    action = np.tanh(mean + np.exp(log_std) * noise)
    return action, tanh_gaussian_log_likelihood(action, mean, log_std, "density")


@pytest.mark.parametrize("backup_entropy", [True, False])
def test_an_update_of_the_ensemble_equals_plain_numpy(backup_entropy):
    agent = SAC.create(jax.random.key(0), 4, 2, replace(RLPD, backup_entropy=backup_entropy))
    members = create_critics(jax.random.key(7), (6, 8, 8, 1), layer_norm=True, n=5)
    agent = replace(agent, log_alpha=jnp.log(jnp.array(0.3)), target=members)
    batch, key = random_batches(16), jax.random.key(1)
    _, metrics = updated(agent, batch, key)
    k_next, k_policy = jax.random.split(key)
    chosen = jax.random.choice(jax.random.fold_in(key, 2), 5, (2,), replace=False)
    action, log_prob = sampled(agent.policy, batch.next_obs, k_next)
    values = [forward(members.members[i], np.concatenate([batch.next_obs, action], -1))[:, 0] for i in chosen]
    next_value = np.minimum(*values) - (0.3 * log_prob if backup_entropy else 0.0)
    y = batch.reward + 0.99 * batch.mask * next_value
    of_data = [forward(net, np.concatenate([batch.obs, batch.action], -1))[:, 0] for net in agent.q.members]
    assert float(metrics["critic_loss"]) == pytest.approx(np.mean([(q - y) ** 2 for q in of_data]), rel=1e-4)
    assert float(metrics["q"]) == pytest.approx(np.min(of_data, axis=0).mean(), rel=1e-4)
    action, log_prob = sampled(agent.policy, batch.obs, k_policy)
    mean_q = np.mean([forward(net, np.concatenate([batch.obs, action], -1))[:, 0] for net in agent.q.members], axis=0)
    assert float(metrics["policy_loss"]) == pytest.approx(np.mean(0.3 * log_prob - mean_q), rel=1e-3)


@pytest.mark.parametrize("chosen", [(0,), (3, 1), (4, 0, 2), (0, 1, 2, 3, 4)])
def test_the_smallest_value_of_a_subset(chosen):
    critics, rng = create_critics(jax.random.key(0), (6, 8, 1), n=5), np.random.default_rng(0)
    obs, action = rng.standard_normal((7, 4), dtype=np.float32), rng.standard_normal((7, 2), dtype=np.float32)
    values = np.stack(critics(obs, action))
    result = subset_min_q(critics, jnp.array(chosen), obs, action)
    np.testing.assert_allclose(result, values[list(chosen)].min(0), rtol=1e-5, atol=1e-6)
    assert (result >= critics.min_q(obs, action) - 1e-6).all()
    np.testing.assert_allclose(critics.mean_q(obs, action), values.mean(0), rtol=1e-5, atol=1e-6)


def test_the_policy_is_updated_every_third_time():
    agent, counts, losses = SAC.create(jax.random.key(0), 4, 2, replace(SMALL, actor_period=3)), [], []
    for i in range(6):
        if i == 2:  # the step itself is the one that an agent without a period takes
            expected, reported = updated(replace(agent, config=SMALL), random_batches(16, seed=i), jax.random.key(i))
        agent, metrics = updated(agent, random_batches(16, seed=i), jax.random.key(i))
        if i == 2:
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), agent.policy, expected.policy
            )
            assert float(metrics["policy_loss"]) == pytest.approx(3 * float(reported["policy_loss"]), rel=1e-4)
        counts.append((int(agent.adam["q"].count), int(agent.adam["policy"].count), int(agent.adam["log_alpha"].count)))
        losses.append(float(metrics["policy_loss"]) != 0.0)
    assert counts == [(1, 0, 0), (2, 0, 0), (3, 1, 1), (4, 1, 1), (5, 1, 1), (6, 2, 2)]
    assert losses == [False, False, True] * 2


def test_an_ensemble_that_makes_no_sense_is_refused():
    for changed in ({"critic_subset": 3}, {"critic_subset": 0}, {"num_critics": 0}):
        with pytest.raises(DataError, match="no larger subset than there are critics"):
            SACConfig(**changed)
