"""What the page is told, value by value."""

import json
import math

import numpy as np
import pytest

from arb.report.comparison import groups, tables
from arb.report.page_data import DIAGNOSTICS, MOST_POINTS, embedded, page_data
from arb.report.tables import Entry, Table
from tests.report.records import flat, record, results
from tests.report.test_groups import HOPPER, TWO_BY_TWO, WALKER, grid


def told(*runs, made=()):
    found = results(*runs)
    return page_data(found, groups(found), made)


def test_everything_can_be_written_as_json():
    found = results(*grid(TWO_BY_TWO))
    data = page_data(found, groups(found), tables(found, groups(found)))
    assert json.loads(embedded(data)).keys() == data.keys()


def test_a_curve_has_the_switch_at_zero_and_one_deviation_around_its_mean():
    (cell,) = told(record((50.0, 60.0)), record((54.0, 60.0), seed=1))["cells"]
    before, after = cell["curve"]
    assert before["x"] == [-2000, 0]
    assert after == {"x": [0, 2000], "y": [52.0, 60.0], "low": [49.172, 60.0], "high": [54.828, 60.0]}
    assert (cell["seeds"], cell["unit"], cell["finished"]) == (2, "normalised score", True)


def test_one_seed_has_no_band():
    (cell,) = told(flat(50.0))["cells"]
    assert cell["curve"][1]["low"] is None
    assert cell["curve"][1]["high"] is None


def test_figures_are_thinned_and_gaps_stay_gaps():
    share = np.linspace(0.0, 1.0, 1000)
    share[-1] = math.nan
    (cell,) = told(flat(1.0, figures={"replay.online_share": share}))["cells"]
    line = cell["metrics"]["online_share"]
    assert len(line["x"]) == len(line["y"]) == MOST_POINTS
    assert (line["x"][0], line["x"][-1]) == (1, 1000)
    assert line["y"][-1] is None


def test_what_lies_between_0_and_1_is_drawn_so():
    shares = {"online_share", "drawn_online_share", "effective_share", "entropy", "top_trajectories"}
    shares |= {"clipped_low", "clipped_high"}
    assert {name for name, (_, _, share) in DIAGNOSTICS.items() if share} == shares


def test_only_figures_that_somebody_has_can_be_chosen():
    data = told(flat(1.0, figures={"replay.age": [3.0], "replay.temperature": [math.nan]}))
    assert [one["id"] for one in data["diagnostics"]] == ["age"]
    title, meaning, share = DIAGNOSTICS["age"]
    assert data["diagnostics"][0] == {"id": "age", "title": title, "meaning": meaning, "share": share}


def test_the_figures_of_a_strategy_of_ones_own_are_shown_under_their_names():
    data = told(flat(1.0, figures={"replay.bandit_reward": [0.5, 0.7], "replay.online_bound": [1.0, 2.0]}))
    assert [(one["id"], one["title"]) for one in data["diagnostics"]] == [("bandit_reward", "Bandit reward")]
    assert data["cells"][0]["metrics"]["bandit_reward"]["y"] == [0.5, 0.7]


def test_settings_that_differ_are_apart_from_those_that_do_not():
    data = told(flat(1.0), flat(1.0, leaves={"replay.temperature": 2.0}))["settings"]
    assert data["differing"] == ["replay.temperature"]
    assert data["rows"] == [
        [f"{HOPPER} · IQL · ARB λ=0.5", "0.5"],
        [f"{HOPPER} · IQL · ARB λ=2", "2.0"],
    ]
    common = dict(data["common"])
    assert common["schedule.online"] == "10000"
    assert common["task"] == HOPPER
    assert "seed" not in common
    assert "replay.temperature" not in common


def test_versions_and_data_are_counted():
    runs = [
        flat(1.0),
        flat(1.0, seed=1),
        flat(1.0, seed=2, versions={"numpy": "2.1"}, data={"rows": 5, "sha256": "aa"}),
    ]
    versions, data = told(*runs)["origins"]
    assert versions == ("Versions", ["package", "version"], [["numpy", "2.0 (2 runs), 2.1 (1 run)"]])
    assert data[2] == [[HOPPER, "Env-v0", "1000", "0f", "2"], [HOPPER, "Env-v0", "5", "aa", "1"]]
    assert told(flat(1.0))["origins"][0][2] == [["numpy", "2.0"]]
    assert told(flat(1.0, versions={}, data={}))["origins"] == []


def test_runs_say_what_they_are_and_why_they_do_not_count():
    runs = told(
        flat(1.0, place="a"), flat(2.0, place="b"), flat(3.0, place="c", seed=1, status="failed", reason="fell")
    )
    listed = {one["folder"]: one for one in runs["runs"]}
    assert listed["a"]["reason"] == ""
    assert listed["b"]["reason"].startswith("another folder holds the same setting and seed")
    assert listed["c"] == {
        "folder": "c", "status": "failed", "reason": "fell", "what": f"{HOPPER} · IQL · arb · seed 1",
    }  # fmt: skip


def test_the_head_of_the_page():
    data = told(*grid(TWO_BY_TWO), flat(1.0, strategy="berb", task=WALKER), flat(1.0, seed=9, status="unfinished"))
    assert data["subtitle"] == "IQL fine-tuned with Naive, BERB and ARB."
    assert dict(data["facts"]) == {
        "finished runs": "9", "tasks": "2", "strategies": "3", "seeds per cell": "1–2", "not in the tables": "1",
    }  # fmt: skip
    assert told(flat(1.0))["subtitle"] == "IQL fine-tuned with ARB."
    assert told(record((), ()))["subtitle"].startswith("No run has been evaluated yet")


def test_variants_have_one_colour_each_and_agents_their_tasks():
    data = told(*grid(TWO_BY_TWO), flat(1.0, agent="pex"))
    assert [one["name"] for one in data["variants"]] == ["Naive", "ARB"]
    assert len({one["colour"] for one in data["variants"]}) == 2
    assert data["agents"] == [
        {"id": "iql", "name": "IQL", "tasks": [HOPPER, WALKER]},
        {"id": "pex", "name": "PEX", "tasks": [HOPPER]},
    ]


def test_measures_without_a_table_cannot_be_chosen():
    made = [Table("last-iql", "t", ("task",), ("ARB",), ()), Table("area-iql", "t", ("task",), ("ARB",), ())]
    assert [one["id"] for one in told(flat(1.0), made=made)["measures"]] == ["area", "last"]


def test_a_number_is_apart_from_what_is_said_about_it():
    shown = Entry(12.34, 1.26, n=3, best=True, mark="†")
    interval, empty = Entry(0.5, low=-0.25, high=1.0, digits=2), Entry(mark="§")
    table = Table("last-iql", "title", ("task",), ("a", "b", "c"), ((("hopper",), (shown, interval, empty)),))
    (given,) = told(flat(1.0), made=[table])["tables"]
    assert given["rows"][0]["labels"] == ("hopper",)
    first, second, third = given["rows"][0]["entries"]
    assert first == {"value": 12.34, "text": "12.3", "more": "± 1.3 (3)", "best": True, "mark": "†"}
    assert (second["text"], second["more"]) == ("0.50", "[-0.25 to 1.00]")
    assert third == {"value": None, "mark": "§"}
    assert given["kind"] == "last"


def test_groups_have_statistics_improvements_and_profiles():
    (group,) = told(*grid(TWO_BY_TWO))["groups"]
    assert group["hero"] == "ARB"
    assert {one["variant"]: one["value"] for one in group["aggregates"]["IQM"]} == {"Naive": 25.0, "ARB": 65.0}
    assert [(one["variant"], one["value"]) for one in group["improvements"]] == [("Naive", 1.0)]
    naive, arb = group["profile"]
    assert naive["y"][0] == arb["y"][0] == 1.0  # all runs lie above the first threshold, none above the last
    assert naive["y"][-1] == arb["y"][-1] == 0.0
    assert all(a >= b for a, b in zip(arb["y"], naive["y"], strict=True))
    assert all(low <= high for low, high in zip(arb["low"], arb["high"], strict=True))


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028"])
def test_no_text_can_end_the_script_it_stands_in(text):
    written = embedded({"x": text})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {"x": text}


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded({"x": math.nan})
