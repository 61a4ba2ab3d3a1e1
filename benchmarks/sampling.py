"""What a batch costs: ARB's sampling and gathering against other people's buffers, from 1e5 to 1e7 rows.

    pip install -e . -r benchmarks/requirements.txt
    taskset -c 0 python benchmarks/sampling.py

Every rival holds the same Hopper-sized transitions (11 observations, 3 actions) and hands out batches of 256 as it
is meant to be used: the prioritised ones in proportion to the same weights, Stable-Baselines3 evenly. Each is timed
with one call per batch and with one call for all, and shown at its faster way. `gather` is the limit: NumPy copying the
same columns of rows that are already chosen.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

import numpy as np

from arb import ARB, ReplayBuffer
from arb.replay.scores import CHUNK
from interleaved import cpu_model, table, time_in_turns

BATCH, EPISODE, OBS, ACTION = 256, 500, 11, 3
Rival = Callable[[], object]


class Columns:
    """Random transitions in episodes of 500 steps, and a weight for each row as ARB would give it at λ = 0.5."""

    def __init__(self, rows: int):
        rng = np.random.default_rng(0)
        self.rows = rows
        self.obs = rng.standard_normal((rows, OBS), dtype=np.float32)
        self.next_obs = np.roll(self.obs, -1, axis=0)
        self.action = rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32)
        self.reward = rng.standard_normal(rows, dtype=np.float32)
        self.end = np.arange(rows) % EPISODE == EPISODE - 1
        self.score = np.repeat(rng.normal(-2.0, 0.5, rows // EPISODE + 1), EPISODE)[:rows].astype(np.float32)
        self.weight = np.exp((self.score - self.score.max()) / 0.5)


def filled(data: Columns) -> ReplayBuffer:
    buffer = ReplayBuffer(data.rows, ARB(0.5), seed=0)
    buffer.load_dataset({
        "observations": data.obs, "next_observations": data.next_obs, "actions": data.action,
        "rewards": data.reward, "terminals": np.zeros(data.rows, bool), "timeouts": data.end,
    })  # fmt: skip
    return buffer


def ours(data: Columns, batches: int) -> dict[str, Rival]:
    buffer = filled(data)
    place = iter(range(0, data.rows, CHUNK))

    def score(_obs: np.ndarray, _action: np.ndarray) -> np.ndarray:
        start = min(next(place), data.rows - CHUNK)
        return data.score[start : start + CHUNK]

    buffer.refresh(score)
    rows = buffer.sample_indices((batches * BATCH,))

    def one_by_one() -> None:
        for _ in range(batches):
            buffer.sample(BATCH)

    def gather() -> None:
        data.obs.take(rows, axis=0), data.next_obs.take(rows, axis=0), data.action.take(rows, axis=0)
        data.reward.take(rows), data.end.take(rows)

    return {"arb": lambda: buffer.sample((batches, BATCH)), "arb, one by one": one_by_one, "gather": gather}


def numpy_choice(data: Columns) -> Rival:
    """As the paper's release samples: the weights are normalised and summed up anew for every batch."""
    weight = data.weight.astype(np.float32)

    def batch() -> None:
        p = weight.astype(np.float64)
        rows = np.random.choice(data.rows, BATCH, p=p / p.sum())  # noqa: NPY002 - this is what is measured
        (data.obs[rows], data.next_obs[rows], data.action[rows], data.reward[rows], data.end[rows])

    return batch


def torchrl(data: Columns) -> Callable[[int], object]:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(data.rows),
        sampler=PrioritizedSampler(data.rows, alpha=1.0, beta=1.0),
        batch_size=BATCH,
        priority_key="priority",
    )
    names = ("obs", "next_obs", "action", "reward", "end")
    columns = {name: torch.from_numpy(getattr(data, name)) for name in names}
    buffer.extend(TensorDict(columns, batch_size=[data.rows]))
    buffer.update_priority(torch.arange(data.rows), torch.from_numpy(data.weight).float())
    return lambda n: buffer.sample(batch_size=n)


def cpprb(data: Columns) -> Callable[[int], object]:
    from cpprb import PrioritizedReplayBuffer

    fields = {"obs": OBS, "next_obs": OBS, "act": ACTION, "rew": 1, "done": 1}
    buffer = PrioritizedReplayBuffer(
        data.rows, {name: {"shape": width, "dtype": np.float32} for name, width in fields.items()}, alpha=1.0, eps=0.0
    )
    buffer.add(
        obs=data.obs, next_obs=data.next_obs, act=data.action, rew=data.reward, done=data.end, priorities=data.weight
    )
    return lambda n: buffer.sample(n, beta=1.0)


def stable_baselines3(data: Columns) -> Callable[[int], object]:
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer as Host

    spaces = Box(-np.inf, np.inf, (OBS,), np.float32), Box(-1, 1, (ACTION,), np.float32)
    buffer = Host(data.rows, *spaces, device="cpu", handle_timeout_termination=True)
    buffer.observations[:, 0], buffer.next_observations[:, 0] = data.obs, data.next_obs
    buffer.actions[:, 0], buffer.rewards[:, 0], buffer.dones[:, 0] = data.action, data.reward, data.end
    buffer.pos, buffer.full = 0, True
    return lambda n: buffer.sample(n)


HOSTS = {
    "TorchRL prioritized": (torchrl, ("torchrl", "tensordict")),
    "cpprb prioritized": (cpprb, ("cpprb",)),
    "Stable-Baselines3 uniform": (stable_baselines3, ("stable_baselines3",)),
}


def measure(rows: int, batches: int, turns: int, clock: Callable[[], float]) -> dict[str, np.ndarray]:
    """Microseconds per batch of 256, for each turn of each rival."""
    data = Columns(rows)
    rivals: dict[str, tuple[Rival, int]] = {name: (run, batches) for name, run in ours(data, batches).items()}
    few = min(batches, max(2, 20_000_000 // rows))
    choose = numpy_choice(data)
    rivals["numpy.random.choice"] = (lambda: [choose() for _ in range(few)], few)
    for name, (build, modules) in HOSTS.items():
        try:
            for module in modules:
                importlib.import_module(module)
            sample = build(data)
        except (ImportError, RuntimeError) as missing:  # the latter from TorchRL without its compiled trees
            print(f"{name} is left out: {str(missing).splitlines()[0]}")
            continue
        rivals[name] = (lambda sample=sample: [sample(BATCH) for _ in range(batches)], batches)
        rivals[f"{name}, one call"] = (lambda sample=sample: sample(BATCH * batches), batches)
    seconds = time_in_turns({name: run for name, (run, _) in rivals.items()}, turns, clock)
    return {name: 1e6 * seconds[name] / count for name, (_, count) in rivals.items()}


def memory(rows: int) -> str:
    """Bytes per row, weights included, against the raw columns: observation, action, reward and two flags."""
    data = Columns(rows)
    buffer = filled(data)
    buffer.refresh(lambda obs, _action: obs[:, 0])
    held = buffer.nbytes + sum(array.nbytes for array in buffer.sampler.state().values())
    raw = data.obs.nbytes + data.action.nbytes + data.reward.nbytes + 2 * rows
    return f"memory per row: {held / rows:.1f} bytes, {held / raw:.3f} times the raw columns' {raw / rows:.0f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 2e6, 1e7])
    options.add_argument("--batches", type=int, default=1000)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    options.add_argument("--quick", action="store_true", help="1e4 rows, ten batches, one turn")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.rows, chosen.batches, chosen.turns = [1e4], 10, 1
    print(cpu_model())
    lines, cost = [], {}
    for rows in (int(n) for n in chosen.rows):
        found = measure(rows, chosen.batches, chosen.turns, time.process_time if chosen.cpu else time.perf_counter)
        for name in HOSTS:
            other = found.pop(f"{name}, one call", None)
            if other is not None and np.median(other) < np.median(found[name]):
                found[name] = other
        cost[rows] = float(np.median(found["arb"]))
        for name, times in found.items():
            low, high = np.percentile(times / found["arb"], [25, 75])
            median = np.median(times)
            lines.append([f"{rows:.0e}", name, f"{median:.1f}", f"{median / cost[rows]:.2f} ({low:.2f}-{high:.2f})"])
        print(
            table(["rows", "buffer", "µs per batch of 256", "times arb (quartiles)"], lines[-len(found) :]), flush=True
        )
        print()
    print(f"arb, dearest over cheapest size: {max(cost.values()) / min(cost.values()):.2f}")
    print(memory(10_000 if chosen.quick else 1_000_000))


if __name__ == "__main__":
    main()
