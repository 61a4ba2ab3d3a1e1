"""The order of jobs, and what becomes of those that fail."""

import pytest

from arb import DataError
from arb.paper.experiments import CLIPS, EXPERIMENTS, cells_of
from arb.runs.config import flat
from arb.sweeps import plan
from arb.sweeps.grid import grid
from arb.sweeps.progress import View, Work
from arb.sweeps.roster import Failure, Roster, group_of


def cells_of_two_seeds():
    return grid(["hopper-medium-v2"], strategies=["naive", "arb"], seeds=[0, 1], budget="smoke")


def everything(roster):
    jobs = []
    while (job := roster.next()) is not None:
        jobs.append(job)
    return jobs


def test_strategies_share_a_pretraining_and_seeds_do_not():
    cells = cells_of_two_seeds()
    assert group_of(cells[0]) == group_of(cells[2])
    assert group_of(cells[0]) != group_of(cells[1])
    other = grid(["hopper-medium-v2"], budget="smoke", leaves={"settings.expectile": [0.8]})
    assert group_of(other[0]) != group_of(cells[0])


def test_runs_wait_for_their_pretraining():
    roster = Roster(cells_of_two_seeds())
    first, second = everything(roster)
    assert (first.kind, second.kind) == ("pretrain", "pretrain")
    assert roster.next() is None
    roster.finish(second)
    assert {job.cell.config.seed for job in everything(roster)} == {1}
    assert not roster.over


def test_a_pretraining_goes_before_a_run_and_the_longest_queue_first():
    cells = cells_of_two_seeds()
    roster = Roster([*cells[:1], *grid(["walker2d-medium-v2"], strategies=["naive", "arb"])])
    first = roster.next()
    assert first.cell.config.task == "walker2d-medium-v2"  # two runs wait for it
    roster.finish(first)
    assert roster.next().kind == "pretrain"
    assert roster.next().kind == "run"


def test_a_worker_gets_what_it_has_compiled_for():
    roster = Roster(grid(["hopper-medium-v2", "walker2d-medium-v2"], ["iql", "calql"]))
    jobs = [roster.next()]
    jobs.append(roster.next(("calql", "walker2d-medium-v2", "pretrain")))
    assert jobs[1].likeness[:2] == ("calql", "walker2d-medium-v2")
    assert roster.next(("no", "such", "job")) is not None


def test_a_failed_job_is_tried_again_and_then_given_up():
    roster = Roster(cells_of_two_seeds()[:1], retry=1)
    roster.finish(roster.next())
    run = roster.next()
    assert roster.fail(run, Failure("first")) == []
    assert roster.next() == run
    assert roster.fail(run, Failure("second")) == [run]
    assert roster.over
    assert roster.failed == {run: Failure("second")}


def test_what_would_fail_again_is_not_tried_again():
    roster = Roster(cells_of_two_seeds(), retry=5)
    assert len(roster.fail(roster.next(), Failure("no data", final=True))) == 2  # the runs of its seed
    assert set(roster.failed.values()) == {Failure("its pre-training failed: no data", final=True)}


def test_a_pretraining_that_fails_takes_its_runs_along():
    roster = Roster(cells_of_two_seeds(), retry=0)
    lost = roster.fail(roster.next(), Failure("no data", "trace"))
    assert {job.cell.config.replay.strategy for job in lost} == {"naive", "arb"}
    assert set(roster.failed.values()) == {Failure("its pre-training failed: no data", "trace")}
    assert roster.waiting == 2  # of the other seed


def test_the_plan_grows_and_keeps_other_configurations_out(tmp_path):
    cells = cells_of_two_seeds()
    plan.write_plan(tmp_path, cells[:2])
    plan.write_plan(tmp_path, cells[1:])
    held = plan.read_json(tmp_path / "plan.json")["cells"]
    assert [row["folder"] for row in held] == [cell.folder for cell in cells]
    assert held[0]["config"] == flat(cells[0].config)
    longer = grid(["hopper-medium-v2"], strategies=["naive"], budget="demo")
    with pytest.raises(DataError, match=r"with evaluation.episodes = 2, not 10: choose another folder with --out"):
        plan.check(tmp_path, longer)


def test_a_reason_is_one_line_above_the_traceback(tmp_path):
    cell = cells_of_two_seeds()[0]
    plan.write_failure(tmp_path, cell, "two\n  lines", "Traceback")
    file = tmp_path / cell.folder / "FAILED"
    assert file.read_text().splitlines() == ["two lines", "", "Traceback"]
    plan.forget_failure(tmp_path, cell)
    assert not file.exists()


def test_the_name_of_a_pretraining_is_remembered_while_it_is_there(tmp_path):
    assert plan.remembered(tmp_path, "group") is None
    plan.remember(tmp_path, "group", "kept")
    assert plan.remembered(tmp_path, "group") is None
    (tmp_path / plan.CACHE / "kept").mkdir()
    assert plan.remembered(tmp_path, "group") == "kept"


def test_two_sweeps_do_not_work_in_one_folder(tmp_path):
    with plan.locked(tmp_path), pytest.raises(DataError, match="another sweep is at work"), plan.locked(tmp_path):
        pass
    with plan.locked(tmp_path):
        pass


def test_the_view_counts_and_says_what_happens():
    lines: list[str] = []
    cells = cells_of_two_seeds()[:1]
    view, roster = View(Work(cells), lines.append), Roster(cells)
    before = roster.next()
    view.begins(before)
    view.told(before, "pretrain", 200, 400, {"score": 3.0})
    assert view.rows[before] == ("offline", "200 of 400", "score 3.0")
    roster.finish(before)
    view.ends(before, None)
    run = roster.next()
    view.fails(run, "no memory", [])
    view.ends(run, 46.13)
    assert not view.rows
    assert [line.partition("  (")[0] for line in lines] == [
        "hopper-medium-v2/iql/seed-0  pre-trained",
        "hopper-medium-v2/iql/naive/seed-0  failed, will be tried again: no memory",
        "hopper-medium-v2/iql/naive/seed-0  score 46.1",
    ]
    assert view.work.summary() == "1 of 1 run done"


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("main", 18 * 3 * 5 * 4),
        ("iql", 18 * 5 * 4),
        ("online-ratio", 4 * 5 * 4),
        ("trajectory", 8),
        ("temperature", 16),
    ],
)
def test_the_paper_s_grids(name, runs):
    cells = cells_of(name, "paper", "d4rl")
    assert len(cells) == runs
    assert {cell.config.schedule.online for cell in cells} == {1_000_000}


def test_each_bound_is_varied_while_the_other_keeps_its_default():
    assert len(CLIPS) == 9
    assert all(low == -12.0 or high == 7.0 for low, high in CLIPS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_stands_in_is_called_so(name):
    cells = cells_of(name, "smoke", "stand-in")
    assert len(cells) <= 75
    assert all(cell.config.task.startswith("stand-in:") and cell.folder.startswith("stand-in-") for cell in cells)
    tasks = {cell.config.task for cell in cells}
    assert not tasks & {cell.config.task for cell in cells_of(name, "smoke", "d4rl")}


def test_an_unknown_experiment_gets_a_suggestion():
    with pytest.raises(DataError, match=r"no experiment 'temprature' \(did you mean 'temperature'\?\)"):
        cells_of("temprature", "smoke", "d4rl")
    with pytest.raises(DataError, match="no preset 'demo'"):
        cells_of("clip", "demo", "d4rl")
