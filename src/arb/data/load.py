"""Load a dataset from wherever it is: a task's name, a file, Minari, a bundled set, or a dict of arrays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from arb.data.columns import Data, Dataset, DataWarning, finish
from arb.errors import DataError
from arb.tasks import TASKS, find_task

Source = str | os.PathLike[str] | Mapping[str, Any]
BUNDLED = Path(__file__).parent / "bundled"


def load(source: Source) -> Dataset:
    """The columns of a dataset, with `episode_ids`; defects that were worked around are warned of.

    A source is a D4RL task (`hopper-medium-v2`, fetched before with `arb data fetch`), a path ending in `.hdf5` or
    `.npz`, `minari:mujoco/hopper/medium-v0`, `bundled:hopper-mixed`, or a dict of arrays with D4RL's keys.
    """
    data = read(source)
    for note in data.notes:
        warnings.warn(f"{data.source}: {note}", DataWarning, stacklevel=2)
    return data.columns


def read(source: Source) -> Data:
    """As `load`, with where the data came from and what was repaired."""
    raw, name, attributes = read_raw(source)
    return finish(raw, name, attributes)


def read_raw(source: Source) -> tuple[Mapping[str, Any], str, dict[str, Any]]:
    """The columns as they stand in the file, unchecked, with the name of the source and its attributes."""
    if isinstance(source, Mapping):
        return source, "dataset", {}
    kind, path = locate(os.fspath(source))
    if kind == "minari":
        from arb.data.minari import read_minari

        columns, attributes = read_minari(path)
        return columns, f"minari:{path}", attributes
    if kind == "npz":
        from arb.data.npz import read_npz

        columns, attributes = read_npz(Path(path))
    else:
        try:
            from arb.data.hdf5 import read_hdf5
        except ImportError:
            raise DataError(f"{path}: reading HDF5 needs h5py: pip install 'arb-rl[train]'") from None
        columns, attributes = read_hdf5(Path(path))
    return columns, path, attributes


def locate(source: str) -> tuple[str, str]:
    """What kind of source a string names (`hdf5`, `npz` or `minari`), and its path or name."""
    kind, colon, rest = source.partition(":")
    if colon and kind in ("hdf5", "npz", "minari"):
        return kind, rest
    if colon and kind == "bundled":
        return "hdf5", str(bundled(rest))
    if colon and kind == "suite":
        from arb.data.suite import made

        return "hdf5", str(made(source))
    if colon and kind == "stand-in":
        from arb.data.standin import stand_in

        return "hdf5", str(stand_in(rest))
    if source.removeprefix("d4rl:") in TASKS or kind == "d4rl":
        return "hdf5", str(_fetched(source))
    suffix = Path(source).suffix.lower()
    if suffix in (".hdf5", ".h5"):
        return "hdf5", source
    if suffix == ".npz":
        return "npz", source
    near = get_close_matches(source, [*TASKS, *(f"bundled:{name}" for name in bundled_names())], n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "a task, .hdf5, .npz, minari:NAME or bundled:NAME is wanted"
    )
    raise DataError(f"{source!r} is no dataset: {hint}")


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

    try:
        task = find_task(name)
    except KeyError as problem:
        raise DataError(str(problem.args[0])) from None
    path = cached(task)
    if not path.exists():
        raise DataError(f"{task.name} is not here yet: run 'arb data fetch {task.name}', or put {task.file} at {path}")
    return path
