"""Being asked to stop: a signal becomes a flag that is looked at between two pieces of work."""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

PATIENCE = 5.0
"""Seconds after which a process of its own ends, if nobody has looked at the flag."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 - not an error
    """The run was asked to stop, has saved what it did, and will continue from there."""


@contextmanager
def stoppable(say: str = "", own_process: bool = False) -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a flag; a second acts as usual.

    An exception raised in the middle of a compiled call or its compilation would be lost there, or worse. Such a call
    can take minutes, and no Python code runs in the main thread meanwhile. A process that does nothing else may
    therefore end at once: what it has saved is whole at any moment, and the rest is done again.

    Args:
        say: what to print at the first signal, in a process of its own.
        own_process: whether to end the process at a second signal, or `PATIENCE` seconds after a first that nobody saw.
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
    try:
        with _watched(seen, say) if own_process else nullcontext():
            yield asked_to_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _watched(seen: threading.Event, say: str) -> Iterator[None]:
    """A thread that hears of signals also while the main thread is in a compiled call."""
    hear, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell)
    watch = threading.Thread(target=_watch, args=(hear, seen, say), daemon=True)
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(tell)  # the thread reads its end
        watch.join()
        os.close(hear)


def _watch(hear: int, seen: threading.Event, say: str) -> None:
    """Say that a signal came, and end the process if that does not help."""
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
