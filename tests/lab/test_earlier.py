"""A run of the version before, as it left it: what can be read is read, and the rest is refused in one line.

`tests/golden/run-format-1` was made by commit 1390e50 with `arb run --preset smoke settings.hidden_dims='(4,4)'` and a
schedule of 20 updates and 20 steps; its second checkpoint and its picture were left out, and its buffer was compressed.
"""

import json
import shutil
from pathlib import Path

import pytest

from arb.errors import DataError
from arb.lab.config import configure
from arb.lab.run import run
from arb.lab.runfolder import RunFolder
from arb.policies import load_policy
from arb.report.records import group_runs, read_runs

OLD = Path(__file__).parents[1] / "golden" / "run-format-1"
SETTINGS = {
    "schedule.pretrain": 20, "schedule.online": 20, "schedule.collect": 10, "schedule.updates": 10,
    "schedule.refresh": 10, "schedule.batch": 8, "evaluation.every": 20, "settings.hidden_dims": (4, 4),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def config():
    return configure(task="bundled:pendulum-random", strategy="arb", preset="smoke", overrides=SETTINGS)


def test_its_curves_and_figures_are_read(folder):
    runs = read_runs([folder])
    assert [(record.status, record.reason) for record in runs.all] == [("done", "")]
    (cell,) = group_runs(runs).groups
    assert cell.values("last").tolist() == [json.loads((OLD / "result.json").read_text())["last"]]
    assert cell.metric("replay.online_share")[0].tolist() == [10.0, 20.0]


def test_a_finished_run_is_returned_as_it_is(folder):
    said = json.loads((OLD / "result.json").read_text())
    del said["folder"]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = run(config(), folder)
    assert {name: getattr(found, name) for name in said} == said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_is_refused_and_stays_as_it_was(folder):
    (folder / "DONE").unlink()
    with pytest.raises(DataError, match=r"saved in format 1.*start again") as refused:
        run(config(), folder)
    assert "\n" not in str(refused.value)
    assert (folder / "eval.csv").read_bytes() == (OLD / "eval.csv").read_bytes()


def test_its_policy_is_refused_in_one_line(folder):
    with pytest.raises(DataError, match=r"policy.npz has format 1, this version of arb reads 2") as refused:
        load_policy(folder)
    assert "\n" not in str(refused.value)
    with pytest.raises(DataError, match="kept only the last one"):
        load_policy(folder, "best")


def test_another_setting_is_still_noticed(folder):
    with pytest.raises(DataError, match="seed = 0, not 1"):
        run(
            configure(task="bundled:pendulum-random", strategy="arb", preset="smoke", seed=1, overrides=SETTINGS),
            folder,
        )
    assert RunFolder(folder).done
