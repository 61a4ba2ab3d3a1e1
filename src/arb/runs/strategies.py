"""The five replay strategies of the paper, each a filter over the dataset and a sampler, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from arb.buffer.likelihood import Likelihood
from arb.buffer.onpolicy import Level, OnPolicy
from arb.buffer.samplers import Mixed, Sampler, Uniform
from arb.buffer.selection import Filter, keep_best


@dataclass(frozen=True)
class Replay:
    """Which strategy, and its settings; each reads its own."""

    strategy: str = "arb"
    temperature: float = 0.5
    """ARB: λ."""
    clip: tuple[float, float] = (-12.0, 7.0)
    """ARB: bounds of the score."""
    level: Level = "trajectory"
    """ARB: weigh trajectories or transitions."""
    likelihood: Likelihood = "standard"
    """ARB: how the policy's likelihood is read."""
    budget: int | None = None
    """ARB: rows to score per refresh; all if not given."""
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


def _all(_: Replay) -> Filter:
    return lambda dataset: dict(dataset)


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
        lambda r, *_: OnPolicy(r.temperature, clip=r.clip, level=r.level, budget=r.budget),
        "by the likelihood of each trajectory under the current policy",
        ("temperature", "clip", "level", "likelihood", "budget"),
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
