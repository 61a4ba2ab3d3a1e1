"""What an agent is: a value that is updated, acts, and scores actions.

An agent is a frozen dataclass registered with JAX (`pytree`): it goes into compiled functions, gradients and loops, and
comes out. The networks and policies of `arb.policies` are registered here.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jax import Array

from arb.agents.nn import Trainable
from arb.policies.actors import Balance, Categorical, Gaussian, OneStep, PEXPolicy, PolicyFamily, TanhGaussian
from arb.policies.networks import MLP, Ensemble
from arb.policies.networks import constant as constant
from arb.replay.scores import Likelihood

Class = TypeVar("Class")
Transitions = Any
"""An `arb.Batch` whose arrays are NumPy's or JAX's; observations are one array."""
Metrics = dict[str, Array]
"""Scalars of one update. Names of losses end in `_loss`, and those are watched for values that are not finite."""


# Values --------------------------------------------------------------------------------------------------------------
def _register(cls: Any) -> None:
    names: dict[bool, list[str]] = {True: [], False: []}
    for f in fields(cls):
        names["constant" in f.metadata].append(f.name)
    jax.tree_util.register_dataclass(cls, data_fields=names[False], meta_fields=names[True])


for _kind in (MLP, Ensemble, Gaussian, TanhGaussian, Categorical, OneStep, PEXPolicy, Balance, PolicyFamily):
    _register(_kind)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(constant,))
def pytree(cls: type[Class]) -> type[Class]:
    """Make a class of annotated fields a value: arrays, trees of arrays or other values, and `constant`s.

    >>> @pytree
    ... class Line:
    ...     slope: jax.Array
    ...     name: str = constant(default="line")
    >>> doubled = jax.tree.map(lambda x: 2 * x, Line(jax.numpy.ones(2)))
    >>> doubled.slope.tolist(), doubled.name
    ([2.0, 2.0], 'line')
    """
    made = dataclass(frozen=True, eq=False)(cls)  # equality of arrays is not one truth, so it is that of objects
    _register(made)
    return made


class KeySequence:
    """A JAX key with the methods of `numpy.random.Generator` that policies use; every call uses a new subkey."""

    def __init__(self, key: Array) -> None:
        self._key = key

    def _next(self) -> Array:
        key: Array
        self._key, key = jax.random.split(self._key)
        return key

    def standard_normal(self, size: Any = (), dtype: Any = jnp.float32) -> Array:
        return jax.random.normal(self._next(), size, dtype)

    def random(self, size: Any = (), dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(self._next(), size, dtype)


# Agents --------------------------------------------------------------------------------------------------------------
class Agent(Trainable, ABC):
    """What every algorithm offers. `arb.testing.check_agent` checks one of your own; docs/extending.md shows how.

    A concrete agent is a `pytree` with networks, their optimisers in `adam`, and these four constants. It is made by
    `create(key, obs_dim, action_dim, config)`, where the annotation of `config` is the dataclass of its settings, with
    at least `discount`. One with a field `policy` that acts and scores needs to define `update` only.
    """

    obs_dim: int
    action_dim: int
    config: Any
    online: bool

    @abstractmethod
    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One pure update."""

    @property
    def actor(self) -> Any:
        """The networks that choose actions, with `act(obs, rng)` and `mode(obs, rng=None)`."""
        return self.policy  # type: ignore[attr-defined]

    @property
    def chunk(self) -> int:
        """Actions that the policy chooses at once. Above 1, batches are those of `sample(n, chunk=h)`."""
        return getattr(self.actor, "chunk", 1)

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The log-likelihood that ARB reads; `arb.replay.scores` defines its two readings."""
        scored: Array = self.actor.score(obs, action, likelihood)
        return scored

    def begin_online(self) -> Self:
        """The agent at the offline-to-online switch; it may share arrays with this one (see `clone`)."""
        return replace(self, online=True)  # type: ignore[type-var]

    def act(self, obs: Array, key: Array) -> Array:
        """An exploring action."""
        action: Array = self.actor.act(obs, KeySequence(key))
        return action

    def mode(self, obs: Array, key: Array | None = None) -> Array:
        """The action for evaluation; only a policy that is stochastic in evaluation (PEX, FQL) uses the key."""
        action: Array = self.actor.mode(obs, None if key is None else KeySequence(key))
        return action
