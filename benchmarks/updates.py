"""Updates per second of every agent, against eager PyTorch in the usual style and against the machine's limit.

    taskset -c 0 python benchmarks/updates.py            one core; all variants interleaved, several rounds

"Eager PyTorch" is what most research code does: modules, one Adam per network, a step at a time, `.item()` for the log.
The limit is the time in which the machine's best library multiplies 256 x 256 float32 matrices for as many operations
as the update's matrix products need; nothing else that an update does is counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from arb.agents import IQL, PEX, CalQL, FamO2O, learn
from arb.buffer.batch import Batch
from rivals import TorchCalQL, TorchIQL

BATCH = 256
OBS, ACTION = 11, 3
Rate = Callable[[], float]
"""Runs some updates and returns updates per second."""


def random_batches(updates: int) -> Batch:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((updates, BATCH, *shape)).astype(np.float32)

    going = (rng.random((updates, BATCH)) > 0.01).astype(np.float32)
    return Batch(normal(OBS), np.tanh(normal(ACTION)), normal(), normal(OBS), going, normal())


# Work ----------------------------------------------------------------------------------------------------------------
def forward(rows: int, *sizes: int) -> float:
    return 2.0 * rows * sum(a * b for a, b in pairwise(sizes))


def training(rows: int, *sizes: int) -> float:
    """Forward, gradient of all weights, gradient of all inputs but the first."""
    return 3.0 * forward(rows, *sizes) - 2.0 * rows * sizes[0] * sizes[1]


def iql_work() -> float:
    q, value, policy = (OBS + ACTION, 256, 256, 1), (OBS, 256, 256, 1), (OBS, 256, 256, ACTION)
    critics = 2 * forward(BATCH, *q) + 2 * training(BATCH, *q) + forward(BATCH, *value) + training(BATCH, *value)
    return critics + training(BATCH, *policy)


def calql_work(layers: int = 3, fan: int = 31) -> float:
    hidden = (256,) * layers
    q, policy = (OBS + ACTION, *hidden, 1), (OBS, 256, 256, 256, 2 * ACTION)
    critics = 2 * training(BATCH * fan, *q) + 2 * forward(BATCH, *q)
    # The policy's loss goes through both critics to their inputs; the fan needs the policy at s and at s'.
    return critics + 2 * 2 * forward(BATCH, *q) + training(BATCH, *policy) + 2 * forward(BATCH, *policy)


def matrix_rate() -> float:
    """Operations per second of 256 x 256 products, in the fastest of three libraries."""
    a = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    t, j = torch.from_numpy(a), jnp.array(a)
    product = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: (x @ y) * 1e-2, x))
    product(j).block_until_ready()
    rates = []
    for run, count in ((lambda: [t @ t for _ in range(50)], 50), (lambda: [a @ a for _ in range(50)], 50)):
        rates.append(_best(run, count))
    rates.append(_best(lambda: product(j).block_until_ready(), 50))
    return max(rates) * 2 * 256**3


def _best(run: Callable[[], Any], count: int, trials: int = 5) -> float:
    times = []
    for _ in range(trials):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return count / min(times)


# Variants ------------------------------------------------------------------------------------------------------------
def ours(agent: Any, updates: int, unroll: int) -> Rate:
    batches, state = random_batches(updates), {"agent": agent}

    def run() -> float:
        start = time.perf_counter()
        state["agent"], _ = learn(state["agent"], batches, jax.random.key(0), unroll)
        return updates / (time.perf_counter() - start)

    run()  # compile
    return run


def eager(rival: Any, updates: int) -> Rate:
    batches = [torch.from_numpy(c) for c in random_batches(updates)]

    def run() -> float:
        start = time.perf_counter()
        for i in range(updates):
            rival.update(*(c[i] for c in batches))
        return updates / (time.perf_counter() - start)

    run()
    return run


def main(rounds: int, scale: float) -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    some, few = max(int(100 * scale), 4), max(int(4 * scale), 2)
    make = partial(jax.random.key, 0)
    groups: dict[str, tuple[float, dict[str, Rate]]] = {
        "IQL": (iql_work(), {
            "eager PyTorch IQL": eager(TorchIQL(OBS, ACTION), some),
            "IQL": ours(IQL.create(make(), OBS, ACTION), some, 4),
            "PEX, offline": ours(PEX.create(make(), OBS, ACTION), some, 4),
            "PEX, online": ours(PEX.create(make(), OBS, ACTION).begin_online(), some, 4),
            "FamO2O, online": ours(FamO2O.create(make(), OBS, ACTION).begin_online(), some, 4),
        }),
        "Cal-QL": (calql_work(), {
            "eager PyTorch Cal-QL": eager(TorchCalQL(OBS, ACTION), few),
            "Cal-QL": ours(CalQL.create(make(), OBS, ACTION), few, 1),
        }),
    }  # fmt: skip
    rates: dict[str, list[float]] = {name: [] for _, group in groups.values() for name in group}
    limits = []
    for _ in range(rounds):
        limits.append(matrix_rate())
        for _, group in groups.values():
            for name, run in group.items():
                rates[name].append(run())
    print(
        f"{len(os.sched_getaffinity(0))} core(s), {rounds} interleaved rounds, batch {BATCH}, {OBS}/{ACTION} dimensions"
    )
    print(f"matrix products: {np.median(limits) / 1e9:.0f} GFLOP/s (median of the rounds' best library)")
    print("| variant | updates/s, median (best) | against eager, median of rounds | best/best | share of the limit |")
    print("|---|---|---|---|---|")
    for title, (work, group) in groups.items():
        base = np.array(rates[next(iter(group))])
        for name in group:
            r = np.array(rates[name])
            share = f"{np.median(r * work / np.array(limits)):.0%}" if title in name else "-"
            print(
                f"| {name} | {np.median(r):.1f} ({r.max():.1f}) | {np.median(r / base):.2f} "
                f"({np.min(r / base):.2f}-{np.max(r / base):.2f}) | {r.max() / base.max():.2f} | {share} |"
            )
        limit = np.array(limits) / work
        print(
            f"| limit of {title}, {work / 1e9:.3f} GFLOP | {np.median(limit):.1f} | {np.median(limit / base):.2f} "
            "| | 100% |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="updates per round, relative to 100 (IQL) and 4 (Cal-QL)"
    )
    given = parser.parse_args()
    main(given.rounds, given.scale)
