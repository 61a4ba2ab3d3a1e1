"""A whole agent in one file: parameters and optimisers as safetensors, what they belong to as JSON in its header.

Nothing in the file is executed when it is read. It is written under another name and then renamed, so that an
interrupted save leaves the previous file as it was.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from arb.agents.nets import named_arrays, with_arrays
from arb.errors import DataError
from arb.files import atomic_write
from arb.lab.algorithms import AGENTS, agent_class

BUILT_IN = {row.where.rpartition(":")[2]: name for name, row in AGENTS.items()}
"""The agents that are opened by the name in a file; any other class must be given by the caller."""

_ANEW = ": copy it again, or train again"


def save(agent: Any, path: str | Path) -> None:
    """Write the agent to `path`, replacing what was there only once the new file is complete."""
    about = {
        "agent": type(agent).__name__,
        "obs_dim": agent.obs_dim,
        "action_dim": agent.action_dim,
        "online": agent.online,
        "config": asdict(agent.config),
    }
    with atomic_write(Path(path)) as unfinished:  # written by Python, so that a full disk is an OSError
        unfinished.write_bytes(to_bytes(named_arrays(agent), metadata={"arb": json.dumps(about)}))


def load(path: str | Path, config: Any = None, kind: Any = None) -> Any:
    """The agent in a file written by `save`.

    Args:
        path: the file. Nothing in it is executed, and no name in it is imported.
        config: if given, refuse a file that was trained under other settings.
        kind: the agent's class; needed for one from outside this package. If given, refuse another agent's file.
    """
    about, arrays = _read(path)
    name = about.get("agent") if isinstance(about, dict) else None
    if not isinstance(name, str) or (kind is None and name not in BUILT_IN):
        raise DataError(f"{path} holds no agent of this library: give a file written by arb.agents.save")
    if kind is not None and name != kind.__name__:
        raise DataError(f"{path} holds the agent {name}, not {kind.__name__}: choose that agent, or train again")
    kind = kind or agent_class(BUILT_IN[name])
    try:
        stored = _config(get_type_hints(kind)["config"], about["config"], path)
        if config is not None and config != stored:
            raise DataError(
                f"{path} was trained with other settings: {_difference(stored, config)}; use the settings in the "
                "file, or train again"
            )
        agent = with_arrays(_empty(kind, about["obs_dim"], about["action_dim"], stored, about["online"]), arrays)
    except DataError:
        raise
    except Exception as error:  # networks of impossible sizes can make anything raise
        said = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged, its arrays do not match its settings: {said}{_ANEW}") from None
    spoilt = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if spoilt is not None:
        raise DataError(f"{path} holds a value that is not finite, in {spoilt}{_ANEW}")
    return agent


def _read(path: str | Path) -> tuple[Any, dict[str, NDArray[Any]]]:
    """What the header says of the agent, None if nothing, and the arrays."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = (file.metadata() or {}).get("arb")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return None if header is None else json.loads(header), arrays
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or was not written by arb.agents.save ({error}){_ANEW}") from None


def _config(kind: Any, stored: dict[str, Any], path: str | Path) -> Any:
    unknown = stored.keys() - {f.name for f in fields(kind)}
    if unknown:
        raise DataError(
            f"{path} has settings that this version does not have: {', '.join(sorted(unknown))}; load it with the "
            "version of arb that wrote it"
        )
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()})
    except DataError as problem:
        raise DataError(f"{path} is damaged: {problem}{_ANEW}") from None


def _difference(stored: Any, asked: Any) -> str:
    if type(stored) is not type(asked):
        return f"the file has {type(stored).__name__}, you gave {type(asked).__name__}"
    pairs = {f.name: (getattr(stored, f.name), getattr(asked, f.name)) for f in fields(stored)}
    return ", ".join(f"{k} is {a!r} in the file and {b!r} here" for k, (a, b) in pairs.items() if a != b)


def _empty(kind: Any, obs_dim: int, action_dim: int, config: Any, online: bool) -> Any:
    """The shape of an agent, without its numbers."""

    def build() -> Any:
        agent = kind.create(jax.random.key(0), obs_dim, action_dim, config)
        return agent.begin_online() if online else agent

    return jax.eval_shape(build)
