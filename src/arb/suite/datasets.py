"""The suite: sets for offline-to-online learning that make themselves on any machine, without network.

Each set is a short recipe over the policies of a ladder (`arb.suite.ladders`), recorded in this project's environments.
The sets resemble D4RL's and are not D4RL's: scores on them do not compare with published ones.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from arb.data.tasks import SUITE, Task
from arb.errors import DataError, suggest
from arb.files import locked
from arb.progress import progress
from arb.suite.ladders import MIXED, Ladder, read_ladder
from arb.suite.recorder import Dataset, Tell, joined, random_actor, record, versions

PREFIX = "suite:"
ROWS = 200_000
FEWEST, MOST = 1_000, 20_000_000
VERSION = 1
"""Of the recipes: raised when a set with the same name and seed would hold other rows."""
WALK_HORIZON = {"umaze-play": 700}
"""Steps of a recorded walk; all other sets have 1,000, also `umaze-diverse`, as in D4RL's files."""
RECIPES: Mapping[str, Mapping[str, int]] = {
    "random": {"random": 1},
    "mixed": MIXED,
    "medium": {"33": 1},
    "medium-expert": {"33": 1, "100": 1},
}
"""By quality: rungs of the ladder, one after the other, and their shares of a set. The ant's sets are walks instead."""


class Wanted(NamedTuple):
    """A set, its size and its seed."""

    task: Task
    rows: int = ROWS
    seed: int = 0

    @property
    def source(self) -> str:
        """The name under which the set can be used as a task."""
        return self.task.name + (f":{self.rows}" if self.rows != ROWS else "")

    @property
    def quality(self) -> str:
        """The name without the robot."""
        return self.task.name.removeprefix(PREFIX).partition("-")[2]

    @property
    def robot(self) -> str:
        """Whose ladder it is made from."""
        return self.task.name.removeprefix(PREFIX).partition("-")[0] if self.quality in RECIPES else "ant"


def wanted(name: str, rows: int | None = None, seed: int = 0) -> Wanted:
    """The set that a name asks for: `suite:hopper-mixed`, or `suite:hopper-mixed:1000000` for another size."""
    base, colon, size = name.removeprefix(PREFIX).partition(":")
    if PREFIX + base not in SUITE:
        known = [task.removeprefix(PREFIX) for task in SUITE]
        raise DataError(f"the suite has no set {base!r}{suggest(base, known)}; it has {', '.join(known)}")
    if colon and not size.isdecimal():
        raise DataError(f"{name}: the second colon must be followed by a number of rows, as in {PREFIX}{base}:1000000")
    rows = rows if rows is not None else int(size[:12]) if colon else ROWS
    if not FEWEST <= rows <= MOST:
        raise DataError(f"{PREFIX}{base}: {rows:,} rows asked for; a set has {FEWEST:,} to {MOST:,}")
    return Wanted(SUITE[PREFIX + base], rows, seed)


def made(name: str, make_it: bool = True) -> Path:
    """The file of a set in the cache, made on first use."""
    from arb.data.fetch import cache_directory

    asked = wanted(name)
    ladder = read_ladder(asked.robot)
    stem = asked.source.removeprefix(PREFIX).replace(":", "-")
    path = cache_directory() / "suite" / f"{stem}-{VERSION}-{ladder.sha256[:8]}.hdf5"
    if not path.exists():
        if not make_it:
            raise DataError(f"{name} is not made yet: arb data make {name}")
        lock = path.with_name(path.name + ".lock")
        with locked(lock):  # one process makes a set, the others wait for it
            if not path.exists():
                make(asked, path, ladder)
        lock.unlink(missing_ok=True)
    return path


def make(asked: Wanted, out: Path, ladder: Ladder | None = None) -> Dataset:
    """Record a set and write it in D4RL's layout; the file appears only when it is complete."""
    from arb.data.hdf5 import write_hdf5

    ladder = ladder or read_ladder(asked.robot)
    with progress(f"making {asked.source}", asked.rows) as tell:
        columns, story = (_rungs if asked.quality in RECIPES else _walks)(asked, ladder, tell)
    about = {
        "env": asked.task.env,
        "suite": asked.source,
        "seed": asked.seed,
        "action_low": -1.0,
        "action_high": 1.0,
        **story,
        "command": f"arb data make {asked.task.name} --rows {asked.rows} --seed {asked.seed}",
        "ladder": f"{asked.robot} {ladder.sha256[:16]}, trained by: {ladder.about.get('command', 'unknown')}",
        "versions": json.dumps(versions("arb-rl", "numpy", "mujoco", "gymnasium")),
        "note": "made here, not D4RL's data; another MuJoCo, NumPy or processor may give other last digits",
    }
    write_hdf5(out, columns, about, effort=1)
    return columns


def _rungs(asked: Wanted, ladder: Ladder, tell: Tell) -> tuple[Dataset, dict[str, Any]]:
    """Rows of each part of the recipe, one after the other."""
    from arb.envs import make as make_env

    env, parts, stories, done = make_env(asked.task.env), [], [], 0
    recipe = RECIPES[asked.quality]
    for number, (name, share) in enumerate(recipe.items()):
        rung = ladder.rungs[name]
        actor = random_actor(env) if rung.policy is None else rung.policy.sample
        rows = share * asked.rows // sum(recipe.values())
        parts.append(
            record(env, actor, rows, (*_seed(asked), number), partial(lambda before, n: tell(before + n), done))
        )
        done += rows
        sac = f"SAC after {rung.steps} steps, mean return {rung.sampled:.0f}"
        stories.append(f"{len(parts[-1]['rewards'])} rows of {sac if rung.policy else 'uniformly random actions'}")
    return joined(parts), {"made_by": "; ".join(stories)}


def _walks(asked: Wanted, ladder: Ladder, tell: Tell) -> tuple[Dataset, dict[str, Any]]:
    from arb.suite.mazes import NOISE, record_walks

    walk = asked.quality
    maze, anywhere = walk.split("-")[0], walk != "umaze-play"
    policy = ladder.rungs["100"].policy
    horizon = WALK_HORIZON.get(walk, 1000)
    columns, goal = record_walks(policy, maze, anywhere, horizon, asked.rows, _seed(asked), tell)
    start = "any cell without a goal" if anywhere else "the start cell"
    story = f"an ant that walks from {start} to its goal by waypoints, with action noise {NOISE}"
    return columns, {"made_by": story, "evaluation_goal": goal}


def _seed(asked: Wanted) -> tuple[int, ...]:
    return (VERSION, crc32(asked.task.name.encode()), asked.seed)
