"""How far the weights of the last refresh are from fresh ones, along real runs, and whether a sample can tell.

    pip install -e '.[test]'
    python benchmarks/staleness.py suite:hopper-mixed suite:halfcheetah-medium-expert
    python benchmarks/staleness.py --quick                  a short run: does it work, not what it finds

Every 1,000 steps all rows are scored. For two refreshes that lie k apart, the old trajectories keep the weights of the
first, and new ones are scored and weighed at its temperature. The total variation between this distribution and the
second's is what keeping the weights would have cost. "Needless" is the share of refreshes that change less than the
tolerance. An estimate is made from trajectories drawn by their old weights, 2 % or 10 % of all: how many these are, and
how often the truth lies below the estimate plus 1.645 standard errors, where 95 % is right.

The second table compares rules along the same record: a refresh at every k-th occasion, and the best that any rule can
do that asks before it refreshes. It knows the total variation, at no cost, and keeps the weights as long as that is
below a tolerance. The columns are the share of the refreshes that are made, and the mean and largest total variation.

"λ" is the run's own, or 0.5, with which the same scores are weighed once more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from arb.lab.config import configure
from arb.lab.training import run
from arb.replay.arb import ARB, clip_bounds, group_mean
from interleaved import table

TOLERANCE, SAMPLES, DRAWS = 0.02, (0.02, 0.1), 200
History = list[tuple[np.ndarray, np.ndarray, float]]
"""Of every refresh: the mean score of each trajectory, its number of steps, and the temperature."""
OWN, FIXED = History(), History()
"""As the run weighed its rows, and as λ = 0.5 would have."""


class Recorded(ARB):
    """ARB, with a record of its refreshes; the ring must not wrap."""

    def update_weights(self, scores: np.ndarray, num_added: int) -> None:
        super().update_weights(scores, num_added)
        members, ids = self.index.members(before=num_added), self.index.episode_ids[:num_added]
        own = clip_bounds(scores, *self.clip) if self.temperature == "auto" else self.clip
        temperatures = ((OWN, own, self.metrics()["temperature"]), (FIXED, self.clip, 0.5))
        for history, (low, high), temperature in temperatures:
            mean = group_mean(np.clip(scores[:num_added], low, high), ids, self.index.num_ids)[members.episode]
            history.append((mean, members.steps, temperature))


def masses(log_weight: np.ndarray, steps: np.ndarray) -> np.ndarray:
    mass = steps * np.exp(log_weight - log_weight.max())
    return mass / mass.sum()


def stale_and_fresh(history: History, first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of all trajectories with the weights of one refresh kept, and with those of a later one."""
    (old, _, before), (new, steps, now) = history[first], history[second]
    return masses(np.append(old, new[len(old) :]) / before, steps), masses(new / now, steps)


def estimates(stale: np.ndarray, fresh: np.ndarray, sample: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Total variation and its standard error, each from so many trajectories drawn by the stale weights."""
    drawn = rng.choice(len(stale), (DRAWS, sample), p=stale)
    ratio = (fresh / np.maximum(stale, 1e-300))[drawn]
    gap = np.abs(ratio / ratio.mean(1, keepdims=True) - 1.0) / 2.0
    return gap.mean(1), gap.std(1, ddof=1) / np.sqrt(sample)


def prices(history: History, rng: np.random.Generator) -> list[list[str]]:
    """A line for each distance k between two refreshes of the record."""
    lines = []
    samples = [max(2, round(share * len(history[0][1]))) for share in SAMPLES]
    for apart in (1, 2, 4, 8):
        found: list[float] = []
        below: list[list[float]] = [[] for _ in samples]
        for second in range(apart, len(history)):
            stale, fresh = stale_and_fresh(history, second - apart, second)
            found.append(0.5 * np.abs(stale - fresh).sum())
            for held, sample in zip(below, samples, strict=True):
                estimate, deviation = estimates(stale, fresh, sample, rng)
                held.append(float((found[-1] <= estimate + 1.645 * deviation).mean()))
        if found:
            cells = [f"{np.median(found):.3f}", f"{max(found):.3f}", f"{np.mean(np.less(found, TOLERANCE)):.0%}"]
            lines.append([str(apart), *cells, *(f"{n}: {np.mean(h):.0%}" for n, h in zip(samples, below, strict=True))])
    return lines


def rules(history: History) -> list[list[str]]:
    """A line for each rule: how many refreshes it makes, and how far its weights are from fresh ones."""
    occasions = range(len(history))
    apart = {
        (first, second): 0.5 * np.abs(np.subtract(*stale_and_fresh(history, first, second))).sum()
        for second in occasions
        for first in range(second)
    }
    lines = []
    for name, made_at, limit in [(f"every {k}", k, 0.0) for k in (1, 2, 3, 4)] + [
        (f"if above {limit}", 0, limit) for limit in (0.02, 0.05, 0.1)
    ]:
        last, found = 0, [0.0]
        for now in occasions[1:]:
            if now - last == made_at or (limit and apart[last, now] > limit):
                last = now
            found.append(apart.get((last, now), 0.0))
        lines.append([name, f"{np.mean(np.equal(found, 0.0)):.2f}", f"{np.mean(found):.3f}", f"{max(found):.3f}"])
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tasks", nargs="*", default=["suite:hopper-mixed"])
    options.add_argument("--pretrain", type=int, default=5000)
    options.add_argument("--online", type=int, default=20_000)
    options.add_argument("--temperature", default="auto")
    options.add_argument("--quick", action="store_true")
    chosen = options.parse_args()
    size: dict[str, Any] = {"schedule.pretrain": chosen.pretrain, "schedule.online": chosen.online}
    size |= {"schedule.batch": 256, "settings.hidden_dims": (256, 256)}
    if chosen.quick:
        size = {"schedule.pretrain": 10, "schedule.online": 200, "schedule.collect": 20, "schedule.refresh": 20}
    size |= {"evaluation.every": 10**9, "evaluation.episodes": 1, "replay.temperature": chosen.temperature}
    preset = "smoke" if chosen.quick else "demo"
    lines, compared, rng = [], [], np.random.default_rng(0)
    for task in ["bundled:hopper-tiny"] if chosen.quick else chosen.tasks:
        OWN.clear(), FIXED.clear()
        config = configure(task=task, strategy="__main__:Recorded", preset=preset, overrides=size)
        with tempfile.TemporaryDirectory() as folder:
            run(config, Path(folder) / "run")
        for temperature, history in ((chosen.temperature, OWN), ("0.5", FIXED)):
            lines += [[task, temperature, *cells] for cells in prices(history, rng)]
            compared += [[task, temperature, *cells] for cells in rules(history)]
    header = ["task", "λ", "k", "median", "largest", "needless", *(f"below, {share:.0%} drawn" for share in SAMPLES)]
    print(table(header, lines), end="\n\n")
    print(table(["task", "λ", "refresh", "share made", "mean", "largest"], compared))


if __name__ == "__main__":
    main()
