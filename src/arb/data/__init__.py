"""Files to episodes: loading, checking, fetching and collecting datasets.

Importing this package imports NumPy only; readers of HDF5 and Minari, and everything that needs an environment, are
imported when they are used.
"""

from arb.data.audit import Audit, audit
from arb.data.columns import Data, Dataset, DataWarning, borders, episode_returns, fingerprint
from arb.data.fetch import bundled_names
from arb.data.load import attributes_of, load, read
from arb.data.tasks import TASKS, Reference, Task, find_task, normalised

__all__ = [
    "TASKS", "Audit", "Data", "DataWarning", "Dataset", "Reference", "Task", "attributes_of", "audit", "borders",
    "bundled_names", "episode_returns", "find_task", "fingerprint", "load", "normalised", "read",
]  # fmt: skip
