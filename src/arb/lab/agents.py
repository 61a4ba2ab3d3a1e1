"""One row per agent: its class, its label, and the paper's hyper-parameters per family of tasks.

Reading the table imports no JAX; `agent_class` does. An agent of this package is one file under `agents/` and one row
here. An agent of somebody else is `my_module:MyAgent` and gets a row with its own defaults.

Sources: the paper's appendix, and the authors' release where the two disagree or the paper is silent; the pages under
docs/algorithms say which, value by value.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from arb.data.tasks import Family
from arb.errors import DataError, suggest


@dataclass(frozen=True)
class Tuned:
    """The hyper-parameters of one agent on one family of tasks."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the defaults of the agent's settings."""
    arb_temperature: float = 0.5
    """λ of ARB."""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the preprocessing that the family's other agents have."""


@dataclass(frozen=True)
class AgentRow:
    """All that the package knows of an agent without importing it."""

    label: str
    kind: str
    """The name of its class in `arb.agents`, or `my_module:MyAgent`. The class has `create(key, obs_dim, action_dim,
    config)`, and a field `config` whose annotation is the dataclass of its settings."""
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    """By `Family.settings`."""
    discrete: bool = False
    """Whether it also acts in discrete action spaces (its settings then have `actions`)."""
    calibrated: bool = False
    """Whether it learns from Monte-Carlo returns, which sparse families can fill in for failed episodes."""


_DECAY = {"lr_decay_steps": 1_000_000}
"""The policy's learning rate falls over the whole of pre-training."""
_RLPD = {"layer_norm": True, "num_critics": 10, "critic_subset": 2, "actor_q": "mean"}

AGENTS: Mapping[str, AgentRow] = {
    "iql": AgentRow("IQL", "IQL", {
        "locomotion": Tuned(_DECAY, arb_temperature=0.2),
        "antmaze": Tuned({"expectile": 0.9, "beta": 10.0, **_DECAY}, arb_temperature=0.2),
    }, discrete=True),
    "calql": AgentRow("Cal-QL", "CalQL", {
        "locomotion": Tuned(arb_temperature=5.0),
        "antmaze": Tuned(
            {"critic_hidden_dims": (256,) * 5, "actor_lr": 1e-4, "cql_alpha": 5.0, "cql_lagrange": True,
             "cql_target_action_gap": 0.8, "cql_max_target_backup": True, "cql_clip_diff_min": -200.0},
            arb_temperature=5.0,
            preprocessing={"normalize_observations": False, "reward_factor": 10.0, "reward_shift": -5.0},
        ),
    }, calibrated=True),
    "pex": AgentRow("PEX", "PEX", {
        "locomotion": Tuned(_DECAY, preprocessing={"reward_scale": "return_range"}),
        "antmaze": Tuned({"expectile": 0.9, "beta": 10.0, "inverse_temperature": 10.0, **_DECAY}),
    }),
    "famo2o": AgentRow("FamO2O", "FamO2O", {
        "locomotion": Tuned(),
        "antmaze": Tuned({"expectile": 0.9, "beta_min": 8.0, "beta_max": 14.0}),
    }),
    # Not in the paper: layer normalisation as RLPD has it, and Cal-QL's λ, whose policy is of the same kind.
    "sac": AgentRow("SAC", "SAC", {name: Tuned({"layer_norm": True}, 5.0) for name in ("locomotion", "antmaze")}),
    # SAC with RLPD's critics; its schedule and its halves are settings of the run: docs/algorithms/sac.md.
    "rlpd": AgentRow("RLPD", "SAC", {name: Tuned(_RLPD, 5.0) for name in ("locomotion", "antmaze")}),
    # Not in the paper, and FQL's authors have no locomotion: with Q in units of its size one alpha serves all tasks.
    "fql": AgentRow("FQL", "FQL", {
        "locomotion": Tuned({"alpha": 1.0, "normalize_q": True}),
        "antmaze": Tuned({"alpha": 10.0}),
    }),
    "qcfql": AgentRow("QC-FQL", "FQL", {
        "locomotion": Tuned({"alpha": 1.0, "normalize_q": True, "chunk": 5}),
        "antmaze": Tuned({"alpha": 10.0, "chunk": 5}),
    }),
}  # fmt: skip
DEFAULT_AGENT = "iql"
"""The agent of a run that names none."""


def agent_row(name: str) -> AgentRow:
    if is_plug_in(name):
        return AgentRow(plug_in_label(name), name)
    if name not in AGENTS:
        raise DataError(f"there is no agent {name!r}{suggest(name, AGENTS)}; there are {', '.join(AGENTS)}")
    return AGENTS[name]


def agent_label(name: str) -> str:
    """An agent's name as its paper spells it; a name that nobody knows is shown as it is."""
    return AGENTS[name].label if name in AGENTS else plug_in_label(name)


def agent_class(name: str) -> Any:
    """The class of an agent; a plug-in is checked for what a run needs of it."""
    from arb import agents

    found = plug_in(name) if is_plug_in(name) else getattr(agents, agent_row(name).kind)
    missing = [part for part in ("create", "update", "score", "begin_online", "actor") if not hasattr(found, part)]
    if missing:
        raise DataError(f"{name} is not an agent: it has no {', no '.join(missing)}; see docs/extending.md")
    return found


def settings_class(name: str) -> Any:
    """The dataclass of an agent's settings: the annotation of its field `config`."""
    found = get_type_hints(agent_class(name)).get("config")
    if not is_dataclass(found):
        raise DataError(f"{name}: its field `config` must be annotated with a dataclass; see docs/extending.md")
    return found


def tuned(name: str, family: Family) -> Tuned:
    """The hyper-parameters of an agent on a family of tasks."""
    return agent_row(name).tuned.get(family.settings, Tuned())


# ---- plug-ins --------------------------------------------------------------------------------------------------------
def is_plug_in(name: str) -> bool:
    """Whether a name asks for somebody's own code, as in `my_module:NewestFirst`."""
    return ":" in name


def plug_in_label(name: str) -> str:
    """A plug-in's name without its module, for people; nothing is imported."""
    return name.rpartition(":")[2]


def plug_in(name: str) -> Any:
    """The object of a name `module:object`; the module may lie in the working directory.

    Such a name comes from the command line or from Python; one that was read from a file is never imported.
    """
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        where = f"{Path.cwd()} or installed" if missing.name == module.partition(".")[0] else "installed"
        raise DataError(f"{name}: there is no module {missing.name!r} in {where}") from None
    except Exception as problem:
        raise DataError(f"{name}: importing {module!r} failed ({type(problem).__name__}: {problem})") from problem
    if not hasattr(found, attribute):
        names = [word for word in vars(found) if not word.startswith("_")]
        raise DataError(f"{name}: {module!r} has no {attribute!r}{suggest(attribute, names)}")
    return getattr(found, attribute)
