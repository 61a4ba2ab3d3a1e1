"""Full disks and folders that cannot be written: one line, no traceback, nothing half-written.

A limit on the size of files stands in for a full disk: the system refuses the write in the middle in the same way.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import tiny
from tests.report.folders import write_run

LIMITED = """
import resource, sys
from arb.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""
NOWHERE = "/proc/arb/out"
"""Not even root can make a folder there."""


def run_limited(place: Path, limit: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(limit), *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"arb-{seed}", seed=seed)
    tiny.write_data(tmp_path / "data.npz")
    return tmp_path


def files_of(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


SWEEP = ("sweep", "-t", "data.npz", "-e", "Pendulum-v1", "-p", "smoke", "-o")
COLLECT = ("data", "collect", "Pendulum-v1", "random", "--steps", "500", "--out")
COMMANDS = {
    "report": (("report", "runs", "-o"), "out", 500),
    "pack": (("report", "--pack", "runs", "-o"), "out/a.jsonl", 500),
    "sweep": (SWEEP, "out", 500),
    "compare": (("compare", *SWEEP[1:]), "out", 500),
    "collect": (COLLECT, "out/a.hdf5", 3000),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(place, name):
    arguments, out, limit = COMMANDS[name]
    before = files_of(place)
    done = run_limited(place, limit, *arguments, out)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("arb ")]) == 1, done.stderr
    new = files_of(place) - before
    assert not [path for path in new if ".part" in path or path.endswith((".html", ".txt", ".hdf5", ".jsonl"))], new
    assert "free some space" in done.stderr or "File too large" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_cannot_be_made_is_one_line(place, name):
    arguments, out, _ = COMMANDS[name]
    before = files_of(place)
    done = run_limited(place, 10**9, *arguments, out.replace("out", NOWHERE))
    assert done.returncode in (1, 2), done.stdout + done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(f"arb {arguments[0]}: "))
    assert "/proc/arb" in line
    assert "Traceback" not in done.stderr
    assert files_of(place) == before
