"""A whole agent in one file: parameters and optimisers as safetensors, what they belong to as JSON in its header.

Nothing in the file is executed when it is read. It is written under another name and then renamed, so that an
interrupted save leaves the previous file as it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from arb.agents.calql import CalQL, CalQLConfig
from arb.agents.famo2o import FamO2O, FamO2OConfig
from arb.agents.iql import IQL, IQLConfig
from arb.agents.nets import named_arrays, with_arrays
from arb.agents.pex import PEX, PEXConfig
from arb.agents.sac import SAC, SACConfig
from arb.errors import DataError
from arb.files import whole

AGENTS: dict[str, tuple[Any, Any]] = {
    "IQL": (IQL, IQLConfig),
    "CalQL": (CalQL, CalQLConfig),
    "PEX": (PEX, PEXConfig),
    "FamO2O": (FamO2O, FamO2OConfig),
    "SAC": (SAC, SACConfig),
}
"""Name in a file to agent and configuration."""

_ANEW = ": copy it anew, or train again"

BuiltIn = IQL | CalQL | PEX | FamO2O | SAC


def save(agent: BuiltIn, path: str | Path) -> None:
    """Write the agent to `path`, replacing what was there only once the new file is complete."""
    about = {
        "agent": type(agent).__name__,
        "obs_dim": agent.obs_dim,
        "action_dim": agent.action_dim,
        "online": agent.online,
        "config": asdict(agent.config),
    }
    with whole(Path(path)) as unfinished:
        save_file(named_arrays(agent), unfinished, metadata={"arb": json.dumps(about)})


def load(path: str | Path, config: Any = None) -> BuiltIn:
    """The agent in the file; where `config` is given, the file must have been trained under the same."""
    about, arrays = _read(path)
    if not isinstance(about, dict) or str(about.get("agent")) not in AGENTS:
        raise DataError(f"{path} holds no agent of this library: give a file written by arb.agents.save")
    kind, config_kind = AGENTS[about["agent"]]
    try:
        stored = _config(config_kind, about["config"], path)
        if config is not None and config != stored:
            raise DataError(
                f"{path} was trained under another configuration: {_difference(stored, config)}; ask for the one in "
                "the file, or train anew"
            )
        agent: BuiltIn = with_arrays(
            _empty(kind, about["obs_dim"], about["action_dim"], stored, about["online"]), arrays
        )
    except DataError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged, it does not fit its own configuration: {error}{_ANEW}") from error
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
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path} is damaged, or no file of arb.agents.save ({error}){_ANEW}") from None


def _config(kind: Any, stored: dict[str, Any], path: str | Path) -> Any:
    unknown = stored.keys() - {f.name for f in fields(kind)}
    if unknown:
        raise DataError(
            f"{path} has settings this version does not know: {', '.join(sorted(unknown))}; load it with the version "
            "of arb that wrote it"
        )
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()})


def _difference(stored: Any, asked: Any) -> str:
    if type(stored) is not type(asked):
        return f"the file holds {type(stored).__name__}, asked was {type(asked).__name__}"
    pairs = {f.name: (getattr(stored, f.name), getattr(asked, f.name)) for f in fields(stored)}
    return ", ".join(f"{k} is {a!r} in the file and {b!r} here" for k, (a, b) in pairs.items() if a != b)


def _empty(kind: Any, obs_dim: int, action_dim: int, config: Any, online: bool) -> Any:
    """The shape of an agent, without its numbers."""

    def build() -> Any:
        agent = kind.create(jax.random.key(0), obs_dim, action_dim, config)
        return agent.begin_online() if online else agent

    return jax.eval_shape(build)
