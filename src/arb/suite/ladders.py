"""Ladders: policies of rising quality for one robot, which record the datasets of the suite.

A ladder is a small `.npz` file without pickle: float16 weights of a few snapshots of one SAC run (`arb.suite.sac`), and
as JSON what made them and how good they are. `tools/ladder.py` makes it from the folder of a run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, suggest
from arb.files import sha256_of, write_npz

LADDERS = Path(__file__).parent / "policies"
FRACTIONS = {"10": 0.10, "25": 0.25, "33": 1 / 3, "50": 0.50, "75": 0.75, "100": 1.0}
"""Levels above `random`, and how far each is on the way from random actions to the best policy."""
ACTION_GRID, VALUE_GRID, WEIGHT_GRID = 2.0**-20, 2.0**-16, 2.0**-14
LARGEST_VALUE, LARGEST_WEIGHT = 2.0**9, 2.0**4
"""What the networks of ladders compute with. A sum of up to 128 products of such values and weights is a multiple
of 2^-30 below 2^20: float64 holds it exactly, in whatever order and with whatever instructions it is summed."""

Array = NDArray[Any]


def on_grid(x: Array, grid: float = ACTION_GRID) -> Array:
    """The nearest multiples of a power of two.

    >>> on_grid(np.array([0.3, -1.0]), 0.25)
    array([ 0.25, -1.  ])
    """
    return np.rint(x / grid) * grid


class Policy:
    """tanh of a Gaussian whose mean and log standard deviation are the outputs of a ReLU network.

    It takes the same actions on every processor. Matrix products are exact (`VALUE_GRID`); what remains, tanh and exp,
    may differ in the last of 53 bits, and actions are rounded to 20.
    """

    def __init__(self, layers: Iterable[Sequence[Array]]) -> None:
        layers = tuple(layers)
        largest = max(float(np.abs(part).max()) for layer in layers for part in layer)
        if largest >= LARGEST_WEIGHT or max(len(weight) for weight, _ in layers) > 128:
            raise DataError(f"a policy of a ladder has at most 128 units and weights below {LARGEST_WEIGHT:g}")
        self.layers = tuple(
            (on_grid(np.asarray(weight, np.float64), WEIGHT_GRID), on_grid(np.asarray(bias, np.float64), WEIGHT_GRID))
            for weight, bias in layers
        )

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation before tanh."""
        value = np.asarray(obs, np.float64)
        for i, (weight, bias) in enumerate(self.layers):
            value = np.clip(value, 0.0 if i else -LARGEST_VALUE, LARGEST_VALUE)
            value = on_grid(value, VALUE_GRID) @ weight + bias
        mean, log_std = np.split(value, 2, axis=-1)
        return mean, np.clip(log_std, -20.0, 2.0)

    def sample(self, obs: Array, rng: np.random.Generator) -> Array:
        """Actions in [-1, 1] for an observation or a stack of them."""
        mean, log_std = self.parameters(obs)
        return on_grid(np.tanh(mean + np.exp(log_std) * rng.standard_normal(mean.shape))).astype(np.float32)

    def mode(self, obs: Array, _: np.random.Generator | None = None) -> Array:
        """The action at the Gaussian's mean."""
        return on_grid(np.tanh(self.parameters(obs)[0])).astype(np.float32)


@dataclass(frozen=True)
class Level:
    """One policy of a ladder and what it is worth. The lowest level, `random`, has no network."""

    name: str
    steps: int
    """Of training."""
    sampled: float
    """Mean return with sampled actions, as the datasets hold them."""
    mode: float
    """Mean return with the most likely action."""
    policy: Policy | None = None


@dataclass(frozen=True)
class Ladder:
    """The levels from `random` to `100`, and what made them."""

    env: str
    levels: Mapping[str, Level]
    about: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    """Of the file."""


def read_ladder(name: str, folder: Path = LADDERS) -> Ladder:
    """A ladder that comes with the package: `hopper`, `hopper-b`, ..., `ant`."""
    known = sorted(path.stem for path in folder.glob("*.npz"))
    if name not in known:
        raise DataError(f"there is no ladder {name!r}{suggest(name, known)}; there are {', '.join(known) or 'none'}")
    path = folder / f"{name}.npz"
    with np.load(path, allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        levels = {}
        for row in about.pop("rungs"):
            count = sum(key.startswith(f"{row['name']}.weight.") for key in arrays)
            parts = ([arrays[f"{row['name']}.{part}.{i}"] for part in ("weight", "bias")] for i in range(count))
            levels[row["name"]] = Level(**row, policy=Policy(parts) if count else None)
    return Ladder(about.pop("env"), levels, about, sha256_of(path))


def write_ladder(path: Path, ladder: Ladder) -> None:
    """Write a ladder; the file appears under its name only when it is complete."""
    levels, keys = ladder.levels.values(), ("name", "steps", "sampled", "mode")
    about = {
        "env": ladder.env,
        **ladder.about,
        "rungs": [{key: getattr(level, key) for key in keys} for level in levels],
    }
    arrays: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    for level in levels:
        for i, (weight, bias) in enumerate(level.policy.layers if level.policy else ()):
            arrays[f"{level.name}.weight.{i}"] = weight.astype(np.float16)
            arrays[f"{level.name}.bias.{i}"] = bias.astype(np.float16)
    write_npz(path, arrays)
