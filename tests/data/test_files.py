"""The file formats: what is written comes back, and whatever is broken says so in one line."""

from __future__ import annotations

import importlib
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arb.data import DataWarning, fingerprint, load, read
from arb.data.hdf5 import write_hdf5
from arb.data.load import FORMATS, is_source, locate, writer_for
from arb.errors import DataError
from arb.files import whole, write_npz

from .recordings import Columns, as_hdf5, as_npz, lengths_of, walk, without

WRITERS: list[tuple[str, Callable[[Path, Columns], Path]]] = [("data.hdf5", as_hdf5), ("data.npz", as_npz)]
formats = pytest.mark.parametrize(("name", "write"), WRITERS)


@formats
def test_a_file_and_a_dict_are_the_same_data(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = walk([5, 7])
    assert fingerprint(load(write(tmp_path / name, raw))) == fingerprint(load(raw))


@formats
def test_observations_may_be_named_parts(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = without(walk([5, 7]), "next_observations")
    obs = raw.pop("observations")
    columns = load(write(tmp_path / name, {**raw, "observations/a": obs[:, :1], "observations/b": obs[:, 1:]}))
    np.testing.assert_array_equal(columns["observations"]["b"], obs[:, 1:])
    assert lengths_of(columns) == [5, 7]


def test_our_own_hdf5_comes_back_with_its_provenance(tmp_path: Path) -> None:
    raw, path = walk([5, 7]), tmp_path / "set.hdf5"
    write_hdf5(path, raw, {"env": "arb/hopper-v2", "seed": 3})
    assert fingerprint(load(path)) == fingerprint(load(raw))
    assert read(path).attributes == {"env": "arb/hopper-v2", "seed": 3}


def test_double_precision_files_are_read_as_single(tmp_path: Path) -> None:
    raw = walk([5, 7])
    double = {key: value.astype(np.float64) if value.dtype == np.float32 else value for key, value in raw.items()}
    assert fingerprint(load(as_hdf5(tmp_path / "x.hdf5", double))) == fingerprint(load(raw))


def test_recorded_states_stand_in_for_next_observations(tmp_path: Path) -> None:
    raw = walk([11, 11])
    after = raw.pop("next_observations")
    raw["timeouts"] = np.isin(np.arange(22), [8, 19])
    raw |= {"infos/qpos": after[:, :2], "infos/qvel": after[:, 2:]}
    with pytest.warns(DataWarning, match="timeouts is set where the episode goes on"):
        columns = load(as_hdf5(tmp_path / "antmaze.hdf5", raw))
    assert lengths_of(columns) == [11, 11]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.hdf5"

    def fail() -> None:
        with whole(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="Python objects"):
        write_npz(tmp_path / "x.npz", {"a": np.array([{}])})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hoper-medium-v2", "did you mean 'hopper-medium-v2"),
        ("d4rl:hopper-medium", "did you mean 'hopper-medium-v2"),
        ("nothing.hdf5", "nothing.hdf5: no such file"),
        ("nothing.npz", "nothing.npz: no such file"),
        ("data.csv", "data.csv: no such file"),
        ("data.txt", "is not a dataset: give a task, suite:NAME, a file"),
        ("bundled:nothing", "no bundled dataset is called 'nothing'"),
    ],
)
def test_a_source_that_is_not_there(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(source)
    assert "\n" not in str(caught.value)


def test_a_task_that_was_not_fetched_says_where_its_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"arb data fetch hopper-medium-v2.*hopper_medium-v2\.hdf5"):
        load("hopper-medium-v2")


def test_prefixes() -> None:
    assert locate("npz:some/file") == ("npz", "some/file")
    assert locate("minari:mujoco/hopper/medium-v0") == ("minari", "mujoco/hopper/medium-v0")
    assert locate("x.h5") == ("hdf5", "x.h5")
    with pytest.raises(DataError, match="no task is called 'hover'"):
        locate("d4rl:hover")


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_row_is_all_that_a_format_needs(suffix: str, tmp_path: Path) -> None:
    row, file = FORMATS[suffix], tmp_path / f"x{suffix.upper()}"
    assert locate(str(file)) == (row.kind, str(file))
    assert locate(f"{row.kind}:any/where") == (row.kind, "any/where")
    assert is_source(file.name)
    assert is_source(f"{row.kind}:x")
    assert not is_source("x")
    for function in filter(None, (row.opener, row.writer)):
        module, name = function.split(":")
        assert callable(getattr(importlib.import_module(f"arb.data.{module}"), name))
    if not row.writer:
        with pytest.raises(DataError, match=r"written to a name ending in \.hdf5, \.h5, \.npz$"):
            writer_for(file)


# Whatever is broken.

COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda column: column.astype(dtype)


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "nan": lambda c: np.full(c.shape, np.nan),
    "inf": lambda c: np.full(c.shape, np.inf),
    "strings": _cast("S5"),
    "complex": _cast("c8"),
    "halves": _cast("f2"),
    "bytes": _cast("u1"),
    "no rows": lambda c: c[:0],
    "a row short": lambda c: c[:-1],
    "a row long": lambda c: np.concatenate([c, c[:1]]),
    "scalar": lambda c: c.reshape(-1)[0],
    "extra axis": lambda c: c[..., None],
    "flat": lambda c: c.reshape(-1),
    "shuffled": lambda c: np.random.default_rng(0).permutation(c),
    "twos": lambda c: np.full(c.shape, 2.0, np.float32),
}


def loads_or_says_why(path: Path) -> None:
    """The one property of every broken file: a dataset that is whole, or one line that names the file."""
    complaint = ""
    try:
        data = read(path)
    except DataError as problem:
        complaint = str(problem)
    if complaint:
        assert "\n" not in complaint
        assert path.name in complaint
        return
    rows = len(data)
    assert rows > 0
    assert all(len(data.columns[name]) == rows for name in ("observations", "actions", "terminals", "episode_ids"))
    assert np.isfinite(data.columns["rewards"]).all()


fuzz = settings(
    max_examples=int(os.environ.get("ARB_FUZZ", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@formats
@fuzz
@given(
    mutations=st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=3),
    missing=st.sets(st.sampled_from(COLUMNS), max_size=2),
    order=st.permutations(COLUMNS),
)
def test_mutated_columns(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, Columns], Path],
    mutations: dict[str, str],
    missing: set[str],
    order: list[str],
) -> None:
    raw = walk([6, 5])
    columns = {key: MUTATIONS[mutations[key]](raw[key]) if key in mutations else raw[key] for key in order}
    loads_or_says_why(write(tmp_path / name, without(columns, *missing)))


@formats
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("mutation", ["nan", "strings", "no rows", "a row short", "scalar"])
def test_the_line_names_the_field(
    tmp_path: Path, name: str, write: Callable[[Path, Columns], Path], column: str, mutation: str
) -> None:
    raw = walk([6, 5])
    path = write(tmp_path / name, {**raw, column: MUTATIONS[mutation](raw[column])})
    with pytest.raises(DataError, match=column if mutation != "no rows" else "observations"):
        read(path)


@formats
def test_wrong_names_are_told(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = walk([6, 5])
    short = {"obs": raw["observations"], "acts": raw["actions"], "rews": raw["rewards"]}
    hint = "try --columns observations=obs,actions=acts,rewards=rews; terminals: mark the steps"
    with pytest.raises(
        DataError, match=rf"{name}: the dataset has no 'observations'; {hint}.*the file has acts, obs, rews"
    ):
        load(write(tmp_path / name, short))
    rest = without(raw, "terminals", "timeouts", "next_observations")
    many = {f"a{number}": np.zeros(1) for number in range(50)}
    with pytest.raises(DataError, match=r"has no 'terminals'.* the file has a0, a1, .*, 33 more$"):
        load(write(tmp_path / name, {**many, **rest}))


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact")
    raw = walk([6, 5])
    write_hdf5(folder / "zip.hdf5", raw, {"env": "x"})
    as_hdf5(folder / "data.hdf5", raw)
    as_npz(folder / "data.npz", raw)
    return folder


names = st.sampled_from(["data.hdf5", "data.npz", "zip.hdf5"])


@fuzz
@given(name=names, keep=st.floats(0, 1))
def test_truncated_files(tmp_path: Path, intact: Path, name: str, keep: float) -> None:
    path = tmp_path / name
    content = (intact / name).read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    loads_or_says_why(path)


@fuzz
@given(name=names, where=st.lists(st.floats(0, 0.999), min_size=1, max_size=8), value=st.integers(0, 255))
def test_flipped_bytes(tmp_path: Path, intact: Path, name: str, where: list[float], value: int) -> None:
    broken = bytearray((intact / name).read_bytes())
    for at in where:
        broken[int(at * len(broken))] = value
    path = tmp_path / name
    path.write_bytes(broken)
    loads_or_says_why(path)


def test_an_absurd_shape_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "absurd.hdf5"
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file.create_dataset(name, shape=(10**12, 11), dtype="f4", chunks=(1000, 11))
    with pytest.raises(DataError, match=r"absurd\.hdf5: actions of shape .* claims .* far more than a file of"):
        load(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 11)})
    with zipfile.ZipFile(tmp_path / "absurd.npz", "w") as archive:
        for name in ("observations", "actions", "rewards", "terminals"):
            archive.writestr(f"{name}.npy", header.getvalue() + b"0" * 100)
    with pytest.raises(DataError, match=r"absurd\.npz: actions of shape .* claims .* far more"):
        load(tmp_path / "absurd.npz")


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, **{**walk([5]), "rewards": np.array([print] * 5, object)})
    with pytest.raises(DataError, match=r"evil\.npz: rewards"):
        load(path)


def test_loading_takes_less_than_twice_the_data(tmp_path: Path) -> None:
    """The promise of `benchmarks/load_million.py`, at a tenth of its size."""
    import tracemalloc

    raw = walk([1000] * 100, dim=17)
    write_hdf5(tmp_path / "x.hdf5", raw, {})
    tracemalloc.start()
    load(tmp_path / "x.hdf5")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * sum(column.nbytes for column in raw.values())
