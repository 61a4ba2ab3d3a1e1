"""How long a million rows take to load, and how much memory loading them and a run on them take at most.

    python benchmarks/load_million.py
    python benchmarks/load_million.py --quick          20,000 rows

Writes a file like D4RL's walker2d datasets (17 observations, 6 actions, next observations, gzip) to a temporary folder,
and loads it in a process of its own, so that the peak is that of loading alone. The promise: a few seconds, and no more
than twice the size of the columns.

Then `arb run --preset smoke` (IQL, ARB) runs on a file like D4RL's hopper datasets (62 bytes per row). The interpreter,
JAX and its compiler take most of the peak of such a run, whatever the data: a run on 3,000 rows tells how much. The
promise: the rest is less than 5 times the file, and less than 2.5 times the columns as the run holds them.
"""

from __future__ import annotations

import argparse
import json
import os
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
from arb.data.formats import read_dataset
# getrusage would remember the size of the process that started this one
lines = lambda: pathlib.Path("/proc/self/status").read_text().splitlines()
peak = lambda: next(int(line.split()[1]) * 1024 for line in lines() if line.startswith("VmHWM"))
before, start = peak(), time.perf_counter()
dataset = read_dataset(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, peak() - before, dataset.num_episodes]))
"""

RUN = """
import atexit, contextlib, io, pathlib, sys
from arb.cli import main
lines = lambda: pathlib.Path("/proc/self/status").read_text().splitlines()
peak = lambda: next(int(line.split()[1]) * 1024 for line in lines() if line.startswith("VmHWM"))
with contextlib.redirect_stdout(io.StringIO()):
    main(["run", "--task", *sys.argv[1:]])
print(peak())
"""


def write_hopper(path: Path, rows: int) -> int:
    """A file without next observations, as D4RL's first ones; returns the bytes of what a run holds of it.

    These are its columns, and four bytes each for the episode and the raw reward.
    """
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["observations"] = rng.normal(size=(rows, 11)).astype(np.float32)
        file["actions"] = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
        file["rewards"] = rng.normal(size=rows).astype(np.float32)
        file["terminals"] = np.zeros(rows, bool)
        file["timeouts"] = np.arange(1, rows + 1) % HORIZON == 0
        held = sum(file[name].size * file[name].dtype.itemsize for name in file)
    return held + 8 * rows


def peak_of_a_run(folder: Path, rows: int, *settings: str) -> tuple[int, int, int]:
    """Bytes of the file, of what a run holds of it, and of the process at its peak."""
    path = folder / f"hopper-{rows}.hdf5"
    held = write_hopper(path, rows)
    given = [str(path), "--env", "Hopper-v5", "--preset", "smoke", "--out", str(folder / f"run-{rows}"), *settings]
    # one arena: otherwise what the compiler's threads leave behind differs by more than the data takes
    surroundings = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *given], capture_output=True, text=True, check=True, env=surroundings
    )
    return path.stat().st_size, held, int(done.stdout.splitlines()[-1])


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
    quick = options.parse_args().quick
    rows = 20_000 if quick else 1_000_000
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
    short = [f"schedule.{name}=20" for name in ("pretrain", "online", "collect", "updates")]
    tiny = ["settings.hidden_dims=8,8", *short] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        *_, base = peak_of_a_run(Path(folder), 3_000, *tiny)
        size, held, peak = peak_of_a_run(Path(folder), rows, *tiny)
    print(
        f"a smoke run on {rows:,} rows in {size / 1e6:.0f} MB: peak {peak / 1e6:.0f} MB, of which {base / 1e6:.0f} MB "
        f"are there on 3,000 rows too; the rest, {(peak - base) / 1e6:.0f} MB, is {(peak - base) / size:.2f} x the "
        f"file and {(peak - base) / held:.2f} x its columns in memory ({held / 1e6:.0f} MB)"
    )


if __name__ == "__main__":
    main()
