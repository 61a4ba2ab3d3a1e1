"""Tables say what they hold, in four formats; paired differences by hand."""

import csv
import io

import numpy as np
import pytest

from arb.report import stats
from arb.report.tables import (
    Entry,
    Table,
    mean_entry,
    paired_tables,
    score_table,
    steps_of,
    tables,
    with_best,
)
from tests.report.folders import write_pairs, write_run, write_sweep
from tests.report.records import HOPPER, TWO_BY_TWO, WALKER, flat, grid, record, results
from tests.report.test_stats import results_of


def test_a_cell_is_mean_and_spread_of_the_last_evaluation(tmp_path):
    for seed, final in enumerate((50.0, 56.0)):
        write_run(tmp_path / f"arb-{seed}", seed=seed, final=final)
    write_run(tmp_path / "naive", strategy="naive", final=40.0)
    table = score_table(results_of(tmp_path), "iql", "last")
    ((labels, (before, naive, arb)),) = table.rows
    assert table.columns == ("pre-trained", "Naive", "ARB")
    assert (before.n, before.bold) == (2, False)
    assert labels == ("hopper-medium-v2",)
    assert (naive.value, naive.std, naive.n, naive.bold) == (40.0, None, 1, False)
    assert (arb.value, arb.std, arb.n, arb.bold) == (53.0, pytest.approx(18**0.5), 2, False)
    text = table.text()
    assert "53.0 ± 4.2 (2)" in text
    assert "4,000 updates offline and 10,000 steps online; an evaluation has 3 episodes." in text
    assert "One seed has no standard deviation" in text


def test_missing_cells_are_dashes_and_counted(tmp_path):
    write_run(tmp_path / "a", task="hopper-medium-v2", strategy="naive")
    write_run(tmp_path / "b", task="walker2d-medium-v2")
    table = score_table(results_of(tmp_path), "iql")
    assert table.text().count("—") == 2
    assert "2 of 4 entries have no finished run." in table.notes


def test_one_run_gives_tables_without_intervals(tmp_path):
    write_run(tmp_path / "only")
    results = results_of(tmp_path)
    assert [table.name for table in tables(results)] == [f"{m}-iql" for m in ("area", "last", "best", "drop")]


TABLE = Table(
    "t", "A & B", ("task",), ("ARB λ=0.5", "x_y"),
    ((("a|b <i>",), (Entry(1.25, 0.5, n=3, bold=True), Entry())),
     (("50%",), (Entry(-1.0, low=-2.0, high=3.0), Entry(2.0, mark="†")))),
    ("† a note",),
)  # fmt: skip


def test_text():
    assert TABLE.text().splitlines() == [
        "A & B",
        "task            ARB λ=0.5    x_y",
        "─────────────────────────────────",
        "a|b <i>     1.2 ± 0.5 (3)*     —",
        "50%      -1.0 [-2.0, 3.0]   2.0†",
        "  * best of its row",
        "  † a note",
    ]


def test_markdown_escapes_what_it_would_read_as_markup():
    lines = TABLE.markdown().splitlines()
    assert lines[2] == r"| task | ARB λ=0.5 | x\_y |"
    assert lines[3] == "| --- | ---: | ---: |"
    assert lines[4] == r"| a\|b \<i\> | **1.2 ± 0.5 (3)** | — |"


def test_latex_escapes_what_it_would_read_as_commands():
    text = TABLE.latex()
    assert r"task & ARB $\lambda$=0.5 & x\_y \\" in text
    assert r"a|b $<$i$>$ & \textbf{1.2 $\pm$ 0.5 (3)} & --- \\" in text
    assert r"50\% & $-$1.0 [$-$2.0, 3.0] & 2.0$^\dagger$ \\" in text


def test_csv_has_full_precision():
    rows = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert [row["value"] for row in rows] == ["1.25", "", "-1.0", "2.0"]
    assert rows[0] == {
        "task": "a|b <i>", "column": "ARB λ=0.5", "value": "1.25", "std": "0.5", "low": "", "high": "", "n": "3",
        "bold": "1", "mark": "",
    }  # fmt: skip


def test_ties_are_all_best_and_a_single_number_is_not():
    marked = with_best([Entry(1.04), Entry(0.96), Entry(0.5)])
    assert [e.bold for e in marked] == [True, True, False]
    assert not any(e.bold for e in with_best([Entry(1.0), Entry()]))


def test_where_all_are_equal_none_is_best():
    assert not any(e.bold for e in with_best([Entry(0.0)] * 9))
    assert [e.bold for e in with_best([Entry(1.0), Entry(1.0), Entry(0.0)])] == [True, True, False]


def test_what_a_mark_means_stands_in_every_format():
    table = Table("t", "T", ("task",), ("a", "b"), ((("x",), with_best([Entry(1.0), Entry(2.0)])),), ("n",), "unusual")
    assert "* unusual" in table.text()
    assert "Bold: unusual." in table.markdown()
    assert "% Bold: unusual." in table.latex()
    plain = Table("t", "T", ("task",), ("a",), ((("x",), (Entry(1.0),)),))
    assert "best" not in plain.text() + plain.markdown() + plain.latex()


def test_a_formula_in_a_label_is_no_formula_in_a_spreadsheet():
    for text in ("=1+1", "+1", "-1", "@x"):
        table = Table("t", "T", ("task",), (text,), (((text,), (Entry(-1.5),)),))
        (row,) = list(csv.DictReader(io.StringIO(table.csv())))
        assert row["task"] == row["column"] == "'" + text
        assert row["value"] == "-1.5"


def test_a_newline_in_a_label_does_not_end_a_row_of_markdown():
    table = Table("t", "T", ("task",), ("a",), ((("one\n| two |",), (Entry(1.0),)),))
    assert len(table.markdown().splitlines()) == 6


def test_success_rates_have_a_table_where_they_are_known(tmp_path):
    folder = write_run(tmp_path / "run")
    lines = (folder / "eval.csv").read_text().splitlines()
    rows = [lines[0] + ",success", *(f"{line},{i % 3 == 0:d}" for i, line in enumerate(lines[1:]))]
    (folder / "eval.csv").write_text("\n".join(rows) + "\n")
    results = results_of(tmp_path)
    ((_, (entry,)),) = next(table for table in tables(results) if table.name == "success-iql").rows
    assert entry.value == pytest.approx(100.0 / 3)


def numbers(table):
    """By the last label of a row: the values by column."""
    return {
        labels[-1]: {name: e.value for name, e in zip(table.columns, entries, strict=True)}
        for labels, entries in table.rows
    }


def test_a_table_of_scores_by_hand():
    found = results(*grid(TWO_BY_TWO))
    table = score_table(found, "iql", "last")
    assert table.columns == ("pre-trained", "Naive", "ARB")
    assert numbers(table)[HOPPER] == {"pre-trained": 50.0, "Naive": 15.0, "ARB": 55.0}
    (_, (_, naive, arb)) = table.rows[0]
    assert naive.std == pytest.approx(7.0710678)
    assert (naive.n, naive.bold, arb.bold) == (2, False, False)  # what is better, the paired differences say
    assert table.title == "IQL: last evaluation, normalised score"
    assert table.name == "last-iql"


def test_the_pre_trained_score_counts_every_seed_once():
    runs = [record(offline=(0.0, 10.0 * seed), strategy=s, seed=seed) for s in ("naive", "arb") for seed in (1, 3)]
    ((_, entries),) = score_table(results(*runs), "iql").rows
    assert entries[0].value == 20.0
    assert entries[0].n == 2


def test_plain_returns_are_named_where_units_differ():
    table = score_table(results(flat(1.0), flat(900.0, task="mine", reference=None)), "iql")
    assert "Plain returns, not scores: mine." in table.notes
    assert table.title.endswith("normalised score or return")


def test_notes_count_what_is_missing_and_what_is_alone():
    runs = [flat(1.0), flat(2.0, task=WALKER), flat(3.0, task=WALKER, strategy="naive")]
    notes = score_table(results(*runs), "iql").notes
    assert "1 of 4 entries have no finished run." in notes
    assert any(note.startswith("One seed has no standard deviation") for note in notes)
    assert "Runs of 4,000 updates offline and 10,000 steps online; an evaluation has 1 episode." in notes


def test_all_tables_of_a_report_have_names_of_their_own():
    found = results(*grid(TWO_BY_TWO))
    names = [table.name for table in tables(found)]
    assert len(names) == len(set(names))
    assert set(names) == {"area-iql", "last-iql", "best-iql", "drop-iql", "paired-1-iql", "paired-datasets-iql"}


def test_training_in_words():
    cells = results(flat(1.0), flat(1.0, task=WALKER, leaves={"schedule.online": 500, "schedule.pretrain": 10})).groups
    assert steps_of(cells) == "10 updates offline and 500 steps online or 4,000 updates offline and 10,000 steps online"
    third = flat(1.0, task="third", leaves={"schedule.online": 60_000})
    cells = results(third, *(run for cell in cells for run in cell.runs)).groups
    assert steps_of(cells) == "10 to 4,000 updates offline and 500 to 60,000 steps online"
    notes = score_table(results(record(([1.0, 2.0], [1.0, 2.0]))), "iql").notes
    assert notes[1].endswith("an evaluation has 1 to 2 episodes.")  # one while pre-training


def test_an_entry_of_no_seeds_is_empty():
    assert mean_entry(results(flat(1.0, status="unfinished")).groups[0].values("last")).value is None
    assert mean_entry(np.array([1.0, 2.0, 6.0])).std == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert mean_entry(np.array([3.0])).std is None


def test_the_table_by_hand(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0, 3.0])
    write_pairs(tmp_path, [4.0, 5.0, 6.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [7.0, 8.0, 9.0], task="halfcheetah-medium-v2")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-1-iql")
    ((labels, entries),) = table.rows
    assert labels == ("ARB", "cannot tell", "9", "3 of 3 datasets")
    area, seeds, median, p, last = entries
    # Datasets have means 2, 5 and 8: standard error √(9/3), two degrees of freedom, t = 4.3027.
    assert area.value == seeds.value == median.value == pytest.approx(5.0)
    assert (area.low, area.high) == pytest.approx((5.0 - 4.30265 * 3**0.5, 5.0 + 4.30265 * 3**0.5), abs=1e-3)
    assert not area.bold  # nothing is bold beside "cannot tell"
    # Over seeds three variances of 1: standard error √(3/3)/3, six degrees of freedom, t = 2.4469.
    assert (seeds.low, seeds.high) == pytest.approx((5.0 - 2.44691 / 3, 5.0 + 2.44691 / 3), abs=1e-3)
    t = 5.0 / 3**0.5
    assert p.value == pytest.approx(1.0 - t / (2.0 + t * t) ** 0.5)
    assert (p.digits, last.value) == (3, pytest.approx(5.0))
    assert table.columns == ("area", "area, over seeds", "median", "p (Holm)", "last evaluation")
    assert table.title == "IQL: paired difference to Naive, all datasets with a normalised score"
    assert "corrected for 1 comparison (Holm)" in table.text()
    assert "+5.0 [-2.5, +12.5]" in table.text()


def test_one_dataset_is_decided_by_its_seeds(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0, 11.0])
    ((labels, entries),) = next(iter(paired_tables(results_of(tmp_path)))).rows
    assert labels == ("ARB", "better", "3", "3 of 3 seeds")
    assert (entries[0].bold, len(entries)) == (True, 3)


def test_another_baseline_and_the_first_strategy_where_it_is_missing(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0], base="parallel")
    (table,) = paired_tables(results_of(tmp_path))
    assert "paired difference to Parallel" in table.title
    (table,) = paired_tables(results_of(tmp_path), "arb")
    assert [labels[0] for labels, _ in table.rows] == ["Parallel"]


def test_single_tasks_are_corrected_for_all_comparisons_of_the_table(tmp_path):
    write_pairs(tmp_path, [1.0, 1.2, 1.4])  # p = 0.0093 alone
    write_pairs(tmp_path, [0.0, 5.0, -4.0], task="walker2d-medium-v2")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-datasets-iql")
    assert [labels for labels, _ in table.rows] == [("hopper-medium-v2",), ("walker2d-medium-v2",)]
    assert [entries[0].bold for _, entries in table.rows] == [True, False]
    assert [entries[0].n for _, entries in table.rows] == [3, 3]
    alone = stats.p_value([np.array([1.0, 1.2, 1.4])])
    for task in ("a", "b", "c", "d"):
        write_pairs(tmp_path, [0.0, 5.0, -4.0], task=task)
    assert 0.01 > alone > 0.05 / 6
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-datasets-iql")
    assert not any(entries[0].bold for _, entries in table.rows)


def test_a_margin_is_for_normalised_scores(tmp_path):
    write_pairs(tmp_path, [0.1, -0.1, 0.05])
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-1-iql")
    assert table.rows[0][0][1] == "no difference that matters"


def test_plain_returns_are_compared_task_by_task(tmp_path):
    write_sweep(tmp_path, tasks=["one", "two"], reference=None)
    names = [table.name for table in paired_tables(results_of(tmp_path))]
    assert names == ["paired-1-iql", "paired-2-iql", "paired-datasets-iql"]
    titles = [table.title for table in paired_tables(results_of(tmp_path))]
    assert titles[:2] == [f"IQL: paired difference to Naive, {task}" for task in ("one", "two")]


def test_a_grid_with_holes_says_how_many_pairs_each_row_has(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0])
    write_pairs(tmp_path, [1.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [3.0, 1.0], strategy="berb")
    table = next(table for table in paired_tables(results_of(tmp_path)) if table.name == "paired-1-iql")
    labels = [labels for labels, _ in table.rows]
    assert labels == [("BERB", "cannot tell", "2", "1 of 1 dataset"), ("ARB", labels[1][1], "3", "2 of 2 datasets")]
    over_datasets, over_seeds, *_ = table.rows[1][1]
    assert over_datasets.low is not None
    assert over_seeds.low is None  # a dataset with one seed has no variance


def test_a_table_says_how_many_comparisons_were_tested_and_whether_any_remains(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0, 11.0])
    write_pairs(tmp_path, [5.0], strategy="top_n")  # one seed: no p-value
    write_pairs(tmp_path, [9.0, -10.0, 11.0], task="walker2d-medium-v2")
    overall, by_task = paired_tables(results_of(tmp_path))
    assert "corrected for 1 comparison (Holm)" in overall.text()
    assert (
        "Bold differences are significant after Holm's correction for the 2 comparisons of this table" in by_task.text()
    )
    write_pairs(tmp_path, [90.0, -10.0, 11.0])
    assert (
        "No difference is significant after Holm's correction for the 2 comparisons"
        in paired_tables(results_of(tmp_path))[1].text()
    )


def test_a_table_of_scores_warns_where_cells_have_different_seeds(tmp_path):
    write_pairs(tmp_path, [1.0, 2.0])
    different = "Strategies may have different seeds"
    assert different not in score_table(results_of(tmp_path), "iql").text()
    write_run(tmp_path / "third", seed=2)
    assert different in score_table(results_of(tmp_path), "iql").text()
