import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.replay.arb import group_mean, log_onpolicyness

scores = st.lists(st.floats(-50, 20), min_size=1, max_size=30).map(np.array)


def test_equation_3_by_hand():
    # clip to [-12, 7], then subtract the maximum, which is 7
    assert log_onpolicyness(np.array([10.0, 0.0, -3.0, -99.0]), -12.0, 7.0).tolist() == [0.0, -7.0, -10.0, -19.0]


def test_equation_4_by_hand():
    # geometric means of (1, e^-2) and (e^-4) are e^-1 and e^-4; to the power 1/0.5 they are e^-2 and e^-8
    log_onp = np.array([0.0, -2.0, -4.0])
    weight = group_mean(log_onp, np.array([0, 0, 1]), 2) / 0.5
    np.testing.assert_allclose(np.exp(weight), np.exp([-2.0, -8.0]))


@given(scores)
def test_onpolicyness_lies_in_0_to_1_and_keeps_the_order(score):
    onp = np.exp(log_onpolicyness(score, -12.0, 7.0))
    assert onp.max() == 1.0
    assert (onp > 0.0).all()
    order = np.argsort(score, kind="stable")
    assert (np.diff(onp[order]) >= 0.0).all()


@given(scores)
def test_the_mean_of_a_trajectory_of_one_step_is_that_of_its_transition(score):
    log_onp = log_onpolicyness(score, -12.0, 7.0)
    assert group_mean(log_onp, np.arange(len(score)), len(score)).tolist() == log_onp.tolist()


@given(scores, st.floats(-5.0, 5.0))
def test_a_shift_of_all_scores_inside_the_clip_bounds_changes_nothing(score, shift):
    shifted = log_onpolicyness(score + shift, -100.0, 100.0)
    np.testing.assert_allclose(shifted, log_onpolicyness(score, -100.0, 100.0), atol=1e-9)


def test_no_underflow_at_a_low_temperature():
    log_onp = log_onpolicyness(np.array([-0.919, -12.0], np.float32), -12.0, 7.0)
    weight = group_mean(log_onp, np.array([0, 1]), 2) / 0.1
    assert np.exp(weight)[1] == pytest.approx(np.exp(-110.81), rel=1e-4)
    assert np.exp(weight)[1] > 0.0


def test_group_mean_of_an_empty_group_is_nan():
    assert np.isnan(group_mean(np.array([1.0]), np.array([1]), 2)[0])
