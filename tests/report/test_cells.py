"""Runs put together by hand: measures, curves that are aligned, and the names that tell variants apart."""

import numpy as np
import pytest

from arb.report.cells import MEASURES, PRIMARY
from tests.report.records import flat, record, results


def measured(name, run):
    return MEASURES[name].of(run)


def test_measures_of_one_run_by_hand():
    run = record(online=(50.0, 60.0, 80.0), offline=(10.0, 50.0))
    assert measured("area", run) == 62.5  # ((50 + 60) / 2 + (60 + 80) / 2) / 2
    assert measured("last", run) == 80.0
    assert measured("best", run) == 80.0
    assert measured("drop", run) == -10.0  # from 50 to 60: nothing was lost
    assert measured("regret", run) == 37.5  # ((50 + 40) / 2 + (40 + 20) / 2) / 2
    assert measured("pretrained", run) == 50.0
    assert measured("success", run) is None
    assert PRIMARY == "area"


def test_the_evaluation_before_the_first_update_is_no_fine_tuned_score():
    run = record(online=(90.0, 60.0, 70.0), offline=(0.0, 90.0))
    assert measured("best", run) == 70.0
    assert measured("drop", run) == 30.0


def test_scores_above_the_reference_do_not_make_up_for_those_below():
    assert measured("regret", record(online=(50.0, 150.0))) == 25.0
    assert measured("regret", record(online=(50.0, 150.0), reference=None)) is None


def test_success_is_that_of_the_last_evaluation_in_percent():
    assert measured("success", record(online=(1.0, 1.0), successes=[[0, 0], [1, 0]])) == 50.0


def test_an_evaluation_is_the_mean_of_its_episodes():
    run = record(online=([0.0, 100.0], [50.0, 70.0]), offline=([1.0, 3.0],))
    assert measured("last", run) == 60.0
    assert measured("area", run) == 55.0
    assert measured("pretrained", run) == 2.0


def test_seeds_with_other_evaluations_are_compared_where_both_were_evaluated():
    often, seldom = record((1.0, 2.0, 3.0, 4.0, 5.0)), record((10.0, 30.0, 50.0), every=4000, seed=1)
    (cell,) = results(often, seldom).cells
    steps, values = cell.curve["online"]
    assert steps.tolist() == [0.0, 4000.0, 8000.0]
    assert values.tolist() == [[1.0, 3.0, 5.0], [10.0, 30.0, 50.0]]


def test_a_phase_that_a_seed_lacks_is_not_drawn():
    (cell,) = results(record(), record(offline=(), seed=1)).cells
    assert set(cell.curve) == {"online"}


def test_a_figure_needs_every_seed_and_a_number():
    share = {"replay.online_share": [0.1, 0.2]}
    (both,) = results(record(figures=share), record(figures=share, seed=1)).cells
    assert both.metric("replay.online_share")[1].tolist() == [[0.1, 0.2], [0.1, 0.2]]
    (one,) = results(record(figures=share), record(seed=1)).cells
    assert one.metric("replay.online_share") is None
    (late,) = results(record(figures={"replay.age": [np.nan, 2.0]})).cells
    assert late.metric("replay.age")[1][0, 1] == 2.0
    (none,) = results(record(figures={"replay.age": [np.nan, np.nan]})).cells
    assert none.metric("replay.age") is None
    assert none.metric("replay.age", phase="pretrain") is None


def test_values_are_those_of_finished_seeds():
    done, going = flat(10.0), flat(20.0, seed=1, status="unfinished", reason="at online step 3")
    (cell,) = results(done, going).cells
    assert cell.values("last").tolist() == [10.0]
    (alone,) = results(going).cells
    assert not alone.finished
    assert alone.values("last").size == 0
    assert alone.curve["online"][1].tolist() == [[20.0, 20.0, 20.0]]


def test_units_follow_from_the_reference():
    (cell,) = results(flat(1.0)).cells
    assert (cell.normalised, cell.unit) == (True, "normalised score")
    (cell,) = results(flat(1.0, reference=None)).cells
    assert (cell.normalised, cell.unit) == (False, "return")


# ---- names -----------------------------------------------------------------------------------------------------------
def variants(*runs):
    return results(*runs).variants()


def test_one_setting_of_a_strategy_needs_no_settings_in_its_name():
    assert variants(flat(1.0), flat(1.0, strategy="naive")) == ["Naive", "ARB"]


def test_a_setting_that_differs_is_named_and_numbers_are_in_order():
    runs = [flat(1.0, leaves={"replay.temperature": heat}) for heat in (10.0, 0.5, 2.0)]
    assert variants(*runs, flat(1.0, strategy="naive")) == ["Naive", "ARB λ=0.5", "ARB λ=2", "ARB λ=10"]


def test_lists_and_words_are_spelt():
    clips = [flat(1.0, leaves={"replay.clip": clip}) for clip in ([-12.0, 7.0], [-9.0, 7.0])]
    assert set(variants(*clips)) == {"ARB clip=[-12,7]", "ARB clip=[-9,7]"}
    levels = [flat(1.0, leaves={"replay.level": level}) for level in ("trajectory", "transition")]
    assert set(variants(*levels)) == {"ARB level=trajectory", "ARB level=transition"}


def test_the_fewest_settings_are_named():
    one = flat(1.0, leaves={"replay.temperature": 0.5, "settings.expectile": 0.7})
    other = flat(1.0, leaves={"replay.temperature": 2.0, "settings.expectile": 0.9})
    assert variants(one, other) == ["ARB λ=0.5", "ARB λ=2"]  # the temperature alone tells them apart
    third = flat(1.0, leaves={"replay.temperature": 2.0, "settings.expectile": 0.7})
    assert "ARB λ=2 settings.expectile=0.9" in variants(one, other, third)


def test_of_several_settings_the_unusual_ones_are_named():
    settings = [{"replay.likelihood": likelihood, "replay.clip": [low, 7.0]}
                for likelihood in ("standard", "density") for low in (-12.0, -7.0)]  # fmt: skip
    found = results(*(flat(1.0, leaves=leaves) for leaves in settings))
    names = ["ARB", "ARB likelihood=density", "ARB clip=[-7,7]", "ARB clip=[-7,7] likelihood=density"]
    assert sorted(found.variants()) == sorted(names)


def test_only_what_differs_within_a_task_counts():
    hot = flat(1.0, task="hopper-medium-v2", leaves={"replay.temperature": 2.0})
    cold = flat(1.0, task="walker2d-medium-v2", leaves={"replay.temperature": 0.5})
    assert variants(hot, cold) == ["ARB"]


def test_strategies_and_agents_have_the_papers_order_and_strangers_come_last():
    runs = [flat(1.0, strategy=name) for name in ("my_module:Mine", "arb", "berb", "naive", "top_n", "parallel")]
    assert variants(*runs) == ["Naive", "Parallel", "Top-N", "BERB", "ARB", "Mine"]
    agents = ("zeta", "my_module:MyAgent", "pex", "iql", "calql", "sac", "famo2o")
    assert results(*(flat(1.0, agent=agent) for agent in agents)).agents() == [
        "iql", "calql", "pex", "famo2o", "sac", "my_module:MyAgent", "zeta",
    ]  # fmt: skip


def test_a_cell_is_found_by_task_agent_and_variant():
    found = results(flat(1.0), flat(2.0, task="walker2d-medium-v2"), flat(3.0, agent="pex"))
    assert found.cell("hopper-medium-v2", "iql", "ARB").values("last").tolist() == [1.0]
    assert found.cell("hopper-medium-v2", "pex", "ARB").values("last").tolist() == [3.0]
    assert found.cell("hopper-medium-v2", "pex", "Naive") is None
    assert found.tasks("iql") == ["hopper-medium-v2", "walker2d-medium-v2"]
    assert found.tasks("pex") == ["hopper-medium-v2"]


def test_the_second_of_two_equal_runs_does_not_count():
    found = results(flat(1.0, place="b"), flat(9.0, place="a"), flat(5.0, place="c", seed=1))
    assert [run.place for run in found.doubles] == ["b"]
    assert found.cells[0].values("last").tolist() == [9.0, 5.0]


def test_data_that_was_recorded_again_makes_a_variant():
    old, new = ({"rows": 10, "sha256": letter * 64} for letter in "ab")
    runs = [flat(1.0, data=old), flat(2.0, data=new), flat(3.0, data=new, seed=1), flat(4.0, data=old, agent="pex")]
    found = results(*runs)
    assert found.doubles == ()
    assert found.cell("hopper-medium-v2", "iql", "ARB data=aaaaaaaa").values("last").tolist() == [1.0]
    assert found.cell("hopper-medium-v2", "iql", "ARB data=bbbbbbbb").values("last").tolist() == [2.0, 3.0]
    assert found.variants("pex") == ["ARB"]
    assert variants(flat(1.0, data=old), flat(2.0, data=new, seed=1)) == ["ARB"]  # no seed has both
    assert variants(flat(1.0, data=old), flat(2.0, data={})) == ["ARB"]


def test_a_finished_run_counts_before_an_unfinished_copy():
    found = results(flat(1.0, place="a", status="unfinished"), flat(9.0, place="b"))
    assert found.cells[0].values("last").tolist() == [9.0]


@pytest.mark.parametrize(
    ("agent", "file"), [("iql", "iql"), ("my_module:MyAgent", "my_module-MyAgent"), ("../../x", "x"), ("…", "agent")]
)
def test_names_of_agents_become_harmless_parts_of_file_names(agent, file):
    assert results(flat(1.0, agent=agent)).file(agent) == file


def test_runs_without_an_evaluation_make_no_cell():
    empty = record(online=(), offline=(), status="failed", reason="fell over")
    found = results(empty, flat(1.0, seed=1))
    assert len(found.cells) == 1
    assert found.runs.lacking == (empty,)


def test_a_setting_that_did_not_exist_when_a_run_was_made_tells_nothing_apart():
    old, new = flat(50.0, seed=0), flat(60.0, seed=1, leaves={"replay.precision": "auto"})
    assert [(cell.variant, len(cell.runs)) for cell in results(old, new).cells] == [("ARB", 2)]
    other = flat(60.0, seed=1, leaves={"replay.precision": "float32"})
    assert len(results(old, new, other).cells) == 2 + 1
