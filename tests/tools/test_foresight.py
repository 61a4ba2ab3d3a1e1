"""What the first refresh predicts: the share by hand, who counts as low, and runs that say nothing."""

import numpy as np
import pytest
from tools.results.findings import Campaign
from tools.results.foresight import LOW, first_share, foresight, picture

from tests.report.records import flat, results


def auto(score, first, task="hopper-medium-v2", seed=0, **more):
    """A run of ARB auto whose first online share is a part of the bound: one row in a hundred online, ρ = 1/4."""
    figures = {
        "replay.online_share": [0.2 * first, 0.9],  # the bound is √(0.01 / 0.25) = 0.2
        "replay.online_rows": [0.01, 0.5],
        "replay.effective_share": [0.25, 0.25],
    }
    return flat(score, strategy="arb_auto", task=task, seed=seed, figures=figures, **more)


def runs(gains, first, task):
    for seed, gain in enumerate(gains):
        yield auto(40.0 + gain, first, task, seed)
        yield flat(40.0, strategy="naive", task=task, seed=seed)


def test_the_share_is_a_part_of_the_largest_that_there_can_be():
    assert first_share(auto(50.0, 0.3)) == pytest.approx(0.3)
    assert first_share(auto(50.0, 1.0)) == pytest.approx(1.0)
    assert first_share(flat(50.0)) is None  # nothing was recorded
    assert first_share(flat(50.0, figures={"replay.online_share": [0.1], "replay.online_rows": [0.1]})) is None
    gap = {"replay.online_share": [np.nan], "replay.online_rows": [0.1], "replay.effective_share": [0.25]}
    assert first_share(flat(50.0, figures=gap)) is None
    none_yet = {"replay.online_share": [0.0], "replay.online_rows": [0.0], "replay.effective_share": [0.25]}
    assert first_share(flat(50.0, figures=none_yet)) is None


def test_no_weights_of_this_effective_size_exceed_the_bound():
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = rng.lognormal(0.0, rng.uniform(0.1, 3.0), 1000)
        weights[: rng.integers(1, 300)] *= rng.uniform(1.0, 100.0)
        online = np.arange(1000) < rng.integers(1, 300)
        share = weights[online].sum() / weights.sum()
        effective = weights.sum() ** 2 / (weights**2).sum() / 1000
        figures = {"online_share": [share], "online_rows": [online.mean()], "effective_share": [effective]}
        run = flat(0.0, figures={f"replay.{name}": values for name, values in figures.items()})
        assert 0.0 < first_share(run) <= 1.0 + 1e-12


def test_gains_are_parted_by_the_first_share():
    low = runs([11.0, 12.0, 13.0], LOW - 0.01, "walker2d-medium-v2")
    high = runs([1.0, 2.0, 3.0], LOW + 0.01, "hopper-medium-v2")
    text = foresight([Campaign("c", results(*low, *high))])
    (row,) = (line for line in text.splitlines() if line.startswith("| IQL | c |"))
    assert [cell.split(" ")[0].strip("*") for cell in row.split(" | ")[2:]] == ["+12.0", "+2.0", "+10.0"]
    tasks = [line.split(" | ")[1:4] for line in text.splitlines() if "-v2" in line]
    assert tasks == [["walker2d-medium-v2", "c", "32"], ["hopper-medium-v2", "c", "34"]]  # lowest first


def test_without_runs_of_arb_auto_there_is_nothing_to_tell():
    plain = results(flat(50.0), flat(40.0, strategy="naive"))
    assert foresight([Campaign("c", plain)]) == ""
    alone = results(auto(50.0, 0.1))  # no naive run to compare with
    assert foresight([Campaign("c", alone)]) == ""
    silent = results(flat(50.0, strategy="arb_auto"), flat(40.0, strategy="naive"))  # nothing was recorded
    assert foresight([Campaign("c", silent)]) == ""
    later = [flat(score, strategy=name, seed=1) for name, score in (("arb_auto", 49.0), ("naive", 40.0))]
    half = results(*runs([9.0], 0.1, "hopper-medium-v2"), *later)
    assert foresight([Campaign("c", half)]) == ""  # one of two seeds
    both = [Campaign("silent", silent), Campaign("told", results(*runs([1.0, 2.0], 0.1, "walker2d-medium-v2")))]
    assert "silent" not in foresight(both)


def test_the_picture_has_a_mark_for_every_task_at_its_share_and_gain():
    low = runs([11.0, 13.0], 0.1, "walker2d-medium-v2")
    maze = runs([-3.0, -5.0], 0.6, "antmaze-umaze-v2")
    (axes,) = picture([Campaign("c", results(*low, *maze))]).axes
    marks = {one.get_label(): one for one in axes.collections}
    np.testing.assert_allclose(marks["IQL"].get_offsets(), [[10.0, 12.0]])
    np.testing.assert_allclose(marks["IQL, AntMaze"].get_offsets(), [[60.0, -4.0]])
    assert (len(marks["IQL"].get_facecolors()), len(marks["IQL, AntMaze"].get_facecolors())) == (1, 0)  # hollow
    assert picture([Campaign("c", results(flat(50.0)))]) is None
