"""Adaptive replay for offline-to-online reinforcement learning.

`import arb` needs NumPy only. Agents, environments and host libraries live in sub-packages with extras of their own.
"""

from arb.buffer.batch import Batch
from arb.buffer.errors import DataError
from arb.buffer.likelihood import categorical_score, gaussian_score, tanh_gaussian_score
from arb.buffer.onpolicy import OnPolicy
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Mixed, Sampler, Uniform
from arb.buffer.selection import keep_best
from arb.buffer.sumtree import SumTree

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
