from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from arb.cli import main
from arb.data.formats import read_attributes

from .recordings import as_npz, load, sound, without

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
