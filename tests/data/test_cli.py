from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from arb.cli import main
from arb.data.formats import read_attributes

from .recordings import as_npz, load, sound, walk, without

ROBOT = {
    "observations": "state",
    "actions": "command",
    "rewards": "rew",
    "terminals": "done",
    "timeouts": "truncated",
    "next_observations": "next_obs",
}


def test_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARB_CACHE", str(tmp_path))
    assert main(["data", "list", "--paper", "--long"]) == 0
    text = capsys.readouterr().out
    assert text.count("sha256") == 18
    assert "antmaze-umaze-v2" in text
    assert "hopper-expert-v2" not in text


def test_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = as_npz(tmp_path / "x.npz", {**sound(), "env": np.array("arb/hopper-v2")})
    assert main(["data", "info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "72 in 7 episodes: 3 ended, 4 cut off" in text
    assert "score" in text
    assert main(["data", "info", str(path), "--reference", "0", "1"]) == 0


def test_audit_tells_by_its_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = sound()
    assert main(["data", "audit", str(as_npz(tmp_path / "good.npz", raw))]) == 0
    assert capsys.readouterr().out.endswith("verdict: no fault found\n")
    raw["rewards"][3] = np.inf
    assert main(["data", "audit", str(as_npz(tmp_path / "bad.npz", raw))]) == 1
    text = capsys.readouterr().out
    assert text.endswith("verdict: faults: non-finite\n")
    assert "0 rows" not in text
    assert main(["data", "audit", str(tmp_path / "missing.npz")]) == 1
    text = capsys.readouterr().out
    assert "no such file" in text
    assert "0 rows" not in text


def test_audit_takes_the_bounds_of_an_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = sound()
    raw["actions"] = 1.9 * raw["actions"][:, :1]
    path = str(as_npz(tmp_path / "x.npz", raw))
    assert main(["data", "audit", path, "--env", "Pendulum-v1"]) == 0
    assert main(["data", "audit", path, "--env", "MountainCarContinuous-v0"]) == 1
    assert "actions leave [-1, 1]" in capsys.readouterr().out
    assert main(["data", "audit", path, "--env", "nowhere-v0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["info", "nothing.hdf5"], 2),
        (["fetch", "hoper-medium-v2"], 2),
        (["audit"], 2),
        (["unheard-of"], 2),
        (["--help"], 0),
    ],
)
def test_a_mistake_is_one_line_and_a_status(argv: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *argv]) == status
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "usage:" in error or error.count("\n") == (status == 2)


def test_a_file_with_nothing_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.hdf5"
    h5py.File(path, "w").close()
    assert main(["data", "info", str(path)]) == 2
    assert "empty.hdf5: the dataset has no 'observations'" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".hdf5", ".npz"])
def test_convert_writes_d4rl_s_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    robot = {ROBOT[name]: column for name, column in sound().items()}
    source, out = as_npz(tmp_path / "robot.npz", robot), tmp_path / f"out{suffix}"
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in ROBOT.items())
    assert main(["data", "convert", str(source), str(out), "--columns", columns, "--env", "Pendulum-v1"]) == 0
    assert "72 rows, 7 episodes" in capsys.readouterr().out
    assert load(out).fingerprint == load(sound()).fingerprint
    assert read_attributes(out)["env"] == "Pendulum-v1"
    plain = tmp_path / f"plain{suffix}"
    without_ends = as_npz(tmp_path / "no-ends.npz", without(sound(), "next_observations", "timeouts"))
    assert main(["data", "convert", str(without_ends), str(plain)]) == 0
    assert "warning: neither timeouts nor next_observations" in capsys.readouterr().out
    assert main(["data", "convert", str(source), str(tmp_path / "x.txt"), "--columns", columns]) == 2
    assert "written to a name ending in .hdf5" in capsys.readouterr().err
    assert main(["data", "convert", str(source), str(tmp_path / "y.npz")]) == 2
    assert "try --columns" in capsys.readouterr().err
    assert not (tmp_path / "y.npz").exists()


# ---- repair, merge ---------------------------------------------------------------------------------------------------


def test_repair_splits_at_what_is_not_finite_and_lists_each_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = sound()  # episodes of 12, 9, 12, 7, ... steps
    raw["observations"][5, 1] = raw["next_observations"][4, 1] = np.nan
    raw["actions"][30, 0] = np.inf
    raw["rewards"][31] = np.inf  # which is given anew
    raw["next_observations"][39] = np.nan  # where an episode ended
    (tmp_path / "mine.py").write_text("def reward(obs, action, after):\n    return after[:, 0]\n")
    monkeypatch.chdir(tmp_path)
    log, out = as_npz(tmp_path / "log.npz", raw), tmp_path / "fixed.npz"
    assert main(["data", "repair", str(log), str(out), "--time-limit", "9", "--reward", "mine:reward"]) == 0
    text = capsys.readouterr().out
    assert "repaired: 1 terminals after 9 steps are time limits now, first in row 20" in text
    assert "repaired: 4 rows dropped, because values are not finite in rows 4, 5, 30 and 1 more" in text
    assert "repaired: rewards given anew" in text
    fixed = load(out)
    assert list(fixed.lengths) == [4, 6, 9, 9, 2, 6, 12, 8, 12]
    kept = np.setdiff1d(np.arange(72), [4, 5, 30, 39])
    np.testing.assert_array_equal(fixed.observations, raw["observations"][kept])
    np.testing.assert_array_equal(fixed.next_observations, raw["next_observations"][kept])  # true ones, all of them
    np.testing.assert_array_equal(fixed.rewards, raw["next_observations"][kept, 0])
    assert fixed.terminals.sum() == 1
    assert read_attributes(out)["repairs"]


def test_rewards_that_are_missing_are_given_by_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gives.py").write_text("def reward(obs, action, after):\n    return obs[:, 0]\n")
    monkeypatch.chdir(tmp_path)
    robot = {ROBOT[name]: column for name, column in without(sound(), "rewards").items()}
    log = as_npz(tmp_path / "log.npz", robot)
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in ROBOT.items() if ours != "rewards")
    for place, more in ((f"{log}?{columns}", []), (str(log), ["--columns", columns])):
        assert main(["data", "repair", place, "fixed.npz", "--reward", "gives:reward", *more]) == 0
        np.testing.assert_array_equal(load(tmp_path / "fixed.npz").rewards, sound()["observations"][:, 0])


def test_repair_without_next_observations_drops_only_what_is_not_finite(tmp_path: Path) -> None:
    raw = without(sound(), "next_observations")
    raw["observations"][5] = np.nan
    raw["rewards"][70] = -np.inf
    out = tmp_path / "fixed.hdf5"
    assert main(["data", "repair", str(as_npz(tmp_path / "log.npz", raw)), str(out)]) == 0
    assert list(load(out).lengths) == [5, 6, 9, 12, 7, 12, 8, 10, 1]


@pytest.mark.parametrize("wrong", [{"rewards": 3.0}, {"actions": np.zeros((5, 2))}, {"rewards": np.full(72, np.nan)}])
def test_what_cannot_be_repaired_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict) -> None:
    log = as_npz(tmp_path / "log.npz", {**sound(), **wrong})
    assert main(["data", "repair", str(log), str(tmp_path / "x.npz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "x.npz").exists()


def test_a_reward_function_that_gives_something_else_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.py").write_text("def reward(obs, action, after):\n    return after\n")
    monkeypatch.chdir(tmp_path)
    log = as_npz(tmp_path / "log.npz", sound())
    assert main(["data", "repair", str(log), str(tmp_path / "x.npz"), "--reward", "wrong:reward"]) == 2
    assert "the reward function gave shape (72, 3); 72 finite numbers are needed" in capsys.readouterr().err
    assert not (tmp_path / "x.npz").exists()


def test_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(as_npz(tmp_path / f"{seed}.npz", {**walk([5, 6], seed), "env": "Pendulum-v1"})) for seed in range(3)]
    out = tmp_path / "all.hdf5"
    assert main(["data", "merge", *files, "--out", str(out)]) == 0
    assert "all.hdf5: 33 rows, 6 episodes" in capsys.readouterr().out
    merged = load(out)
    np.testing.assert_array_equal(merged.observations, np.concatenate([load(Path(f)).observations for f in files]))
    assert read_attributes(out)["env"] == "Pendulum-v1"
    assert read_attributes(out)["merged_from"] == ", ".join(files)
    other = str(as_npz(tmp_path / "other.npz", walk([5, 6], dim=4)))
    assert main(["data", "merge", files[0], other, "--out", str(tmp_path / "x.npz")]) == 2
    assert "differ in names, shapes or types" in capsys.readouterr().err
    assert main(["data", "merge", files[0], files[0], "--out", str(tmp_path / "twice.npz")]) == 0
    assert "warning: 2 episodes repeat an earlier one" in capsys.readouterr().out
