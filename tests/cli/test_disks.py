"""Full disks and folders that cannot be written: one line, no traceback, nothing half-written.

A limit on the size of files stands in for a full disk: the system refuses the write in the middle in the same way.
"""

import resource
from pathlib import Path

import pytest

from arb.cli import main
from tests.lab import tiny
from tests.report.folders import write_run

NOWHERE = "/proc/arb/out"
"""Not even root can make a folder there."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"arb-{seed}", seed=seed)
    tiny.write_data(tmp_path / "data.npz")
    monkeypatch.chdir(tmp_path)
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
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(place, name, capsys):
    arguments, out, size = COMMANDS[name]
    before, (limit, most) = files_of(place), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        status = main([*arguments, out])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    said = capsys.readouterr().err
    assert status == 1
    assert len([line for line in said.splitlines() if line.startswith("arb ")]) == 1, said
    new = files_of(place) - before
    assert not [path for path in new if ".part" in path or path.endswith((".html", ".txt", ".hdf5", ".jsonl"))], new
    assert "free some space" in said or "File too large" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_cannot_be_made_is_one_line(place, name, capsys):
    arguments, out, _ = COMMANDS[name]
    before = files_of(place)
    assert main([*arguments, out.replace("out", NOWHERE)]) in (1, 2)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith(f"arb {arguments[0]}: "))
    assert "/proc/arb" in line
    assert files_of(place) == before
