"""A process of our own that takes orders and answers them, one JSON object per line: both ends of its pipes."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

Order = Mapping[str, Any]
Answer = dict[str, Any]
Say = Callable[[Answer], None]


class Child:
    """The end of the one who gives the orders."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None):
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        own = {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                module,
                *arguments,
            ],  # modules of the current folder come last, or as they do here
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {}), **own},
            text=True,
            start_new_session=True,  # Ctrl-C is for the one who gives the orders
        )

    def order(self, order: Order) -> None:
        """Give an order; one to a dead process is lost."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def answers(self) -> Iterator[Answer]:
        """What it says, until it is gone."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # it ended in the middle of a word
            yield json.loads(line)

    def log(self) -> str:
        """What it wrote to standard error."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Ask it to save and stop."""
        self.process.terminate()

    def leave(self, seconds: float) -> None:
        """End its orders, and wait for it to end as well; after that many seconds, end it."""
        assert self.process.stdin is not None
        last = threading.Timer(seconds, self.process.kill)
        last.start()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        last.cancel()

    def close(self) -> None:
        """End it at once, if it has not ended."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def serve(at_end: Callable[[], None]) -> tuple[queue.Queue[Order | None], Say]:
    """The end of the process itself: the orders that arrive, with None at their end, and how to answer them.

    Args:
        at_end: called in another thread when the orders have ended.
    """
    answers, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)  # whatever else is printed must not get between the answers

    def say(answer: Answer) -> None:
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    orders: queue.Queue[Order | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(json.loads(line))
        orders.put(None)
        at_end()

    threading.Thread(target=listen, daemon=True).start()
    return orders, say
