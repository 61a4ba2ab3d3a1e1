"""Everything that decides a run, as one tree of frozen values; the command line overrides its leaves."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from arb.errors import DataError, near
from arb.runs.algorithm import Schedule
from arb.runs.strategies import STRATEGIES, Replay


@dataclass(frozen=True)
class Evaluation:
    """When and how long a policy is evaluated; the defaults are the paper's."""

    every: int = 50_000
    """Updates while pre-training, steps while fine-tuning; also at step 0 and at the end of both."""
    episodes: int = 100


@dataclass(frozen=True)
class Config:
    """A run."""

    task: str = "bundled:pendulum-random"
    """A D4RL task, a file, or another source that `arb.data.load` knows."""
    env: str = ""
    """The environment, as a Gymnasium id; a task, and a file made here, bring their own."""
    agent: str = "iql"
    seed: int = 0
    replay: Replay = field(default_factory=Replay)
    schedule: Schedule = field(default_factory=Schedule)
    evaluation: Evaluation = field(default_factory=Evaluation)
    settings: Any = None
    """The agent's own, by default the paper's for the domain."""


BUDGETS: dict[str, tuple[Schedule, Evaluation]] = {
    # name: how much training, how much evaluation
    "smoke": (Schedule(pretrain=400, online=400, collect=200, updates=200, refresh=200), Evaluation(400, 2)),
    "demo": (Schedule(pretrain=10_000, online=10_000), Evaluation(2_000, 10)),
    "small": (Schedule(pretrain=30_000, online=20_000), Evaluation(5_000, 20)),
    "paper": (Schedule(), Evaluation()),
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
    "replay.effective": _POSITIVE,
    "replay.least_effective": _AT_LEAST_0,
    "replay.clip": (lambda v: v[0] < v[1], "a lower and a higher bound"),
    "replay.offline_share": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "settings.discount": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "settings.learning_rate": _POSITIVE,
}

RETIRED = [("replay.budget", None)]
"""Settings that earlier versions wrote, at the value at which they changed nothing."""


def configure(
    *,
    task: str = Config.task,
    env: str = "",
    agent: str = "iql",
    strategy: str = "arb",
    seed: int = 0,
    budget: str = "demo",
    family: str = "locomotion",
    overrides: dict[str, Any] | None = None,
) -> Config:
    """The paper's configuration of an agent and a strategy on a family of tasks, within a budget.

    `overrides` maps leaves such as `"schedule.online"` or `"settings.expectile"` to values.
    """
    from arb.runs.presets import PRESETS

    agents = sorted({name for name, _ in PRESETS})
    for kind, name, known in (
        ("agent", agent, agents),
        ("strategy", strategy, STRATEGIES),
        ("preset", budget, BUDGETS),
    ):
        if name not in known:
            raise DataError(f"there is no {kind} {name!r}{near(name, known)}; there are {', '.join(known)}")
    schedule, evaluation = BUDGETS[budget]
    preset = PRESETS[agent, "antmaze" if family == "antmaze" else "locomotion"]
    replay = Replay(**{"strategy": strategy, "temperature": preset.arb_temperature, **STRATEGIES[strategy].defaults})
    config = Config(task, env, agent, seed, replay, schedule, evaluation, preset.config)
    for leaf, value in {"seed": seed, **(overrides or {})}.items():
        config = with_leaf(config, leaf, value)
    if getattr(config.settings, "policy_decay", None) is not None and "settings.policy_decay" not in (overrides or {}):
        # The rate falls over the whole of pre-training, however long that is.
        config = with_leaf(config, "settings.policy_decay", config.schedule.pretrain)
    return config


def with_leaf(config: Any, leaf: str, value: Any, path: str = "") -> Any:
    """The same configuration with another value at a leaf, e.g. `schedule.online`; text is read as its type."""
    name, _, rest = leaf.partition(".")
    here = {f.name for f in fields(config)}
    full = f"{path}.{name}" if path else name
    if name not in here:
        raise DataError(f"there is no setting {full!r}{near(name, here)}; here are {', '.join(sorted(here))}")
    current = getattr(config, name)
    if is_dataclass(current):
        if not rest:
            raise DataError(
                f"{full!r} is a group of settings; name one of {', '.join(f.name for f in fields(current))}"
            )
        return replace(config, **{name: with_leaf(current, rest, value, full)})
    if rest:
        raise DataError(f"{full!r} is a single setting and has no {rest!r}")
    wanted = get_type_hints(type(config))[name]
    read = _read(value, wanted, full)
    if full in SENSIBLE and not SENSIBLE[full][0](read):
        raise DataError(f"{full} must be {SENSIBLE[full][1]}, not {read!r}")
    return replace(config, **{name: read})


def flat(config: Config) -> dict[str, Any]:
    """Every leaf by its dotted name, as JSON can hold it.

    >>> flat(Config())["schedule.batch"]
    256
    """
    return _flat(asdict(config))


def from_flat(leaves: Mapping[str, Any]) -> Config:
    """The configuration whose leaves these are."""
    config = configure(agent=leaves["agent"])
    for leaf, value in leaves.items():
        if (leaf, value) not in RETIRED:
            config = with_leaf(config, leaf, value)
    return config


def _flat(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= _flat(value, f"{path}{name}.")
        else:
            leaves[f"{path}{name}"] = list(value) if isinstance(value, tuple) else value
    return leaves


def _read(value: Any, wanted: Any, name: str) -> Any:
    """A value, or the text of one, as the type a setting has."""
    if isinstance(value, str) and wanted is not str:
        with suppress(ValueError, SyntaxError):  # else it is a word, for settings that are one of several words
            value = ast.literal_eval(value)
    if isinstance(value, list):
        value = tuple(value)
    if _fits(value, wanted):
        numeric = float in (wanted, *get_args(wanted)) and int not in get_args(wanted)
        return float(value) if numeric and isinstance(value, int) else value
    raise DataError(f"{name} must be {_spelt(wanted)}, not {value!r}")


def _fits(value: Any, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        inner = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return wanted is Any or isinstance(value, wanted)


def _spelt(wanted: Any) -> str:
    if wanted is types.NoneType:
        return "None"
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(map(_spelt, get_args(wanted)))
    if get_origin(wanted) is Literal:
        return " or ".join(repr(part) for part in get_args(wanted))
    return str(wanted.__name__) if isinstance(wanted, type) and not get_args(wanted) else str(wanted)
