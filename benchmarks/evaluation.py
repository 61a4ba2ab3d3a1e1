"""What an evaluation costs: episodes of Hopper one by one, side by side, and in threads.

    pip install -e '.[train]'
    python benchmarks/evaluation.py                    all cores; with taskset -c 0, one
    python benchmarks/evaluation.py --quick            a few short episodes: does it run

`arb.envs.rollout.play` steps up to `width` environments side by side and asks the policy once for all of them. Threads
share the episodes among several such calls. The policy is the best of the suite's hoppers, which hardly ever falls, so
that episodes are as long as they can be. Variants take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gymnasium
import numpy as np

import arb.envs  # noqa: F401 - registers arb/hopper-v2
from arb.envs.rollout import play
from arb.suite.ladders import read_ladder
from interleaved import cpu_model, table, time_in_turns

POLICY = read_ladder("hopper").levels["100"].policy


def make(limit: int) -> gymnasium.Env:
    return gymnasium.make("arb/hopper-v2", max_episode_steps=limit)


def evaluate(episodes: int, limit: int, width: int, threads: int) -> None:
    seeds = np.random.SeedSequence(0).spawn(threads)
    shares = [episodes // threads + (i < episodes % threads) for i in range(threads)]
    if threads == 1:
        play(POLICY, partial(make, limit), episodes, seeds[0], width)
        return
    with ThreadPoolExecutor(threads) as pool:
        calls = zip(shares, seeds, strict=True)
        list(pool.map(lambda call: play(POLICY, partial(make, limit), call[0], call[1], width), calls))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--episodes", type=int, nargs="+", default=[20, 100])
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="four episodes of 20 steps")
    chosen = options.parse_args()
    print(cpu_model())
    for episodes in [4] if chosen.quick else chosen.episodes:
        limit = 20 if chosen.quick else 1000
        variants: dict[str, Callable[[], object]] = {
            "one by one": partial(evaluate, episodes, limit, 1, 1),
            "10 side by side": partial(evaluate, episodes, limit, 10, 1),
            "all side by side": partial(evaluate, episodes, limit, episodes, 1),
            "two threads, 10 each": partial(evaluate, episodes, limit, 10, 2),
        }
        seconds = time_in_turns(variants, 1 if chosen.quick else chosen.turns)
        base = seconds["10 side by side"]
        lines = [
            [str(episodes), name, f"{np.median(s):.2f}", f"{np.median(s / base):.2f}"] for name, s in seconds.items()
        ]
        print(table(["episodes", "how", "seconds", "times 10 side by side"], lines), flush=True)


if __name__ == "__main__":
    main()
