"""What is known about the environment of a dataset: bounds of actions, time limit, shape of observations."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bounds = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Lowest and highest action: without a dimension for all entries, else one number for each."""


class World(NamedTuple):
    """What is known; None for what is not."""

    name: str = ""
    bounds: Bounds | None = None
    limit: int | None = None
    """Steps after which an episode is cut off."""
    size: int | None = None
    """Numbers of an observation, flattened."""


def known_world(attributes: Mapping[str, Any], env: str = "", origin: str = "") -> World:
    """The environment of a dataset.

    Args:
        attributes: of the file; `action_low` and `action_high` are its bounds, `env` the environment it was made in.
        env: an environment to take everything of, whatever the file says; one that cannot be made is an error.
        origin: the environment of the task, where the file names none.
    """
    if env:
        return _made(env)
    name = str(attributes.get("env") or origin)
    world = World()
    if name and ":" not in name:  # Gymnasium would import the module before the colon: not on the word of a file
        try:
            world = _made(name)
        except Exception:  # an environment may raise anything where it does not find what it needs
            world = World()
    if "action_low" in attributes and "action_high" in attributes:
        world = world._replace(bounds=(_numbers(attributes["action_low"]), _numbers(attributes["action_high"])))
    return world


def _made(env: str) -> World:
    import gymnasium

    from arb.envs import flattened, make

    with warnings.catch_warnings():  # that there is a newer version of the environment is no matter here
        warnings.simplefilter("ignore")
        made = flattened(make(env))
    seen, space = made.observation_space, made.action_space
    limit = made.spec.max_episode_steps if made.spec else None
    made.close()
    size = int(np.prod(seen.shape)) if isinstance(seen, gymnasium.spaces.Box) else None
    bounds: Bounds | None = None
    if isinstance(space, gymnasium.spaces.Discrete):
        ends = (space.start, space.start + space.n - 1)
        bounds = np.array(ends[:1], np.float32), np.array(ends[1:], np.float32)
    elif isinstance(space, gymnasium.spaces.Box):
        bounds = space.low.reshape(-1).astype(np.float32), space.high.reshape(-1).astype(np.float32)
    return World(env, bounds, limit, size)


def _numbers(value: Any) -> NDArray[np.float32]:
    """A number or a list of them; of anything else, none."""
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        return np.empty(0, np.float32)
