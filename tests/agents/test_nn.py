"""Networks and descent, against values worked by hand and against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb.agents.agent import pytree
from arb.agents.nn import (
    Trainable,
    adam,
    cosine,
    create_critics,
    create_mlp,
    fan_in_uniform,
    named_arrays,
    nan_unless_finite,
    orthogonal,
    soft_update,
    with_arrays,
    xavier,
)
from arb.policies.networks import MLP


def test_a_network_worked_by_hand():
    net = MLP((np.array([[1.0, -1.0], [2.0, 0.0]]), np.array([[3.0], [5.0]])), (np.array([0.5, 0.5]), np.array([-1.0])))
    # Hidden: (1 + 4 + 0.5, -1 + 0.5) = (5.5, -0.5), after ReLU (5.5, 0); output 16.5 - 1.
    assert net(np.array([1.0, 2.0])) == 15.5
    assert net.scalar(np.array([[1.0, 2.0], [0.0, -1.0]])).tolist() == [15.5, 1.5]


def test_numpy_and_jax_agree_and_each_stays_in_its_library():
    net = create_mlp(jax.random.key(0), (5, 16, 16, 2))
    host = jax.tree.map(np.asarray, net)
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    assert isinstance(host(x), np.ndarray)
    assert isinstance(net(jnp.array(x)), jax.Array)
    np.testing.assert_allclose(host(x), net(jnp.array(x)), rtol=1e-5, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4))
def test_a_fan_of_actions_equals_repeating_the_state(states, actions, obs_dim, action_dim):
    rng = np.random.default_rng(states)
    weights = (rng.standard_normal((obs_dim + action_dim, 8)), rng.standard_normal((8, 1)))
    net = MLP(weights, (rng.standard_normal(8), rng.standard_normal(1)))
    obs, fan = rng.standard_normal((states, 1, obs_dim)), rng.standard_normal((states, actions, action_dim))
    repeated = np.broadcast_to(obs, (states, actions, obs_dim))
    np.testing.assert_allclose(net(obs, fan), net(np.concatenate([repeated, fan], -1)), rtol=1e-9, atol=1e-9)


def test_initialisers_have_the_scale_they_promise():
    weight, bias = fan_in_uniform(jax.random.key(0), 100, 300)
    for drawn in (weight, bias):
        assert (float(drawn.min()), float(drawn.max())) == pytest.approx((-0.1, 0.1), rel=0.05)
        assert abs(float(drawn.mean())) < 0.01
    weight, bias = orthogonal(jax.random.key(0), 64, 32)
    np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(32), atol=1e-5)
    assert not bias.any()
    weight, bias = xavier(jax.random.key(0), 100, 50)
    assert float(jnp.abs(weight).max()) == pytest.approx((6 / 150) ** 0.5, rel=0.01)
    assert not bias.any()


def test_a_fresh_layer_normalisation_changes_neither_scale_nor_place():
    net = create_mlp(jax.random.key(0), (3, 8, 5, 1), layer_norm=True)
    assert [(scale.tolist(), shift.tolist()) for scale, shift in net.norms] == [([1] * n, [0] * n) for n in (8, 5)]
    assert create_mlp(jax.random.key(0), (3, 8, 1)).norms == ()


@pytree
class Point(Trainable):
    x: jax.Array
    rest: jax.Array
    adam: dict

    @classmethod
    def at(cls, x):
        return cls(x, x, adam(x=x, rest=x))


def test_the_first_adam_step_has_the_length_of_the_learning_rate():
    point = Point.at(jnp.array([1.0, -2.0]))
    moved, value, more = point.apply_loss("x", lambda x: (jnp.sum(x**2), "more"), 0.1)
    # Adam's first direction is g / (|g| + 1e-8): the sign.
    np.testing.assert_allclose(moved.x, [0.9, -1.9], rtol=1e-6)
    np.testing.assert_array_equal(moved.rest, point.rest)
    assert (float(value), more, int(moved.adam["x"].count), int(moved.adam["rest"].count)) == (5.0, "more", 1, 0)


def test_a_loss_with_a_gradient_that_is_not_finite_is_reported_as_nan():
    _, value, _ = Point.at(jnp.zeros(2)).apply_loss("x", lambda x: (jnp.sum(jnp.sqrt(x)), None), 0.1)
    assert np.isnan(value)
    assert nan_unless_finite(jnp.array(1.0), {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}) == 1.0


def test_a_network_whose_incoming_gradient_overflows_shows_it_in_its_biases():
    net = create_mlp(jax.random.key(0), (3, 8, 8, 1))
    gradient = jax.grad(lambda n: n.scalar(jnp.ones((4, 3))).sum() * jnp.inf)(net)
    assert np.isnan(nan_unless_finite(jnp.array(0.0), gradient))


def test_inputs_so_large_that_adams_squares_overflow_are_noticed():
    net = create_mlp(jax.random.key(0), (3, 32, 32, 1))

    def loss(net, scale):
        return jnp.mean(net.scalar(scale * jnp.ones((4, 3))) ** 2)

    for scale, finite in ((1.0, True), (1e4, True), (1e12, False)):
        value, gradient = jax.value_and_grad(loss)(net, scale)
        assert np.isfinite(value)
        squares = [bool(np.isfinite(jnp.square(g)).all()) for g in jax.tree.leaves(gradient)]
        assert all(squares) == finite
        assert np.isfinite(nan_unless_finite(value, gradient)) == finite


def test_the_target_moves_a_fraction_of_the_distance():
    assert float(soft_update(jnp.array(1.0), jnp.array(3.0), 0.25)) == 1.5


def test_half_a_cosine_falls_and_stays_down():
    np.testing.assert_allclose([cosine(jnp.array(t), 100) for t in (0, 50, 100, 150)], [1.0, 0.5, 0.0, 0.0], atol=1e-6)
    assert [float(cosine(jnp.array(t), 0)) for t in (0, 1)] == [1.0, 0.0]  # finite for a fall of no length


def test_twins_differ_and_least_is_their_minimum():
    q = create_critics(jax.random.key(0), (3, 8, 1))
    obs, action = jnp.ones((5, 2)), jnp.linspace(-1, 1, 5)[:, None]
    first, second = q(obs, action)
    assert not np.allclose(first, second)
    assert (q.min_q(obs, action) == jnp.minimum(first, second)).all()


def test_arrays_of_a_tree_go_out_and_come_back():
    net = create_mlp(jax.random.key(0), (3, 4, 1))
    arrays = named_arrays(net)
    other = with_arrays(create_mlp(jax.random.key(1), (3, 4, 1)), arrays)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), net, other))
    with pytest.raises(ValueError, match=r"do not fit at \.biases\[0\]"):
        with_arrays(net, {name: array for name, array in arrays.items() if name != ".biases[0]"})
    with pytest.raises(ValueError, match="do not fit at"):
        with_arrays(create_mlp(jax.random.key(1), (3, 5, 1)), arrays)
    with pytest.raises(ValueError, match=r"do not fit at \.biases\[1\]"):
        with_arrays(net, arrays | {".biases[1]": arrays[".biases[1]"].astype(np.float64)})
