"""Reading and writing files: a file appears whole or not at all, and nothing that is read is executed.

Every file is written under a temporary name and renamed. Arrays are stored without pickle, everything else as JSON.
"""

import csv
import fcntl
import hashlib
import io
import json
import math
import os
import platform
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError

Arrays = dict[str, NDArray[Any]]
_HEADER = "header.json"
_LARGEST_JSON = 1 << 26


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there at the end of the block, removed if the block fails.

    The content is on disk before the name is, so that not even a power cut leaves half a file under it. Folders above
    are made where they are missing; the temporary name ends like the real one, for writers that go by the suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.stem}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _host() -> str:
    """Where process ids mean the same: a machine, or a container on it."""
    names = Path("/proc/self/ns/pid")
    return f"{platform.node()}+{names.stat().st_ino if names.exists() else 0}"


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes of this machine left of the same file."""
    begins, ends = f".{path.stem}.{_host()}-", f".part{path.suffix}"
    for entry in os.scandir(path.parent):
        process = entry.name.removeprefix(begins).partition("-")[0]
        if entry.name.startswith(begins) and entry.name.endswith(ends) and process.isdigit():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                Path(entry.path).unlink(missing_ok=True)
            except OSError:  # somebody else's
                continue


def check_folder(folder: Path) -> None:
    """Raise a `DataError` if a place for a folder is a file, or lies below one."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise DataError(f"{there} is a file, not a folder: choose another with --out")


def check_writable(path: Path) -> None:
    """Raise a `DataError` for a file that cannot be written, before the work that it is to hold."""
    there = next((place for place in path.absolute().parents if place.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        raise DataError(f"{path} cannot be written: {there} is read-only; choose another place")


def write_text(path: Path, text: str) -> None:
    """Write a small text file, replacing it at once."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text)


def read_json(path: Path) -> Any:
    """The content of a JSON file; what cannot be read as one is a `DataError`."""
    check_regular_file(path)
    if path.stat().st_size > _LARGEST_JSON:
        raise DataError(f"{path} is larger than any file of this kind: it is damaged, or not one")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{path} is damaged, or not JSON ({problem})") from None


def check_regular_file(path: Path) -> None:
    """Raise a `DataError` for a pipe, a socket or a device, which could be read for ever."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a regular file")


@contextmanager
def locked(path: Path, message: str = "") -> Iterator[None]:
    """Hold a lock file for the time of the block; a second process waits, or with a message is refused.

    The system lets go of it when the process ends, however it ends, so the file that stays behind locks nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
        except BlockingIOError:
            raise DataError(message) from None
        yield


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name; one that would need a pickle is refused."""
    columns: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    for name, column in columns.items():
        if column.dtype.hasobject:
            raise TypeError(f"{path}: {name} holds Python objects, not numbers")
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **columns)


def flattened(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Named groups as one dict, with keys `group/name`."""
    return {f"{part}/{key}": value for part, group in parts.items() for key, value in group.items()}


def grouped(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inverse of `flattened`; what belongs to no group is passed over."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, slash, key = name.partition("/")
        if slash:
            parts.setdefault(part, {})[key] = value
    return parts


def digest(values: Any, arrays: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, as JSON, and of arrays by their names, types, shapes and bytes."""
    found = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        array = np.asarray(value)
        found.update(f"{name}:{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def write_state(path: str | os.PathLike[str], header: Mapping[str, Any], parts: Mapping[str, Arrays]) -> None:
    """Write a header (anything JSON can hold) and named groups of arrays to one .npz file, with a checksum."""
    arrays = flattened(parts)
    saved = json.dumps({"checksum": digest(header, arrays), "header": header})
    write_npz(Path(path), {_HEADER: np.frombuffer(saved.encode(), np.uint8), **arrays})


def read_npz(path: Path, most: float = math.inf) -> Arrays:
    """The arrays of an .npz file; nothing is unpacked if they have more bytes than `most`."""
    check_regular_file(path)
    with path.open("rb") as opened:
        try:
            if sum(part.file_size for part in zipfile.ZipFile(opened).infolist()) > most:
                raise DataError("too large")
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except Exception:  # a broken archive can make its parsers raise anything
            raise DataError(f"{path} is damaged, or was not saved by this library") from None


def read_state(path: str | os.PathLike[str], most: float = math.inf) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """Read what `write_state` wrote; a file without its checksum, or with another content, is refused."""
    arrays = read_npz(Path(path), most)
    try:
        saved = json.loads(arrays.pop(_HEADER).tobytes())
    except (KeyError, ValueError, RecursionError):
        raise DataError(f"{path} is damaged, or was not saved by this library") from None
    if not isinstance(saved, dict) or "checksum" not in saved:
        raise DataError(f"{path} has no checksum: it is damaged, or was saved by another version")
    header: dict[str, Any] = saved.get("header", {})
    if saved["checksum"] != digest(header, arrays):
        raise DataError(f"{path} is damaged: it is not what was written; save it again, or start again")
    return header, grouped(arrays)


class GrowingTable:
    """A CSV file with one header, appended to row by row; every row is on disk when `add` returns.

    A resumed run truncates it to where its checkpoint was.
    """

    def __init__(self, path: Path):
        self.path = path
        self._columns: list[str] = []
        if path.is_file():
            try:
                with path.open(newline="", encoding="utf-8") as file:
                    self._columns = next(csv.reader(file), [])
            except (csv.Error, UnicodeDecodeError) as problem:
                raise DataError(f"{path} cannot be read: {problem}") from None

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Append rows in one piece; the first one ever decides the columns."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            if not self._columns:
                self._columns = list(row)
                writer.writerow(self._columns)
            unknown = row.keys() - set(self._columns)
            if unknown:
                raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
            row = {name: repr(float(value)) if isinstance(value, float) else value for name, value in row.items()}
            writer.writerow([row.get(name, "") for name in self._columns])
        with self.path.open("a", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns; none before the first row."""
        return tuple(self._columns)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def truncate(self, size: int) -> None:
        """Forget what was written after the first `size` bytes."""
        if size == 0:
            self.path.unlink(missing_ok=True)
            self._columns = []
        elif self.size > size:
            os.truncate(self.path, size)

    def rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every row as text by column, after a name for its place; a row that was cut off is refused."""
        if not self.path.exists():
            return
        check_regular_file(self.path)
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file, restkey="?", strict=True)
                for row in reader:
                    place = f"{self.path}, line {reader.line_num}"
                    if None in row.values() or "?" in row:
                        raise DataError(f"{place}: {len(reader.fieldnames or ())} columns expected")
                    yield place, row
        except (csv.Error, UnicodeDecodeError, OSError) as problem:
            raise DataError(f"{self.path} cannot be read: {problem}") from None
