"""What a refresh costs, and what saving on it does to the distribution.

    pip install -e '.[train]'
    taskset -c 0 python benchmarks/refresh.py
    taskset -c 0 python benchmarks/refresh.py --quick
    ARB_DATA=/folder/with/d4rl-like taskset -c 0 python benchmarks/refresh.py --skipping

Cost: `ReplayBuffer.refresh` with a 256-256 Gaussian policy in JAX, against the bare forward pass of the same compiled
function over the same rows in chunks of the same size. The variants take turns.

Skipping: an IQL agent is pre-trained and fine-tuned on a Hopper set of mixed quality. After every 1,000 updates the
distribution of the refresh before is compared with the new one (total variation): what a skipped refresh gets wrong.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from arb import ARB, ReplayBuffer
from arb.replay.scores import CHUNK
from interleaved import table, time_in_turns

OBS, ACTION, EPISODE = 11, 3, 1000
Score = Callable[[np.ndarray, np.ndarray], jax.Array]

SAMPLERS = {
    "refresh, λ = 0.5": lambda: ARB(0.5),
    "refresh, auto": lambda: ARB("auto", effective=0.25),
    "transitions, λ = 0.5": lambda: ARB(0.5, level="transition"),
    "transitions, auto": lambda: ARB("auto", effective=0.25, level="transition"),
}


def random_policy(seed: int = 0) -> Score:
    """A policy of the paper's size: 11-256-256-3 with tanh mean."""
    sizes = (OBS, 256, 256, ACTION)
    keys = jax.random.split(jax.random.key(seed), len(sizes) - 1)
    layers = [jax.random.normal(k, (i, o)) * (2 / i) ** 0.5 for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]

    @jax.jit
    def score(obs: jax.Array, action: jax.Array) -> jax.Array:
        x = obs
        for weight in layers[:-1]:
            x = jax.nn.relu(x @ weight)
        return jnp.mean(-0.5 * (action - jnp.tanh(x @ layers[-1])) ** 2, -1) - 0.919

    return score


def bare_forward(score: Score, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """The least that a refresh can do: the forward pass, chunk by chunk, into one array."""
    out = np.empty(len(obs), np.float32)
    for start in range(0, len(obs), CHUNK):
        first = min(start, len(obs) - CHUNK)
        out[first : first + CHUNK] = score(obs[first : first + CHUNK], action[first : first + CHUNK])
    return out


def cost(rows: int, turns: int, clock: Callable[[], float] = time.perf_counter) -> list[list[str]]:
    rng = np.random.default_rng(0)
    data = {
        "observations": rng.standard_normal((rows, OBS), dtype=np.float32),
        "actions": rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        "rewards": np.zeros(rows, np.float32),
        "terminals": np.arange(rows) % EPISODE == EPISODE - 1,
    }
    score = random_policy()
    variants: dict[str, Callable[[], object]] = {
        "bare forward": lambda: bare_forward(score, data["observations"], data["actions"])
    }
    for name, sampler in SAMPLERS.items():
        buffer = ReplayBuffer(rows, sampler(), seed=0)
        buffer.load_dataset(data)
        variants[name] = partial(buffer.refresh, score)
    seconds = time_in_turns(variants, turns, clock)
    given = seconds["refresh, λ = 0.5"]
    return [
        [
            f"{rows:.0e}",
            name,
            f"{np.median(times):.3f}",
            f"{np.median(times / seconds['bare forward']):.3f}",
            f"{np.median(times / given):.3f}",
        ]
        for name, times in seconds.items()
    ]


def skipping(path: Path, refreshes: int = 20, updates: int = 1000) -> np.ndarray:
    """Total variation between the distributions of consecutive refreshes."""
    import h5py

    from arb.agents import IQL, learn

    with h5py.File(path) as file:
        keys = ("observations", "actions", "rewards", "terminals", "timeouts")
        data = {key: file[key][()] for key in keys}
    data["observations"] -= data["observations"].mean(0)
    data["observations"] /= data["observations"].std(0) + 1e-3
    buffer = ReplayBuffer(len(data["rewards"]), ARB(0.5), seed=0)
    buffer.load_dataset(data)
    agent = IQL.create(jax.random.key(0), OBS, ACTION)
    key = partial(jax.random.fold_in, jax.random.key(1))
    for i in range(10):
        agent, _ = learn(agent, buffer.sample((updates, 256)), key(i))
    buffer.refresh(agent.score)
    found = []
    for i in range(refreshes):
        before = buffer.sampler.probabilities()
        agent, _ = learn(agent, buffer.sample((updates, 256)), key(100 + i))
        buffer.refresh(agent.score)
        found.append(0.5 * np.abs(before - buffer.sampler.probabilities()).sum())
    return np.array(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 2e6, 1e7])
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="1e5 rows alone, three turns")
    options.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    options.add_argument("--skipping", action="store_true", help="measure what a skipped refresh gets wrong")
    chosen = options.parse_args()
    if chosen.skipping:
        path = Path(os.environ.get("ARB_DATA", "../shared/data")) / "d4rl-like" / "hopper-mixed.hdf5"
        if not path.is_file():
            raise SystemExit(f"{path} is missing: set ARB_DATA to the folder that holds d4rl-like/hopper-mixed.hdf5")
        found = skipping(path)
        print(f"total variation after 1,000 updates: {found.mean():.4f} on average, at most {found.max():.4f}")
        return
    for rows in [1e5] if chosen.quick else chosen.rows:
        clock = time.process_time if chosen.cpu else time.perf_counter
        lines = cost(int(rows), 3 if chosen.quick else chosen.turns, clock)
        print(table(["rows", "what", "seconds", "times bare forward", "times λ = 0.5"], lines), flush=True)


if __name__ == "__main__":
    main()
