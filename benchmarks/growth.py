"""How the buffer's costs grow: from 1e5 to 1e7 rows, and from 10 to 1e6 trajectories.

    python benchmarks/growth.py            # several minutes, 3 GB
    python benchmarks/growth.py --quick    # a few seconds

Steps are small (2 numbers observed, 1 done), so that the buffer is measured and not the memory. A refresh is timed
without the policy: its score is a column that is already there. Times are of the processor (`time.thread_time`).
The slope is that of the logarithms: 0 for a cost that stays, 1 for one that grows as the rows (or trajectories) do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import arb
from interleaved import cpu_model, table

BATCH = 256


def timed(run: Callable[[], object], times: int = 1) -> float:
    """Seconds of the fastest of three calls that each repeat something so many times, per time."""
    found = []
    for _ in range(3):
        start = time.thread_time()
        for _ in range(times):
            run()
        found.append((time.thread_time() - start) / times)
    return min(found)


def score(obs: np.ndarray, action: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """A log-likelihood that costs nothing."""
    return obs[:, 0] - 3.0


def measure(rows: int, trajectories: int) -> dict[str, float]:
    """Every cost at one size; the buffer is full, so that each step overwrites one."""
    rng = np.random.default_rng(0)
    ends = np.zeros(rows, bool)
    ends[np.linspace(0, rows, trajectories + 1, dtype=int)[1:] - 1] = True
    dataset = {
        "observations": rng.normal(size=(rows, 2)).astype(np.float32),
        "actions": np.zeros((rows, 1), np.float32),
        "rewards": np.zeros(rows, np.float32),
        "terminals": ends,
    }

    def made(temperature: float | str = "auto") -> arb.ReplayBuffer:
        return arb.ReplayBuffer(rows, arb.ARB(temperature), seed=0, autoreset="disabled")

    start = time.thread_time()
    buffer = made()
    buffer.load_dataset(dataset)
    cost = {"load, s": time.thread_time() - start}
    cost["refresh, auto temperature, s"] = timed(lambda: buffer.refresh(score, rows_per_call=1 << 16))
    other = made(0.5)
    other.load_dataset(dataset)
    cost["refresh, fixed temperature, s"] = timed(partial(other.refresh, score, rows_per_call=1 << 16))
    cost["sample, µs per batch"] = 1e6 * timed(lambda: buffer.sample(BATCH), 200)
    cost["stats, s"] = timed(buffer.stats)
    with tempfile.TemporaryDirectory() as folder:
        start = time.thread_time()
        buffer.save(Path(folder) / "buffer.npz", since=rows)
        cost["save without the dataset, s"] = time.thread_time() - start
        other = made()
        other.load_dataset(dataset)
        start = time.thread_time()
        other.load(Path(folder) / "buffer.npz")
        cost["restore, s"] = time.thread_time() - start
    length = max(rows // trajectories, 1)
    walk = rng.normal(size=(length + 1, 2)).astype(np.float32)
    action, steps, step = np.zeros(1, np.float32), 2000, 0

    def add() -> None:
        nonlocal step
        at = step % length
        buffer.add(walk[at], action, 0.0, walk[at + 1], False, at == length - 1)
        step += 1

    cost["add, µs per step"] = 1e6 * timed(add, steps)
    held = buffer.nbytes + sum(np.asarray(array).nbytes for array in buffer.sampler.state().values())
    cost["memory, bytes per row"] = held / rows
    return cost


def report(name: str, sizes: list[int], found: list[dict[str, float]]) -> None:
    """One table: a line per cost, a column per size, and the slope."""
    lines = []
    for cost in found[0]:
        values = np.array([each[cost] for each in found])
        slope = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0]
        steepest = np.max(np.diff(np.log(np.maximum(values, 1e-9))) / np.diff(np.log(sizes)))
        lines.append([cost, *(f"{value:.3g}" for value in values), f"{slope:.2f}", f"{steepest:.2f}"])
    print(table([name, *(f"{size:.0e}" for size in sizes), "slope", "steepest"], lines) + "\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--most-rows", type=float, default=1e7)
    options = parser.parse_args()
    print(f"{cpu_model()}, NumPy {np.__version__}, arb {arb.__version__}\n")
    sizes = [n for n in ((1000, 10_000) if options.quick else (10**5, 10**6, 10**7)) if n <= options.most_rows]
    print("Trajectories of 100 steps\n")
    report("rows", sizes, [measure(n, n // 100) for n in sizes])
    rows = sizes[-1] if options.quick else min(10**6, int(options.most_rows))
    counts = [10, 100, 1000] if options.quick else [10, 1000, 10**5, 10**6]
    counts = [n for n in counts if n <= rows]
    print(f"{rows:.0e} rows\n")
    report("trajectories", counts, [measure(rows, n) for n in counts])


if __name__ == "__main__":
    main()
