"""One vector out of an observation with named parts, by one rule for files and environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray


def flat_vector(obs: Any, rows: bool = False) -> NDArray[Any]:
    """The parts of an observation joined in the order of their names, every part flattened.

    Args:
        obs: an array, or a dict of arrays or of further dicts.
        rows: whether the first axis counts rows, as in the columns of a file.

    >>> flat_vector({"observation": [1.0, 2.0], "desired_goal": [3.0], "achieved_goal": [4.0]}).tolist()
    [4.0, 3.0, 1.0, 2.0]
    """
    if isinstance(obs, Mapping):
        return np.concatenate([flat_vector(obs[key], rows) for key in sorted(obs)], -1)
    array = np.asarray(obs)
    return array.reshape(len(array), -1) if rows else array.reshape(-1)


class Flat(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observation is one vector."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        low, high = (_bounds(env.observation_space, end) for end in ("low", "high"))
        self.observation_space = Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The vector."""
        return flat_vector(observation).astype(np.float32)


def flat(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with its observations as one vector; unchanged where they are, or where parts are no boxes."""
    space = env.observation_space
    already = isinstance(space, Box) and len(space.shape) == 1
    return env if already or not _boxes(space) else Flat(env)


def _boxes(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, Box) or (isinstance(space, Dict) and all(_boxes(part) for part in space.values()))


def _bounds(space: Any, end: str) -> NDArray[np.float32]:
    if isinstance(space, Dict):
        return np.concatenate([_bounds(space[key], end) for key in sorted(space.spaces)])
    return np.asarray(getattr(space, end), np.float32).reshape(-1)
