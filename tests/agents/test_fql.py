"""FQL and QC-FQL: losses by hand, whole updates worked out and in PyTorch, and their score."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb import ARB, ReplayBuffer, sample_score
from arb.agents import FQL, FQLConfig, learn, load, save, scores
from arb.agents.agent import KeySequence
from arb.agents.fql import distillation_loss, flow_matching_loss, improvement_loss, integrate
from arb.errors import DataError
from arb.policies.networks import MLP
from arb.replay.sequences import ChunkBatch
from tests.agents.conftest import random_batches, updated

SMALL = FQLConfig(hidden_dims=(8, 8), actor_lr=0.01, critic_lr=0.01, tau=0.25)
LINEAR = MLP((jnp.array([[1.0], [2.0], [3.0]]),), (jnp.array([0.5]),))
"""A velocity of s + 2x + 3t + 1/2."""


def test_losses_worked_by_hand():
    obs, action, noise, t = (jnp.array([[v]]) for v in (1.0, 0.6, -0.4, 0.25))
    # x = 0.75·(−0.4) + 0.25·0.6 = −0.15; v = 1 − 0.3 + 0.75 + 0.5 = 1.95; its target is 1.
    assert float(flow_matching_loss(LINEAR, obs, action, noise, t)) == pytest.approx(0.95**2)
    assert float(distillation_loss(jnp.array([[1.0, 3.0]]), jnp.array([[0.0, 1.0]]))) == pytest.approx(2.5)
    assert float(improvement_loss(jnp.array([1.0, -3.0]), False)) == pytest.approx(1.0)
    assert float(improvement_loss(jnp.array([1.0, -3.0]), True)) == pytest.approx(0.5)
    slope = jax.grad(lambda q: improvement_loss(q, True))(jnp.array([1.0, -3.0]))
    np.testing.assert_allclose(slope, [-0.25, -0.25])  # the scale is no part of the gradient


def test_euler_steps_worked_by_hand():
    obs, noise = jnp.array([[-1.0]]), jnp.array([[0.2]])
    # v(0.2, 0) = -1 + 0.4 + 0.5 = -0.1, so x = 0.15; v(0.15, 1/2) = -1 + 0.3 + 1.5 + 0.5 = 1.3, so x = 0.8.
    np.testing.assert_allclose(integrate(LINEAR, obs, noise, 2), [[0.8]], rtol=1e-6)
    np.testing.assert_allclose(integrate(LINEAR, obs + 1.0, noise, 2), [[1.0]])  # clipped


@pytest.mark.parametrize("more", [{}, {"target_q": "min", "normalize_q": True, "layer_norm": False, "alpha": 3.0}])
def test_the_losses_of_an_update_worked_from_its_formulas(more):
    config = replace(SMALL, **more)
    agent = FQL.create(jax.random.key(0), 4, 2, config)
    agent = replace(agent, target=jax.tree.map(lambda x: 0.9 * x, agent.q))
    batch, key = random_batches(32), jax.random.key(1)
    after, metrics = updated(agent, batch, key)
    rng = KeySequence(key)
    next_action = agent.policy.act(batch.next_obs, rng)
    noise, t, start = rng.standard_normal((32, 2)), rng.random((32, 1)), rng.standard_normal((32, 2))
    targets = jnp.stack(agent.target(batch.next_obs, next_action))
    y = batch.reward + 0.99 * batch.mask * (targets.min(0) if config.target_q == "min" else targets.mean(0))
    q1, q2 = agent.q(batch.obs, batch.action)
    action = agent.policy.net(batch.obs, start)
    q_own = sum(agent.q(batch.obs, jnp.clip(action, -1, 1))) / 2
    distilled = jnp.mean((action - integrate(agent.flow, batch.obs, start, 10)) ** 2)
    unit = jnp.abs(q_own).mean() if config.normalize_q else 1.0
    expected = {
        "critic_loss": (jnp.mean((q1 - y) ** 2) + jnp.mean((q2 - y) ** 2)) / 2,
        "flow_loss": flow_matching_loss(agent.flow, batch.obs, batch.action, noise, t),
        "distillation_loss": distilled,
        "policy_loss": config.alpha * distilled - q_own.mean() / unit,
        "q": jnp.minimum(q1, q2).mean(),
    }
    assert {k: float(v) for k, v in metrics.items()} == pytest.approx({k: float(v) for k, v in expected.items()}, 1e-4)
    halfway = jax.tree.map(lambda before, moved: 0.75 * before + 0.25 * moved, agent.target, after.q)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), after.target, halfway)
    assert [int(state.count) for state in (after.adam["q"], after.adam["flow"], after.adam["policy"])] == [1, 1, 1]
    again, _ = updated(agent, batch, key)
    jax.tree.map(np.testing.assert_array_equal, after, again)


def test_the_score_is_sample_score_of_the_one_step_actor():
    agent = FQL.create(jax.random.key(0), 4, 2, SMALL)
    batch = random_batches(32)
    half = np.random.default_rng(0).standard_normal((4, 2), dtype=np.float32)
    noises = iter(np.concatenate([half, -half]))
    drawn = sample_score(
        lambda obs: np.clip(agent.policy.net(obs, jnp.tile(next(noises), (32, 1))), -1.0, 1.0), n=8, scale=1.0
    )
    expected = drawn(np.asarray(batch.obs), np.asarray(batch.action))
    np.testing.assert_allclose(agent.score(batch.obs, batch.action), expected, rtol=1e-4)


def test_the_flow_learns_two_modes_and_the_actor_follows_it():
    config = FQLConfig(hidden_dims=(32, 32), alpha=100.0, actor_lr=3e-3)
    agent = FQL.create(jax.random.key(0), 4, 2, config)
    rng = np.random.default_rng(0)
    step = jax.jit(lambda a, b, k: a.update(b, k))
    for i in range(600):
        batch = random_batches(64)
        signs = rng.choice([-0.7, 0.7], (64, 1)).astype(np.float32)
        batch = batch._replace(action=jnp.asarray(np.repeat(signs, 2, 1)), reward=jnp.zeros(64), mask=jnp.zeros(64))
        agent, _ = step(agent, batch, jax.random.key(i))
    actions = np.asarray(agent.act(jnp.tile(batch.obs, (8, 1)), jax.random.key(0)))
    near = (np.abs(np.abs(actions) - 0.7) < 0.3).all(1) & (np.sign(actions[:, 0]) == np.sign(actions[:, 1]))
    assert near.mean() > 0.7
    assert 0.3 < (actions[:, 0] > 0).mean() < 0.7


@pytest.mark.parametrize("name", ["flow_steps", "chunk"])
def test_a_flow_without_steps_is_refused(name):
    with pytest.raises(DataError, match=f"{name} is 0"):
        FQLConfig(**{name: 0})


# ---- chunks of actions -----------------------------------------------------------------------------------------------
def chunk_batches(n: int, chunk: int, seed: int = 0) -> ChunkBatch:
    """Random chunks of which some are cut short by the end of their episode."""
    rng, one = np.random.default_rng(seed), random_batches(n, seed=seed)
    action = np.tanh(rng.standard_normal((n, chunk, 2))).astype(np.float32)
    valid = np.arange(chunk) < rng.integers(1, 2 * chunk, n)[:, None]
    return ChunkBatch(*one._replace(action=action)[:6], valid)


def torch_twin(agent: FQL, rates):
    torch = pytest.importorskip("torch")
    path = Path(__file__).parents[2] / "benchmarks" / "rivals.py"
    spec = importlib.util.spec_from_file_location("rivals", path)
    rivals = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rivals)
    twin = rivals.TorchFQL(4, 2, agent.config.hidden_dims, agent.chunk, agent.config.alpha, rates)
    ours = {"q": agent.q.members, "target": agent.target.members, "flow": [agent.flow], "policy": [agent.policy.net]}
    with torch.no_grad():
        for name, nets in ours.items():
            theirs = getattr(twin, name)
            for net, their in zip(nets, theirs if name in ("q", "target") else [theirs], strict=True):
                layers = [m for m in their if isinstance(m, torch.nn.Linear)]
                for layer, w, b in zip(layers, net.weights, net.biases, strict=True):
                    layer.weight.copy_(torch.tensor(np.asarray(w).T))
                    layer.bias.copy_(torch.tensor(np.asarray(b)))
    return torch, twin


@pytest.mark.parametrize("chunk", [1, 3])
def test_updates_agree_with_an_independent_implementation_in_pytorch(chunk):
    config = replace(SMALL, chunk=chunk, alpha=3.0)
    agent = FQL.create(jax.random.key(0), 4, 2, config)
    torch, twin = torch_twin(agent, (config.actor_lr, config.critic_lr, config.tau))
    for i in range(5):
        batch, key = (chunk_batches(32, chunk, i) if chunk > 1 else random_batches(32, seed=i)), jax.random.key(i)
        rng, shape = KeySequence(key), (32, 2 * chunk)
        noise = (
            rng.standard_normal(shape),
            rng.standard_normal(shape),
            rng.random((32, 1)),
            rng.standard_normal(shape),
        )
        agent, metrics = updated(agent, batch, key)
        columns = [torch.from_numpy(np.array(x)) for x in jax.tree.leaves(batch)]
        theirs = twin.update(*columns, noise=tuple(torch.from_numpy(np.array(x)) for x in noise))
        assert {name: float(metrics[name]) for name in theirs} == pytest.approx(theirs, rel=2e-4, abs=1e-5)
    weights = [m for m in twin.policy if isinstance(m, torch.nn.Linear)]
    for w, layer in zip(agent.policy.net.weights, weights, strict=True):
        np.testing.assert_allclose(w, layer.weight.detach().numpy().T, atol=2e-4)
    np.testing.assert_allclose(agent.target.members[1].weights[0], twin.target[1][0].weight.numpy().T, atol=2e-4)


def test_steps_behind_the_end_of_an_episode_teach_nothing():
    agent = FQL.create(jax.random.key(0), 4, 2, replace(SMALL, chunk=3, alpha=0.0))
    batch = chunk_batches(32, 3)
    other = batch._replace(action=np.where(batch.valid[..., None], batch.action, 0.123).astype(np.float32))
    short = ~batch.valid[:, -1]
    assert 0 < short.sum() < 32
    other = other._replace(reward=np.where(short, 99.0, batch.reward).astype(np.float32))
    (one, m), (two, n) = (updated(agent, b, jax.random.key(1)) for b in (batch, other))
    assert float(m["critic_loss"]) == pytest.approx(float(n["critic_loss"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), one.q, two.q)


def test_chunks_are_learned_scored_and_saved(tmp_path):
    agent = FQL.create(jax.random.key(0), 3, 2, replace(SMALL, chunk=3))
    assert np.shape(agent.act(np.zeros((5, 3), np.float32), jax.random.key(0))) == (5, 3, 2)
    assert np.shape(agent.mode(np.zeros(3, np.float32))) == (3, 2)
    rng, n = np.random.default_rng(0), 40
    buffer = ReplayBuffer(n, ARB("auto"), seed=0)
    buffer.load_dataset({
        "observations": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "rewards": np.ones(n), "terminals": np.arange(n) % 10 == 9,
    })  # fmt: skip
    seen = []
    buffer.refresh(lambda obs, action: seen.append(scores(agent, obs, action)) or seen[-1], chunk=3)
    assert np.ptp(seen[0]) > 0
    agent, metrics = learn(agent, buffer.sample((2, 8), chunk=3), jax.random.key(0))
    assert np.isfinite(metrics["critic_loss"])
    with pytest.raises(DataError, match=r"action has shape \(2, 8, 2\), but this agent expects \(2, 8, 3, 2\)"):
        learn(agent, buffer.sample((2, 8)), jax.random.key(0))
    save(agent, tmp_path / "agent")
    jax.tree.map(np.testing.assert_array_equal, agent, load(tmp_path / "agent", FQL, agent.config))
