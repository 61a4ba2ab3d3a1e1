"""Tables that grow while a run goes on, and that a resumed run cuts back to where its checkpoint was."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Table:
    """A CSV file with one header, appended to row by row; every row is on disk when `add` returns."""

    def __init__(self, path: Path):
        self.path = path
        self._columns: list[str] = []
        if path.exists():
            with path.open(newline="") as file:
                self._columns = next(csv.reader(file), [])

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row; the first one decides the columns."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._columns:
            self._columns = list(row)
            writer.writerow(self._columns)
        unknown = row.keys() - set(self._columns)
        if unknown:
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        writer.writerow([_shown(row.get(name, "")) for name in self._columns])
        with self.path.open("a", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Forget what was written after the first `size` bytes."""
        if size == 0:
            self.path.unlink(missing_ok=True)
            self._columns = []
        elif self.size > size:
            os.truncate(self.path, size)

    def rows(self) -> Iterator[dict[str, str]]:
        """The rows, as text by column."""
        if self.path.exists():
            with self.path.open(newline="") as file:
                yield from csv.DictReader(file)


def _shown(value: Any) -> Any:
    return repr(float(value)) if isinstance(value, float) else value
