"""The file formats: what is written comes back, and whatever is broken says so in one line."""

from __future__ import annotations

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

from arb.data.episodes import DataWarning, make_dataset
from arb.data.formats import read_attributes, read_columns, write_dataset
from arb.errors import DataError
from arb.replay.dataset import Dataset

from .recordings import Columns, as_hdf5, as_npz, lengths_of, load, walk, without

WRITERS: list[tuple[str, Callable[[Path, Columns], Path]]] = [("data.hdf5", as_hdf5), ("data.npz", as_npz)]
formats = pytest.mark.parametrize(("name", "write"), WRITERS)


@formats
def test_a_file_and_a_dict_are_the_same_data(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = walk([5, 7])
    assert load(write(tmp_path / name, raw)).fingerprint == load(raw).fingerprint


@formats
def test_observations_may_be_named_parts(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = without(walk([5, 7]), "next_observations")
    obs = raw.pop("observations")
    dataset = load(write(tmp_path / name, {**raw, "observations/a": obs[:, :1], "observations/b": obs[:, 1:]}))
    np.testing.assert_array_equal(dataset.observations["b"], obs[:, 1:])
    assert lengths_of(dataset) == [5, 7]


@pytest.mark.parametrize("suffix", [".hdf5", ".h5", ".npz"])
@pytest.mark.parametrize("left_out", [(), ("next_observations",)])
def test_what_is_written_comes_back(tmp_path: Path, suffix: str, left_out: tuple[str, ...]) -> None:
    raw, path = without(walk([5, 7]), *left_out), tmp_path / f"out{suffix}"
    raw |= {"log_prob": np.arange(12.0), "hidden/state": np.ones((12, 2)), "observations": {"b": raw["observations"]}}
    if not left_out:
        raw["next_observations"] = {"b": raw["next_observations"]}
    provenance = {"env": "arb/hopper-v2", "seed": 3, "words": ["a", "b"], "nothing": None, "source": "here"}
    dataset = Dataset.from_dict(raw, provenance=provenance)
    write_dataset(path, dataset)
    again = load(path)
    assert again.fingerprint == dataset.fingerprint
    assert set(again.extras) == {"log_prob", "hidden/state"}
    assert {name: again.provenance[name] for name in ("env", "seed", "source")} == {
        "env": "arb/hopper-v2", "seed": 3, "source": str(path),
    }  # fmt: skip
    assert read_attributes(path)["env"] == "arb/hopper-v2"
    with pytest.raises(DataError, match=r"written to a name ending in \.hdf5, \.h5, \.npz, or to minari:NAME$"):
        write_dataset(path.with_suffix(".csv"), dataset)


def test_what_a_dataset_saves_is_read_too(tmp_path: Path) -> None:
    dataset = Dataset.from_dict(walk([5, 7]), provenance={"env": "Pendulum-v1"})
    dataset.save(tmp_path / "x.npz")
    again = load(tmp_path / "x.npz")
    assert (again.fingerprint, again.provenance["env"]) == (dataset.fingerprint, "Pendulum-v1")
    assert read_attributes(tmp_path / "x.npz") == {"env": "Pendulum-v1"}


def test_double_precision_files_are_read_as_single(tmp_path: Path) -> None:
    raw = walk([5, 7])
    double = {key: value.astype(np.float64) if value.dtype == np.float32 else value for key, value in raw.items()}
    assert load(as_hdf5(tmp_path / "x.hdf5", double)).fingerprint == load(raw).fingerprint


def test_recorded_states_stand_in_for_next_observations(tmp_path: Path) -> None:
    raw = walk([11, 11])
    after = raw.pop("next_observations")
    raw["timeouts"] = np.isin(np.arange(22), [8, 19])
    raw |= {"infos/qpos": after[:, :2], "infos/qvel": after[:, 2:]}
    with pytest.warns(DataWarning, match="timeouts is set where the episode continues"):
        dataset = load(as_hdf5(tmp_path / "antmaze.hdf5", raw))
    assert lengths_of(dataset) == [11, 11]
    assert dataset.extras == {}


@pytest.mark.parametrize("name", ["nothing.hdf5", "nothing.npz", "nothing.csv"])
def test_a_file_that_is_not_there(name: str) -> None:
    with pytest.raises(DataError, match=f"^{name}: no such file$"):
        load(name)


def test_a_file_of_no_known_kind() -> None:
    with pytest.raises(DataError, match=r"data.txt is not a dataset: give a file \(.hdf5, .h5, .npz, .csv, .parquet\)"):
        load("data.txt")


@formats
@pytest.mark.parametrize("flag", ["truncations", "truncated", "timeout", "dones"])
def test_other_names_of_time_limits_are_understood(
    tmp_path: Path, name: str, write: Callable[[Path, Columns], Path], flag: str
) -> None:
    raw = without(walk([5, 7]), "next_observations")
    path = write(tmp_path / name, {**without(raw, "timeouts"), flag: raw["timeouts"]})
    assert load(path).fingerprint == load(raw).fingerprint
    with pytest.raises(DataError, match=flag):
        load(write(tmp_path / name, {**without(raw, "timeouts"), flag: raw["timeouts"][:-1]}))


@formats
def test_further_columns_are_kept(tmp_path: Path, name: str, write: Callable[[Path, Columns], Path]) -> None:
    raw = {**walk([5, 7]), "cost": np.arange(12), "infos/x": np.arange(12), "version": np.array(3), "log": np.arange(5)}
    dataset = load(write(tmp_path / name, raw))
    assert dataset.extras.keys() == {"cost"}
    assert dataset.extras["cost"].tolist() == list(range(12))


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
        data = make_dataset(read_columns(path)[0], str(path))
    except DataError as problem:
        complaint = str(problem)
    if complaint:
        assert "\n" not in complaint
        assert path.name in complaint
        return
    rows = len(data)
    assert rows > 0
    assert len(data.observations) == len(data.actions) == len(data.terminals) == data.lengths.sum() == rows
    assert np.isfinite(data.rewards).all()


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
        load(path)


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
    write_dataset(folder / "zip.hdf5", load(raw))
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
    with pytest.raises(DataError, match=r"absurd\.npz: actions cannot be read"):
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
    write_dataset(tmp_path / "x.hdf5", load(raw), compression=1)
    tracemalloc.start()
    load(tmp_path / "x.hdf5")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * sum(column.nbytes for column in raw.values())
