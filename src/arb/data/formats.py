"""Files to `Dataset` and back: HDF5, npz, CSV and Parquet, in the layouts of D4RL, OGBench, robomimic, Minari, LeRobot.

A file is listed first: names, shapes and types of its arrays. Then the arrays that make a dataset are chosen, their
size is compared with the file's and with free memory, and only then are they read. Nothing in a file is executed,
unpickled or imported, and no other file is opened because of it.

A new format is a row of `FORMATS`; a new layout is a function from a `Listing` to columns with D4RL's names.
"""

import csv
import io
import itertools
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from arb.data.episodes import STATE, DataWarning, make_dataset
from arb.errors import DataError, suggest
from arb.files import atomic_write, read_state, write_npz
from arb.replay.dataset import OPTIONAL, REQUIRED, TIMEOUTS, Array, Dataset, leaves, single_precision, unwrapped
from arb.replay.index import ONLINE

Source = str | os.PathLike[str]
KNOWN = (*REQUIRED, *OPTIONAL)
SYNONYMS = (*TIMEOUTS, "done", "dones")  # flags that `Dataset.from_dict` understands, or refuses: always handed on
# fmt: off
OTHER_NAMES = {
    "observations": ("obs", "observation", "observation.state", "state", "states"),
    "actions": ("act", "action", "acts", "command", "commands"),
    "rewards": ("rew", "reward", "rews", "next.reward"),
    "terminals": ("terminal", "terminated", "terminations", "done", "dones", "next.success"),
    "timeouts": ("timeout", "truncated", "truncations", "truncation", "is_truncated"),
    "next_observations": ("next_obs", "next_observation", "next_state", "next_states"),
    "episode_ids": ("episode", "episode_id", "episode_index", "episodes"),
}
"""What columns are called elsewhere: for hints, and for the layouts below."""
MISSING = {
    "rewards": "record one number per step, or give a column or a constant for it: --columns rewards=NAME or rewards=0",
    "terminals": "mark the steps that ended the task, or say with --columns terminals=0 that none did",
}
"""What to do about a column that no other name stands for."""
OURS = {other: name for name, others in OTHER_NAMES.items() for other in others}
LEROBOT = ("observation.state", "action", "next.reward", "next.success", "episode_index")
"""Names that are understood without a mapping. `next.done` is not: it ends every episode, also when time was up."""
IN_EPISODES = ("obs", "next_obs", "dones", "terminations", "truncations")
"""The same inside an episode of robomimic and of Minari."""
# fmt: on
PICKLES = (".pkl", ".pickle")
PICKLED = (
    "holds pickled objects, which are never loaded here. Convert a file of yours that you trust: "
    "old = np.load(FILE, allow_pickle=True); steps = [len(e) for e in old[old.files[0]]]; np.savez('new.npz', "
    "episode_ids=np.repeat(np.arange(len(steps)), steps), **{k: np.concatenate([*v]) for k, v in old.items()})"
)
MOST_ENTRIES, MOST_COLUMNS, LONGEST_LINE = 200_000, 10_000, 1 << 20
MOST_NAMES = 20  # of a file, in an error message
MOST_TEXT = 1 << 16  # bytes of an attribute; longer ones are left out
MOST_COMPRESSED = 100  # recorded data shrinks by less (D4RL's by 1.1 to 4): a file that unpacks to more is broken
ALWAYS_FINE = 1 << 26  # bytes that may be unpacked from a file of any size


@dataclass(frozen=True)
class Listing:
    """The arrays of a file by their names (`group/name`), before they are read, and its attributes."""

    path: str
    size: int  # of the file, in bytes
    arrays: dict[str, Any]
    """Arrays, or things like them that `[()]` reads. A text instead is the reason why an array cannot be read."""
    attributes: dict[str, Any] = field(default_factory=dict)

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Some of the arrays, floats as float32, after a check of how large they are together."""
        found = {name: self.arrays[name] for name in names}
        for name, array in found.items():
            if isinstance(array, str):
                raise DataError(f"{self.path}: {name} {array}")
            if array.dtype.kind not in "fiub":
                raise DataError(f"{self.path}: {name} holds {array.dtype}, not numbers")
            check_size(self.path, _nbytes(array), self.size, f"{name} of shape {array.shape}")
        check_size(self.path, sum(map(_nbytes, found.values())), self.size)
        for name, array in found.items():
            convert = array.dtype.kind == "f" and array.dtype != np.float32
            with one_line(f"{self.path}: {name} cannot be read"), np.errstate(over="ignore"):
                found[name] = single_precision(np.asarray(array.astype(np.float32)[()] if convert else array[()]))
        return found


# ---- reading ---------------------------------------------------------------------------------------------------------
def read_dataset(path: Source, columns: str = "") -> Dataset:
    """Read a dataset from a file; its provenance holds the file's attributes, and its repairs, each a `DataWarning`.

    Args:
        path: a file (`.hdf5`, `.h5`, `.npz`, `.csv`, `.parquet`), the folder of a LeRobot dataset, or `minari:NAME`.
            It may carry `columns` after a question mark.
        columns: names in the file, `observations=state,actions=command`. `a+b` joins two columns, a number makes a
            constant one.
    """
    raw, attributes = read_columns(path, columns)
    dataset = make_dataset(raw, split_columns(path)[0], attributes)
    for note in dataset.provenance.get("repaired", ()):
        warnings.warn(f"{dataset.provenance['source']}: {note}", DataWarning, stacklevel=2)
    return dataset


def read_columns(path: Source, columns: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a file under D4RL's names, unchecked, and its attributes."""
    path, carried = split_columns(path)
    if path.startswith("minari:"):
        return _read_minari(path.removeprefix("minari:"))
    mapping = parse_columns(columns or carried)
    with _open(path) as listing:
        if "header.json" in listing.arrays and path.endswith(".npz"):  # written by `Dataset.save` or a buffer's
            saved = _read_saved(path)
            return saved.to_dict(), dict(saved.provenance)
        read = _read_episodes if any(map(_EPISODE.match, listing.arrays)) else _read_flat
        return read(listing, mapping), listing.attributes


def read_attributes(path: Source) -> dict[str, Any]:
    """What a file says about itself (its environment, its seed), without reading its columns."""
    path, _ = split_columns(path)
    with _open_npz(Path(path), 2 * MOST_TEXT) if path.lower().endswith(".npz") else _open(path) as listing:
        return dict(_read_saved(path).provenance) if "header.json" in listing.arrays else listing.attributes


def _read_saved(path: str) -> Dataset:
    """What `Dataset.save` or `ReplayBuffer.save` wrote; of a buffer, its rows episode by episode, the oldest first."""
    header, parts = read_state(path)
    if "storage" not in parts:
        return Dataset.load(path)
    with one_line(f"{path}: not the whole of a saved buffer"):
        held, index = parts["storage"], parts["index"]
        capacity, added, _ = index["counters"].tolist()
        order = np.arange(max(header["since"], added - capacity, 0), added)
        ids, firsts, episode, steps = np.unique(
            index["episode_ids"][order % capacity], return_index=True, return_inverse=True, return_counts=True
        )
        rows, episodes = np.argsort(firsts[episode], kind="stable"), np.argsort(firsts)
        spans = np.searchsorted(index["origin.start"], order, side="right") - 1
        names = [name.removeprefix("final.") for name in held if name.startswith("final.")]
        extras = {name[6:]: column[rows] for name, column in held.items() if name.startswith("extra.")}
        return Dataset(
            observations=unwrapped({name: held[f"column.obs{'.' * bool(name)}{name}"][rows] for name in names}),
            actions=held["column.action"][rows],
            rewards=held["column.reward"][rows],
            terminals=held["column.terminated"][rows],
            lengths=steps[episodes],
            final_observations=unwrapped({name: held[f"final.{name}"][ids[episodes]] for name in names}),
            extras=extras | {"online": index["origin.code"][spans][rows] == ONLINE},
        )


def split_columns(path: Source) -> tuple[str, str]:
    """A path and the mapping of columns that it carries, as in `log.hdf5?observations=state`."""
    place, mark, columns = os.fspath(path).rpartition("?")
    return (place, columns) if mark and "=" in columns else (os.fspath(path), "")


def parse_columns(text: str) -> dict[str, tuple[str, ...]]:
    """A mapping from columns to the names they are joined from; a number stands for a constant column.

    >>> parse_columns("observations=position+velocity,actions=command,terminals=0")
    {'observations': ('position', 'velocity'), 'actions': ('command',), 'terminals': ('0',)}
    """
    found = {}
    for entry in filter(None, text.split(",")):
        name, equals, sources = (part.strip() for part in entry.partition("="))
        if name not in KNOWN:
            raise DataError(f"--columns {entry}: {name!r} is not one of {', '.join(KNOWN)}{suggest(name, KNOWN)}")
        if not equals or not all(sources.split("+")):
            raise DataError(f"--columns {entry}: write {name}=NAME, or {name}=NAME+NAME to join several")
        found[name] = tuple(source.strip() for source in sources.split("+"))
    return found


def _open(path: str) -> AbstractContextManager[Listing]:
    suffix = Path(path).suffix.lower()
    opener = _open_parquet if Path(path, "meta", "info.json").is_file() else FORMATS.get(suffix)
    if suffix in PICKLES:
        raise DataError(
            f"{path}: a pickle can run code, so it is never loaded here. Convert one that you trust: "
            "log = pickle.load(open(FILE, 'rb')); np.savez('log.npz', observations=..., actions=..., rewards=..., "
            "terminals=..., timeouts=...), with dones instead of terminals for a buffer of Stable-Baselines3"
        )
    if opener is None:
        raise DataError(f"{path} is not a dataset: give a file ({', '.join(FORMATS)}) or a LeRobot folder")
    return opener(Path(path))


# ---- layouts ---------------------------------------------------------------------------------------------------------
def _read_flat(listing: Listing, mapping: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """One array per column: D4RL, OGBench, tables."""
    arrays = listing.arrays
    lerobot = {OURS[name]: (name,) for name in LEROBOT if name in arrays}
    sources = lerobot | {name: (name,) for name in KNOWN if _parts(listing, name)} | dict(mapping)
    for source in (source for names in mapping.values() for source in names if not _is_number(source)):
        if not _parts(listing, source):
            raise DataError(f"{listing.path}: there is no {source!r}{suggest(source, arrays)}; {_contents(listing)}")
    sb3 = {"dones", "timeouts"} <= arrays.keys() and "terminals" not in sources
    sources |= {"terminals": ("dones",)} if sb3 else {}
    _check_missing(listing, sources)
    parts = {source: _parts(listing, source) for names in sources.values() for source in names}
    chosen = {one for tree in parts.values() for names in tree.values() for one in names}
    rows = next((arrays[one].shape[:1] for one in sorted(chosen) if hasattr(arrays[one], "shape")), ())
    used = chosen | {one for head in map(_head, chosen & arrays.keys()) for one in _numbered(arrays, head)}
    extras = {
        name
        for name, array in arrays.items()
        if name not in used and name.partition("/")[0] not in (*KNOWN, "infos", "metadata") and hasattr(array, "shape")
        if (array.shape[:1] == rows != () and array.dtype.kind in "fiub") or name in SYNONYMS
    }
    state = {name for name in STATE if all(one in arrays for one in STATE) and "next_observations" not in sources}
    data = listing.read(sorted(chosen | extras | state))

    def values(source: str) -> Any:
        if _is_number(source):
            return np.full(rows, float(source), np.float32)
        found = {}
        for part, names in parts[source].items():
            stacked = names != [source] and not part
            found[part] = single_precision(np.stack([data[name] for name in names], 1)) if stacked else data[names[0]]
        return unwrapped(found)

    def column(name: str) -> Any:
        found = [values(source) for source in sources[name]]
        if len(found) == 1:
            return found[0]
        if any(isinstance(part, dict) or part.shape[:1] != rows for part in found):
            raise DataError(f"{listing.path}: the columns joined to {name} must be arrays with the same number of rows")
        return np.concatenate([part.reshape(len(part), -1) for part in found], 1)

    columns = {name: column(name) for name in sources} | {name: data[name] for name in extras | state}
    if sb3 and "terminals" not in mapping:
        return _of_environments(columns)
    return columns if "masks" not in columns or "terminals" in mapping else _with_masks(columns)


def _of_environments(columns: dict[str, Any]) -> dict[str, Any]:
    """The arrays of Stable-Baselines3's buffer: `dones` include time limits; rows may have an axis of environments."""
    parts = {name: leaves(column) for name, column in columns.items() if name != "dones"}
    if all(part.ndim >= 2 for column in parts.values() for part in column.values()):
        parts = {
            name: {key: np.swapaxes(part, 0, 1).reshape(-1, *part.shape[2:]) for key, part in column.items()}
            for name, column in parts.items()
        }
    ended, limits = (parts[name][""] != 0 for name in ("terminals", "timeouts"))
    return {**{name: unwrapped(column) for name, column in parts.items()}, "terminals": ended & ~limits}


def _parts(listing: Listing, name: str) -> dict[str, list[str]]:
    """The arrays behind a name: itself, those of a group by their names in it, or numbered ones (`name_0`, ...)."""
    if name in listing.arrays:
        return {"": [name]}
    if group := {other[len(name) + 1 :]: [other] for other in listing.arrays if other.startswith(f"{name}/")}:
        return group
    numbered = _numbered(listing.arrays, name)
    numbers = [int(re.findall(r"\d+", one)[-1]) for one in numbered]
    if numbers not in ([*range(len(numbers))], [*range(1, len(numbers) + 1)]):
        text = f"{listing.path}: {name} has columns numbered {', '.join(map(str, numbers))}"
        raise DataError(f"{text}: each number from 0 (or 1) on must be there once")
    return {"": numbered} if numbered else {}


def _numbered(names: Iterable[str], head: str) -> list[str]:
    """The names that are a head and a number, in the order of the numbers."""
    found = [name for name in names if name != head and _head(name) == head]
    return sorted(found, key=lambda name: int(re.findall(r"\d+", name)[-1]))


def _head(name: str) -> str:
    """A name without the number at its end: `state` of `state_0`, `state.0`, `state[0]`."""
    match = re.fullmatch(r"(.+?)[._\[ ]?\d+\]?", name)
    return match[1] if match else name


def _with_masks(columns: dict[str, Any]) -> dict[str, Any]:
    """OGBench: its `terminals` end an episode, and `masks` is 0 where the task ended and nothing is bootstrapped."""
    ended, ends = (np.asarray(columns[name]).reshape(-1) for name in ("masks", "terminals"))
    if len(ended) != len(ends):
        return columns  # the check of the columns says what is wrong with the lengths
    rest = {name: column for name, column in columns.items() if name != "masks"}
    flags = {"terminals": ended == 0, "timeouts": (ends != 0) & (ended != 0)}
    return {**rest, **flags, "episode_ids": np.cumsum(ends != 0) - (ends != 0)}


_EPISODE = re.compile(r"((?:data/demo_|episode_)(\d+))/")


def _read_episodes(listing: Listing, mapping: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """One group per episode: robomimic, Minari."""
    renamed = {names[0]: name for name, names in mapping.items() if len(names) == 1}
    constants = {name: float(source) for source, name in renamed.items() if _is_number(source)}
    places: dict[tuple[int, str], dict[str, str]] = {}
    for array in listing.arrays:
        if match := _EPISODE.match(array):
            head, slash, rest = array[match.end() :].partition("/")
            name = renamed.get(head) or (OURS[head] if head in IN_EPISODES and head not in mapping else head)
            if name in (*KNOWN, *TIMEOUTS) and name not in constants:
                places.setdefault((int(match[2]), match[1]), {})[name + slash + rest] = array
    shared = set.intersection(*map(set, places.values())) if places else set()
    _check_missing(listing, {name.partition("/")[0] for name in shared} | set(constants))
    data = listing.read(array for place in places.values() for name, array in place.items() if name in shared)
    parts: dict[str, list[Array]] = {}
    lengths = []
    for group in sorted(places):
        episode = {name: data[array] for name, array in places[group].items() if name in shared}
        lengths.append(len(episode["actions"]) if episode["actions"].ndim else 0)
        for name, values in list(episode.items()):  # Minari has one observation more than actions
            if name.partition("/")[0] == "observations" and values.ndim and len(values) == lengths[-1] + 1:
                episode["next_" + name], episode[name] = values[1:], values[:-1]
        for name, values in episode.items():
            parts.setdefault(name, []).append(values)
    found: dict[str, Any] = {name: np.full(sum(lengths), value, np.float32) for name, value in constants.items()}
    for name, arrays in parts.items():
        head, slash, rest = name.partition("/")
        with one_line(f"{listing.path}: {name} differs between episodes"):
            column = np.concatenate(arrays)
        found |= {head: {**found.get(head, {}), rest: column}} if slash else {name: column}
    return {**found, "episode_ids": np.repeat(np.arange(len(places)), lengths)}


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?\d+(\.\d*)?", text))


def _check_missing(listing: Listing, names: Iterable[str]) -> None:
    """Raise a `DataError` that says which column is missing, and how to give it."""
    missing = [name for name in KNOWN if name not in set(names)]
    if not set(missing) & set(REQUIRED):
        return
    if pickled := [name for name, array in listing.arrays.items() if array is PICKLED]:
        raise DataError(f"{listing.path}: {pickled[0]} {PICKLED}")
    problem = f"{listing.path}: the dataset has no {missing[0]!r}"
    if not listing.arrays:
        raise DataError(f"{problem}: there is nothing in the file")
    suggestion = suggested({_head(name.split("/")[0]) for name in listing.arrays} | listing.arrays.keys(), missing)
    advice = [f"try --columns {suggestion}"] if suggestion else []
    advice += [f"{name}: {text}" for name, text in MISSING.items() if name in missing and f"{name}=" not in suggestion]
    if done := re.search("terminals=(dones?)", suggestion):
        advice.append(f"if {done[1]} also marks time limits: terminals=0,timeouts={done[1]}")
    raise DataError("; ".join([problem, *advice, _contents(listing)]))


def suggested(present: Iterable[str], missing: Iterable[str]) -> str:
    """A mapping from the names that are there to those that are missing, as far as they can be guessed."""
    guesses = {name: next((other for other in OTHER_NAMES[name] if other in set(present)), "") for name in missing}
    return ",".join(f"{name}={other}" for name, other in guesses.items() if other)


def _contents(listing: Listing) -> str:
    names = sorted({name.split("/")[0] for name in listing.arrays})
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return f"the file has {', '.join([*names[:MOST_NAMES], *more])}"


# ---- HDF5 and npz ----------------------------------------------------------------------------------------------------
@contextmanager
def _open_hdf5(path: Path) -> Iterator[Listing]:
    with one_line("reading HDF5 needs h5py: install arb with its extra 'train'"):
        import h5py
    arrays: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    size = file_size(path)

    def visit(name: str | bytes, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and isinstance(name, str):  # bytes: a name that is not UTF-8
            arrays[name] = _unreadable(item) or item
        if len(arrays) > MOST_ENTRIES:
            raise DataError(f"{path}: it has more than {MOST_ENTRIES:,} entries")

    with one_line(f"{path}: not a readable HDF5 file"):
        file = h5py.File(path, "r", locking=False)
    with file:
        with one_line(f"{path}: its list of contents cannot be read"):
            file.visititems(visit)  # enters every group once and follows no links
            for name in file:
                if isinstance(file.get(name, getlink=True), h5py.HardLink):
                    visit(name, file[name])
                elif isinstance(name, str):
                    arrays[name] = "is a link to another place, which is not followed"
            for name, value in itertools.islice(file.attrs.items(), 100):
                plain = np.asarray(value).tolist()
                attributes[name] = plain.decode(errors="replace") if isinstance(plain, bytes) else plain
        yield Listing(str(path), size, arrays, _short(attributes))


def _unreadable(item: Any) -> str:
    if item.is_virtual:
        return "is a virtual dataset, which may lie in other files: copy the data into this file"
    if item.external:
        return "is stored in another file: copy the data into this file"
    if item.shape is None:
        return "is empty"
    chunk = int(np.prod(item.chunks or (0,), dtype=object)) * item.dtype.itemsize
    large = chunk > 2 * item.nbytes + (1 << 24)
    return f"is stored in chunks of {chunk:,} bytes: rewrite the file with smaller ones" if large else ""


@contextmanager
def _open_npz(path: Path, most: float = math.inf) -> Iterator[Listing]:
    """Arrays of at most so many bytes. Scalars and strings, and the bounds of actions, become attributes as well."""
    arrays: dict[str, Any] = {}
    size = file_size(path)
    with one_line(f"{path}: not a readable npz file"):
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        check_size(str(path), sum(sizes.values()), size)
        file = np.load(path, allow_pickle=False)
    with file:
        saved = "header.json" in file.files  # by `Dataset.save`, which reads the rest itself
        for name in ["header.json"] if saved else [name for name in sizes if sizes[name] <= most][:MOST_ENTRIES]:
            try:
                arrays[name] = np.asarray(file[name])
            except Exception as problem:  # one broken array spoils only itself
                pickled = "Object arrays" in str(problem)
                arrays[name] = PICKLED if pickled else f"cannot be read ({first_line(problem)})"
    described = [name for name in arrays if np.ndim(arrays[name]) == 0 or name in ("action_low", "action_high")]
    attributes = {name: arrays[name].tolist() for name in described if not isinstance(arrays[name], str)}
    yield Listing(str(path), size, arrays, _short(attributes))


def _short(attributes: dict[str, Any]) -> dict[str, Any]:
    """Numbers, texts and lists of them; whatever else a file says about itself is left out."""
    plain = (str, int, float, list)
    return {key: v for key, v in attributes.items() if isinstance(v, plain) and len(str(v)) <= MOST_TEXT}


def _nbytes(array: Any) -> int:
    return int(math.prod(array.shape) * array.dtype.itemsize)


# ---- CSV and Parquet -------------------------------------------------------------------------------------------------
def _open_csv(path: Path) -> AbstractContextManager[Listing]:
    """A table with a line of names. `state_0, state_1, ...` make one column `state`; each can also be named alone."""
    size = file_size(path)
    with one_line(f"{path}: not a table of numbers with a line of names"):
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [file.readline(LONGEST_LINE) for _ in range(2)]
        mark = max(",;\t", key=lines[0].count)
        names, first = ([cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])] for line in lines)
        if not names or len(names) > MOST_COLUMNS:
            raise DataError(f"{path}: the first line must name the columns, at most {MOST_COLUMNS:,} of them")
        if len(first) != len(names) and first:
            raise DataError(f"{path}: {len(names)} names in the first line, {len(first)} values in the second")
        if repeated := [name for number, name in enumerate(names) if name in names[:number]]:
            raise DataError(f"{path}: the first line names {repeated[0]!r} twice")
        check_size(str(path), 8 * size, size)  # a number takes at least a digit and a comma
        texts: dict[int, str] = {}  # a cell of each column that holds text
        converters = {number: _cell_reader(texts, number) for number in range(len(names))}
        for number, cell in enumerate(first):
            converters[number](cell)
        read = [number for number in range(len(first)) if number not in texts]
        options: dict[str, Any] = {
            "delimiter": mark, "skiprows": 1, "ndmin": 2, "comments": None, "encoding": "utf-8-sig", "quotechar": '"',
            "usecols": read if len(read) < len(names) else None,
        }  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a table without rows, which is refused later
            try:
                table = np.loadtxt(path, **options)
            except ValueError:  # it may have True and False, empty cells, commas in numbers, or text further down
                table = np.loadtxt(path, **options, converters={number: converters[number] for number in read})
    arrays: dict[str, Any] = {
        names[number]: f"holds text ({cell[:40]!r}), not numbers" for number, cell in texts.items()
    }
    for number, column in zip(read, table.T, strict=True):
        with np.errstate(invalid="ignore"):
            whole = column.astype(np.int64)  # as discrete actions and the numbers of episodes are
        arrays.setdefault(names[number], whole if (whole == column).all() else single_precision(column))
    return nullcontext(Listing(str(path), size, arrays))


def _cell_reader(texts: dict[int, str], number: int) -> Callable[[str], float]:
    """Reads cells of a column: a number, perhaps with a decimal comma, True or False; nothing, and text, is NaN."""

    def read(cell: str) -> float:
        cell = cell.strip()
        try:
            return float({"": "nan", "true": "1", "false": "0"}.get(cell.lower(), cell.replace(",", ".")))
        except ValueError:
            texts.setdefault(number, cell)
            return math.nan

    return read


def _open_parquet(place: Path) -> AbstractContextManager[Listing]:
    """A Parquet file, or a LeRobot dataset of version 2 or 3; images, videos and texts are left out."""
    with one_line(f"{place}: reading Parquet needs pyarrow: install arb with its extra 'lerobot'"):
        import pyarrow.parquet as parquet
    found = (sorted(place.glob(pattern)) for pattern in ("data/**/*.parquet", "*.parquet"))
    files = next(filter(None, found), []) if place.is_dir() else [place]
    if not files:
        raise DataError(f"{place}: no Parquet files (data/chunk-000/file-000.parquet) are in this folder")
    size = sum(map(file_size, files))
    with one_line(f"{place}: its Parquet files cannot be read"):
        opened = [parquet.ParquetFile(file) for file in files]
        meta = [file.metadata for file in opened]
        groups = [part.row_group(number) for part in meta for number in range(part.num_row_groups)]
        check_size(str(place), sum(group.total_byte_size for group in groups), size)
        kinds = {entry.name: entry.type for entry in opened[0].schema_arrow}
        arrays: dict[str, Any] = {name: f"holds {kind}, not numbers" for name, kind in kinds.items()}
        numeric = [name for name, kind in kinds.items() if _is_numeric(kind)]
        tables = [file.read(columns=numeric) for file in opened]
        for name in numeric:
            arrays[name] = np.concatenate([_from_arrow(f"{place}: {name}", table[name]) for table in tables])
    if sum(part.num_rows for part in meta) == 0:
        raise DataError(f"{place}: the Parquet files have no rows")
    return nullcontext(Listing(str(place), size, arrays))


def _is_numeric(kind: Any) -> bool:
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    return str(kind).startswith(("int", "uint", "float", "double", "halffloat", "bool"))


def _from_arrow(name: str, column: Any) -> Array:
    """A column of numbers, or of lists with equally many in every row."""
    import pyarrow.compute as compute

    shape, flat = [len(column)], column.combine_chunks()
    while hasattr(flat.type, "value_type"):
        lengths = compute.list_value_length(flat).unique().to_pylist()
        if len(lengths) > 1 or None in lengths:
            some = ", ".join(map(str, lengths[:3]))
            raise DataError(f"{name} has lists of unequal length ({some}): every row needs equally many numbers")
        shape.append(lengths[0] if lengths else 0)
        flat = flat.flatten()
    return cast(Array, np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(shape))


FORMATS: Mapping[str, Callable[[Path], AbstractContextManager[Listing]]] = {
    ".hdf5": _open_hdf5, ".h5": _open_hdf5, ".npz": _open_npz, ".csv": _open_csv, ".parquet": _open_parquet,
}  # fmt: skip
"""How a file is listed, by the end of its name."""


# ---- Minari ----------------------------------------------------------------------------------------------------------
def _read_minari(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dataset that is installed with Minari, episode by episode, with every true next observation.

    Minari's versions of D4RL's tasks are other recordings on other physics (Minari issues 296, 304, 318): never compare
    scores on them with those on D4RL's files.
    """
    with one_line(f"minari:{name} needs Minari: install arb with its extra 'minari'"):
        import minari
    if name not in minari.list_local_datasets():
        known = ", ".join(sorted(minari.list_local_datasets())) or "none"
        raise DataError(f"minari:{name} is not installed (installed: {known}); get it with: minari download {name}")
    dataset = minari.load_dataset(name)
    episodes = list(dataset.iterate_episodes())
    if not episodes:
        raise DataError(f"minari:{name} has no episodes")
    first = episodes[0].observations
    if any(isinstance(part, tuple | Mapping) for part in (first.values() if isinstance(first, Mapping) else [first])):
        raise DataError(f"minari:{name} has tuples or nested dicts for observations: flatten them when recording")
    seen = [leaves(episode.observations) for episode in episodes]
    columns = {
        "observations": unwrapped({key: np.concatenate([part[key][:-1] for part in seen]) for key in seen[0]}),
        "next_observations": unwrapped({key: np.concatenate([part[key][1:] for part in seen]) for key in seen[0]}),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "rewards": np.concatenate([episode.rewards for episode in episodes]),
        "terminals": np.concatenate([episode.terminations for episode in episodes]),
        "timeouts": np.concatenate([episode.truncations for episode in episodes]),
        "episode_ids": np.repeat(np.arange(len(episodes)), [len(episode.rewards) for episode in episodes]),
    }
    spec = dataset.spec.env_spec
    return columns, {"env": spec.id if spec else "", "minari": name}


def write_minari(name: str, dataset: Dataset) -> None:
    """Install a dataset as Minari's `name`, which must be new; `arb.load_dataset("minari:NAME")` gives it back."""
    with one_line(f"minari:{name} needs Minari: install arb with its extra 'minari'"):
        import minari
        from gymnasium.spaces import Box, Dict, Discrete
        from minari.data_collector import EpisodeBuffer
    dataset = dataset.usable()  # Minari has an observation after the last step of every episode
    buffers = []
    for number, part in enumerate(dataset.episodes()):
        last = leaves(part.final_observations)
        seen = unwrapped({k: np.concatenate([c, last[k]]) for k, c in leaves(part.observations).items()})
        ends = {"terminations": part.terminals, "truncations": part.timeouts}
        columns = {"observations": seen, "actions": part.actions, "rewards": part.rewards, **ends}
        buffers.append(EpisodeBuffer(id=number, infos={}, **columns))
    inner = leaves(dataset.observations)
    boxes: dict[str, Any] = {k: Box(-np.inf, np.inf, c.shape[1:], c.dtype) for k, c in inner.items()}
    action = dataset.actions
    discrete = action.dtype.kind in "iu" and action.ndim == 1
    space = Discrete(int(action.max()) + 1) if discrete else Box(-np.inf, np.inf, action.shape[1:], action.dtype)
    with one_line(f"minari:{name} cannot be written"):
        observed = boxes[""] if "" in boxes else Dict(boxes)
        minari.create_dataset_from_buffers(name, buffers, action_space=space, observation_space=observed)


# ---- writing ---------------------------------------------------------------------------------------------------------
WRITTEN = (".hdf5", ".h5", ".npz")


def check_suffix(path: Path) -> None:
    """Refuse a name whose ending is none of those that are written."""
    if not str(path).startswith("minari:") and path.suffix.lower() not in WRITTEN:
        raise DataError(f"{path}: a dataset is written to a name ending in {', '.join(WRITTEN)}, or to minari:NAME")


def write_dataset(path: Path, dataset: Dataset, compression: int = 4) -> None:
    """Write a dataset in D4RL's layout, HDF5 or npz, or to `minari:NAME`; a file appears only when it is complete.

    Its provenance becomes attributes (HDF5) or further arrays (npz), as far as it is numbers, texts and lists of them.
    """
    check_suffix(path)
    if str(path).startswith("minari:"):
        write_minari(str(path).removeprefix("minari:"), dataset)
        return
    parts = {name: leaves(column) for name, column in dataset.to_dict().items()}
    columns = {f"{name}/{k}" if k else name: v for name, column in parts.items() for k, v in column.items()}
    kept, known = (str, int, float, list, tuple), ("source", "repaired", *columns)
    attributes = {k: v for k, v in dataset.provenance.items() if isinstance(v, kept) and k not in known}
    if path.suffix.lower() == ".npz":
        write_npz(path, {**columns, **attributes})
        return
    with one_line("writing HDF5 needs h5py: install arb with its extra 'train'"):
        import h5py
    made = io.BytesIO()  # in memory first: on a full disk the HDF5 library brings down the process
    with h5py.File(made, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip", compression_opts=compression, shuffle=True)
        file.attrs.update(attributes)
    with atomic_write(path) as temporary:
        temporary.write_bytes(made.getbuffer())


def without_suffix(name: str) -> str:
    """A file's name as folders of runs have it."""
    return next((name.removesuffix(end) for end in WRITTEN if name.endswith(end)), name)


# ---- bounds ----------------------------------------------------------------------------------------------------------
def file_size(path: Path) -> int:
    if not path.is_file():
        raise DataError(f"{path} is not a regular file" if path.exists() else f"{path}: no such file")
    return path.stat().st_size


def check_size(path: str, wanted: int, size: int, what: str = "the data") -> None:
    """Refuse what cannot be in a file of this size, and what does not fit into memory."""
    if wanted > max(ALWAYS_FINE, MOST_COMPRESSED * size):
        raise DataError(f"{path}: {what} claims {wanted:,} bytes, far more than a file of {size:,} bytes can hold")
    free = free_memory()
    if free is not None and wanted > free:
        raise DataError(f"{path}: {what} needs about {wanted / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping, where the system tells it (Linux)."""
    try:
        return 1024 * int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Whatever a parser happens upon in broken bytes, as a `DataError` of one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as problem:
        raise DataError(f"{what} ({first_line(problem)})") from None


def first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:300] or type(problem).__name__
