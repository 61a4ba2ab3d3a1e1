"""Plots: the same bytes every time, whatever the names; ranges and lines; curves as text."""

import json

import matplotlib.image
import numpy as np
import pytest

from arb.report.page import page_data
from arb.report.plots import (
    PALE,
    agent_figures,
    band,
    difference_intervals,
    looks,
    plain,
    plot_run,
    rendered,
    scores_and_shares,
    short,
)  # fmt: skip
from arb.report.records import group_runs, read_runs
from tests.report.folders import write_run, write_sweep
from tests.report.records import flat, record, results


def learning_curves(results, agent):
    return dict(agent_figures(results, agent))["curves"]


def online_share(results, agent):
    return dict(agent_figures(results, agent))["online-share"]


def lines_of(axes):
    return {line.get_label(): line.get_xydata() for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_a_learning_curve_shows_the_mean_over_seeds_with_the_switch_at_zero(tmp_path):
    for seed, final in enumerate((50.0, 60.0)):
        write_run(tmp_path / f"arb-{seed}", seed=seed, final=final)
    results = group_runs(read_runs([tmp_path]))
    (axes,) = learning_curves(results, "iql").axes
    found = lines_of(axes)
    assert list(found) == ["ARB"]
    np.testing.assert_allclose(found["ARB"][-1], [10_000, 55.0])
    starts = [line.get_xdata()[0] for line in axes.get_lines()]
    assert min(starts) == -4000  # pre-training to the left
    assert axes.get_ylabel() == "normalised score"


def test_online_shares_show_the_share_of_the_buffer(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"], strategies=("top_n", "arb"))
    (axes,) = online_share(group_runs(read_runs([tmp_path])), "iql").axes
    assert list(lines_of(axes)) == ["online share of the buffer", "Top-N", "ARB"]
    assert axes.get_lines()[0].get_color() == PALE


def test_the_share_of_the_buffer_is_that_of_the_strategy_that_keeps_all_rows():
    shares = {"my_module:Filter": [0.5, 0.8], "naive": [0.1, 0.2], "top_n": [0.3, 0.6]}
    runs = [flat(1.0, strategy=name, figures={"replay.online_rows": rows, "replay.online_share": rows})
            for name, rows in shares.items()]  # fmt: skip
    (axes,) = online_share(results(*runs), "iql").axes
    assert lines_of(axes)["online share of the buffer"][:, 1].tolist() == [0.1, 0.2]


def test_an_untrained_policy_does_not_squeeze_the_online_curve():
    (axes,) = learning_curves(results(record(online=(50.0, 55.0, 60.0), offline=(-900.0, 40.0, 50.0))), "iql").axes
    low, high = axes.get_ylim()
    assert 30.0 < low < 40.0
    assert 60.0 < high < 70.0


def test_a_run_that_is_alone_has_a_band_of_standard_errors():
    alone = record(online=((50.0, 54.0), (60.0, 60.0), (70.0, 74.0)), offline=((0.0, 2.0), (50.0, 54.0)))
    (axes,) = learning_curves(results(alone), "iql").axes
    assert axes.get_ylabel() == "normalised score ± standard error"
    edges = np.concatenate([path.vertices for band in axes.collections for path in band.get_paths()])
    for step, low, high in ((0, 50.0, 54.0), (2000, 60.0, 60.0), (4000, 70.0, 74.0)):  # s = √8, and √8 / √2 = 2
        there = edges[edges[:, 0] == step, 1]
        assert (there.min(), there.max()) == pytest.approx((low, high))
    assert axes.get_ylim()[1] > 74.0, "the band is in view"
    (panel,) = page_data(results(alone), [])["panels"]
    assert panel["groups"][0]["curve"][1]["low"] == [50.0, 60.0, 70.0]
    assert panel["unit"] == "normalised score ± standard error"
    (axes,) = learning_curves(results(alone, record(seed=1)), "iql").axes
    assert axes.get_ylabel() == "normalised score", "of several runs it is their standard deviation"


def test_the_estimates_of_a_run_without_rollouts_are_replicates():
    alone = record(online=((50.0, 54.0),), offline=((0.0, 2.0), (50.0, 54.0)), leaves={"evaluation.by": "data"})
    (group,) = results(alone).groups
    assert [numbers[-1] for numbers in band([group], group, "pretrain")] == pytest.approx([52.0, 50.0, 54.0])


def test_a_long_pre_training_takes_a_third_of_the_width():
    run = record(online=(50.0, 60.0), offline=tuple(range(100)))  # 198,000 updates before 2,000 steps
    (axes,) = learning_curves(results(run), "iql").axes
    ticks = [axes.xaxis.get_major_formatter()(tick, 0) for tick in axes.get_xticks()]
    assert ticks[:2] == ["-198k", "0"]
    assert min(line.get_xdata()[0] for line in axes.get_lines()) == pytest.approx(-1000)


def test_the_dataset_and_cloning_are_lines_where_they_are_known():
    known = {"sha256": "0f", "mean_return": 20.0, "best_return": 90.0, "cloning_return": 30.0}
    (axes,) = learning_curves(results(flat(50.0, data=known)), "iql").axes
    texts = {text.get_text(): text.xy[1] for text in axes.texts}
    assert texts == {"best of the data": 90.0, "mean of the data": 20.0, "cloning": 30.0}
    assert axes.get_ylim()[1] > 90.0
    (axes,) = learning_curves(results(flat(50.0)), "iql").axes
    assert not axes.texts


def test_a_row_of_two_panels_per_task_and_agent(tmp_path):
    write_sweep(tmp_path, tasks=["a", "b"], agents=("iql", "pex"))
    figure = scores_and_shares(group_runs(read_runs([tmp_path])), "both")
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == ["a, IQL", "b, IQL", "a, PEX", "b, PEX"]
    (legend,) = figure.legends
    drawn = {label for axes in figure.axes for label in lines_of(axes)}
    assert {text.get_text() for text in legend.get_texts()} == drawn
    assert legend.get_texts()[-1].get_text() == "online share of the buffer"
    assert [axes.xaxis.get_major_formatter()(20_000) for axes in figure.axes] == ["20k"] * 8


def test_panels_that_no_task_needs_are_not_shown(tmp_path):
    write_sweep(tmp_path, tasks=["a", "b", "c", "d"], strategies=("arb",))
    axes = learning_curves(group_runs(read_runs([tmp_path])), "iql").axes
    assert [one.get_visible() for one in axes] == [True] * 4 + [False] * (len(axes) - 4)
    assert len(axes) > 4


def test_the_picture_of_a_run_is_the_same_every_time(tmp_path):
    folder = write_run(tmp_path / "run")
    for name in ("a.png", "b.png"):
        plot_run(folder, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert matplotlib.image.imread(tmp_path / "a.png").std() > 0.01  # something is drawn


def test_a_hostile_name_is_drawn_as_it_is(tmp_path):
    write_run(tmp_path / "run", task="$\\frac{1}{$ <b>")
    results = group_runs(read_runs([tmp_path]))
    assert all(rendered(learning_curves(results, "iql")).values())
    assert plain("a$b") == r"a\$b"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1000, "1k"), (25e4, "250k"), (-1.5e6, "-1.5M"), (0.25, "0.25")])
def test_steps_are_short(value, text):
    assert short(value) == text


def test_variants_of_a_strategy_share_its_hue_and_differ():
    heats = [flat(1.0, leaves={"replay.temperature": heat}) for heat in (0.5, 2.0)]
    found = looks(results(*heats, flat(1.0, strategy="naive"), flat(1.0, strategy="my_module:Mine")))
    colour, dash = ({name: look[i] for name, look in found.items()} for i in (0, 1))
    assert colour["ARB λ=0.5"] == "#0072b2"
    assert len(set(colour.values())) == 4
    assert dash["ARB λ=0.5"] == dash["Naive"] == ""
    assert dash["ARB λ=2"] != ""


def test_bands_that_bound_the_online_share_are_drawn_where_they_are_logged(tmp_path):
    folder = write_run(tmp_path / "run", strategy="arb_auto")
    text = (folder / "metrics.csv").read_text().splitlines()
    rows = [text[0] + ",replay.online_bound", text[1] + ",", *(line + ",0.4" for line in text[2:])]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (axes,) = online_share(group_runs(read_runs([tmp_path])), "iql").axes
    assert np.all(lines_of(axes)["its upper bound"][:, 1] == 0.4)
    assert json.loads((folder / "config.json").read_text())["config"]["replay.strategy"] == "arb_auto"


def test_the_picture_of_a_single_run_shows_its_effective_sample_size(tmp_path):
    run = write_run(tmp_path / "one")
    effective = "effective sample size, share of the rows"
    _, shares = scores_and_shares(group_runs(read_runs([run])), "one").axes
    assert list(lines_of(shares)) == ["online share of the buffer", "ARB", effective]
    metrics = read_runs([run]).all[0].metrics["online"]
    np.testing.assert_allclose(lines_of(shares)[effective][:, 1], metrics["replay.effective_share"])
    write_run(tmp_path / "two", seed=1)
    _, shares = scores_and_shares(group_runs(read_runs([tmp_path])), "both").axes
    assert effective not in lines_of(shares)  # two seeds have a spread instead


def test_differences_to_naive_have_a_dot_per_task_and_one_mean():
    scores = {"naive": (10.0, 20.0), "arb": (14.0, 22.0), "parallel": (9.0, 21.0)}
    runs = [flat(score + 3 * seed, strategy=strategy, task=task, seed=seed)
            for strategy, both in scores.items() for task, score in zip("ab", both, strict=True)
            for seed in (0, 1)]  # fmt: skip
    (axes,) = difference_intervals(results(*runs), "iql").axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    dots = {int(line.get_ydata()[0]): line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"}
    assert {labels[place]: list(x) for place, x in dots.items()} == {"Parallel": [-1.0, 1.0], "ARB": [4.0, 2.0]}
    means = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "|"]
    assert sorted(float(x[0]) for x in means) == [0.0, 3.0]
    assert "2 datasets (dots), 2 seeds each" in axes.figure._suptitle.get_text()
    assert difference_intervals(results(*runs), "pex") is None
