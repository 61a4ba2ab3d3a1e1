"""What scoring in bfloat16 does to ARB's distribution along a run, and what it saves.

    pip install -e '.[train]'
    taskset -c 0 python benchmarks/rounding.py suite:hopper-mixed suite:walker2d-mixed
    python benchmarks/rounding.py --quick

IQL at the paper's width is pre-trained and then fine-tuned with ARB. At the end of every block of 1,000 steps all rows
are scored in float32 and in bfloat16, in turns, and the distributions that follow are compared: their total variation,
which is the share of a batch that rounding moves to other rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from arb.agents.learn import scores
from arb.envs.rollout import Collector
from arb.lab.algorithm import finetune, pretrain
from arb.lab.config import configure
from arb.lab.setup import Problem, key_of, stream
from arb.replay.buffer import ReplayBuffer
from interleaved import cpu_model, table


class Refresh(NamedTuple):
    """One refresh both ways."""

    variation: float
    faster: float
    error: float
    """Standard deviation of the error of a row's score."""
    spread: float
    """Standard deviation of the scores."""


def both_ways(agent: Any, buffer: ReplayBuffer) -> Refresh:
    """Score all rows in float32 and in bfloat16, and weigh them by both."""
    rows = slice(0, len(buffer))
    obs, action = buffer.storage.observations(rows)[""], buffer.storage.actions(rows)
    seconds, read, share = {}, {}, {}
    for precision in ("float32", "bfloat16") * 2:  # the first round compiles
        start = time.process_time()
        read[precision] = scores(agent, obs, action, precision=precision)
        seconds[precision] = time.process_time() - start
    for precision in ("bfloat16", "float32"):  # what the run goes on with comes last
        buffer.rows.update_weights(read[precision])
        share[precision] = buffer.sampler.probabilities()
    return Refresh(
        0.5 * float(np.abs(share["float32"] - share["bfloat16"]).sum()),
        seconds["float32"] / seconds["bfloat16"],
        float((read["float32"] - read["bfloat16"]).std()),
        float(read["float32"].std()),
    )


def along(task: str, strategy: str, size: dict[str, Any]) -> Iterator[Refresh]:
    """The refreshes of one run."""
    config = configure(task=task, strategy=strategy, overrides=size)
    problem, plan = Problem.of(config), config.schedule
    dataset, sampler = problem.strategy()
    buffer = problem.new_buffer(sampler, len(dataset["rewards"]) + plan.online, "online")
    buffer.load_dataset(dataset)
    *_, last = pretrain(problem.new_agent(key_of(0, "init")), buffer, key_of(0, "pretrain"), plan)
    collector = Collector(problem.make_env(), stream(0, "collect"))
    for progress in finetune(last.agent.begin_online(), buffer, collector, key_of(0, "online"), plan):
        yield both_ways(progress.agent, buffer)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tasks", nargs="*", default=["suite:hopper-mixed"])
    options.add_argument("--steps", type=int, default=20_000, help="updates offline, and steps online (20000)")
    options.add_argument("--quick", action="store_true", help="two blocks of 20 steps on a bundled set")
    chosen = options.parse_args()
    tasks = ["bundled:hopper-tiny"] if chosen.quick else chosen.tasks
    size = {"schedule.pretrain": chosen.steps, "schedule.online": chosen.steps}
    if chosen.quick:
        size = {f"schedule.{name}": 20 for name in ("pretrain", "collect", "updates", "refresh")}
        size |= {"schedule.online": 40}
    print(cpu_model())
    lines = []
    for task in tasks:
        for strategy in ("arb", "arb_auto"):
            found = np.array(list(along(task, strategy, size)))
            variation, faster, error, spread = found.T
            seen = f"{variation.mean():.5f}", f"{variation.max():.5f}", f"{np.median(faster):.2f}"
            lines.append([task, strategy, *seen, f"{np.median(error):.1e}", f"{np.median(spread):.2f}"])
            print(" ".join(lines[-1]), flush=True)
    print(table(["set", "strategy", "variation, mean", "at most", "times faster", "error", "spread"], lines))


if __name__ == "__main__":
    main()
