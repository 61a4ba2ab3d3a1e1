"""Adaptive replay for offline-to-online reinforcement learning.

`import arb` needs NumPy only. Agents, environments and host libraries live in sub-packages with extras of their own,
which are imported when they are first named: `arb.envs.make(...)`, `arb.adapters.sb3.ReplayBuffer`. So are the
functions that do what the commands do: `arb.run`, `arb.compare`, `arb.sweep`, `arb.make_report`.
"""

import importlib
from typing import TYPE_CHECKING

from arb.errors import DataError
from arb.replay.arb import ARB
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset, keep_best
from arb.replay.robot import Recorder, limited
from arb.replay.samplers import Annealed, Mixed, Prioritized, Recent, Sampler, Uniform
from arb.replay.scores import (
    categorical_score,
    distance_score,
    flow_score,
    gaussian_score,
    sample_score,
    tanh_gaussian_score,
)
from arb.replay.sequences import Hindsight
from arb.replay.storage import Batch

__version__ = "0.1.0"
__all__ = [
    "ARB", "Annealed", "Batch", "DataError", "Dataset", "Hindsight", "Mixed", "Prioritized", "Recent",
    "Recorder", "ReplayBuffer", "Sampler", "Uniform", "__version__", "categorical_score", "compare", "distance_score",
    "flow_score", "gaussian_score", "keep_best", "limited", "load_dataset", "load_policy", "make_report", "run",
    "sample_score", "sweep", "tanh_gaussian_score",
]  # fmt: skip

_PARTS = ("adapters", "agents", "data", "envs", "lab", "paper", "policies", "report", "suite", "testing")
_LAZY = {
    "compare": "arb.api", "load_dataset": "arb.suite.datasets", "load_policy": "arb.policies",
    "make_report": "arb.report.page", "run": "arb.api", "sweep": "arb.api",
}  # fmt: skip
"""Public names by the module that defines them."""

if TYPE_CHECKING:
    from arb import adapters as adapters
    from arb import agents as agents
    from arb import data as data
    from arb import envs as envs
    from arb import lab as lab
    from arb import paper as paper
    from arb import policies as policies
    from arb import report as report
    from arb import suite as suite
    from arb import testing as testing
    from arb.api import compare as compare
    from arb.api import run as run
    from arb.api import sweep as sweep
    from arb.policies import load_policy as load_policy
    from arb.report.page import make_report as make_report
    from arb.suite.datasets import load_dataset as load_dataset
else:  # hidden from type checkers, for which it would make every name of this package exist

    def __getattr__(name):
        if name not in _PARTS and name not in _LAZY:
            raise AttributeError(f"module 'arb' has no attribute {name!r}")
        try:
            module = importlib.import_module(_LAZY.get(name, f"arb.{name}"))
        except ModuleNotFoundError as missing:
            if (missing.name or "arb").partition(".")[0] == "arb":
                raise
            extra = "report" if name == "make_report" else "train"
            text = f"arb.{name} needs the package {missing.name}: pip install 'arb-rl[{extra}]'"
            raise AttributeError(text) from missing  # so that help(arb) and hasattr(arb, ...) work without it
        return getattr(module, name) if name in _LAZY else module

    def __dir__():
        return sorted({*globals(), *_PARTS, *_LAZY})
