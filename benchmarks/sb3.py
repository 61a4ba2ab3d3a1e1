"""What ARB costs inside Stable-Baselines3: steps per second of its SAC, with our buffer and with its own.

    pip install -e '.[sb3]'
    taskset -c 0 python benchmarks/sb3.py

Both train the host's default networks (two layers of 256) on Pendulum, one update of 256 rows per step, from a buffer
that is filled with offline rows beforehand. Ours refreshes all of them every 1,000 steps. They take turns of 1,000
steps, one thread each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from stable_baselines3 import SAC

from arb import ARB
from arb.adapters.sb3 import RefreshCallback, ReplayBuffer
from interleaved import cpu_model, table, time_in_turns

EPISODE = 200


def offline(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((rows, 3), dtype=np.float32)
    return {
        "observations": obs, "next_observations": np.roll(obs, -1, axis=0),
        "actions": rng.uniform(-2, 2, (rows, 1)).astype(np.float32), "rewards": rng.standard_normal(rows),
        "terminals": np.zeros(rows, bool), "timeouts": np.arange(rows) % EPISODE == EPISODE - 1,
    }  # fmt: skip


def host_own(rows: int) -> SAC:
    """The host's buffer with the same rows, written to its arrays as it offers no other quick way."""
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=2 * rows, learning_starts=0, seed=0, device="cpu")
    past, buffer = offline(rows), model.replay_buffer
    buffer.observations[:rows, 0], buffer.next_observations[:rows, 0] = past["observations"], past["next_observations"]
    buffer.actions[:rows, 0], buffer.rewards[:rows, 0] = past["actions"] / 2.0, past["rewards"]
    buffer.dones[:rows, 0] = buffer.timeouts[:rows, 0] = past["timeouts"]
    buffer.pos = rows
    return model


def ours(rows: int) -> SAC:
    model = SAC(
        "MlpPolicy", "Pendulum-v1", buffer_size=2 * rows, learning_starts=0, seed=0, device="cpu",
        replay_buffer_class=ReplayBuffer, replay_buffer_kwargs={"sampler": ARB(0.5)},
    )  # fmt: skip
    model.replay_buffer.load_dataset(offline(rows))
    return model


def turn(model: SAC, steps: int, callback: RefreshCallback | None) -> Callable[[], object]:
    return lambda: model.learn(steps, callback=callback, reset_num_timesteps=False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5])
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    options.add_argument("--quick", action="store_true", help="1e3 rows, 20 steps, one turn")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.rows, chosen.steps, chosen.turns = [1e3], 20, 1
    print(cpu_model())
    torch.set_num_threads(1)
    for rows in (int(n) for n in chosen.rows):
        rivals = {
            "Stable-Baselines3's own, uniform": turn(host_own(rows), chosen.steps, None),
            "arb, ARB": turn(ours(rows), chosen.steps, RefreshCallback(every=1000)),
        }
        seconds = time_in_turns(rivals, chosen.turns, time.process_time if chosen.cpu else time.perf_counter)
        lines, base = [], seconds["Stable-Baselines3's own, uniform"]
        for name, times in seconds.items():
            low, middle, high = np.percentile(times / base, [25, 50, 75])
            speed = chosen.steps / np.median(times)
            lines.append([f"{rows:.0e}", name, f"{speed:.0f}", f"{middle:.3f} ({low:.3f}-{high:.3f})"])
        header = ["offline rows", "buffer", "steps per second", "time, own = 1 (quartiles of turns)"]
        print(table(header, lines), flush=True)


if __name__ == "__main__":
    main()
