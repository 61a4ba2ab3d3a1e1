"""Tables say what they hold, in four formats; only what is comparable is put together."""

import csv
import io

import pytest

from arb.report.cells import gather
from arb.report.comparison import groups, score_table, tables
from arb.report.runs import read_runs
from arb.report.tables import Entry, Table, with_best
from tests.report.folders import write_run, write_sweep


def results_of(path):
    return gather(read_runs([path]))


def test_a_cell_is_mean_and_spread_of_the_last_evaluation(tmp_path):
    for seed, final in enumerate((50.0, 56.0)):
        write_run(tmp_path / f"arb-{seed}", seed=seed, final=final)
    write_run(tmp_path / "naive", strategy="naive", final=40.0)
    table = score_table(results_of(tmp_path), "iql", "last")
    ((labels, (before, naive, arb)),) = table.rows
    assert table.columns == ("pre-trained", "Naive", "ARB")
    assert (before.n, before.best) == (2, False)
    assert labels == ("hopper-medium-v2",)
    assert (naive.value, naive.spread, naive.n, naive.best) == (40.0, None, 1, False)
    assert (arb.value, arb.spread, arb.n, arb.best) == (53.0, pytest.approx(18**0.5), 2, True)
    text = table.text()
    assert "53.0 ± 4.2 (2)*" in text
    assert "4,000 updates offline and 10,000 steps online; an evaluation has 3 episodes." in text
    assert "one seed has no standard deviation" in text


def test_the_lowest_drop_is_the_best(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"])
    ((_, entries),) = score_table(results_of(tmp_path), "iql", "drop").rows
    best = min(entries, key=lambda e: e.value)
    assert best.best
    assert sum(e.best for e in entries) == 1


def test_returns_of_different_tasks_are_never_put_together(tmp_path):
    write_sweep(tmp_path / "scored", tasks=["hopper-medium-v2", "walker2d-medium-v2"])
    write_sweep(tmp_path / "plain", tasks=["one", "two"], reference=None)
    results = results_of(tmp_path)
    found = {group.tasks: group.normalised for group in groups(results)}
    assert found == {("hopper-medium-v2", "walker2d-medium-v2"): True, ("one",): False, ("two",): False}
    units = {labels for labels, _ in score_table(results, "iql").rows}
    assert ("one", "return") in units
    assert ("hopper-medium-v2", "score") in units
    plain = next(group for group in groups(results) if group.tasks == ("one",))
    assert "optimality gap" not in plain.aggregates["ARB"]


def test_aggregates_compare_like_with_like(tmp_path):
    write_sweep(tmp_path / "both", tasks=["hopper-medium-v2"])
    write_sweep(tmp_path / "one", tasks=["walker2d-medium-v2"], strategies=("arb",))
    (group,) = groups(results_of(tmp_path))
    assert group.tasks == ("hopper-medium-v2",)
    assert group.improvements["ARB", "Naive"].value == 1.0


def test_what_is_put_together_has_intervals_and_says_how_far_to_trust_them(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2", "walker2d-medium-v2"])
    results = results_of(tmp_path)
    found = {table.name: table for table in tables(results, groups(results))}
    aggregate, improvement = found["aggregate-1-iql"], found["improvement-1-iql"]
    for _, entries in aggregate.rows:
        assert all(entry.low < entry.value < entry.high for entry in entries)
    assert any("95%, stratified bootstrap" in note and "87% of cases" in note for note in aggregate.notes)
    ((_, (same, other, *_)), *_) = improvement.rows
    assert same.value is None
    assert 0.0 <= other.low <= other.value <= other.high <= 1.0


@pytest.mark.parametrize(
    ("strategies", "hero"), [(("naive", "berb", "arb", "recent"), "ARB"), (("naive", "berb"), "BERB")]
)
def test_the_variant_that_is_compared_is_arb_or_the_last(tmp_path, strategies, hero):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"], strategies=strategies)
    (group,) = groups(results_of(tmp_path))
    assert group.hero == hero


def test_single_runs_are_not_put_together(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"], seeds=1)
    assert groups(results_of(tmp_path)) == []


def test_missing_cells_are_dashes_and_counted(tmp_path):
    write_run(tmp_path / "a", task="hopper-medium-v2", strategy="naive")
    write_run(tmp_path / "b", task="walker2d-medium-v2")
    table = score_table(results_of(tmp_path), "iql")
    assert table.text().count("—") == 2
    assert "2 of 4 cells have no finished run." in table.notes


def test_one_run_gives_tables_without_intervals(tmp_path):
    write_run(tmp_path / "only")
    results = results_of(tmp_path)
    assert [table.name for table in tables(results, groups(results))] == [
        f"{m}-iql" for m in ("area", "last", "best", "regret", "drop")
    ]


# ---- formats --------------------------------------------------------------------------------------------------------

TABLE = Table(
    "t", "A & B", ("task",), ("ARB λ=0.5", "x_y"),
    ((("a|b <i>",), (Entry(1.25, 0.5, n=3, best=True), Entry())),
     (("50%",), (Entry(-1.0, low=-2.0, high=3.0), Entry(2.0, mark="†")))),
    ("† a note",),
)  # fmt: skip


def test_text():
    assert TABLE.text().splitlines() == [
        "A & B",
        "task              ARB λ=0.5    x_y",
        "───────────────────────────────────",
        "a|b <i>       1.2 ± 0.5 (3)*     —",
        "50%      -1.0 [-2.0 to 3.0]   2.0†",
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
    assert r"50\% & -1.0 [-2.0 to 3.0] & 2.0$^\dagger$ \\" in text


def test_csv_has_full_precision():
    rows = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert [row["value"] for row in rows] == ["1.25", "", "-1.0", "2.0"]
    assert rows[0] == {
        "task": "a|b <i>", "column": "ARB λ=0.5", "value": "1.25", "std": "0.5", "low": "", "high": "", "seeds": "3",
        "best": "1", "mark": "",
    }  # fmt: skip


def test_ties_are_all_best_and_a_single_number_is_not():
    marked = with_best([Entry(1.04), Entry(0.96), Entry(0.5)])
    assert [e.best for e in marked] == [True, True, False]
    assert not any(e.best for e in with_best([Entry(1.0), Entry()]))


def test_where_all_are_equal_none_is_best():
    assert not any(e.best for e in with_best([Entry(0.0)] * 9))
    assert [e.best for e in with_best([Entry(1.0), Entry(1.0), Entry(0.0)])] == [True, True, False]


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
    ((_, (entry,)),) = next(table for table in tables(results, []) if table.name == "success-iql").rows
    assert entry.value == pytest.approx(100.0 / 3)
