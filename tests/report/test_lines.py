"""A run in an archive: what goes into a line comes out of it, and what does not belong in one is refused."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.errors import DataError
from arb.report.lines import MOST_POINTS, from_line, to_line
from tests.report.records import flat, record

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def line(made=None, **changes):
    """The line of a run, with some of its values changed; a value of None is left out."""
    values = {**json.loads(to_line(made or flat(50.0), "name")), **changes}
    return json.dumps({name: value for name, value in values.items() if value is not None})


def test_a_run_comes_back():
    run = record(figures={"replay.online_share": [0.25, 0.5]}, successes=[[0], [1], [1]], seed=3)
    back = from_line("results/a.jsonl", to_line(run, "hopper/iql"))
    assert back.place == "results/a.jsonl: hopper/iql"
    for name in ("config", "status", "reason", "env", "reference", "data", "versions", "machine"):
        assert getattr(back, name) == getattr(run, name), name
    assert back.seed == 3
    for phase in ("pretrain", "online"):
        assert back.curves[phase].steps.tolist() == run.curves[phase].steps.tolist()
        assert back.curves[phase].means.tolist() == run.curves[phase].means.tolist()
    assert [one.tolist() for one in back.curves["online"].successes] == [[0.0], [1.0], [1.0]]
    assert back.metrics["online"]["replay.online_share"].tolist() == [0.25, 0.5]


@given(st.lists(st.lists(numbers, min_size=1, max_size=3), min_size=2, max_size=5))
def test_returns_come_back_with_six_digits(returns):
    back = from_line("a", to_line(record(online=returns), "n"))
    for ours, theirs in zip(returns, back.curves["online"].returns, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_a_line_is_the_same_every_time_and_short():
    run = flat(1 / 3, figures={"replay.online_share": [1 / 3]})
    assert to_line(run, "n") == to_line(run, "n")
    values = json.loads(to_line(run, "n"))
    assert list(values) == sorted(values)
    assert values["evaluations"]["online"]["return"] == [[0.333333]] * 3
    assert values["metrics"]["online"]["replay.online_share"] == [0.3333]
    assert " " not in to_line(run, "n").replace("Env-v0", "")


def test_whole_numbers_are_written_as_such_and_gaps_as_null():
    values = json.loads(to_line(flat(50.0, figures={"replay.age": [1.0, math.nan, 2.5]}), "n"))
    assert values["evaluations"]["online"]["return"] == [[50], [50], [50]]
    assert values["metrics"]["online"] == {"step": [1, 2, 3], "replay.age": [1, None, 2.5]}
    back = from_line("a", json.dumps(values))
    assert np.isnan(back.metrics["online"]["replay.age"][1])


def test_figures_without_a_number_and_losses_are_left_out():
    run = flat(1.0, figures={"replay.age": [math.nan], "replay.entropy": [0.5], "critic_loss": [3.0]})
    assert json.loads(to_line(run, "n"))["metrics"]["online"].keys() == {"step", "replay.entropy"}
    assert json.loads(to_line(flat(1.0), "n"))["metrics"] == {}


def test_long_figures_keep_their_ends():
    run = flat(1.0, figures={"replay.age": np.arange(5000.0)})
    kept = json.loads(to_line(run, "n"))["metrics"]["online"]
    assert len(kept["step"]) == MOST_POINTS
    assert (kept["replay.age"][0], kept["replay.age"][-1]) == (0, 4999)
    assert kept["step"][-1] == 5000


def test_a_done_run_without_a_fine_tuned_evaluation_has_failed():
    run = from_line("a", line(record(online=(50.0,))))
    assert run.status == "failed"
    assert "no online evaluation" in run.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arb": 2}, "not a run in format 1"),
        ({"config": None}, "config is missing"),
        ({"config": [1]}, "config is missing"),
        ({"status": "fine"}, "done or failed"),
        ({"data": "text"}, "data must hold names and values"),
        ({"reference": [1.0]}, "two numbers"),
        ({"reference": [1.0, 1.0]}, "the second larger"),
        ({"reference": [0.0, "x"]}, "two numbers"),
        ({"machine": {"seconds": {"online": "long"}}}, "seconds must be a finite number"),
        ({"evaluations": []}, "must hold a list of episodes|by phase|online evaluation|^$"),
        ({"evaluations": {phase: {} for phase in "abcdefghijk"}}, "must be given by phase"),
        ({"evaluations": {"online": 3}}, "must hold step and return"),
        ({"evaluations": {"online": {"step": [0, 1], "return": [[1]]}}}, "list of episodes for each evaluation"),
        ({"evaluations": {"online": {"step": [0], "return": [[]]}}}, "without an episode"),
        ({"evaluations": {"online": {"step": [5, 3], "return": [[1], [1]]}}}, "must be increasing whole numbers"),
        ({"evaluations": {"online": {"step": [0.5], "return": [[1]]}}}, "must be increasing whole numbers"),
        ({"evaluations": {"online": {"step": "ab", "return": [[1]]}}}, "no list of steps"),
        ({"evaluations": {"online": {"step": [1], "return": [[1e99]]}}}, "must be a finite number"),
        ({"evaluations": {"online": {"step": [1], "return": [[True]]}}}, "must be a finite number"),
        ({"metrics": {"online": {"step": [1], "replay.age": [1, 2]}}}, "2 values for 1 steps"),
        ({"metrics": {"online": {"step": [1], "replay.age": "x"}}}, "not a list of numbers"),
        ({"metrics": {"online": {"step": [1], "replay.age": ["x"]}}}, "a value that is not a number"),
        ({"metrics": {"online": [1]}}, "columns by name"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(changes, said):
    if changes == {"evaluations": []}:  # nothing was evaluated: a run that says it is done and is not
        assert from_line("a", line(**changes)).status == "failed"
        return
    with pytest.raises(DataError, match=said):
        from_line("a", line(**changes))


def test_what_is_no_json_is_refused_in_one_line():
    for text in ("", "{", "[1, 2]", "null", "[" * 100_000):
        with pytest.raises(DataError) as refused:
            from_line("a", text)
        assert "\n" not in str(refused.value)


def test_text_from_a_line_cannot_draw_on_a_terminal():
    run = from_line("a", line(run="x\x1b[2J", reason="two\nlines", status="failed"))
    assert run.place == "a: x�[2J"
    assert run.reason == "two�lines"
