"""A policy in a file: plain arrays, and as JSON how they make up an actor of `arb.policies.actors`.

Nothing in the file is executed when it is read. The classes are those of a table here; a file only picks among them.
"""

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, check_choice
from arb.files import read_npz, write_npz
from arb.policies.actors import Balance, Categorical, Gaussian, OneStep, PEXPolicy, PolicyFamily, TanhGaussian
from arb.policies.networks import MLP, Ensemble

Which = Literal["last", "best", "pretrained"]
FOLDER = "policy"
"""Where a run keeps its policies."""
POLICIES: Mapping[Which, str] = {"last": "policy.npz", "best": "best.npz", "pretrained": "pretrained.npz"}
FORMAT = 5
LARGEST = 2**30
"""Bytes of arrays beyond which a file is not a policy: the largest here, PEX on AntMaze, has about two million."""
_DAMAGED = "is damaged or not a policy: copy it again, or remove DONE from its run's folder and rerun `arb run`"

Arrays = NDArray[Any]
Actor = Gaussian | TanhGaussian | Categorical | OneStep | PEXPolicy | PolicyFamily
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in (MLP, Ensemble, Balance, *get_args(Actor))}
"""By the names in files."""
_SCALES = ("mean", "std", "low", "high", "middle", "half", "start")
FAR = 1.0
"""An observation is far outside the training data if it is farther from their range than so many widths of it."""
Outside = Literal["warn", "raise", "ignore"]


@dataclass(frozen=True, repr=False)
class Policy:
    """A policy with NumPy alone: `policy(obs)` is the action for evaluation, `policy.sample(obs, rng)` explores.

    Both take the environment's raw observation, or a batch of them along leading axes, and return its action.
    """

    actor: Actor
    obs_size: int
    """How many numbers an observation has."""
    arrays: Mapping[str, Arrays]
    """All optional: `mean` and `std` of observations, the `low` and `high` end of those in the training data, `middle`
    and `half` width of actions, `start` of discrete ones."""
    parts: Any = None
    """Of dict observations the shape of each part by its name; None if observations are vectors."""
    outside: Outside | ArrayLike = "warn"
    """What an observation far outside the training data causes: see `load_policy`."""
    version: int = 0
    """The online steps of the run behind it; a `Recorder` notes it with every episode."""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    """Used by a call without a generator."""

    def __call__(self, obs: Any, rng: np.random.Generator | None = None) -> Arrays:
        """The action for evaluation: the mean, or the most likely one; PEX and FQL are random here."""
        return self._action(self.actor.mode, obs, rng)

    def sample(self, obs: Any, rng: np.random.Generator | None = None) -> Arrays:
        """A random action of the policy, as it explores in training, within the bounds."""
        return self._action(self.actor.act, obs, rng)

    def mode(self, obs: Any, rng: np.random.Generator | None = None) -> Arrays:
        """The action for evaluation as the agent sees it: in [−1, 1], or a number. Its range is not checked."""
        return np.asarray(self.actor.mode(self._normalised(self._vector(obs)), self.rng if rng is None else rng))

    @property
    def discrete(self) -> bool:
        return isinstance(self.actor, Categorical)

    @property
    def chunk(self) -> int:
        """Actions of one call. Above 1 they have an axis of their own; carry all of them out before the next call."""
        return getattr(self.actor, "chunk", 1)

    def __repr__(self) -> str:
        actions = "a discrete action" if self.discrete else f"{len(self.arrays['half'])} numbers"
        actions += f", {self.chunk} times" if self.chunk > 1 else ""
        return f"<Policy {type(self.actor).__name__}: {self.obs_size} numbers -> {actions}>"

    def _action(self, choose: Callable[..., Any], obs: Any, rng: np.random.Generator | None) -> Arrays:
        raw = self._vector(obs)
        far = ~np.isfinite(raw)
        if "low" in self.arrays:
            low, high = self.arrays["low"], self.arrays["high"]
            # Of a constant entry a hundredth, so that rounding is no alarm.
            width = FAR * np.maximum(high - low, 0.01 * np.maximum(1.0, np.abs(high)))
            far |= (raw < low - width) | (raw > high + width)
        if not isinstance(self.outside, str):  # a fallback action, also where the observation is not finite
            rows = np.asarray(far.any(-1))
            raw = np.where(rows[..., None], np.float32(0.0), raw)
        elif self.outside != "ignore" and far.any() and np.isfinite(raw).all():
            entry = int(np.flatnonzero(far.reshape(-1, self.obs_size).any(0))[0])
            message = (
                f"entry {entry} of the observation is far outside the training data, which has {low[entry]:.4g} to "
                f"{high[entry]:.4g} there; check the sensor, or give load_policy(outside=) an action to fall back on"
            )
            if self.outside == "raise":
                raise DataError(message)
            warnings.warn(message, stacklevel=3)
        action = choose(self._normalised(raw), self.rng if rng is None else rng)
        if not self.discrete:
            action = self.arrays["middle"] + self.arrays["half"] * action
        elif "start" in self.arrays:
            action = action + self.arrays["start"]
        if not isinstance(self.outside, str):
            rows = rows.reshape(rows.shape + (1,) * (action.ndim - rows.ndim))
            action = np.where(rows, self.outside, action).astype(action.dtype)
        return np.asarray(action)

    def _vector(self, obs: Any) -> Arrays:
        try:
            raw = np.asarray(_joined(obs, self.parts or {}) if isinstance(obs, Mapping) else obs, np.float32)
        except DataError:
            raise
        except (TypeError, ValueError):
            raise DataError("the observation is not numbers in one array, or in one for each part") from None
        if raw.ndim == 0 or raw.shape[-1] != self.obs_size:
            raise DataError(f"this policy takes observations of {self.obs_size} numbers, not of shape {raw.shape}")
        return raw

    def _normalised(self, raw: Arrays) -> Arrays:
        if not np.isfinite(raw).all():
            raise DataError("the observation has a value that is not finite, so no action can be computed from it")
        return np.asarray((raw - self.arrays["mean"]) / self.arrays["std"]) if "mean" in self.arrays else raw


def shapes_of(observations: Any) -> Any:
    """The shape of a row of each part of dict observations, by its name; None of an array.

    >>> shapes_of({"camera": np.zeros((9, 4, 4)), "joints": {"angle": np.zeros(9)}})
    {'camera': [4, 4], 'joints': {'angle': []}}
    """

    def shapes(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(name): shapes(part[name]) for name in sorted(part)}
        return list(np.shape(part)[1:])

    return shapes(observations) if isinstance(observations, Mapping) else None


def _joined(obs: Any, parts: Any) -> Arrays:
    """A dict observation as one vector, or a batch of them: its parts in the order of their names."""
    if isinstance(parts, Mapping):
        if not isinstance(obs, Mapping) or obs.keys() != parts.keys():
            needed = f"with the parts {', '.join(parts)}" if parts else "that are vectors"
            has = f"the parts {', '.join(map(str, obs))}" if isinstance(obs, Mapping) else type(obs).__name__
            raise DataError(f"this policy takes observations {needed}, not {has}")
        return np.concatenate([_joined(obs[name], parts[name]) for name in sorted(parts)], -1)
    part, axes = np.asarray(obs), len(parts)
    if part.shape[part.ndim - axes :] != tuple(parts) or part.ndim < axes:
        raise DataError(f"a part of the observation has shape {part.shape} where this policy takes {tuple(parts)}")
    return part.reshape(*part.shape[: part.ndim - axes], -1)


# ---- writing ---------------------------------------------------------------------------------------------------------
def export_policy(
    path: str | Path,
    actor: Any,
    scaling: Any,
    actions: Any,
    observations: Arrays | None = None,
    parts: Any = None,
    version: int = 0,
) -> Path:
    """Write a policy to a file, whole or not at all; returns the file.

    Args:
        path: the file, an `.npz`.
        actor: the networks that choose actions, `agent.actor`.
        scaling: has the `mean` and `std` of observations; it or they are None where these are not standardised.
        actions: the `middle` and `half` width of actions, as `arb.envs.rollout.ActionMap` has them.
        observations: those it was trained on, as vectors and standardised; the policy will know their range.
        parts: `shapes_of` the environment's observations, if they are dicts.
        version: a number that tells it from earlier ones.
    """
    if type(actor) not in get_args(Actor):
        known = ", ".join(kind.__name__ for kind in get_args(Actor))
        raise DataError(f"a policy of type {type(actor).__name__} cannot be exported; possible are {known}")
    arrays: dict[str, Arrays] = {}
    described = _described(actor, "", arrays)
    standardised = scaling is not None and scaling.mean is not None and scaling.std is not None
    if standardised:
        arrays |= {"mean": scaling.mean, "std": scaling.std}
    if observations is not None:
        ends = {"low": observations.min(0), "high": observations.max(0)}
        arrays |= {k: scaling.mean + scaling.std * x for k, x in ends.items()} if standardised else ends
    if not actions.discrete:
        arrays |= {"middle": actions.middle, "half": actions.half}
    elif actions.start:
        arrays |= {"start": np.array(actions.start)}
    about = {"format": FORMAT, "version": version, "obs_size": _obs_size(actor), "parts": parts, "actor": described}
    path = Path(path)
    write_npz(path, {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays})
    return path


def _described(part: Any, path: str, arrays: dict[str, Arrays]) -> Any:
    """A part of an actor as JSON; its arrays go to `arrays` under the names that stand for them."""
    if isinstance(part, tuple):
        return [_described(item, f"{path}.{i}", arrays) for i, item in enumerate(part)]
    if isinstance(part, int | float):
        return part
    if not is_dataclass(part):
        arrays[path] = np.asarray(part)
        return path
    start = f"{path}." if path else ""
    own = {f.name: _described(getattr(part, f.name), start + f.name, arrays) for f in fields(part)}
    return {"kind": type(part).__name__} | own


def _obs_size(actor: Actor) -> int:
    """The inputs of the network that reads the observation, without those for noise."""
    own = actor.old if isinstance(actor, PEXPolicy) else actor.balance if isinstance(actor, PolicyFamily) else actor
    noise = own.net.biases[-1].shape[0] if isinstance(own, OneStep) else 0
    return int(own.net.weights[0].shape[0] - noise)


# ---- reading ---------------------------------------------------------------------------------------------------------
def load_policy(place: str | Path, which: Which = "last", outside: Outside | ArrayLike = "warn") -> Policy:
    """A policy written by `export_policy`.

    Args:
        place: the file, a folder of policies, or the folder of a run, which has one.
        which: of a run: after the last update, at the best evaluation, or before fine-tuning.
        outside: for an observation far outside the training data: `"warn"`, `"raise"` a `DataError`, `"ignore"`, or an
            action of the environment to take instead, also where the observation is not finite.
    """
    path = _found(Path(place), which)
    try:
        arrays = read_npz(path, LARGEST)
        about = json.loads(arrays.pop("about").tobytes())
        version = about["format"]
    except Exception:  # wrong kinds of everything
        raise DataError(f"{path} {_DAMAGED}") from None
    if version != FORMAT:
        raise DataError(
            f"{path} has format {version}, this version of arb reads {FORMAT}: use the version that wrote it, or "
            "run it again in another folder"
        )
    try:
        actor = _rebuilt(about["actor"], arrays)
        scales = {k: arrays[k] for k in _SCALES if k in arrays}
        number = int(about["version"])
        policy = Policy(actor, int(about["obs_size"]), scales, about["parts"], outside="ignore", version=number)
        # A call finds every array of the networks that is absent or has a shape that does not fit.
        action = policy(np.zeros((2, policy.obs_size)), np.random.default_rng(0))
        sound = isinstance(actor, Actor) and 0 < policy.obs_size == _obs_size(actor) and _fits(policy, action)
    except Exception:  # wrong kinds, names, shapes or numbers
        sound = False
    if not sound:
        raise DataError(f"{path} {_DAMAGED}")
    if isinstance(outside, str):
        check_choice("outside", outside, get_args(Outside))
    elif np.shape(outside) != (shape := _shape(policy, action)) or np.asarray(outside).dtype.kind not in "iuf":
        raise DataError(f"outside is {outside!r:.60}, but an action of {path} is numbers of shape {shape}")
    return replace(policy, outside=outside)


def _shape(policy: Policy, actions: Arrays) -> tuple[int, ...]:
    """The shape of one of the actions of a call with a batch."""
    return actions.shape[2 if policy.chunk > 1 else 1 :]


def _fits(policy: Policy, action: Arrays) -> bool:
    """Whether all arrays have the shapes of observations and of actions, and finite values."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "std", "low", "high"), (policy.obs_size,))
    shapes["start"] = ()
    shapes |= dict.fromkeys(("middle", "half"), _shape(policy, action))
    sizes = policy.parts is None or _size(policy.parts) == policy.obs_size
    sound = all(array.shape == shapes[name] and np.isfinite(array).all() for name, array in policy.arrays.items())
    return sizes and sound and bool(np.isfinite(action).all())


def _size(parts: Any) -> int:
    return sum(map(_size, parts.values())) if isinstance(parts, Mapping) else math.prod(parts)


def _found(place: Path, which: Which) -> Path:
    if which not in POLICIES:
        raise DataError(f"there is no policy {which!r} in a run: choose {', '.join(POLICIES)}")
    for path in (place / FOLDER / POLICIES[which], place / POLICIES[which], place):
        if path.is_file():
            return path
    if not place.exists():
        raise DataError(f"{place}: no such file or folder; give the folder of a run")
    raise DataError(f"{place} holds no {which} policy: give the folder of a finished run, or the file itself")


def _rebuilt(described: Any, arrays: Mapping[str, Arrays]) -> Any:
    """The inverse of `_described`."""
    if isinstance(described, dict):
        kind = _KINDS[described["kind"]]
        return kind(**{name: _rebuilt(value, arrays) for name, value in described.items() if name != "kind"})
    if isinstance(described, list):
        return tuple(_rebuilt(item, arrays) for item in described)
    return arrays[described] if isinstance(described, str) else described
