"""Many updates in one compiled call, and the score of many rows.

`learn` is `jax.lax.scan` over the leading axis of the batches. The agent's buffers are donated, so the agent passed in
is used up: continue with the one returned. Nothing is read back until the call ends. An update whose loss is not finite
changes nothing, nor does any after it, so that what comes out is always the last good state.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from arb.agents.protocol import Agent, Transitions
from arb.buffer.likelihood import Likelihood

ROWS_PER_CALL = 8192
"""For a buffer that is refreshed with `scores`: enough for the cost of a call to vanish."""

AnyAgent = TypeVar("AnyAgent", bound=Agent)
Tree = TypeVar("Tree")


class NotFiniteError(ArithmeticError):
    """A loss or its gradient left the finite numbers; `agent` is the state before that update."""

    def __init__(self, loss: str, update: int, agent: Any) -> None:
        super().__init__(
            f"{loss} or its gradient is not finite at update {update} of this call; the exception's `agent` is the "
            "state before it: look for non-finite observations or rewards in the batch, or lower the learning rate"
        )
        self.loss, self.update, self.agent = loss, update, agent


def learn(agent: AnyAgent, batches: Transitions, key: Array, unroll: int = 4) -> tuple[AnyAgent, dict[str, float]]:
    """As many updates as `batches` has on its leading axis: the new agent and the mean of each metric over the call.

    `unroll` updates are compiled into one loop body, which saves a few per cent of the time and costs time to compile.
    """
    agent, means, losses = _scan(agent, batches, key, unroll=min(unroll, len(batches.reward)))
    finite = {name: np.isfinite(x) for name, x in jax.device_get(losses).items()}
    first = {name: int(np.argmin(x)) for name, x in finite.items() if not x.all()}
    if first:
        name = min(first, key=lambda k: first[k])
        raise NotFiniteError(name, first[name], agent)
    return agent, {name: float(x) for name, x in jax.device_get(means).items()}


@partial(jax.jit, static_argnames="unroll", donate_argnums=0)
def _scan(
    agent: AnyAgent, batches: Transitions, key: Array, unroll: int
) -> tuple[AnyAgent, dict[str, Array], dict[str, Array]]:
    def step(
        carry: tuple[AnyAgent, Array], x: tuple[Transitions, Array]
    ) -> tuple[tuple[AnyAgent, Array], dict[str, Array]]:
        agent, good = carry
        moved, metrics = agent.update(*x)
        good = good & jnp.isfinite(sum(v for k, v in metrics.items() if k.endswith("_loss")))
        return (jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, agent), good), metrics

    keys = jax.random.split(key, len(batches.reward))
    (agent, _), metrics = jax.lax.scan(step, (agent, jnp.array(True)), (batches, keys), unroll=unroll)
    losses = {k: v for k, v in metrics.items() if k.endswith("_loss")}
    return agent, {k: jnp.mean(v) for k, v in metrics.items()}, losses


def scores(
    agent: Agent, obs: NDArray[Any], action: NDArray[Any], likelihood: Likelihood = "standard", chunk: int = 512
) -> NDArray[np.float32]:
    """`agent.score` of all rows, compiled, in chunks whose activations stay in the cache.

    This is what a buffer is refreshed with: `buffer.refresh(partial(scores, agent), chunk=ROWS_PER_CALL)`.
    """
    whole = len(obs) // chunk * chunk
    parts = [
        _score_chunks(agent, jnp.asarray(obs[a:b]), jnp.asarray(action[a:b]), likelihood, size)
        for a, b, size in ((0, whole, chunk), (whole, len(obs), len(obs) - whole))
        if a < b
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


@partial(jax.jit, static_argnames=("likelihood", "chunk"))
def _score_chunks(agent: Agent, obs: Array, action: Array, likelihood: Likelihood, chunk: int) -> Array:
    parts = jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), (obs, action))
    mapped: Array = jax.lax.map(lambda x: agent.score(x[0], x[1], likelihood), parts)
    return mapped.reshape(-1)


def on_host(tree: Tree) -> Tree:
    """The same networks with NumPy weights.

    `on_host(agent.actor)` acts on float32 observations with a `numpy.random.Generator`, without any compiled call.
    """
    moved: Tree = jax.tree.map(np.asarray, tree)
    return moved
