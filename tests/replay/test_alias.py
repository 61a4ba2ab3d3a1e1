import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.errors import DataError
from arb.replay.arb import AliasTable
from arb.testing import frequency_excess

masses = st.lists(st.floats(0, 1e6) | st.just(0.0) | st.floats(1e-30, 1e-20), min_size=1, max_size=50).map(np.array)


@given(masses.filter(lambda m: m.max() > 0))
def test_the_table_holds_the_probabilities(mass):
    np.testing.assert_allclose(AliasTable(mass).probabilities(), mass / mass.sum(), atol=1e-14)


def test_by_hand():
    # scaled to mean 1: (0.5, 1.5); cell 0 keeps half of its draws and gives the others to cell 1
    table = AliasTable(np.array([1.0, 3.0]))
    assert table.keep.tolist() == [0.5, 1.0]
    assert table.alias[0] == 1


@given(masses.filter(lambda m: m.max() > 0), st.integers(0, 10))
def test_what_has_no_mass_is_never_drawn(mass, seed):
    drawn = AliasTable(mass).sample(np.random.default_rng(seed), 200)
    assert (mass[drawn] > 0.0).all()


@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0])
def test_frequencies(spread):
    rng = np.random.default_rng(1)
    mass = np.exp(spread * rng.normal(size=300))
    counts = np.bincount(AliasTable(mass).sample(rng, 200_000), minlength=300)
    assert frequency_excess(counts, mass / mass.sum()) < 5.0


def test_the_frequency_test_notices_a_bias_of_five_percent():
    rng = np.random.default_rng(2)
    p = np.full(100, 0.01)
    biased = p * np.where(np.arange(100) < 50, 1.05, 0.95)
    assert frequency_excess(rng.multinomial(200_000, p), p) < 5.0
    assert frequency_excess(rng.multinomial(200_000, biased), p) > 5.0


@pytest.mark.parametrize("mass", [[], [0.0, 0.0], [1.0, -1.0], [np.nan], [np.inf]])
def test_impossible_masses_are_refused(mass):
    with pytest.raises(DataError, match="masses must be finite"):
        AliasTable(np.array(mass))
