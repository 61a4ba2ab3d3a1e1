"""How long a million rows take to load, and how much memory at most.

    python benchmarks/load_million.py
    python benchmarks/load_million.py --quick          20,000 rows

Writes a file like D4RL's walker2d sets (17 observations, 6 actions, next observations, gzip) to a temporary folder and
loads it in a process of its own, so that the peak is that of loading alone. The promise: a few seconds, and no more
than twice the size of the columns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

OBS, ACTIONS, HORIZON = 17, 6, 1000

LOAD = """
import json, pathlib, sys, time
import h5py, numpy
import arb.data, arb.data.hdf5
# getrusage would remember the size of the process that started this one
lines = lambda: pathlib.Path("/proc/self/status").read_text().splitlines()
peak = lambda: next(int(line.split()[1]) * 1024 for line in lines() if line.startswith("VmHWM"))
before, start = peak(), time.perf_counter()
columns = arb.data.load(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, peak() - before, len(set(columns["episode_ids"].tolist()))]))
"""


def write(path: Path, dtype: str, rows: int) -> int:
    """A file of whole episodes; returns the bytes of its columns as they are kept in memory."""
    rng = np.random.default_rng(0)
    walk = rng.normal(size=(rows + 1, OBS)).astype(dtype)
    ends = np.arange(1, rows + 1) % HORIZON == 0
    after = walk[1:].copy()
    after[ends] += 1  # where the next row is a reset
    columns = {
        "observations": walk[:-1],
        "next_observations": after,
        "actions": rng.uniform(-1, 1, (rows, ACTIONS)).astype(dtype),
        "rewards": rng.normal(size=rows).astype(dtype),
        "terminals": np.zeros(rows, bool),
        "timeouts": ends,
    }
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip", compression_opts=1)
    return sum(column.size * (4 if column.dtype.kind == "f" else 1) for column in columns.values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="20,000 rows instead of a million")
    rows = 20_000 if options.parse_args().quick else 1_000_000
    for dtype in ("float32", "float64"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "million.hdf5"
            raw = write(path, dtype, rows)
            result = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)
            seconds, peak, episodes = json.loads(result.stdout)
            print(
                f"{rows:,} rows of {dtype} on disk ({path.stat().st_size / 1e6:.0f} MB): {seconds:.1f} s, {episodes:,} "
                f"episodes, peak {peak / 1e6:.0f} MB = {peak / raw:.2f} x the {raw / 1e6:.0f} MB of its columns"
            )


if __name__ == "__main__":
    main()
