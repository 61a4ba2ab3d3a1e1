"""`arb doctor` says what works, what does not, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arb.cli import doctor
from arb.cli import main as arb
from arb.cli.doctor import Line, Trial, main
from arb.data.contents import free_memory
from arb.data.fetch import D4RL_CACHE
from arb.data.tasks import TASKS

HOPPER = TASKS["hopper-medium-v2"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the trials that take seconds."""
    monkeypatch.setattr(doctor, "TRIALS", (Trial("quick", "print('fine')"),))
    monkeypatch.setattr(doctor, "_LOOKS", tuple(look for look in doctor._LOOKS if look[0] != "drawing"))


def found(what: str) -> list[Line]:
    return [finding for finding in doctor.findings() if finding.what == what]


def test_every_trial_answers() -> None:
    """Of libraries that this test already runs on; the bundled data may be missing in a source tree."""
    for trial in doctor.TRIALS:
        finding = doctor._tried(trial)
        assert finding.needed
        assert finding.status == "ok" or (trial.what == "bundled data" and "no dataset is bundled" in finding.detail)


def test_lines_are_aligned_and_end_in_a_verdict(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "`arb run` works here"
    for line in lines[:-2]:
        assert line.split()[0] in ("ok", "missing", "problem")
        assert line[8] == " "
        assert line[9] != " "
        assert line[27] == " "
        assert line[28] != " "


@pytest.mark.parametrize(
    ("code", "status", "detail"),
    [
        ("import no_such_library.part", "missing", "the package no_such_library is not installed"),
        ("raise RuntimeError('two\\nlines')", "problem", "lines"),
        ("import os; os.abort()", "problem", "its process ended with status -6"),
        ("import time; time.sleep(60)", "problem", "no answer in 1 seconds"),
    ],
)
def test_what_does_not_work_stops_the_main_job(
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    status: str,
    detail: str,
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", (Trial("library", code, "install it"),))
    monkeypatch.setattr(doctor, "SECONDS", 1)
    assert main([]) == 1
    out = capsys.readouterr().out
    assert f"{status:<8} {'library':<18} {detail}  -> install it" in out
    assert out.splitlines()[-1] == "`arb run` will not work yet: see library above"


def test_optional_libraries_may_be_missing(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "EXTRAS", (("x", "no_such_library", "no-such", "nothing"), ("y", "numpy", "numpy", "all"))
    )
    (absent,), (present,) = found("no_such_library"), found("numpy")
    assert (absent.status, absent.advice) == ("missing", "pip install 'arb-rl[x]'")
    assert not absent.needed
    assert present.status == "ok"
    assert main([]) == 0


def test_data_that_is_here_is_named_and_cut_off_files_are_found(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (none,) = found("data cache")
    assert none.status == "missing"
    assert "0 of 24" in none.detail
    file = tmp_path / D4RL_CACHE / HOPPER.file
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(HOPPER.size)
    (whole,) = found("data cache")
    assert whole.status == "ok"
    assert whole.detail.endswith("1 of 24 D4RL tasks: hopper-medium-v2")
    file.write_bytes(b"cut off")
    _, short = found("data cache")
    assert short.status == "problem"
    assert f"{file}" in short.advice


def test_little_room_is_a_problem(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK", 10**18)
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 10**18)
    assert found("disk")[0].status == "problem"
    assert main([]) == 1
    if free_memory() is not None:
        assert found("memory")[0].status == "problem"
        assert not found("memory")[0].needed


def test_threads_are_shown(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in doctor.THREADS:
        monkeypatch.delenv(name, raising=False)
    assert "OMP_NUM_THREADS=1" in found("threads")[0].advice
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert found("threads")[0].detail == "OMP_NUM_THREADS=3"


def test_a_look_that_fails_does_not_hide_the_others(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprised() -> Iterator[Line]:
        raise OSError("the lights went out")
        yield

    monkeypatch.setattr(doctor, "_LOOKS", (("lights", surprised), *doctor._LOOKS))
    assert str(found("lights")[0]) == f"problem  {'lights':<18} OSError: the lights went out"
    assert found("threads")


def test_an_old_python_is_refused(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_PYTHON", (4, 0))
    assert found("Python")[0].advice == "make an environment with Python 4.0 or newer"
    assert main([]) == 1


def test_help_and_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert arb(["doctor", "--help"]) == 0
    assert "exit status" in capsys.readouterr().out
    assert arb(["doctor", "--nonsense"]) == 2


def test_starts_with_numpy_alone() -> None:
    """A doctor that needs the patient's medicine is of no use."""
    code = """
import sys
for name in ("jax", "gymnasium", "mujoco", "h5py", "matplotlib", "PIL", "safetensors", "optax"):
    sys.modules[name] = None
import arb.cli.doctor
"""
    subprocess.run([sys.executable, "-c", code], check=True)
