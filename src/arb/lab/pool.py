"""Local workers: one process per core, each started on its core, restarted when it dies."""

import os
import queue
import signal
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from arb.lab.child import Answer, Child, Order
from arb.lab.machine import cores

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Worker(Child):
    """An `arb.lab.worker` on one core."""

    def __init__(self, core: int):
        with on_core(core):  # a child starts on its parent's cores, before it imports anything
            super().__init__("arb.lab.worker", environment=dict.fromkeys(_ONE_THREAD, "1"))

    def death(self) -> Answer:
        """The last answer of a worker that is gone, given in its place."""
        status = self.process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        hint = " (out of memory?)" if status == -signal.SIGKILL else ""
        return {"answer": "failed", "reason": f"its worker process {how}{hint}", "traceback": self.log()[-4000:]}


class Pool:
    """Seats for workers, one to a core; they start when they are needed."""

    stopping = "Saving a checkpoint of every run"

    def __init__(self, workers: int | None = None):
        self._cores = cores()
        self._seats: list[Worker | None] = [None] * (workers or len(self._cores))
        self._ears: dict[int, threading.Thread] = {}
        self._keys: dict[int, Hashable] = {}
        self._heard: queue.Queue[tuple[int, Worker, Answer | None]] = queue.Queue()
        self._stopping = False

    @property
    def size(self) -> int:
        """How many jobs it does at a time."""
        return len(self._seats)

    def seats(self) -> list[int]:
        """Seats that are free, those with a worker first."""
        free = [seat for seat in range(len(self._seats)) if seat not in self._keys]
        return sorted(free, key=lambda seat: self._seats[seat] is None)

    def give(self, seat: int, key: Hashable, order: Order) -> None:
        """Let the worker of a seat do something; its answers will come with the key."""
        worker = self._seats[seat]
        if worker is None:
            worker = self._seats[seat] = Worker(self._cores[seat % len(self._cores)])
            self._ears[seat] = threading.Thread(target=self._listen, args=(seat, worker), daemon=True)
            self._ears[seat].start()
        self._keys[seat] = key
        worker.order(order)

    def hear(self, timeout: float) -> list[tuple[Any, Answer]]:
        """Answers that have come, waiting a little for the first; a worker that died has failed."""
        found: list[tuple[Any, Answer]] = []
        with suppress(queue.Empty):
            while True:
                seat, worker, answer = self._heard.get(timeout=0 if found else timeout)
                if answer is None:
                    answer = worker.death()
                    worker.close()
                    self._seats[seat] = None
                    if self._stopping:
                        answer = {"answer": "stopped", "reason": "stopped before it began"}
                if seat not in self._keys:
                    continue
                key = self._keys[seat]
                if answer["answer"] != "told":
                    del self._keys[seat]
                found.append((key, answer))
        return found

    def stop(self) -> None:
        """Ask all to save and stop."""
        self._stopping = True
        for worker in filter(None, self._seats):
            worker.stop()

    def close(self) -> None:
        """End all of them."""
        for seat, worker in enumerate(self._seats):
            if worker is not None:
                worker.process.kill()
                self._ears[seat].join()  # hears the end of its pipe, which only then may be closed
                worker.close()

    def _listen(self, seat: int, worker: Worker) -> None:
        for answer in worker.answers():
            self._heard.put((seat, worker, answer))
        self._heard.put((seat, worker, None))


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run on one core inside the block, where the system can pin a process."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
