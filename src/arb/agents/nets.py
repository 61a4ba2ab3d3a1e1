"""Networks and descent: what every algorithm of the package is built from.

Everything is a value: an `MLP` is a pytree of arrays, and `descend` returns a new one. The forward passes are those of
`arb.policies.networks`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from arb.agents.agent import constant, pytree
from arb.errors import DataError
from arb.policies import networks
from arb.policies.networks import namespace

Initialiser = Callable[[Array, int, int], tuple[Array, Array]]
"""`(key, n_in, n_out)` to a weight of shape (n_in, n_out) and a bias of shape (n_out,)."""
Params = TypeVar("Params")
Precision = Literal["float32", "bfloat16"]
AdamState = Any
"""First and second moments in the shape of the parameters, and the number of steps taken."""

_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


# Initialisation ------------------------------------------------------------------------------------------------------
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
    weight: Array = jax.nn.initializers.orthogonal(2.0**0.5)(key, (n_in, n_out))
    return weight, jnp.zeros(n_out)


def xavier(key: Array, n_in: int, n_out: int) -> tuple[Array, Array]:
    """Glorot-uniform weights and zero biases: the new policy of PEX."""
    weight: Array = jax.nn.initializers.glorot_uniform()(key, (n_in, n_out))
    return weight, jnp.zeros(n_out)


# Networks ------------------------------------------------------------------------------------------------------------
@pytree
class MLP(networks.MLP):
    """A network that is trained."""

    precision: Precision = constant(default="float32")
    """Of the matrix products between hidden layers; the weights, and everything in NumPy, are float32."""

    @classmethod
    def create(
        cls, key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, layer_norm: bool = False
    ) -> Self:
        """A network with `sizes = (inputs, hidden ..., outputs)`."""
        keys = jax.random.split(key, len(sizes) - 1)
        layers = [initialise(k, n_in, n_out) for k, (n_in, n_out) in zip(keys, pairwise(sizes), strict=True)]
        norms = tuple((jnp.ones(n), jnp.zeros(n)) for n in sizes[1:-1]) if layer_norm else ()
        return cls(tuple(w for w, _ in layers), tuple(b for _, b in layers), norms)

    def product(self, hidden: Array, weight: Array) -> Array:
        """The matrix product between two hidden layers."""
        if self.precision == "float32" or namespace(hidden, weight) is np:
            return hidden @ weight
        return half_product(hidden, weight)


@pytree
class Twin(networks.Twin):
    """Two critics that are trained."""

    @classmethod
    def create(
        cls, key: Array, sizes: tuple[int, ...], initialise: Initialiser = fan_in_uniform, layer_norm: bool = False
    ) -> Self:
        """Two networks with different weights."""
        one, two = (MLP.create(k, sizes, initialise, layer_norm) for k in jax.random.split(key))
        return cls(one, two)


# Precision -----------------------------------------------------------------------------------------------------------
@jax.custom_vjp
def half_product(x: Array, weight: Array) -> Array:
    """x @ weight of numbers rounded to bfloat16, summed in float32; so are both products of its derivative.

    Left to itself, JAX would multiply in float32 on the way back, which is two thirds of the work.
    """
    return _half_forward(x, weight)[0]


def _half_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    halves = x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16)
    return _summed_in_float32(*halves), halves


def _half_backward(halves: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, weight = halves
    slope = slope.astype(jnp.bfloat16)
    rows, slopes = (a.reshape(-1, a.shape[-1]) for a in (x, slope))
    return _summed_in_float32(slope, weight.T), _summed_in_float32(rows.T, slopes)


def _summed_in_float32(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


half_product.defvjp(_half_forward, _half_backward)


@cache
def bfloat16_works() -> bool:
    """Whether this machine multiplies in bfloat16, found out by doing it once."""
    ones = np.ones((8, 8), np.float32)
    try:
        with jax.ensure_compile_time_eval():
            slope = jax.jit(jax.grad(lambda x: half_product(x, x).sum()))(ones)
        return bool(np.allclose(slope, 16.0))
    except Exception:  # whatever a missing instruction or library raises
        return False


@cache
def bfloat16_is_fast() -> bool:
    """Whether the processor multiplies in bfloat16 by itself; where it does not, float32 is faster.

    A look at what the system says of the processor, not a measurement: a machine gives the same answer every time.
    """
    if jax.default_backend() != "cpu":
        return bfloat16_works()
    try:
        said = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    flags = next((line for line in said.splitlines() if line.lower().startswith(("flags", "features"))), "").split()
    return not _NATIVE.isdisjoint(flags) and bfloat16_works()


_NATIVE = {"avx512_bf16", "amx_bf16", "bf16"}
"""What processors call it: x86 of two kinds, and ARM."""


def with_precision(tree: Params, precision: Precision | Literal["auto"]) -> Params:
    """The same networks and optimisers, with products between hidden layers in this precision.

    "auto" is bfloat16 where `bfloat16_is_fast`, else float32.
    """
    if precision == "auto":
        precision = "bfloat16" if bfloat16_is_fast() else "float32"
    if precision == "bfloat16" and not bfloat16_works():
        raise DataError("this machine cannot multiply in bfloat16: use settings.precision=float32")

    def changed(part: Any) -> Any:
        return replace(part, precision=precision) if isinstance(part, MLP) else part

    same: Params = jax.tree.map(changed, tree, is_leaf=lambda part: isinstance(part, MLP))
    return same


# Descent -------------------------------------------------------------------------------------------------------------
def adam(params: Any) -> AdamState:
    """Adam before its first step."""
    return _ADAM.init(params)


def descend(
    loss: Callable[[Params], tuple[Array, Any]], params: Params, state: AdamState, rate: float | Array
) -> tuple[Params, AdamState, Array, Any]:
    """One Adam step down `loss`, which returns `(value, more)`: new parameters, new state, value, more."""
    (value, rest), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    params, state = move(params, gradient, state, rate)
    return params, state, guarded(value, gradient), rest


def move(params: Params, gradient: Params, state: AdamState, rate: float | Array) -> tuple[Params, AdamState]:
    """One Adam step along a gradient that is already known."""
    direction, state = _ADAM.update(gradient, state)
    return jax.tree.map(lambda p, d: p - rate * d, params, direction), state


def guarded(value: Array, gradient: Any) -> Array:
    """The loss, or NaN where the square of its gradient is not finite although the loss itself is.

    The square, because Adam keeps squares: one that overflows would hold its parameter still for ever.
    """
    squares = [jnp.vdot(g, g) for g in jax.tree.leaves(gradient)]
    return jnp.where(jnp.isfinite(sum(squares)), value, jnp.nan)


def follow(target: Params, source: Params, rate: float) -> Params:
    """The target moved by `rate` of its distance to the source (Polyak averaging)."""
    moved: Params = jax.tree.map(lambda t, s: t + rate * (s - t), target, source)
    return moved


def copied(tree: Params) -> Params:
    """The same values in buffers of their own: a call that may overwrite its input accepts no buffer twice."""
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
    wanted = {jax.tree_util.keystr(path): (leaf.shape, leaf.dtype) for path, leaf in leaves}
    wrong = sorted(wanted.keys() ^ arrays.keys())
    wrong += [name for name in wanted if name in arrays and wanted[name] != (arrays[name].shape, arrays[name].dtype)]
    if wrong:
        raise ValueError(f"the arrays do not fit at {', '.join(wrong[:3])}")
    filled: Params = jax.tree_util.tree_unflatten(structure, [jnp.array(arrays[name]) for name in wanted])
    return filled
