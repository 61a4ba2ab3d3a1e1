"""Datasets written to files, and other people's files rewritten in D4RL's layout."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arb.data.columns import Data
from arb.data.load import Source, read
from arb.data.npz import write_as_npz
from arb.errors import DataError


def _write_hdf5(out: Path, columns: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    from arb.data.hdf5 import write_hdf5

    write_hdf5(out, columns, attributes)


Writer = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], None]
WRITERS: Mapping[str, Writer] = {".hdf5": _write_hdf5, ".h5": _write_hdf5, ".npz": write_as_npz}


def writer_for(out: Path) -> Writer:
    """How a file of this name is written: columns and attributes, whole or not at all."""
    try:
        return WRITERS[out.suffix.lower()]
    except KeyError:
        raise DataError(f"{out}: a dataset is written to a name ending in {', '.join(WRITERS)}") from None


def convert(source: Source, out: Path, columns: str = "", env: str = "") -> Data:
    """Read a dataset, find its episodes, and write it in D4RL's layout.

    Args:
        source: whatever `arb.data.load` reads.
        out: the file to write, HDF5 or npz.
        columns: the names in the source, `observations=state,actions=command`, see `arb.data.load`.
        env: the Gymnasium id to note in the file, where the source names none.
    """
    write = writer_for(out)
    data = read(source, columns)
    attributes = {key: value for key, value in data.attributes.items() if isinstance(value, str | int | float)}
    write(out, data.columns, {**attributes, **({"env": env} if env else {}), "converted_from": data.source})
    return data
