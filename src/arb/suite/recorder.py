"""Episodes of a policy in an environment, as a `Dataset`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.envs.rollout import ActionMap, Step, episode
from arb.replay.dataset import Dataset

Array = NDArray[Any]
Actor = Callable[[Array, np.random.Generator], Array]
"""An observation and a generator in, an action of the environment out."""
Tell = Callable[[int], None]
RECIPES: Mapping[str, Mapping[str, int]] = {
    "random": {"random": 1},
    "mixed": {"random": 1, "10": 1, "25": 1, "50": 1, "75": 2, "100": 2},
    "medium": {"33": 1},
    "medium-expert": {"33": 1, "100": 1},
    "expert": {"100": 1},
}
"""By quality: policies, one after the other, and their shares of the rows. A policy is named by how far it has come on
the way from random actions to the best one, in per cent."""


def record(env: Any, actor: Actor, rows: int, seed: Iterable[int], tell: Tell = lambda _: None) -> Dataset:
    """Whole episodes until there are at least `rows` rows.

    An episode depends on its number and the seed alone, so a longer dataset begins with the same episodes.
    """
    episodes: list[Dataset] = []
    recorded = 0
    while recorded < rows:
        reset, act = np.random.SeedSequence([*seed, len(episodes)]).spawn(2)
        rng = np.random.default_rng(act)
        steps = list(episode(env, lambda obs: actor(obs, rng), int(reset.generate_state(1)[0])))  # noqa: B023
        episodes.append(as_dataset(steps))
        recorded += len(steps)
        tell(min(recorded, rows))
    return Dataset.concatenate(episodes)


def as_dataset(steps: Sequence[Step]) -> Dataset:
    """One episode, from its steps."""
    obs, action, reward, after, ended, _ = (np.array(part) for part in zip(*steps, strict=True))
    return Dataset(obs, action, reward, ended, np.array([len(steps)]), after[-1:])


def record_recipe(
    env: Any,
    quality: str,
    policy: Callable[[str], tuple[Actor | None, str]],
    rows: int,
    seed: tuple[int, ...],
    tell: Tell = lambda _: None,
) -> Dataset:
    """The rows of every part of a recipe, one part after the other; the last episode of each is completed.

    `policy` turns the name of a policy into how it acts in [-1, 1] (None: at random) and what made it.
    """
    recipe = RECIPES[quality]
    parts, said, planned = [], [], 0
    for number, (name, share) in enumerate(recipe.items()):
        actor, made_by = policy(name)
        wanted = share * rows // sum(recipe.values())
        act = random_actor(env) if actor is None else _in_env(env, actor)
        parts.append(record(env, act, wanted, (*seed, number), lambda done: tell(planned + done)))  # noqa: B023
        said.append(f"{len(parts[-1])} rows of {made_by}")
        planned += wanted
    return replace(Dataset.concatenate(parts), provenance={"made_by": "; then ".join(said)})


def _in_env(env: Any, actor: Actor) -> Actor:
    actions = ActionMap(env.action_space)
    return lambda obs, rng: actions.to_env(actor(obs, rng))


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
    found = dict.fromkeys(packages, "not installed")
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
