"""Files to episodes: loading, checking, shaping, fetching and collecting datasets.

Importing this package imports NumPy only; readers of HDF5 and Minari, and everything that needs an environment, are
imported when they are used.
"""

from arb.data.audit import Audit, audit
from arb.data.columns import Data, Dataset, DataWarning, borders, episode_returns, fingerprint
from arb.data.load import bundled_names, load, read
from arb.data.scores import Reference, normalised
from arb.data.shaping import Shaping, fit, rule_for
from arb.data.tasks import TASKS, Task, find_task

__all__ = [
    "TASKS",
    "Audit",
    "Data",
    "DataWarning",
    "Dataset",
    "Reference",
    "Shaping",
    "Task",
    "audit",
    "borders",
    "bundled_names",
    "episode_returns",
    "find_task",
    "fingerprint",
    "fit",
    "load",
    "normalised",
    "read",
    "rule_for",
]
