"""Timing on a noisy machine: the rivals take turns, and what counts is the median of the turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

import numpy as np

from arb.lab.machine import describe_machine, processor_text


def cpu_model() -> str:
    """The processor's name, family and model."""
    return processor_text(describe_machine())


def time_in_turns(
    rivals: Mapping[str, Callable[[], object]], turns: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, np.ndarray]:
    """Seconds of each turn of each rival; one turn of each before the next of any, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    gc.collect()
    for turn in range(turns + 1):
        for name, run in rivals.items():
            start = clock()
            run()
            if turn:
                seconds[name].append(clock() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with columns as wide as they need to be."""
    cells = [header, *rows]
    width = [max(len(row[i]) for row in cells) for i in range(len(header))]
    line = "|" + "|".join("-" * (w + 2) for w in width) + "|"
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)) + " |" for row in cells]
    return "\n".join([text[0], line, *text[1:]])
