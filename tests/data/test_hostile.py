"""Files made to do harm: nothing outside them is opened, little memory is used, and one line says what is wrong.

`ARB_FUZZ=1000 pytest tests/data/test_hostile.py tests/data/test_files.py` tries more of the random ones.
"""

from __future__ import annotations

import io
import os
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from arb.data.formats import check_size
from arb.errors import DataError

from .recordings import as_hdf5, as_npz, load, sound, walk, without

BUDGET = int(os.environ.get("ARB_FUZZ", "60"))


def complaint(path: Path) -> str:
    """The one line that a file is refused with, reading at most a few megabytes before."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert "\n" not in text
    assert peak < 50e6
    return text.replace(str(path), path.name)


def test_external_storage_is_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(5, dtype="<f4").tobytes())
    path = as_hdf5(tmp_path / "x.hdf5", without(walk([5]), "rewards"))
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (5,), "f4", external=[(str(secret), 0, 20)])
    assert "x.hdf5: rewards is stored in another file" in complaint(path)


def test_virtual_datasets_are_not_read_not_even_one_of_itself(tmp_path: Path) -> None:
    path = as_hdf5(tmp_path / "x.hdf5", without(walk([5]), "rewards"))
    layout = h5py.VirtualLayout((5,), "f4")
    layout[:] = h5py.VirtualSource(".", "rewards", (5,))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("rewards", layout)
    assert "rewards is a virtual dataset" in complaint(path)


@pytest.mark.parametrize("link", [h5py.SoftLink("/actions"), h5py.ExternalLink("other.hdf5", "/rewards")])
def test_links_are_not_followed(tmp_path: Path, link: object) -> None:
    as_hdf5(tmp_path / "other.hdf5", walk([5]))
    path = as_hdf5(tmp_path / "x.hdf5", without(walk([5]), "rewards"))
    with h5py.File(path, "a") as file:
        file["rewards"] = link
    assert "rewards is a link to another place" in complaint(path)


def test_groups_that_hold_each_other_are_listed_once(tmp_path: Path) -> None:
    """Forty groups with two names each for the next one: a trillion paths in a small file."""
    path = as_hdf5(tmp_path / "x.hdf5", walk([5]))
    with h5py.File(path, "a") as file:
        group = file.create_group("observations_more")
        for _ in range(40):
            below = group.create_group("a")
            group["b"] = below
            group = below
        group["loop"] = file["observations_more"]
        wide = file.create_group("wide")
        for _ in range(4):  # with forty names for each of the next: 2.5 million paths
            below = wide.create_group("0")
            for name in range(1, 40):
                wide[str(name)] = below
            wide = below
    assert len(load(path)) == 5
    with h5py.File(path, "a") as file:
        del file["observations"]
        file["observations"] = file["observations_more"]
    assert "has no 'observations'" in complaint(path)


def test_a_bomb_of_zeros_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    path = tmp_path / "zeros.hdf5"
    rows = 2_000_000
    with h5py.File(path, "w") as file:
        for name, width in (("observations", 100), ("actions", 100), ("rewards", 1), ("terminals", 1)):
            file.create_dataset(name, (rows, width), "f4", chunks=(10_000, width), compression="gzip", fillvalue=0)
    assert path.stat().st_size < 1e6
    assert "far more than a file of" in complaint(path)
    archive = tmp_path / "zeros.npz"
    np.savez_compressed(archive, observations=np.zeros((rows, 40), np.float32), **without(walk([5]), "observations"))
    assert "far more than a file of" in complaint(archive)


def test_many_columns_are_bounded_together(tmp_path: Path) -> None:
    path = tmp_path / "parts.hdf5"
    as_hdf5(path, without(walk([5]), "observations", "next_observations"))
    with h5py.File(path, "a") as file:
        for part in range(50):
            file.create_dataset(f"observations/{part}", (5, 3_000_000), "f4", chunks=(5, 1_000_000))
    assert "claims" in complaint(path)


def test_one_enormous_chunk_is_refused(tmp_path: Path) -> None:
    path = as_hdf5(tmp_path / "x.hdf5", without(walk([5]), "rewards"))
    with h5py.File(path, "a") as file:
        shape = {"shape": (5,), "maxshape": (None,), "chunks": (500_000_000,)}
        file.create_dataset("rewards", dtype="f4", compression="gzip", **shape)
    assert "chunks of 2,000,000,000 bytes" in complaint(path)


def test_what_does_not_fit_into_memory_is_said_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arb.data.formats.free_memory", lambda: 10**9)
    with pytest.raises(DataError, match=r"x: the data needs about 3.0 GB of memory, 1.0 GB are free"):
        check_size("x", 3 * 10**9, 10**9)


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".csv", ".parquet"])
def test_pipes_and_devices_and_folders_are_no_files(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow") if suffix == ".parquet" else None
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    device = tmp_path / f"device{suffix}"
    device.symlink_to("/dev/zero")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    for path in (pipe, device, *([folder] if suffix != ".parquet" else [])):
        assert "is not a regular file" in complaint(path)


def test_a_name_with_a_nul_is_one_line() -> None:
    with pytest.raises(DataError, match="no such file"):
        load("x\0y.hdf5")


def test_attributes_of_any_size_and_kind_do_no_harm(tmp_path: Path) -> None:
    path = as_hdf5(tmp_path / "x.hdf5", walk([5]))
    with h5py.File(path, "a", track_order=True) as file:
        file.attrs["env"] = "x"
        file.attrs["words"] = ["a", "b"]
        file.attrs["reference"] = file["rewards"].ref
        file.attrs.create("long", "y" * 100_000, dtype=h5py.string_dtype())
    attributes = load(path).provenance
    assert attributes["env"] == "x"
    assert "reference" not in attributes
    assert "long" not in attributes


def test_an_archive_with_members_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    good = io.BytesIO()
    np.lib.format.write_array(good, np.zeros(5, np.float32))
    deep = b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"(" * 60_000
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("observations", "actions", "terminals"):
            archive.writestr(f"{name}.npy", good.getvalue())
        archive.writestr("rewards.npy", deep)
    assert "rewards cannot be read" in complaint(path)


def test_a_table_with_a_line_that_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a" * 3_000_000)
    assert "not a table of numbers" in complaint(path)
    path.write_text(",".join(f"c{i}" for i in range(20_000)) + "\n")
    assert "at most 10,000" in complaint(path)


# Random damage: a file is read, or refused in one line.


def _bytes_changed(content: bytes, rng: random.Random) -> bytes:
    broken = bytearray(content)
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(broken))
        broken[at : at + rng.choice([1, 1, 2, 4, 8])] = rng.randbytes(rng.choice([1, 1, 2, 4, 8]))
    return bytes(broken[: rng.randrange(1, len(broken))] if rng.random() < 0.2 else broken)


def _csv(path: Path) -> Path:
    raw = walk([6, 5])
    columns = {"observations_0": raw["observations"][:, 0], "observations_1": raw["observations"][:, 1]}
    columns |= {"actions": raw["actions"][:, 0], "rewards": raw["rewards"], "terminals": raw["terminals"] * 1}
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))
    return path


def _groups(path: Path) -> Path:
    raw = walk([6])
    with h5py.File(path, "w") as file:
        for number in range(3):
            for name in ("actions", "rewards"):
                file[f"data/demo_{number}/{name}"] = raw[name]
            file[f"data/demo_{number}/obs/joints"] = raw["observations"]
            file[f"data/demo_{number}/dones"] = raw["timeouts"] * 1
    return path


def _parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    raw = walk([6, 5])
    table = {"observation.state": list(raw["observations"]), "action": list(raw["actions"])}
    table |= {
        "next.reward": raw["rewards"],
        "next.success": raw["terminals"],
        "episode_index": np.repeat([0, 1], [6, 5]),
    }
    pyarrow.parquet.write_table(pa.table({k: pa.array(v) for k, v in table.items()}), path)
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "x.hdf5": lambda path: as_hdf5(path, walk([6, 5])),
    "groups.hdf5": _groups,
    "x.npz": lambda path: as_npz(path, walk([6, 5])),
    "x.csv": _csv,
    "x.parquet": _parquet,
}


@pytest.mark.parametrize("name", MAKERS)
def test_random_damage(tmp_path: Path, name: str) -> None:
    path = MAKERS[name](tmp_path / name)
    content, rng = path.read_bytes(), random.Random(0)
    assert len(load(path)) >= 11
    complaints = []
    for _ in range(BUDGET):
        path.write_bytes(_bytes_changed(content, rng))
        try:
            assert np.isfinite(load(path).rewards).all()
        except DataError as problem:
            complaints.append(str(problem))
    assert len(complaints) > BUDGET // 10
    assert all(name in text and "\n" not in text for text in complaints)


def test_names_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    path = as_hdf5(tmp_path / "x.hdf5", sound())
    with h5py.File(path, "a") as file:
        file.create_group("more")[b"\xff"] = np.zeros(3)
    assert load(path).fingerprint == load(sound()).fingerprint
