"""Networks made from random keys, and their optimisation: what every algorithm is built from."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from arb.errors import DataError
from arb.policies.actors import Gaussian, TanhGaussian
from arb.policies.networks import MLP, Ensemble

Params = TypeVar("Params")
AdamState = Any
"""First and second moments in the shape of the parameters, and the number of steps taken."""
Initialiser = Callable[[Array, int, int], tuple[Array, Array]]
"""`(key, n_in, n_out)` to a weight of shape (n_in, n_out) and a bias of shape (n_out,)."""

_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


# Networks ------------------------------------------------------------------------------------------------------------
def fan_in_uniform(key: Array, n_in: int, n_out: int) -> tuple[Array, Array]:
    """Weights and biases uniform in ±1/√n_in: PyTorch's default for a linear layer, used by the IQL family."""
    k_weight, k_bias = jax.random.split(key)
    bound = n_in**-0.5
    return (
        jax.random.uniform(k_weight, (n_in, n_out), minval=-bound, maxval=bound),
        jax.random.uniform(k_bias, (n_out,), minval=-bound, maxval=bound),
    )


def orthogonal(key: Array, n_in: int, n_out: int) -> tuple[Array, Array]:
    """Orthogonal weights of gain √2 and zero biases, in every layer: Cal-QL's networks."""
    return jax.nn.initializers.orthogonal(2.0**0.5)(key, (n_in, n_out)), jnp.zeros(n_out)


def xavier(key: Array, n_in: int, n_out: int) -> tuple[Array, Array]:
    """Glorot-uniform weights and zero biases: the new policy of PEX."""
    return jax.nn.initializers.glorot_uniform()(key, (n_in, n_out)), jnp.zeros(n_out)


def create_mlp(
    key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, layer_norm: bool = False
) -> MLP:
    """A network with `sizes = (inputs, hidden ..., outputs)`."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [initialise(k, n_in, n_out) for k, (n_in, n_out) in zip(keys, pairwise(sizes), strict=True)]
    norms = tuple((jnp.ones(n), jnp.zeros(n)) for n in sizes[1:-1]) if layer_norm else ()
    return MLP(tuple(w for w, _ in layers), tuple(b for _, b in layers), norms)


def create_critics(
    key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, layer_norm: bool = False, n: int = 2
) -> Ensemble:
    """`n` critics of the same size with different weights."""
    return Ensemble(tuple(create_mlp(k, sizes, initialise, layer_norm) for k in jax.random.split(key, n)))


def create_gaussian(
    key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, lowest: float = -20.0
) -> Gaussian:
    """A Gaussian policy of unit deviation; `log_std` is held in [lowest, 2]."""
    return Gaussian(create_mlp(key, sizes, initialise), jnp.zeros(sizes[-1]), lowest)


def create_tanh_gaussian(
    key: Array, sizes: tuple[int, ...], initialise: Initialiser = orthogonal, offset: float = -1.0
) -> TanhGaussian:
    """A tanh-Gaussian policy over `sizes[-1]` action dimensions: log σ = multiplier·net + offset; multiplier 1."""
    net = create_mlp(key, (*sizes[:-1], 2 * sizes[-1]), initialise)
    return TanhGaussian(net, jnp.ones(()), jnp.asarray(offset, jnp.float32))


# Optimisation --------------------------------------------------------------------------------------------------------
def adam(**params: Any) -> dict[str, AdamState]:
    """Adam before its first step, for each of several parameters by the name of its field."""
    return {name: _ADAM.init(value) for name, value in params.items()}


class Trainable:
    """A value that holds parameters in some fields, and in `adam` the states of their optimisers under the same names.

    Both methods return it with new parameters in one field and leave all others as they are, so steps that follow one
    another may take their losses at the networks as they were before the first.
    """

    adam: Any

    def apply_loss(
        self, name: str, loss: Callable[[Any], tuple[Array, Any]], rate: float | Array
    ) -> tuple[Self, Array, Any]:
        """One Adam step of a field on `loss`, which returns `(value, more)`: the new agent, value, more."""
        (value, more), gradient = jax.value_and_grad(loss, has_aux=True)(getattr(self, name))
        return self.apply_gradients(name, gradient, rate), nan_unless_finite(value, gradient), more

    def apply_gradients(self, name: str, gradient: Any, rate: float | Array) -> Self:
        """One Adam step of a field along a gradient that is already known."""
        direction, state = _ADAM.update(gradient, self.adam[name])
        moved = jax.tree.map(lambda p, d: p - rate * d, getattr(self, name), direction)
        return replace(self, **{name: moved, "adam": {**self.adam, name: state}})  # type: ignore[type-var]


def nan_unless_finite(value: Array, gradient: Any) -> Array:
    """The loss, or NaN where the square of its gradient is not finite although the loss itself is.

    The square, because Adam keeps squares: one that overflows would hold its parameter still for ever.
    """
    squares = [jnp.vdot(g, g) for g in jax.tree.leaves(gradient)]
    return jnp.where(jnp.isfinite(sum(squares)), value, jnp.nan)


def soft_update(target: Params, source: Params, tau: float) -> Params:
    """The target moved by `tau` of its distance to the source (Polyak averaging)."""
    moved: Params = jax.tree.map(lambda t, s: t + tau * (s - t), target, source)
    return moved


def tree_copy(tree: Params) -> Params:
    """The same values in memory of their own: a call that may overwrite its input accepts no array twice."""
    copy: Params = jax.tree.map(jnp.copy, tree)
    return copy


def cosine(count: Array, length: int) -> Array:
    """Half a cosine from 1 at step 0 to 0 at step `length` (0 counts as 1), and 0 after: it never rises again."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(count / max(length, 1), 1.0)))


# Trees as arrays -----------------------------------------------------------------------------------------------------
def named_arrays(tree: Any) -> dict[str, NDArray[Any]]:
    """Every array of a tree under the path that leads to it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.array(leaf, order="C") for path, leaf in leaves}


def with_arrays(like: Params, arrays: Mapping[str, NDArray[Any]]) -> Params:
    """A tree of the same structure holding these arrays; refused unless names, shapes and types are the same."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {jax.tree_util.keystr(path): (leaf.shape, leaf.dtype) for path, leaf in leaves}
    wrong = sorted(expected.keys() ^ arrays.keys())
    wrong += [
        name for name in expected if name in arrays and expected[name] != (arrays[name].shape, arrays[name].dtype)
    ]
    if wrong:
        raise DataError(f"the arrays do not fit at {', '.join(wrong[:3])}")
    filled: Params = jax.tree_util.tree_unflatten(structure, [jnp.array(arrays[name]) for name in expected])
    return filled
