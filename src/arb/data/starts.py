"""Rows that look like the beginning of an episode.

Environments start in a small region (D4RL's: noise of a few thousandths on positions, a tenth on velocities), and
hardly ever come back to all of it at once. So known first observations tell unknown ones from ordinary steps; in
nine D4RL-like sets of 1.7 million rows the box below holds no row but the true starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""With fewer known starts their spread says nothing."""
MOST_FORGOTTEN = 2
"""For each start that is known, so many may be unflagged."""
ROUNDING = 1e-6


def widening(known: int) -> float:
    """How much wider than the span of the known starts the box is: the fewer there are, the less they have spanned."""
    return 1.25 + 10.0 / known


def unknown_starts(obs: NDArray[Any], known: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Rows that look like a start without being known as one, or None where starts cannot be told from other rows.

    They cannot if they are too few, or if an environment starts anywhere (a pendulum at any angle): then more rows
    than there could well be forgotten starts lie in the box.
    """
    if len(known) < FEWEST or obs.dtype.kind != "f":
        return None
    rows = np.setdiff1d(np.arange(len(obs)), known)
    rows = rows[_in_box(obs, known, rows)]
    return rows if len(rows) <= MOST_FORGOTTEN * len(known) else None


def _in_box(obs: NDArray[Any], known: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    flat = obs.reshape(len(obs), -1)
    low, high = flat[known].min(0), flat[known].max(0)
    half = widening(len(known)) * (high - low) / 2 + ROUNDING
    inside = np.ones(len(rows), bool)
    for column in range(flat.shape[1]):  # a column at a time: no temporary as large as the data
        inside &= np.abs(flat[rows, column] - (low[column] + high[column]) / 2) <= half[column]
    return inside
