"""One row per replay strategy: its name, its purpose, and the sampler whose constructor has its settings.

NumPy alone; what needs more is imported when its sampler is made. A strategy of this package is a sampler and one row
here. A strategy of somebody else is `my_module:MySampler`, a subclass of `arb.Sampler`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, get_type_hints

from arb.errors import DataError, suggest
from arb.lab.agents import is_plug_in, plug_in, plug_in_label
from arb.replay.arb import ARB
from arb.replay.dataset import keep_best
from arb.replay.samplers import Annealed, Mixed, Recent, Sampler, Uniform
from arb.replay.scores import Likelihood

_GIVEN = ("seed", "obs_dim", "action_dim", "online_steps")
"""Arguments of a constructor that are not settings: a run knows them."""


@dataclass(frozen=True)
class Strategy:
    """All that the package knows of a strategy."""

    label: str
    purpose: str
    """One line for help texts."""
    sampler: Callable[..., Sampler]
    """Makes the sampler. Its arguments are the settings, but for those that a run fills in: `seed`, `obs_dim`,
    `action_dim` and `online_steps`."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that make it what it is."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that start from other values than the constructor has."""

    @property
    def keeps_all(self) -> bool:
        """Whether it uses the whole dataset."""
        return not hasattr(self.sampler, "filter")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What its sampler reports beside what all report."""
        return tuple(getattr(self.sampler, "metric_names", ()))

    @property
    def whole_length(self) -> bool:
        """Whether what it does early depends on the number of online steps, so that a longer run is another run."""
        arguments = inspect.signature(self.sampler).parameters
        return "online_steps" in arguments or "warm_up" in arguments or getattr(self.sampler, "warm_up", 0) > 0

    @property
    def reads(self) -> tuple[str, ...]:
        """The settings that can be chosen."""
        return tuple(f.name for f in fields(_settings_class(self.sampler)) if f.name not in ("strategy", *self.fixed))

    def settings(self, strategy: str, **values: Any) -> Any:
        """Its settings as a frozen dataclass with `strategy` among them."""
        return _settings_class(self.sampler)(**{"strategy": strategy, **self.defaults, **values, **self.fixed})

    def make(self, replay: Any, **given: int) -> Sampler:
        """The sampler with these settings, for a run with this `seed`, `obs_dim`, `action_dim` and `online_steps`."""
        arguments = asdict(replay) | given
        return self.sampler(**{name: arguments[name] for name in inspect.signature(self.sampler).parameters})


@cache
def _settings_class(sampler: Any) -> type:
    """A dataclass of the arguments of a constructor; strategies that score rows also choose the likelihood."""
    hints = get_type_hints(sampler if inspect.isfunction(sampler) else sampler.__init__)
    found: list[Any] = [("strategy", str, field(metadata={"meaning": "A replay strategy, or my_module:MyStrategy."}))]
    for argument in inspect.signature(sampler).parameters.values():
        if argument.name in _GIVEN:
            continue
        if argument.default is argument.empty or isinstance(argument.default, list | dict | set):
            raise DataError(f"{sampler.__name__}: its argument {argument.name!r} needs a constant default")
        hint = hints.get(argument.name, type(argument.default))
        said = {"meaning": _meaning(sampler, argument.name)}
        found.append((argument.name, hint, field(default=argument.default, metadata=said)))
    if getattr(sampler, "needs_scores", False):
        said = {"meaning": "How the policy's likelihood is read."}
        found.append(("likelihood", Likelihood, field(default="standard", metadata=said)))
    return make_dataclass(f"{sampler.__name__}Settings", found, frozen=True)


def _meaning(kind: Any, argument: str) -> str:
    """What the docstrings of a class say of an argument of its constructor, under `Args:`."""
    bases: tuple[Any, ...] = kind.__mro__ if isinstance(kind, type) else (kind,)
    for base in bases:
        text = f"{inspect.getdoc(base) or ''}\n{inspect.getdoc(base.__init__) or ''}"
        found = re.search(rf"^ +{argument}(?: \(.*?\))?: (.*(?:\n {{8,}}.*)*)$", text, re.MULTILINE)
        if found:
            return " ".join(found.group(1).split())
    return ""


# ---- the table -------------------------------------------------------------------------------------------------------
def mixed(offline_share: float = 0.5) -> Mixed:
    """Mixed of the two origins that a run has.

    Args:
        offline_share: the share of offline rows in a batch.
    """
    return Mixed(offline_share)


class TopN(Uniform):
    """Uniform over online data and the best offline trajectories.

    Args:
        keep: transitions of the dataset to keep, in whole trajectories.
    """

    def __init__(self, keep: int = 50_000):
        self.keep = keep

    def filter(self, dataset: Any) -> Any:
        """The trajectories with the highest returns of raw rewards."""
        return keep_best(self.keep)(dataset)


def _berb(seed: int, obs_dim: int, action_dim: int) -> Sampler:
    import jax

    from arb.agents.density import DensityRatio, Ratio

    return DensityRatio(Ratio.create(jax.random.key(seed), obs_dim, action_dim))


STRATEGIES: Mapping[str, Strategy] = {
    "naive": Strategy("Naive", "uniform over all data", Uniform),
    "parallel": Strategy("Parallel", "half of each batch offline, half online", mixed),
    "top_n": Strategy("Top-N", "uniform over online data and the best offline trajectories", TopN),
    "berb": Strategy("BERB", "by a learned ratio of online to offline density", _berb),
    "arb": Strategy(
        "ARB", "by the likelihood of each trajectory under the current policy", ARB, defaults={"temperature": 0.5}
    ),
    "arb_auto": Strategy("ARB auto", "the same, with an automatic temperature", ARB, {"temperature": "auto"}),
    "offline": Strategy(
        "Offline only", "the dataset alone: training on without an environment", mixed, {"offline_share": 1.0}
    ),
    "annealed": Strategy("Annealed", "an offline share that falls to zero", Annealed),
    "recent": Strategy("Recent", "newer rows more often", Recent),
}
DEFAULT = "arb_auto"
"""The strategy of a run that names none."""
PAPER = ("naive", "parallel", "top_n", "berb", "arb")
"""The strategies that the paper compares."""
OURS = ("arb", "arb_auto")
"""The strategies that this project is about, which reports compare with the others."""
COMPARED = (*PAPER, DEFAULT)
"""The strategies of a comparison that names none."""


def strategy_row(name: str) -> Strategy:
    """The row of a strategy, or one for a plug-in."""
    if is_plug_in(name):
        kind = plug_in(name)
        if not (isinstance(kind, type) and issubclass(kind, Sampler)):
            raise DataError(f"{name} is not a strategy: it must be a subclass of arb.Sampler; see docs/extending.md")
        return Strategy(plug_in_label(name), (inspect.getdoc(kind) or name).partition("\n")[0], kind)
    if name not in STRATEGIES:
        raise DataError(f"there is no strategy {name!r}{suggest(name, STRATEGIES)}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def strategy_label(name: str) -> str:
    """A strategy's name as the paper spells it; a name that nobody knows is shown as it is."""
    return STRATEGIES[name].label if name in STRATEGIES else plug_in_label(name)
