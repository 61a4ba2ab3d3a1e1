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
from safetensors import safe_open
from safetensors.numpy import save_file

from arb.agents.calql import CalQL, CalQLConfig
from arb.agents.famo2o import FamO2O, FamO2OConfig
from arb.agents.iql import IQL, IQLConfig
from arb.agents.nets import named_arrays, with_arrays
from arb.agents.pex import PEX, PEXConfig
from arb.buffer.wholefile import whole

AGENTS: dict[str, tuple[Any, Any]] = {
    "IQL": (IQL, IQLConfig),
    "CalQL": (CalQL, CalQLConfig),
    "PEX": (PEX, PEXConfig),
    "FamO2O": (FamO2O, FamO2OConfig),
}
"""Name in a file to agent and configuration."""

BuiltIn = IQL | CalQL | PEX | FamO2O


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
    with safe_open(str(path), framework="numpy") as file:
        about = json.loads((file.metadata() or {}).get("arb", "{}"))
        if about.get("agent") not in AGENTS:
            raise ValueError(f"{path} holds no agent of this library: use a file written by arb.agents.save")
        kind, config_kind = AGENTS[about["agent"]]
        stored = _config(config_kind, about["config"], path)
        if config is not None and config != stored:
            raise ValueError(f"{path} was trained under another configuration: {_difference(stored, config)}")
        empty = _empty(kind, about["obs_dim"], about["action_dim"], stored, about["online"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    try:
        agent: BuiltIn = with_arrays(empty, tensors)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, it does not fit its own configuration: {error}") from error
    return agent


def _config(kind: Any, stored: dict[str, Any], path: str | Path) -> Any:
    unknown = stored.keys() - {f.name for f in fields(kind)}
    if unknown:
        raise ValueError(f"{path} has settings this version does not know: {', '.join(sorted(unknown))}")
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
