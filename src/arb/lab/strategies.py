"""One row per replay strategy: a filter over the dataset, a sampler, and what people are told about it.

NumPy alone; what needs more is imported when its sampler is made. A strategy of this package is a sampler and one row
here. A strategy of somebody else is `my_module:MySampler`, a subclass of `arb.Sampler`: the arguments of its
constructor are its settings.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, get_type_hints

from arb.errors import DataError, suggest
from arb.lab.plugins import is_plug_in, label_of, plug_in
from arb.replay.arb import ARB, EFFECTIVE, Level, Temperature
from arb.replay.dataset import keep_best
from arb.replay.samplers import Annealed, Mixed, Recent, Sampler, Uniform
from arb.replay.scores import Likelihood

OTHER_COLOURS = ("#7a5195", "#8c6d31", "#4d4d4d")


@dataclass(frozen=True)
class Replay:
    """Which strategy, and its settings; each reads its own."""

    strategy: str = "arb"
    """A row of the table of strategies, or `my_module:MyStrategy`."""
    temperature: Temperature = 0.5
    """ARB: λ, or "auto" to hold the effective sample size."""
    effective: float = EFFECTIVE
    """ARB with temperature "auto": effective sample size to hold, as a share of the rows."""
    clip: tuple[float, float] = (-12.0, 7.0)
    """ARB: bounds of the score."""
    level: Level = "trajectory"
    """ARB: weigh trajectories or transitions."""
    likelihood: Likelihood = "standard"
    """ARB: how the policy's likelihood is read."""
    offline_share: float = 0.5
    """Parallel: share of each batch from the dataset."""
    keep: int = 50_000
    """Top-N: transitions to keep, in whole trajectories."""


def _all(_: Any) -> Callable[[Any], Any]:
    return lambda dataset: dict(dataset)


@dataclass(frozen=True)
class Strategy:
    """All that the package knows of a strategy."""

    label: str
    purpose: str
    """One line for help texts."""
    sampler: Callable[[Any, int, int, int, int], Sampler]
    """From settings, a seed, the sizes of observations and actions, and the online steps of the run."""
    filter: Callable[[Any], Callable[[Any], Any]] = _all
    """From settings; a filter sees raw rewards."""
    reads: tuple[str, ...] = ()
    """The settings that change what it does."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that it starts from instead of the paper's."""
    colour: str = ""
    """In figures and on the page (Okabe and Ito, Color Universal Design, 2008)."""
    figures: tuple[str, ...] = ()
    """What its sampler reports beside `arb.lab.metrics.LOGGED`."""
    whole_length: bool = False
    """Whether what it does early depends on the number of online steps, so that a longer run is another run."""
    settings: type = field(default=Replay)
    """Its settings as a frozen dataclass with `strategy` among them."""

    @property
    def keeps_all(self) -> bool:
        """Whether it keeps the whole dataset, as all do that have no filter."""
        return self.filter is _all


# ---- rows from constructors ------------------------------------------------------------------------------------------
_GIVEN = ("seed", "obs_dim", "action_dim", "online_steps")
"""Arguments of a constructor that are not settings: a run knows them."""


def _row(name: str, kind: type[Sampler], label: str, purpose: str, colour: str = "") -> Strategy:
    """The row of a sampler whose settings are the arguments of its constructor."""
    settings = _settings_of(kind, name)
    own = tuple(f.name for f in fields(settings) if f.name != "strategy")

    def sampler(replay: Any, *given: int) -> Sampler:
        arguments = {k: v for k, v in asdict(replay).items() if k in own}
        wanted = inspect.signature(kind).parameters
        return kind(**arguments, **{k: v for k, v in zip(_GIVEN, given, strict=True) if k in wanted})

    keep, figures = getattr(kind, "filter", None), tuple(getattr(kind, "metric_names", ()))
    chosen = (lambda _: keep) if keep else _all
    whole_length = "online_steps" in inspect.signature(kind).parameters or "warm_up" in own or kind.warm_up > 0
    return Strategy(
        label,
        purpose,
        sampler,
        chosen,
        own,
        colour=colour,
        figures=figures,
        whole_length=whole_length,
        settings=settings,
    )


def _settings_of(kind: Any, name: str) -> type:
    """A dataclass of the arguments of a constructor."""
    hints = get_type_hints(kind.__init__)
    found: list[Any] = [("strategy", str, field(default=name))]
    for argument in inspect.signature(kind).parameters.values():
        if argument.name in _GIVEN or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if argument.default is argument.empty or isinstance(argument.default, list | dict | set):
            raise DataError(f"{name}: the argument {argument.name!r} of its constructor needs a constant default")
        hint, said = hints.get(argument.name, type(argument.default)), {"meaning": _meaning(kind, argument.name)}
        found.append((argument.name, hint, field(default=argument.default, metadata=said)))
    return make_dataclass(f"{kind.__name__}Settings", found, frozen=True)


def _meaning(kind: Any, argument: str) -> str:
    """What the docstrings of a class say of an argument of its constructor, under `Args:`."""
    text = f"{inspect.getdoc(kind) or ''}\n{inspect.getdoc(kind.__init__) or ''}"
    found = re.search(rf"^ +{argument}(?: \(.*?\))?: (.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


# ---- the table -------------------------------------------------------------------------------------------------------
def _on_policy(r: Replay, *_: int) -> Sampler:
    return ARB(r.temperature, effective=r.effective, clip=r.clip, level=r.level)


def _density_ratio(_: Replay, seed: int, obs_dim: int, action_dim: int, *__: int) -> Sampler:
    import jax

    sampler, ratio = (plug_in(f"arb.agents.density:{name}") for name in ("DensityRatio", "Ratio"))
    made: Sampler = sampler(ratio.create(jax.random.key(seed), obs_dim, action_dim))
    return made


_ON_POLICY = ("temperature", "effective", "clip", "level", "likelihood")

STRATEGIES: Mapping[str, Strategy] = {
    "naive": Strategy("Naive", "uniform over all data", lambda *_: Uniform(), colour="#e69f00"),
    "parallel": Strategy(
        "Parallel",
        "half of each batch offline, half online",
        lambda r, *_: Mixed(r.offline_share),
        reads=("offline_share",),
        colour="#009e73",
    ),
    "top_n": Strategy(
        "Top-N",
        "uniform over online data and the best offline trajectories",
        lambda *_: Uniform(),
        filter=lambda r: lambda dataset: keep_best(r.keep)(dataset).to_dict(),
        reads=("keep",),
        colour="#cc79a7",
    ),
    "berb": Strategy("BERB", "by a learned ratio of online to offline density", _density_ratio, colour="#d55e00"),
    "arb": Strategy(
        "ARB",
        "by the likelihood of each trajectory under the current policy",
        _on_policy,
        reads=_ON_POLICY,
        colour="#0072b2",
    ),
    "arb_auto": Strategy(
        "ARB auto",
        "the same, with an automatic temperature",
        _on_policy,
        reads=_ON_POLICY,
        defaults={"temperature": "auto"},
        colour="#56b4e9",
    ),
    "annealed": _row("annealed", Annealed, "Annealed", "an offline share that falls to zero", "#999933"),
    "recent": _row("recent", Recent, "Recent", "newer rows more often", "#aa4499"),
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
        return _plugged_in(name)
    if name not in STRATEGIES:
        raise DataError(f"there is no strategy {name!r}{suggest(name, STRATEGIES)}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def strategy_label(name: str) -> str:
    """A strategy's name as the paper spells it; a name that nobody knows is shown as it is."""
    return STRATEGIES[name].label if name in STRATEGIES else label_of(name)


def strategy_colour(name: str) -> str:
    """A strategy's colour; what is in no table gets one that depends on its name alone."""
    return STRATEGIES[name].colour if name in STRATEGIES else OTHER_COLOURS[sum(name.encode()) % len(OTHER_COLOURS)]


def prepare(
    replay: Any, dataset: Mapping[str, Any], raw_rewards: Any, seed: int, sizes: tuple[int, int, int]
) -> tuple[dict[str, Any], Sampler]:
    """The dataset as this strategy keeps it, and its sampler.

    `sizes` are those of observations and actions, and the number of online steps. Filters see the raw rewards: with
    AntMaze's shift of -1 per step, the shortest trajectories would look best.
    """
    strategy = strategy_row(replay.strategy)
    kept = strategy.filter(replay)({**dataset, "rewards": raw_rewards, "shaped_rewards": dataset["rewards"]})
    kept["rewards"] = kept.pop("shaped_rewards")
    return kept, strategy.sampler(replay, seed, *sizes)


@cache
def _plugged_in(name: str) -> Strategy:
    kind = plug_in(name)
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise DataError(f"{name} is not a strategy: it must be a subclass of arb.Sampler; see docs/extending.md")
    purpose = (inspect.getdoc(kind) or name).partition("\n")[0]
    return _row(name, kind, label_of(name), purpose, strategy_colour(name))
