"""Episodes out of a policy and an environment, as columns in D4RL's layout."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.envs.rollout import Step, episode
from arb.replay.dataset import single_precision

Array = NDArray[Any]
Dataset = dict[str, Array]
Actor = Callable[[Array, np.random.Generator], Array]
"""An observation and a generator in, an action of the environment out."""
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
Tell = Callable[[int], None]


def record(env: Any, actor: Actor, rows: int, seed: Iterable[int], tell: Tell = lambda _: None) -> Dataset:
    """Whole episodes until there are at least `rows` rows.

    An episode depends on its number and the seed alone: more rows begin with the same ones.
    """
    episodes: list[Dataset] = []
    recorded = 0
    while recorded < rows:
        reset, act = np.random.SeedSequence([*seed, len(episodes)]).spawn(2)
        chosen = partial(lambda chance, obs: actor(obs, chance), np.random.default_rng(act))
        steps = episode(env, chosen, int(reset.generate_state(1)[0]))
        episodes.append(columns_of(list(steps)))
        before, recorded = recorded, recorded + len(episodes[-1]["rewards"])
        if recorded // 1000 > before // 1000:
            tell(min(recorded, rows))
    return joined(episodes)


def columns_of(steps: Sequence[Step]) -> Dataset:
    """Steps as columns; one that ended the task and was cut off at once has ended it."""
    obs, action, reward, after, ended, cut = (np.array(part) for part in zip(*steps, strict=True))
    row = (obs, action, reward, after, ended.astype(bool), cut.astype(bool) & ~ended.astype(bool))
    return {name: single_precision(column) for name, column in zip(COLUMNS, row, strict=True)}


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
