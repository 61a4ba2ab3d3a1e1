"""Adaptive replay for offline-to-online reinforcement learning.

`import arb` needs NumPy only. Agents, environments and host libraries live in sub-packages with extras of their own,
which are imported when they are first named: `arb.envs.make(...)`, `arb.adapters.sb3.ReplayBuffer`.
"""

import importlib
from typing import TYPE_CHECKING

from arb.buffer.episodes import keep_best
from arb.buffer.likelihood import categorical_score, gaussian_score, tanh_gaussian_score
from arb.buffer.onpolicy import OnPolicy
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Mixed, Sampler, Uniform
from arb.buffer.storage import Batch
from arb.buffer.sumtree import SumTree
from arb.errors import DataError

__version__ = "0.1.0"
__all__ = [
    "Batch",
    "DataError",
    "Mixed",
    "OnPolicy",
    "ReplayBuffer",
    "Sampler",
    "SumTree",
    "Uniform",
    "__version__",
    "categorical_score",
    "gaussian_score",
    "keep_best",
    "tanh_gaussian_score",
]

_PARTS = ("adapters", "agents", "data", "envs", "testing")

if TYPE_CHECKING:
    from arb import adapters as adapters
    from arb import agents as agents
    from arb import data as data
    from arb import envs as envs
    from arb import testing as testing
else:  # hidden from type checkers, for which it would make every name of this package exist

    def __getattr__(name):
        if name in _PARTS:
            return importlib.import_module(f"arb.{name}")
        raise AttributeError(f"module 'arb' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_PARTS})
