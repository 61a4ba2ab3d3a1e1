"""What an algorithm offers and what it is given, as types."""

from __future__ import annotations

from typing import Any, Protocol, Self

from jax import Array

from arb.buffer.likelihood import Likelihood

Metrics = dict[str, Array]
"""Scalars of one update; names of losses end in `_loss`, and those are watched for values that are not finite."""


class Transitions(Protocol):
    """An `arb.Batch` whose arrays are NumPy's or JAX's; observations are one array."""

    @property
    def obs(self) -> Any: ...  # noqa: D102
    @property
    def action(self) -> Any: ...  # noqa: D102
    @property
    def reward(self) -> Any: ...  # noqa: D102
    @property
    def next_obs(self) -> Any: ...  # noqa: D102
    @property
    def discount(self) -> Any: ...  # noqa: D102
    @property
    def return_to_go(self) -> Any: ...  # noqa: D102


class Agent(Protocol):
    """What every algorithm of the package offers; anything that offers it can be trained by `learn`."""

    def update(self, batch: Transitions, key: Array) -> tuple[Self, Metrics]:
        """One pure update."""

    def act(self, obs: Array, key: Array) -> Array:
        """An exploring action."""

    def mode(self, obs: Array, key: Array | None = None) -> Array:
        """The action for evaluation; the key is for those whose evaluation is random (PEX)."""

    def score(self, obs: Array, action: Array, likelihood: Likelihood = "standard") -> Array:
        """The log-likelihood that ARB reads; `arb.buffer.likelihood` defines its two readings."""

    def begin_online(self) -> Self:
        """The agent at the switch from offline to online; it may share arrays with this one (see `fork`)."""

    @property
    def actor(self) -> Any:
        """The networks that choose actions, with `act(obs, chance)` and `mode(obs, chance=None)`."""
