"""The folder of a sweep: which run has which folder, what is remembered, and what is refused."""

import json

import pytest

from arb import DataError
from arb.files import locked
from arb.lab import plan
from arb.lab.checkpoint import SHARED
from arb.lab.config import RETIRED, flat
from arb.lab.grid import grid
from arb.lab.launch import sweep
from arb.lab.runfolder import RunFolder
from tests.lab import tiny

TASK = "hopper-medium-v2"


def cells_of(seeds):
    return grid([TASK], strategies=["naive", "arb"], seeds=range(seeds), preset="smoke")


def variants(**leaves):
    return grid(
        [TASK],
        strategies=["arb"],
        preset="smoke",
        leaves={name.replace("_", "."): values for name, values in leaves.items()},
    )


def folders(cells):
    return [cell.folder.split("/")[2] for cell in cells]


def test_the_plan_grows_and_keeps_other_configurations_out(tmp_path):
    cells = cells_of(2)
    plan.write_plan(tmp_path, cells[:2])
    plan.write_plan(tmp_path, cells[1:])
    held = plan.read_json(tmp_path / "plan.json")["cells"]
    assert [row["folder"] for row in held] == [cell.folder for cell in cells]
    assert held[0]["config"] == flat(cells[0].config)
    longer = grid(["hopper-medium-v2"], strategies=["naive"], preset="demo")
    with pytest.raises(DataError, match=r"naive/seed-0 with evaluation.episodes = 2, not 5: choose another"):
        plan.placed(tmp_path, longer)


def test_a_reason_is_one_line_above_the_traceback(tmp_path):
    cell = cells_of(2)[0]
    plan.write_failure(tmp_path, cell, "two\n  lines", "Traceback")
    file = tmp_path / cell.folder / "FAILED"
    assert file.read_text().splitlines() == ["two lines", "", "Traceback"]
    plan.forget_failure(tmp_path, cell)
    assert not file.exists()


def test_the_name_of_a_pretraining_is_remembered_while_it_is_there(tmp_path):
    assert plan.remembered(tmp_path, "group") is None
    plan.remember(tmp_path, "group", "kept")
    assert plan.remembered(tmp_path, "group") is None
    (tmp_path / SHARED / "kept").mkdir()
    assert plan.remembered(tmp_path, "group") == "kept"


def test_two_sweeps_do_not_work_in_one_folder(tmp_path):
    with locked(tmp_path / plan.LOCK, "busy"), pytest.raises(DataError, match="another sweep is running in"):
        sweep([], tmp_path)
    assert sweep([], tmp_path).done == []


def test_a_run_keeps_the_folder_that_it_was_given_first(tmp_path):
    first = plan.placed(tmp_path, variants(replay_temperature=[1]))
    assert folders(first) == ["arb"]
    plan.write_plan(tmp_path, first)
    more = plan.placed(tmp_path, variants(replay_temperature=[1, 2]))
    assert folders(more) == ["arb", "arb-replay.temperature=2.0"]
    plan.write_plan(tmp_path, more)
    assert folders(plan.placed(tmp_path, variants(replay_temperature=[2]))) == ["arb-replay.temperature=2.0"]


def test_a_name_that_another_run_has_gets_all_its_settings(tmp_path):
    plan.write_plan(tmp_path, variants(schedule_online=[500]))
    other = plan.placed(tmp_path, variants(schedule_online=[600]))
    assert folders(other) == ["arb-schedule.online=600"]
    plan.write_plan(tmp_path, other)
    assert folders(plan.placed(tmp_path, variants(schedule_online=[600]))) == ["arb-schedule.online=600"]


def test_folders_of_the_version_before_are_found_by_their_configuration(tmp_path):
    (cell,) = variants(schedule_online=[500])
    plan.write_plan(tmp_path, [cell._replace(folder=cell.full)])  # as all of them were called
    assert folders(plan.placed(tmp_path, [cell])) == ["arb-schedule.online=500"]


def test_a_plan_from_before_a_setting_existed_still_opens(tmp_path):
    (cell,) = variants(schedule_online=[500])
    old = {leaf: value for leaf, value in flat(cell.config).items() if leaf != "replay.effective"}
    old |= dict(list(RETIRED)[:1])
    row = {"folder": cell.full, "config": old}
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [row]}))
    assert folders(plan.placed(tmp_path, [cell])) == ["arb-schedule.online=500"]


def test_a_finished_run_whose_data_has_changed_is_refused(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    (cell,) = grid([str(tmp_path / "data.npz")], strategies=["arb"], env="Pendulum-v1", preset="smoke")
    run = RunFolder(tmp_path / cell.folder)
    run.path.mkdir(parents=True)
    run.done_mark.touch()
    described = {"config": flat(cell.config), "data": {"sha256": "0" * 64}}
    run.config_file.write_text(json.dumps(described))
    with pytest.raises(DataError, match=r"the data of .*data.npz has changed since the run"):
        plan.refuse_hopeless(tmp_path, [cell])
    (tmp_path / "data.npz").unlink()
    plan.refuse_hopeless(tmp_path, [cell])  # finished, and nothing to compare with
    run.done_mark.unlink()
    with pytest.raises(DataError, match="there is no file"):
        plan.refuse_hopeless(tmp_path, [cell])


def test_a_plan_loads_no_module(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    (cell,) = variants()
    config = flat(cell.config) | {"agent": "evil:X", "replay.strategy": "evil:Y"}
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [{"folder": "a/b/c/seed-0", "config": config}]}))
    assert plan.placed(tmp_path, [cell]) == [cell]


def test_a_plan_with_other_settings_is_refused_in_one_line(tmp_path):
    (cell,) = variants()
    row = {"folder": cell.folder, "config": flat(cell.config) | {"replay.old": 1}}
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [row]}))
    with pytest.raises(DataError, match=r"another version of arb, in which settings differ \(replay.old\)"):
        plan.placed(tmp_path, [cell])


@pytest.mark.parametrize("folder", ["../../out", "/tmp/a/b/c", "a/../b/c", ".a/b/c/d", "a/b/c", "a/b/c/d/e"])
def test_a_plan_names_no_folder_elsewhere(tmp_path, folder):
    (cell,) = variants()
    row = {"folder": folder, "config": flat(cell.config)}
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [row]}))
    assert plan.placed(tmp_path, [cell]) == [cell]


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": 3}', '{"cells": [{"folder": "a"}]}', '{"cells": [3]}'])
def test_a_damaged_plan_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(DataError, match=r"plan.json is damaged: move it away"):
        plan.placed(tmp_path, variants())


def test_a_run_of_other_settings_in_the_folder_is_refused(tmp_path):
    (cell,) = variants()
    folder = tmp_path / cell.folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"config": flat(cell.config) | {"schedule.online": 900}}))
    with pytest.raises(DataError, match=r"schedule.online = 900, not 400"):
        plan.placed(tmp_path, [cell])


def test_a_note_about_a_pretraining_is_a_name_and_no_path(tmp_path):
    plan.remember(tmp_path, "group", "../elsewhere")
    (tmp_path / "elsewhere").mkdir()
    assert plan.remembered(tmp_path, "group") is None
