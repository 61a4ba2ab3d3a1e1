"""Make D4RL-style datasets for any Gymnasium environment, without network.

`random` needs nothing. The others come from a SAC run (`arb.suite.sac`), kept in a folder, so that several sets
can be made from one run and a run that was stopped continues.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from arb.data.load import writer_for
from arb.envs.rollout import ActionMap
from arb.errors import DataError
from arb.progress import progress
from arb.suite.ladders import FRACTIONS, MIXED
from arb.suite.recorder import Dataset, joined, random_actor, record, versions

Attributes = dict[str, str | int | float]
MEDIUM = FRACTIONS["33"]
"""A medium policy has come a third of the way to the best (D4RL's definition)."""


@dataclass(frozen=True)
class Request:
    """What to collect. `sac_steps` and the folder matter only where a policy is needed."""

    env: str
    quality: str
    steps: int
    seed: int = 0
    sac_steps: int = 200_000
    evaluate_every: int = 10_000
    folder: Path = field(default=Path("sac"))
    compact: bool = False
    """Leave out `next_observations`: half the size, and the last row of every cut-off episode cannot be used."""


def collect(request: Request, out: Path, command: str = "") -> Dataset:
    """Make a dataset and write it as its suffix says; the file appears only when it is complete."""
    try:
        make = QUALITIES[request.quality]
    except KeyError:
        raise DataError(f"quality {request.quality!r} is not one of {', '.join(QUALITIES)}") from None
    if request.steps < 1:
        raise DataError(f"a dataset needs at least 1 step, not {request.steps}")
    write = writer_for(out)
    columns, story = make(request)
    if request.compact:
        columns = {name: column for name, column in columns.items() if name != "next_observations"}
    write(out, columns, provenance(request, story, command))
    return columns


def provenance(request: Request, story: str, command: str) -> Attributes:
    """How a file came to be, for its attributes."""
    space = _env(request).action_space
    box = (
        {"action_low": float(space.low.min()), "action_high": float(space.high.max())} if hasattr(space, "low") else {}
    )
    return {
        "env": request.env,
        "quality": request.quality,
        "seed": request.seed,
        "made_by": story,
        "command": command or " ".join(Path(sys.argv[0]).name.split() + sys.argv[1:]),
        **box,
        "versions": json.dumps(versions("arb-rl", "gymnasium", "mujoco", "numpy", "jax", "optax")),
    }


def _policy(fraction: float, stage: int = 0) -> Callable[[Request], tuple[Dataset, str]]:
    def make(request: Request) -> tuple[Dataset, str]:
        step = _run(request).best() if fraction >= 1.0 else _run(request).reaches(fraction)
        story = f"sampled actions of {_snapshot(request, step)}"
        return _rollout(request, step, request.steps, request.quality, stage), story

    return make


def _replay(request: Request, until: int, story: str) -> tuple[Dataset, str]:
    return _run(request).replay(until), f"everything SAC did in {story}"


def _medium_replay(request: Request) -> tuple[Dataset, str]:
    step = _run(request).reaches(MEDIUM)
    return _replay(request, step, f"training, from the first step to {_snapshot(request, step)}")


def _medium_expert(request: Request) -> tuple[Dataset, str]:
    halves = [_policy(fraction, stage)(request) for stage, fraction in enumerate((MEDIUM, 1.0))]
    return joined([columns for columns, _ in halves]), "; then ".join(story for _, story in halves)


def _mixed(request: Request) -> tuple[Dataset, str]:
    unit, parts, stories = request.steps // sum(MIXED.values()), [], []
    for stage, (rung, share) in enumerate(MIXED.items()):
        step = _run(request).nearest(FRACTIONS[rung]) if rung in FRACTIONS else None
        story = "uniformly random actions" if step is None else _snapshot(request, step)
        parts.append(_rollout(request, step, share * unit, f"stage {stage + 1} of {len(MIXED)}", stage))
        stories.append(f"{len(parts[-1]['rewards'])} rows of {story}")
    return joined(parts), "; then ".join(stories)


QUALITIES: Mapping[str, Callable[[Request], tuple[Dataset, str]]] = {
    "random": lambda request: (_rollout(request, None, request.steps, "random"), "uniformly random actions"),
    "medium": _policy(MEDIUM),
    "medium-replay": _medium_replay,
    "expert": _policy(1.0),
    "medium-expert": _medium_expert,
    "full-replay": lambda request: _replay(request, request.sac_steps, f"{request.sac_steps} steps of training"),
    "mixed": _mixed,
}


@lru_cache(maxsize=1)  # a set is made in several steps, and loading a run again would take longer than most of them
def _run(request: Request) -> Any:
    from arb.suite.sac import Plan, train

    plan = Plan(request.env, request.seed, request.sac_steps, request.evaluate_every)
    with progress(f"SAC on {request.env}", request.sac_steps) as tell:
        return train(plan, request.folder, lambda step, _: tell(step))


def _snapshot(request: Request, step: int) -> str:
    value = dict(_run(request).history)[step]
    return f"SAC (seed {request.seed}) after {step} steps, whose mode returned {value:.0f} on average"


def _rollout(request: Request, step: int | None, rows: int, label: str, stage: int = 0) -> Dataset:
    env = _env(request)
    if step is None:
        actor = random_actor(env)
    else:
        policy, actions = _run(request).policy(step), ActionMap(env.action_space)

        def actor(obs: Any, rng: np.random.Generator) -> Any:
            return actions.to_env(policy.sample(obs, rng))

    with progress(label, rows) as tell:
        return record(env, actor, rows, (request.seed, stage, step or 0), tell)


def _env(request: Request) -> Any:
    from arb.envs import flattened, make

    return flattened(make(request.env))
