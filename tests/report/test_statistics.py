"""Every statistic by hand, by its properties, and against the library that its definitions come from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from arb.report import statistics as s

scores = arrays(float, st.integers(1, 12), elements=st.floats(-200, 200, width=32))
tasks = st.lists(arrays(float, st.integers(2, 5), elements=st.floats(-200, 200, width=32)), min_size=1, max_size=4)


def test_spread_is_the_sample_standard_deviation():
    assert s.spread([1.0, 2.0, 6.0]) == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert s.spread([3.0]) is None


def test_iqm_leaves_out_a_quarter_at_either_end():
    assert s.iqm([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0]) == pytest.approx((3 + 4 + 5 + 6) / 4)
    assert s.iqm([1.0, 2.0, 30.0]) == 11.0  # a quarter of three, rounded down, is none
    np.testing.assert_array_equal(s.iqm([[0.0, 1.0, 3.0, 9.0], [1.0, 1.0, 1.0, 1.0]], axis=1), [2.0, 1.0])


def test_optimality_gap_does_not_reward_excess():
    assert s.optimality_gap([0.0, 100.0, 300.0]) == pytest.approx(100.0 / 3)


def test_improvement_counts_pairs_within_tasks():
    one = [np.array([3.0, 1.0]), np.array([5.0])]
    other = [np.array([2.0, 2.0]), np.array([5.0])]
    assert s.improvement(one, other) == pytest.approx((0.5 + 0.5) / 2)  # two of four pairs; a tie


def test_profile_by_hand():
    runs = [np.array([10.0, 20.0]), np.array([20.0, 40.0])]
    np.testing.assert_array_equal(s.profile(runs, [0.0, 10.0, 20.0, 40.0]), [1.0, 0.75, 0.25, 0.0])


def test_a_score_at_the_threshold_is_not_above_it():
    low, high = s.profile_band([np.array([1.0, 1.0])], [0.9, 1.0])
    assert low.tolist() == high.tolist() == [1.0, 0.0]


def test_area_weighs_by_steps():
    assert s.area([0, 1, 10], [0.0, 2.0, 2.0]) == pytest.approx((1 + 18) / 10)
    assert s.area([5], [7.0]) == 7.0


def test_resampling_stays_within_tasks():
    drawn = s.resampled([np.array([1.0, 2.0]), np.array([10.0, 20.0, 30.0])], np.random.default_rng(0), 200)
    assert [d.shape for d in drawn] == [(200, 2), (200, 3)]
    assert set(np.unique(drawn[0])) == {1.0, 2.0}
    assert set(np.unique(drawn[1])) == {10.0, 20.0, 30.0}


def test_the_interval_of_a_mean_of_two_seeds():
    # The mean of two draws from {0, 1} is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4: both ends are within 95%.
    found = s.estimate([np.array([0.0, 1.0])], np.mean)
    assert found == (0.5, 0.0, 1.0)


def test_one_seed_gives_no_interval():
    one, two = [np.array([1.0])], [np.array([1.0, 2.0])]
    assert s.estimate(one, s.iqm) == (1.0, None, None)
    assert s.estimate([*one, *two], s.iqm)[1:] == (None, None)
    assert s.estimate_improvement(one, two)[1:] == (None, None)
    assert s.profile_band(one, [0.0]) is None


@given(scores)
def test_iqm_lies_between_the_quartiles_and_moves_with_the_scores(values):
    middle = float(s.iqm(values))
    assert values.min() - 1e-9 <= middle <= values.max() + 1e-9
    assert float(s.iqm(values[::-1])) == pytest.approx(middle)
    assert float(s.iqm(2.0 * values + 5.0)) == pytest.approx(2.0 * middle + 5.0, abs=1e-6)


@given(tasks)
def test_improvement_of_two_sides_sums_to_one(one):
    other = [values[::-1] + 1.0 for values in one]
    assert s.improvement(one, other) + s.improvement(other, one) == pytest.approx(1.0)
    assert s.improvement(one, one) == pytest.approx(0.5)


@given(tasks)
def test_profiles_fall_and_bands_hold_them(runs):
    thresholds = np.linspace(-201, 201, 25)
    share = s.profile(runs, thresholds)
    assert share[0] == 1.0
    assert share[-1] == 0.0
    assert np.all(np.diff(share) <= 0)
    low, high = s.profile_band(runs, thresholds, resamples=50)
    assert np.all(low <= high)
    assert np.all((low >= 0) & (high <= 1))


@given(tasks)
def test_estimates_are_deterministic_and_within_the_scores(runs):
    found = s.estimate(runs, s.iqm, resamples=50)
    assert found == s.estimate(runs, s.iqm, resamples=50)
    everything = np.concatenate(runs)
    assert everything.min() - 1e-9 <= found.low <= found.high <= everything.max() + 1e-9


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_area_is_between_the_lowest_and_the_highest_score(heights):
    steps = np.cumsum(np.arange(1, len(heights) + 1))
    assert min(heights) - 1e-9 <= s.area(steps, heights) <= max(heights) + 1e-9


# ---- against rliable ------------------------------------------------------------------------------------------------

RLIABLE = {
    # rliable 1.2.0 with arch 7.2.0 on the runs of `two`; 20,000 resamples. Its own dependencies are many, and old.
    "iqm": 55.94214487333206, "gap": 42.47793186918867, "improvement": 0.59,
    "profile": [1.0, 1.0, 1.0, 1.0, 1.0, 0.95, 0.9, 0.9, 0.9, 0.85, 0.75, 0.55, 0.3, 0.25, 0.15, 0.1, 0.1, 0.1, 0.1,
                0.05, 0.05],
    "iqm interval": [51.91046954004762, 61.0736626822439], "improvement interval": [0.41, 0.76],
}  # fmt: skip


@pytest.fixture(scope="module")
def two():
    """Runs of two strategies, by task."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(60, 15, (5, 4)), rng.normal(50, 15, (5, 4))
    assert x[0, 0] == pytest.approx(90.61378682077773)  # the generator still gives the numbers that rliable was given
    return list(x.T), list(y.T)


def test_points_equal_those_of_rliable(two):
    x, y = two
    assert float(s.iqm(np.concatenate(x))) == pytest.approx(RLIABLE["iqm"], abs=1e-9)
    assert float(s.optimality_gap(np.concatenate(x))) == pytest.approx(RLIABLE["gap"], abs=1e-9)
    assert s.improvement(x, y) == pytest.approx(RLIABLE["improvement"], abs=1e-9)
    np.testing.assert_allclose(s.profile(x, np.linspace(0, 100, 21)), RLIABLE["profile"], atol=1e-12)


def test_intervals_agree_with_rliable(two):
    """Both resample seeds within tasks, with generators of their own: a 90% interval would be 0.7 and 0.03 off."""
    x, y = two
    mine = s.estimate(x, s.iqm, resamples=20_000)
    np.testing.assert_allclose([mine.low, mine.high], RLIABLE["iqm interval"], atol=0.2)
    mine = s.estimate_improvement(x, y, resamples=20_000)
    np.testing.assert_allclose([mine.low, mine.high], RLIABLE["improvement interval"], atol=0.0101)


def test_improvement_resamples_both_sides():
    """With one side resampled, the side that never varies would hide the other's luck."""
    still, moving = [np.full(6, 5.0)], [np.array([0.0, 2.0, 4.0, 6.0, 8.0, 10.0])]
    for one, other in ((still, moving), (moving, still)):
        found = s.estimate_improvement(one, other)
        assert found.low < 0.3
        assert found.high > 0.7
