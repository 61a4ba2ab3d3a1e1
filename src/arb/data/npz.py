"""Datasets in NumPy's `.npz`: D4RL's keys, one array each; `observations/name` makes a dict of observations."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arb.buffer.dataset import OPTIONAL, REQUIRED
from arb.data.columns import refuse_missing
from arb.errors import DataError


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw columns of a file; it is never unpickled. Scalars and strings under other keys become attributes."""
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as problem:
        raise DataError(f"{path}: not a readable npz file ({problem})") from None
    names: list[str] = []
    columns: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    with archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            head, _, key = name.partition("/")
            names.append(head)
            if head in REQUIRED or head in OPTIONAL:
                column = _read(archive, member, name, path)
                if key:
                    columns.setdefault(head, {})[key] = column
                else:
                    columns[head] = column
            elif member.file_size < 1 << 16:
                value = _read(archive, member, name, path, any_kind=True)
                if value.ndim == 0 or name in ("action_low", "action_high"):
                    attributes[name] = value.tolist()
    refuse_missing(str(path), names)
    return columns, attributes


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, path: Path, any_kind: bool = False) -> Any:
    # A broken archive can make these parsers raise anything; whatever it is, this member is not readable.
    try:
        with archive.open(member) as stream:
            shape, dtype = _header(stream)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size <= member.file_size and not dtype.hasobject and (any_kind or dtype.kind in "fiub"):
            with archive.open(member) as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
    except Exception as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise DataError(f"{path}: {name} cannot be read ({reason})") from None
    if size > member.file_size:
        raise DataError(f"{path}: {name} claims shape {shape}, more than the {member.file_size:,} bytes it has")
    raise DataError(f"{path}: {name} holds {dtype}, not numbers")


def _header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    file: BinaryIO = stream
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
