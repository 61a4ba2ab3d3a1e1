"""A trained policy with NumPy alone: from an observation of the environment to an action of the environment.

`arb.runs.export` writes what this module reads: one file of plain arrays, and beside them, as JSON, which of four
kinds of policy they belong to. Nothing in the file is executed when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError

FILE = Path("policy") / "policy.npz"
"""Where a run folder holds its policy."""
FORMAT = 1
_DAMAGED = "is damaged or not a policy: copy it anew, or remove DONE from its run's folder and `arb run` rewrites it"

Arrays = NDArray[Any]


@dataclass(frozen=True)
class Policy:
    """A policy as it is evaluated. Calling it is all most people need: `action = policy(obs)`.

    `kind` decides how the networks make an action; `arrays` are their weights by name, `numbers` their constants.
    """

    kind: str
    arrays: Mapping[str, Arrays]
    numbers: Mapping[str, float]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    """Drawn from where a policy with chance (PEX) is called without a generator."""

    def __call__(self, obs: ArrayLike, rng: np.random.Generator | None = None) -> Arrays:
        """The environment's action for its raw observation, or a batch of them along leading axes.

        Vectors of float32 inside the action range, or the numbers of discrete actions.
        """
        action = self.mode(obs, rng)
        return action if self.discrete else self.arrays["middle"] + self.arrays["half"] * action

    def mode(self, obs: ArrayLike, rng: np.random.Generator | None = None) -> Arrays:
        """The evaluation action as the agent sees it: in [−1, 1], or a number."""
        return _KINDS[self.kind](self, self._shaped(obs), self.rng if rng is None else rng)

    @property
    def discrete(self) -> bool:
        """Whether an action is a number, 0, 1, ..., and not a vector."""
        return self.kind == "argmax"

    @property
    def obs_size(self) -> int:
        """How many numbers an observation has."""
        return int(self.numbers["obs_size"])

    def net(self, name: str, inputs: Arrays) -> Arrays:
        """A ReLU network with a linear last layer."""
        hidden = inputs @ self.arrays[f"{name}.weight.0"] + self.arrays[f"{name}.bias.0"]
        for layer in range(1, int(self.numbers[f"{name}.layers"])):
            hidden = np.maximum(hidden, 0) @ self.arrays[f"{name}.weight.{layer}"] + self.arrays[f"{name}.bias.{layer}"]
        return hidden

    def _shaped(self, obs: ArrayLike) -> Arrays:
        raw = np.asarray(obs, np.float32)
        if raw.ndim == 0 or raw.shape[-1] != self.obs_size:
            raise DataError(f"this policy wants observations of {self.obs_size} numbers, not of shape {raw.shape}")
        if not np.isfinite(raw).all():
            raise DataError("the observation holds a value that is not finite: an action made of it would mean nothing")
        if "mean" not in self.arrays:
            return raw
        shaped: Arrays = (raw - self.arrays["mean"]) / self.arrays["std"]
        return shaped


# ---- the kinds of policy: (policy, shaped observation, generator) to the agent's action ------------------------------


def _bounded(policy: Policy, obs: Arrays, _: np.random.Generator) -> Arrays:
    """tanh of the mean (IQL, Cal-QL): a network that also gives a deviation has it in its later outputs."""
    return np.tanh(policy.net("policy", obs)[..., : int(policy.numbers["action_size"])])


def _most_probable(policy: Policy, obs: Arrays, _: np.random.Generator) -> Arrays:
    """The action with the largest logit (IQL with discrete actions)."""
    number: Arrays = np.argmax(policy.net("policy", obs), axis=-1)
    return number


def _family_member(policy: Policy, obs: Arrays, _: np.random.Generator) -> Arrays:
    """FamO2O: one network picks a balance b, the other acts on the observation and the sinusoidal code of b."""
    low, high, size = (policy.numbers[name] for name in ("low", "high", "code_size"))
    balance = 0.5 * (np.tanh(policy.net("balance", obs)[..., 0]) + 1.0) * (high - low) + low
    angle = balance[..., None] / policy.arrays["divisors"]
    code = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(*balance.shape, int(size))
    return np.tanh(policy.net("policy", np.concatenate([obs, code], axis=-1)))


def _either(policy: Policy, obs: Arrays, rng: np.random.Generator) -> Arrays:
    """PEX: the better of an old and a new policy's action by the smaller of two critics, ε-greedy in two places.

    The generator is asked in the order in which training evaluates, so that the same generator gives the same action.
    """
    greed = policy.numbers["greed"]
    old, new = (np.tanh(policy.net(name, obs)) for name in ("old", "new"))
    sampled = rng.random(old.shape[:-1], dtype=np.float32) >= greed
    noise = policy.arrays["deviation"] * rng.standard_normal(new.shape, dtype=np.float32)
    new = np.where(sampled[..., None], np.clip(new + noise, -1.0, 1.0), new)

    def value(action: Arrays) -> Arrays:
        inputs = np.concatenate([obs, action], axis=-1)
        return np.minimum(policy.net("critic.first", inputs)[..., 0], policy.net("critic.second", inputs)[..., 0])

    p_old = 0.5 * (1.0 - np.tanh(0.5 * policy.numbers["sharpness"] * (value(new) - value(old))))
    drawn = rng.random(p_old.shape, dtype=np.float32) >= greed
    take_old = np.where(drawn, rng.random(p_old.shape, dtype=np.float32) < p_old, p_old > 0.5)
    return np.where(take_old[..., None], old, new)


_KINDS: Mapping[str, Callable[[Policy, Arrays, np.random.Generator], Arrays]] = {
    "tanh": _bounded,
    "argmax": _most_probable,
    "family": _family_member,
    "pair": _either,
}


# ---- reading ---------------------------------------------------------------------------------------------------------


def load_policy(folder: str | Path) -> Policy:
    """The policy of a run: its folder, the `policy` folder inside it, or the file itself."""
    path = _located(Path(folder))
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes())
        version = about["format"]
    except Exception:  # a broken archive can make its parsers raise anything
        raise DataError(f"{path} {_DAMAGED}") from None
    if version != FORMAT:
        raise DataError(f"{path} has format {version}, this version of arb reads {FORMAT}: use the arb that wrote it")
    try:
        policy = Policy(about["kind"], arrays, about["numbers"])
        # One call finds every array that is absent or has a shape that does not fit.
        sound = bool(np.isfinite(policy(np.zeros(policy.obs_size), np.random.default_rng(0))).all())
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise DataError(f"{path} {_DAMAGED}")
    return policy


def _located(folder: Path) -> Path:
    for path in (folder / FILE, folder / FILE.name, folder):
        if path.is_file():
            return path
    if not folder.exists():
        raise DataError(f"{folder}: no such folder; give the folder of a run")
    where = "its run is not finished: the same `arb run` continues it" if (folder / "config.json").exists() else ""
    raise DataError(f"{folder} holds no policy ({where or f'a run folder has one in {FILE}'})")
