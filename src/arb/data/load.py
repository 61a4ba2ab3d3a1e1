"""Names that the lab still uses; this module goes when it takes a `Dataset`."""

import os
from collections.abc import Mapping
from typing import Any

from arb.data.formats import read_attributes, read_columns, split_columns, without_suffix
from arb.errors import DataError

__all__ = ["attributes_of", "locate", "read_raw", "split_columns", "without_suffix"]


def locate(source: str, make: bool = True) -> tuple[str, str]:
    from arb.suite.datasets import locate

    place = split_columns(locate(source, make))[0]
    return ("minari", place.removeprefix("minari:")) if place.startswith("minari:") else ("file", place)


def read_raw(source: Any, columns: str = "") -> tuple[Mapping[str, Any], str, dict[str, Any]]:
    from arb.suite.datasets import locate

    place = locate(source)
    raw, attributes = read_columns(place, columns)
    return raw, split_columns(place)[0], attributes


def attributes_of(source: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        kind, path = locate(os.fspath(source), make=False)
        return read_attributes(path) if kind == "file" and path.endswith((".hdf5", ".h5", ".npz")) else {}
    except DataError:
        return {}
