"""Small sets that stand in for D4RL's files where only the machinery is to be tried: `stand-in:hopper-medium-v2`.

They are recorded on the spot by uniformly random actions in the real environment of the task, whatever quality its name
promises. Nothing that is learnt on them says anything about D4RL, so the prefix stays in every name and table.
"""

from pathlib import Path
from zlib import crc32

from arb.data.fetch import cache_directory
from arb.errors import DataError
from arb.tasks import find_task

PREFIX = "stand-in:"
STEPS = 1_001
"""Whole episodes are recorded until there are as many rows: two or more of them in every environment."""


def stand_in(name: str) -> Path:
    """The file that stands in for a task, recorded unless it is there; equal names give equal data."""
    try:
        task = find_task(name)
    except KeyError as problem:
        raise DataError(str(problem.args[0])) from None
    path = cache_directory() / "stand-ins" / f"stand-in-{task.name}.hdf5"
    if not path.exists():
        from arb.data.collect import Request, collect

        seed = crc32(task.name.encode()) % 2**31
        collect(Request(task.env, "random", STEPS, seed), path, f"stand-in for {task.name}")
    return path
