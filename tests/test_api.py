"""The five functions that do what the commands do, on one tiny run: nothing is trained twice."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import arb
from arb.cli import parser_of
from arb.lab.strategies import COMPARED
from arb.lab.sweep import comparison, grid
from tests.lab.tiny import NETWORKS, SMALL

SETTINGS = SMALL | NETWORKS["iql"] | {"schedule.pretrain": 1, "schedule.updates": 1, "schedule.online": 20}
TASK = "bundled:pendulum-random"
PLACE = "bundled-pendulum-random/iql/naive/seed-0"
"""Where a comparison keeps this run."""


@pytest.fixture(autouse=True)
def one_format(monkeypatch):
    """Figures take most of the time of a report."""
    monkeypatch.setattr("arb.report.plots.FORMATS", {"svg": {"Date": None, "Creator": None}})


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "grid"
    result = arb.run(TASK, strategy="naive", preset="smoke", settings=SETTINGS, out=folder / PLACE)
    assert result.folder == folder / PLACE
    assert np.isfinite([result.pretrained, result.last, result.best, result.drop]).all()
    return folder


def test_a_run_is_a_folder_and_a_finished_one_is_returned(out):
    said = json.loads((out / PLACE / "config.json").read_text())["config"]
    assert (said["replay.strategy"], said["schedule.online"], said["settings.hidden_dims"]) == ("naive", 20, [8, 8])
    before = (out / PLACE / "eval.csv").stat().st_mtime_ns
    again = arb.run(TASK, strategy="naive", preset="smoke", settings=SETTINGS, out=str(out / PLACE))
    assert again.folder == out / PLACE
    assert (out / PLACE / "eval.csv").stat().st_mtime_ns == before


def test_another_run_does_not_go_into_the_same_folder(out):
    with pytest.raises(arb.DataError, match=r"seed = 0, not 1"):
        arb.run(TASK, strategy="naive", seed=1, preset="smoke", settings=SETTINGS, out=out / PLACE)


def test_a_policy_acts_on_observations_of_the_environment(out):
    for which in ("last", "best", "pretrained"):
        policy = arb.load_policy(out / PLACE, which)
        assert policy(np.array([1.0, 0.0, 0.0])).shape == (1,)
        assert np.abs(policy(np.random.default_rng(0).normal(size=(50, 3)))).max() <= 2.0
    with pytest.raises(arb.DataError, match="no policy 'newest'"):
        arb.load_policy(out / PLACE, "newest")


def test_a_report_is_a_page_and_a_table(out, tmp_path):
    report = arb.make_report(out, out=tmp_path / "report", title="Pendulum & co")
    assert "Naive" in report.text
    assert report.page == tmp_path / "report" / "index.html"
    assert "<title>Pendulum &amp; co</title>" in report.page.read_text()
    assert all(path.is_file() for path in report.files)


def test_a_sweep_skips_what_is_finished(out, tmp_path):
    settings = {name: [value] for name, value in SETTINGS.items()}
    (cell,) = grid([TASK], strategies=["naive"], axes=settings, preset="smoke")
    shutil.copytree(out / PLACE, tmp_path / cell.folder)
    outcome = arb.sweep([TASK], strategies=["naive"], preset="smoke", settings=settings, out=tmp_path, workers=1)
    assert (outcome.done, outcome.skipped, outcome.failed) == ([], [cell.folder], {})
    with pytest.raises(arb.DataError, match="nowhere"):  # as the command does, before anything is started
        arb.sweep([str(out / "nowhere.npz")], env="Pendulum-v1", preset="smoke", out=out)


def test_a_comparison_reports_on_its_runs(out):
    report = arb.compare(TASK, strategies=["naive"], seeds=[0], preset="smoke", settings=SETTINGS, out=out, workers=1)
    assert report.page == out / "report" / "index.html"
    assert "The run is finished." in report.text


def test_the_function_and_the_command_compare_the_same_by_default():
    assert ",".join(COMPARED) == parser_of("compare").parse_args([]).strategy
    folder, title = comparison("hopper-medium-v2", "my_module:AWAC", "small")
    assert folder == Path("compare") / "hopper-medium-v2-my_module-AWAC-small"  # no colon, which some disks refuse
    assert title == "Replay strategies for my_module:AWAC on hopper-medium-v2"


def test_mistakes_are_refused_before_anything_is_written(tmp_path):
    for wrong, said in (({"strategy": "abr"}, "did you mean 'arb'"), ({"agent": "iqn"}, "did you mean 'iql'"),
                        ({"preset": "tiny"}, "no preset"), ({"settings": {"schedule.onlin": 5}}, "no setting"),
                        ({"settings": {"task": "antmaze-umaze-v2"}}, "an option of its own: --task"),
                        ({"task": "hoper-medium-v2"}, "did you mean 'hopper")):  # fmt: skip
        with pytest.raises(arb.DataError, match=said):
            arb.run(**wrong, out=tmp_path / "run")
    with pytest.raises(arb.DataError, match="needs a folder of runs or an archive"):
        arb.make_report([])
    assert not (tmp_path / "run" / "config.json").exists()
