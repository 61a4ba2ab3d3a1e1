"""The published numbers are transcribed as printed, their contradictions are found, and ours stand beside them."""

import pytest

from arb.errors import DataError
from arb.paper import published
from arb.paper.reproduction import PAPER, render
from tests.report.folders import config_of, write_run, write_sweep

ALL = ("naive", "parallel", "top_n", "berb", "arb")


def test_the_tables_are_complete():
    assert len(published.detailed()) == 4 * 18 * 5
    assert len(published.averages()) == 4 * 5 * 5
    assert len(published.summary()) == 4 * 5 * 5
    assert len(published.clip()) == 10
    assert [len(tasks) for tasks in published.tasks().values()] == [3, 3, 3, 3, 6]
    assert published.detailed()["iql", "hopper-random-v2", "arb"] == (54.40, 27.35)
    assert published.summary()["average", "antmaze", "arb"].mean == 88.2
    assert published.clip()["high", 12.0] == (29.50, 34.41)


def test_the_summary_contradicts_the_detailed_tables_exactly_here():
    """Recomputed from the printed rows; every other cell agrees within its last digit."""
    found = {key: (c.printed, round(c.recomputed, 2)) for key, c in published.summary_contradictions().items()}
    famo2o = {
        "random": ((30.5, 10.45), (40.9, 12.05), (26.3, 11.41), (35.9, 11.69), (53.1, 13.85)),
        "medium-replay": ((86.0, 81.68), (84.5, 82.73), (81.5, 83.97), (86.2, 83.48), (90.8, 85.26)),
        "medium": ((74.5, 73.52), (92.0, 83.24), (80.8, 84.93), (86.2, 81.89), (98.3, 86.59)),
        "medium-expert": ((103.7, 106.23), (105.9, 106.59), (100.3, 107.63), (105.5, 106.83), (107.9, 107.04)),
    }
    expected = {
        ("famo2o", group, s): pair for group, pairs in famo2o.items() for s, pair in zip(ALL, pairs, strict=True)
    }
    expected |= {
        ("pex", "random", "top_n"): (13.4, 13.64),
        ("pex", "medium-replay", "top_n"): (76.2, 67.60),
        ("pex", "medium-replay", "arb"): (82.9, 81.56),
        ("pex", "medium", "naive"): (67.4, 66.73),
        ("pex", "medium", "top_n"): (72.3, 74.79),
        ("pex", "medium-expert", "top_n"): (83.3, 92.47),
    }
    assert found == expected


def test_the_averages_contradict_their_columns_exactly_here():
    found = {key: (c.printed, round(c.recomputed, 2)) for key, c in published.average_contradictions().items()}
    assert found == {
        ("calql", "antmaze", "naive"): (76.96, 76.62),
        ("calql", "antmaze", "parallel"): (81.29, 81.25),
        ("pex", "antmaze", "berb"): (86.58, 86.50),
        ("iql", "random", "arb"): (45.13, 45.20),
        ("iql", "medium", "top_n"): (89.20, 89.17),
    }


def test_the_summarys_own_averages_agree_with_its_cells():
    for (agent, group, strategy), printed in published.summary().items():
        if agent == "average":
            cells = [published.summary()[a, group, strategy].mean for a in ("calql", "pex", "famo2o")]
            assert abs(sum(cells) / 3 - printed.mean) < 0.1


def test_cells_that_four_seeds_cannot_give():
    assert published.unattainable() == {
        ("calql", "antmaze-umaze-v2", "berb"),
        ("calql", "antmaze-umaze-diverse-v2", "berb"),
        ("calql", "antmaze-umaze-diverse-v2", "arb"),
        ("calql", "antmaze-medium-play-v2", "naive"),
        ("calql", "antmaze-medium-play-v2", "arb"),
        ("calql", "antmaze-large-diverse-v2", "parallel"),
    }


def test_famo2os_rows_are_nearly_those_of_calql():
    assert published.likeness("famo2o", "calql") == (pytest.approx(0.51, abs=0.005), pytest.approx(52 / 60))
    assert published.likeness("pex", "calql")[0] > 6


# ---- beside ours ----------------------------------------------------------------------------------------------------


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
    assert "13.4†" in line(text, "Locomotion (r)", "PEX", "paper")
    assert "† Locomotion (r), PEX: the paper's detailed table gives Top-N 13.64." in text
    assert "Ours: 1 seed (in parentheses) of 4,000 updates offline and 10,000 steps online" in text


def test_a_detailed_table_takes_the_papers_settings_and_other_tasks(tmp_path):
    for temperature, final in ((5.0, 90.0), (0.5, 10.0)):
        leaves = {"replay.temperature": temperature}
        write_run(tmp_path / f"r{temperature}", config_of("antmaze-umaze-v2", "calql", **leaves), final=final)
    write_run(tmp_path / "own", config_of("my-task", "calql"), final=33.0)
    write_run(tmp_path / "plain", config_of("no-reference", "calql"), reference=None)
    text = render("calql", [tmp_path], tmp_path / "out")
    assert "90.00 (1)" in line(text, "antmaze-umaze-v2", "ours")
    assert "42.50 ± 16.96‡" in line(text, "antmaze-umaze-v2", "paper")
    assert "76.96 ± 7.14†" in text
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


def test_the_clipping_bounds_share_their_default(tmp_path):
    for bounds, final in (((-12.0, 7.0), 70.0), ((-9.0, 7.0), 60.0), ((-12.0, 2.0), 50.0)):
        leaves = {"replay.clip": list(bounds)}
        write_run(tmp_path / str(final), config_of("antmaze-large-diverse-v2", "pex", **leaves), final=final)
    text = render("clip", [tmp_path], tmp_path / "out")
    assert "70.0 (1)" in line(text, "lower", "-12 ")
    assert "70.0 (1)" in line(text, "upper", " 7 ")
    assert "60.0 (1)" in line(text, "lower", "-9 ")
    assert "50.0 (1)" in line(text, "upper", " 2 ")
    assert "29.50 ± 34.41†" in text


def test_the_online_share_of_the_papers_tasks(tmp_path):
    write_sweep(tmp_path / "runs", tasks=["hopper-random-v2"], agents=("famo2o",), seeds=1)
    text = render("online-ratio", [tmp_path / "runs"], tmp_path / "out")
    assert "Ours are" not in text
    assert "75.0" in line(text, "hopper-random-v2", "ARB")


def test_an_unknown_name_gets_a_suggestion(tmp_path):
    with pytest.raises(DataError, match="did you mean 'temperature'"):
        render("temprature", [], tmp_path)
