"""The order of jobs, and what becomes of those that fail."""

import pytest

from arb import DataError
from arb.data.tasks import SUITE, TASKS
from arb.lab.grid import grid
from arb.lab.jobs import Failure, Roster, group_of
from arb.paper.experiments import CLIPS, EXPERIMENTS, cells_of


def cells_of_two_seeds():
    return grid(["hopper-medium-v2"], strategies=["naive", "arb"], seeds=[0, 1], preset="smoke")


def everything(roster):
    jobs = []
    while (job := roster.next()) is not None:
        jobs.append(job)
    return jobs


def test_strategies_share_a_pretraining_and_seeds_do_not():
    cells = cells_of_two_seeds()
    assert group_of(cells[0]) == group_of(cells[2])
    assert group_of(cells[0]) != group_of(cells[1])
    other = grid(["hopper-medium-v2"], preset="smoke", leaves={"settings.expectile": [0.8]})
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
    jobs.append(roster.next(("calql", "walker2d-medium-v2")))
    assert jobs[1].likeness == ("calql", "walker2d-medium-v2")
    assert roster.next(("no", "such")) is not None


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
    other = roster.next()
    assert (other.kind, other.cell.config.seed) == ("pretrain", 1)
    assert not roster.over


def test_a_run_does_as_many_updates_as_its_schedule_says():
    leaves = {"schedule.online": 1000, "schedule.updates": 50, "schedule.collect": 100}
    roster = Roster(grid(["hopper-medium-v2"], overrides=leaves))
    roster.finish(roster.next())
    assert roster.next().updates == 500


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
def test_the_sets_of_the_suite_keep_their_names(name):
    cells = cells_of(name, "smoke", "suite")
    assert len(cells) <= 75
    assert all(cell.config.task.startswith("suite:") and cell.folder.startswith("suite-") for cell in cells)
    asked, published = ([cell.config for cell in cells_of(name, "small", data)] for data in ("suite", "d4rl"))
    for ours, theirs in zip(asked, published, strict=True):
        assert ours.task in SUITE
        assert SUITE[ours.task].env == TASKS[theirs.task].env
        assert (ours.agent, ours.seed, ours.replay, ours.settings) == (
            theirs.agent, theirs.seed, theirs.replay, theirs.settings,
        )  # fmt: skip


def test_every_task_of_the_paper_has_a_set_of_its_own_in_the_suite():
    tasks = {cell.config.task for cell in cells_of("iql", "small", "suite")}
    assert tasks == set(SUITE)


def test_an_unknown_experiment_gets_a_suggestion():
    with pytest.raises(DataError, match=r"no experiment 'temprature' \(did you mean 'temperature'\?\)"):
        cells_of("temprature", "smoke", "d4rl")
    with pytest.raises(DataError, match="no preset 'demo'"):
        cells_of("clip", "demo", "d4rl")
