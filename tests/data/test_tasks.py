from __future__ import annotations

import subprocess
import sys

import pytest

from arb import DataError
from arb.data import TASKS, find_task
from arb.data.tasks import PAPER, env_reference, family_of


def test_the_papers_tasks_are_there() -> None:
    locomotion = {
        f"{robot}-{quality}-v2"
        for robot in ("hopper", "walker2d", "halfcheetah")
        for quality in ("random", "medium", "medium-replay", "medium-expert")
    }
    mazes = ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
    assert set(PAPER) == locomotion | {f"antmaze-{maze}-v2" for maze in mazes}
    assert {name.split("-", 1)[1] for name in set(TASKS) - set(PAPER)} == {"expert-v2", "full-replay-v2"}


def test_every_row_is_complete() -> None:
    for task in TASKS.values():
        assert task.file.endswith("v2.hdf5" if task.family == "locomotion" else "_sparse_fixed.hdf5")
        assert len(task.sha256) == 64
        assert task.size > 50e6
        assert task.reference.high > task.reference.low
        assert all(url.endswith(task.file) for url in task.urls)
    assert len({task.sha256 for task in TASKS.values()}) == len(TASKS) == 24


def test_every_environment_exists_with_the_horizon_of_the_table() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    import arb.envs  # noqa: F401

    for task in TASKS.values():
        assert gymnasium.spec(task.env).max_episode_steps == task.horizon


def test_names() -> None:
    assert find_task("d4rl:hopper-medium-v2").env == "arb/hopper-v2"
    assert find_task("antmaze-large-play-v2").file == (
        "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5"
    )
    with pytest.raises(DataError, match="did you mean 'antmaze-large-play-v2"):
        find_task("antmaze-large-play-v0")
    assert env_reference("Hopper-v5") is None
    assert env_reference("arb/antmaze-large-v2") == (0, 1)
    assert [family_of("", env).name for env in ("arb/antmaze-large-v2", "arb/hopper-v2", "Hopper-v5")] == [
        "antmaze",
        "locomotion",
        "other",
    ]


def test_importing_data_imports_numpy_only() -> None:
    code = "import sys, arb.data; print(*{'h5py', 'gymnasium', 'jax', 'mujoco', 'minari', 'rich'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
