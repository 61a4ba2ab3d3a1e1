"""Reference numbers, random batches and networks small enough to compile quickly."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.policies.networks import MLP, Ensemble
from arb.replay.storage import Batch

HERE = Path(__file__).parent
Arrays = Mapping[str, Any]


@pytest.fixture(scope="session")
def extract() -> Callable[[str], Arrays]:
    """Small extracts of the reference numbers, kept with the tests."""
    return lambda name: dict(np.load(HERE / "golden" / f"{name}.npz"))


@pytest.fixture(scope="session")
def complete() -> Callable[[str], Arrays]:
    """The complete reference numbers: in $ARB_GOLDEN, or in shared/golden beside the checkout."""

    def read(name: str) -> Arrays:
        folder = Path(os.environ.get("ARB_GOLDEN", HERE.parents[2] / "shared" / "golden"))
        if not (folder / f"{name}.npz").is_file():
            pytest.skip(f"needs the complete reference numbers: set ARB_GOLDEN to the folder that holds {name}.npz")
        return dict(np.load(folder / f"{name}.npz"))

    return read


def network(arrays: Arrays, name: str) -> MLP:
    depth = sum(key.startswith(f"{name}.w") for key in arrays)
    weights, biases = (tuple(jnp.array(arrays[f"{name}.{x}{i}"]) for i in range(depth)) for x in "wb")
    return MLP(weights, biases)


def twin(arrays: Arrays, first: str, second: str) -> Ensemble:
    return Ensemble((network(arrays, first), network(arrays, second)))


def random_batches(*leading: int, obs_dim: int = 4, action_dim: int = 2, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((*leading, *shape)).astype(np.float32)

    ends = (rng.random(leading) > 0.2).astype(np.float32)
    return Batch(normal(obs_dim), np.tanh(normal(action_dim)), normal(), normal(obs_dim), ends, normal())


@jax.jit
def updated(agent: Any, batch: Batch, key: Any = None) -> tuple[Any, dict[str, Any]]:
    """One update, compiled: a thousand small operations one by one would take longer."""
    return agent.update(batch, key)


@pytest.fixture
def batches() -> Callable[..., Batch]:
    return random_batches
