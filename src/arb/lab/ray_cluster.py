"""The same jobs as tasks of Ray: each works in a scratch folder of its node and hands its result to the driver.

Nothing but Ray connects the machines; no storage need be shared. A task does at most a slice of some minutes, saves and
returns its folder, and it is sent on from there. When a node dies, Ray repeats the task elsewhere, and at most that
slice is lost. A run ends in the same bytes however often it was cut.
"""

import itertools
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.lab.child import Answer, Child, Order
from arb.lab.ray_driver import LEAVE_SECONDS, silence
from arb.lab.ray_node import unpack

CONNECT_SECONDS, START_SECONDS = 90.0, 300.0
"""To connect to Ray, and to start it on a busy machine."""
SILENT_SECONDS = 120.0
"""Without a word from the driver, which speaks every 5 s, until the head is taken to be gone."""
_LONGEST_TEMPORARY = 40
"""Characters of a folder in which Ray can still name its sockets."""


class RayCluster:
    """Takes orders as a `Pool` does; Ray keeps the queue."""

    stopping = "Cancelling the tasks; what they did since their last slice is lost"

    def __init__(self, address: str | None, slice_seconds: float = 300.0):
        address = address or os.environ.get("RAY_ADDRESS") or ""
        problem = silence(address)
        if problem:
            raise DataError(f"no Ray cluster answers at {address}: {problem}")
        self._slice, self._stopping = slice_seconds, False
        self._failure: Exception | None = None
        self._underway: dict[int, tuple[Hashable, Order]] = {}
        self._numbers = itertools.count()
        place = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(prefix="arb-", dir=place if len(place) < _LONGEST_TEMPORARY else "/tmp")
        self._driver = Child("arb.lab.ray_driver", address, self._folder)
        self._heard: queue.Queue[Answer | None] = queue.Queue()
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()
        try:
            self._head, self.size = self._connected(address)
        except BaseException:  # Ctrl-C among them
            self.close()
            raise
        self._spoke = time.monotonic()

    def seats(self) -> Iterator[int]:
        """There is always one more: Ray begins a task when a core is free."""
        return itertools.repeat(0)

    def give(self, _seat: int, key: Hashable, order: Order) -> None:
        """Send an order."""
        number = next(self._numbers)
        self._underway[number] = (key, order)
        self._driver.order({"kind": "task", "number": number, "order": {**order, "seconds": self._slice}})

    def hear(self, timeout: float) -> list[tuple[Any, Answer]]:
        """Answers by the key of their job, and `notice`s of lost nodes by none; a slice of a longer run is sent on."""
        found: list[tuple[Any, Answer]] = []
        with suppress(queue.Empty):
            while True:
                said = self._heard.get(timeout=0.0 if found else timeout)
                if said is None:
                    self._failure = self._failure or self._gone()
                    break
                self._spoke = time.monotonic()
                if said["answer"] == "notice":
                    found.append((None, said))
                elif said["answer"] == "result":
                    found += self._taken_in(said)
                elif said["answer"] != "alive":
                    self._failure = _failure(said)
        if time.monotonic() - self._spoke > SILENT_SECONDS:
            self._failure = self._failure or self._gone()
        if self._failure and not found:  # what was found is taken in first
            raise self._failure
        return found

    def stop(self) -> None:
        """Cancel all tasks: what they did since their last slice is lost."""
        self._stopping = True
        self._driver.order({"kind": "stop"})

    def close(self) -> None:
        """Leave the cluster; end one that was started here."""
        self._driver.leave(LEAVE_SECONDS)
        self._ear.join()  # hears the end of its pipe, which only then may be closed
        self._driver.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        for answer in self._driver.answers():
            self._heard.put(answer)
        self._heard.put(None)

    def _connected(self, address: str) -> tuple[str, int]:
        """The address of the head, and the cores of the cluster."""
        seconds = CONNECT_SECONDS if address else START_SECONDS
        try:
            said = self._heard.get(timeout=seconds)
        except queue.Empty:
            said = {"answer": "refused", "reason": f"it does not answer within {seconds:g} s"}
        if said is not None and said["answer"] == "connected":
            return said["head"], said["size"]
        raise DataError(refused(address, said["reason"] if said else "", self._driver.log()))

    def _taken_in(self, said: Answer) -> list[tuple[Any, Answer]]:
        """The answers of a task; what it hands over is put in its place."""
        key, order = self._underway.pop(said["number"])
        *told, last = said["answers"]
        archive, folder = Path(said["archive"]).read_bytes(), Path(order["folder"])
        Path(said["archive"]).unlink()
        if "kept" in last:
            unpack(archive, Path(order["cache"]) / last["kept"])
            shutil.rmtree(folder, ignore_errors=True)
        elif archive:
            unpack(archive, folder)
        if last["answer"] == "stopped" and not self._stopping:
            self.give(0, key, order)
            return [(key, answer) for answer in told]
        return [(key, answer) for answer in (*told, last)]

    def _gone(self) -> DataError:
        return DataError(
            f"the head of the Ray cluster at {self._head} is gone; finished slices are saved: start Ray again "
            "and run the same command to continue"
        )


def refused(address: str, reason: str, log: str) -> str:
    """Why Ray could not be had, in one line."""
    if "AuthToken" in reason + log or "uthentication" in reason + log:
        return (
            f"the Ray cluster at {address} refuses this token: export the RAY_AUTH_MODE and RAY_AUTH_TOKEN with which "
            "its head was started (docs/sweep.md)"
        )
    where = f"the Ray cluster at {address} cannot be used" if address else "Ray does not start on this machine"
    said = reason.split() or (log.splitlines() or ["it does not say why"])[-1].split()
    return f"{where}: {' '.join(said)}"


def _failure(said: Answer) -> Exception:
    """The last answer of a driver that could not go on."""
    if said["answer"] == "trouble":
        return OSError(*said["problem"])
    if said["answer"] == "refused":
        return DataError(f"{said['reason']}; finished slices are saved: run the same command to continue")
    return RuntimeError(f"the process that talks to Ray failed:\n{said['traceback']}")
