"""One online cycle, part by part: 1,000 environment steps, a refresh, 1,000 updates of IQL on Hopper.

    pip install -e '.[test]'
    taskset -c 0 python benchmarks/cycle.py --rows 1e6 2e6     one core; without taskset, all of them
    python benchmarks/cycle.py --quick                      a short cycle over 5,000 rows: does it run, not how fast

Against the same cycle the way the paper's release goes about it: acting through eager PyTorch, ends of episodes
found by a Python loop over all rows, one forward pass over all of them at once, `numpy.random.choice` with `p` for
every batch, and eager updates. What costs the release so much per row or per update is timed on a part and multiplied
up. Variants take turns; medians. The last line is no program: the matrix products of ARB's refresh and of the
updates, at the rate at which this machine multiplies 256 x 256 matrices, and nothing else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import gymnasium
import jax
import numpy as np
import torch

import arb.envs  # noqa: F401 - registers arb/hopper-v2
from arb.agents import IQL, learn, on_host, scores
from arb.agents.learn import ROWS_PER_CALL
from arb.envs.rollout import Collector
from arb.replay.arb import ARB
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Sampler, Uniform
from interleaved import cpu_model, table
from rivals import TorchIQL
from updates import matrix_rate, work

BATCH, EPISODE, OBS, ACTION = 256, 500, 11, 3
Parts = dict[str, float]
clock = time.perf_counter


class Cycle(NamedTuple):
    """How much there is of everything in one cycle; the paper's, unless it must be quick."""

    steps: int = 1000
    updates: int = 1000
    trials: int = 60
    """Updates of the eager rival that are timed, to be multiplied up."""


def dataset(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "observations": rng.standard_normal((rows, OBS), dtype=np.float32),
        "actions": rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        "rewards": rng.standard_normal(rows, dtype=np.float32),
        "terminals": np.arange(rows) % EPISODE == EPISODE - 1,
    }


def ours(
    data: dict[str, np.ndarray],
    sampler: Sampler,
    cycles: int,
    size: Cycle,
    every: int = 1,
) -> Callable[[], Parts]:
    """A function that runs one cycle, every second (or so) with a refresh, and returns the seconds of each part."""
    buffer = ReplayBuffer(len(data["rewards"]) + cycles * size.steps, sampler, seed=0)
    buffer.load_dataset(data)
    agent = IQL.create(jax.random.key(0), OBS, ACTION)
    collector = Collector(gymnasium.make("arb/hopper-v2"), np.random.SeedSequence(0))

    turn = 0

    def cycle() -> Parts:
        nonlocal agent, turn
        marks = [clock()]
        collector.collect(on_host(agent.actor), buffer, size.steps)
        marks.append(clock())
        if turn % every == 0:
            buffer.refresh(partial(scores, agent), rows_per_call=ROWS_PER_CALL)
        turn += 1
        marks.append(clock())
        batches = buffer.sample((size.updates, BATCH))
        marks.append(clock())
        agent, _ = learn(agent, batches, jax.random.key(0))
        marks.append(clock())
        return dict(zip(("collect", "refresh", "draw", "update"), np.diff(marks), strict=True))

    return cycle


def release(data: dict[str, np.ndarray], size: Cycle) -> Callable[[], Parts]:
    """The same parts the release's way."""
    rows = len(data["rewards"])
    rival = TorchIQL(OBS, ACTION)
    obs, action = torch.from_numpy(data["observations"]), torch.from_numpy(data["actions"])
    led_to, done = np.roll(data["observations"], -1, axis=0), data["terminals"]
    following = torch.from_numpy(led_to)
    weight = np.random.default_rng(0).random(rows).astype(np.float32)
    env = gymnasium.make("arb/hopper-v2")
    here, _ = env.reset(seed=0)

    def step() -> None:
        nonlocal here
        with torch.no_grad():
            mean = rival.policy(torch.as_tensor(here, dtype=torch.float32)[None])
            chosen = torch.distributions.Normal(mean, 1.0).sample().clamp(-1, 1)[0].numpy()
        here, _, terminated, truncated, _ = env.step(chosen)
        if terminated or truncated:
            here, _ = env.reset()

    def scan(n: int) -> None:
        start = 0
        for i in range(1, n):
            if np.linalg.norm(led_to[i - 1] - data["observations"][i]) > 1e-6 or done[i - 1]:
                weight[start:i] = weight[start:i].mean()
                start = i

    def forward() -> None:
        with torch.no_grad():
            torch.distributions.Normal(rival.policy(obs), 1.0).log_prob(action).sum(-1).numpy()

    def draw() -> None:
        p = weight.astype(np.float64)
        chosen = np.random.choice(rows, BATCH, p=p / p.sum())  # noqa: NPY002 - this is what is measured
        (obs[chosen], action[chosen], following[chosen])

    batch = [torch.randn(BATCH, n) if n > 1 else torch.randn(BATCH) for n in (OBS, ACTION, 1, OBS, 1, 1)]
    part = min(rows, 100_000)
    return lambda: {
        "collect": size.steps * timed(step, min(size.steps, 200)),
        "refresh": timed(partial(scan, part), 1) * rows / part + timed(forward, 1),
        "draw": size.updates * timed(draw, 10),
        "update": size.updates * timed(lambda: rival.update(*batch), size.trials),
    }


def at_the_limit(rows: int, size: Cycle) -> Parts:
    """ARB's cycle if only its matrix products took time."""
    rate = matrix_rate()
    refresh = 2.0 * rows * (OBS * 256 + 256 * 256 + 256 * ACTION) / rate
    update = work(IQL.create(jax.random.key(0), OBS, ACTION)) / rate
    return {"collect": 0.0, "refresh": refresh, "draw": 0.0, "update": size.updates * update}


def timed(run: Callable[[], object], times: int) -> float:
    run()
    start = clock()
    for _ in range(times):
        run()
    return (clock() - start) / times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, nargs="+", default=[1e6, 2e6])
    options.add_argument("--cycles", type=int, default=2)
    options.add_argument("--every", type=int, nargs="*", default=[], help="also ARB with a refresh at every k-th cycle")
    options.add_argument("--quick", action="store_true", help="one short cycle over 5,000 rows")
    options.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    chosen = options.parse_args()
    if chosen.cpu:
        global clock
        clock = time.process_time
    print(cpu_model())
    torch.set_num_threads(1)
    size = Cycle(20, 4, 2) if chosen.quick else Cycle()
    for rows in (int(n) for n in ([5e3] if chosen.quick else chosen.rows)):
        data = dataset(rows)
        turns = (1 if chosen.quick else chosen.cycles) + 1  # the first compiles and does not count
        variants = {
            "the release's way": release(data, size),
            "naive": ours(data, Uniform(), turns, size),
            "ARB": ours(data, ARB(0.5), turns, size),
            "ARB auto": ours(data, ARB("auto"), turns, size),
            **{f"ARB auto, every {k}": ours(data, ARB("auto"), turns, size, k) for k in chosen.every},
            "ARB's matrix products": partial(at_the_limit, rows, size),
        }
        seen = [{name: run() for name, run in variants.items()} for _ in range(turns)][1:]
        found = {
            name: {part: float(np.median([turn[name][part] for turn in seen])) for part in seen[0][name]}
            for name in variants
        }
        for name in variants:  # which is not the same in every cycle
            found[name]["refresh"] = float(np.mean([turn[name]["refresh"] for turn in seen]))
        naive, slow = sum(found["naive"].values()), sum(found["the release's way"].values())
        lines = []
        for name, parts in found.items():
            total = sum(parts.values())
            cells = [f"{seconds:.2f}" for seconds in (*parts.values(), total)]
            lines.append([f"{rows:.0e}", name, *cells, f"{slow / total:.1f}", f"{total / naive - 1:+.0%}"])
        header = ["rows", "seconds per cycle", *found["naive"], "in all", "faster than the release", "above naive"]
        print(table(header, lines), flush=True)


if __name__ == "__main__":
    main()
