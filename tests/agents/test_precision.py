"""bfloat16 between hidden layers: the products by hand, what is left alone, and how near an update stays."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import IQL, CalQL, CalQLConfig, IQLConfig, learn, nets, on_host, scores
from arb.agents.nets import MLP, half_product, with_precision
from arb.errors import DataError
from tests.agents.conftest import random_batches

HALF = IQLConfig(hidden=(16, 16), precision="bfloat16")


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32))


def test_a_product_and_its_derivatives_are_of_rounded_numbers_summed_in_float32():
    rng = np.random.default_rng(0)
    x, w, g = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5, 64), (64, 8), (3, 5, 8)))
    value, back = jax.vjp(half_product, x, w)
    np.testing.assert_allclose(value, rounded(x) @ rounded(w), rtol=1e-5, atol=1e-5)
    assert np.abs(value - x @ w).max() > 1e-3, "the rounding must show"
    dx, dw = back(g)
    np.testing.assert_allclose(dx, rounded(g) @ rounded(w).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, np.einsum("abi,abj->ij", rounded(x), rounded(g)), rtol=1e-5, atol=1e-5)
    assert value.dtype == dx.dtype == dw.dtype == jnp.float32


def test_only_products_between_hidden_layers_are_rounded():
    x = jax.random.normal(jax.random.key(1), (7, 3))
    for sizes, same in (((3, 16, 2), True), ((3, 16, 16, 2), False)):
        net = MLP.create(jax.random.key(0), sizes)
        half = with_precision(net, "bfloat16")
        assert np.array_equal(net(x), half(x)) is same
        np.testing.assert_allclose(net(x), half(x), atol=0.02)
    np.testing.assert_array_equal(on_host(half)(np.asarray(x)), on_host(net)(np.asarray(x)))  # NumPy acts in float32


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (IQL, HALF),
        (CalQL, CalQLConfig(policy_hidden=(16, 16), critic_hidden=(16, 16), samples=2)),
    ],
    ids=["IQL", "CalQL"],
)
def test_updates_stay_near_those_in_float32_and_weights_stay_float32(kind, config):
    metrics = {}
    for precision in ("float32", "bfloat16"):
        agent = kind.create(jax.random.key(0), 4, 2, replace(config, precision=precision))
        agent, metrics[precision] = learn(agent, random_batches(3, 32), jax.random.key(1), unroll=1)
        assert {x.dtype.name for x in jax.tree.leaves(agent)} <= {"float32", "int32"}
    assert metrics["bfloat16"] != metrics["float32"]
    assert metrics["bfloat16"] == pytest.approx(metrics["float32"], rel=0.05, abs=0.02)


def test_scores_have_a_precision_of_their_own():
    agent = IQL.create(jax.random.key(0), 4, 2, replace(HALF, precision="float32"))
    batch = random_batches(64)
    exact, half = (scores(agent, batch.obs, batch.action, precision=p) for p in (None, "bfloat16"))
    assert not np.array_equal(exact, half)
    np.testing.assert_allclose(exact, half, atol=0.05)
    other = IQL.create(jax.random.key(0), 4, 2, HALF)
    np.testing.assert_array_equal(scores(other, batch.obs, batch.action), half)


def test_a_machine_without_it_and_a_word_that_is_none_are_refused_in_one_line(monkeypatch):
    assert nets.bfloat16_works()
    with pytest.raises(DataError, match="precision of IQLConfig must be 'float32' or 'bfloat16', not 'half'"):
        IQLConfig(precision="half")
    nets.bfloat16_works.cache_clear()
    monkeypatch.setattr(nets, "half_product", lambda x, weight: 1 / 0)
    with pytest.raises(DataError, match=r"cannot multiply in bfloat16: use settings.precision=float32"):
        IQL.create(jax.random.key(0), 4, 2, HALF)
    nets.bfloat16_works.cache_clear()


@pytest.mark.parametrize(
    ("said", "fast"),
    [
        ("processor : 0\nflags\t\t: fpu sse2 avx512_bf16 avx512f\n", True),
        ("flags : fpu amx_bf16\n", True),
        ("Features : fp asimd bf16\n", True),
        ("flags : fpu avx512f\n", False),
        ("model name : the bf16 of 1999\n", False),
        (None, False),
    ],
)
def test_auto_is_bfloat16_where_the_processor_says_it_has_it(monkeypatch, said, fast):
    def read_text(self):
        assert str(self) == "/proc/cpuinfo"
        if said is None:
            raise FileNotFoundError
        return said

    nets.bfloat16_is_fast.cache_clear()
    monkeypatch.setattr(nets.Path, "read_text", read_text)
    assert nets.bfloat16_is_fast() == fast
    agent = IQL.create(jax.random.key(0), 4, 2, replace(HALF, precision="float32"))
    batch = random_batches(64)
    auto, same = (scores(agent, batch.obs, batch.action, precision=p) for p in ("auto", "bfloat16" if fast else None))
    np.testing.assert_array_equal(auto, same)
    nets.bfloat16_is_fast.cache_clear()
