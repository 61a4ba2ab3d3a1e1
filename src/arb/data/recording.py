"""Episodes out of a policy and an environment, as columns in D4RL's layout."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.envs.rollout import episode

Array = NDArray[Any]
Dataset = dict[str, Array]
Actor = Callable[[Array, np.random.Generator], Array]
"""An observation and a generator in, an action of the environment out."""
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
Tell = Callable[[int], None]


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

    def dataset(self) -> Dataset:
        """The rows so far."""
        return {name: column[: self._size] for name, column in self._columns.items()}


def _column(name: str, value: Any) -> Array:
    if name in ("terminals", "timeouts"):
        return np.empty(1024, bool)
    dtype = np.asarray(value).dtype
    return np.empty((1024, *np.shape(value)), np.float32 if dtype.kind == "f" else dtype)


def record(env: Any, actor: Actor, rows: int, seed: Iterable[int], tell: Tell = lambda _: None) -> Dataset:
    """Whole episodes until there are at least `rows` rows.

    An episode depends on its number and the seed alone: more rows begin with the same ones.
    """
    recording, number = Recording(), 0
    while len(recording) < rows:
        reset, act = np.random.SeedSequence([*seed, number]).spawn(2)
        for step in episode(env, _with(actor, np.random.default_rng(act)), int(reset.generate_state(1)[0])):
            recording.add(*step)
            if len(recording) % 1000 == 0:
                tell(min(len(recording), rows))
        number += 1
    return recording.dataset()


def _with(actor: Actor, rng: np.random.Generator) -> Callable[[Array], Array]:
    return lambda obs: actor(obs, rng)


def joined(parts: list[Dataset]) -> Dataset:
    """Several recordings one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def random_actor(env: Any) -> Actor:
    """Uniformly random actions, of whatever kind the environment takes."""
    space = env.action_space

    def act(_: Array, rng: np.random.Generator) -> Any:
        if hasattr(space, "low") and space.dtype.kind == "f" and space.is_bounded():
            return rng.uniform(space.low, space.high).astype(space.dtype)
        if hasattr(space, "n"):
            return int(space.start + rng.integers(space.n))
        space.seed(int(rng.integers(2**31)))
        return space.sample()

    return act


def versions(*packages: str) -> dict[str, str]:
    """Of installed packages."""
    found = dict.fromkeys(packages, "not installed")
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
