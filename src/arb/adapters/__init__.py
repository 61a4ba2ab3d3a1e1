"""ARB inside other people's libraries: one module per host, each with its own extra; none is imported by another.

A module is imported when it is first named: `arb.adapters.sb3` then needs Stable-Baselines3.
"""

import importlib
from typing import TYPE_CHECKING

import numpy as np

_HOSTS = ("cleanrl", "d3rlpy", "sb3", "torchrl")

if TYPE_CHECKING:
    from arb.adapters import cleanrl as cleanrl
    from arb.adapters import d3rlpy as d3rlpy
    from arb.adapters import sb3 as sb3
    from arb.adapters import torchrl as torchrl
else:  # hidden from type checkers, for which it would make every name of this package exist

    def __getattr__(name):
        if name in _HOSTS:
            return importlib.import_module(f"arb.adapters.{name}")
        raise AttributeError(f"module 'arb.adapters' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_HOSTS})


def seed_sequence(seed: int | None) -> np.random.SeedSequence:
    """The seed given, or a number from NumPy's global stream, which many hosts and scripts seed alone."""
    return np.random.SeedSequence(np.random.randint(2**31) if seed is None else seed)  # noqa: NPY002 - see above
