"""Observations in parts as one vector, by one rule for files and environments alike.

The parts of a dict are joined in the order of their names, each flattened row by row; dicts inside dicts likewise. That
is also the order of `gymnasium.wrappers.FlattenObservation`.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


def flat_vector(obs: Any, rows: tuple[int, ...] = ()) -> NDArray[Any]:
    """A vector of one observation, or of as many as `rows` says along the leading axis.

    >>> flat_vector({"b": np.zeros((2, 2)), "a": {"y": [3.0], "x": 1.0}}).tolist()
    [1.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    """
    if isinstance(obs, Mapping):
        return np.concatenate([flat_vector(obs[name], rows) for name in sorted(obs)], -1)
    return np.asarray(obs).reshape(*rows, -1)


class Flattened(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose dict observations come as vectors."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        low, high = (flat_vector(_bounds(env.observation_space, side)) for side in ("low", "high"))
        self.observation_space = gymnasium.spaces.Box(low, high, low.shape, np.float32)

    def observation(self, observation: Any) -> Any:
        """The parts as one vector."""
        return flat_vector(observation).astype(np.float32)


def flattened(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with vectors for observations, if it gives dicts of arrays of numbers; as it is otherwise."""
    return Flattened(env) if _is_dict_of_boxes(env.observation_space) else env


def _is_dict_of_boxes(space: Any) -> bool:
    return isinstance(space, gymnasium.spaces.Dict) and all(
        isinstance(part, gymnasium.spaces.Box) or _is_dict_of_boxes(part) for part in space.spaces.values()
    )


def _bounds(space: Any, side: str) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _bounds(part, side) for name, part in space.spaces.items()}
    return np.asarray(getattr(space, side), np.float32)
