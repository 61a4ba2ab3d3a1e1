"""An archive holds what its run folders held, in the same bytes every time; a hostile one is data, not a danger."""

import json
import shutil

import numpy as np
import pytest

from arb import cli
from arb.data.tasks import normalised
from arb.errors import DataError
from arb.report.archive import pack
from arb.report.cells import MEASURES, gather
from arb.report.comparison import groups, tables
from arb.report.lines import from_line, to_line
from arb.report.record import tame
from arb.report.runs import read_archive, read_runs
from tests.report.folders import write_run, write_sweep

MACHINE = {"cpu": "Some CPU", "cores": 2, "commit": "0a" * 20, "seconds": {"pretrain": 60.0, "online": 90.5}}


@pytest.fixture
def sweep(tmp_path):
    root = write_sweep(tmp_path / "runs", tasks=["hopper-medium-v2", "walker2d-medium-v2"])
    write_run(root / "plain", task="pendulum", reference=None)
    for folder in root.rglob("DONE"):
        (folder.parent / "machine.json").write_text(json.dumps(MACHINE))
    return root


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_same_runs_give_the_same_bytes_in_any_order(sweep, tmp_path):
    first = pack([sweep], tmp_path / "a.jsonl")
    assert (first.runs, first.left_out, first.size) == (9, (), (tmp_path / "a.jsonl").stat().st_size)
    moved = tmp_path / "elsewhere"
    shutil.move(sweep, moved)
    pack([moved], tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    keys = [(line["config"]["task"], line["config"]["replay.strategy"], line["config"]["seed"]) for line in
            lines(tmp_path / "a.jsonl")]  # fmt: skip
    assert keys == sorted(keys)
    pack([tmp_path / "a.jsonl"], tmp_path / "c.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()


def test_a_line_holds_everything_that_the_folder_holds(sweep, tmp_path):
    pack([sweep], tmp_path / "a.jsonl")
    held = {line["run"]: line for line in lines(tmp_path / "a.jsonl")}
    line = held["hopper-medium-v2/iql-arb-1"]
    described = json.loads((sweep / "hopper-medium-v2/iql-arb-1/config.json").read_text())
    assert line["config"] == described["config"]
    assert line["data"] == described["data"]
    assert line["versions"] == described["versions"]
    assert line["machine"] == MACHINE
    assert line["evaluations"]["online"]["step"] == [0, 2000, 4000, 6000, 8000, 10000]
    assert [len(episodes) for episodes in line["evaluations"]["online"]["return"]] == [3] * 6
    assert "replay.online_share" in line["metrics"]["online"]
    assert "pretrain" not in line["metrics"]  # it has no replay figure
    assert "critic_loss" not in line["metrics"]["online"]


def test_every_table_is_the_same_from_an_archive(sweep, tmp_path):
    pack([sweep], tmp_path / "results" / "a.jsonl")
    shown = []
    for place in (sweep, tmp_path / "results", tmp_path / "results" / "a.jsonl"):
        results = gather(read_runs([place]))
        shown.append([table.text() for table in tables(results, groups(results))])
    assert shown[0] == shown[1] == shown[2]


def test_returns_keep_six_digits_and_scores_follow_from_them(tmp_path):
    write_run(tmp_path / "run")
    run = read_runs([tmp_path]).all[0]
    again = from_line("x.jsonl", to_line(run, "run"))
    for phase, curve in run.curves.items():
        for old, new in zip(curve.returns, again.curves[phase].returns, strict=True):
            np.testing.assert_allclose(new, old, rtol=5.1e-6)
            np.testing.assert_allclose(again.curves[phase].scores[0], curve.scores[0], atol=2e-4)
    assert again.place == "x.jsonl: run"
    assert {name: m.of(run) for name, m in MEASURES.items()} == pytest.approx(
        {name: m.of(again) for name, m in MEASURES.items()}, abs=2e-3
    )
    np.testing.assert_array_equal(normalised(np.array([10.0, 30.0]), (10.0, 20.0)), [0.0, 200.0])


def test_long_figures_are_thinned_and_keep_their_last_point(tmp_path):
    write_run(tmp_path / "run", points=1000)
    run = read_runs([tmp_path]).all[0]
    kept = json.loads(to_line(run, "run"))["metrics"]["online"]["step"]
    assert (len(kept), kept[0], kept[-1]) == (200, 10, 10000)


def test_unfinished_runs_are_left_out_and_failures_are_not(tmp_path):
    write_run(tmp_path / "runs/done")
    write_run(tmp_path / "runs/half", seed=1, done=False, online_steps=4000)
    fell = write_run(tmp_path / "runs/fell", seed=2, done=False)
    (fell / "FAILED").write_text("the loss is not finite\n")
    packed = pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert packed.left_out == (f"{tmp_path / 'runs/half'}: unfinished, at online step 4,000 of 10,000",)
    (failed,) = read_runs([tmp_path / "a.jsonl"]).lacking
    assert (failed.status, failed.reason, failed.seed) == ("failed", "the loss is not finite", 2)


def test_what_an_archive_holds_stays_and_what_is_found_again_replaces_it(tmp_path):
    write_run(tmp_path / "runs/a", final=10.0)
    write_run(tmp_path / "runs/b", seed=1)
    pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    shutil.rmtree(tmp_path / "runs/b")
    write_run(tmp_path / "runs/a", final=20.0)
    write_run(tmp_path / "runs/c", seed=2)
    packed = pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert (packed.runs, packed.kept) == (3, 1)
    last = {run.seed: MEASURES["last"].of(run) for run in read_runs([tmp_path / "a.jsonl"]).all}
    assert last[0] == pytest.approx(20.0, abs=1e-3)
    assert sorted(last) == [0, 1, 2]
    (tmp_path / "runs/a/DONE").unlink()
    (tmp_path / "runs/a/FAILED").write_text("fell\n")
    pack([tmp_path / "runs"], tmp_path / "a.jsonl")  # a finished run is not replaced by its failure
    assert {run.status for run in read_runs([tmp_path / "a.jsonl"]).all} == {"done"}


def test_scores_that_do_not_follow_from_the_returns_are_not_packed(tmp_path):
    folder = write_run(tmp_path / "runs/a")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**described, "reference": [0.0, 1.0]}))
    with pytest.raises(DataError, match="do not follow from its returns"):
        pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notes.txt", "ends in .jsonl"),
        ("folder.jsonl", "is not a regular file"),
        ("other.jsonl", "is not an archive of runs"),
    ],
)
def test_nothing_but_an_archive_is_written_over(tmp_path, name, said):
    write_run(tmp_path / "runs/a")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=said):
        pack([tmp_path / "runs"], tmp_path / name)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "other.jsonl").read_text() == '{"mine": 1}\n'


def test_the_command_packs_and_reads(sweep, tmp_path, capsys):
    archive = tmp_path / "a.jsonl"
    assert cli.main(["report", "--pack", str(sweep), "-o", str(archive)]) == 0
    assert capsys.readouterr().out == f"{archive}: 9 runs, {archive.stat().st_size / 1e6:.2f} MB\n"
    assert cli.main(["report", str(archive), "-o", str(tmp_path / "report")]) == 0
    assert "All 9 runs are finished." in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path / "nothing.jsonl")]) == 2
    assert "neither a folder of runs or sweeps nor an archive" in capsys.readouterr().err


# ---- hostile archives -----------------------------------------------------------------------------------------------


def bad(line, **changes):
    """A line with some of its values replaced, given by their path: config__seed=3."""
    values = json.loads(line)
    for path, value in changes.items():
        *above, last = path.split("__")
        inner = values
        for name in above:
            inner = inner[name]
        inner[last] = value
    return json.dumps(values)


WRONG = {
    "config": ({"config": [1]}, "config is missing"),
    "big": ({"config__seed": 10**400}, "seed is out of range"),
    "deep": ({"data": {"a": [[[[[1]]]]]}}, "too deep"),
    "reference": ({"reference": [1]}, "two numbers, the second larger"),
    "narrow": ({"reference": [0.0, 1e-300]}, "too large to be one"),
    "equal": ({"reference": [1.0, 1.0]}, "the second larger"),
    "status": ({"status": "won"}, "done or failed"),
    "step": ({"evaluations__online__step": [0, 10**400, 1, 2, 3, 4]}, "must be a finite number"),
    "falling": ({"evaluations__online__step": [0, 2, 1, 3, 4, 5]}, "increasing whole numbers"),
    "short": ({"evaluations__online__return": [[1.0]]}, "a list of episodes"),
    "empty": ({"evaluations__online__return": [[]] * 6}, "without an episode"),
    "infinite": ({"evaluations__online__return": [[1e999]] * 6}, "must be a finite number, not 'inf'"),
    "text": ({"evaluations__online__return": [["1\x1b"]] * 6}, "must be a finite number"),
    "phases": ({"evaluations": [1]}, "by phase"),
    "metrics": ({"metrics__online": 3}, "columns by name"),
    "column": ({"metrics__online__replay.age": [1]}, "has 1 values for 10 steps"),
    "seconds": ({"machine": {"seconds": {"online": "long"}}}, "seconds must be a finite number"),
}


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    write_run(folder / "run")
    return to_line(read_runs([folder]).all[0], "run")


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_line_is_a_failed_run_with_a_reason(line, tmp_path, what):
    changes, said = WRONG[what]
    (tmp_path / "a.jsonl").write_text(line + "\n" + bad(line, **changes) + "\n")
    good, wrong = sorted(read_archive(tmp_path / "a.jsonl"), key=lambda run: run.status)
    assert good.status == "done"
    assert wrong.status == "failed"
    assert said in wrong.reason
    assert wrong.place == f"{tmp_path / 'a.jsonl'}, line 2"
    with pytest.raises(DataError, match="line 2 is damaged"):
        pack([tmp_path / "a.jsonl"], tmp_path / "a.jsonl")


def test_binary_and_endless_lines_and_other_files(line, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line.encode() + b"\n\xff\xfe\x00\n" + b"[" * 100_000 + b"\n")
    assert [run.status for run in read_archive(tmp_path / "a.jsonl")] == ["done", "failed", "failed"]
    (tmp_path / "b.jsonl").write_bytes(b'{"arb":1,"x":"' + b" " * (2**24 + 10))
    runs = read_runs([tmp_path])
    assert "line 1 is longer than 16 MB" in runs.damaged[0]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    assert "is not an archive of runs" in read_runs([tmp_path]).damaged[0]


def test_text_is_tamed():
    assert tame("a\nb\x1b[2J\ud800\u202e\x00") == "a�b�[2J���"
    assert tame("λ=0.5, naïve") == "λ=0.5, naïve"
    assert tame("x" * 400) == "x" * 300 + "…"
