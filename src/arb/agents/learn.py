"""Many updates in one compiled call, the score of many rows, and agents in files.

`learn` is `jax.lax.scan` over the leading axis of the batches, in pieces of a few dozen updates. The agent's arrays are
donated, so the agent passed in is used up: continue with the one returned, or pass in a `clone`. An update whose loss
is not finite changes nothing, nor does any after it, so that what comes out is always the last good state.

An agent's file holds parameters and optimisers as safetensors, and what they belong to, with a checksum, as JSON in
its header. Nothing in it is executed when it is read.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from arb.agents import nn
from arb.agents.agent import Agent, Transitions
from arb.errors import DataError
from arb.files import atomic_write, digest
from arb.policies.actors import join_chunk
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

    The agent passed in is used up; `learn(clone(agent), ...)` keeps it. A loss that is not finite raises a
    `NotFiniteError` with the last good state.

    Args:
        agent: any `Agent`.
        batches: transitions with leading axes (updates, batch), as of `buffer.sample((updates, batch))`.
        key: chance of the whole call; equal keys and batches give equal agents.
        unroll: updates compiled into one loop body, which saves a few per cent of the time but takes longer to compile;
            by default 4, and 1 in a call of fewer than 40 updates.
        pause: called between pieces of the work, a few dozen updates each; what it raises ends the call.
    """
    _check_shapes(agent, batches)
    _check_not_used_up(agent)
    updates = len(batches.reward)
    unroll = unroll or (UNROLL if updates >= MOST_PER_PIECE else 1)
    keys, piece = jax.random.split(key, updates), piece_of(updates, unroll)
    parts = []
    for start in range(0, updates, piece):
        if pause is not None:
            pause()
        some = jax.tree.map(lambda x: x[start : start + piece], (batches, keys))  # noqa: B023 - called at once
        agent, metrics = _scan(agent, *some, unroll=min(unroll, piece))
        parts.append(jax.device_get(metrics))
        bad = {name: np.flatnonzero(~np.isfinite(x)) for name, x in parts[-1].items() if name.endswith("_loss")}
        if first := [(start + int(rows[0]), name) for name, rows in bad.items() if len(rows)]:
            raise NotFiniteError(min(first)[1], min(first)[0], agent)
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return agent, {name: float(np.mean(values, dtype=np.float64)) for name, values in together.items()}


def piece_of(updates: int, unroll: int = UNROLL) -> int:
    """Updates of one compiled call, at most 40: equal pieces where the number allows, else a shorter last one.

    >>> piece_of(1000), piece_of(400), piece_of(60), piece_of(250)
    (40, 40, 20, 40)
    """
    fitting = (n for n in range(unroll, MOST_PER_PIECE + 1, unroll) if updates % n == 0)
    return max(fitting, default=min(updates, MOST_PER_PIECE))


@partial(jax.jit, static_argnames="unroll", donate_argnums=0)
def _scan(agent: AnyAgent, batches: Transitions, keys: Array, unroll: int) -> tuple[AnyAgent, dict[str, Array]]:
    def step(carry: tuple[AnyAgent, Array], x: tuple[Transitions, Array]) -> tuple[Any, dict[str, Array]]:
        agent, good = carry
        moved, metrics = agent.update(*x)
        for name in metrics:
            good = good & jnp.isfinite(metrics[name]) if name.endswith("_loss") else good
        return (jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, agent), good), metrics

    (agent, _), metrics = jax.lax.scan(step, (agent, jnp.array(True)), (batches, keys), unroll=unroll)
    return agent, metrics


def clone(agent: AnyAgent) -> AnyAgent:
    """The same agent in memory of its own: `learn` uses up the one, and the other stays as it is.

    Agents share what they have in common, `agent.begin_online()` most of its networks with `agent`. So several futures
    of one agent start from clones: `learn(clone(agent).begin_online(), ...)`.
    """
    return nn.tree_copy(agent)


def _check_shapes(agent: Any, batches: Transitions) -> None:
    """Compare shapes alone, which costs nothing beside a call; agents that do not say their sizes pass."""
    leading = np.shape(batches.reward)
    if len(leading) != 2 or 0 in leading:
        raise DataError(
            f"learn() needs rewards of shape (updates, batch), both at least 1, not {leading}: draw batches with "
            "buffer.sample((updates, batch))"
        )
    obs, action = getattr(agent, "obs_dim", None), getattr(agent, "action_dim", None)
    discrete = getattr(getattr(agent, "config", None), "actions", None) == "discrete"
    chunk = getattr(agent, "chunk", 1)
    actions = () if discrete else (action,) if chunk == 1 else (chunk, action)
    own = {"obs": (obs,), "next_obs": (obs,), "action": actions, "mask": ()}
    for name, rest in own.items():
        column = getattr(batches, name)
        if isinstance(column, dict):
            raise DataError(f"{name} is a dict of arrays, but this agent reads one array: join them before storing")
        if None not in rest and np.shape(column) != (*leading, *rest):
            raise DataError(
                f"{name} has shape {np.shape(column)}, but this agent expects {(*leading, *rest)}: was it created for "
                "another environment?"
            )


def _check_not_used_up(agent: Any) -> None:
    if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(agent)):
        raise DataError(
            "the memory of this agent was reused by an earlier learn(): continue with the agent that learn() returned, "
            "or call learn(clone(agent), ...) to keep the original"
        )


def scores(
    agent: Agent, obs: NDArray[Any], action: NDArray[Any], likelihood: Likelihood = "standard", chunk: int = 512
) -> NDArray[np.float32]:
    """`agent.score` of all rows, compiled, in chunks whose activations stay in the cache.

    This is what a buffer is refreshed with: `buffer.refresh(partial(scores, agent), rows_per_call=ROWS_PER_CALL)`.
    """
    is_standard(likelihood)  # raises on any other word
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
        raise DataError(f"{type(agent).__name__} has no critics `q`, which this strategy needs: choose another one")
    return np.asarray(_advantages(agent, jnp.asarray(obs), jnp.asarray(action)))


@jax.jit
def _advantages(agent: Any, obs: Array, action: Array) -> Array:
    q, own = getattr(agent, "critics", agent).q, agent.mode(obs)
    if jnp.issubdtype(action.dtype, jnp.integer):
        own, action = (jax.nn.one_hot(a, agent.action_dim) for a in (own, action))
    own, action = (join_chunk(a, getattr(agent, "chunk", 1)) for a in (own, action))
    gap: Array = q.min_q(obs, own) - q.min_q(obs, action)
    return gap


def on_host(tree: Tree) -> Tree:
    """The same networks with NumPy weights.

    `on_host(agent.actor)` acts on float32 observations with a `numpy.random.Generator`, without any compiled call.
    """
    host: Tree = jax.tree.map(np.asarray, tree)
    return host


# Files ---------------------------------------------------------------------------------------------------------------
_AGAIN = ": copy it again, or train again"


def save(agent: Agent, path: str | Path) -> None:
    """Write the agent to `path`, replacing what was there only once the new file is complete."""
    about = {name: getattr(agent, name) for name in ("obs_dim", "action_dim", "online")}
    about |= {"agent": type(agent).__name__, "config": asdict(agent.config)}
    arrays = nn.named_arrays(agent)
    # One entry: the order of several would change from file to file, and equal agents are equal bytes.
    header = {"arb": json.dumps([about, digest(about, arrays)])}
    with atomic_write(Path(path)) as unfinished:  # written by Python, so that a full disk is an OSError
        unfinished.write_bytes(to_bytes(arrays, metadata=header))


def load(path: str | Path, kind: type[AnyAgent], config: Any = None) -> AnyAgent:
    """The agent in a file written by `save`.

    Args:
        path: the file. Nothing in it is executed, and no name in it is imported.
        kind: the agent's class, such as `IQL`; a file of another agent is refused.
        config: if given, refuse a file that was trained under other settings.
    """
    about, arrays = _read(path)
    if about["agent"] != kind.__name__:
        raise DataError(
            f"{path} holds the agent {about['agent']}, not {kind.__name__}: choose that agent, or train again"
        )
    settings = get_type_hints(kind)["config"]
    if unknown := about["config"].keys() - {f.name for f in fields(settings)}:
        raise DataError(
            f"{path} has settings that this version does not have: {', '.join(sorted(unknown))}; load it with the "
            "version of arb that wrote it"
        )
    stored = settings(**{k: tuple(v) if isinstance(v, list) else v for k, v in about["config"].items()})
    if config is not None and config != stored:
        pairs = {f.name: (getattr(stored, f.name), getattr(config, f.name, None)) for f in fields(stored)}
        said = ", ".join(f"{k} is {a!r} in the file and {b!r} here" for k, (a, b) in pairs.items() if a != b)
        raise DataError(f"{path} was trained with other settings: {said}; use those in the file, or train again")

    def build() -> Any:
        agent = kind.create(jax.random.key(0), about["obs_dim"], about["action_dim"], stored)  # type: ignore[attr-defined]
        return agent.begin_online() if about["online"] else agent

    agent: AnyAgent = nn.with_arrays(jax.eval_shape(build), arrays)
    spoilt = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if spoilt is not None:
        raise DataError(f"{path} holds a value that is not finite, in {spoilt}{_AGAIN}")
    return agent


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What the header says of the agent, and the arrays, both as they were written."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        about, checksum = json.loads(header["arb"])
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except KeyError:
        raise DataError(f"{path} holds no agent of this library: give a file written by arb.agents.save") from None
    except (SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:  # NumPy has no float8
        raise DataError(f"{path} is damaged or was not written by arb.agents.save ({error}){_AGAIN}") from None
    if checksum != digest(about, arrays):
        raise DataError(f"{path} is damaged: its content does not match its checksum{_AGAIN}")
    return about, arrays
