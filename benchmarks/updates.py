"""Updates per second of every agent, against eager PyTorch in the usual style and against the machine's limit.

    taskset -c 0 python benchmarks/updates.py            one core; all variants interleaved, several rounds
    python benchmarks/updates.py --quick                 IQL alone, in seconds: does it run, not how fast

"Eager PyTorch" is what most research code does: modules, one Adam per network, a step at a time, `.item()` for the log.
The limit is the time in which the machine's best library multiplies 256 x 256 float32 matrices for as many operations
as the update's matrix products need; nothing else that an update does is counted.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.extend.core import ClosedJaxpr, Jaxpr

from arb.agents import FQL, IQL, PEX, SAC, CalQL, FamO2O, FQLConfig, learn
from arb.lab.config import configure
from arb.replay.sequences import ChunkBatch
from arb.replay.storage import Batch
from interleaved import cpu_model
from rivals import TorchCalQL, TorchFQL, TorchIQL

BATCH = 256
OBS, ACTION = 11, 3
Rate = Callable[[], float]
clock = time.perf_counter
"""Runs some updates and returns updates per second."""


def random_batches(updates: int, chunk: int = 1) -> Batch | ChunkBatch:
    """Random transitions, or chunks of them, all whole."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((updates, BATCH, *shape)).astype(np.float32)

    going = (rng.random((updates, BATCH)) > 0.01).astype(np.float32)
    if chunk == 1:
        return Batch(normal(OBS), np.tanh(normal(ACTION)), normal(), normal(OBS), going, normal())
    whole = np.ones((updates, BATCH, chunk), bool)
    return ChunkBatch(normal(OBS), np.tanh(normal(chunk, ACTION)), normal(), normal(OBS), going, normal(), whole)


# Work ----------------------------------------------------------------------------------------------------------------
def work(agent: Any) -> float:
    """Floating-point operations of the matrix products in one update."""
    batch = jax.tree.map(lambda column: column[0], random_batches(1, agent.chunk))
    return products(jax.make_jaxpr(lambda a, b, key: a.update(b, key))(agent, batch, jax.random.key(0)).jaxpr)


def products(program: Jaxpr) -> float:
    """The same for a traced program, with everything it calls."""
    total = 0.0
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            total += 2.0 * math.prod(out) * math.prod(left[axis] for axis in contracted)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        called = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr))
        total += times * sum(products(getattr(p, "jaxpr", p)) for p in called if isinstance(p, ClosedJaxpr | Jaxpr))
    return total


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
        start = clock()
        run()
        times.append(clock() - start)
    return count / min(times)


# Variants ------------------------------------------------------------------------------------------------------------
def ours(agent: Any, updates: int, unroll: int) -> Rate:
    batches, state = random_batches(updates, agent.chunk), {"agent": agent}

    def run() -> float:
        start = clock()
        state["agent"], _ = learn(state["agent"], batches, jax.random.key(0), unroll)
        return updates / (clock() - start)

    run()  # compile
    return run


def eager(rival: Any, updates: int, chunk: int = 1) -> Rate:
    batches = [torch.from_numpy(c) for c in jax.tree.leaves(random_batches(updates, chunk))]

    def run() -> float:
        start = clock()
        for i in range(updates):
            rival.update(*(c[i] for c in batches[:6]))
        return updates / (clock() - start)

    run()
    return run


class Variant(NamedTuple):
    """What is timed, beside the rival it is compared with; a rival's own work is not counted."""

    name: str
    run: Rate
    rival: str = ""
    work: float = math.nan


def variants(some: int, few: int) -> Iterator[Variant]:
    """Everything that is timed; updates per round of the quick agents, and of Cal-QL and FQL."""
    key, antmaze = jax.random.key(0), configure(task="antmaze-umaze-v2", agent="calql", preset="paper").settings
    yield Variant("eager PyTorch IQL", eager(TorchIQL(OBS, ACTION), some))
    yield Variant("eager PyTorch Cal-QL", eager(TorchCalQL(OBS, ACTION), few))
    yield Variant("eager PyTorch FQL", eager(TorchFQL(OBS, ACTION), few))
    yield Variant("eager PyTorch QC-FQL", eager(TorchFQL(OBS, ACTION, chunk=5), few, chunk=5))
    for name, agent, rival in (
        ("IQL", IQL.create(key, OBS, ACTION), "eager PyTorch IQL"),
        ("PEX, offline", PEX.create(key, OBS, ACTION), "eager PyTorch IQL"),
        ("PEX, online", PEX.create(key, OBS, ACTION).begin_online(), "eager PyTorch IQL"),
        ("FamO2O", FamO2O.create(key, OBS, ACTION), "eager PyTorch IQL"),
        ("SAC", SAC.create(key, OBS, ACTION), ""),
        ("FQL", FQL.create(key, OBS, ACTION), "eager PyTorch FQL"),
        ("QC-FQL", FQL.create(key, OBS, ACTION, FQLConfig(chunk=5)), "eager PyTorch QC-FQL"),
        ("Cal-QL", CalQL.create(key, OBS, ACTION), "eager PyTorch Cal-QL"),
        ("Cal-QL, AntMaze", CalQL.create(key, OBS, ACTION, antmaze), ""),
    ):
        updates, unroll = (few, 1) if isinstance(agent, CalQL | FQL) else (some, 4)
        flops = work(agent)  # before the agent is used up
        yield Variant(name, ours(agent, updates, unroll), rival, flops)


def quick_variants() -> Iterator[Variant]:
    """IQL and its rival, for as long as it takes to see them run."""
    yield Variant("eager PyTorch IQL", eager(TorchIQL(OBS, ACTION), 4))
    agent = IQL.create(jax.random.key(0), OBS, ACTION)
    flops = work(agent)
    yield Variant("IQL", ours(agent, 4, 1), "eager PyTorch IQL", flops)


def main(rounds: int, scale: float, quick: bool) -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    timed = list(quick_variants() if quick else variants(max(int(100 * scale), 4), max(int(4 * scale), 2)))
    rounds = min(rounds, 2) if quick else rounds
    rates: dict[str, list[float]] = {variant.name: [] for variant in timed}
    limits = []
    for _ in range(rounds):
        limits.append(matrix_rate())
        for variant in timed:
            rates[variant.name].append(variant.run())
    print(
        f"{cpu_model()}, {len(os.sched_getaffinity(0))} core(s), {rounds} interleaved rounds, "
        f"batch {BATCH}, {OBS}/{ACTION} dimensions"
    )
    print(f"matrix products: {np.median(limits) / 1e9:.0f} GFLOP/s (median of the rounds' best library)")
    print("| variant | GFLOP | updates/s | against eager (range) | share of the limit | the limit against eager |")
    print("|---|---|---|---|---|---|")
    for name, _, rival, flops in timed:
        r, limit = np.array(rates[name]), np.array(limits) / flops
        cells = [name, f"{flops / 1e9:.2f}", f"{np.median(r):.1f}", "-", f"{np.median(r / limit):.0%}", "-"]
        if rival:
            base = np.array(rates[rival])
            cells[3] = f"{np.median(r / base):.2f} ({np.min(r / base):.2f}-{np.max(r / base):.2f})"
            cells[5] = f"{np.median(limit / base):.2f}"
        print("| " + " | ".join(cell.replace("nan%", "-").replace("nan", "-") for cell in cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="updates per round, relative to 100 (IQL) and 4 (Cal-QL)"
    )
    parser.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    parser.add_argument("--quick", action="store_true", help="IQL alone, two short rounds")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else clock
    main(given.rounds, given.scale, given.quick)
