"""Tables: CSV files, and LeRobot's folders of Parquet files."""

import csv
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from arb.data.contents import Array, Contents, Leaf, first_line, refuse_too_large, size_of
from arb.errors import DataError

MOST_COLUMNS = 10_000
LONGEST_LINE = 1 << 20
LEROBOT = {
    "observation.state": "observations",
    "action": "actions",
    "next.reward": "rewards",
    "next.success": "terminals",
    "episode_index": "episode_ids",
}
"""LeRobot's names. `next.done` is not among them: it ends every episode, whether the task was over or time was up."""
_NUMBERED = re.compile(r"(.+?)[._\[ ]?(\d+)\]?")


@contextmanager
def open_csv(path: Path) -> Iterator[Contents]:
    """A table with a line of names. `state_0, state_1, ...` (also `state.0`, `state[0]`) make one column `state`.

    Each of them can also be named alone, to join other columns or leave some out.
    """
    size = size_of(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            names = [name.strip() for name in next(csv.reader([file.readline(LONGEST_LINE)]), [])]
        if not names or len(names) > MOST_COLUMNS:
            raise DataError(f"{path}: the first line must name the columns, at most {MOST_COLUMNS:,} of them")
        refuse_too_large(str(path), 8 * size, size)  # a number takes at least a digit and a comma
        table = _numbers(path)
    except DataError:
        raise
    except (OSError, ValueError, csv.Error, RecursionError, MemoryError) as problem:
        raise DataError(f"{path}: not a table of numbers with a line of names ({first_line(problem)})") from None
    if table.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names in the first line, {table.shape[1]} numbers in the others")
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(name if (match := _NUMBERED.fullmatch(name)) is None else match[1], []).append(number)
    leaves = {}
    for name, numbers in groups.items():
        whole = table[:, numbers[0]] if len(numbers) == 1 and names[numbers[0]] == name else table[:, numbers]
        leaves[name] = _leaf(_integers(whole))
    for number, name in enumerate(names):
        leaves.setdefault(name, _leaf(_integers(table[:, number])))
    yield Contents(str(path), size, leaves)


def _numbers(path: Path) -> Array:
    def read(**more: Any) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a table without rows, which is refused later
            return np.loadtxt(  # with an encoding, as converters get bytes without one before NumPy 2
                path, np.float64, delimiter=",", skiprows=1, ndmin=2, comments=None, encoding="utf-8", **more
            )

    try:
        return read()
    except ValueError:  # ten times slower, and able to read True and False
        return read(converters=_value)


def _value(text: str) -> float:
    words = {"true": 1.0, "false": 0.0}
    return words[text.strip().lower()] if text.strip().lower() in words else float(text)


def _integers(column: Array) -> Array:
    """Whole numbers as integers where all of them are: discrete actions and episode numbers have no other type here."""
    with np.errstate(invalid="ignore"):
        whole = column.astype(np.int64)
    return whole if column.ndim == 1 and (whole == column).all() else column.astype(np.float32)


def _leaf(column: Array) -> Leaf:
    return Leaf(column.shape, column.dtype, lambda: column)


@contextmanager
def open_lerobot(folder: Path) -> Iterator[Contents]:
    """A LeRobot dataset of version 3 (or 2): the numbers of its Parquet files; images and videos are left out."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(f"{folder}: reading Parquet needs pyarrow: pip install 'arb-rl[lerobot]'") from None
    found = (sorted(folder.glob(pattern)) for pattern in ("data/**/*.parquet", "*.parquet"))
    files = next(filter(None, found), []) if folder.is_dir() else [folder]
    if not files:
        raise DataError(f"{folder}: no Parquet files (data/chunk-000/file-000.parquet) are in this folder")
    sizes = [size_of(file) for file in files]
    try:
        opened = [parquet.ParquetFile(file) for file in files]
        schema = opened[0].schema_arrow
        declared = sum(
            group.total_byte_size
            for file in opened
            for group in (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
        )
        refuse_too_large(str(folder), declared, sum(sizes))
        rows = sum(file.metadata.num_rows for file in opened)
        numeric = [field.name for field in schema if _numeric(field.type)]
        table: dict[str, list[Array]] = {name: [] for name in numeric}
        for file in opened:
            part = file.read(columns=numeric)
            for name in numeric:
                table[name].append(_array(part[name]))
        leaves = {name: _leaf(np.concatenate(parts)) for name, parts in table.items()}
    except DataError:
        raise
    except Exception as problem:  # a broken file can make its parsers raise anything
        raise DataError(f"{folder}: its Parquet files cannot be read ({first_line(problem)})") from None
    if rows == 0:
        raise DataError(f"{folder}: the Parquet files have no rows")
    leaves |= {ours: leaves[theirs] for theirs, ours in LEROBOT.items() if theirs in leaves and ours not in leaves}
    yield Contents(str(folder), sum(sizes), leaves, _about(folder))


def _numeric(kind: Any) -> bool:
    import pyarrow as pa

    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _array(column: Any) -> Array:
    """A column of numbers or of lists of equal length."""
    rows, shape = len(column), []
    flat = column.combine_chunks()
    while hasattr(flat, "flatten") and hasattr(flat.type, "value_type"):
        before, flat = len(flat), flat.flatten()
        if before == 0 or len(flat) % before:
            raise DataError("lists of unequal length")
        shape.append(len(flat) // before)
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(rows, *shape)


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "meta" / "info.json"
    try:
        if size_of(path) > 1 << 20:
            return {}
        info = json.loads(path.read_text())
        return {
            key: info[key] for key in ("robot_type", "fps", "codebase_version") if isinstance(info.get(key), str | int)
        }
    except (DataError, OSError, ValueError, AttributeError, RecursionError):
        return {}
