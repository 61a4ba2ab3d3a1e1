"""Files to datasets: reading, writing, checking and fetching them.

Importing this package imports NumPy only; readers of HDF5, Parquet and Minari, and everything that needs an
environment, are imported when they are used.
"""

from arb.data.audit import Audit, audit
from arb.data.episodes import DataWarning
from arb.data.fetch import bundled_names
from arb.data.formats import read_dataset, write_dataset
from arb.data.tasks import TASKS, Reference, Task, find_task, normalised

__all__ = [
    "TASKS", "Audit", "DataWarning", "Reference", "Task", "audit", "bundled_names", "find_task", "normalised",
    "read_dataset", "write_dataset",
]  # fmt: skip
