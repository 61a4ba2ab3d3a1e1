"""Adaptive replay for offline-to-online reinforcement learning."""

from arb.buffer.batch import Batch

__version__ = "0.1.0"
__all__ = ["Batch", "__version__"]
