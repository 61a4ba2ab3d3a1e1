"""Episodes out of a policy and an environment, as columns in D4RL's layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Dataset = dict[str, Array]
Actor = Callable[[Array, np.random.Generator], Array]
"""An observation and a generator in, an action out."""
Bounds = tuple[Array, Array]
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


class Recording:
    """Columns that grow by rows, in arrays that double: a view of them costs nothing at any time."""

    def __init__(self) -> None:
        self._columns: Dataset = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, obs: Any, action: Any, reward: float, after: Any, terminated: bool, truncated: bool) -> None:
        """One step of the environment."""
        row = (obs, action, reward, after, terminated, truncated and not terminated)
        if not self._columns:
            self._columns = {name: _column(name, value) for name, value in zip(COLUMNS, row, strict=True)}
        if self._size == len(self._columns["rewards"]):
            self._columns = {name: np.concatenate([old, np.empty_like(old)]) for name, old in self._columns.items()}
        for name, value in zip(COLUMNS, row, strict=True):
            self._columns[name][self._size] = value
        self._size += 1

    def extend_from(self, path: Path) -> None:
        """Append the rows of a file that holds a recording."""
        with np.load(path, allow_pickle=False) as file:
            more = {name: file[name] for name in COLUMNS}
        self._columns = {name: np.concatenate([old, more[name]]) for name, old in self.dataset().items()} or more
        self._size = len(self._columns["rewards"])

    def dataset(self) -> Dataset:
        """The rows so far."""
        return {name: column[: self._size] for name, column in self._columns.items()}


def _column(name: str, value: Any) -> Array:
    if name in ("terminals", "timeouts"):
        return np.empty(1024, bool)
    dtype = np.asarray(value).dtype
    return np.empty((1024, *np.shape(value)), np.float32 if dtype.kind == "f" else dtype)


def flat_env(name: str) -> Any:
    """An environment by its Gymnasium id, its observations flattened to one vector."""
    import gymnasium

    from arb.envs import make

    env = make(name)
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        return gymnasium.wrappers.FlattenObservation(env)
    return env


def action_bounds(env: Any) -> Bounds:
    """Lowest and highest action of an environment with a bounded box of actions."""
    import gymnasium

    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
        raise ValueError(
            f"actions of {env.spec.id} are {space}: a policy needs a bounded box, only 'random' does without"
        )
    return space.low, space.high


def rescale(action: Array, bounds: Bounds) -> Array:
    """From [-1, 1] to the bounds; exact where they are -1 and 1."""
    low, high = bounds
    return np.asarray(np.clip((high + low) / 2 + action * ((high - low) / 2), low, high), np.float32)


def rollout(env: Any, actor: Actor, steps: int, seed: int, report: Callable[[int], None] = lambda _: None) -> Dataset:
    """Whole episodes, until there are at least `steps` rows."""
    streams = np.random.SeedSequence(seed).spawn(2)
    rng, recording = np.random.default_rng(streams[0]), Recording()
    obs, _ = env.reset(seed=int(streams[1].generate_state(1)[0]))
    over = False
    while len(recording) < steps or not over:
        action = actor(obs, rng)
        after, reward, terminated, truncated, _ = env.step(action)
        recording.add(obs, action, float(reward), after, terminated, truncated)
        over = terminated or truncated
        obs = env.reset()[0] if over else after
        if len(recording) % 1000 == 0:
            report(len(recording))
    return recording.dataset()


def random_actor(env: Any, seed: int) -> Actor:
    """Uniformly random actions, of whatever kind the environment takes."""
    env.action_space.seed(seed)
    return lambda _obs, _rng: env.action_space.sample()


def evaluate(env: Any, actor: Actor, episodes: int, seed: int) -> Array:
    """Returns of whole episodes."""
    rng, returns = np.random.default_rng(seed), np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(actor(obs, rng))
            returns[episode] += float(reward)
            over = terminated or truncated
    return returns
