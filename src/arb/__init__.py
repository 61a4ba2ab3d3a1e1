"""Adaptive replay for offline-to-online reinforcement learning.

`import arb` needs NumPy only. Agents, environments and host libraries live in sub-packages with extras of their own,
which are imported when they are first named: `arb.envs.make(...)`, `arb.adapters.sb3.ReplayBuffer`. So are the
functions that do what the commands do: `arb.run`, `arb.compare`, `arb.sweep`, `arb.load`, `arb.report`.
"""

import importlib
from typing import TYPE_CHECKING

from arb.errors import DataError
from arb.replay.arb import ARB
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset, keep_best
from arb.replay.samplers import Mixed, Sampler, Uniform
from arb.replay.scores import categorical_score, gaussian_score, tanh_gaussian_score
from arb.replay.storage import Batch
from arb.replay.sumtree import SumTree

__version__ = "0.1.0"
__all__ = [
    "ARB",
    "Batch",
    "DataError",
    "Dataset",
    "Mixed",
    "ReplayBuffer",
    "Sampler",
    "SumTree",
    "Uniform",
    "__version__",
    "categorical_score",
    "compare",
    "gaussian_score",
    "keep_best",
    "load",
    "report",
    "run",
    "sweep",
    "tanh_gaussian_score",
]  # fmt: skip

_PARTS = ("adapters", "agents", "data", "envs", "report", "testing")
_COMMANDS = ("compare", "load", "run", "sweep")

if TYPE_CHECKING:
    from arb import adapters as adapters
    from arb import agents as agents
    from arb import data as data
    from arb import envs as envs
    from arb import testing as testing
    from arb.api import compare as compare
    from arb.api import load as load
    from arb.api import run as run
    from arb.api import sweep as sweep
    from arb.report import report as report
else:  # hidden from type checkers, for which it would make every name of this package exist

    def __getattr__(name):
        if name in _PARTS:
            return importlib.import_module(f"arb.{name}")
        if name in _COMMANDS:
            return getattr(importlib.import_module("arb.api"), name)
        raise AttributeError(f"module 'arb' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_PARTS, *_COMMANDS})
