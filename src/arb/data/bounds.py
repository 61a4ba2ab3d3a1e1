"""The bounds of a dataset's actions: of an environment that is named, as the file says, or of the one it came from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError

Bounds = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Lowest and highest action: without a dimension for all entries, else one number for each."""


def known_bounds(attributes: Mapping[str, Any], env: str = "", origin: str = "") -> Bounds | None:
    """The first that is known, or None.

    Args:
        attributes: of the file; `action_low` and `action_high` are its bounds, `env` the environment it was made in.
        env: an environment to take the bounds of, whatever the file says; one that cannot be made is an error.
        origin: the environment of the task, where the file names none.
    """
    if env:
        try:
            return _of_space(env)
        except (ValueError, AttributeError) as problem:  # the latter from MuJoCo, where MUJOCO_GL is wrong
            raise DataError(str(problem)) from None
    if "action_low" in attributes and "action_high" in attributes:
        return _numbers(attributes["action_low"]), _numbers(attributes["action_high"])
    name = str(attributes.get("env") or origin)
    if not name or ":" in name:  # Gymnasium would import the module before the colon: not on the word of a file
        return None
    try:
        return _of_space(name)
    except Exception:  # an environment may raise anything where it does not find what it needs: then nothing is known
        return None


def _of_space(env: str) -> Bounds | None:
    import gymnasium

    from arb.envs import make

    with warnings.catch_warnings():  # that there is a newer version of the environment is no matter here
        warnings.simplefilter("ignore")
        made = make(env)
    space = made.action_space
    made.close()
    if isinstance(space, gymnasium.spaces.Discrete):
        ends = (space.start, space.start + space.n - 1)
        return np.array(ends[:1], np.float32), np.array(ends[1:], np.float32)
    if isinstance(space, gymnasium.spaces.Box):
        return space.low.reshape(-1).astype(np.float32), space.high.reshape(-1).astype(np.float32)
    return None


def _numbers(value: Any) -> NDArray[np.float32]:
    """A number or a list of them; of anything else, none."""
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        return np.empty(0, np.float32)
