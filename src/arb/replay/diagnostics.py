"""Figures that tell whether a sampling distribution does what one wants of it."""

import numpy as np
from numpy.typing import NDArray

from arb.replay.index import Ledger


def effective_sample_size(p: NDArray[np.float64]) -> float:
    """1 / Σp²: how many rows a uniform distribution of the same concentration would have.

    >>> effective_sample_size(np.array([0.5, 0.5, 0.0]))
    2.0
    """
    return float(1.0 / np.square(p).sum())


def relative_entropy(p: NDArray[np.float64]) -> float:
    """Entropy as a share of that of a uniform distribution: 1 if sampling is uniform, 0 if one row gets every draw.

    >>> relative_entropy(np.array([0.25, 0.25, 0.25, 0.25]))
    1.0
    """
    if len(p) == 1:
        return 1.0
    positive = p[p > 0.0]
    terms = np.log(positive)
    terms *= positive
    return float(-terms.sum() / np.log(len(p)))


def top_mass(mass: NDArray[np.float64], share: float = 0.01) -> float:
    """The part of the total that the heaviest `share` of the entries (at least one) hold.

    >>> top_mass(np.array([1.0, 2.0, 3.0, 4.0]), share=0.5)
    0.7
    """
    n = max(1, round(share * len(mass)))
    return float(np.partition(mass, len(mass) - n)[len(mass) - n :].sum() / mass.sum())


def describe(p: NDArray[np.float64], ledger: Ledger) -> dict[str, float]:
    """The statistics of a distribution over the rows 0..size-1 of a ledger."""
    online = ledger.is_online(np.arange(ledger.size))
    trajectory = ledger.trajectory[: ledger.size]
    mass = np.bincount(trajectory, weights=p, minlength=ledger.slots).astype(np.float64)
    mass = mass[np.bincount(trajectory, minlength=ledger.slots) > 0]
    size = effective_sample_size(p)
    return {
        "rows": float(ledger.size),
        "trajectories": float(len(mass)),
        "online_rows": float(online.mean()),
        "online_share": float(p[online].sum()),
        "effective_rows": size,
        "effective_share": size / ledger.size,
        "entropy": relative_entropy(p),
        "top_trajectories": top_mass(mass),
        "age": float(p @ (ledger.head - 1 - ledger.sequence(np.arange(ledger.size)))),
    }
