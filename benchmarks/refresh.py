"""What a refresh costs, and how exact a partial one is.

    pip install -e '.[train]'
    taskset -c 0 python benchmarks/refresh.py
    ARB_DATA=/folder/with/d4rl-like taskset -c 0 python benchmarks/refresh.py --exactness

Cost: `ReplayBuffer.refresh` with a 256-256 Gaussian policy in JAX, against the bare forward pass of the same compiled
function over the same rows in chunks of the same size; and a refresh with a budget of 1/16 of the rows.

Exactness: an IQL agent is pre-trained and fine-tuned on a Hopper set of mixed quality. After every 1,000 updates the
distribution of a partial refresh is compared with the exact one (total variation), next to what simpler ways would
give: the weights of the refresh before, and means of the scored rows alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from arb import OnPolicy, ReplayBuffer
from arb.buffer.onpolicyness import group_mean
from arb.buffer.scoring import CHUNK
from interleaved import table, time_in_turns

OBS, ACTION, EPISODE, SHARE = 11, 3, 500, 16
Score = Callable[[np.ndarray, np.ndarray], jax.Array]


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
    """The least that an exact refresh can do: the forward pass, chunk by chunk, into one array."""
    out = np.empty(len(obs), np.float32)
    for start in range(0, len(obs), CHUNK):
        first = min(start, len(obs) - CHUNK)
        out[first : first + CHUNK] = score(obs[first : first + CHUNK], action[first : first + CHUNK])
    return out


def cost(rows: int, turns: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    data = {
        "observations": rng.standard_normal((rows, OBS), dtype=np.float32),
        "actions": rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        "rewards": np.zeros(rows, np.float32),
        "terminals": np.arange(rows) % EPISODE == EPISODE - 1,
    }
    exact = ReplayBuffer(rows, OnPolicy(0.5), seed=0)
    some = ReplayBuffer(rows, OnPolicy(0.5, budget=rows // SHARE), seed=0)
    for buffer in (exact, some):
        buffer.load(data)
    score = random_policy()
    some.refresh(score)  # the first one is whole
    seconds = time_in_turns(
        {
            "bare forward": lambda: bare_forward(score, data["observations"], data["actions"]),
            "exact refresh": lambda: exact.refresh(score),
            f"refresh of 1/{SHARE}": lambda: some.refresh(score),
        },
        turns,
    )
    forward, whole = seconds["bare forward"], seconds["exact refresh"]
    return [
        [
            f"{rows:.0e}",
            name,
            f"{np.median(times):.3f}",
            f"{np.median(times / forward):.3f}",
            f"{np.median(whole / times):.1f}",
        ]
        for name, times in seconds.items()
    ]


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    return float(0.5 * np.abs(p - q).sum())


def exactness(path: Path, shares: list[int], refreshes: int = 20, updates: int = 1000) -> list[list[str]]:
    """Total variation to the exact distribution, mean and largest over the refreshes, per way of refreshing."""
    import h5py

    from arb.agents import IQL, learn

    with h5py.File(path) as file:
        keys = ("observations", "actions", "rewards", "terminals", "timeouts")
        data = {key: file[key][()] for key in keys}
    data["observations"] -= data["observations"].mean(0)
    data["observations"] /= data["observations"].std(0) + 1e-3
    rows = len(data["rewards"])
    exact = ReplayBuffer(rows, OnPolicy(0.5), seed=0)
    exact.load(data)
    buffers = {share: ReplayBuffer(rows, OnPolicy(0.5, budget=len(exact) // share), seed=0) for share in shares}
    for buffer in buffers.values():
        buffer.load(data)
    agent = IQL.create(jax.random.key(0), OBS, ACTION)
    key = partial(jax.random.fold_in, jax.random.key(1))
    for i in range(10):
        agent, _ = learn(agent, exact.sample((updates, 256)), key(i))
    for buffer in (exact, *buffers.values()):
        buffer.refresh(agent.score)
    found: dict[str, list[float]] = {}
    for i in range(refreshes):
        before = exact.sampler.probabilities()
        agent, _ = learn(agent, exact.sample((updates, 256)), key(100 + i))
        exact.refresh(agent.score)
        truth = exact.sampler.probabilities()
        found.setdefault("no refresh: the weights of the one before", []).append(total_variation(before, truth))
        for share, buffer in buffers.items():
            buffer.refresh(agent.score)
            ours = total_variation(buffer.sampler.probabilities(), truth)
            found.setdefault(f"refresh of 1/{share}", []).append(ours)
            plain = total_variation(plain_subsample(exact, agent.score, len(exact) // share), truth)
            found.setdefault(f"mean of the scored rows alone, 1/{share}", []).append(plain)
    return [[name, f"{np.mean(values):.4f}", f"{np.max(values):.4f}"] for name, values in found.items()]


def plain_subsample(buffer: ReplayBuffer, score: Score, n: int) -> np.ndarray:
    rows = np.random.default_rng(n).choice(len(buffer), n, replace=False)
    values = np.clip(score(buffer.storage.observations(rows)[""], buffer.storage.actions(rows)), -12.0, 7.0)
    mean = group_mean(values, buffer.ledger.run[rows], len(buffer.ledger.table["first"]))
    log_weight = np.where(np.isnan(mean), np.nanmean(mean), mean)[buffer.ledger.run[: len(buffer)]] / 0.5
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 2e6, 1e7])
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--exactness", action="store_true", help="measure exactness instead of cost")
    chosen = options.parse_args()
    if chosen.exactness:
        path = Path(os.environ.get("ARB_DATA", "../shared/data")) / "d4rl-like" / "hopper-mixed.hdf5"
        if not path.is_file():
            raise SystemExit(f"{path} is missing: set ARB_DATA to the folder that holds d4rl-like/hopper-mixed.hdf5")
        lines = exactness(path, [2, 4, 8, SHARE])
        print(table(["λ = 0.5, hopper-mixed, 1,000 updates apart", "total variation, mean", "largest of 20"], lines))
        return
    for rows in chosen.rows:
        lines = cost(int(rows), chosen.turns)
        print(table(["rows", "what", "seconds", "times bare forward", "faster than exact"], lines), flush=True)


if __name__ == "__main__":
    main()
