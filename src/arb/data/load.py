"""Load a dataset from wherever it is: a task's name, a file, Minari, a bundled set, or a dict of arrays."""

import os
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from arb.data.columns import Data, Dataset, DataWarning, finish
from arb.data.contents import Contents
from arb.data.layouts import raw_columns
from arb.errors import DataError, near
from arb.tasks import SUITE, TASKS, find_task

Source = str | os.PathLike[str] | Mapping[str, Any]
BUNDLED = Path(__file__).parent / "bundled"


def load(source: Source, columns: str = "") -> Dataset:
    """The columns of a dataset, with `episode_ids`; defects that were worked around are warned of.

    Args:
        source: a D4RL task (`hopper-medium-v2`, fetched before with `arb data fetch`), a set of the suite
            (`suite:hopper-mixed`), a path ending in `.hdf5`, `.npz`, `.csv` or `.parquet`, the folder of a LeRobot
            dataset, `minari:mujoco/hopper/medium-v0`, `bundled:hopper-mixed`, or a dict of arrays with D4RL's keys.
        columns: where the file has other names, `observations=state,actions=command`. `a+b` joins two columns, a
            number makes a constant one. A source may carry it itself, after a question mark.
    """
    data = read(source, columns)
    for note in data.notes:
        warnings.warn(f"{data.source}: {note}", DataWarning, stacklevel=2)
    return data.columns


def read(source: Source, columns: str = "") -> Data:
    """As `load`, with where the data came from and what was repaired."""
    raw, name, attributes = read_raw(source, columns)
    return finish(raw, name, attributes)


def read_raw(source: Source, columns: str = "") -> tuple[Mapping[str, Any], str, dict[str, Any]]:
    """The columns as they stand in the file, unchecked, with the name of the source and its attributes."""
    if isinstance(source, Mapping):
        return source, "dataset", {}
    source, more = split_columns(os.fspath(source))
    kind, path = locate(source)
    if kind == "minari":
        from arb.data.minari import read_minari

        raw, attributes = read_minari(path)
        return raw, f"minari:{path}", attributes
    with _opened(kind, Path(path)) as contents:
        return raw_columns(contents, columns or more), path, contents.attributes


def attributes_of(source: Source) -> dict[str, Any]:
    """What a local file says about itself (its environment, its seed), without reading its columns; else nothing."""
    if isinstance(source, Mapping):
        return {}
    try:
        kind, path = locate(os.fspath(source), make=False)
        if kind not in ("hdf5", "npz"):
            return {}
        with _opened(kind, Path(path)) as contents:
            return contents.attributes
    except DataError:
        return {}


def split_columns(source: str) -> tuple[str, str]:
    """A source and the mapping of columns that it carries.

    >>> split_columns("log.hdf5?observations=state")
    ('log.hdf5', 'observations=state')
    """
    place, mark, columns = source.rpartition("?")
    return (place, columns) if mark and "=" in columns else (source, "")


def _opened(kind: str, path: Path) -> AbstractContextManager[Contents]:
    if kind == "npz":
        from arb.data.npz import open_npz

        return open_npz(path)
    if kind in ("csv", "lerobot"):
        from arb.data.tables import open_csv, open_lerobot

        return open_csv(path) if kind == "csv" else open_lerobot(path)
    try:
        from arb.data.hdf5 import open_hdf5
    except ImportError:
        raise DataError(f"{path}: reading HDF5 needs h5py: pip install 'arb-rl[train]'") from None
    return open_hdf5(path)


KINDS = {".hdf5": "hdf5", ".h5": "hdf5", ".npz": "npz", ".csv": "csv", ".parquet": "lerobot"}
"""By the end of a file's name."""


def locate(source: str, make: bool = True) -> tuple[str, str]:
    """What kind of source a string names (`hdf5`, `npz`, `csv`, `lerobot` or `minari`), and its path or name.

    A set of the suite is made if it is not there, unless `make` is false: then it is refused.
    """
    source, _ = split_columns(source)
    kind, colon, rest = source.partition(":")
    if colon and kind in ("hdf5", "npz", "csv", "lerobot", "minari"):
        return kind, rest
    if colon and kind == "bundled":
        return "hdf5", str(bundled(rest))
    if colon and kind == "suite":
        from arb.data.suite import made

        return "hdf5", str(made(source, make))
    if colon and kind == "ogbench":
        from arb.data.ogbench import ogbench_file

        return "hdf5", str(ogbench_file(source, make))
    if source.removeprefix("d4rl:") in TASKS or kind == "d4rl":
        return "hdf5", str(_fetched(source))
    suffix = Path(source).suffix.lower()
    if suffix in KINDS:
        return KINDS[suffix], source
    if Path(source, "meta", "info.json").is_file():
        return "lerobot", source
    known = [*TASKS, *SUITE, *(f"bundled:{name}" for name in bundled_names())]
    kinds = f": give a task, suite:NAME, a file ({', '.join(KINDS)}), a LeRobot folder, minari:NAME or bundled:NAME"
    raise DataError(f"{source!r} is not a dataset{near(source, known, 3) or kinds}")


def bundled_names() -> list[str]:
    """The datasets that come with the package."""
    return sorted(path.stem for path in BUNDLED.glob("*.hdf5"))


def bundled(name: str) -> Path:
    """The file of a dataset that comes with the package."""
    path = BUNDLED / f"{name}.hdf5"
    if not path.exists():
        raise DataError(f"no bundled dataset is called {name!r}; there are {', '.join(bundled_names())}")
    return path


def _fetched(name: str) -> Path:
    from arb.data.fetch import cached

    task = find_task(name)
    path = cached(task)
    if not path.exists():
        raise DataError(f"{task.name} is not here yet: run 'arb data fetch {task.name}', or put {task.file} at {path}")
    return path
