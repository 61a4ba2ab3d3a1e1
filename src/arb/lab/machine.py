"""The machine that a run works on: where and how fast it ran, how much memory there is, and being asked to stop.

machine.json stands beside the results and is no part of them: two runs with the same configuration have the same tables
on one machine, and their machine.json differ.
"""

import json
import os
import platform
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import arb
from arb.data.formats import free_memory
from arb.errors import DataError
from arb.files import write_text
from arb.lab.folder import RunFolder

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 5.0
"""Seconds after which a process of its own ends, if it was asked to stop and nobody has looked at the flag."""
_ARITHMETIC = ("sse", "ssse", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16")
ROOM = 3 * 2**28
"""Bytes that Python, JAX and compiled code take beside the data."""


class Timer:
    """Seconds by part of the work. Parts do not overlap: the time of an inner part is not counted in the outer one."""

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


class MachineLog:
    """The machine.json of a run; the seconds of all its attempts add up."""

    def __init__(self, folder: RunFolder):
        said = folder.machine()
        self.path = folder.machine_file
        self.timer = Timer(said.get("parts"))
        started = said.get("started") or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._machine = describe_machine() | {"started": started}

    def seconds(self) -> dict[str, float]:
        """By phase, with evaluation and checkpoints apart from both."""
        parts = self.timer.seconds
        online = sum(parts.get(name, 0.0) for name in ("online", "collecting", "refresh", "online updates"))
        pretrain = parts.get("pretrain", 0.0) + parts.get("pretrain updates", 0.0)
        rest = {name: parts.get(name, 0.0) for name in ("evaluation", "checkpoints", "other")}
        return {name: round(value, 3) for name, value in {"pretrain": pretrain, "online": online, **rest}.items()}

    def write(self) -> None:
        parts = {name: round(value, 3) for name, value in self.timer.seconds.items()}
        write_text(self.path, json.dumps({**self._machine, "seconds": self.seconds(), "parts": parts}, indent=1))


def cores() -> list[int]:
    """The cores that this process may use; all of them on a system that cannot pin processes."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def describe_machine() -> dict[str, Any]:
    """Processor with its instructions for arithmetic, cores, system, and the commit of this library's checkout."""
    first = ""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    commit, dirty = _commit()
    flags = (said.get("flags") or said.get("Features") or "").split()
    return {
        "cpu": said.get("model name") or platform.processor() or platform.machine(),
        "family": said.get("cpu family") or said.get("CPU architecture"),
        "model": said.get("model") or said.get("CPU part"),
        "stepping": said.get("stepping") or said.get("CPU revision"),
        "flags": sorted(flag for flag in flags if flag.startswith(_ARITHMETIC)),
        "cores": len(cores()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "commit": commit,
        "dirty": dirty,
    }


def processor_text(machine: Mapping[str, Any]) -> str:
    parts = [f"{name} {machine[name]}" for name in ("family", "model", "stepping") if machine.get(name)]
    return ", ".join([str(machine.get("cpu") or "a processor that was not recorded"), *parts])


def _commit() -> tuple[str | None, bool]:
    """The commit that this package was checked out from, and whether files have changed since; None if installed."""
    package = Path(arb.__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", package.name)  # not somebody else's repository around it
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "-uno", "."))
    except (OSError, subprocess.SubprocessError):
        return None, False


# ---- memory ----------------------------------------------------------------------------------------------------------
def check_memory(what: str, size: int) -> None:
    """Refuse work whose arrays, of this many bytes, will not fit into the memory that is free."""
    free, needed = free_memory(), size + ROOM
    if free is not None and needed > free:
        raise DataError(
            f"{what} needs about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: close other programs, "
            "use fewer workers, or use a smaller dataset or schedule.online"
        )


# ---- being asked to stop ---------------------------------------------------------------------------------------------
@contextmanager
def stoppable(say: str = "", own_process: bool = False) -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a flag; a second acts as usual.

    An exception raised in the middle of a compiled call or its compilation would be lost there, or worse. Such a call
    can take minutes, and no Python code runs in the main thread meanwhile. An `own_process`, which does nothing else,
    therefore ends at a second signal, or `PATIENCE` seconds after a first that nobody saw: what it has saved is whole
    at any moment, and the rest is done again. At the first signal it prints what to `say`.
    """
    asked, seen = False, threading.Event()

    def ask(number: int, _frame: Any) -> None:
        nonlocal asked
        asked = True
        if not own_process:
            signal.signal(number, before[signal.Signals(number)])

    def asked_to_stop() -> bool:
        if asked:
            seen.set()
        return asked

    try:
        before = {number: signal.signal(number, ask) for number in _SIGNALS}
    except ValueError:  # not in the main thread, which alone may listen to signals
        yield lambda: False
        return
    hear, tell = os.pipe()
    os.set_blocking(tell, False)
    wakeup = signal.set_wakeup_fd(tell) if own_process else -1
    watch = threading.Thread(target=_watch, args=(hear, seen, say), daemon=True)
    watch.start()
    try:
        yield asked_to_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if own_process:
            signal.set_wakeup_fd(wakeup)
        os.close(tell)  # the thread reads its end
        watch.join()
        os.close(hear)


def _watch(hear: int, seen: threading.Event, say: str) -> None:
    """Say that a signal came, also while the main thread is in a compiled call, and end the process if need be."""
    signals = 0
    while True:
        patience = None if signals == 0 or seen.is_set() else PATIENCE
        if not select.select([hear], [], [], patience)[0]:
            if seen.is_set():
                continue
            break
        number = os.read(hear, 1)
        if not number:
            return
        signals += number[0] in _SIGNALS
        if signals == 1 and say:
            print(f"\n{say}", file=sys.stderr, flush=True)
        elif signals > 1:
            break
    if say:
        print("\nstopped; run the same command to continue", file=sys.stderr, flush=True)
    os._exit(130)
