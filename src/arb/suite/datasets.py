"""The suite: datasets that make themselves on any machine; and `load_dataset`, which knows every source of data.

A dataset of the suite is a short recipe over the policies of a ladder (`arb.suite.ladders`), recorded in this project's
environments. They resemble D4RL's and are not D4RL's: scores on them do not compare with published ones.
"""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from arb.data.fetch import bundled, bundled_names, cache_directory, fetched
from arb.data.formats import FORMATS, PICKLES, read_dataset, split_columns, write_dataset
from arb.data.tasks import SUITE, TASKS, Task
from arb.errors import DataError, suggest
from arb.files import locked
from arb.progress import progress
from arb.replay.dataset import Dataset
from arb.suite.ladders import Ladder, read_ladder

PREFIX = "suite:"
FEWEST, MOST = 1_000, 20_000_000
VERSION = 2
"""Of the recipes: raised when a dataset with the same name and seed would hold other rows."""
PUBLISHED = Path(__file__).parent / "datasets.csv"
"""What the datasets of the suite hold, with their hashes; `benchmarks/suite.py` writes it."""


@dataclass(frozen=True)
class Wanted:
    """A dataset of the suite, its size and its seed."""

    task: Task
    rows: int
    seed: int = 0

    @property
    def name(self) -> str:
        """Without the prefix, the size and the mark of the second ladder: `hopper-medium-expert`."""
        return self.task.name.removeprefix(PREFIX).removesuffix("-b")

    @property
    def quality(self) -> str:
        return self.name.partition("-")[2]

    @property
    def ladder(self) -> str:
        return self.name.partition("-")[0].removesuffix("maze") + "-b" * self.task.name.endswith("-b")

    @property
    def source(self) -> str:
        """The name under which it can be used as a task."""
        return self.task.name + (f":{self.rows}" if self.rows != default_rows(self.task) else "")


def default_rows(task: Task) -> int:
    """Rows of a dataset unless another number is asked for."""
    return 500_000 if task.name.split("-")[1] in ("medium", "large") and task.family == "antmaze" else 200_000


def wanted(name: str, rows: int | None = None, seed: int = 0) -> Wanted:
    """The dataset that a name asks for: `suite:hopper-mixed`, or `suite:hopper-mixed:1000000` for another size."""
    base, colon, size = name.removeprefix(PREFIX).partition(":")
    if PREFIX + base not in SUITE:
        known = [task.removeprefix(PREFIX) for task in SUITE]
        raise DataError(f"the suite has no dataset {base!r}{suggest(base, known)}; it has {', '.join(known)}")
    if colon and not size.isdecimal():
        raise DataError(f"{name}: the second colon must be followed by a number of rows, as in {PREFIX}{base}:1000000")
    task = SUITE[PREFIX + base]
    rows = rows if rows is not None else int(size[:12]) if colon else default_rows(task)
    if not FEWEST <= rows <= MOST:
        raise DataError(f"{PREFIX}{base}: {rows:,} rows asked for; a dataset has {FEWEST:,} to {MOST:,}")
    return Wanted(task, rows, seed)


def made(name: str, make_it: bool = True) -> Path:
    """The file of a dataset in the cache, made on first use."""
    asked = wanted(name)
    stem = asked.source.removeprefix(PREFIX).replace(":", "-")
    path = cache_directory() / "suite" / f"{stem}-{VERSION}-{read_ladder(asked.ladder).sha256[:8]}.hdf5"
    if not path.exists():
        if not make_it:
            raise DataError(f"{name} is not made yet: arb data make {name}")
        lock = path.with_name(path.name + ".lock")
        with locked(lock):  # one process makes a dataset, the others wait for it
            if not path.exists():
                make(asked, path)
        lock.unlink(missing_ok=True)
    return path


def make(asked: Wanted, out: Path) -> Dataset:
    """Record a dataset and write it in D4RL's layout; the file appears only when it is complete."""
    from arb.suite.recorder import versions

    ladder = read_ladder(asked.ladder)
    with progress(f"making {asked.source}", asked.rows) as tell:
        dataset = (_walks if asked.task.family == "antmaze" else _snapshots)(asked, ladder, tell)
    about = {
        "env": asked.task.env,
        "suite": asked.source,
        "seed": asked.seed,
        "action_low": -1.0,
        "action_high": 1.0,
        **dataset.provenance,
        "command": f"arb data make {asked.task.name} --rows {asked.rows} --seed {asked.seed}",
        "ladder": f"{asked.ladder} {ladder.sha256[:16]}, trained by: {ladder.about.get('command', 'unknown')}",
        "versions": json.dumps(versions("arb-rl", "numpy", "mujoco", "gymnasium")),
        "note": "made here, not D4RL's data",
    }
    dataset = replace(dataset, provenance=about)
    write_dataset(out, dataset, compression=1)
    return dataset


def _snapshots(asked: Wanted, ladder: Ladder, tell: Callable[[int], None]) -> Dataset:
    from arb.envs import make as make_env
    from arb.suite.recorder import record_recipe

    def policy(name: str) -> tuple[Any, str]:
        level = ladder.levels[name]
        if level.policy is None:
            return None, "uniformly random actions"
        return level.policy.sample, f"SAC after {level.steps} steps, mean return {level.sampled:.0f}"

    return record_recipe(make_env(asked.task.env), asked.quality, policy, asked.rows, _seed(asked), tell)


def _walks(asked: Wanted, ladder: Ladder, tell: Callable[[int], None]) -> Dataset:
    from arb.suite.mazes import NOISE, TOWARDS, Walk, record_walks

    maze, kind = asked.quality.split("-")
    anywhere = asked.quality != "umaze-play"
    # D4RL's walks in the umaze have at most 701 rows, all others 1,001.
    horizon = 701 if asked.quality == "umaze-play" else 1001
    walk = Walk(maze, anywhere, TOWARDS[kind])
    dataset = record_walks(ladder.levels["100"].policy, walk, horizon, asked.rows, _seed(asked), tell)
    made_by = (
        f"an ant that walks from {'any' if anywhere else 'the start'} cell to goal after goal, "
        f"{TOWARDS[kind]:.0%} of them in the goal's cell, by waypoints, with action noise of {NOISE[0]} to {NOISE[1]}"
    )
    return replace(dataset, provenance={"made_by": made_by, **dataset.provenance})


def _seed(asked: Wanted) -> tuple[int, ...]:
    return (VERSION, crc32(asked.task.name.encode()), asked.seed)


# ---- what they should hold -------------------------------------------------------------------------------------------
@cache
def published() -> dict[str, dict[str, str]]:
    """The rows of the table of datasets (`PUBLISHED`), by name."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        return {row["dataset"]: row for row in csv.DictReader(file)}


def verdict(asked: Wanted, dataset: Dataset) -> str:
    """One line: whether a dataset has the published hash."""
    row = published().get(asked.source)
    if row is None or asked.seed != 0:
        return f"sha256 {dataset.fingerprint[:16]}; no hash is published for this size or seed"
    if dataset.fingerprint.startswith(row["sha256"]):
        return f"sha256 {dataset.fingerprint[:16]}, as published"
    return (
        f"sha256 {dataset.fingerprint[:16]}, but {row['sha256']} is published: this machine recorded other rows "
        f"(published with {row['versions']}; here {recorded_with()}), so say so where you report scores"
    )


def recorded_with() -> str:
    """The packages that decide what is recorded, and their versions."""
    from arb.suite.recorder import versions

    return ", ".join(f"{name} {number}" for name, number in versions("mujoco", "numpy").items())


# ---- every source ----------------------------------------------------------------------------------------------------
def load_dataset(source: str | os.PathLike[str], columns: str = "") -> Dataset:
    """A dataset from wherever it is; what was repaired in it is warned of.

    Args:
        source: a D4RL task (`hopper-medium-v2`, fetched before with `arb data fetch`), a dataset of the suite
            (`suite:hopper-mixed`, made on first use), a path ending in `.hdf5`, `.npz`, `.csv` or `.parquet`, the
            folder of a LeRobot dataset, `minari:mujoco/hopper/medium-v0`, `ogbench:cube-single-play-singletask-v0`, or
            `bundled:hopper-mixed`.
        columns: where the file has other names, `observations=state,actions=command`. `a+b` joins two columns, a
            number makes a constant one. A source may carry it itself, after a question mark.
    """
    return read_dataset(locate(source), columns)


def locate(source: str | os.PathLike[str], make_it: bool = True) -> str:
    """The file of a source, or `minari:NAME`, with the columns that it carries.

    A dataset of the suite is made if it is not there, unless `make_it` is false: then it is refused.
    """
    place, columns = split_columns(source)
    word = place.partition(":")[0]
    if word == "suite":
        found = str(made(place, make_it))
    elif word == "ogbench":
        from arb.suite.ogbench import ogbench_file

        found = str(ogbench_file(place, make_it))
    elif word == "bundled":
        found = str(bundled(place.partition(":")[2]))
    elif word == "d4rl" or place in TASKS:
        found = str(fetched(place))
    elif (
        word == "minari"
        or Path(place).suffix.lower() in (*FORMATS, *PICKLES)
        or Path(place, "meta", "info.json").is_file()
    ):
        found = place
    else:
        known = [*TASKS, *SUITE, *(f"bundled:{name}" for name in bundled_names())]
        kinds = f": give a task, suite:NAME, a file ({', '.join(FORMATS)}), a LeRobot folder or minari:NAME"
        raise DataError(f"{place!r} is not a dataset{suggest(place, known, 3) or kinds}")
    return found + (f"?{columns}" if columns else "")


def is_source(text: str) -> bool:
    """Whether a text has the form of a source; nothing is opened, made or looked up.

    >>> [is_source(text) for text in ("my.csv", "suite:hopper-mixed", "hopper-medium-v2", "schedule.online")]
    [True, True, True, False]
    """
    word, colon, _ = text.partition(":")
    named = colon and word in ("suite", "ogbench", "bundled", "d4rl", "minari")
    return bool(named) or text in TASKS or Path(text).suffix.lower() in FORMATS
