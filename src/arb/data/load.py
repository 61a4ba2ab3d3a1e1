"""Load a dataset from wherever it is (a task's name, a file, Minari, a bundled set, a dict of arrays); convert files.

A new file format is one row of `FORMATS`.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from arb.data.columns import Data, Dataset, DataWarning, finish
from arb.data.contents import Contents
from arb.data.episodes import make_dataset
from arb.data.fetch import bundled, bundled_names, fetched
from arb.data.formats import read_columns
from arb.data.layouts import raw_columns
from arb.data.tasks import SUITE, TASKS
from arb.errors import DataError, suggest

Source = str | os.PathLike[str] | Mapping[str, Any]


def load(source: Source, columns: str = "") -> Dataset:
    """The columns of a dataset, with `episode_ids`; defects that were worked around are warned of.

    Args:
        source: a D4RL task (`hopper-medium-v2`, fetched before with `arb data fetch`), a set of the suite
            (`suite:hopper-mixed`), a path ending in `.hdf5`, `.npz`, `.csv` or `.parquet`, the folder of a LeRobot
            dataset, `minari:mujoco/hopper/medium-v0`, `bundled:hopper-mixed`, or a dict of arrays with D4RL's keys.
        columns: where the file has other names, `observations=state,actions=command`. `a+b` joins two columns, a
            number makes a constant one. A source may carry it itself, after a question mark.
    """
    data = read(source, columns)
    for note in data.notes:
        warnings.warn(f"{data.source}: {note}", DataWarning, stacklevel=2)
    return data.columns


def read(source: Source, columns: str = "") -> Data:
    """As `load`, with where the data came from and what was repaired."""
    raw, name, attributes = read_raw(source, columns)
    return finish(raw, name, attributes)


def read_raw(source: Source, columns: str = "") -> tuple[Mapping[str, Any], str, dict[str, Any]]:
    """The columns as they stand in the file, unchecked, with the name of the source and its attributes."""
    if isinstance(source, Mapping):
        return source, "dataset", {}
    source, more = split_columns(os.fspath(source))
    kind, path = locate(source)
    if kind == "minari":
        from arb.data.minari import read_minari

        raw, attributes = read_minari(path)
        return raw, f"minari:{path}", attributes
    with _opened(kind, Path(path)) as contents:
        return raw_columns(contents, columns or more), path, contents.attributes


def attributes_of(source: Source) -> dict[str, Any]:
    """What a local file says about itself (its environment, its seed), without reading its columns; else nothing."""
    if isinstance(source, Mapping):
        return {}
    try:
        kind, path = locate(os.fspath(source), make=False)
        if kind not in _KINDS or not _KINDS[kind].writer:
            return {}
        with _opened(kind, Path(path)) as contents:
            return contents.attributes
    except DataError:
        return {}


def split_columns(source: str) -> tuple[str, str]:
    """A source and the mapping of columns that it carries.

    >>> split_columns("log.hdf5?observations=state")
    ('log.hdf5', 'observations=state')
    """
    place, mark, columns = source.rpartition("?")
    return (place, columns) if mark and "=" in columns else (source, "")


# ---- formats and places ----------------------------------------------------------------------------------------------
class Format(NamedTuple):
    """How files whose names end alike are read and written, by functions of this package, imported when needed."""

    kind: str
    opener: str
    writer: str = ""
    """Empty for what is read only. What is also written can say its environment; folders of runs drop its suffix."""


_HDF5 = Format("hdf5", "hdf5:open_hdf5", "hdf5:write_hdf5")
FORMATS: Mapping[str, Format] = {
    ".hdf5": _HDF5,
    ".h5": _HDF5,
    ".npz": Format("npz", "npz:open_npz", "npz:write_as_npz"),
    ".csv": Format("csv", "tables:open_csv"),
    ".parquet": Format("lerobot", "tables:open_lerobot"),
}
"""By the end of a file's name."""
_KINDS = {row.kind: row for row in FORMATS.values()}


def _function(where: str) -> Any:
    module, _, name = where.partition(":")
    try:
        return getattr(import_module(f"arb.data.{module}"), name)
    except ImportError:
        raise DataError("reading and writing HDF5 needs h5py: pip install 'arb-rl[train]'") from None


def _opened(kind: str, path: Path) -> AbstractContextManager[Contents]:
    contents: AbstractContextManager[Contents] = _function(_KINDS[kind].opener)(path)
    return contents


def _suite(source: str, make: bool) -> Path:
    from arb.suite.datasets import made

    return made(source, make)


def _ogbench(source: str, make: bool) -> Path:
    from arb.suite.ogbench import ogbench_file

    return ogbench_file(source, make)


PLACES: Mapping[str, Callable[[str, bool], Path]] = {
    "bundled": lambda source, _: bundled(source.partition(":")[2]),
    "suite": _suite,
    "ogbench": _ogbench,
    "d4rl": lambda source, _: fetched(source),
}
"""From the word before the colon to the HDF5 file; it is made if it is not there and can be made."""


def _split(source: str) -> tuple[str, str]:
    """The word before the colon, if there is one, and the rest; the names of D4RL's tasks do without."""
    word, colon, rest = source.partition(":")
    return (word, rest) if colon else ("d4rl" if source in TASKS else "", source)


def locate(source: str, make: bool = True) -> tuple[str, str]:
    """What kind of source a string names (the kind of a format, or `minari`), and its path or name.

    A set of the suite is made if it is not there, unless `make` is false: then it is refused.
    """
    source, _ = split_columns(source)
    word, rest = _split(source)
    if word in _KINDS or word == "minari":
        return word, rest
    if word in PLACES:
        return "hdf5", str(PLACES[word](source, make))
    if row := FORMATS.get(Path(source).suffix.lower()):
        return row.kind, source
    if Path(source, "meta", "info.json").is_file():
        return "lerobot", source
    known = [*TASKS, *SUITE, *(f"bundled:{name}" for name in bundled_names())]
    kinds = f": give a task, suite:NAME, a file ({', '.join(FORMATS)}), a LeRobot folder, minari:NAME or bundled:NAME"
    raise DataError(f"{source!r} is not a dataset{suggest(source, known, 3) or kinds}")


def is_source(text: str) -> bool:
    """Whether a text has the form of a source; nothing is opened, made or looked up.

    >>> [is_source(text) for text in ("my.csv", "suite:hopper-mixed", "hopper-medium-v2", "schedule.online")]
    [True, True, True, False]
    """
    return _split(text)[0] in (*_KINDS, *PLACES, "minari") or Path(text).suffix.lower() in FORMATS


def without_suffix(name: str) -> str:
    """A file's name as folders of runs have it.

    >>> without_suffix("my.hdf5"), without_suffix("my.csv")
    ('my', 'my.csv')
    """
    return next((name.removesuffix(end) for end, row in FORMATS.items() if row.writer and name.endswith(end)), name)


def place_of(source: Source, make: bool = True) -> str:
    """The file of a source, or `minari:NAME`, with the columns it carries."""
    place, columns = split_columns(os.fspath(source))
    kind, path = locate(place, make)
    return f"{'minari:' * (kind == 'minari')}{path}{'?' * bool(columns)}{columns}"


def open_source(source: Source, columns: str = "") -> Any:
    """The dataset of a source, without warnings."""
    place = place_of(source)
    raw, attributes = read_columns(place, columns)
    return make_dataset(raw, split_columns(place)[0], attributes)


# ---- writing ---------------------------------------------------------------------------------------------------------
Writer = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], None]


def writer_for(out: Path) -> Writer:
    """How a file of this name is written: columns and attributes, whole or not at all."""
    written = {end: row.writer for end, row in FORMATS.items() if row.writer}
    if out.suffix.lower() not in written:
        raise DataError(f"{out}: a dataset is written to a name ending in {', '.join(written)}")
    write: Writer = _function(written[out.suffix.lower()])
    return write


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
