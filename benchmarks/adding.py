"""What one step costs on its way into a buffer: this library's against the buffers people have.

    python benchmarks/adding.py            # about half a minute
    python benchmarks/adding.py --quick    # a few seconds, for a look

One environment's steps, then those of 16 at once, of Hopper's size (11 numbers observed, 3 done), through `add` and
`add_batch`, the adapters, and Stable-Baselines3, TorchRL, cpprb and bare arrays in CleanRL's style, where installed.
All take turns, block by block, and each ratio is the median over the blocks of the same round, so that whatever else
the machine does strikes all alike. Times are of the processor (`time.thread_time`), not of the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import arb
from arb.adapters import cleanrl
from interleaved import cpu_model, table, time_in_turns

OBS, ACTION, CAPACITY = 11, 3, 100_000
Add = Callable[[int], None]


class Space:
    """A box as a buffer asks for it."""

    low, high = -np.ones(ACTION, np.float32), np.ones(ACTION, np.float32)


def steps(n: int, block: int) -> dict[str, np.ndarray]:
    """A walk of n environments, one block long; an episode ends with the block."""
    rng = np.random.default_rng(0)
    over = np.zeros((block, n), bool)
    over[-1] = True
    return {
        "obs": rng.normal(size=(block + 1, n, OBS)).astype(np.float32),
        "action": rng.uniform(-1, 1, (block, n, ACTION)).astype(np.float32),
        "reward": rng.normal(size=(block, n)).astype(np.float32),
        "over": over,
    }


def ours(n: int, s: dict[str, np.ndarray]) -> dict[str, Add]:
    """`arb.ReplayBuffer`, checks and all, and the adapter in CleanRL's shape."""
    buffer = arb.ReplayBuffer(CAPACITY, arb.ARB("auto"), action_bounds=(Space.low, Space.high), seed=0)
    rb = cleanrl.ReplayBuffer(CAPACITY, None, Space(), n_envs=n, sampler=arb.ARB("auto"), autoreset="disabled")
    none = np.zeros(n, bool)

    def add(t: int) -> None:
        buffer.add(
            s["obs"][t, 0], s["action"][t, 0], s["reward"][t, 0], s["obs"][t + 1, 0], False, bool(s["over"][t, 0])
        )

    def add_batch(t: int) -> None:
        buffer.add_batch(s["obs"][t], s["action"][t], s["reward"][t], s["obs"][t + 1], none, s["over"][t])

    def add_cleanrl(t: int) -> None:
        rb.add(s["obs"][t], s["obs"][t + 1], s["action"][t], s["reward"][t], none, {}, truncations=s["over"][t])

    first = {"arb.ReplayBuffer.add": add} if n == 1 else {"arb.ReplayBuffer.add_batch": add_batch}
    return {**first, "arb.adapters.cleanrl": add_cleanrl}


def sb3(n: int, s: dict[str, np.ndarray]) -> dict[str, Add]:
    """Stable-Baselines3's own buffer, and the adapter for it."""
    from gymnasium.spaces import Box
    from stable_baselines3.common import buffers

    from arb.adapters.sb3 import ReplayBuffer

    spaces = Box(-np.inf, np.inf, (OBS,), np.float32), Box(-1, 1, (ACTION,), np.float32)
    infos = [{} for _ in range(n)]

    def adds(buffer: buffers.ReplayBuffer) -> Add:
        def add(t: int) -> None:
            buffer.add(s["obs"][t], s["obs"][t + 1], s["action"][t], s["reward"][t], s["over"][t], infos)

        return add

    made = {"Stable-Baselines3": buffers.ReplayBuffer, "arb.adapters.sb3": ReplayBuffer}
    return {name: adds(kind(CAPACITY, *spaces, device="cpu", n_envs=n)) for name, kind in made.items()}


def torchrl(n: int, s: dict[str, np.ndarray]) -> dict[str, Add]:
    """TorchRL's buffer: `extend` for several environments, `add` for one; with its own sampler and with ours."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    from arb.adapters.torchrl import StrategySampler

    def record(t: int) -> TensorDict:
        columns = {key: torch.from_numpy(s[key][t]) for key in ("obs", "action", "reward")}
        after = {"obs": torch.from_numpy(s["obs"][t + 1]), "done": torch.from_numpy(s["over"][t])[:, None]}
        return TensorDict({**columns, "next": TensorDict(after, [n])}, [n])

    def adds(**kwargs: StrategySampler) -> Add:
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), **kwargs)
        return (lambda t: buffer.add(record(t)[0])) if n == 1 else (lambda t: buffer.extend(record(t)))

    name = "add" if n == 1 else "extend"
    return {f"TorchRL {name}": adds(), f"arb.adapters.torchrl {name}": adds(sampler=StrategySampler(seed=0))}


def cpprb(_: int, s: dict[str, np.ndarray]) -> dict[str, Add]:
    """cpprb's plain buffer."""
    from cpprb import ReplayBuffer

    env = {"obs": {"shape": OBS}, "act": {"shape": ACTION}, "rew": {}, "next_obs": {"shape": OBS}, "done": {}}
    buffer = ReplayBuffer(CAPACITY, env)
    return {
        "cpprb": lambda t: buffer.add(
            obs=s["obs"][t], act=s["action"][t], rew=s["reward"][t], next_obs=s["obs"][t + 1], done=s["over"][t]
        )
    }


def plain(n: int, s: dict[str, np.ndarray]) -> dict[str, Add]:
    """Arrays and a position, as scripts in one file have it, without any check: the least that can be done."""
    shapes = {"obs": (OBS,), "next_obs": (OBS,), "action": (ACTION,), "reward": (), "over": ()}
    columns = {name: np.zeros((CAPACITY // n, n, *shape), np.float32) for name, shape in shapes.items()}
    position = 0

    def add(t: int) -> None:
        nonlocal position
        for name in ("obs", "action", "reward", "over"):
            columns[name][position] = s[name][t]
        columns["next_obs"][position] = s["obs"][t + 1]
        position = (position + 1) % (CAPACITY // n)

    return {"arrays, no checks": add}


def measure(n: int, block: int, rounds: int) -> None:
    """One table: microseconds per step, and the ratio to Stable-Baselines3 (or to bare arrays without it)."""
    s = steps(n, block)
    adds: dict[str, Add] = {}
    for kind in (ours, plain, sb3, torchrl, cpprb):
        try:
            adds |= kind(n, s)
        except ModuleNotFoundError as missing:
            print(f"without {kind.__name__}: {missing.name} is not installed")
    blocks = {name: partial(_block, add, block) for name, add in adds.items()}
    times = {
        name: seconds / block / n * 1e6 for name, seconds in time_in_turns(blocks, rounds, time.thread_time).items()
    }
    yardstick = "Stable-Baselines3" if "Stable-Baselines3" in adds else "arrays, no checks"
    print(f"\n{n} environment{'s' * (n > 1)}, {rounds} rounds of {block} steps\n")
    rows = [
        [name, f"{np.median(taken):.2f}", f"{taken.min():.2f}", f"{np.median(taken / times[yardstick]):.2f}"]
        for name, taken in times.items()
    ]
    print(table(["buffer", "µs per step, median", "best", f"ratio to {yardstick}"], rows))


def _block(add: Add, block: int) -> None:
    for t in range(block):
        add(t)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    print(f"{cpu_model()}, NumPy {np.__version__}, arb {arb.__version__}")
    for n in (1, 16):
        measure(n, block=50 if quick else 500, rounds=3 if quick else 15)


if __name__ == "__main__":
    main()
