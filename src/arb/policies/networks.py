"""Networks as values, with one forward pass for NumPy and JAX.

With NumPy weights and inputs everything here runs in NumPy, which needs no JAX and is faster for one observation on a
CPU. With JAX arrays it is JAX: `arb.agents` registers these classes as pytrees and trains them.
"""

from dataclasses import MISSING, dataclass, field
from functools import reduce
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy or of JAX."""


def namespace(*arrays: Array) -> Any:
    """The library that computes with these arrays: NumPy if all are NumPy's, else that of the first other one."""
    for array in arrays:
        if not isinstance(array, np.ndarray | np.generic):
            return array.__array_namespace__()
    return np


def constant(*, default: Any = MISSING) -> Any:
    """A field that holds no array. JAX compiles it into its functions, so it must be hashable."""
    return field(default=default, metadata={"constant": True})


@dataclass(frozen=True, eq=False)
class MLP:
    """A ReLU network with a linear last layer; weights are stored as (in, out)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    norms: tuple[tuple[Array, Array], ...] = ()
    """Scale and shift of each hidden layer's normalisation; none without layer normalisation."""

    def __call__(self, *inputs: Array) -> Array:
        """Outputs for the inputs joined along their last axis; leading axes broadcast."""
        weight, bias = self.weights[0], self.biases[0]
        if all(x.shape[:-1] == inputs[0].shape[:-1] for x in inputs):
            joined = inputs[0] if len(inputs) == 1 else namespace(*inputs).concatenate(inputs, axis=-1)
            hidden = joined @ weight + bias
        else:  # many actions at one state: the state's part of the first layer is computed once, not once per action
            ends = np.cumsum([x.shape[-1] for x in inputs])
            hidden = sum((x @ weight[end - x.shape[-1] : end] for x, end in zip(inputs, ends, strict=True)), bias)
        for i, (weight, bias) in enumerate(zip(self.weights[1:], self.biases[1:], strict=True)):
            if self.norms:
                hidden = layer_norm(hidden, *self.norms[i])
            hidden = relu(hidden) @ weight + bias
        return hidden

    def scalar(self, *inputs: Array) -> Array:
        """The only output, without its axis."""
        return self(*inputs)[..., 0]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Critics of (observation, action): two, or as many as SAC's `num_critics`."""

    members: tuple[MLP, ...]

    def __call__(self, obs: Array, action: Array) -> tuple[Array, ...]:
        return tuple(member.scalar(obs, action) for member in self.members)

    def min_q(self, obs: Array, action: Array) -> Array:
        values = self(obs, action)
        return reduce(namespace(*values).minimum, values)

    def mean_q(self, obs: Array, action: Array) -> Array:
        return sum(self(obs, action)) / len(self.members)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """Mean 0 and variance 1 over the last axis, then scaled and shifted."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred * (variance + 1e-6) ** -0.5 * scale + shift


def relu(x: Array) -> Array:
    """max(x, 0). In JAX a choice and not a maximum, whose derivative at 0 is 1/2."""
    xp = namespace(x)
    return xp.maximum(x, 0) if xp is np else xp.where(x <= 0, 0, x)


def softplus(x: Array) -> Array:
    """ln(1 + exp x)."""
    return np.logaddexp(x, 0.0) if namespace(x) is np else _jax_nn().softplus(x)


def log_softmax(x: Array) -> Array:
    """Logarithms of the softmax over the last axis."""
    if namespace(x) is not np:
        return _jax_nn().log_softmax(x)
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _jax_nn() -> Any:
    """JAX's own functions, for their gradients; reached only with arrays of JAX."""
    import jax

    return jax.nn
