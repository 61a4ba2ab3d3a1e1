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

_HEADER = "header.json"


def write_state(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a header (anything JSON can hold) and arrays to one .npz file; an existing one is replaced at once."""
    path = Path(path)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_HEADER: text, **arrays})
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_state` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return json.loads(arrays.pop(_HEADER).tobytes()), arrays
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a saved replay buffer, or is damaged: {error}") from None
