"""How much memory the data of a run takes at most."""

import tracemalloc
from pathlib import Path

import numpy as np

from arb.envs import make
from arb.lab.config import configure
from arb.lab.setup import Problem

ROWS = 400_000


def test_a_run_holds_less_than_two_and_a_half_times_its_data(tmp_path: Path) -> None:
    """The promise of `benchmarks/load_million.py`, without what JAX takes."""
    rng, path = np.random.default_rng(0), tmp_path / "hopper.npz"
    columns = {
        "observations": rng.normal(size=(ROWS, 11)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        "rewards": rng.normal(size=ROWS).astype(np.float32),
        "terminals": np.zeros(ROWS, bool),
        "timeouts": np.arange(1, ROWS + 1) % 1000 == 0,
    }
    np.savez(path, **columns)
    held = sum(column.nbytes for column in columns.values()) + 8 * ROWS  # and the episode and raw reward of each row
    del columns
    config = configure(task=str(path), env="Hopper-v5", agent="iql", strategy="arb", preset="smoke")
    make("Hopper-v5").close()  # what it imports does not count
    tracemalloc.start()
    try:
        problem = Problem.of(config)
        dataset, sampler = problem.strategy()
        buffer = problem.new_buffer(sampler, len(dataset["rewards"]) + 400, "online")
        buffer.load_dataset(dataset)
        buffer.refresh(lambda obs, action: -np.square(action).sum(-1))
        buffer.sample_indices((4, 256))
        buffer.stats()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * held
