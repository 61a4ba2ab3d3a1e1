"""The differences behind each claim of the paper, worked by hand from a few runs."""

import json

import numpy as np
import pytest
from tools.results.claims import CLAIMS, verdicts

from tests.report.records import flat, record, results

BY_NAME = {claim.says: claim for claim in CLAIMS}
RANDOM, EXPERT = "hopper-random-v2", "hopper-medium-expert-v2"


def differences(says, *runs):
    """By agent and task; of several settings, one after the other."""
    found = {}
    for setting, values in BY_NAME[says].of([results(*runs)]).items():
        agent, task, *_ = json.loads(setting)
        found.setdefault(f"{agent} {task}", []).extend(values.tolist())
    return found


def pair(ours, theirs, base="naive", **more):
    return [flat(ours, **more), flat(theirs, strategy=base, **more)]


def shares(*values, rows=None, **more):
    buffer = {"replay.online_rows": rows} if rows else {}
    return flat(50.0, figures={"replay.online_share": values, **buffer}, **more)


def test_a_comparison_subtracts_runs_of_the_same_seed():
    runs = [*pair(50.0, 40.0), *pair(60.0, 65.0, seed=1), flat(99.0, seed=2)]
    assert differences("With IQL, ARB beats naive replay", *runs) == {"iql hopper-medium-v2": [10.0, -5.0]}


@pytest.mark.parametrize(("agent", "name"), [("iql", "IQL"), ("calql", "Cal-QL"), ("pex", "PEX"), ("famo2o", "FamO2O")])
def test_every_published_agent_has_a_claim_of_its_own(agent, name):
    runs = pair(50.0, 40.0, agent=agent, leaves={"replay.temperature": 5.0 if agent == "calql" else 0.5})
    assert differences(f"With {name}, ARB beats naive replay", *runs) == {f"{agent} hopper-medium-v2": [10.0]}
    others = [claim for claim in BY_NAME if claim.startswith("With ") and name not in claim]
    assert all(differences(claim, *runs) == {} for claim in others)


@pytest.mark.parametrize(("base", "name"), [("parallel", "Parallel"), ("top_n", "Top-N"), ("berb", "BERB")])
def test_other_baselines_count_for_all_agents(base, name):
    runs = [*pair(50.0, 40.0, base=base), *pair(50.0, 45.0, base=base, agent="pex")]
    found = differences(f"ARB beats {name}", *runs)
    assert found == {"iql hopper-medium-v2": [10.0], "pex hopper-medium-v2": [5.0]}
    assert differences("With IQL, ARB beats naive replay", *runs) == {}


def test_only_the_published_settings_speak_for_the_paper():
    others = {"replay.level": "transition", "replay.likelihood": "density", "replay.clip": [-9.0, 7.0]}
    for leaf, value in {**others, "replay.temperature": 2.0}.items():
        leaves = {leaf: value}
        runs = [flat(50.0, leaves=leaves), flat(40.0, strategy="naive")]
        assert differences("With IQL, ARB beats naive replay", *runs) == {}, leaves


def test_plain_returns_are_not_averaged_with_scores():
    assert differences("With IQL, ARB beats naive replay", *pair(50.0, 40.0, reference=None)) == {}


def test_the_gain_on_hopper_random_is_that_task_alone():
    says = "IQL gains on hopper-random (54 against 15 in the end)"
    runs = [*pair(50.0, 40.0, task=RANDOM), *pair(50.0, 10.0, task=EXPERT), *pair(50.0, 0.0, task=RANDOM, agent="pex")]
    assert differences(says, *runs) == {f"iql {RANDOM}": [10.0]}


def test_the_online_share_of_batches_is_held_against_that_of_the_buffer():
    says = "ARB's batches hold more online data than the buffer does"
    run = shares(0.3, 0.5, rows=[0.1, 0.2])
    assert differences(says, run)["iql hopper-medium-v2"] == pytest.approx([25.0])  # the mean of 20 and 30 points
    assert differences(says, shares(0.3, 0.5)) == {}
    assert differences(says, shares(0.3, rows=[0.1], strategy="naive")) == {}


def test_poor_data_is_compared_with_good_data_of_the_same_robot_and_seed():
    says = "The online share is highest where the dataset is poor"
    runs = [shares(0.1, 0.9, task=RANDOM), shares(0.1, 0.4, task=EXPERT), shares(0.1, 0.8, task=RANDOM, seed=1)]
    assert differences(says, *runs)[f"iql {RANDOM}"] == pytest.approx([50.0])  # seed 1 has no partner
    assert differences(says, shares(0.9, task=RANDOM)) == {}
    other = shares(0.4, task=EXPERT, leaves={"replay.temperature": 2.0})
    assert differences(says, shares(0.9, task=RANDOM), other) == {}


def test_trajectories_against_transitions():
    says = "Weights by trajectory are better than weights by transition"
    runs = [flat(60.0), flat(45.0, leaves={"replay.level": "transition"})]
    assert differences(says, *runs) == {"iql hopper-medium-v2": [15.0]}
    assert differences(says, flat(60.0), flat(45.0, seed=1, leaves={"replay.level": "transition"})) == {}


def test_a_lower_temperature_is_compared_by_the_share_after_a_tenth():
    says = "A lower temperature draws online data sooner"
    early = np.linspace(0.0, 1.0, 11)  # the second value is that after a tenth
    low = flat(50.0, figures={"replay.online_share": early}, leaves={"replay.temperature": 0.5})
    high = flat(50.0, figures={"replay.online_share": early / 2}, leaves={"replay.temperature": 2.0})
    assert differences(says, low, high)["iql hopper-medium-v2"] == pytest.approx([5.0])  # 10 % against 5 %
    assert differences(says, low) == {}


def test_the_upper_bound_of_the_clip_is_varied_alone():
    says = "The upper clipping bound matters"
    runs = [flat(score, leaves={"replay.clip": clip}) for score, clip in
            ((50.0, [-12.0, 7.0]), (44.0, [-12.0, 2.0]), (10.0, [-9.0, 7.0]))]  # fmt: skip
    assert differences(says, *runs) == {"iql hopper-medium-v2": [6.0]}
    runs = [flat(score, leaves={"replay.clip": [-12.0, high], "replay.likelihood": likelihood}) for
            score, high, likelihood in ((50.0, 7.0, "standard"), (44.0, 2.0, "standard"), (50.0, 7.0, "density"),
                                        (53.0, 2.0, "density"))]  # fmt: skip
    assert differences(says, *runs) == {"iql hopper-medium-v2": [6.0]}
    density = "The upper clipping bound matters if the score is the density of the action"
    assert differences(density, *runs) == {"iql hopper-medium-v2": [-3.0]}


def test_a_bound_that_changes_nothing_contradicts_the_claim():
    runs = [flat(50.0, leaves={"replay.clip": clip}) for clip in ([-12.0, 7.0], [-12.0, 2.0])]
    rows = {labels[0]: (labels[1], entries[0]) for labels, entries in verdicts([results(*runs)]).rows}
    said, entry = rows["The upper clipping bound matters"]
    assert said == "contradicted: it has no effect"
    assert (entry.value, entry.n) == (0.0, 1)
    assert rows["ARB beats BERB"][0] == "not tested"
    assert rows["ARB beats BERB"][1].value is None


def test_campaigns_are_put_together_but_never_paired_with_one_another():
    ours, theirs = results(flat(50.0)), results(flat(40.0, strategy="naive"))
    claim = BY_NAME["With IQL, ARB beats naive replay"]
    assert claim.of([ours, theirs]) == {}
    (both,) = claim.of([results(*pair(50.0, 40.0)), results(*pair(50.0, 20.0))]).values()
    assert both.tolist() == [20.0]  # of one seed, which is one piece of evidence


@pytest.mark.parametrize(
    "other",
    [
        {"leaves": {"schedule.online": 40_000}},
        {"leaves": {"settings.beta": 10.0}},
        {"data": {"rows": 1000, "sha256": "1f"}},
    ],
    ids=["budget", "agent", "recording"],
)
def test_a_task_counts_once_for_each_setting(other):
    first, second = results(*pair(50.0, 40.0), *pair(50.0, 44.0, seed=1)), results(*pair(30.0, 45.0, **other))
    found = BY_NAME["With IQL, ARB beats naive replay"].of([first, second])
    assert [values.tolist() for values in found.values()] == [[10.0, 6.0], [-15.0]]


def test_the_gain_in_the_end_is_that_of_the_last_evaluation():
    says = "IQL gains on hopper-random (54 against 15 in the end)"
    runs = [record((0.0, 0.0, 54.0), task=RANDOM), record((80.0, 80.0, 15.0), task=RANDOM, strategy="naive")]
    assert differences(says, *runs) == {f"iql {RANDOM}": [39.0]}


def test_unfinished_runs_prove_nothing():
    runs = [flat(50.0), flat(40.0, strategy="naive", status="unfinished")]
    assert differences("With IQL, ARB beats naive replay", *runs) == {}
    assert differences("Weights by trajectory are better than weights by transition", flat(1.0, status="failed")) == {}


def test_figures_that_were_not_recorded_are_not_zero():
    says = "A lower temperature draws online data sooner"
    low, high = (record(leaves={"replay.temperature": heat}) for heat in (0.5, 2.0))
    assert differences(says, low, high) == {}
