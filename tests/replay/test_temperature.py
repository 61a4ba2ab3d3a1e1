"""λ as solved for an effective sample size."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from arb import ARB, ReplayBuffer
from arb.replay.arb import SMALLEST, clip_bounds, effective_rows, online_bound, temperature_for
from arb.replay.index import ReplayIndex
from arb.replay.samplers import effective_sample_size

values = st.lists(st.tuples(st.floats(-19, 0), st.integers(1, 1000)), min_size=1, max_size=40).map(
    lambda pairs: tuple(np.array(column) for column in zip(*pairs, strict=True))
)
shares = st.floats(0.01, 1.0)


def attainable(log_onp, rows, target):
    """Whether some temperature gives this effective sample size, differences below float32's resolution left out."""
    top = rows[log_onp > log_onp.max() - 1e-6 * np.abs(log_onp).max()].sum()
    return top <= target


# ---- effective sample size --------------------------------------------------------------------------------------


def test_effective_rows_by_hand():
    # two rows of weight 1 and four of weight 1/2: Σw = 4, Σw² = 3
    assert effective_rows(np.log([1.0, 0.5]), np.array([2, 4])) == pytest.approx(16 / 3)


@given(values)
def test_effective_rows_are_those_of_the_rows_one_by_one(given_values):
    log_weight, rows = given_values
    p = np.repeat(np.exp(log_weight), rows)
    assert effective_rows(log_weight, rows) == pytest.approx(effective_sample_size(p / p.sum()))


@given(values, st.floats(1e-6, 1e6), st.floats(1.01, 10.0))
def test_a_higher_temperature_never_lowers_the_effective_sample_size(given_values, temperature, factor):
    log_onp, rows = given_values
    colder, warmer = (effective_rows(log_onp / t, rows) for t in (temperature, factor * temperature))
    assert warmer >= colder * (1 - 1e-12)


# ---- the temperature of a target --------------------------------------------------------------------------------


def test_a_temperature_by_hand():
    # one row at 0 and n rows at -1: with x = exp(-1/λ) the effective sample size is (1 + nx)² / (1 + nx²); for n = 4
    # and x = 1/2 it is 9/2, and λ = 1 / ln 2
    assert temperature_for(np.array([0.0, -1.0]), np.array([1, 4]), 4.5) == pytest.approx(1 / math.log(2), rel=1e-8)


@given(values, shares)
def test_the_target_is_hit_wherever_it_can_be(given_values, share):
    log_onp, rows = given_values
    target = share * rows.sum()
    temperature = temperature_for(log_onp, rows, target)
    assert 0.0 < temperature < math.inf
    reached = effective_rows(log_onp / temperature, rows)
    if attainable(log_onp, rows, target) and np.ptp(log_onp) > 1e-6:
        assert reached == pytest.approx(target, rel=1e-6)
    else:
        assert reached >= target * (1 - 1e-6)  # more rows share the greatest value than are asked for


@pytest.mark.parametrize("share", [1e-9, 0.3, 1.0])
@pytest.mark.parametrize(
    ("log_onp", "rows", "least"),
    [
        ([0.0], [7], 7),  # one trajectory
        ([-2.0], [7], 7),  # one trajectory with steps of different scores
        ([0.0, 0.0, 0.0], [5, 1, 9], 15),  # equal scores
        ([-0.1 * 3, -0.3], [5, 5], 10),  # equal up to rounding
        ([-1e-300, 0.0], [1, 1], 2),  # less than a score can tell
        ([-1e-30, 0.0], [1, 1], 1),
        ([0.0, -1e38], [2, 8], 2),
    ],
)
def test_limits_are_exact_without_overflow_or_nan(log_onp, rows, least, share):
    log_onp, rows = np.array(log_onp), np.array(rows)
    target = share * rows.sum()
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        temperature = temperature_for(log_onp, rows, target)
        reached = effective_rows(log_onp / temperature, rows)
    assert 0.0 < temperature < math.inf
    assert reached == pytest.approx(max(target, least), rel=1e-6)


@given(values, shares, st.floats(0.01, 100.0))
def test_the_scale_of_the_score_does_not_matter(given_values, share, factor):
    log_onp, rows = given_values
    assume(0.01 * np.abs(log_onp).max() >= SMALLEST or not log_onp.any())  # below, a score counts as zero
    ours, scaled = (temperature_for(s * log_onp, rows, share * rows.sum()) for s in (1.0, factor))
    weights, others = (np.exp((log_onp - log_onp.max()) / t) for t in (ours, scaled / factor))
    assert effective_rows(np.log(weights + 1e-300), rows) == pytest.approx(
        effective_rows(np.log(others + 1e-300), rows), rel=1e-6
    )


# ---- in a buffer ------------------------------------------------------------------------------------------------


def filled(sampler, lengths, online, scores, seed=0):
    rows = ReplayIndex(sum(lengths) + 50, sampler, seed=seed)
    for length, origin in zip(lengths, online, strict=True):
        rows.extend([length], origin="online" if origin else "offline")
    rows.refresh(lambda chosen: scores[chosen], rows_per_call=1)
    return rows


trajectories = st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=20)


@given(trajectories, shares, st.sampled_from(["trajectory", "transition"]), st.integers(0, 99))
def test_no_set_of_rows_exceeds_the_bound(given_trajectories, share, level, seed):
    lengths, online = zip(*given_trajectories, strict=True)
    scores = np.random.default_rng(seed).normal(-3.0, 2.0, sum(lengths))
    rows = filled(ARB("auto", effective=share, level=level), lengths, online, scores)
    stats, p = rows.stats(), rows.sampler.probabilities()
    assert stats["effective_share"] >= share * (1 - 1e-6)
    assert stats["online_share"] <= stats["online_bound"] * (1 + 1e-6)
    assert stats["online_bound"] == pytest.approx(min(1.0, math.sqrt(stats["online_rows"] / share)))
    worst = np.cumsum(np.sort(p)[::-1])  # the sets of 1, 2, ... rows that have the most
    assert (worst <= np.sqrt(np.arange(1, len(p) + 1) / (share * len(p))) * (1 + 1e-6)).all()


@pytest.mark.parametrize("level", ["trajectory", "transition"])
@pytest.mark.parametrize(("factor", "shift"), [(32.0, 8.0), (1000.0, 50.0), (1.0, 50.0), (1e-3, -4.0)])
def test_draws_stay_as_they_are_under_affine_changes_of_the_score(level, factor, shift):
    rng = np.random.default_rng(1)
    lengths = [int(n) for n in rng.integers(1, 50, 30)]
    scores = rng.uniform(-4.0, 0.0, sum(lengths))
    scores[::40] -= 1000.0  # so that the bounds clip something
    samplers = [
        filled(ARB("auto", effective=0.2, level=level), lengths, [False] * 30, changed)
        for changed in (scores, factor * scores + shift)
    ]
    ours, theirs = samplers
    np.testing.assert_allclose(ours.sampler.probabilities(), theirs.sampler.probabilities(), rtol=0.05, atol=1e-9)
    assert theirs.stats()["temperature"] == pytest.approx(factor * ours.stats()["temperature"], rel=0.01)
    assert ours.stats()["clipped_low"] == theirs.stats()["clipped_low"] == pytest.approx(0.025, abs=0.002)


def test_clip_bounds_by_hand():
    assert clip_bounds(np.arange(5.0), -3.0, 1.5) == (-4.0, 5.0)
    # more than half are equal: the mean distance from the median, 8 / 4, is the unit
    assert clip_bounds(np.array([1.0, 1.0, 1.0, -7.0]), -2.0, 1.0) == (-3.0, 3.0)
    assert clip_bounds(np.ones(3), -2.0, 1.0) == (1.0, 1.0)


def test_bounds_that_decide_alone_are_reported():
    scores = np.random.default_rng(0).normal(-30.0, 1.0, 100)
    with pytest.warns(UserWarning, match="more than half of the scores lie outside the clip bounds -12 and 7"):
        filled(ARB(0.5), [10] * 10, [False] * 10, scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (scores, np.ones(100)):
            assert filled(ARB("auto"), [10] * 10, [False] * 10, quiet).stats()["rows"] == 100


def test_one_short_trajectory_of_extreme_score_takes_little():
    # 100 trajectories of 100 steps around -2 and one of a single step at 0: at λ = 0.2 it is drawn as often as 60 rows
    # of the others together. Counting rows holds it to √(1 / effective rows); counting trajectories would allow 20 %.
    lengths = [100] * 100 + [1]
    scores = np.append(np.random.default_rng(0).normal(-2.0, 0.01, 10_000), 0.0)
    fixed = filled(ARB(0.2), lengths, [False] * 101, scores)
    auto = filled(ARB("auto", effective=0.25), lengths, [False] * 101, scores)
    assert fixed.sampler.probabilities()[-1] > 0.5
    assert auto.sampler.probabilities()[-1] <= math.sqrt(1 / (0.25 * 10_001)) * (1 + 1e-6)
    assert auto.stats()["effective_share"] == pytest.approx(0.25, rel=1e-6)


def test_a_collapse_is_prevented_by_an_effective_share():
    # 10 % of the rows are online and far more likely than the rest
    lengths, online = [100] * 10, [False] * 9 + [True]
    scores = np.repeat([-4.0] * 9 + [-1.0], 100)
    collapsed = filled(ARB(0.2), lengths, online, scores).stats()
    held = filled(ARB("auto", effective=0.25), lengths, online, scores).stats()
    assert collapsed["online_share"] > 0.99
    assert "online_bound" not in collapsed
    assert held["effective_share"] == pytest.approx(0.25, rel=1e-6)
    assert held["online_share"] < held["online_bound"] == pytest.approx(math.sqrt(0.1 / 0.25))
    assert held["temperature"] > 0.2
    assert collapsed["temperature"] == 0.2


@pytest.mark.filterwarnings("ignore:the buffer is full")
@pytest.mark.parametrize("level", ["trajectory", "transition"])
def test_saving_keeps_temperature_and_draws(level, tmp_path):
    def buffer():
        made = ReplayBuffer(80, ARB("auto", effective=0.3, level=level), seed=5, autoreset="disabled")
        made.load_dataset({
            "observations": np.arange(60.0)[:, None], "actions": np.zeros((60, 1)), "rewards": np.zeros(60),
            "terminals": np.arange(60) % 7 == 6,
        })  # fmt: skip
        return made

    saved, other = buffer(), buffer()
    saved.refresh(lambda obs, action: -0.1 * obs[:, 0])
    for x in range(30):  # through the end of the ring
        saved.add([x], [0.0], 0.0, [x + 1], terminated=x % 4 == 3)
    saved.sample_indices(100)
    saved.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    assert (saved.sample_indices((20, 64)) == other.sample_indices((20, 64))).all()
    assert saved.stats() == other.stats()
    assert saved.stats()["replay_volume"] == pytest.approx((100 + 20 * 64) / saved.stats()["effective_rows"])
    saved.refresh(lambda obs, action: -0.1 * obs[:, 0])
    assert saved.stats()["replay_volume"] == 0.0


def test_the_bound_by_hand():
    assert online_bound(0.01, 0.25) == pytest.approx(0.2)
    assert online_bound(0.5, 0.25) == 1.0
