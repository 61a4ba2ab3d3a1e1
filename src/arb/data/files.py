"""Files of arrays, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from arb.buffer.wholefile import whole


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Arrays by name; one that would need a pickle is refused."""
    columns: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    for name, column in columns.items():
        if column.dtype.hasobject:
            raise TypeError(f"{path}: {name} holds Python objects, not numbers")
    with whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **columns)
