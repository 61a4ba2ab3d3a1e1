"""OGBench's datasets, recorded by its scripted experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arb.data import audit
from arb.data.tasks import task_of
from arb.errors import DataError
from arb.suite.datasets import load_dataset
from arb.suite.ogbench import ogbench_file

NAME = "ogbench:pointmaze-medium-navigate-singletask-v0"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("arb.suite.ogbench.ROWS", 300)
    monkeypatch.setattr("arb.suite.ogbench.EPISODE", 100)
    return tmp_path / "cache"


def test_the_environment_has_the_name_of_the_set_without_its_kind_of_data() -> None:
    assert task_of(NAME).env == "ogbench:pointmaze-medium-singletask-v0"
    assert task_of("ogbench:cube-single-play-singletask-task2-v0").env == "ogbench:cube-single-singletask-task2-v0"
    assert task_of("ogbench:cube-single-play-v0") is None


def test_a_maze_is_recorded_once_and_the_same_each_time(cache: Path) -> None:
    pytest.importorskip("ogbench")
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    dataset = load_dataset(NAME)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002 - OGBench draws from it; nobody else notices
    assert dataset.lengths.tolist() == [99, 99, 99]  # the last state of a trajectory is only a final observation
    assert set(np.unique(dataset.rewards)) <= {-1.0, 0.0}
    np.testing.assert_array_equal(dataset.terminals, dataset.rewards == 0)  # both of the state before
    assert audit(ogbench_file(NAME)).ok
    (path,) = cache.glob("ogbench/*.hdf5")
    path.unlink()
    assert load_dataset(NAME).fingerprint == dataset.fingerprint


def test_their_own_file_is_taken_where_it_is(tmp_path: Path) -> None:
    pytest.importorskip("ogbench")
    place = tmp_path / ".ogbench" / "data" / "pointmaze-medium-navigate-v0.npz"
    place.parent.mkdir(parents=True)
    obs = np.arange(20, dtype=np.float32).reshape(10, 2)
    ends = np.isin(np.arange(10), [4, 9])
    np.savez(place, observations=obs, actions=np.zeros((10, 2), np.float32), terminals=ends, qpos=obs)
    dataset = load_dataset(NAME)
    assert "OGBench's file pointmaze-medium-navigate-v0.npz" in dataset.provenance["made_by"]
    assert dataset.observations[:, 0].tolist() == [0, 2, 4, 6, 10, 12, 14, 16]
    assert dataset.next_observations[:, 0].tolist() == [2, 4, 6, 8, 12, 14, 16, 18]
    assert dataset.timeouts.tolist() == [False, False, False, True] * 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ogbench:cube-single-play-v0", "is not a dataset of OGBench"),
        ("ogbench:antmaze-large-navigate-singletask-v0", r"cannot be recorded here .*put OGBench's file at"),
        ("ogbench:cube-single-noisy-singletask-v0", "cannot be recorded here"),
    ],
)
def test_what_cannot_be_made_is_one_line(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(name)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Gymnasium, about the precision of OGBench's boxes
@pytest.mark.parametrize("name", ["cube-single", "scene"])
def test_manipulation_is_recorded_by_its_experts(name: str) -> None:
    pytest.importorskip("ogbench")
    dataset = load_dataset(f"ogbench:{name}-play-singletask-v0")
    assert dataset.num_episodes == 3
    still = np.abs(np.diff(dataset.observations, axis=0)).max(1) == 0
    assert still.mean() < 0.05
    assert audit(ogbench_file(f"ogbench:{name}-play-singletask-v0")).ok
