"""Select policies of rising quality from the folder of a SAC run, and write them as a ladder of the suite.

    python tools/ladder.py FOLDER src/arb/suite/policies/hopper-b.npz [--commit 49acd90] [--episodes 10 30]

Levels are chosen by the return of sampled actions, because that is what the datasets hold. Every snapshot is evaluated
over a few episodes; those nearest to each level again over more, and the second evaluation decides.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from arb.envs import make
from arb.envs.rollout import play
from arb.files import read_json
from arb.policies import load_policy
from arb.suite.ladders import FRACTIONS, Ladder, Level, Policy, write_ladder
from arb.suite.recorder import random_actor

CANDIDATES = 3
"""Snapshots per level that are evaluated a second time."""


def snapshots(folder):
    """The policies of a SAC run by the step at which they were kept, rounded to float16 as a ladder stores them."""
    found = {}
    for path in sorted(folder.glob("actor-*.npz")):
        actor = load_policy(path).actor
        # The two scalars that scale the log-deviation become part of the last layer.
        scale = np.repeat(np.float32([1.0, actor.multiplier]), len(actor.net.biases[-1]) // 2)
        shift = np.repeat(np.float32([0.0, actor.offset]), len(scale) // 2)
        *hidden, (weight, bias) = zip(actor.net.weights, actor.net.biases, strict=True)
        layers = [*hidden, (weight * scale, bias * scale + shift)]
        found[int(path.stem.split("-")[1])] = Policy([[part.astype(np.float16) for part in layer] for layer in layers])
    return found


def nearest(returns, low, fraction):
    """Steps by how near their return is to this fraction of the way from `low` to the best, the nearest first.

    >>> nearest({10: 0.0, 20: 40.0, 30: 100.0, 40: 60.0}, 0.0, 0.5)
    [20, 40, 10, 30]
    """
    goal = low + fraction * (max(returns.values()) - low)
    return sorted(returns, key=lambda step: abs(returns[step] - goal))


def select(env, policies, evaluate, low, about, episodes=(10, 30)):
    """The ladder; no snapshot is on two levels."""
    few, many = episodes
    first = {step: evaluate(policy.sample, few) for step, policy in policies.items()}
    again = {step for fraction in FRACTIONS.values() for step in nearest(first, low, fraction)[:CANDIDATES]}
    sampled = {step: evaluate(policies[step].sample, many) for step in sorted(again)}
    levels = {"random": Level("random", 0, low, low)}
    chosen = {}
    for name in sorted(FRACTIONS, key=FRACTIONS.get, reverse=True):
        chosen[name] = next(step for step in nearest(sampled, low, FRACTIONS[name]) if step not in chosen.values())
    for name, step in reversed(chosen.items()):
        levels[name] = Level(name, step, sampled[step], evaluate(policies[step].mode, many), policies[step])
    return Ladder(env, levels, about)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="of a SAC run, as 'arb data collect' makes it")
    options.add_argument("out", type=Path, help="ends in .npz")
    options.add_argument("--commit", default="", help="the version of the code that trained it")
    options.add_argument("--episodes", nargs=2, type=int, default=(10, 30), metavar=("FEW", "MANY"))
    chosen = options.parse_args()
    run = read_json(chosen.folder / "run.json")
    plan = run["plan"]

    def mean(act, episodes):
        played = play(
            SimpleNamespace(mode=act), lambda: make(plan["env"]), episodes, np.random.SeedSequence([plan["seed"], 1])
        )
        return float(np.mean(played.returns))

    act = random_actor(make(plan["env"]))
    low = mean(lambda obs, rng: np.stack([act(row, rng) for row in obs]), 100)
    about = {
        "command": f"arb data collect {plan['env']} expert --seed {plan['seed']} --sac-steps {run['step']} "
        f"--evaluate-every {plan['evaluate_every']}",
        "commit": chosen.commit,
        "episodes": list(chosen.episodes),
        **{key: plan[key] for key in ("seed", "evaluate_every", "sac")},
        "steps": run["step"],
        "curve": [[step, round(value, 1)] for step, value in run["history"]],
    }
    ladder = select(plan["env"], snapshots(chosen.folder), mean, low, about, chosen.episodes)
    write_ladder(chosen.out, ladder)
    for level in ladder.levels.values():
        print(f"{level.name:<8}{level.steps:>10,} steps  sampled {level.sampled:>9.1f}  mode {level.mode:>9.1f}")


if __name__ == "__main__":
    main()
