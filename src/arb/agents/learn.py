"""Many updates in one compiled call, and the score of many rows.

`learn` is `jax.lax.scan` over the leading axis of the batches, in pieces of a few dozen updates. The agent's arrays are
donated, so the agent passed in is used up: continue with the one returned, or pass in a `fork`. An update whose loss
is not finite changes nothing, nor does any after it, so that what comes out is always the last good state.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from arb.agents.agent import Agent, Transitions
from arb.agents.nets import Precision, copied, with_precision
from arb.errors import DataError
from arb.replay.scores import Likelihood, is_standard

ROWS_PER_CALL = 8192
"""For a buffer that is refreshed with `scores`: enough for the cost of a call to vanish."""
MOST_PER_PIECE = 40
"""Updates of one compiled call: Ctrl-C is heard after each."""
UNROLL = 4
"""Updates of one loop body, where there are enough of them to make up for the time to compile."""

AnyAgent = TypeVar("AnyAgent", bound=Agent)
Tree = TypeVar("Tree")


_ADVICE = (
    "the exception's `agent` is the state before that update. Check the batch for observations or rewards that are not "
    "finite or very large and for discrete actions out of range, or lower the learning rate"
)


class NotFiniteError(DataError, ArithmeticError):
    """A loss or its gradient left the finite numbers.

    `loss` is its name, `update` the update, counted from 0 in what `place` says, and `agent` the state before it.
    """

    def __init__(self, loss: str, update: int, agent: Any, place: str = "of this call", advice: str = _ADVICE) -> None:
        super().__init__(f"{loss} or its gradient is not finite at update {update:,} {place}; {advice}")
        self.loss, self.update, self.agent, self.place = loss, update, agent, place


def learn(
    agent: AnyAgent,
    batches: Transitions,
    key: Array,
    unroll: int | None = None,
    pause: Callable[[], None] | None = None,
) -> tuple[AnyAgent, dict[str, float]]:
    """As many updates as `batches` has on its leading axis: the new agent and the mean of each metric over the call.

    The agent passed in is used up; `learn(fork(agent), ...)` keeps it. A loss that is not finite raises a
    `NotFiniteError` with the last good state.

    Args:
        agent: any `Agent`.
        batches: transitions with leading axes (updates, batch), as of `buffer.sample((updates, batch))`.
        key: chance of the whole call; equal keys and batches give equal agents.
        unroll: updates compiled into one loop body, which saves a few per cent of the time but takes longer to compile;
            by default 4, and 1 in a call of fewer than 40 updates.
        pause: called between pieces of the work, a few dozen updates each; what it raises ends the call.
    """
    _refuse_misshapen(agent, batches)
    _refuse_used_up(agent)
    updates = len(batches.reward)
    if unroll is None:
        unroll = UNROLL if updates >= MOST_PER_PIECE else 1
    keys, piece = jax.random.split(key, updates), piece_of(updates, unroll)
    parts = []
    for start in range(0, updates, piece):
        if pause is not None:
            pause()
        some = jax.tree.map(lambda x: x[start : start + piece], (batches, keys))  # noqa: B023 - called at once
        agent, metrics = _scan(agent, *some, unroll=min(unroll, piece))
        parts.append(jax.device_get(metrics))
        _refuse_not_finite(parts[-1], start, agent)
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return agent, {name: float(np.mean(values, dtype=np.float64)) for name, values in together.items()}


def piece_of(updates: int, unroll: int = UNROLL) -> int:
    """Updates of one compiled call, at most 40: equal pieces where the number allows, else a shorter last one.

    >>> piece_of(1000), piece_of(400), piece_of(60), piece_of(250)
    (40, 40, 20, 40)
    """
    fitting = (n for n in range(unroll, MOST_PER_PIECE + 1, unroll) if updates % n == 0)
    return max(fitting, default=min(updates, MOST_PER_PIECE))


def _refuse_not_finite(metrics: dict[str, Any], start: int, agent: Any) -> None:
    finite = {name: np.isfinite(x) for name, x in metrics.items() if name.endswith("_loss")}
    first = {name: start + int(np.argmin(x)) for name, x in finite.items() if not x.all()}
    if first:
        name = min(first, key=lambda k: first[k])
        raise NotFiniteError(name, first[name], agent)


@partial(jax.jit, static_argnames="unroll", donate_argnums=0)
def _scan(agent: AnyAgent, batches: Transitions, keys: Array, unroll: int) -> tuple[AnyAgent, dict[str, Array]]:
    def step(
        carry: tuple[AnyAgent, Array], x: tuple[Transitions, Array]
    ) -> tuple[tuple[AnyAgent, Array], dict[str, Array]]:
        agent, good = carry
        moved, metrics = agent.update(*x)
        for name in metrics:
            good = good & jnp.isfinite(metrics[name]) if name.endswith("_loss") else good
        return (jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, agent), good), metrics

    (agent, _), metrics = jax.lax.scan(step, (agent, jnp.array(True)), (batches, keys), unroll=unroll)
    return agent, metrics


def fork(agent: AnyAgent) -> AnyAgent:
    """The same agent in memory of its own: `learn` uses up the one, and the other stays as it is.

    Agents share what they have in common, `agent.begin_online()` most of its networks with `agent`. So several futures
    of one agent start from forks: `learn(fork(agent).begin_online(), ...)`.
    """
    return copied(agent)


def _refuse_misshapen(agent: Any, batches: Transitions) -> None:
    """Compare shapes alone, which costs nothing beside a call; agents that do not say their sizes pass."""
    leading = np.shape(batches.reward)
    if len(leading) != 2 or 0 in leading:
        raise DataError(
            f"learn() needs rewards of shape (updates, batch), both at least 1, not {leading}: draw batches with "
            "buffer.sample((updates, batch))"
        )
    obs, action = getattr(agent, "obs_dim", None), getattr(agent, "action_dim", None)
    discrete = getattr(getattr(agent, "config", None), "actions", None) == "discrete"
    own = {"obs": (obs,), "next_obs": (obs,), "action": () if discrete else (action,), "mask": ()}
    for name, rest in own.items():
        column = getattr(batches, name)
        if isinstance(column, dict):
            raise DataError(f"{name} is a dict of arrays, but this agent reads one array: join them before storing")
        if None not in rest and np.shape(column) != (*leading, *rest):
            raise DataError(
                f"{name} has shape {np.shape(column)}, but this agent expects {(*leading, *rest)}: was it created for "
                "another environment?"
            )


def _refuse_used_up(agent: Any) -> None:
    if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(agent)):
        raise DataError(
            "the memory of this agent was reused by an earlier learn(): continue with the agent that learn() returned, "
            "or call learn(fork(agent), ...) to keep the original"
        )


def scores(
    agent: Agent,
    obs: NDArray[Any],
    action: NDArray[Any],
    likelihood: Likelihood = "standard",
    chunk: int = 512,
    precision: Precision | Literal["auto"] | None = None,
) -> NDArray[np.float32]:
    """`agent.score` of all rows, compiled, in chunks whose activations stay in the cache.

    This is what a buffer is refreshed with: `buffer.refresh(partial(scores, agent), chunk=ROWS_PER_CALL)`.

    Args:
        agent: any `Agent`.
        obs: observations of all rows.
        action: their actions.
        likelihood: how the policy's likelihood is read.
        chunk: rows that are scored at once.
        precision: of the matrix products between hidden layers; by default that of the agent's own settings. "auto" is
            bfloat16 on processors that have it, where it takes two thirds of the time (benchmarks/rounding.py).
    """
    is_standard(likelihood)  # refuses any other word
    agent = agent if precision is None else with_precision(agent, precision)
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


def advantages(agent: Any, obs: Any, action: NDArray[Any]) -> NDArray[np.float32]:
    """Q(s, π(s)) − Q(s, a) of each row: how much better the agent's critics find its own action than the stored one."""
    if not hasattr(getattr(agent, "critics", agent), "q"):
        kind = type(agent).__name__
        raise DataError(f"{kind} has no critics `q`, which this strategy needs: choose another strategy")
    return np.asarray(_advantages(agent, jnp.asarray(obs), jnp.asarray(action)))


@jax.jit
def _advantages(agent: Any, obs: Array, action: Array) -> Array:
    q, own = getattr(agent, "critics", agent).q, agent.mode(obs)
    if jnp.issubdtype(action.dtype, jnp.integer):
        own, action = (jax.nn.one_hot(a, agent.action_dim) for a in (own, action))
    gap: Array = q.least(obs, own) - q.least(obs, action)
    return gap


def on_host(tree: Tree) -> Tree:
    """The same networks with NumPy weights.

    `on_host(agent.actor)` acts on float32 observations with a `numpy.random.Generator`, without any compiled call.
    """
    moved: Tree = jax.tree.map(np.asarray, tree)
    return moved
