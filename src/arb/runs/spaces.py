"""Does a dataset fit an environment? Its columns as the agents see them, or one line that says what does not fit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.envs.rollout import ActionMap
from arb.errors import DataError

ROUNDING = 1e-3
"""How far beyond its bounds, in half widths, a recorded action may lie for float rounding's sake."""


def refuse_other_observations(recorded: Any, env: str, space: gymnasium.Space[Any]) -> None:
    """Refuse observations that the environment does not give, or that no agent here can read."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise DataError(
            f"{env} gives observations of {space}, and the agents read flat vectors: register it wrapped in "
            "gymnasium.wrappers.FlattenObservation, and record its data the same way"
        )
    if isinstance(recorded, dict):
        raise DataError(f"the data's observations are a dict of {', '.join(recorded)}, {env} gives flat vectors")
    if recorded.shape[1:] != space.shape:
        raise DataError(
            f"the data has observations of shape {recorded.shape[1:]}, {env} gives {space.shape}: "
            "was it recorded in another environment?"
        )


def agent_actions(recorded: NDArray[Any], env: str, actions: ActionMap) -> NDArray[Any]:
    """Recorded actions as the agents see them."""
    if actions.discrete:
        return _numbers(recorded, env, actions.size)
    if recorded.shape[1:] != (actions.size,):
        raise DataError(f"the data has actions of shape {recorded.shape[1:]}, {env} takes ({actions.size},)")
    scaled = actions.to_agent(recorded)
    if np.abs(scaled).max(initial=0.0) > 1.0 + ROUNDING:
        row, column = np.unravel_index(np.abs(scaled).argmax(), scaled.shape)
        low, high = ((actions.middle + sign * actions.half)[column] for sign in (-1, 1))
        raise DataError(
            f"action {recorded[row, column]:g} in row {row} of the data is outside the bounds of {env}, "
            f"{low:g} to {high:g}: rescale the actions, or clip them if the environment did"
        )
    return scaled


def _numbers(recorded: NDArray[Any], env: str, choices: int) -> NDArray[Any]:
    numbers = recorded.reshape(len(recorded), -1)
    if numbers.shape[1] != 1 or not np.isin(numbers, np.arange(choices)).all():
        raise DataError(f"{env} has {choices} discrete actions: the data must hold one number from 0 to {choices - 1}")
    return numbers[:, 0].astype(np.int64)
