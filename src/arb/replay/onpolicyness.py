"""Equations 3 and 4 of the ARB paper.

Weights are kept as logarithms in float64: at λ = 0.1 the weights of two rows may differ by a factor of 1e48.
"""

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

    Equation 4 raises the geometric mean of the on-policyness of a trajectory's steps to the power 1/λ. In logarithms
    this is the mean of the trajectory's `log_onpolicyness`, divided by λ. Every row of the trajectory has this weight.

    >>> group_mean(np.array([0.0, -2.0, -11.0]), np.array([0, 0, 2]), 3) / 0.5
    array([ -2.,  nan, -22.])
    """
    total = np.bincount(group, weights=values, minlength=groups)
    count = np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count, dtype=np.float64)
