"""One row per agent: its class, its label, and the paper's hyper-parameters per family of tasks.

Reading the table imports no JAX; `agent_class` does. An agent of this package is one file under `agents/` and one row
here. An agent of somebody else is `my_module:MyAgent` and gets a row with its own defaults.

Sources: the paper's appendix, and the authors' release where the two disagree or the paper is silent; the pages under
docs/algorithms say which, value by value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, NamedTuple, get_type_hints

from arb.data.tasks import Family
from arb.errors import DataError, suggest
from arb.lab.plugins import is_plug_in, label_of, plug_in


class ShapingRule(NamedTuple):
    """How to shape: states perhaps normalised, rewards `scale * r + shift`, the scale perhaps from the returns."""

    states: bool = True
    scale: float = 1.0
    shift: float = 0.0
    by_return_range: bool = False


@dataclass(frozen=True)
class Tuned:
    """The hyper-parameters of one agent on one family of tasks."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the defaults of the agent's settings."""
    arb_temperature: float = 0.5
    """λ of ARB."""
    rule: ShapingRule | None = None
    """How states and rewards are shaped, where it is not as the family's other agents have it."""


@dataclass(frozen=True)
class AgentRow:
    """All that the package knows of an agent without importing it."""

    label: str
    where: str
    """Module and class. The class has `create(key, obs_dim, action_dim, config)`, and a field `config` whose annotation
    is the dataclass of its settings."""
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    """By `Family.settings`."""
    discrete: bool = False
    """Whether it also acts in discrete action spaces (its settings then have `actions`)."""
    calibrated: bool = False
    """Whether it learns from Monte-Carlo returns, which sparse families can fill in for failed episodes."""


_DECAY = {"lr_decay_steps": 1_000_000}
"""The policy's learning rate falls over the whole of pre-training."""

AGENTS: Mapping[str, AgentRow] = {
    "iql": AgentRow(
        "IQL",
        "arb.agents.iql:IQL",
        {
            "locomotion": Tuned(_DECAY),
            "antmaze": Tuned({"expectile": 0.9, "beta": 10.0, **_DECAY}),
        },
        discrete=True,
    ),
    "calql": AgentRow(
        "Cal-QL",
        "arb.agents.calql:CalQL",
        {
            "locomotion": Tuned(arb_temperature=5.0),
            "antmaze": Tuned(
                {
                    "critic_hidden_dims": (256,) * 5,
                    "actor_lr": 1e-4,
                    "cql_alpha": 5.0,
                    "cql_lagrange": True,
                    "cql_target_action_gap": 0.8,
                    "cql_max_target_backup": True,
                    "cql_clip_diff_min": -200.0,
                },
                arb_temperature=5.0,
                rule=ShapingRule(states=False, scale=10.0, shift=-5.0),
            ),
        },
        calibrated=True,
    ),
    "pex": AgentRow(
        "PEX",
        "arb.agents.pex:PEX",
        {
            "locomotion": Tuned(_DECAY, rule=ShapingRule(by_return_range=True)),
            "antmaze": Tuned({"expectile": 0.9, "beta": 10.0, "inverse_temperature": 10.0, **_DECAY}),
        },
    ),
    "famo2o": AgentRow(
        "FamO2O",
        "arb.agents.famo2o:FamO2O",
        {
            "locomotion": Tuned(),
            "antmaze": Tuned({"expectile": 0.9, "beta_min": 8.0, "beta_max": 14.0}),
        },
    ),
    # Not in the paper: layer normalisation as RLPD has it, and Cal-QL's λ, whose policy is of the same kind.
    "sac": AgentRow(
        "SAC",
        "arb.agents.sac:SAC",
        {name: Tuned({"layer_norm": True}, arb_temperature=5.0) for name in ("locomotion", "antmaze")},
    ),
}
DEFAULT_AGENT = "iql"
"""The agent of a run that names none."""


def agent_row(name: str) -> AgentRow:
    """The row of an agent, or one for a plug-in."""
    if is_plug_in(name):
        return AgentRow(label_of(name), name)
    if name not in AGENTS:
        raise DataError(f"there is no agent {name!r}{suggest(name, AGENTS)}; there are {', '.join(AGENTS)}")
    return AGENTS[name]


def agent_label(name: str) -> str:
    """An agent's name as its paper spells it; a name that nobody knows is shown as it is."""
    return AGENTS[name].label if name in AGENTS else label_of(name)


def agent_class(name: str) -> Any:
    """The class of an agent; a plug-in is checked for what a run needs of it."""
    found = plug_in(agent_row(name).where)
    lacking = [part for part in ("create", "update", "score", "begin_online", "actor") if not hasattr(found, part)]
    if lacking:
        raise DataError(f"{name} is not an agent: it has no {', no '.join(lacking)}; see docs/extending.md")
    return found


def settings_class(name: str) -> Any:
    """The dataclass of an agent's settings: the annotation of its field `config`."""
    found = get_type_hints(agent_class(name)).get("config")
    if not is_dataclass(found):
        raise DataError(f"{name}: its field `config` must be annotated with a dataclass; see docs/extending.md")
    return found


def agent_settings(name: str, family: Family) -> Any:
    """The settings of an agent with the paper's values for a family."""
    return settings_class(name)(**tuned(name, family).settings)


def tuned(name: str, family: Family) -> Tuned:
    """The hyper-parameters of an agent on a family, with the rule by which states and rewards are shaped."""
    found = agent_row(name).tuned.get(family.settings, Tuned())
    return found if found.rule is not None else replace(found, rule=ShapingRule(shift=family.shift))
