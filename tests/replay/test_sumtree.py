import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.errors import DataError
from arb.replay.samplers import SumTree
from arb.testing import frequency_excess

weights = st.lists(st.just(0.0) | st.floats(1e-12, 1e12), min_size=1, max_size=40)


def test_by_hand():
    tree = SumTree(3)
    tree.set([0, 1, 2], [1.0, 2.0, 5.0])
    assert tree.total == 8.0
    tree.set(1, 0.0)
    assert tree.total == 6.0
    assert tree.get([0, 1, 2]).tolist() == [1.0, 0.0, 5.0]


@given(weights, st.booleans(), st.integers(0, 5))
def test_no_row_without_weight_is_drawn(weight, stratified, seed):
    tree = SumTree(len(weight))
    tree.set(np.arange(len(weight)), weight)
    if max(weight) == 0.0:
        with pytest.raises(DataError, match="nothing can be drawn"):
            tree.sample(np.random.default_rng(seed), 1)
        return
    rows = tree.sample(np.random.default_rng(seed), 64, stratified=stratified)
    assert (np.array(weight)[rows] > 0.0).all()


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("capacity", [1, 5, 64, 1000])
def test_frequencies(capacity, stratified):
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=capacity)
    weight[capacity // 2 :: 3] = 0.0
    weight[0] = 1.0
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), weight)
    counts = np.bincount(tree.sample(rng, 100_000, stratified=stratified), minlength=capacity)
    assert frequency_excess(counts, weight / weight.sum()) < 5.0


def test_no_drift_after_many_updates():
    rng = np.random.default_rng(0)
    tree = SumTree(100)
    weight = np.zeros(100)
    for _ in range(5000):
        rows = rng.integers(100, size=8)
        values = np.exp(rng.normal(0.0, 10.0, size=8))
        tree.set(rows, values)
        for row, value in zip(rows, values, strict=True):
            weight[row] = value
    fresh = SumTree(100)
    fresh.set(np.arange(100), weight)
    assert (tree.get(np.arange(100)) == weight).all()
    assert tree.total == fresh.total  # the very same number, not one close to it


def test_state_and_restore():
    tree = SumTree(10)
    tree.set(np.arange(10), np.arange(10.0))
    twin = SumTree(10)
    twin.restore(tree.state())
    a, b = (t.sample(np.random.default_rng(3), 50) for t in (tree, twin))
    assert (a == b).all()


def test_what_is_refused():
    with pytest.raises(DataError, match="finite and not negative"):
        SumTree(2).set(0, -1.0)


def test_only_stratified_draws_take_one_row_of_each_part():
    tree = SumTree(64)
    tree.set(np.arange(64), np.ones(64))
    assert sorted(tree.sample(np.random.default_rng(0), 64, stratified=True).tolist()) == list(range(64))
    assert len(set(tree.sample(np.random.default_rng(0), 64).tolist())) < 64
