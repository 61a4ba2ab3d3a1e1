"""Tables over several runs, worked by hand: scores per task, aggregates, probabilities of improvement."""

import pytest

from arb.progress import counts
from arb.report.comparison import (
    aggregate_table,
    entry,
    episodes_of,
    groups,
    improvement_table,
    score_table,
    steps_of,
    tables,
)
from tests.report.records import flat, record, results

HOPPER, WALKER = "hopper-medium-v2", "walker2d-medium-v2"


def grid(scores, **more):
    """Runs by strategy and task: one for each score, which is that of all its evaluations."""
    return [
        flat(score, strategy=strategy, task=task, seed=seed, **more)
        for strategy, by_task in scores.items()
        for task, values in by_task.items()
        for seed, score in enumerate(values)
    ]


TWO_BY_TWO = {
    "naive": {HOPPER: (10.0, 20.0), WALKER: (30.0, 40.0)},
    "arb": {HOPPER: (50.0, 60.0), WALKER: (70.0, 120.0)},
}


def numbers(table):
    """By the last label of a row: the values by column."""
    return {
        labels[-1]: {name: e.value for name, e in zip(table.columns, entries, strict=True)}
        for labels, entries in table.rows
    }


def test_aggregates_by_hand():
    (group,) = groups(results(*grid(TWO_BY_TWO)))
    assert (group.agent, group.tasks, group.normalised, group.hero) == ("iql", (HOPPER, WALKER), True, "ARB")
    found = numbers(aggregate_table(group, "aggregate"))
    assert found["Naive"] == {"IQM": 25.0, "median": 25.0, "mean": 25.0, "optimality gap": 75.0}
    assert found["ARB"] == {"IQM": 65.0, "median": 65.0, "mean": 75.0, "optimality gap": 30.0}  # 120 counts as 100


def test_every_aggregate_lies_in_its_interval_and_the_table_says_how_it_was_made():
    (group,) = groups(results(*grid(TWO_BY_TWO)))
    table = aggregate_table(group, "aggregate")
    for _, entries in table.rows:
        for e in entries:
            assert e.low <= e.value <= e.high
    assert table.notes[0] == f"Over the areas under the online curves of {HOPPER}, {WALKER}, 2 seeds per cell."
    assert table.notes[1].startswith("Intervals: 95%, stratified bootstrap over seeds within tasks, 5,000 resamples.")


def test_one_seed_has_no_interval():
    scores = {"naive": {HOPPER: (10.0,), WALKER: (30.0,)}, "arb": {HOPPER: (50.0,), WALKER: (70.0,)}}
    (group,) = groups(results(*grid(scores)))
    table = aggregate_table(group, "aggregate")
    assert all(e.low is None for _, entries in table.rows for e in entries)
    assert table.notes[1] == "No intervals where a task has one seed only."


def test_the_probability_of_improvement_by_hand():
    scores = {"naive": {HOPPER: (1.0, 2.0)}, "arb": {HOPPER: (0.0, 2.0)}}
    (group,) = groups(results(*grid(scores)))
    found = numbers(improvement_table(group, "improvement"))
    # Of four pairs naive wins two (1 > 0, 2 > 0), loses one (1 < 2), and one is a tie.
    assert found["Naive"] == {"Naive": None, "ARB": 0.625}
    assert found["ARB"] == {"Naive": 0.375, "ARB": None}


def test_a_group_holds_the_tasks_that_all_its_variants_have():
    scores = {**TWO_BY_TWO, "berb": {HOPPER: (5.0, 6.0)}}
    (group,) = groups(results(*grid(scores)))
    assert group.tasks == (HOPPER,)
    assert group.name == HOPPER
    assert set(group.scores) == {"Naive", "BERB", "ARB"}


def test_agents_and_plain_returns_have_groups_of_their_own():
    plain = {"naive": {"mine": (1.0, 2.0)}, "arb": {"mine": (3.0, 4.0)}}
    runs = [*grid(TWO_BY_TWO), *grid(TWO_BY_TWO, agent="pex"), *grid(plain, reference=None)]
    found = groups(results(*runs))
    assert [(g.agent, g.name, g.normalised) for g in found] == [
        ("iql", "all tasks with a normalised score", True),
        ("iql", "mine", False),
        ("pex", "all tasks with a normalised score", True),
    ]
    columns = aggregate_table(found[1], "a").columns
    assert "optimality gap" not in columns  # it needs a score that counts as 100


def test_nothing_is_put_together_where_there_is_nothing_to_compare():
    assert groups(results(flat(1.0))) == []
    assert groups(results(flat(1.0), flat(2.0, strategy="naive"))) == []  # one run each
    assert groups(results(flat(1.0), flat(2.0, seed=1))) == []  # one variant on one task


def test_without_arb_the_last_variant_is_the_one_that_is_shown():
    scores = {"naive": {HOPPER: (1.0, 2.0)}, "parallel": {HOPPER: (3.0, 4.0)}}
    (group,) = groups(results(*grid(scores)))
    assert group.hero == "Parallel"


# ---- scores ----------------------------------------------------------------------------------------------------------
def test_a_table_of_scores_by_hand():
    found = results(*grid(TWO_BY_TWO))
    table = score_table(found, "iql", "last")
    assert table.columns == ("pre-trained", "Naive", "ARB")
    assert numbers(table)[HOPPER] == {"pre-trained": 50.0, "Naive": 15.0, "ARB": 55.0}
    (_, (_, naive, arb)) = table.rows[0]
    assert naive.spread == pytest.approx(7.0710678)
    assert (naive.n, naive.best, arb.best) == (2, False, True)
    assert table.title == "IQL: last evaluation, normalised score"
    assert table.name == "last-iql"


def test_a_measure_of_which_less_is_better_marks_the_lowest():
    table = score_table(results(*grid(TWO_BY_TWO)), "iql", "regret")
    assert table.columns == ("Naive", "ARB")  # a pre-trained agent has no regret
    assert numbers(table)[HOPPER] == {"Naive": 85.0, "ARB": 45.0}
    assert [e.best for e in table.rows[0][1]] == [False, True]


def test_the_pre_trained_score_counts_every_seed_once():
    runs = [record(offline=(0.0, 10.0 * seed), strategy=s, seed=seed) for s in ("naive", "arb") for seed in (1, 3)]
    ((_, entries),) = score_table(results(*runs), "iql").rows
    assert entries[0].value == 20.0
    assert entries[0].n == 2


def test_units_are_a_column_where_they_differ():
    table = score_table(results(flat(1.0), flat(900.0, task="mine", reference=None)), "iql")
    assert table.corner == ("task", "unit")
    assert [labels for labels, _ in table.rows] == [(HOPPER, "score"), ("mine", "return")]
    assert table.title.endswith("normalised score or return")


def test_notes_count_what_is_missing_and_what_is_alone():
    runs = [flat(1.0), flat(2.0, task=WALKER), flat(3.0, task=WALKER, strategy="naive")]
    notes = score_table(results(*runs), "iql").notes
    assert "1 of 4 cells have no finished run." in notes
    assert any(note.startswith("A cell of one seed has no standard deviation") for note in notes)
    assert "Runs of 4,000 updates offline and 10,000 steps online; an evaluation has 1 episode." in notes


def test_all_tables_of_a_report_have_names_of_their_own():
    found = results(*grid(TWO_BY_TWO))
    names = [table.name for table in tables(found, groups(found))]
    assert len(names) == len(set(names))
    assert {"area-iql", "last-iql", "best-iql", "regret-iql", "drop-iql", "aggregate-1-iql"} <= set(names)
    assert {"improvement-1-iql", "paired-naive-1-iql", "paired-naive-tasks-iql"} <= set(names)
    assert not any(name.startswith(("success", "pretrained", "paired-parallel")) for name in names)


# ---- words -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("numbers", "said"), [([2, 2], "2 seeds"), ([1], "1 seed"), ([3, 1, 2], "1 to 3 seeds"), ([1200], "1,200 seeds")]
)
def test_seeds_in_words(numbers, said):
    assert counts(numbers, "seed") == said


def test_training_in_words():
    cells = results(flat(1.0), flat(1.0, task=WALKER, leaves={"schedule.online": 500, "schedule.pretrain": 10})).cells
    assert steps_of(cells) == "10 updates offline and 500 steps online or 4,000 updates offline and 10,000 steps online"
    assert episodes_of(cells) == "1 episode"
    assert episodes_of(results(record(([1.0, 2.0], [1.0, 2.0]))).cells) == "1 to 2 episodes"  # one while pre-training


def test_an_entry_of_no_seeds_is_empty():
    assert entry(results(flat(1.0, status="unfinished")).cells[0].values("last")).value is None
