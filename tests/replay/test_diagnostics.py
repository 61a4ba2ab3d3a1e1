"""Figures about a sampling distribution, worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.replay.index import ReplayIndex
from arb.replay.samplers import describe, effective_sample_size, relative_entropy, top_mass

weights = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-3).map(np.array)


def test_by_hand():
    # a trajectory of two offline rows, then one online row: probabilities 1/2, 1/4, 1/4
    index = ReplayIndex(8)
    index.extend(np.array([2]))
    index.extend(np.array([1]), origin="online")
    figures = describe(np.array([0.5, 0.25, 0.25]), index)
    assert figures == pytest.approx(
        {
            "rows": 3,
            "trajectories": 2,
            "online_rows": 1 / 3,
            "online_share": 0.25,
            "effective_rows": 8 / 3,  # 1 / (1/4 + 1/16 + 1/16)
            "effective_share": 8 / 9,
            "entropy": 1.5 * math.log(2) / math.log(3),
            "top_trajectories": 0.75,
            "age": 2 * 0.5 + 1 * 0.25,
        }
    )


def test_age_and_trajectories_after_the_ring_has_wrapped():
    index = ReplayIndex(4)
    index.extend(np.array([3]))
    index.extend(np.array([3]), origin="online")  # rows 3, 0, 1 are new; row 2 is left of the first trajectory
    figures = describe(np.array([0.4, 0.3, 0.2, 0.1]), index)
    assert figures["age"] == pytest.approx(1 * 0.4 + 0 * 0.3 + 3 * 0.2 + 2 * 0.1)
    assert figures["trajectories"] == 2
    assert figures["online_share"] == pytest.approx(0.8)


def test_top_mass_by_hand():
    mass = np.array([5.0, 1.0, 4.0, 10.0])
    assert top_mass(mass, share=0.5) == pytest.approx(15 / 20)
    assert top_mass(mass, share=0.0) == pytest.approx(10 / 20)  # at least one
    assert top_mass(np.arange(1.0, 201.0)) == pytest.approx((199 + 200) / (200 * 201 / 2))


def test_entropy_by_hand():
    assert relative_entropy(np.array([1.0])) == 1.0
    assert relative_entropy(np.array([1.0, 0.0])) == 0.0
    assert relative_entropy(np.array([0.5, 0.5, 0.0, 0.0])) == pytest.approx(0.5)


@given(weights)
def test_the_effective_sample_size_is_at_most_the_perplexity(weight):
    p = weight / weight.sum()
    perplexity = len(p) ** relative_entropy(p) if len(p) > 1 else 1.0
    assert 1.0 - 1e-9 <= effective_sample_size(p) <= perplexity * (1 + 1e-9) <= len(p) * (1 + 2e-9)
