"""Everything that decides a run, as one tree of frozen dataclasses; the command line overrides single keys.

No JAX is imported until the settings of an agent are asked for.
"""

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from arb.data.formats import read_attributes
from arb.data.tasks import FIRST, family_of, task_of
from arb.errors import DataError, suggest
from arb.lab.agents import DEFAULT_AGENT, is_plug_in, settings_class, tuned
from arb.lab.strategies import DEFAULT, strategy_row
from arb.suite.datasets import locate


@dataclass(frozen=True)
class Schedule:
    """How much of everything; the defaults are the paper's."""

    pretrain: int = 1_000_000
    """Updates before the first step in the environment."""
    online: int = 1_000_000
    """Steps in the environment; 0 trains offline only."""
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
    by: Literal["rollouts", "data"] = "rollouts"
    """`rollouts` plays episodes. `data` takes no step of its own: a fitted Q evaluation on held-out episodes of the
    dataset while pre-training, the returns of the collected episodes while fine-tuning."""
    held_out: float = 0.1
    """With `data`, the share of the dataset's episodes that no agent is trained on."""
    patience: int = 0
    """Stop fine-tuning after this many evaluations in a row without a new best score; 0 never does."""


@dataclass(frozen=True)
class Preprocessing:
    """What is done to observations and rewards before an agent sees them; scores are made of raw rewards."""

    normalize_observations: bool = True
    """Whether observations are (s - mean) / (standard deviation + 0.001) of the dataset."""
    reward_scale: Literal["none", "return_range"] = "none"
    """`return_range` multiplies rewards by 1000 / (best - worst return of the dataset), as the official IQL does."""
    reward_factor: float = 1.0
    """Rewards are multiplied by this, too."""
    reward_shift: float = 0.0
    """Added to every reward after scaling."""


@dataclass(frozen=True)
class Config:
    """A run."""

    task: str = FIRST
    """A D4RL task, a file, or another source that `arb.load_dataset` knows."""
    env: str = ""
    """The environment, as a Gymnasium id; a task, and a file made here, bring their own."""
    agent: str = DEFAULT_AGENT
    """A row of the table of agents, or `my_module:MyAgent`."""
    seed: int = 0
    """Random seed of the run."""
    source: Literal["simulator", "hardware", "files"] = "simulator"
    """Where online steps come from. `hardware` opens one environment once and collects whole episodes; `files` reads
    episodes that were recorded elsewhere."""
    replay: Any = field(default_factory=lambda: strategy_row("arb").settings("arb", temperature=0.2))
    """The strategy and its settings."""
    schedule: Schedule = field(default_factory=Schedule)
    evaluation: Evaluation = field(default_factory=Evaluation)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    settings: Any = None
    """The agent's own, by default the paper's for the family of the task."""


class Preset(NamedTuple):
    """How much training and evaluation."""

    schedule: Schedule
    evaluation: Evaluation
    tau: float | None = None
    """How far target critics move per update, where it is not the agent's own: a short pre-training needs more."""


PRESETS: dict[str, Preset] = {
    "smoke": Preset(Schedule(pretrain=400, online=400, collect=200, updates=200, refresh=200), Evaluation(400, 2)),
    "demo": Preset(Schedule(pretrain=10_000, online=5_000), Evaluation(2_500, 10), tau=0.05),
    "small": Preset(Schedule(pretrain=80_000, online=40_000), Evaluation(8_000, 20)),
    "paper": Preset(Schedule(), Evaluation()),
}

_AT_LEAST_0, _AT_LEAST_1 = ((lambda v, low=low: v >= low, f"at least {low}") for low in (0, 1))
_POSITIVE = (lambda v: v > 0, "greater than 0")
_UNITS = (lambda v: min(v, default=0) >= 1, "the units of each hidden layer, at least 1")
VALIDATORS: dict[str, tuple[Callable[[Any], bool], str]] = {
    # key: what its values must be, in code and in words
    **dict.fromkeys(("seed", "schedule.pretrain", "schedule.online", "evaluation.patience"), _AT_LEAST_0),
    **{f"schedule.{name}": _AT_LEAST_1 for name in ("collect", "updates", "refresh", "batch")},
    "evaluation.held_out": (lambda v: 0 < v < 1, "between 0 and 1"),
    **dict.fromkeys(("evaluation.every", "evaluation.episodes", "replay.keep"), _AT_LEAST_1),
    "preprocessing.reward_factor": _POSITIVE,
    "replay.temperature": (lambda v: v == "auto" or v > 0, "greater than 0, or auto"),
    "replay.effective": (lambda v: 0 < v <= 1, "above 0 and at most 1"),
    "replay.clip": (lambda v: v[0] < v[1], "a lower and a higher bound"),
    "replay.offline_share": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "settings.discount": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "settings.actor_lr": _POSITIVE,
    "settings.critic_lr": _POSITIVE,
    "settings.expectile": (lambda v: 0 < v < 1, "between 0 and 1"),
    "settings.tau": (lambda v: 0 < v <= 1, "greater than 0 and at most 1"),
    **{f"settings.{name}hidden_dims": _UNITS for name in ("", "actor_", "critic_")},
}
_ONLINE_ONLY = ("replay.", "source", "schedule.online", "schedule.collect", "schedule.refresh", "evaluation.patience")
"""What pre-training does not depend on."""
OPTIONS = {"task": "task", "env": "env", "agent": "agent", "replay.strategy": "strategy", "seed": "seed"}
"""Keys that are options of every command and arguments of every function, because other settings follow from them."""
ALIASES = {"offline": "pretrain", "lambda": "temperature", "gamma": "discount", "batch_size": "batch"}
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
        task: a D4RL task, a file, or another source that `arb.load_dataset` knows. Its family decides the settings.
        env: Gymnasium id, for data that does not say its own.
        agent: a row of `arb.lab.agents`, or `my_module:MyAgent`.
        strategy: a row of `arb.lab.strategies`, or `my_module:MyStrategy`.
        seed: random seed.
        preset: how much training: `smoke`, `demo`, `small` or `paper`.
        overrides: values by key, such as `"schedule.online"` or `"settings.expectile"`.
    """
    if preset not in PRESETS:
        raise DataError(f"there is no preset {preset!r}{suggest(preset, PRESETS)}; there are {', '.join(PRESETS)}")
    schedule, evaluation, tau = PRESETS[preset]
    overrides = overrides or {}
    recorded = env or _recorded_env(task)
    family = family_of(task, recorded)
    row, paper = strategy_row(strategy), tuned(agent, family)
    replay = row.settings(strategy, **({"temperature": paper.arb_temperature} if strategy == "arb" else {}))
    settings: Any = settings_class(agent)(**paper.settings)
    if tau is not None and not is_plug_in(agent):
        settings = replace(settings, tau=tau)
    preprocessing = Preprocessing(**{"reward_shift": family.shift, **paper.preprocessing})
    config = Config(task, env, agent, 0, "simulator", replay, schedule, evaluation, preprocessing, settings)
    config = with_key(config, "seed", seed)
    for key, value in overrides.items():
        if key in OPTIONS:
            raise DataError(f"{key} has an option of its own: --{OPTIONS[key]}")
        group, _, name = key.partition(".")
        if group == "replay" and row.fixed.get(name, value) != value:
            raise DataError(f"with the strategy {strategy} {key} is {row.fixed[name]}: add --strategy arb to set it")
        config = with_key(config, key, value)
    alone = not (recorded or task_of(task) or config.schedule.online)
    if (alone or config.source != "simulator") and "evaluation.by" not in overrides:
        config = with_key(config, "evaluation.by", "data")
    if getattr(config.settings, "lr_decay_steps", None) is not None and "settings.lr_decay_steps" not in overrides:
        # The rate falls over the whole of pre-training, however long that is.
        config = with_key(config, "settings.lr_decay_steps", config.schedule.pretrain)
    return config


def _recorded_env(task: str) -> str:
    """The environment in which a file says that it was recorded."""
    with suppress(DataError):
        path = "" if task_of(task) else locate(task, make_it=False)
        if path.partition("?")[0].endswith((".hdf5", ".h5", ".npz")):
            return str(read_attributes(path).get("env", ""))
    return ""


def with_key(config: Config, key: str, value: Any) -> Config:
    """The same configuration with another value of one setting, e.g. `schedule.online`; text is read as its type."""
    if key in ("agent", "replay.strategy"):
        if flat(config)[key] != value:
            raise DataError(f"another {key} has other settings: make the configuration anew with configure()")
        return config
    group, _, name = key.partition(".")
    tree: Any = getattr(config, group, None)
    if not is_dataclass(tree):
        if name and group in flat(config):
            raise DataError(f"{group!r} is a single setting and has no {name!r}")
        tree, group, name = config, "", group
    here = {f.name for f in fields(tree)}
    if not name:
        raise DataError(f"{key!r} is a group of settings; name one of {', '.join(sorted(here))}")
    full = f"{group}.{name}" if group else name
    if name not in here:
        raise DataError(f"there is no setting {full!r}{_hint(name, group, here, config)}")
    read = read_value(value, get_type_hints(type(tree))[name], full)
    owner = {"replay": config.replay.strategy, "settings": config.agent}.get(group, "")
    if full in VALIDATORS and not is_plug_in(owner) and not VALIDATORS[full][0](read):
        raise DataError(f"{full} must be {VALIDATORS[full][1]}, not {read!r}")
    changed = replace(tree, **{name: read})
    return replace(config, **{group: changed}) if group else changed


def _hint(name: str, path: str, here: set[str], config: Config) -> str:
    """What may have been meant: the same word with its group, the usual other word for it, or the nearest name."""
    word = ALIASES.get(name, name)
    if not path:
        full = [key for key in flat(config) if key.rpartition(".")[2] in (name, word)]
        if full:
            return f" (did you mean {' or '.join(full)}?)"
    elif word in here:
        return f" (did you mean '{path}.{word}'?)"
    if path == "replay" and here == {"strategy"}:
        return f": the strategy {config.replay.strategy} has no settings"
    return f"{suggest(name, here)}; here are {', '.join(sorted(here))}"


# ---- keys ------------------------------------------------------------------------------------------------------------
def flat(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name, as JSON can hold it.

    >>> flat(Config())["schedule.batch"]
    256
    """
    found: dict[str, Any] = {}
    for name, value in asdict(config).items():
        group = value if isinstance(value, Mapping) else {}
        found |= {f"{name}.{key}": inner for key, inner in group.items()} or {name: value}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def from_flat(keys: Mapping[str, Any]) -> Config:
    """The configuration with these settings; they come from this program, not from a file."""
    config = configure(agent=keys["agent"], strategy=keys["replay.strategy"])
    for key, value in keys.items():
        config = with_key(config, key, value)
    return config


def pretraining_keys(config: Config) -> dict[str, Any]:
    """The settings that pre-training depends on."""
    return {key: value for key, value in flat(config).items() if not key.startswith(_ONLINE_ONLY)}


# ---- settings for people ---------------------------------------------------------------------------------------------
class Setting(NamedTuple):
    """What is shown of a setting."""

    name: str
    type: str
    default: Any
    meaning: str


def settings_table(config: Any, path: str = "") -> list[Setting]:
    """Every setting of a configuration, with its type, value and meaning.

    >>> next(row for row in settings_table(Config()) if row.name == "schedule.batch")
    Setting(name='schedule.batch', type='int', default=256, meaning='Transitions in a batch.')
    """
    hints, meanings, rows = get_type_hints(type(config)), _meanings(type(config)), []
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            rows += settings_table(value, f"{path}{f.name}.")
        else:
            meaning = f.metadata.get("meaning") or meanings.get(f.name, "")
            rows.append(Setting(f"{path}{f.name}", _type_name(hints[f.name]), value, meaning))
    return rows


def _meanings(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, from its source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        with suppress(OSError, TypeError, SyntaxError):  # a class that was made without source
            body: Any = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            for line, after in itertools.pairwise(body.body):
                match line, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
    return found


def read_value(value: Any, wanted: Any, name: str) -> Any:
    """A value, or the text of one, as the type a setting has."""
    if isinstance(value, str) and wanted is not str:
        with suppress(ValueError, SyntaxError):  # else it is a word, for settings that are one of several words
            value = ast.literal_eval(value)
    if isinstance(value, list):
        value = tuple(value)
    if _fits(value, wanted):
        parts = get_args(wanted) or (wanted,)
        return float(value) if isinstance(value, int) and float in parts and int not in parts else value
    raise DataError(f"{name} must be {_type_name(wanted)}, not {value!r}")


def _fits(value: Any, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        inner = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    kinds = int | float if wanted is float else wanted
    return wanted is Any or (isinstance(value, kinds) and not (wanted in (int, float) and isinstance(value, bool)))


def _type_name(wanted: Any) -> str:
    origin, kinds = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType, Literal):
        return " or ".join(repr(kind) if origin is Literal else _type_name(kind) for kind in kinds)
    if origin is tuple:
        number = "a comma after each" if kinds[-1] is Ellipsis else f"{len(kinds)} of them with a comma between"
        return f"{_type_name(kinds[0])} values, {number}"
    return "None" if wanted is types.NoneType else wanted.__name__ if isinstance(wanted, type) else str(wanted)
