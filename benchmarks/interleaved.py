"""Timing on a noisy machine: the rivals take turns, and what counts is the median of the turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

import numpy as np


def time_in_turns(rivals: Mapping[str, Callable[[], object]], turns: int = 5) -> dict[str, np.ndarray]:
    """Seconds of each turn of each rival; one turn of each before the next of any, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    gc.collect()
    for turn in range(turns + 1):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with columns as wide as they need to be."""
    cells = [header, *rows]
    width = [max(len(row[i]) for row in cells) for i in range(len(header))]
    line = "|" + "|".join("-" * (w + 2) for w in width) + "|"
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)) + " |" for row in cells]
    return "\n".join([text[0], line, *text[1:]])
