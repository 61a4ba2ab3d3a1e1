"""Where and how fast a run ran: machine.json, which is beside the results and not part of them.

Two runs with the same configuration have the same tables on one machine; their machine.json differ.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import arb
from arb.data.contents import free_memory
from arb.errors import DataError
from arb.files import write_text
from arb.lab.runfolder import RunFolder

ROOM = 3 * 2**28
"""Bytes that Python, JAX and compiled code take beside the data."""


class Clock:
    """Seconds by part of the work. Parts do not overlap: the time of an inner part is not counted in the outer one.

    >>> clock = Clock()
    >>> with clock.part("online"), clock.part("refresh"):
    ...     pass
    >>> sorted(clock.seconds)
    ['online', 'refresh']
    """

    def __init__(self, seconds: Mapping[str, float] | None = None):
        self.seconds = dict(seconds or {})
        self._open: list[str] = []
        self._since = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of the block under a name."""
        self._count()
        self._open.append(name)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


class Logbook:
    """The machine.json of a run; the seconds of all its attempts add up."""

    def __init__(self, folder: RunFolder):
        said = folder.machine()
        self.path = folder.machine_file
        parts = said.get("parts") if isinstance(said.get("parts"), dict) else {}
        self.clock = Clock({str(k): v for k, v in (parts or {}).items() if isinstance(v, float | int)})
        self._machine = describe_machine() | {"started": said.get("started") or _now()}

    def seconds(self) -> dict[str, float]:
        """By phase, with evaluation and checkpoints apart from both."""
        parts = self.clock.seconds
        online = sum(parts.get(name, 0.0) for name in ("online", "collecting", "refresh", "online updates"))
        pretrain = parts.get("pretrain", 0.0) + parts.get("pretrain updates", 0.0)
        rest = {name: parts.get(name, 0.0) for name in ("evaluation", "checkpoints", "other")}
        return {name: round(value, 3) for name, value in {"pretrain": pretrain, "online": online, **rest}.items()}

    def write(self) -> None:
        """Put down what is known so far."""
        parts = {name: round(value, 3) for name, value in self.clock.seconds.items()}
        write_text(self.path, json.dumps({**self._machine, "seconds": self.seconds(), "parts": parts}, indent=1))


def cores() -> list[int]:
    """The cores that this process may use; all of them on a system that cannot pin processes."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def describe_machine() -> dict[str, Any]:
    """CPU model, cores, system, and the commit of this library where it runs from a checkout."""
    commit, dirty = _commit()
    return {
        "cpu": _cpu(),
        "cores": len(cores()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "commit": commit,
        "dirty": dirty,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> tuple[str | None, bool]:
    """The commit that this package was checked out from, and whether files have changed since; None if installed."""
    package = Path(arb.__file__)
    try:
        _git(package.parent, "ls-files", "--error-unmatch", package.name)  # not somebody else's repository around it
        changed = _git(package.parent, "status", "--porcelain", "-uno", ".")
        return _git(package.parent, "rev-parse", "HEAD"), bool(changed)
    except (OSError, subprocess.SubprocessError):
        return None, False


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


# ---- memory ----------------------------------------------------------------------------------------------------------
def refuse_too_little_memory(what: str, size: int) -> None:
    """Refuse work whose arrays will not fit into the memory that is free, before they are made.

    Args:
        what: the work, for the message.
        size: bytes of its arrays.
    """
    free, needed = free_memory(), size + ROOM
    if free is not None and needed > free:
        raise DataError(
            f"{what} needs about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: close other programs, "
            "use fewer workers, or use a smaller dataset or schedule.online"
        )
