"""BERB: bound, priorities and first weights by hand, the sampler's promises, and the loop it works in."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb.agents import NotFiniteError
from arb.agents.density import DensityRatio, Ratio, RatioConfig, first_online_priority, jensen_shannon_bound, priority
from arb.errors import DataError
from arb.replay.buffer import ReplayBuffer

SMALL = RatioConfig(hidden_dims=(16, 16), learning_rate=3e-3, batch_size=64, first_steps=10)
BOUND_SLOPES = jax.jit(jax.grad(jensen_shannon_bound, argnums=(0, 1)))


def sampler(config: RatioConfig = SMALL) -> DensityRatio:
    return DensityRatio(Ratio.create(jax.random.key(0), 2, 1, config))


def test_the_bound_worked_by_hand():
    # w = 1 makes both logarithms 0; w = 3: -ln(2/4) = 0.693 offline, ln(6/4) = 0.405 online.
    ones, threes = jnp.ones(4), jnp.full(4, 3.0)
    assert float(jensen_shannon_bound(ones, ones)) == pytest.approx(0.0, abs=1e-6)
    assert float(jensen_shannon_bound(threes, threes)) == pytest.approx(math.log(2) - math.log(1.5), rel=1e-5)
    assert math.isfinite(float(jensen_shannon_bound(jnp.zeros(4), jnp.zeros(4))))


@settings(max_examples=50, deadline=None)
@given(st.floats(0.05, 20.0))
def test_the_bound_is_least_at_the_ratio_of_densities(ratio):
    def slope(w):
        """Of the bound in w(s, a), where online rows are `ratio` times as frequent as offline ones."""
        offline, online = BOUND_SLOPES(w, w)
        return float(offline) + ratio * float(online)

    assert slope(0.9 * ratio) < 0.0 < slope(1.1 * ratio)
    assert slope(ratio) == pytest.approx(0.0, abs=1e-5)


def test_priorities_worked_by_hand():
    offline = jnp.array([1.0, 32.0])  # fifth roots 1 and 2, mean 1.5
    weights = priority(jnp.array([32.0, 1.0, 0.0, 1e30]), offline, 5.0)
    np.testing.assert_allclose(weights, [2 / 1.5, 1 / 1.5, 0.001, 1000.0], rtol=1e-5)


def test_discrete_actions_are_read_as_vectors():
    ratio = Ratio.create(jax.random.key(1), 2, 3, SMALL)
    obs, number = jnp.ones((3, 2)), jnp.arange(3)
    values = ratio(obs, number)
    np.testing.assert_allclose(values, ratio(obs, jnp.eye(3)), rtol=1e-6)
    assert len(set(values.tolist())) == 3


def test_the_first_online_steps_have_their_share():
    assert first_online_priority(1_000_000, 0.5, 1000) == 1000.0
    assert first_online_priority(200_000, 0.5, 1000) == 200.0
    p = first_online_priority(5000, 0.75, 1000)
    assert 1000 * p / (1000 * p + 5000) == pytest.approx(0.75)


@pytest.mark.parametrize("config", [RatioConfig(first_online_share=1.0), RatioConfig(first_steps=0)])
def test_a_share_that_no_weight_gives_is_refused(config):
    with pytest.raises(DataError, match="a share from 0 to below 1, and at least 1 step"):
        sampler(config)


def test_the_authors_values():
    config = RatioConfig()
    assert (config.learning_rate, config.temperature, config.batch_size) == (3e-4, 5.0, 256)
    assert (config.first_online_share, config.first_steps) == (0.5, 1000)
    assert sampler(RatioConfig(first_online_share=0.0)).trainable  # a share of nothing is one


def test_a_fresh_network_says_one():
    ratio = Ratio.create(jax.random.key(0), 11, 3)
    values = ratio(jnp.ones((5, 11)), jnp.ones((5, 3)))
    np.testing.assert_allclose(values, 1.0, atol=0.15)
    assert [w.shape for w in ratio.net.weights] == [(14, 256), (256, 256), (256, 1)]
    assert float(jnp.abs(ratio.net.weights[1]).max()) <= 1 / 16
    assert float(jnp.abs(ratio.net.weights[2]).max()) <= 3e-3
    for weights, bound in ((ratio.net.weights[1], 1 / 16), (ratio.net.weights[2], 3e-3)):  # over the whole range
        assert float(weights.min()) < -0.9 * bound
        assert float(weights.max()) > 0.9 * bound


def loaded(config: RatioConfig = SMALL, online: int = 10) -> ReplayBuffer:
    """100 offline rows around -1, and online rows around +1."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(200, sampler(config), seed=0)
    obs = rng.normal(-1.0, 0.3, (100, 2)).astype(np.float32)
    ends = np.arange(100) % 10 == 9
    buffer.load_dataset({"observations": obs, "actions": obs[:, :1], "rewards": np.zeros(100), "terminals": ends})
    for i in range(online):
        at = rng.normal(1.0, 0.3, 2).astype(np.float32)
        buffer.add(at, at[:1], 0.0, at, terminated=i % 5 == 4, truncated=i % 5 != 4)
    return buffer


def test_first_weights_and_growth_of_the_greatest():
    buffer = loaded()
    p = buffer.sampler.probabilities()
    np.testing.assert_allclose(p[:100], 1 / 200)
    assert p[100:].sum() == pytest.approx(0.5)
    buffer.sampler.used(np.array([0, 1]), np.array([40.0, 0.5]))
    buffer.add(np.ones(2, np.float32), np.ones(1, np.float32), 0.0, np.ones(2, np.float32), terminated=True)
    weights = buffer.sampler.probabilities()
    assert weights[110] == pytest.approx(weights[0])  # new rows weigh the most there has been
    assert weights[0] / weights[1] == pytest.approx(80.0)
    buffer.sampler.used(np.array([0, 1, 110]), np.array([0.1, 0.5, 0.2]))  # the greatest never falls
    buffer.add(np.ones(2, np.float32), np.ones(1, np.float32), 0.0, np.ones(2, np.float32), terminated=True)
    weights = buffer.sampler.probabilities()
    assert weights[111] / weights[1] == pytest.approx(80.0)
    assert buffer.stats()["online_priority"] == 40.0


def test_only_drawn_rows_get_new_priorities_from_the_network_before_its_step():
    buffer = loaded()
    before = buffer.sampler._tree.get(np.arange(110))
    rows = buffer.sample_indices(32)
    batch, ratio = buffer.gather(rows), jax.tree.map(jnp.copy, buffer.sampler.ratio)
    rng = np.random.default_rng(3)
    offline = buffer.gather(np.split(buffer.sampler._origins.sample_indices(np.random.default_rng(3), (128,)), 2)[0])
    expected = priority(ratio(batch.obs, batch.action), ratio(offline.obs, offline.action), 5.0)
    loss = buffer.sampler.train(rows, buffer.gather, rng)
    after = buffer.sampler._tree.get(np.arange(110))
    assert math.isfinite(loss)
    untouched = np.setdiff1d(np.arange(110), rows)
    np.testing.assert_array_equal(after[untouched], before[untouched])
    np.testing.assert_allclose(after[rows], expected, rtol=1e-4)


def test_in_the_loop_it_learns_to_prefer_online_rows():
    buffer, rng = loaded(online=50), np.random.default_rng(1)
    assert buffer.sampler.trainable
    losses = []
    for _ in range(300):
        rows = buffer.sample_indices(64)
        losses.append(buffer.sampler.train(rows, buffer.gather, rng))
    assert np.mean(losses[-20:]) < np.mean(losses[:5]) - 0.5
    weights = buffer.sampler._tree.get(np.arange(150))
    assert weights[100:].mean() > 2.0 * weights[:100].mean()
    assert buffer.stats()["ratio_loss"] == losses[-1]


def test_without_online_rows_nothing_happens():
    buffer = loaded(online=0)
    assert math.isnan(buffer.sampler.train(buffer.sample_indices(8), buffer.gather, np.random.default_rng(0)))
    np.testing.assert_allclose(buffer.sampler.probabilities(), 0.01)


def test_a_batch_is_stratified():
    buffer = loaded()
    online = buffer.index.is_online(buffer.sample_indices((50, 64))).sum(axis=1)
    assert (online == 32).all()  # half of the mass is half of the strata, exactly


def test_a_restored_sampler_continues_with_the_same_rows():
    buffer = loaded()
    buffer.sampler.train(buffer.sample_indices(32), buffer.gather, np.random.default_rng(0))
    twin = loaded()
    twin.sampler.restore(buffer.sampler.state())
    futures = []
    for each in (buffer, twin):
        rng, rows = np.random.default_rng(5), []
        for _ in range(5):
            rows.append(each.sample_indices(32, rng=rng))
            each.sampler.train(rows[-1], each.gather, rng)
        futures.append(np.array(rows))
    np.testing.assert_array_equal(*futures)


def test_a_loss_that_is_not_finite_stops_and_keeps_network_and_priorities():
    buffer = loaded()
    network, weights = jax.tree.map(np.array, buffer.sampler.ratio.net), buffer.sampler._tree.state()
    rows, rng = buffer.sample_indices(32), np.random.default_rng(0)

    def broken(rows):
        return buffer.gather(rows)._replace(obs=np.full((len(rows), 2), np.nan, np.float32))

    with pytest.raises(NotFiniteError, match="ratio_loss"):
        buffer.sampler.train(rows, broken, rng)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), network, buffer.sampler.ratio.net))
    np.testing.assert_array_equal(weights, buffer.sampler._tree.state())
