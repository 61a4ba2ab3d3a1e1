"""The fast sampler has the probabilities of the reference, which is forty lines of loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb import ARB
from arb.replay.index import ReplayIndex
from arb.testing import frequency_excess
from tests.replay.reference import ReferenceARB

turns = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.lists(st.integers(1, 6), min_size=1, max_size=3)),
        st.tuples(st.just("step"), st.lists(st.integers(0, 2), min_size=1, max_size=8)),
        st.tuples(st.just("end"), st.integers(0, 2)),
        st.tuples(st.just("refresh"), st.integers(0, 99)),
    ),
    min_size=1,
    max_size=15,
)


def together(turns, capacity, temperature, clip):
    """The same turns in both: datasets, steps of three environments, ends of episodes, refreshes."""
    index = ReplayIndex(capacity, ARB(temperature, clip=clip), seed=0)
    reference = ReferenceARB(capacity, temperature, *clip)
    begun, open_ = 0, {}
    for kind, what in turns:
        if kind == "load":
            index.extend(what)
            for length in what:
                for _ in range(length):
                    reference.add(begun)
                begun += 1
        elif kind == "step":
            index.append(what)
            for env in what:
                if env not in open_:
                    open_[env], begun = begun, begun + 1
                reference.add(open_[env])
        elif kind == "end":
            index.close(what)
            open_.pop(what, None)
        elif len(index):
            scores = np.random.default_rng(what).normal(-3.0, 4.0, len(index)).astype(np.float32)
            index.refresh(lambda rows, scores=scores: scores[rows], rows_per_call=1)
            reference.refresh(scores[np.argsort(index.insertion_order(np.arange(len(index))))].astype(float).tolist())
    return index, reference


@pytest.mark.filterwarnings("ignore:more than half of the scores")
@given(turns, st.integers(3, 30), st.floats(0.05, 5.0), st.floats(-15.0, -6.0, width=32), st.floats(0.0, 7.0, width=32))
def test_probabilities_are_those_of_the_reference(turns, capacity, temperature, low, high):
    index, reference = together(turns, capacity, temperature, (low, high))
    if len(index):
        order = np.argsort(index.insertion_order(np.arange(len(index))))
        np.testing.assert_allclose(index.sampler.probabilities()[order], reference.probabilities(), rtol=1e-9)


def test_frequencies_are_those_of_the_reference():
    turns = [("load", [5, 3, 9]), ("step", [0, 1, 0, 1]), ("refresh", 1), ("step", [0, 0, 2]), ("load", [4])]
    index, reference = together(turns, 22, 2.0, (-12.0, 7.0))
    order = np.argsort(index.insertion_order(np.arange(22)))
    counts = np.bincount(index.sample_indices(200_000), minlength=22)[order]
    assert frequency_excess(counts, np.array(reference.probabilities())) < 5.0
