"""Our runs beside the paper's numbers: which of ours belong there, and what is averaged."""

import pytest

from arb.errors import DataError
from arb.paper import published
from arb.paper.experiments import CLIPS, EXPERIMENTS, ONE_PER_GROUP, SEEDS
from arb.paper.tables import PAPER, about_ours, online_ratio, ours, render
from tests.report.folders import config_of, write_run, write_sweep
from tests.report.records import flat, results

HOPPER = "hopper-random-v2"
RANDOM = published.tasks()["random"]
STRATEGIES = list(published.STRATEGIES)


def detailed_table(found, agent):
    return PAPER[agent](found)[0]


def summary_table(found):
    return PAPER["main"](found)[0]


trajectory, temperature = PAPER["trajectory"], PAPER["temperature"]


def row(table, *labels):
    found = [entries for given, entries in table.rows if given == labels]
    assert len(found) == 1, labels
    return dict(zip(table.columns, found[0], strict=True))


def labels(table):
    return [given for given, _ in table.rows]


# ---- the published numbers -------------------------------------------------------------------------------------------
def test_the_tables_are_complete():
    assert len(published.detailed()) == 4 * 18 * 5
    assert len(published.averages()) == 4 * 5 * 5
    assert len(published.averages("summary")) == 4 * 5 * 5
    assert len(published.clip()) == 10
    assert [len(tasks) for tasks in published.tasks().values()] == [3, 3, 3, 3, 6]
    assert published.detailed()["iql", "hopper-random-v2", "arb"] == (54.40, 27.35)
    assert published.averages("summary")["average", "antmaze", "arb"].mean == 88.2
    assert published.clip()["high", 12.0] == (29.50, 34.41)


def test_the_summarys_own_averages_agree_with_its_cells():
    summary = published.averages("summary")
    for (agent, group, strategy), printed in summary.items():
        if agent == "average":
            cells = [summary[a, group, strategy].mean for a in ("calql", "pex", "famo2o")]
            assert abs(sum(cells) / 3 - printed.mean) < 0.1


# ---- which of ours ---------------------------------------------------------------------------------------------------
def test_the_papers_settings_come_before_others():
    runs = [flat(10.0, agent="calql", task=HOPPER, leaves={"replay.temperature": heat}) for heat in (0.5, 5.0, 9.0)]
    chosen = ours(results(*runs), "calql", HOPPER, "arb")
    assert chosen.runs[0].config["replay.temperature"] == 5.0


def test_of_equal_settings_the_longest_training_counts():
    runs = [flat(float(n), task=HOPPER, leaves={"schedule.online": n}) for n in (500, 9000, 2000)]
    assert ours(results(*runs), "iql", HOPPER, "arb").values("last").tolist() == [9000.0]


def test_unfinished_runs_and_plain_returns_do_not_belong_there():
    assert ours(results(flat(1.0, task=HOPPER, status="unfinished")), "iql", HOPPER, "arb") is None
    assert ours(results(flat(1.0, task=HOPPER, reference=None)), "iql", HOPPER, "arb") is None
    assert ours(results(flat(1.0, task=HOPPER)), "pex", HOPPER, "arb") is None


def test_what_ours_rest_on_is_said():
    cells = results(flat(1.0, task=HOPPER), flat(2.0, task=HOPPER, seed=1)).groups
    assert about_ours(cells).startswith("Ours: 2 seeds (in parentheses) of 4,000 updates offline and 10,000 steps")
    assert about_ours([None]).startswith("None of our runs belongs here; the paper has 4 seeds of 1,000,000 updates")


# ---- one algorithm ---------------------------------------------------------------------------------------------------
def test_a_detailed_table_without_runs_is_the_papers():
    table = detailed_table(results(), "calql")
    assert all(given[1] == "paper" for given in labels(table))
    assert len(table.rows) == sum(len(tasks) + 1 for tasks in published.tasks().values())
    cell = published.detailed()["calql", HOPPER, "arb"]
    assert (row(table, HOPPER, "paper")["ARB"].value, row(table, HOPPER, "paper")["ARB"].std) == cell


def test_a_group_is_averaged_where_all_its_tasks_are_there():
    runs = [flat(10.0 * i, task=task, agent="pex", seed=s) for i, task in enumerate(RANDOM, 1) for s in (0, 1)]
    table = detailed_table(results(*runs), "pex")
    average = row(table, "average, Locomotion (r)", "ours")
    assert average["ARB"].value == pytest.approx(10.0 * (len(RANDOM) + 1) / 2)
    assert average["ARB"].n == 2
    assert average["Naive"].value is None
    partly = detailed_table(results(*runs[:2]), "pex")
    assert ("average, Locomotion (r)", "ours") not in labels(partly)
    assert row(partly, RANDOM[0], "ours")["ARB"].value == 10.0


def test_the_best_of_a_row_is_the_best_of_that_row():
    runs = [
        flat(score, task=HOPPER, strategy=s) for s, score in zip(STRATEGIES, (1.0, 2.0, 9.0, 3.0, 4.0), strict=True)
    ]
    entries = row(detailed_table(results(*runs), "iql"), HOPPER, "ours")
    assert [name for name, e in entries.items() if e.bold] == ["Top-N"]
    assert all(e.digits == 2 for e in entries.values() if e.value is not None)


def test_tasks_that_the_paper_lacks_stand_at_the_end():
    table = detailed_table(results(flat(7.0, task="mine"), flat(8.0, task="other", status="unfinished")), "iql")
    assert labels(table)[-2:] == [("mine", "ours"), ("all tasks, IQM", "ours")]
    assert ("other", "ours") not in labels(table)


# ---- the summary -----------------------------------------------------------------------------------------------------
def runs_of(agent, tasks, score, strategies=STRATEGIES):
    return [flat(score, agent=agent, task=task, strategy=s) for task in tasks for s in strategies]


def test_part_of_a_group_is_marked_and_not_averaged_over_agents():
    runs = [*runs_of("calql", RANDOM[:1], 30.0), *runs_of("pex", RANDOM, 20.0), *runs_of("famo2o", RANDOM, 40.0)]
    table = summary_table(results(*runs))
    part = row(table, "Locomotion (r)", "Cal-QL", "ours")["ARB"]
    assert (part.value, part.mark) == (30.0, "§")
    said = f"§ Locomotion (r), Cal-QL: ours is over 1 of {len(RANDOM)} tasks"
    assert any(note.startswith(said) for note in table.notes)
    assert ("Locomotion (r)", "Average", "ours") not in labels(table)


def test_a_whole_group_is_averaged_over_agents():
    runs = [one for agent, score in (("calql", 30.0), ("pex", 20.0), ("famo2o", 40.0))
            for one in runs_of(agent, RANDOM, score)]  # fmt: skip
    table = summary_table(results(*runs))
    average = row(table, "Locomotion (r)", "Average", "ours")["ARB"]
    assert (average.value, average.mark, average.n) == (30.0, "", 1)


def test_only_tasks_that_all_present_strategies_share_are_put_together():
    runs = [*runs_of("pex", RANDOM, 20.0, ["arb"]), *runs_of("pex", RANDOM[:1], 10.0, ["naive"])]
    entries = row(summary_table(results(*runs)), "Locomotion (r)", "PEX", "ours")
    assert entries["ARB"].value == 20.0
    assert entries["Naive"].value == 10.0
    assert entries["BERB"].value is None
    assert entries["ARB"].mark == "§"


# ---- ablations -------------------------------------------------------------------------------------------------------
def test_levels_have_a_row_each_with_score_and_share():
    place = {"agent": "calql", "task": "antmaze-large-play-v2", "figures": {"replay.online_share": [0.2, 0.5]}}
    runs = [flat(score, leaves={"replay.level": level}, **place) for level, score in
            (("trajectory", 60.0), ("transition", 40.0))]  # fmt: skip
    table, figure = trajectory(results(*runs))
    by_level = {given[2]: [e.value for e in entries] for given, entries in table.rows}
    printed = published.detailed()["calql", "antmaze-large-play-v2", "arb"].mean
    assert by_level == {"trajectory": [printed, 60.0, 50.0], "transition": [None, 40.0, 50.0]}
    assert figure is not None


def test_what_was_not_run_is_shown_as_printed():
    table, figure = temperature(results())
    assert [given for given, _ in table.rows] == [("", "", "0.5")]
    assert figure is None


def test_every_clipping_bound_of_the_paper_has_a_row():
    place = {"agent": "pex", "task": "antmaze-large-diverse-v2"}
    runs = [flat(score, leaves={"replay.clip": bounds}, **place) for bounds, score in
            (([-12.0, 7.0], 50.0), ([-9.0, 7.0], 40.0), ([-9.0, 2.0], 1.0))]  # fmt: skip
    table, _ = PAPER["clip"](results(*runs))
    own = {given[2]: (entries[0].value, entries[1].value) for given, entries in table.rows}
    assert len(own) == len(CLIPS) + 1
    assert own["[-12,7]"] == (published.clip()["low", -12.0].mean, 50.0)
    assert own["[-9,7]"] == (published.clip()["low", -9.0].mean, 40.0)
    assert own["[-12,2]"] == (published.clip()["high", 2.0].mean, None)
    assert own["[-9,2]"] == (None, 1.0)


def test_the_online_ratio_says_how_much_of_the_time_the_buffer_is_exceeded():
    figures = {"replay.online_share": [0.1, 0.3, 0.5], "replay.online_rows": [0.2, 0.2, 0.25]}
    table, _ = online_ratio(results(flat(1.0, agent="famo2o", task=HOPPER, figures=figures)))
    ((_, entries),) = table.rows
    assert [e.value for e in entries] == pytest.approx([10.0, 30.0, 50.0, 25.0, 200.0 / 3.0])


def test_an_analysis_elsewhere_needs_a_setting_that_varies():
    one = flat(1.0)
    assert [given[2] for given in labels(trajectory(results(one))[0])] == ["trajectory"]  # the printed one alone
    table, _ = temperature(results(one, flat(2.0, leaves={"replay.temperature": 2.0})))
    assert [given[2] for given in labels(table)] == ["0.5", "2"]
    assert "Ours are on other tasks or agents." in table.notes[0]


# ---- experiments -----------------------------------------------------------------------------------------------------
def test_the_papers_grids():
    assert set(EXPERIMENTS) == {
        "main", "calql", "pex", "famo2o", "iql", "online-ratio", "trajectory", "temperature", "clip"
    }  # fmt: skip
    assert len(CLIPS) == len(set(CLIPS)) == 9
    assert all(low == -12.0 or high == 7.0 for low, high in CLIPS)
    assert {key for key in published.clip() if key[0] == "low"} == {("low", low) for low, high in CLIPS if high == 7.0}
    assert len(SEEDS["paper"]) == published.SEEDS
    assert len(EXPERIMENTS["main"].tasks) == 18
    assert set(EXPERIMENTS["main"].tasks) == {task for tasks in published.tasks().values() for task in tasks}
    assert set(ONE_PER_GROUP) <= set(EXPERIMENTS["main"].tasks)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("mian", "smoke", "d4rl"), r"no experiment 'mian' \(did you mean 'main'\?\)"),
        (("main", "demo", "d4rl"), "no preset 'demo'"),
        (("main", "smoke", "minari"), "no data 'minari'"),
    ],
)
def test_unknown_words_are_refused(asked, said):
    from arb.paper.experiments import cells_of

    with pytest.raises(DataError, match=said):
        cells_of(*asked)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
def test_everything_renders_without_runs_of_ours(tmp_path, name):
    text = render(name, [], tmp_path / "out")
    assert "None of our runs belongs here" in text
    assert {path.suffix for path in (tmp_path / "out" / "tables").iterdir()} == {".txt", ".md", ".tex", ".csv"}


def line(text, *words):
    (found,) = [one for one in text.splitlines() if all(word in one for word in words) and not one.startswith("  ")]
    return found


def test_the_main_table_has_ours_and_the_footnotes(tmp_path):
    for task, final in (("hopper-random-v2", 10.0), ("walker2d-random-v2", 20.0)):
        write_run(tmp_path / "runs" / task, config_of(task, "pex"), final=final)
    text = render("main", [tmp_path / "runs"], tmp_path / "out")
    assert "15.0§ (1)" in line(text, "Locomotion (r)", "PEX", "ours")
    assert "§ Locomotion (r), PEX: ours is over 2 of 3 tasks (hopper-random-v2, walker2d-random-v2)." in text
    assert "Ours: 1 seed (in parentheses) of 4,000 updates offline and 10,000 steps online" in text


def test_a_detailed_table_takes_the_papers_settings_and_other_tasks(tmp_path):
    for temperature, final in ((5.0, 90.0), (0.5, 10.0)):
        leaves = {"replay.temperature": temperature}
        write_run(tmp_path / f"r{temperature}", config_of("antmaze-umaze-v2", "calql", **leaves), final=final)
    write_run(tmp_path / "own", config_of("my-task", "calql"), final=33.0)
    write_run(tmp_path / "plain", config_of("no-reference", "calql"), reference=None)
    text = render("calql", [tmp_path], tmp_path / "out")
    assert "90.00 (1)" in line(text, "antmaze-umaze-v2", "ours")
    assert "42.50 ± 16.96" in line(text, "antmaze-umaze-v2", "paper")
    assert "33.00 (1)" in line(text, "my-task", "ours")
    assert "no-reference" not in text


def test_the_temperatures_have_a_picture(tmp_path):
    for temperature in (0.2, 0.5, 2.0):
        leaves = {"replay.temperature": temperature}
        write_run(
            tmp_path / f"{temperature}", config_of("antmaze-large-diverse-v2", "pex", **leaves), final=temperature
        )
    text = render("temperature", [tmp_path], tmp_path / "out")
    assert "82.00 ± 2.94" in line(text, "antmaze-large-diverse-v2", " 0.5 ")
    assert [e.name for e in sorted((tmp_path / "out" / "figures").iterdir())] == [
        f"paper-temperature.{ending}" for ending in ("pdf", "png", "svg")
    ]


def test_an_ablation_elsewhere_says_so_and_needs_a_setting_that_varies(tmp_path):
    for level in ("trajectory", "transition"):
        write_run(tmp_path / level, config_of("my-task", **{"replay.level": level}))
    write_run(tmp_path / "alone", config_of("other-task"))
    text = render("trajectory", [tmp_path], tmp_path / "out")
    assert "Ours are on other tasks or agents" in text
    assert "my-task" in text
    assert "other-task" not in text
    assert "83.25" not in text


def test_the_online_share_of_the_papers_tasks(tmp_path):
    write_sweep(tmp_path / "runs", tasks=["hopper-random-v2"], agents=("famo2o",), seeds=1)
    text = render("online-ratio", [tmp_path / "runs"], tmp_path / "out")
    assert "Ours are" not in text
    assert "75.0" in line(text, "hopper-random-v2", "ARB")


def test_an_unknown_name_gets_a_suggestion(tmp_path):
    with pytest.raises(DataError, match="did you mean 'temperature'"):
        render("temprature", [], tmp_path)


def test_the_interquartile_mean_is_over_tasks_that_all_strategies_have():
    runs = [
        flat(10.0 * i, task=task, agent="pex", strategy=s) for i, task in enumerate(RANDOM, 1) for s in ("naive", "arb")
    ]
    table, figure = PAPER["pex"](results(*runs, flat(99.0, task="other", agent="pex")))
    entries = row(table, "all tasks, IQM", "ours")
    assert (entries["ARB"].value, entries["Naive"].value, entries["BERB"].value) == (20.0, 20.0, None)
    assert len(figure.axes[0].lines) == 2
