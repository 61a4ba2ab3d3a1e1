"""Where one trajectory ends and the next begins, in data that does not say so.

Two rules, because the paper's text and its code differ on data that passes through a goal without stopping:

* `"resets"` (default): a trajectory ends where the environment was reset: at a time limit, at a jump in the
  observations (seen only if next observations are known), or at a terminal step, unless the data shows that it went
  on there. D4RL's AntMaze flags every step near the goal as terminal and walks on; such a trajectory stays whole.
* `"terminals"`: the rule of the paper's release, in which any terminal flag ends a trajectory as well; AntMaze then
  has many trajectories of a single step.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from arb.buffer.batch import Array
from arb.buffer.dataset import Leaves, Transitions

Rule = Literal["resets", "terminals"]
JUMP = 1e-6
"""Observations further apart than this (Euclidean distance) are not the same; the value of the paper's release."""

_CHUNK = 1 << 16


def differs(a: Leaves, b: Leaves, tolerance: float = JUMP) -> NDArray[np.bool_]:
    """Per row, whether two observations differ: floats by Euclidean distance, anything else at all."""
    return np.asarray(np.logical_or.reduce([_leaf_differs(a[key], b[key], tolerance) for key in a]))


def episode_ends(data: Transitions, rule: Rule = "resets") -> NDArray[np.bool_]:
    """Per row, whether it is the last of its trajectory."""
    if rule not in ("resets", "terminals"):
        raise ValueError(f'the border rule is "resets" or "terminals", not {rule!r}')
    ends = np.zeros(len(data), bool)
    ends[-1] = True
    if data.episode is not None:
        ends[:-1] |= data.episode[1:] != data.episode[:-1]
    else:
        if data.truncated is not None:
            ends |= data.truncated
        ends |= _jumps(data)
        ends |= data.terminated & ~_goes_on(data, ends)
    return ends | data.terminated if rule == "terminals" else ends


def _jumps(data: Transitions) -> NDArray[np.bool_]:
    """Per row, whether the next row does not start where this one led to; never, where that is unknown."""
    jump = np.zeros(len(data), bool)
    if data.next_obs is not None:
        for start in range(0, len(data) - 1, _CHUNK):
            stop = min(start + _CHUNK, len(data) - 1)
            led_to = {key: column[start:stop] for key, column in data.next_obs.items()}
            begins = {key: column[start + 1 : stop + 1] for key, column in data.obs.items()}
            jump[start:stop] = differs(led_to, begins)
    return jump


def _goes_on(data: Transitions, known_ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Per terminal row, whether the data shows that no reset followed.

    A file as recorded (it has `timeouts`) settles it by its next observations: if they are the next row's, the
    episode went on. Without them, or after D4RL's `qlearning_dataset` has put the following row there in any case,
    look at the step to the next row: if no coordinate moves further than it does in ordinary steps, it was one.
    That test is trusted only if it recognises the resets that are known from elsewhere.
    """
    terminal = np.flatnonzero(data.terminated[:-1])
    verdict = np.zeros(len(data), bool)
    if len(terminal) == 0:
        return verdict
    if data.next_obs is not None and data.truncated is not None:
        verdict[terminal] = ~known_ends[terminal]
        return verdict
    known = np.flatnonzero(known_ends[:-1])
    ordinary = np.flatnonzero(~known_ends[:-1] & ~data.terminated[:-1])
    floats = [column for column in data.obs.values() if column.dtype.kind == "f"]
    if len(known) == 0 or len(ordinary) == 0 or len(floats) < len(data.obs):
        return verdict
    usual = [_step(column, ordinary).max(0) for column in floats]

    def looks_ordinary(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        calm = [(_step(column, rows) <= limit).all(1) for column, limit in zip(floats, usual, strict=True)]
        return np.asarray(np.logical_and.reduce(calm))

    if looks_ordinary(known).mean() < 0.1:
        verdict[terminal] = looks_ordinary(terminal)
    return verdict


def _step(column: Array, rows: NDArray[np.intp]) -> Array:
    return np.asarray(np.abs(column[rows + 1] - column[rows]).reshape(len(rows), -1))


def _leaf_differs(a: Array, b: Array, tolerance: float) -> NDArray[np.bool_]:
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    if a.dtype.kind != "f":
        return np.asarray((a != b).any(1))
    gap = a - b
    return np.asarray(np.einsum("ij,ij->i", gap, gap) > tolerance**2)
