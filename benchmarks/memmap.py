"""Rows in memory-mapped files: ours against TorchRL's LazyMemmapStorage, at opening, sampling and extending.

    pip install -e . -r benchmarks/requirements.txt
    taskset -c 0 python benchmarks/memmap.py --rows 1e7 --folder /tmp/memmap

Both hold the same Hopper-sized transitions (11 observations, 3 actions) and sample them evenly, in batches of 256. The
files are written once, a part at a time, in turns. Then, in turns, a fresh process opens the files of one of them. The
system was asked to forget their pages before: the first batches are cold, those after a look at every row are warm.
TorchRL's `loads` copies the rows; it is spared that here, by `TensorDict.load_memmap`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from interleaved import cpu_model, table

BATCH, EPISODE, OBS, ACTION = 256, 500, 11, 3
COLD, WARM, STEPS = 20, 2000, 2000
NAMES = ("arb", "TorchRL")


def part(rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((rows, OBS), dtype=np.float32)
    return {
        "observations": obs, "next_observations": np.roll(obs, -1, axis=0),
        "actions": rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        "rewards": rng.standard_normal(rows, dtype=np.float32), "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % EPISODE == EPISODE - 1,
    }  # fmt: skip


def opened(name: str, folder: Path, rows: int) -> Any:
    if name == "arb":
        from arb import ReplayBuffer, Uniform

        return ReplayBuffer(rows, Uniform(), seed=0, storage=f"memmap:{folder}")
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer, TensorStorage

    if (saved := folder.with_name("TorchRL.saved") / "storage").exists():
        storage: Any = TensorStorage(TensorDict.load_memmap(saved))
    else:
        storage = LazyMemmapStorage(rows, scratch_dir=str(folder), existsok=True)
    return TensorDictReplayBuffer(storage=storage, batch_size=BATCH)


def extend(name: str, buffer: Any, data: dict[str, np.ndarray]) -> None:
    if name == "arb":
        buffer.load_dataset(data)
        return
    import torch
    from tensordict import TensorDict

    named = {("next", name[5:]) if name.startswith("next_") else name: torch.from_numpy(c) for name, c in data.items()}
    buffer.extend(TensorDict(named, batch_size=[len(data["rewards"])]))


def forget(folder: Path) -> None:
    for path in folder.parent.glob(f"{folder.name}*/**/*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def look(name: str, folder: Path, rows: int) -> dict[str, float]:
    """Open the files and sample, with cold and with warm pages."""
    opened(name, folder.with_name("nothing") / name, 10)  # imports
    forget(folder)
    start = time.perf_counter()
    buffer = opened(name, folder, rows)
    found = {"open, s": time.perf_counter() - start}

    def sample(batches: int) -> float:
        start = time.perf_counter()
        for _ in range(batches):
            buffer.sample(BATCH)
        return (time.perf_counter() - start) / batches

    found["cold, ms per batch"] = sample(COLD) * 1e3
    for path in folder.parent.glob(f"{folder.name}*/**/*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass
    sample(WARM)
    found["warm, µs per batch"] = sample(WARM) * 1e6
    if name == "arb":
        start = time.perf_counter()
        buffer.sample((WARM, BATCH))
        found["warm, in one call"] = (time.perf_counter() - start) / WARM * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("memmap"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--look", choices=NAMES)
    asked = parser.parse_args()
    rows, turns = (2000, 1) if asked.quick else (int(asked.rows), asked.turns)
    if asked.look:
        print(json.dumps(look(asked.look, asked.folder / asked.look, rows)))
        return
    shutil.rmtree(asked.folder, ignore_errors=True)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in NAMES}
    buffers = {name: opened(name, asked.folder / name, rows) for name in NAMES}
    step = min(rows, 500_000)
    for i in range(rows // step):
        data = part(step, i)
        for name, buffer in buffers.items():
            start = time.perf_counter()
            extend(name, buffer, data)
            found[name].setdefault("extend, µs per row", []).append((time.perf_counter() - start) / step * 1e6)
    buffers["TorchRL"].dumps(asked.folder / "TorchRL.saved")
    del buffers, buffer
    for _ in range(turns):
        for name in NAMES:
            command = [sys.executable, __file__, "--look", name, "--rows", str(rows), "--folder", str(asked.folder)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for measure, value in json.loads(answer.splitlines()[-1]).items():
                found[name].setdefault(measure, []).append(value)
            shutil.rmtree(asked.folder / "nothing", ignore_errors=True)
    print(f"{rows:.0e} rows, {cpu_model()}; medians (smallest to largest) of {turns} turns")
    measures = list(found["arb"])
    cells = [
        [m, *(f"{np.median(v):.3g} ({min(v):.3g} to {max(v):.3g})" if (v := found[n].get(m)) else "" for n in NAMES)]
        for m in measures
    ]
    print(table(["", *NAMES], cells))
    shutil.rmtree(asked.folder)


if __name__ == "__main__":
    main()
