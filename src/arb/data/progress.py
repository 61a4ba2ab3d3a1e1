"""Progress on long work: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 15.0


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to tell how much is done; nothing but standard error is written to."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:
            pass
        else:
            with Progress(console=Console(stderr=True)) as bar:
                row = bar.add_task(label, total=total)
                yield lambda done: bar.update(row, completed=done)
            return
    started = last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY_SECONDS:
            last = now
            print(f"{label}: {done:,} of {total:,} ({done / max(total, 1):.0%})", file=sys.stderr, flush=True)

    yield tell
    print(f"{label}: done in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
