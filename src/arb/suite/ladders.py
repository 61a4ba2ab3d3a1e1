"""Ladders: SAC policies of rising quality for one robot, from which the sets of the suite are recorded.

A ladder is one small `.npz` file without pickle: float16 weights of a few snapshots of one training run, and as JSON
what made them (command, commit, seed, training curve) and how good they are. `select` makes it from the folder of a
SAC run. Policies are evaluated with the weights as they are stored.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, suggest
from arb.files import read_json, sha256_of, write_npz
from arb.policies.actors import TanhGaussian
from arb.policies.networks import MLP

LADDERS = Path(__file__).parent / "policies"
FRACTIONS = {"10": 0.10, "25": 0.25, "33": 1 / 3, "50": 0.50, "75": 0.75, "100": 1.0}
"""Rungs above `random`, and how far each is on the way from random actions to the best policy."""
MIXED = {"random": 1, "10": 1, "25": 1, "50": 1, "75": 2, "100": 2}
"""A mixed set: rungs, one after the other, and their shares of the rows."""
CANDIDATES = 3
"""So many snapshots per rung are evaluated a second time, over more episodes."""

Floats = NDArray[np.float32]
Act = Callable[[Any, np.random.Generator], Any]
Evaluate = Callable[[Act, int], float]
"""A way to act and a number of episodes to the mean return."""


@dataclass(frozen=True)
class Snapshot:
    """A ReLU network whose last layer gives mean and log standard deviation of a Gaussian under a tanh."""

    layers: tuple[tuple[Floats, Floats], ...]

    @cached_property
    def actor(self) -> TanhGaussian:
        """The same as the package's other policies of this kind are."""
        weights, biases = zip(*self.layers, strict=True)
        return TanhGaussian(MLP(weights, biases), 1.0, 0.0)

    def sample(self, obs: Any, rng: np.random.Generator) -> Floats:
        """Actions in [-1, 1] for an observation or a stack of them."""
        return np.asarray(self.actor.act(np.asarray(obs, np.float32), rng))

    def mode(self, obs: Any, _: np.random.Generator | None = None) -> Floats:
        """The action at the Gaussian's mean."""
        return np.asarray(self.actor.mode(np.asarray(obs, np.float32)))

    def stored(self) -> "Snapshot":
        """As it comes back from a file: every number rounded to float16."""
        return Snapshot(tuple((_rounded(weight), _rounded(bias)) for weight, bias in self.layers))


@dataclass(frozen=True)
class Rung:
    """One policy of a ladder and what it is worth. The lowest rung, `random`, has no network."""

    name: str
    steps: int
    """Of training."""
    sampled: float
    """Mean return with sampled actions, as the sets hold them."""
    mode: float
    """Mean return with the most likely action."""
    policy: Snapshot | None = None

    def numbers(self) -> dict[str, Any]:
        """Without the network."""
        return {"name": self.name, "steps": self.steps, "sampled": self.sampled, "mode": self.mode}


@dataclass(frozen=True)
class Ladder:
    """The rungs from `random` to `100`, and what made them."""

    env: str
    rungs: Mapping[str, Rung]
    about: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    """Of the file."""


def read_ladder(robot: str, folder: Path = LADDERS) -> Ladder:
    """A ladder that comes with the package: `hopper`, `walker2d`, `halfcheetah` or `ant`."""
    known = sorted(path.stem for path in folder.glob("*.npz"))
    if robot not in known:
        near = suggest(robot, known)
        raise DataError(f"there is no ladder for {robot!r}{near}; there are {', '.join(known) or 'none'}")
    path = folder / f"{robot}.npz"
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(arrays.pop("about").tobytes())
    rungs = {row["name"]: Rung(**row, policy=_policy(arrays, row["name"])) for row in about.pop("rungs")}
    return Ladder(about.pop("env"), rungs, about, sha256_of(path))


def write_ladder(path: Path, ladder: Ladder) -> None:
    """Write a ladder; the file appears under its name only when it is complete."""
    about = {"env": ladder.env, **ladder.about, "rungs": [rung.numbers() for rung in ladder.rungs.values()]}
    arrays: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    for rung in ladder.rungs.values():
        for i, (weight, bias) in enumerate(rung.policy.layers if rung.policy else ()):
            arrays[f"{rung.name}.weight.{i}"] = weight.astype(np.float16)
            arrays[f"{rung.name}.bias.{i}"] = bias.astype(np.float16)
    write_npz(path, arrays)


def _policy(arrays: Mapping[str, NDArray[Any]], rung: str) -> Snapshot | None:
    count = sum(name.startswith(f"{rung}.weight.") for name in arrays)
    layers = ((arrays[f"{rung}.weight.{i}"], arrays[f"{rung}.bias.{i}"]) for i in range(count))
    return Snapshot(tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in layers)) if count else None


def _rounded(array: Floats) -> Floats:
    return array.astype(np.float16).astype(np.float32)


def read_policy(path: Path) -> Snapshot:
    """A policy as a SAC run keeps it: `weight_0, bias_0, weight_1, ...`."""
    with np.load(path, allow_pickle=False) as file:
        return Snapshot(tuple((file[f"weight_{i}"], file[f"bias_{i}"]) for i in range(len(file.files) // 2)))


def snapshots(folder: Path) -> dict[int, Snapshot]:
    """The policies of a SAC run's folder, by the step of training at which they were kept."""
    found = {}
    for path in sorted(folder.glob("actor-*.npz")):
        found[int(path.stem.split("-")[1])] = read_policy(path).stored()
    if not found:
        raise DataError(f"{folder} holds no policies (actor-*.npz): give the folder of a SAC run of 'arb data collect'")
    return found


def select(
    env: str,
    policies: Mapping[int, Snapshot],
    evaluate: Evaluate,
    random_return: float,
    about: Mapping[str, Any],
    episodes: tuple[int, int] = (10, 30),
) -> Ladder:
    """Choose the rungs by the return of sampled actions, because that is what the sets hold.

    Every snapshot is evaluated over a few episodes; the nearest to each rung and the best ones again over more, and
    the second evaluation decides.
    """
    few, many = episodes
    first = {step: evaluate(policy.sample, few) for step, policy in policies.items()}
    again = {step for fraction in FRACTIONS.values() for step in nearest(first, random_return, fraction)[:CANDIDATES]}
    sampled = {step: evaluate(policies[step].sample, many) for step in sorted(again)}
    rungs = {"random": Rung("random", 0, random_return, random_return)}
    for name, fraction in FRACTIONS.items():
        step = nearest(sampled, random_return, fraction)[0]
        rungs[name] = Rung(name, step, sampled[step], evaluate(policies[step].mode, many), policies[step])
    return Ladder(env, rungs, about)


def nearest(returns: Mapping[int, float], low: float, fraction: float) -> list[int]:
    """Steps by how near their return is to this fraction of the way from `low` to the best, the nearest first.

    >>> nearest({10: 0.0, 20: 40.0, 30: 100.0, 40: 60.0}, 0.0, 0.5)
    [20, 40, 10, 30]
    """
    goal = low + fraction * (max(returns.values()) - low)
    return sorted(returns, key=lambda step: abs(returns[step] - goal))


def training_of(folder: Path) -> dict[str, Any]:
    """What a SAC run says about itself: environment, seed, settings and training curve."""
    state = read_json(folder / "run.json")
    plan = state["plan"]
    curve = [[step, round(value, 1)] for step, value in state["history"]]
    return {
        **{key: plan[key] for key in ("env", "seed", "evaluate_every", "sac")},
        "steps": state["step"],
        "curve": curve,
    }


def make_ladder(
    folder: Path, out: Path, commit: str = "", episodes: tuple[int, int] = (10, 30), tell: Callable[[str], None] = print
) -> Ladder:
    """Select the rungs from the folder of a SAC run, and write them."""
    from arb.envs import make
    from arb.envs.rollout import play
    from arb.suite.recorder import random_actor

    training = training_of(folder)
    env = training.pop("env")
    seed = np.random.SeedSequence([training["seed"], 1])

    def mean(act: Act, episodes: int) -> float:
        played = play(_Acting(act), lambda: make(env), episodes, np.random.SeedSequence(seed.entropy))
        return float(np.mean(played.returns))

    world = make(env)
    act = random_actor(world)
    low = mean(lambda obs, rng: np.stack([act(row, rng) for row in obs]), 100)
    options = f"--seed {training['seed']} --sac-steps {training['steps']} --evaluate-every {training['evaluate_every']}"
    command = f"arb data collect {env} expert {options}"
    about = {"command": command, "commit": commit, "episodes": list(episodes), **training}
    ladder = select(env, snapshots(folder), mean, low, about, episodes)
    write_ladder(out, ladder)
    for rung in ladder.rungs.values():
        tell(f"{rung.name:<8}{rung.steps:>10,} steps  sampled {rung.sampled:>9.1f}  mode {rung.mode:>9.1f}")
    return ladder


@dataclass(frozen=True)
class _Acting:
    """A way to act, as `evaluate` wants it."""

    mode: Act
