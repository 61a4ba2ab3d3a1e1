"""`arb doctor` says what works, what does not, and what to do."""

import subprocess
import sys

import pytest

from arb.cli import doctor, main


@pytest.fixture
def quick(monkeypatch):
    """Without the trials that take seconds."""
    monkeypatch.setattr(doctor, "TRIALS", {"quick": ("print('fine')", "")})
    monkeypatch.setattr(doctor, "DRAWING", "raise RuntimeError('no screen')")


def test_every_trial_answers():
    for code, _ in doctor.TRIALS.values():
        assert doctor.tried(code)[0]


def test_a_machine_without_graphics_and_extras_can_run(quick, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EXTRAS", {"x": ("no_such_library", "nothing"), "y": ("numpy", "all")})
    assert main(["doctor"]) == 0
    *lines, empty, verdict = capsys.readouterr().out.splitlines()
    assert (empty, verdict) == ("", "`arb run` works here")
    by_name = {line[10:28].strip(): line for line in lines}
    assert by_name["quick"].split()[0] == "ok"
    assert by_name["drawing"].startswith("optional")
    assert "RuntimeError: no screen" in by_name["drawing"]
    assert by_name["no_such_library"].endswith("pip install 'arb-rl[x]'")
    assert by_name["numpy"].startswith("ok")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import no_such_library.part", "No module named 'no_such_library'"),
        ("raise RuntimeError('two\\nlines')", "lines"),
        ("import os; os.abort()", "-6"),
        ("import time; time.sleep(60)", "no answer in 1 seconds"),
    ],
)
def test_what_does_not_work_is_named_with_advice(quick, monkeypatch, capsys, code, detail):
    monkeypatch.setattr(doctor, "TRIALS", {"library": (code, "install it")})
    monkeypatch.setattr(doctor, "SECONDS", 1)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("problem"))
    assert detail in line
    assert line.endswith("-> install it")
    assert "see library; the replay buffer and trained policies need NumPy alone" in out.splitlines()[-1]


def test_little_room_or_an_old_python_is_a_problem(quick, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "LEAST_DISK", 10**18)
    monkeypatch.setattr(doctor, "LEAST_PYTHON", (4, 0))
    assert main(["doctor"]) == 1
    assert "see Python, disk; " in capsys.readouterr().out.splitlines()[-1]


def test_a_folder_of_the_name_of_a_package_is_not_the_package(quick, monkeypatch, tmp_path, capsys):
    (tmp_path / "no_such_library").mkdir()  # as W&B and Ray leave them
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.setattr(doctor, "EXTRAS", {"x": ("no_such_library", "nothing")})
    assert main(["doctor"]) == 0
    assert "optional  no_such_library" in capsys.readouterr().out


def test_starts_with_numpy_alone():
    code = """
import sys
for name in ("jax", "gymnasium", "mujoco", "h5py", "matplotlib", "PIL", "safetensors", "optax"):
    sys.modules[name] = None
import arb.cli.doctor
"""
    subprocess.run([sys.executable, "-c", code], check=True)
