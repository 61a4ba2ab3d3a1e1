"""Real workers on real runs: they are stopped, killed and fail, and what they leave is what a lone run leaves."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arb import make_report
from arb.cli import main
from arb.lab import plan
from arb.lab.checkpoint import checkpoints
from arb.lab.grid import grid
from arb.lab.jobs import group_of
from arb.lab.launch import View, sweep
from arb.lab.machine import cores
from arb.lab.pool import Pool, on_core
from arb.lab.runfolder import RunFolder
from arb.lab.stopping import Interrupted
from arb.progress import Screen
from tests.lab import tiny

LONGER = {"schedule.online": 1200}  # 60 chunks: enough to be stopped in the middle


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    tiny.write_data(folder / "data.npz")
    return folder


def cells_in(place: Path, **arguments):
    overrides = tiny.SMALL | tiny.NETWORKS["iql"] | LONGER
    del overrides["replay.keep"]  # which neither strategy reads
    return grid([str(place / "data.npz")], strategies=["naive", "arb"], overrides=overrides, **arguments)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes() for name in ("eval.csv", "metrics.csv", "config.json", "policy/policy.npz")
    }


class At(View):
    """Does something the first time a run has come to a step."""

    def __init__(self, cells, strategy, act):
        self.lines: list[str] = []
        super().__init__(cells, shown=Screen(self.lines.append, rows_as_lines=False))
        self._strategy, self._act = strategy, act

    def told(self, job, phase, step, total, figures):
        super().told(job, phase, step, total, figures)
        if phase == "online" and job.cell.config.replay.strategy == self._strategy and step >= 100 and self._act:
            act, self._act = self._act, None
            act()


def test_stopped_killed_and_resumed_ends_in_the_bytes_of_a_lone_run(place):
    out, cells = place / "out", cells_in(place, env="Pendulum-v1")
    naive, arb = (out / cell.folder for cell in cells)

    with pytest.raises(Interrupted, match="stopped with 2 runs left; run the same command to continue"):
        sweep(cells, out, workers=1, view=At(cells, "naive", lambda: signal.raise_signal(signal.SIGINT)))
    assert any(checkpoints(naive / "checkpoint"))
    assert not (naive / "DONE").exists()

    arb.mkdir(parents=True, exist_ok=True)
    (arb / "FAILED").write_text("of an earlier attempt\n")
    pool = Pool(1)
    view = At(cells, "arb", lambda: pool._seats[0].process.kill())
    outcome = sweep(cells, out, crew=pool, view=view)
    assert outcome.done == [cells[0].folder, cells[1].folder]
    assert not outcome.failed
    assert any("its worker process was killed by SIGKILL (out of memory?)" in line for line in view.lines)
    assert not (arb / "FAILED").exists()
    (kept,) = (path for path in (out / ".pretrained").iterdir() if path.is_dir())  # one, and none under way
    assert plan.remembered(out, group_of(cells[0])) == kept.name

    again = sweep(cells, out, workers=1)
    assert again.skipped == [cells[0].folder, cells[1].folder]
    assert again.done == []

    lone = place / "lone" / "run"
    with on_core(cores()[-1]):
        program = [sys.executable, str(Path(tiny.__file__)), str(lone), "iql", "arb", "schedule.online=1200"]
        subprocess.run(program, check=True, timeout=300)
    assert bytes_of(lone) == bytes_of(arb)


def test_an_agent_and_a_strategy_of_ones_own_are_swept_stopped_resumed_and_reported(place, monkeypatch):
    """Both of docs/extending.md, in one module in the working folder, beside a built-in strategy."""
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (place / "own_of_pool.py").write_text("\n".join(code))
    monkeypatch.chdir(place)
    overrides = {leaf: value for leaf, value in tiny.SMALL.items() if leaf != "replay.keep"}
    cells = grid(
        [str(place / "data.npz")],
        ["own_of_pool:AWAC"],
        ["naive", "own_of_pool:NewestFirst"],
        leaves={"replay.half_life": [100.0], "settings.max_weight": [20.0]},
        env="Pendulum-v1",
        overrides=overrides | {"schedule.online": 400, "settings.hidden_dims": (8, 8)},
    )
    assert [cell.folder.split("/", 1)[1] for cell in cells] == [
        "own_of_pool-AWAC/naive/seed-0",
        "own_of_pool-AWAC/own_of_pool-NewestFirst/seed-0",
    ]
    out = place / "own"
    view = At(cells, "own_of_pool:NewestFirst", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        sweep(cells, out, workers=1, view=view)
    assert any(checkpoints(out / cells[1].folder / "checkpoint"))
    outcome = sweep(cells, out, workers=1)
    assert not outcome.failed
    assert {*outcome.done, *outcome.skipped} == {cell.folder for cell in cells}
    assert make_report(out, out=place / "own-report").text.count("Newest") >= 1
    held = RunFolder(out / cells[1].folder).description().config
    assert (held["replay.half_life"], held["settings.max_weight"]) == (100.0, 20.0)


def test_what_fails_by_its_data_is_listed_at_once(place):
    out, cells = place / "failing", cells_in(place)  # without the environment's name
    view = At(cells, "", None)
    outcome = sweep(cells, out, workers=1, view=view)
    reason = "its pre-training failed: {} does not name its environment: add --env with a Gymnasium id"
    assert outcome.failed == {cell.folder: reason.format(place / "data.npz") for cell in cells}
    assert [line.partition("  ")[2].partition(":")[0] for line in view.lines] == ["failed"]  # not tried again
    first, *_, last = (out / cells[0].folder / "FAILED").read_text().splitlines()
    assert first == outcome.failed[cells[0].folder]
    assert last.startswith("arb.errors.DataError")


def test_a_worker_whose_master_is_gone_ends(place):
    pool = Pool(1)
    pool.give(0, "key", {"kind": "run", "config": {}})
    process = pool._seats[0].process
    process.stdin.close()
    assert process.wait(60) in (0, -signal.SIGTERM)
    pool.close()


def test_a_dry_run_shows_everything_and_leaves_nothing(place, capsys, tmp_path):
    out = tmp_path / "dry"
    command = ["sweep", "--strategy", "naive,arb", "--seed", "0-1", "--preset", "smoke", "-o", str(out)]
    status = main([*command, "--dry-run"])
    shown = capsys.readouterr().out
    assert status == 0
    assert "4 runs (0 finished), 2 pre-trainings" in shown
    assert shown.count("to do") == 4
    assert not out.exists()


def test_workers_stand_on_one_core_each():
    with on_core(cores()[0]):
        code = "import os; print(len(os.sched_getaffinity(0)))"
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "1"
    assert os.sched_getaffinity(0) == set(cores())
