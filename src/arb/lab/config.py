"""Everything that decides a run, as one tree of frozen values; the command line overrides its leaves.

No JAX is imported until the settings of an agent are asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, get_type_hints

from arb.data import attributes_of
from arb.data.tasks import FIRST, family_of, task_of
from arb.errors import DataError, suggest
from arb.lab.algorithms import DEFAULT_AGENT, agent_settings, tuned
from arb.lab.plugins import is_plug_in
from arb.lab.settings import read_value
from arb.lab.strategies import DEFAULT, Replay, strategy_row


@dataclass(frozen=True)
class Schedule:
    """How much of everything; the defaults are the paper's."""

    pretrain: int = 1_000_000
    """Updates before the first step in the environment."""
    online: int = 1_000_000
    """Steps in the environment."""
    collect: int = 1000
    """d_update: steps between two blocks of updates; the policy is fixed meanwhile."""
    updates: int = 1000
    """N_update: updates in a block."""
    refresh: int = 1000
    """d_weight: steps between two refreshes of the weights."""
    batch: int = 256
    """Transitions in a batch."""


@dataclass(frozen=True)
class Evaluation:
    """When and how long a policy is evaluated; the defaults are the paper's."""

    every: int = 50_000
    """Updates while pre-training, steps while fine-tuning; also at step 0 and at the end of both."""
    episodes: int = 100
    """Episodes per evaluation."""


@dataclass(frozen=True)
class Config:
    """A run."""

    task: str = FIRST
    """A D4RL task, a file, or another source that `arb.data.load` knows."""
    env: str = ""
    """The environment, as a Gymnasium id; a task, and a file made here, bring their own."""
    agent: str = DEFAULT_AGENT
    """A row of the table of agents, or `my_module:MyAgent`."""
    seed: int = 0
    """Random seed of the run."""
    replay: Any = field(default_factory=Replay)
    schedule: Schedule = field(default_factory=Schedule)
    evaluation: Evaluation = field(default_factory=Evaluation)
    settings: Any = None
    """The agent's own, by default the paper's for the family of the task."""


class Preset(NamedTuple):
    """How much training and evaluation."""

    schedule: Schedule
    evaluation: Evaluation
    hidden: tuple[int, ...] = ()
    """Units of each hidden layer, where they are not the agent's own."""


PRESETS: dict[str, Preset] = {
    "smoke": Preset(Schedule(pretrain=400, online=400, collect=200, updates=200, refresh=200), Evaluation(400, 2)),
    "demo": Preset(Schedule(pretrain=40_000, online=40_000, batch=128), Evaluation(4_000, 5), (128, 128)),
    "small": Preset(Schedule(pretrain=30_000, online=20_000), Evaluation(5_000, 20)),
    "paper": Preset(Schedule(), Evaluation()),
}

_AT_LEAST_0, _AT_LEAST_1 = ((lambda v, low=low: v >= low, f"at least {low}") for low in (0, 1))
_POSITIVE = (lambda v: v > 0, "greater than 0")
SENSIBLE: dict[str, tuple[Callable[[Any], bool], str]] = {
    # leaf: what its values must be, in code and in words
    "seed": _AT_LEAST_0,
    "schedule.pretrain": _AT_LEAST_0,
    **dict.fromkeys(("schedule.online", "schedule.collect", "schedule.refresh", "schedule.batch"), _AT_LEAST_1),
    "schedule.updates": _AT_LEAST_1,
    **dict.fromkeys(("evaluation.every", "evaluation.episodes", "replay.keep"), _AT_LEAST_1),
    "replay.temperature": (lambda v: v == "auto" or v > 0, "greater than 0, or auto"),
    "replay.effective": (lambda v: 0 < v <= 1, "above 0 and at most 1"),
    "replay.clip": (lambda v: v[0] < v[1], "a lower and a higher bound"),
    "replay.offline_share": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "settings.discount": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    **dict.fromkeys(("settings.actor_lr", "settings.critic_lr"), _POSITIVE),
    "settings.expectile": (lambda v: 0 < v < 1, "between 0 and 1"),
    "settings.tau": (lambda v: 0 < v <= 1, "greater than 0 and at most 1"),
    **dict.fromkeys(
        ("settings.hidden_dims", "settings.actor_hidden_dims", "settings.critic_hidden_dims"),
        (lambda v: min(v, default=0) >= 1, "the units of each hidden layer, at least 1"),
    ),
}
RETIRED = [("replay.budget", None)]
"""Settings that earlier versions wrote, at the value at which they changed nothing."""
_ONLINE_ONLY = ("replay.", "schedule.online", "schedule.collect", "schedule.refresh")
"""What pre-training does not depend on."""
OPTIONS = {"task": "task", "env": "env", "agent": "agent", "replay.strategy": "strategy", "seed": "seed"}
"""Leaves that are options of every command and arguments of every function, because other settings follow from them."""
OTHER_WORDS = {"offline": "pretrain", "lambda": "temperature", "gamma": "discount", "batch_size": "batch"}
"""What people call some settings elsewhere."""


def configure(
    *,
    task: str = Config.task,
    env: str = "",
    agent: str = DEFAULT_AGENT,
    strategy: str = DEFAULT,
    seed: int = 0,
    preset: str = "demo",
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """The paper's configuration of an agent and a strategy for the family of a task, with a preset amount of training.

    Args:
        task: a D4RL task, a file, or another source that `arb.data.load` knows. Its family decides the settings.
        env: Gymnasium id, for data that does not say its own.
        agent: a row of `arb.lab.algorithms`, or `my_module:MyAgent`.
        strategy: a row of `arb.lab.strategies`, or `my_module:MyStrategy`.
        seed: random seed.
        preset: how much training: `smoke`, `demo`, `small` or `paper`.
        overrides: values by leaf, such as `"schedule.online"` or `"settings.expectile"`.
    """
    if preset not in PRESETS:
        raise DataError(f"there is no preset {preset!r}{suggest(preset, PRESETS)}; there are {', '.join(PRESETS)}")
    schedule, evaluation, hidden = PRESETS[preset]
    family = family_of(task, env or _recorded_env(task))
    row = strategy_row(strategy)
    paper = {"temperature": tuned(agent, family).arb_temperature} if row.settings is Replay else {}
    replay = row.settings(**{"strategy": strategy, **paper, **row.defaults})
    settings: Any = agent_settings(agent, family)
    if hidden and not is_plug_in(agent):
        settings = replace(settings, **{f.name: hidden for f in fields(settings) if f.name.endswith("hidden_dims")})
    config = with_leaf(Config(task, env, agent, seed, replay, schedule, evaluation, settings), "seed", seed)
    for leaf, value in (overrides or {}).items():
        if leaf in OPTIONS:
            raise DataError(f"{leaf} has an option of its own: --{OPTIONS[leaf]}")
        config = with_leaf(config, leaf, value)
    for leaf, value in row.defaults.items():
        if getattr(config.replay, leaf) != value:
            raise DataError(f"with the strategy {strategy} replay.{leaf} is {value}: add --strategy arb to set it")
    decays = getattr(config.settings, "lr_decay_steps", None) is not None
    if decays and "settings.lr_decay_steps" not in (overrides or {}):
        # The rate falls over the whole of pre-training, however long that is.
        config = with_leaf(config, "settings.lr_decay_steps", config.schedule.pretrain)
    return config


def _recorded_env(task: str) -> str:
    """The environment that a file of one's own says it was recorded in; nothing for anything else."""
    return "" if task_of(task) else str(attributes_of(task).get("env", ""))


def with_leaf(config: Config, leaf: str, value: Any) -> Config:
    """The same configuration with another value at a leaf, e.g. `schedule.online`; text is read as its type."""
    if leaf == "agent":
        if value != config.agent:
            raise DataError("another agent has other settings: make the configuration anew with configure(agent=...)")
        return config
    if leaf == "replay.strategy":
        settings: Any = strategy_row(value).settings
        if not isinstance(config.replay, settings):
            return replace(config, replay=settings(strategy=value))
        return replace(config, replay=replace(config.replay, strategy=value))
    changed: Config = _with_leaf(config, leaf, value, "", config)
    return changed


def _with_leaf(tree: Any, leaf: str, value: Any, path: str, config: Config) -> Any:
    name, _, rest = leaf.partition(".")
    here = {f.name for f in fields(tree)}
    full = f"{path}.{name}" if path else name
    if name not in here:
        raise DataError(f"there is no setting {full!r}{_hint(name, path, here, config)}")
    current = getattr(tree, name)
    if is_dataclass(current):
        if not rest:
            raise DataError(
                f"{full!r} is a group of settings; name one of {', '.join(f.name for f in fields(current))}"
            )
        return replace(tree, **{name: _with_leaf(current, rest, value, full, config)})
    if rest:
        raise DataError(f"{full!r} is a single setting and has no {rest!r}")
    read = read_value(value, get_type_hints(type(tree))[name], full)
    if full in SENSIBLE and not _is_plugged_in(full, config) and not SENSIBLE[full][0](read):
        raise DataError(f"{full} must be {SENSIBLE[full][1]}, not {read!r}")
    return replace(tree, **{name: read})


def _hint(name: str, path: str, here: set[str], config: Config) -> str:
    """What may have been meant: the same word with its group, the usual other word for it, or the nearest name."""
    word = OTHER_WORDS.get(name, name)
    if not path:
        full = [leaf for leaf in flat(config) if leaf.rpartition(".")[2] in (name, word)]
        if full:
            return f" (did you mean {' or '.join(full)}?)"
    elif word in here:
        return f" (did you mean '{path}.{word}'?)"
    return f"{suggest(name, here)}; here are {', '.join(sorted(here))}"


def _is_plugged_in(leaf: str, config: Config) -> bool:
    """Whether a leaf belongs to somebody else's settings, in which a word may mean something else."""
    group = leaf.partition(".")[0]
    return is_plug_in({"replay": config.replay.strategy, "settings": config.agent}.get(group, ""))


# ---- leaves ----------------------------------------------------------------------------------------------------------
def flat(config: Config) -> dict[str, Any]:
    """Every leaf by its dotted name, as JSON can hold it.

    >>> flat(Config())["schedule.batch"]
    256
    """
    return _flat(asdict(config))


def from_flat(leaves: Mapping[str, Any]) -> Config:
    """The configuration whose leaves these are; they come from this program, not from a file."""
    config = configure(agent=leaves["agent"], strategy=leaves["replay.strategy"])
    for leaf, value in leaves.items():
        if (leaf, value) not in RETIRED:
            config = with_leaf(config, leaf, value)
    return config


def deciding_leaves(config: Config) -> dict[str, Any]:
    """The leaves of a configuration that pre-training depends on."""
    return {leaf: value for leaf, value in flat(config).items() if not leaf.startswith(_ONLINE_ONLY)}


def _flat(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= _flat(value, f"{path}{name}.")
        else:
            leaves[f"{path}{name}"] = list(value) if isinstance(value, tuple) else value
    return leaves
