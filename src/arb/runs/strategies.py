"""The five replay strategies of the paper, each a filter over the dataset and a sampler, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from arb.buffer.likelihood import Likelihood
from arb.buffer.onpolicy import EFFECTIVE, Level, OnPolicy
from arb.buffer.samplers import Mixed, Sampler, Uniform
from arb.buffer.selection import Filter, keep_best
from arb.buffer.temperature import Temperature, Unit


@dataclass(frozen=True)
class Replay:
    """Which strategy, and its settings; each reads its own."""

    strategy: str = "arb"
    temperature: Temperature = 0.5
    """ARB: λ, or "auto" to hold the effective sample size."""
    effective: float = EFFECTIVE
    """ARB with temperature "auto": effective sample size to hold; a share of the rows up to 1, rows above."""
    least_effective: float = 0.0
    """ARB with a given λ: λ is raised where the effective sample size would fall below this; 0 sets no limit."""
    unit: Unit = "score"
    """ARB with a given λ: what it counts, log-likelihoods or their standard deviations over the rows."""
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


class Strategy(NamedTuple):
    """How the dataset is filtered, and what draws the batches; the latter gets seed and sizes for what it learns."""

    filter: Callable[[Replay], Filter]
    sampler: Callable[[Replay, int, int, int], Sampler]
    purpose: str
    reads: tuple[str, ...] = ()
    """The settings of `Replay` that change what it does."""
    defaults: Mapping[str, Any] = {}
    """Settings of `Replay` that it starts from instead of the paper's."""


def _all(_: Replay) -> Filter:
    return lambda dataset: dict(dataset)


def _on_policy(r: Replay, *_: int) -> Sampler:
    held = {"effective": r.effective} if r.temperature == "auto" else {"least_effective": r.least_effective or None}
    return OnPolicy(r.temperature, unit=r.unit, clip=r.clip, level=r.level, **held)


def _density_ratio(_: Replay, seed: int, obs_dim: int, action_dim: int) -> Sampler:
    import jax

    from arb.agents.density import DensityRatio, Ratio

    return DensityRatio(Ratio.create(jax.random.key(seed), obs_dim, action_dim))


STRATEGIES: Mapping[str, Strategy] = {
    "naive": Strategy(_all, lambda *_: Uniform(), "all data alike"),
    "parallel": Strategy(
        _all, lambda r, *_: Mixed(r.offline_share), "half of each batch offline, half online", ("offline_share",)
    ),
    "top_n": Strategy(
        lambda r: keep_best(r.keep), lambda *_: Uniform(), "the best offline trajectories, then alike", ("keep",)
    ),
    "berb": Strategy(_all, _density_ratio, "by a learned ratio of online to offline density"),
    "arb": Strategy(
        _all,
        _on_policy,
        "by the likelihood of each trajectory under the current policy",
        ("temperature", "effective", "least_effective", "unit", "clip", "level", "likelihood"),
    ),
    "arb_auto": Strategy(
        _all,
        _on_policy,
        "the same, with a temperature that sets itself",
        ("temperature", "effective", "least_effective", "unit", "clip", "level", "likelihood"),
        {"temperature": "auto"},
    ),
}


def prepare(
    replay: Replay, dataset: Mapping[str, Any], raw_rewards: Any, seed: int, dims: tuple[int, int]
) -> tuple[dict[str, Any], Sampler]:
    """The dataset as this strategy keeps it, and its sampler.

    Filters see the raw rewards: with AntMaze's shift of -1 per step, the shortest trajectories would look best.
    """
    strategy = STRATEGIES[replay.strategy]
    kept = strategy.filter(replay)({**dataset, "rewards": raw_rewards, "shaped_rewards": dataset["rewards"]})
    kept["rewards"] = kept.pop("shaped_rewards")
    return kept, strategy.sampler(replay, seed, *dims)
