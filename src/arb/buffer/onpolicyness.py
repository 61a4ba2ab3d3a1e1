"""Equations 3 and 4 of the ARB paper, and the estimate of their trajectory mean from part of the rows.

Everything is in log space and float64: at λ = 0.1 the weights of two rows may differ by a factor of 1e48.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]


def log_onpolicyness(score: Floats, low: float, high: float) -> NDArray[np.float64]:
    """Equation 3: the clipped log-likelihood minus its maximum, so the result is at most 0.

    >>> log_onpolicyness(np.array([-1.0, -3.0, -50.0]), low=-12.0, high=7.0)
    array([  0.,  -2., -11.])
    """
    clipped = np.clip(score, low, high).astype(np.float64)
    return np.asarray(clipped - clipped.max())


def group_mean(values: Floats, group: Ints, groups: int) -> NDArray[np.float64]:
    """Mean of the values of each group; nan for a group without values.

    >>> group_mean(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 2]), 3)
    array([ 2., nan, 10.])
    """
    total = np.bincount(group, weights=values, minlength=groups)
    count = np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count, dtype=np.float64)


def trajectory_log_weight(
    log_onp: Floats, trajectory: Ints, trajectories: int, temperature: float
) -> NDArray[np.float64]:
    """Equation 4, per trajectory: the geometric mean of the on-policyness of its steps, to the power 1/λ, in logs.

    Every row of a trajectory carries this weight.

    >>> trajectory_log_weight(np.array([0.0, -2.0, -11.0]), np.array([0, 0, 1]), 2, temperature=0.5)
    array([ -2., -22.])
    """
    return group_mean(log_onp, trajectory, trajectories) / temperature


def transition_log_weight(log_onp: Floats, temperature: float) -> NDArray[np.float64]:
    """The paper's ablation: every row is weighted by its own on-policyness alone.

    >>> transition_log_weight(np.array([0.0, -2.0]), temperature=0.5)
    array([ 0., -4.])
    """
    return np.asarray(log_onp, dtype=np.float64) / temperature


def mean_after_partial_scoring(known_mean: Floats, change: Floats, group: Ints) -> NDArray[np.float64]:
    """Estimate every group's mean score when only some of its rows were scored anew.

    The estimate is the mean of the last known scores plus the mean change over the freshly scored rows: a SAGA
    control variate (Defazio et al. 2014). It is unbiased for rows chosen at random, and nearly exact because a
    policy, and with it the change, moves little between two refreshes. A group without a fresh row keeps its mean.

    Args:
        known_mean: per group, the mean of the last known scores, before this refresh.
        change: per freshly scored row, new score minus last known score.
        group: per freshly scored row, its group.

    >>> mean_after_partial_scoring(np.array([-2.0, -5.0]), change=np.array([0.5, 1.5]), group=np.array([0, 0]))
    array([-1., -5.])
    """
    return np.asarray(known_mean + np.nan_to_num(group_mean(change, group, len(known_mean))), dtype=np.float64)
