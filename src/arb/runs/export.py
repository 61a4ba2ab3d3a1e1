"""Write an agent's networks as a policy that `arb.policy` runs with NumPy alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.agents.famo2o import Family, divisors
from arb.agents.learn import on_host
from arb.agents.nets import MLP
from arb.agents.pex import Pair
from arb.agents.policies import Categorical, Gaussian, TanhGaussian
from arb.envs.rollout import ActionMap
from arb.errors import DataError
from arb.files import write_npz
from arb.policy import FILE, FORMAT
from arb.runs.shaping import Shaping

Arrays = dict[str, NDArray[Any]]
Numbers = dict[str, float]
Parts = tuple[str, dict[str, MLP], Arrays, Numbers]
"""Kind of policy, its networks, its other arrays, its constants."""


def export_policy(actor: Any, shaping: Shaping, actions: ActionMap, folder: str | Path) -> Path:
    """Write `policy/policy.npz` into a run's folder, whole or not at all; returns the file."""
    host = on_host(actor)
    kind, nets, arrays, numbers = _parts(host)
    arrays, numbers = dict(arrays), dict(numbers)
    for name, net in nets.items():
        numbers[f"{name}.layers"] = len(net.weights)
        for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            arrays[f"{name}.weight.{layer}"], arrays[f"{name}.bias.{layer}"] = np.asarray(weight), np.asarray(bias)
    if shaping.mean is not None and shaping.std is not None:
        arrays |= {"mean": shaping.mean, "std": shaping.std}
    if not actions.discrete:
        arrays |= {"middle": actions.middle, "half": actions.half}
    numbers["action_size"] = actions.size
    numbers["obs_size"] = _obs_size(kind, nets, numbers)
    about = {"format": FORMAT, "kind": kind, "numbers": numbers}
    path = Path(folder) / FILE
    write_npz(path, {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays})
    return path


def _parts(actor: Any) -> Parts:
    describe = _DESCRIBE.get(type(actor))
    if describe is None:
        known = ", ".join(kind.__name__ for kind in _DESCRIBE)
        raise DataError(f"a policy of type {type(actor).__name__} cannot be exported, only {known}")
    return describe(actor)


def _pair(actor: Pair) -> Parts:
    nets = {
        "old": actor.old.net,
        "new": actor.new.net,
        "critic.first": actor.q.first,
        "critic.second": actor.q.second,
    }
    deviation = np.exp(np.asarray(actor.new.bounded_log_std()))
    return "pair", nets, {"deviation": deviation}, {"sharpness": actor.sharpness, "greed": actor.greed}


def _family(actor: Family) -> Parts:
    nets = {"policy": actor.universal.net, "balance": actor.balance.net}
    numbers = {"low": actor.balance.low, "high": actor.balance.high, "code_size": actor.code_size}
    return "family", nets, {"divisors": divisors(actor.code_size)}, numbers


_DESCRIBE: dict[type, Callable[[Any], Parts]] = {
    Gaussian: lambda actor: ("tanh", {"policy": actor.net}, {}, {}),
    TanhGaussian: lambda actor: ("tanh", {"policy": actor.net}, {}, {}),
    Categorical: lambda actor: ("argmax", {"policy": actor.net}, {}, {}),
    Pair: _pair,
    Family: _family,
}


def _obs_size(kind: str, nets: dict[str, MLP], numbers: Numbers) -> int:
    first = next(iter(nets.values()))
    return int(first.weights[0].shape[0] - (numbers["code_size"] if kind == "family" else 0))
