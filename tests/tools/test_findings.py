"""What is said of the archives: no more than the intervals allow, and nothing that goes against ARB is left out."""

import re

import numpy as np
import pytest
from tools.results.claims import contrast
from tools.results.findings import Campaign, again, answer, by_agent, by_quality, limits, losses, temperatures

from arb.report import stats
from arb.report.records import group_runs, read_runs
from tests.report.folders import config_of, write_pairs, write_run


def campaign(path, name="c"):
    return Campaign(name, group_runs(read_runs([path])))


def test_the_answer_says_only_what_the_interval_allows(tmp_path):
    for name, differences in {"up": [9.0, 10.0, 11.0], "down": [-9.0, -10.0, -11.0], "wide": [30.0, -20.0, 10.0],
                              "none": [0.1, -0.1, 0.2], "one": [50.0]}.items():  # fmt: skip
        write_pairs(tmp_path / name, differences)
    said = {name: answer([campaign(tmp_path / name)]) for name in ("up", "down", "wide", "none", "one")}
    assert "ARB +10.0 points (95% interval +7.5 to +12.5, 3 seeds each), it helps on average" in said["up"]
    assert "it hurts on average" in said["down"]
    assert "we cannot tell" in said["wide"]
    assert "no difference that matters" in said["none"]
    assert "+50.0 points (without an interval, 1 seed each), we cannot tell" in said["one"]
    assert "ARB auto has not been compared" in said["up"]


def test_the_answer_is_corrected_for_the_other_strategies_of_its_archive(tmp_path):
    write_pairs(tmp_path, [1.0, 1.6, 2.2])  # p = 0.046 alone
    assert "+1.6 points (95% interval +0.1 to +3.1, 3 seeds each), it helps" in answer([campaign(tmp_path)])
    write_pairs(tmp_path, [30.0, -20.0, 10.0], strategy="top_n")
    assert "it helps" not in answer([campaign(tmp_path)])


def test_strategies_measured_alike_share_a_sentence(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0, 11.0])
    write_pairs(tmp_path, [19.0, 20.0, 21.0], strategy="arb_auto")
    said = answer([campaign(tmp_path)])
    assert said.count("IQL on 1 task: ") == 1
    assert said.index("ARB +10.0") < said.index("; ARB auto +20.0")


def test_the_answer_says_for_which_data(tmp_path):
    write_pairs(tmp_path, [0.9, 1.0, 1.1], task="hopper-medium-v2")
    write_pairs(tmp_path, [29.0, 30.0, 31.0], task="hopper-medium-expert-v2")
    said = answer([campaign(tmp_path)])
    gains = re.search("ARB gains (.*) where several policies (.*) where one did, a difference of (.*);", said)
    assert [re.search(r"[+-][\d.]+", part)[0] for part in gains.groups()] == ["+30.0", "+1.0", "+29.0"]


def test_a_replication_is_named_and_nothing_that_only_repeats(tmp_path):
    write_pairs(tmp_path / "a", [9.0, 10.0, 11.0])
    write_pairs(tmp_path / "b", [5.0, 6.0], leaves={"schedule.pretrain": 77})
    write_pairs(tmp_path / "c", [9.0, 10.0], task="walker2d-medium-v2")
    first, other, elsewhere = (Campaign(name, campaign(tmp_path / name).results) for name in "abc")
    said = again([first, other, elsewhere])
    assert "archive `b`: ARB +5.5 points (95% interval -0.9 to +11.9)" in said
    assert again([first, Campaign("copy", first.results), elsewhere]) == ""


def test_a_contrast_is_a_difference_of_means_with_the_variance_of_both():
    some, others = [np.array([1.0, 3.0]), np.array([6.0, 6.0])], [np.array([0.0, 4.0, 8.0])]
    both = contrast(some, others)
    error, _ = stats.standard_error(both)
    assert stats.mean_of(both) == pytest.approx(4.0 - 4.0)
    assert error**2 == pytest.approx((2.0 / 2) / 4 + 16.0 / 3)  # s²/n of a task over tasks²


def test_two_budgets_of_one_strategy_do_not_hide_each_other(tmp_path):
    for place, updates, gain in (("short", 10, 5.0), ("long", 20, 9.0)):
        write_pairs(tmp_path / "a" / place, [gain, gain + 1.0], **{"schedule.pretrain": updates})
    write_pairs(tmp_path / "b", [1.0, 2.0], task="walker2d-medium-v2")
    (text,) = by_agent([campaign(tmp_path / name, name) for name in "ab"])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    found = {name.strip(" |"): cell.split(" ")[0] for name, cell in zip(rows[0][3:], rows[2][3:], strict=True)}
    assert (found["ARB pretrain=10"], found["ARB pretrain=20"]) == ("+5.5", "+9.5")


def test_losses_are_named_worst_first(tmp_path):
    write_pairs(tmp_path, [-9.0, -10.0, -11.0])
    write_pairs(tmp_path, [-30.0, 20.0, -5.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [3.0, 4.0, 5.0], task="halfcheetah-medium-v2")
    rows = [line for line in losses([campaign(tmp_path)]).splitlines() if line.startswith("| c ")]
    assert len(rows) == 2
    assert "hopper-medium-v2" in rows[0]
    assert "**-10.0" in rows[0]
    assert "walker2d-medium-v2" in rows[1]
    assert "**" not in rows[1]
    assert losses([campaign(tmp_path)]).startswith("2 of 3 comparisons")
    again = losses([campaign(tmp_path), campaign(tmp_path, "again")])
    assert again == losses([campaign(tmp_path)])  # runs of another archive that are the same are named once
    write_pairs(tmp_path / "won", [3.0, 4.0, 5.0])
    assert losses([campaign(tmp_path / "won")]).startswith("0 of 1 comparison")
    write_pairs(tmp_path / "other", [-9.0, -9.0], **{"replay.temperature": 7.0})
    assert losses([campaign(tmp_path / "other")]) == "Nothing has been compared yet."  # nobody recommends that λ
    (tmp_path / "empty").mkdir()
    assert losses([campaign(tmp_path / "empty")]) == "Nothing has been compared yet."
    write_pairs(tmp_path / "small", [-0.9, -1.0, -1.05], base="top_n")
    assert losses([campaign(tmp_path / "small")]).startswith("1 of 1 comparison")


def test_a_part_of_an_archives_runs_in_another_is_no_further_loss(tmp_path):
    write_pairs(tmp_path / "all", [-9.0, -10.0, -11.0])
    write_pairs(tmp_path / "part", [-9.0, -10.0])
    both = losses([campaign(tmp_path / name, name) for name in ("all", "part")])
    assert both.count("hopper-medium-v2") == 1


def test_limits_name_the_last_evaluation_and_the_difference_of_our_two_strategies(tmp_path):
    write_pairs(tmp_path, [9.0, 10.0, 11.0])
    write_pairs(tmp_path, [12.0, 12.0, 15.0], strategy="arb_auto")
    said = limits([campaign(tmp_path)])
    assert "last evaluation: ARB +10.0 points (95% interval +7.5 to +12.5); ARB auto +13.0 points (" in said
    assert "ARB auto minus ARB: +3.0 points" in said


def test_an_interval_that_only_the_correction_takes_away_is_said_to_be_so(tmp_path):
    write_pairs(tmp_path, [1.0, 1.6, 2.2])  # p = 0.046 alone
    write_pairs(tmp_path, [30.0, -20.0, 10.0], strategy="top_n")
    write_pairs(tmp_path, [30.0, -20.0, 10.0], strategy="berb")
    margin = answer([campaign(tmp_path)])
    assert "ARB +1.6 points (95% interval +0.1 to +3.1, 3 seeds each), no difference that matters" in margin
    write_pairs(tmp_path, [6.0, 9.0, 12.0])  # p = 0.036 alone, three times that corrected
    assert "3 seeds each), not significant after correction" in answer([campaign(tmp_path)])


def test_differences_by_quality_of_the_data(tmp_path):
    write_pairs(tmp_path / "a", [9.0, 10.0, 11.0], task="hopper-random-v2")
    write_pairs(tmp_path / "b", [29.0, 30.0, 31.0], task="walker2d-random-v2")
    write_pairs(tmp_path / "c", [-9.0, 10.0, 11.0], task="hopper-medium-expert-v2")
    assert by_quality([campaign(tmp_path)]) == []  # one robot of medium-expert
    write_pairs(tmp_path / "d", [-2.0, 1.0, 1.0], task="walker2d-medium-expert-v2")
    write_pairs(tmp_path / "e", [1.0, 1.0], task="antmaze-umaze-v2")
    (text,) = by_quality([campaign(tmp_path / "a"), campaign(tmp_path)])
    tables = re.split(r"\n\n\| (?:recorded by|robot)", text)
    rows = [line for line in tables[0].splitlines() if line.startswith("|")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| medium-expert", "| random"]
    assert "2.0" in rows[0]  # the mean of 4 and 0
    assert "**+20.0" in rows[1]
    assert "(6)" in rows[1]
    rows = [line for line in tables[1].splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| several policies: medium-expert", "| one policy: random", "| several minus one"
    ]  # fmt: skip
    assert "-18.0" in rows[2]  # 2 minus 20, of 12 pairs
    assert "(12)" in rows[2]
    rows = [line for line in tables[2].splitlines() if line.startswith("| ")][1:]
    assert [row.split(" \\[")[0] for row in rows] == [
        "| hopper | +7.0",
        "| walker2d | **+15.0",
    ]  # of 10 and 4, of 30 and 0


def test_differences_by_agent_and_archive_without_repeating_runs(tmp_path):
    write_pairs(tmp_path / "a", [9.0, 10.0, 11.0])
    write_pairs(tmp_path / "a", [1.0, 2.0, 3.0], strategy="top_n")
    assert by_agent([campaign(tmp_path / "a")]) == []  # one row is no comparison
    write_pairs(tmp_path / "b", [4.0, 5.0], task="antmaze-umaze-v2")
    write_pairs(tmp_path / "b", [90.0, 90.0], task="antmaze-umaze-v2", **{"replay.temperature": 7.0})
    (text,) = by_agent([campaign(tmp_path / name, name) for name in ("a", "a", "b")])
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert head.split(" | ")[3:] == ["Top-N", "ARB |"]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| IQL", "hopper-medium-v2", "a"],
        ["| IQL", "antmaze-umaze-v2", "b"],
    ]
    assert "| +2.0 " in rows[0]
    assert "**+10.0" in rows[0]
    assert "| — | +4.5 " in rows[1]


def test_temperatures_show_what_was_set_or_solved(tmp_path):
    write_run(tmp_path / "a", config_of(**{"replay.temperature": 0.25}))
    folder = write_run(tmp_path / "b", config_of(strategy="arb_auto", **{"replay.temperature": "auto"}))
    text = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text(
        "\n".join([text[0] + ",replay.temperature", *(line + ",1.5" for line in text[1:])]) + "\n"
    )
    rows = {labels[2]: entries for labels, entries in temperatures([campaign(tmp_path)]).rows}
    assert rows["ARB"][0].value == 0.25
    assert rows["ARB auto"][0].value == 1.5
    assert rows["ARB"][2].value == pytest.approx(75.0)  # of a batch, and of the buffer
    assert rows["ARB"][3].value == pytest.approx(25.0)
