"""Two tables: the families of tasks, and the tasks of D4RL and of the suite with their environments and scores.

What depends on the kind of task is a column of `FAMILIES`, or is keyed by a family's name in the rows of the agents.

Addresses are D4RL's own (`d4rl/infos.py`); sizes in bytes and SHA-256 sums are those that TensorFlow Datasets records
for the same addresses (`tensorflow_datasets/d4rl/*/checksums.tsv`); references are D4RL's, one for each robot.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, suggest

HOST = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
MIRROR = "https://huggingface.co/datasets/imone/D4RL/resolve/main"
"""Holds the locomotion datasets under the same file names; the checksum guards against a different copy."""


class Reference(NamedTuple):
    """The returns that count as 0 and as 100."""

    low: float
    high: float


def read_reference(value: Any, where: str = "") -> Reference:
    """A reference from two returns, the second larger; `where` they come from is the beginning of an error message."""
    try:
        low, high = map(float, value if isinstance(value, list | tuple) else ())
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not 0.0 < high - low < math.inf:
        raise DataError(f"{where and f'{where}: '}reference {repr(value)[:80]} must be two numbers, the second larger")
    return Reference(low, high)


def normalised(returns: ArrayLike, reference: tuple[float, float] | None) -> NDArray[np.float64]:
    """`100 (R - low) / (high - low)` of every return, times 100 as in the papers (D4RL's function leaves it out).

    Without a reference, the returns themselves.

    >>> normalised([0.0, 50.0], (0.0, 200.0))
    array([ 0., 25.])
    """
    raw: NDArray[np.float64] = np.asarray(returns, np.float64)
    if reference is None:
        return raw
    low, high = read_reference(reference)
    return 100.0 * (raw - low) / (high - low)


@dataclass(frozen=True)
class Family:
    """What all tasks of a kind have in common."""

    name: str
    settings: str
    """The family whose hyper-parameters, in the rows of the agents, its tasks take."""
    shift: float = 0.0
    """Added to every reward, unless an agent has a rule of its own."""
    sparse: bool = False
    """Whether rewards are 0 until the goal is reached: then a return above 0 is a success, and the return of an episode
    that failed is known without its end."""

    def successes(self, returns: ArrayLike) -> NDArray[np.bool_] | None:
        """Which episodes succeeded, by their raw returns; None where returns do not tell."""
        return np.asarray(returns) > 0.0 if self.sparse else None


FAMILIES: Mapping[str, Family] = {
    "locomotion": Family("locomotion", "locomotion"),
    "antmaze": Family("antmaze", "antmaze", shift=-1.0, sparse=True),
    "other": Family("other", "locomotion"),
}
"""Tasks that are in no table here are `other`: their rewards are taken to be dense, as in locomotion."""


@dataclass(frozen=True)
class Task:
    """A dataset and the environment it is evaluated in, under D4RL's name for the two together."""

    name: str
    family: str
    """A name in `FAMILIES`."""
    env: str
    """Gymnasium id."""
    horizon: int
    reference: Reference | None
    """None where a score is the plain return."""
    urls: tuple[str, ...] = ()
    """Where the file can be downloaded; none for datasets of the suite, which are made."""
    size: int = 0
    sha256: str = ""

    @property
    def file(self) -> str:
        return self.urls[0].rsplit("/", 1)[1]


REFERENCES = {
    "hopper": Reference(-20.272305, 3234.3),
    "walker2d": Reference(1.629008, 4592.3),
    "halfcheetah": Reference(-280.178953, 12135.0),
    "antmaze": Reference(0.0, 1.0),
}

# robot, quality, size, SHA-256
LOCOMOTION = (
    ("hopper", "random", 152525345, "63103ef7059db4c0819bd054f4e83ff339030b50bcdb46bdbe50385f234b5054"),
    ("hopper", "medium", 152756557, "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0"),
    ("hopper", "medium-replay", 75854457, "e121c5f7c9857a307baa9edc6a2c3b48e85fedb9ac316ecddd0f48ca7ef4e39b"),
    ("hopper", "medium-expert", 304537315, "9d51ad87f8c905be3880d84c6140bcdb7fbf39a19e046a237f238ba34fec9e26"),
    ("hopper", "expert", 152427435, "01aa219a5f8eea5e639eccdc636ec2bf40e317159a95cf4bf6e985f16909941b"),
    ("hopper", "full-replay", 187998921, "56baf95963c51c1e964049a974566c50ba80f289390565523e60c0ba83e0982e"),
    ("halfcheetah", "random", 237338037, "25407aef85b5d16c0f36b4149341edb4acc6a9e88c1db529b2de19e7464874ba"),
    ("halfcheetah", "medium", 237727262, "41324e8487a9556d8cfa4538827f8937f4d63dae3030825ebc9f3a726ed08ca0"),
    ("halfcheetah", "medium-replay", 59448533, "48d494a4770c11f48260736dec090b78bdca8375647ed4d24bfa5b6610c7f683"),
    ("halfcheetah", "medium-expert", 474567252, "015db75dae5bbe8e94029b71fa0bafc2073365df0c94744e71031189f3f79c06"),
    ("halfcheetah", "expert", 237464597, "d9fe53bb994eb1e20a99b4fa3412cd76a1bb7966a7ff55e0fcbdd6081bd2965f"),
    ("halfcheetah", "full-replay", 291381762, "27fdf7ea86e5a2cbd24d611ae9e703c86ec2e8e52823abc69dd9af6afb3a36c0"),
    ("walker2d", "random", 216109364, "4e863bb6090cf4a461548bd470564b32f1ae5b32ef3085f816b2ede7f092e7fa"),
    ("walker2d", "medium", 232254996, "cf00f43add04c17fdfc2958dd581dea0851b2e5bedbe6fda073758a8f841aeda"),
    ("walker2d", "medium-replay", 86323963, "e75de96a4f77acf7d4e0d6fdf0d7ccb177c26c44bb4388e4fd99f543ccfa18db"),
    ("walker2d", "medium-expert", 462197079, "6b8d7f868c45bbaedf460be797fb7271b46dee6ebe45fe7a64319f2005b59a04"),
    ("walker2d", "expert", 230567195, "2985dc3d436a8baa10e8f43f946fe1d7c6337a4e4fbc65def70618093b18c59a"),
    ("walker2d", "full-replay", 285115514, "f2720f9d27b2acef6ec9a7d9ad3b80b6c2078ad4467cee668a81e3b3c80bcf2a"),
)

MAZE_LIMITS = {"umaze": 700, "medium": 1000, "large": 1000}
"""Time limits of the mazes' environments."""
_MAZE_FILES = {"umaze": "u-maze", "medium": "big-maze", "large": "hardest-maze"}

# name, several starts, several goals (as the file's name says), size, SHA-256
ANTMAZE = (
    ("umaze", False, False, 232532949, "5ef15257771c50ef4d23c7de001750e96c8bb5d9b6a5e4a821dcfb3065fbd130"),
    ("umaze-diverse", True, True, 230854272, "c771dd63963cd7d9f55f24a6d809064f6b82250a6aeac4c9d13f9a1d06e8c932"),
    ("medium-play", True, False, 231110764, "c9fec1c1daad97c71d61bd47f4ccc9f74faa855b8a2d2e8107d5378018827e5b"),
    ("medium-diverse", True, True, 231095166, "ad9dcbac05d1f8744a7a216083f513662f43f64f28a4a5eb225e9811902dfae7"),
    ("large-play", True, False, 230880653, "6d353df2457829925d7f9d4b0215587469908bd57478ea76f16417cfa944f471"),
    ("large-diverse", True, True, 231183710, "84f775eb7956ea9cc766704710dc520a8ab357adc7522ade47f556f0e335e284"),
)


def _locomotion(robot: str, quality: str, size: int, sha256: str) -> Task:
    file = f"{robot}_{quality.replace('-', '_')}-v2.hdf5"
    urls = (f"{HOST}/gym_mujoco_v2/{file}", f"{MIRROR}/{file}")
    name, env = f"{robot}-{quality}-v2", f"arb/{robot}-v2"
    return Task(name, "locomotion", env, 1000, REFERENCES[robot], urls, size, sha256)


def _antmaze(name: str, starts: bool, goals: bool, size: int, sha256: str) -> Task:
    maze = name.split("-")[0]
    file = f"Ant_maze_{_MAZE_FILES[maze]}_noisy_multistart_{starts}_multigoal_{goals}_sparse_fixed.hdf5"
    env, urls = f"arb/antmaze-{maze}-v2", (f"{HOST}/ant_maze_v2/{file}",)
    return Task(f"antmaze-{name}-v2", "antmaze", env, MAZE_LIMITS[maze], REFERENCES["antmaze"], urls, size, sha256)


TASKS: Mapping[str, Task] = {
    task.name: task for task in (*(_locomotion(*row) for row in LOCOMOTION), *(_antmaze(*row) for row in ANTMAZE))
}
PAPER = tuple(name for name in TASKS if not name.endswith(("-full-replay-v2", "-expert-v2")) or "medium-expert" in name)
"""The 12 locomotion and 6 AntMaze tasks of the paper."""


def _suite() -> Iterator[Task]:
    for robot in ("hopper", "walker2d", "halfcheetah"):
        for ladder in ("", "-b"):  # a second ladder of policies, from another SAC run
            for quality in ("random", "mixed", "medium", "medium-expert"):
                name = f"suite:{robot}-{quality}{ladder}"
                yield Task(name, "locomotion", f"arb/{robot}-v2", 1000, REFERENCES[robot])
    for maze, horizon in MAZE_LIMITS.items():
        for walk in ("play", "diverse"):
            env = f"arb/antmaze-{maze}-v2"
            yield Task(f"suite:antmaze-{maze}-{walk}", "antmaze", env, horizon, REFERENCES["antmaze"])


SUITE: Mapping[str, Task] = {task.name: task for task in _suite()}
"""The datasets that this project makes itself (`arb.suite.datasets`), scored on D4RL's scales."""
FIRST = "suite:hopper-mixed"
"""The task of a run that names none."""


def find_task(name: str) -> Task:
    """The task of a name, with or without the prefix `d4rl:`; an unknown name is answered with the nearest ones."""
    name = name.removeprefix("d4rl:")
    if name in TASKS:
        return TASKS[name]
    raise DataError(f"no task is called {name!r}{suggest(name, TASKS, 3) or '; `arb data list` lists them'}")


def task_of(source: str) -> Task | None:
    """The task that a source names, by its own name or by D4RL's name for its file."""
    if source.startswith("suite:"):
        return SUITE.get(":".join(source.split(":")[:2]))
    # OGBench names the environment of a single-task dataset without the kind of data before `singletask`.
    if ogbench := re.fullmatch(r"ogbench:(.+)-[^-]+-(singletask(?:-.+)?)", source):
        return Task(source, "other", f"ogbench:{ogbench[1]}-{ogbench[2]}", 1000, None)
    name = source.removeprefix("d4rl:")
    return TASKS.get(name) or next((task for task in TASKS.values() if task.file == PurePath(source).name), None)


def family_of(source: str, env: str = "") -> Family:
    """The family of a source of data; of one that is not a task, that of the environment it is played in."""
    task = task_of(source) or next((task for task in TASKS.values() if env and task.env == env), None)
    return FAMILIES[task.family if task else "other"]


def env_reference(env: str) -> Reference | None:
    """The score reference of an environment of this project, None for any other."""
    return next((task.reference for task in TASKS.values() if task.env == env), None)
