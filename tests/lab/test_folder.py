"""The folder of a run: what is read is checked, and nothing that is read becomes a path or an import."""

import json
import math
import sys

import numpy as np
import pytest

from arb import DataError
from arb.files import GrowingTable, locked, read_json
from arb.lab.folder import RunFolder, Shared, convergence_note, read_name, time_constants
from arb.replay.dataset import Dataset

CONFIG = {"config": {"agent": "iql", "replay.strategy": "arb", "seed": 0}, "env": "arb/hopper-v2"}


def folder_of(path, described=None, **files):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | (described or {})))
    for name, text in files.items():
        (path / f"{name}.csv").write_text(text)
    return RunFolder(path)


def evaluations(*rows, header="phase,step,episode,return,score"):
    return "\n".join([header, *rows]) + "\n"


def test_curves_scores_and_drop_by_hand(tmp_path):
    table = evaluations(
        "pretrain,0,0,1.0,10.0", "pretrain,0,1,3.0,30.0", "pretrain,40,0,4.0,40.0", "online,0,0,4.0,41.0",
        "online,20,0,2.0,25.0", "online,20,1,2.5,35.0", "online,40,0,9.0,90.0", "online,60,0,5.0,50.0",
    )  # fmt: skip
    folder = folder_of(tmp_path, eval=table)
    curves = folder.curves()
    assert curves["pretrain"].means.tolist() == [20.0, 40.0]
    assert curves["online"].steps.tolist() == [0, 20, 40, 60]
    assert curves["online"].returns[1].tolist() == [2.0, 2.5]
    scores = folder.result()
    assert (scores.pretrained, scores.last, scores.best, scores.drop) == (40.0, 50.0, 90.0, 10.0)
    assert scores.best_step == 40
    assert scores.success is None


def test_a_pretrained_policy_that_nothing_beats_is_the_best(tmp_path):
    table = evaluations("pretrain,40,0,9.0,90.0", "online,20,0,2.0,25.0", "online,40,0,9.0,90.0")
    assert folder_of(tmp_path, eval=table).result().best_step == 0


def test_success_is_that_of_the_last_evaluation(tmp_path):
    header = "phase,step,episode,return,score,success"
    rows = ("pretrain,4,0,0,0,0", "online,4,0,0,0,0", "online,4,1,0,0,0", "online,8,0,1,1,1", "online,8,1,0,0,0")
    assert folder_of(tmp_path, eval=evaluations(*rows, header=header)).result().success == 0.5


def test_an_environment_that_reports_only_success_fails_where_it_reports_nothing(tmp_path):
    header = "phase,step,episode,return,score,success"
    rows = ("pretrain,4,0,0,0,", "online,4,0,1,1,1", "online,4,1,0,0,0", "online,8,0,0,0,")
    curves = folder_of(tmp_path, eval=evaluations(*rows, header=header)).curves()
    assert [values.tolist() for values in curves["online"].successes] == [[1.0, 0.0], [0.0]]
    assert [values.tolist() for values in curves["pretrain"].successes] == [[0.0]]
    silent = folder_of(tmp_path, eval=evaluations("pretrain,4,0,0,0,", "online,4,0,1,1,", header=header))
    assert silent.result().success is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["online,4,0,1.0"], "line 2: 5 columns expected"),
        (["online,4,0,1.0,2.0,3.0"], "line 2: 5 columns expected"),
        (["online,4,0,nan,2.0"], "line 2: return 'nan' is not finite"),
        (["online,4,0,1.0,inf"], "line 2: score 'inf' is not finite"),
        (["online,4,0,1.0,many"], "line 2: score 'many' is not a number"),
        ([f"online,{10**400},0,1.0,2.0"], "must be a whole number"),
        (["online,-4,0,1.0,2.0"], "step '-4' must be a whole number"),
        (["later,4,0,1.0,2.0"], "phase 'later' must be pretrain or online"),
        (["online,4,0,1.0,2.0", "online,4,0,1.0,2.0"], "line 3: episode 0 of online step 4 is there twice"),
    ],
)
def test_a_bad_row_is_named_with_its_line(rows, message, tmp_path):
    with pytest.raises(DataError, match=r"eval\.csv") as caught:
        folder_of(tmp_path, eval=evaluations(*rows)).curves()
    assert message in str(caught.value)


def test_metrics_by_phase_and_a_table_that_two_processes_wrote(tmp_path):
    table = "phase,step,loss\npretrain,20,1.5\npretrain,40,\nonline,20,2.5\n"
    metrics = folder_of(tmp_path, metrics=table).metrics()
    assert metrics["pretrain"]["step"].tolist() == [20, 40]
    assert math.isnan(metrics["pretrain"]["loss"][1])
    assert metrics["online"]["loss"].tolist() == [2.5]
    with pytest.raises(DataError, match="line 5: step 20 comes after step 20"):
        folder_of(tmp_path, metrics=table + "online,20,2.5\n").metrics()


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"config": {"agent": "/../../OUTSIDE"}}, "agent '/../../OUTSIDE' is not a name"),
        ({"config": {"agent": "iql", "replay.strategy": "a b"}}, "replay.strategy 'a b' is not a name"),
        ({"config": {"agent": "x\n"}}, "is not a name"),
        ({"config": {"agent": ["iql"]}}, "is not a name"),
        ({"config": None}, "has no settings"),
        ({"env": "../../bin/sh"}, "is not the name of an environment"),
        ({"env": 7}, "is not the name of an environment"),
        ({"reference": [1]}, "reference [1] must be two numbers, the second larger"),
        ({"reference": [1, 1]}, "the second larger"),
        ({"reference": [0, "Infinity"]}, "the second larger"),
        ({"data": [1]}, "must be objects"),
    ],
)
def test_a_config_of_someone_else_is_refused_in_one_line(described, message, tmp_path):
    with pytest.raises(DataError, match=r"config\.json") as caught:
        folder_of(tmp_path, described).description()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_plug_ins_are_read_as_text_and_never_imported(tmp_path):
    described = folder_of(
        tmp_path, {"config": {"agent": "antigravity:Fly", "replay.strategy": "this:Zen"}}
    ).description()
    assert described.config["agent"] == "antigravity:Fly"
    assert read_name("my_package.my_module:MyAgent", "agent", tmp_path) == "my_package.my_module:MyAgent"
    assert not {"antigravity", "this"} & set(sys.modules)


def test_what_is_no_run_and_what_is_no_json(tmp_path):
    with pytest.raises(DataError, match=r"is not the folder of a run: it has no config\.json"):
        RunFolder(tmp_path).description()
    for text in ("{", "[" * 100_000, '"' + "\udc80".encode("utf-8", "surrogateescape").decode("latin-1")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DataError, match=r"config\.json is damaged"):
            RunFolder(tmp_path).description()
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match="is not a regular file"):
        read_json(tmp_path / "x")


def test_a_second_holder_of_a_lock_is_refused_and_the_next_is_not(tmp_path):
    second = locked(tmp_path / ".lock", "somebody is at work")
    with locked(tmp_path / ".lock", ""), pytest.raises(DataError, match="somebody is at work"):
        second.__enter__()
    with locked(tmp_path / ".lock", "somebody is at work"):
        pass


def test_a_table_keeps_its_columns_and_is_cut_back(tmp_path):
    table = GrowingTable(tmp_path / "t.csv")
    table.add({"a": 1, "b": 0.1})
    size = table.size
    table.add({"a": 2, "b": np.float64(0.2)}, {"a": 3})
    assert table.columns == ("a", "b")
    with pytest.raises(ValueError, match="has no column c"):
        table.add({"a": 1, "c": 2})
    assert [row for _, row in GrowingTable(table.path).rows()][2] == {"a": "3", "b": ""}
    GrowingTable(table.path).truncate(size)
    assert table.path.read_text() == "a,b\n1,0.1\n"
    table.truncate(0)
    table.add({"z": 1})
    assert table.path.read_text() == "z\n1\n"


def test_a_byte_that_is_not_text_is_one_line(tmp_path):
    folder = folder_of(tmp_path, eval="phase,step,episode,return,score\n", metrics="phase,step\n")
    for path, read in ((folder.eval_file, folder.curves), (folder.metrics_file, folder.metrics)):
        for content in (b"ph\xffase,step\n", path.read_bytes() + b"pre\xff,1\n"):
            path.write_bytes(content)
            with pytest.raises(DataError, match=rf"{path.name} cannot be read"):
                read()


def test_convergence_is_counted_in_time_constants():
    config = {"schedule.pretrain": 40_000, "settings.tau": 0.005, "settings.discount": 0.99}
    assert time_constants(config) == pytest.approx(2.0)
    assert convergence_note(config) == (
        "pre-training covers 86 % of the way of the critics: 95 % take 60,000 updates, schedule.pretrain=60000"
    )
    assert convergence_note(config | {"schedule.pretrain": 60_000}) == ""
    assert convergence_note(config | {"settings.tau": 0.02}) == ""
    assert time_constants({"schedule.pretrain": 5, "settings.discount": 0.99}) is None


def test_the_result_knows_the_data_and_the_convergence(tmp_path):
    config = CONFIG["config"] | {"schedule.pretrain": 100, "settings.tau": 0.5, "settings.discount": 0.9}
    described = {"config": config, "reference": [0, 200], "data": {"mean_return": 50.0, "best_return": 150.0}}
    rows = "phase,step,episode,return,score\npretrain,1,0,2,2\nonline,1,0,3,3\n"
    result = folder_of(tmp_path, described, eval=rows).result()
    assert (result.data_mean, result.data_best, result.time_constants) == (25.0, 75.0, 5.0)


def test_convergence_is_that_of_values_that_are_fitted_at_once():
    # One state that leads to itself with reward 1: Q = 1 + γ·target, and the target moves by τ towards Q.
    target, tau, discount = 0.0, 0.01, 0.9
    for _ in range(1_500):
        target += tau * (1.0 + discount * target - target)
    config = {"schedule.pretrain": 1_500, "settings.tau": tau, "settings.discount": discount}
    passed = time_constants(config)
    assert target * (1.0 - discount) == pytest.approx(1.0 - math.exp(-passed), abs=1e-3)


# ---- datasets that the workers of a sweep share ----------------------------------------------------------------------
def dataset(**more):
    rng = np.random.default_rng(0)
    return Dataset(
        {"hand": rng.normal(size=(6, 2)), "eye": rng.integers(0, 255, (6, 3, 3), np.uint8)}, rng.normal(size=(6, 1)),
        rng.normal(size=6), np.arange(6) == 5, np.array([4, 2]), provenance={"env": "arb/hopper-v2"}, **more,
    )  # fmt: skip


def refuse():
    raise AssertionError("made twice")


def test_a_shared_dataset_is_made_once_and_mapped_by_all(tmp_path):
    final = {"hand": np.zeros((2, 2)), "eye": np.zeros((2, 3, 3), np.uint8)}
    made = dataset(extras={"../../x": np.arange(6.0)}, final_observations=final)
    first, second = Shared(tmp_path / "datasets"), Shared(tmp_path / "datasets")
    for found in (first.get("a", lambda: made), second.get("a", refuse), second.get("a", refuse)):
        assert found.fingerprint == made.fingerprint
        assert found.provenance == made.provenance
        for column in (found.observations["eye"], found.actions, found.final_observations["hand"], found.rewards):
            while not isinstance(column, np.memmap):  # a view of a file has one for its base
                column = column.base
            assert column.mode == "r"
    assert second.get("a", refuse) is second.get("a", refuse)
    assert first.get("b", dataset).fingerprint == dataset().fingerprint != made.fingerprint


@pytest.mark.parametrize("extras", [{}, {"empty": np.zeros((6, 0))}], ids=["no room", "cannot be mapped"])
def test_without_room_for_shared_datasets_every_worker_makes_its_own(tmp_path, monkeypatch, extras):
    def full(*_):
        raise OSError(28, "No space left on device")

    if not extras:
        monkeypatch.setattr("arb.lab.folder.write_folder", full)
    for _ in range(2):
        found = Shared(tmp_path / "datasets").get("a", lambda: dataset(extras=extras))
        assert found.fingerprint == dataset(extras=extras).fingerprint


def test_a_mistake_in_shared_data_is_told_as_it_is(tmp_path):
    def wrong():
        raise DataError("no rows")

    for _ in range(2):
        with pytest.raises(DataError, match="no rows"):
            Shared(tmp_path / "datasets").get("a", wrong)
