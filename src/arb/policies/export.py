"""A policy in a file: plain arrays, and as JSON how they make up an actor of `arb.policies.actors`.

Nothing in the file is executed when it is read. The classes are those of a table here; a file only picks among them.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError
from arb.files import write_npz
from arb.policies.actors import Balance, Categorical, Gaussian, PEXPolicy, PolicyFamily, TanhGaussian
from arb.policies.networks import MLP, Ensemble

Which = Literal["last", "best", "pretrained"]
FOLDER = "policy"
"""Where a run keeps its policies."""
POLICIES: Mapping[Which, str] = {"last": "policy.npz", "best": "best.npz", "pretrained": "pretrained.npz"}
FORMAT = 3
LARGEST = 2**30
"""Bytes of arrays beyond which a file is not a policy: the largest here, PEX on AntMaze, has about two million."""
_DAMAGED = "is damaged or not a policy: copy it again, or remove DONE from its run's folder and rerun `arb run`"

Arrays = NDArray[Any]
Actor = Gaussian | TanhGaussian | Categorical | PEXPolicy | PolicyFamily
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in (MLP, Ensemble, Balance, *get_args(Actor))}
"""By the names in files."""
_SCALES = ("mean", "std", "middle", "half", "start")


@dataclass(frozen=True, repr=False)
class Policy:
    """A policy as it is evaluated. Calling it is all most people need: `action = policy(obs)`."""

    actor: Actor
    obs_size: int
    """How many numbers an observation has."""
    arrays: Mapping[str, Arrays]
    """`mean` and `std` of observations, `middle`, `half` width of actions, `start` of discrete ones (optional)."""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    """Used by a stochastic policy (PEX) that is called without a generator."""

    def __call__(self, obs: ArrayLike, rng: np.random.Generator | None = None) -> Arrays:
        """The environment's action for its raw observation, or for a batch of them along leading axes."""
        action = self.mode(obs, rng)
        if self.discrete:
            return action + self.arrays["start"] if "start" in self.arrays else action
        return np.asarray(self.arrays["middle"] + self.arrays["half"] * action)

    def mode(self, obs: ArrayLike, rng: np.random.Generator | None = None) -> Arrays:
        """The evaluation action as the agent sees it: in [−1, 1], or a number."""
        action: Arrays = self.actor.mode(self._normalised(obs), self.rng if rng is None else rng)
        return action

    @property
    def discrete(self) -> bool:
        return isinstance(self.actor, Categorical)

    def __repr__(self) -> str:
        actions = "a discrete action" if self.discrete else f"{len(self.arrays['half'])} numbers"
        return f"<Policy {type(self.actor).__name__}: {self.obs_size} numbers -> {actions}>"

    def _normalised(self, obs: ArrayLike) -> Arrays:
        raw = np.asarray(obs, np.float32)
        if raw.ndim == 0 or raw.shape[-1] != self.obs_size:
            raise DataError(f"this policy takes observations of {self.obs_size} numbers, not of shape {raw.shape}")
        if not np.isfinite(raw).all():
            raise DataError("the observation has a value that is not finite, so no action can be computed from it")
        if "mean" not in self.arrays:
            return raw
        normalised: Arrays = (raw - self.arrays["mean"]) / self.arrays["std"]
        return normalised


# ---- writing ---------------------------------------------------------------------------------------------------------
def export_policy(path: str | Path, actor: Any, scaling: Any, actions: Any) -> Path:
    """Write a policy to a file, whole or not at all; returns the file.

    Args:
        path: the file, an `.npz`.
        actor: the networks that choose actions, `agent.actor`.
        scaling: has the `mean` and `std` of observations; None where they are not standardised.
        actions: the `middle` and `half` width of actions, as `arb.envs.rollout.ActionMap` has them.
    """
    if type(actor) not in get_args(Actor):
        known = ", ".join(kind.__name__ for kind in get_args(Actor))
        raise DataError(f"a policy of type {type(actor).__name__} cannot be exported; possible are {known}")
    arrays: dict[str, Arrays] = {}
    described = _described(actor, "", arrays)
    if scaling.mean is not None and scaling.std is not None:
        arrays |= {"mean": scaling.mean, "std": scaling.std}
    if not actions.discrete:
        arrays |= {"middle": actions.middle, "half": actions.half}
    elif actions.start:
        arrays |= {"start": np.array(actions.start)}
    about = {"format": FORMAT, "obs_size": _obs_size(actor), "actor": described}
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
    """The inputs of the network that reads the observation alone."""
    own = actor.old if isinstance(actor, PEXPolicy) else actor.balance if isinstance(actor, PolicyFamily) else actor
    return int(own.net.weights[0].shape[0])


# ---- reading ---------------------------------------------------------------------------------------------------------
def load_policy(place: str | Path, which: Which = "last") -> Policy:
    """A policy written by `export_policy`.

    Args:
        place: the file, a folder of policies, or the folder of a run, which has one.
        which: of a run: after the last update, at the best evaluation, or before fine-tuning.
    """
    path = _found(Path(place), which)
    try:
        arrays = _arrays(path)
        about = json.loads(arrays.pop("about").tobytes())
        version = about["format"]
    except Exception:  # a broken archive can make its parsers raise anything
        raise DataError(f"{path} {_DAMAGED}") from None
    if version != FORMAT:
        raise DataError(
            f"{path} has format {version}, this version of arb reads {FORMAT}: use the version that wrote it, or "
            "run it again in another folder"
        )
    try:
        actor = _rebuilt(about["actor"], arrays)
        policy = Policy(actor, int(about["obs_size"]), {k: arrays[k] for k in _SCALES if k in arrays})
        if not isinstance(actor, Actor) or not 0 < policy.obs_size == _obs_size(actor):
            raise ValueError
        # One call finds every array that is absent or has a shape that does not fit.
        sound = bool(np.isfinite(policy(np.zeros(policy.obs_size), np.random.default_rng(0))).all())
    except Exception:  # wrong kinds, names, shapes or numbers
        sound = False
    if not sound:
        raise DataError(f"{path} {_DAMAGED}")
    return policy


def _found(place: Path, which: Which) -> Path:
    if which not in POLICIES:
        raise DataError(f"there is no policy {which!r} in a run: choose {', '.join(POLICIES)}")
    for path in (place / FOLDER / POLICIES[which], place / POLICIES[which], place):
        if path.is_file():
            return path
    if not place.exists():
        raise DataError(f"{place}: no such file or folder; give the folder of a run")
    raise DataError(f"{place} holds no {which} policy: give the folder of a finished run, or the file itself")


def _arrays(path: Path) -> dict[str, Arrays]:
    with path.open("rb") as stream:
        if sum(part.file_size for part in zipfile.ZipFile(stream).infolist()) > LARGEST:
            raise ValueError("too large")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def _rebuilt(described: Any, arrays: Mapping[str, Arrays]) -> Any:
    """The inverse of `_described`."""
    if isinstance(described, dict):
        kind = _KINDS[described["kind"]]
        return kind(**{name: _rebuilt(value, arrays) for name, value in described.items() if name != "kind"})
    if isinstance(described, list):
        return tuple(_rebuilt(item, arrays) for item in described)
    return arrays[described] if isinstance(described, str) else described
