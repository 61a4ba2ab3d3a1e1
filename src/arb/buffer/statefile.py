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


def write_state(path: str | os.PathLike[str], header: Mapping[str, Any], parts: Mapping[str, Arrays]) -> None:
    """Write a header (anything JSON can hold) and named groups of arrays to one .npz file, replacing it at once."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    arrays = {f"{part}/{key}": array for part, group in parts.items() for key, array in group.items()}
    with whole(Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: text, **arrays})


def read_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """Read what `write_state` wrote."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(file[_HEADER].tobytes())
            parts: dict[str, Arrays] = {}
            for name in file.files:
                part, slash, key = name.partition("/")
                if slash:
                    parts.setdefault(part, {})[key] = file[name]
        return header, parts
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a saved replay buffer, or is damaged: {error}") from None
