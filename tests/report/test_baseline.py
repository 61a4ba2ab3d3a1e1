"""Runs are paired with the baseline's of the same seed and start; differences, verdicts and the wish for more seeds."""

import json

import numpy as np
import pytest

from arb.report import paired
from arb.report.baseline import comparisons, paired_tables, undecided, verdict
from arb.report.cells import gather
from arb.report.comparison import score_table
from arb.report.runs import read_runs
from tests.report.folders import config_of, write_run, write_sweep
from tests.report.records import record, results


def write_pairs(root, differences, *, task="hopper-medium-v2", base="naive", strategy="arb", **leaves):
    """Runs whose every evaluation has one score; those of a seed differ by the number given."""
    for seed, difference in enumerate(differences):
        level = 40.0 + 10.0 * seed
        for name, score in ((base, level), (strategy, level + difference)):
            config = config_of(task, "iql", name, seed, **leaves)
            folder = write_run(root / f"{task}-{name}-{seed}-{len(leaves)}", config)
            text = (folder / "eval.csv").read_text().splitlines()
            flat = [",".join([*line.split(",")[:3], "0", repr(score)]) for line in text[1:] if line[:6] == "online"]
            (folder / "eval.csv").write_text("\n".join([text[0], *flat]) + "\n")
    return root


def results_of(*paths):
    return gather(read_runs(paths))


def test_a_run_is_paired_with_the_same_seed_and_start(tmp_path):
    write_pairs(tmp_path, [3.0, 5.0, -2.0])
    write_run(tmp_path / "alone", seed=9)  # no naive run of this seed
    (found,) = comparisons(results_of(tmp_path), "naive")
    np.testing.assert_allclose(found.differences()["hopper-medium-v2"], [3.0, 5.0, -2.0])
    np.testing.assert_allclose(found.differences("last")["hopper-medium-v2"], [3.0, 5.0, -2.0])
    assert found.differences("drop") == {}  # no evaluation before the switch
    assert [(ours.seed, theirs.seed) for ours, theirs in found.pairs["hopper-medium-v2"]] == [(0, 0), (1, 1), (2, 2)]
    assert comparisons(results_of(tmp_path), "parallel") == []


def test_a_measure_that_one_of_a_pair_lacks_makes_no_difference():
    short = record(offline=(), strategy="naive")  # no evaluation before the switch, so no drop
    (found,) = comparisons(results(short, record(strategy="arb")), "naive")
    assert found.differences("drop") == {}
    assert found.differences("last").keys() == {"hopper-medium-v2"}


def test_runs_of_another_schedule_or_dataset_are_no_pair(tmp_path):
    write_run(tmp_path / "a", config_of(strategy="naive", **{"schedule.online": 8000}))
    write_run(tmp_path / "b", config_of(strategy="arb"))
    assert comparisons(results_of(tmp_path), "naive") == []
    write_run(tmp_path / "c", config_of(strategy="naive"))
    assert len(comparisons(results_of(tmp_path), "naive")) == 1
    text = (tmp_path / "c" / "config.json").read_text()
    (tmp_path / "c" / "config.json").write_text(text.replace("0f0f", "1f0f"))
    assert comparisons(results_of(tmp_path), "naive") == []


def test_the_table_by_hand(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0, 3.0])
    write_pairs(tmp_path, [9.0, 10.0, 11.0], task="walker2d-medium-v2")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-naive-1-iql")
    ((labels, entries),) = table.rows
    assert labels == ("ARB", "6 on 2 tasks", "better")
    area, bootstrap, p, share, last, regret = entries
    # Two tasks of variance 1: standard error √(1/3 + 1/3)/2, four degrees of freedom, t = 2.776.
    assert area.value == pytest.approx(6.0)
    assert (area.low, area.high) == pytest.approx((6.0 - 2.7764 * 6**-0.5, 6.0 + 2.7764 * 6**-0.5), abs=1e-3)
    assert area.best
    assert 5.0 < bootstrap.low < bootstrap.high < 7.0
    assert p.value < 0.001
    assert (share.value, share.digits, p.digits) == (1.0, 2, 3)
    assert last.value == pytest.approx(6.0)
    assert regret.value == pytest.approx(-6.0)
    assert "drop at the switch" not in table.columns
    assert table.title == "IQL: paired difference to Naive, all tasks with a normalised score"
    assert "* differs from zero at the 5% level after correction" in table.text()
    assert "corrected for 1 comparison (Holm)" in table.text()


def test_single_tasks_are_corrected_for_all_comparisons_of_the_table(tmp_path):
    write_pairs(tmp_path, [1.0, 1.2, 1.4])  # p = 0.0093 alone
    write_pairs(tmp_path, [0.0, 5.0, -4.0], task="walker2d-medium-v2")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-naive-tasks-iql")
    assert [labels for labels, _ in table.rows] == [("hopper-medium-v2",), ("walker2d-medium-v2",)]
    assert [entries[0].best for _, entries in table.rows] == [True, False]
    assert [entries[0].n for _, entries in table.rows] == [3, 3]
    alone = paired.p_value([np.array([1.0, 1.2, 1.4])])
    for task in ("a", "b", "c", "d"):
        write_pairs(tmp_path, [0.0, 5.0, -4.0], task=task)
    assert 0.01 > alone > 0.05 / 6
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-naive-tasks-iql")
    assert not any(entries[0].best for _, entries in table.rows)


def test_a_margin_is_for_normalised_scores(tmp_path):
    write_pairs(tmp_path, [0.1, -0.1, 0.05])
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-naive-1-iql")
    assert table.rows[0][0][2] == "no difference that matters"


def test_plain_returns_are_compared_task_by_task(tmp_path):
    write_sweep(tmp_path, tasks=["one", "two"], reference=None)
    names = [table.name for table in paired_tables(results_of(tmp_path))]
    assert names == ["paired-naive-1-iql", "paired-naive-2-iql", "paired-naive-tasks-iql"]
    titles = [table.title for table in paired_tables(results_of(tmp_path))]
    assert titles[:2] == [f"IQL: paired difference to Naive, {task}" for task in ("one", "two")]


def test_verdicts_need_an_interval_and_a_correction():
    clear, small, few = np.array([8.0, 9.0, 10.0]), np.array([-0.5, 0.5, 0.2]), np.array([9.0])
    assert verdict([clear], 0.01) == "better"
    assert verdict([-clear], 0.01) == "worse"
    assert verdict([clear / 100], 0.01) == "better"  # by how much is another question
    assert verdict([clear], 0.06) == "cannot tell"
    assert verdict([small], 0.9) == "no difference that matters"
    assert verdict([small], 0.9, margin=None) == "cannot tell"
    assert verdict([few], None) == "cannot tell"


def test_a_grid_with_holes_says_how_many_pairs_each_row_has(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0])
    write_pairs(tmp_path, [1.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [3.0, 1.0], strategy="berb")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-naive-1-iql")
    assert [labels[:2] for labels, _ in table.rows] == [("BERB", "2 on 1 task"), ("ARB", "3 on 2 tasks")]
    assert table.rows[1][1][0].low is None  # a task with one seed has no variance
    assert table.rows[1][0][2] == "cannot tell"


def test_cells_that_need_more_seeds(tmp_path):
    write_pairs(tmp_path, [20.0, 20.1, 19.9])
    write_pairs(tmp_path, [30.0, -20.0, 10.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [5.0], task="halfcheetah-medium-v2")
    found = [(one.task, one.strategy, one.seeds, one.wanted) for one in undecided([tmp_path])]
    assert found == [
        ("halfcheetah-medium-v2", "naive", 1, 3),
        ("halfcheetah-medium-v2", "arb", 1, 3),
        ("walker2d-medium-v2", "naive", 3, 5),
        ("walker2d-medium-v2", "arb", 3, 5),
    ]
    one = undecided([tmp_path])[1]
    assert "seed" not in one.config
    assert one.config["replay.strategy"] == "arb"
    assert undecided([tmp_path], looks=(3,)) == undecided([tmp_path])[:2]


def test_a_difference_too_small_to_matter_is_decided_only_where_scores_are_normalised(tmp_path):
    write_pairs(tmp_path, [0.1, -0.1, 0.05])
    assert undecided([tmp_path]) == []
    assert len(undecided([tmp_path], margin=0.001)) == 2
    for path in tmp_path.glob("*/config.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"reference": None}))
    assert len(undecided([tmp_path])) == 2


def test_a_table_says_how_many_comparisons_were_tested_and_whether_any_remains(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0, 11.0])
    write_pairs(tmp_path, [5.0], strategy="top_n")  # one seed: no p-value
    write_pairs(tmp_path, [9.0, -10.0, 11.0], task="walker2d-medium-v2")
    overall, by_task = paired_tables(results_of(tmp_path))
    assert "corrected for 1 comparison (Holm)" in overall.text()
    assert "Marked differences remain after correction for the 2 comparisons of this table" in by_task.text()
    write_pairs(tmp_path, [90.0, -10.0, 11.0])
    assert "None remains after correction for the 2 comparisons" in paired_tables(results_of(tmp_path))[1].text()


def test_a_table_of_scores_warns_where_cells_have_different_seeds(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0])
    different = "Cells of a row may have different seeds"
    assert different not in score_table(results_of(tmp_path), "iql").text()
    write_run(tmp_path / "third", seed=2)
    assert different in score_table(results_of(tmp_path), "iql").text()
