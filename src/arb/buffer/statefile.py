"""A file of arrays and plain values, written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.buffer.errors import DataError
from arb.buffer.wholefile import whole

Arrays = dict[str, NDArray[Any]]

_HEADER = "header.json"


def flattened(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Named groups as one dict, with keys `group/name`.

    >>> flattened({"a": {"x": 1}, "b": {"x": 2, "y": 3}})
    {'a/x': 1, 'b/x': 2, 'b/y': 3}
    """
    return {f"{part}/{key}": value for part, group in parts.items() for key, value in group.items()}


def grouped(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inverse of `flattened`; what belongs to no group is passed over."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, slash, key = name.partition("/")
        if slash:
            parts.setdefault(part, {})[key] = value
    return parts


def write_state(path: str | os.PathLike[str], header: Mapping[str, Any], parts: Mapping[str, Arrays]) -> None:
    """Write a header (anything JSON can hold) and named groups of arrays to one .npz file, replacing it at once."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with whole(Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: text, **flattened(parts)})


def read_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """Read what `write_state` wrote."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(file[_HEADER].tobytes())
            return header, grouped(file)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a saved replay buffer, or is damaged: {error}") from None
