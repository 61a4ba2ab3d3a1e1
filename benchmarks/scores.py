"""Scores of policies without a likelihood: what each costs, and how far its samples are from those of the likelihood.

    pip install -e '.[train]'
    python benchmarks/scores.py --policy runs/NAME/policy/pretrained.npz --dataset suite:hopper-mixed
    python benchmarks/scores.py --quick

A Gaussian policy of a real run is scored in several ways: by its likelihood, by the distance to its mean, by samples,
and as the flow that leads to it, whose velocity is known. Every score refreshes the same buffer under `ARB("auto")`;
the total variation is half the sum of the absolute differences of the probabilities of all rows from those of the
likelihood. Noise is the same between two seeds of one score. Time is that of the score without the policy, per row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np

import arb


def gaussian_of_a_run(path: str, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    policy = arb.load_policy(path)
    mean = np.asarray(policy.mode(obs), np.float64)
    return mean, np.broadcast_to(np.asarray(policy.actor.bounded_log_std(), np.float64), mean.shape)


def gaussian_made_up(episodes: int, steps: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Episodes of policies that are more or less far from a linear one."""
    rng = np.random.default_rng(0)
    n = episodes * steps
    obs, weights = rng.normal(size=(n, 11)), rng.normal(size=(11, 3)) / 6
    mean = np.tanh(obs @ weights)
    far = np.repeat(rng.uniform(0.1, 0.8, episodes), steps)[:, None]
    action = np.clip(mean + far * rng.normal(size=mean.shape), -1, 1)
    ends = np.arange(1, n + 1) % steps == 0
    data = {"observations": obs, "actions": action, "rewards": np.zeros(n), "terminals": ends}
    return data, mean, np.full(mean.shape, np.log(0.2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", help="an exported Gaussian policy; without it one is made up")
    parser.add_argument("--dataset", help="what it was trained on")
    parser.add_argument("--out", help="archive to write, one line of JSON per score")
    parser.add_argument("--quick", action="store_true", help="few rows")
    args = parser.parse_args()
    if args.policy:
        dataset = arb.load_dataset(args.dataset)
        mean, log_std = gaussian_of_a_run(args.policy, dataset.observations)
    else:
        dataset, mean, log_std = gaussian_made_up(*((20, 20) if args.quick else (400, 500)))
    number = np.arange(len(mean), dtype=np.float32)[:, None]  # stands for an observation
    std = np.exp(log_std)

    def rows(obs) -> np.ndarray:
        return obs[:, 0].astype(int)

    def sample(seed: int):
        rng = np.random.default_rng(seed)
        return lambda obs: mean[rows(obs)] + std[rows(obs)] * rng.standard_normal(mean[rows(obs)].shape)

    def shared(seed: int, n: int, signs: bool = False):
        """The same n noises for all rows, as FQL's actor is scored; with `signs` every one also with the other sign."""
        noises = np.random.default_rng(seed).standard_normal((n, mean.shape[1]))
        noises = np.concatenate([noises[: n // 2], -noises[: n // 2]]) if signs else noises
        calls = itertools.cycle(noises)
        return lambda obs: mean[rows(obs)] + std[rows(obs)] * next(calls)

    def velocity(obs, x, t):
        m, s = mean[rows(obs)], std[rows(obs)]
        return m + (t * s**2 - (1 - t)) / ((1 - t) ** 2 + (t * s) ** 2) * (x - t * m)

    def refreshed(score) -> tuple[np.ndarray, float]:
        buffer = arb.ReplayBuffer(len(mean), arb.ARB("auto"), seed=0)
        plain = dataset if isinstance(dataset, dict) else dataset.to_dict()
        buffer.load_dataset({**plain, "observations": number, **(
            {"next_observations": number} if "next_observations" in plain else {}
        )})  # fmt: skip
        began = time.perf_counter()
        buffer.refresh(score)
        return buffer.sampler.probabilities(), (time.perf_counter() - began) / len(mean)

    def likelihood(obs):
        return mean[rows(obs)], log_std[rows(obs)]

    truth, _ = refreshed(arb.gaussian_score(likelihood))
    uniform = np.full(len(truth), 1 / len(truth))
    scores = {
        "gaussian, density": lambda _: arb.gaussian_score(likelihood, "density"),
        "gaussian · 1000 + 50": lambda _: lambda o, a: 1000 * arb.gaussian_score(likelihood)(o, a) + 50,
        "distance": lambda _: arb.distance_score(lambda obs: mean[rows(obs)]),
        **{f"samples, n = {n}": lambda seed, n=n: arb.sample_score(sample(seed), n) for n in (1, 8, 64)},
        **{f"samples, n = 8, width {w}": lambda s, w=w: arb.sample_score(sample(s), 8, width=w) for w in (0.05, 0.5)},
        **{f"shared samples, n = {n}": lambda s, n=n: arb.sample_score(shared(s, n), n) for n in (8, 64)},
        **{f"shared, both signs, n = {n}": lambda s, n=n: arb.sample_score(shared(s, n, True), n) for n in (8, 64)},
        **{f"flow, draws = {k}": lambda seed, k=k: arb.flow_score(velocity, k, seed=seed) for k in (2, 8)},
    }
    lines = [{"score": "uniform", "total_variation": 0.5 * float(np.abs(uniform - truth).sum())}]
    for name, make in scores.items():
        (one, cost), (two, _) = refreshed(make(0)), refreshed(make(1))
        lines.append({
            "score": name, "total_variation": 0.5 * float(np.abs(one - truth).sum()),
            "noise": 0.5 * float(np.abs(one - two).sum()), "microseconds_per_row": 1e6 * cost,
        })  # fmt: skip
    about = {"rows": len(mean), "std": float(std.mean()), "policy": bool(args.policy), "dataset": args.dataset}
    print(f"{about['rows']} rows, standard deviation {about['std']:.3f}")
    print("| score | total variation from the likelihood | between two seeds | µs per row |\n|---|---|---|---|")
    for line in lines:
        shown = [line.get(key) for key in ("total_variation", "noise", "microseconds_per_row")]
        print(f"| {line['score']} | " + " | ".join("" if x is None else f"{x:.3f}" for x in shown) + " |")
    if args.out:
        Path(args.out).write_text("".join(json.dumps(about | line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
