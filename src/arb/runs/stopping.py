"""Being asked to stop: a signal becomes a flag that is looked at between two pieces of work."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):  # noqa: N818 - not an error
    """The run was asked to stop, has saved what it did, and will go on from there."""


@contextmanager
def stoppable(say: str = "") -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a flag, and says so if there is something to say; a second acts as usual.

    An exception raised in the middle of a compiled call or its compilation would be lost there, or worse.
    """
    asked = False

    def ask(number: int, _frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, before[signal.Signals(number)])
        if say:
            print(f"\n{say}", file=sys.stderr, flush=True)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone may listen to signals
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
