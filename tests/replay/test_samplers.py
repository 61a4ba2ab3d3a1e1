import numpy as np
import pytest

from arb import ARB, DataError, Mixed, ReplayBuffer, Sampler, Uniform
from arb.replay.index import Ledger
from arb.testing import check_sampler

STRATEGIES = {
    "naive": Uniform,
    "parallel": Mixed,
    "parallel, a quarter offline": lambda: Mixed(0.25),
    "arb": ARB,
    "arb, cold": lambda: ARB(0.1),
    "arb, warm": lambda: ARB(5.0),
    "arb, transitions": lambda: ARB(0.5, level="transition"),
    "arb, cold transitions": lambda: ARB(0.1, level="transition"),
    "arb auto": lambda: ARB("auto", effective=0.25),
    "arb auto, transitions": lambda: ARB("auto", effective=0.1, level="transition"),
    "arb auto, 12 rows": lambda: ARB("auto", effective=12),
    "arb with a floor": lambda: ARB(0.05, least_effective=0.5),
    "arb in units of the spread": lambda: ARB(0.5, unit="spread"),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_promises(name):
    check_sampler(STRATEGIES[name])


# ---- the conformance kit notices what it should -----------------------------------------------------------------


class Forgetful(Uniform):
    """Ignores its generator."""

    def sample_indices(self, rng, shape):
        return np.random.default_rng().integers(self.ledger.size, size=shape)


class Biased(Uniform):
    """Draws the first row too often."""

    def sample_indices(self, rng, shape):
        rows = super().sample_indices(rng, shape)
        return np.where(rng.random(shape) < 0.02, 0, rows)


class Dangling(Uniform):
    """Draws from the whole ring, filled or not."""

    def sample_indices(self, rng, shape):
        return rng.integers(self.ledger.capacity, size=shape)


class Amnesiac(ARB):
    """Loses its weights when saved."""

    def restore(self, state):
        pass


class Unnormalised(Uniform):
    def probabilities(self):
        return np.ones(self.ledger.size)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Forgetful, "equal generators differ"),
        (Biased, "do not match"),
        (Dangling, "rows outside"),
        (Amnesiac, "restored"),
        (Unnormalised, "not to 1"),
    ],
)
def test_the_kit_names_the_broken_promise(make, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_sampler(make)


def test_a_sampler_must_say_how_it_draws():
    with pytest.raises(TypeError, match="abstract"):
        Sampler()


# ---- strategies by hand -----------------------------------------------------------------------------------------


def bound(sampler, capacity, *lengths):
    sampler.bind(Ledger(capacity))
    sampler.ledger.extend(np.array(lengths), online=False)
    return sampler


def weighed(sampler, scores):
    sampler.update_weights(np.asarray(scores, np.float32), sampler.ledger.head)
    return sampler


def step(sampler):
    sampler.insert(sampler.ledger.append([0], online=True)[0])


def test_arb_by_hand():
    # means -1 and -2 at λ = 0.5: weights 1 and e^-2 per row, on 2 and 3 rows
    sampler = weighed(bound(ARB(0.5), 10, 2, 3), [-0.5, -1.5, -2.0, -3.0, -1.0])
    e = np.exp(-2.0)
    np.testing.assert_allclose(sampler.probabilities(), np.array([1, 1, e, e, e]) / (2 + 3 * e), rtol=1e-6)


def test_arb_transitions_by_hand():
    sampler = weighed(bound(ARB(0.5, level="transition"), 10, 3), [-1.0, -2.0, -50.0])
    expected = np.exp(np.array([0.0, -2.0, -22.0]))  # the last is clipped to -12, 11 below the first
    np.testing.assert_allclose(sampler.probabilities(), expected / expected.sum(), rtol=1e-6)


def test_new_rows_get_the_largest_weight():
    sampler = weighed(bound(ARB(0.5), 10, 2, 2), [-1.0, -1.0, -9.0, -9.0])
    step(sampler)
    p = sampler.probabilities()
    assert p[4] == pytest.approx(p[0])
    assert p[4] == p.max()
    assert p[2] < p[0]


def test_new_rows_get_the_largest_weight_of_a_living_row():
    # weights 1, e^-2, e^-4 in that order of age; four new rows overwrite the two of weight 1 and two of weight e^-2
    sampler = weighed(bound(ARB(0.5), 8, 2, 3, 3), [-1.0] * 2 + [-2.0] * 3 + [-3.0] * 3)
    for _ in range(4):
        step(sampler)
        assert set(sampler.sample_indices(np.random.default_rng(0), (3000,)).tolist()) == set(range(8))
    e = np.exp(-2.0)
    np.testing.assert_allclose(sampler.probabilities() * (5 + 3 * e), [1, 1, 1, 1, 1, e, e, e], rtol=1e-12)
    assert sampler.metrics()["steps_since_refresh"] == 4.0
    for _ in range(2):  # now the row of weight e^-2 is gone as well, and one of weight e^-4
        step(sampler)
    np.testing.assert_allclose(sampler.probabilities(), np.full(8, 1 / 8), rtol=1e-12)


def test_draws_do_not_wait_for_rows_that_are_gone():
    # the overwritten rows had e^500 times the weight of all others: drawing until another row comes would never end
    sampler = weighed(bound(ARB(0.02), 10, 5, 5), [-1.0] * 5 + [-11.0] * 5)
    for _ in range(6):
        step(sampler)
    np.testing.assert_allclose(sampler.probabilities(), np.full(10, 0.1), rtol=1e-12)
    assert set(sampler.sample_indices(np.random.default_rng(0), (1000,)).tolist()) == set(range(10))


def test_a_state_from_before_the_first_refresh_takes_the_weights_away():
    sampler = weighed(bound(ARB(0.5), 10, 2, 2), [-1.0, -1.0, -9.0, -9.0])
    sampler.restore(bound(ARB(0.5), 10, 2, 2).state())
    assert sampler.probabilities().tolist() == [0.25] * 4


def test_a_sampler_serves_one_buffer():
    sampler = ARB()
    ReplayBuffer(10, sampler)
    with pytest.raises(DataError, match="this ARB already serves another buffer: make a new one"):
        ReplayBuffer(10, sampler)


@pytest.mark.parametrize(
    ("sampler", "shown"),
    [
        (Uniform(), "Uniform()"),
        (Mixed(0.25), "Mixed(offline_share=0.25)"),
        (ARB(), "ARB(temperature='auto', effective=0.25)"),
        (ARB(0.5), "ARB(temperature=0.5)"),
        (ARB(2, level="transition"), "ARB(temperature=2, level='transition')"),
        (Forgetful(), "Forgetful()"),
    ],
    ids=str,
)
def test_a_sampler_is_shown_in_one_line(sampler, shown):
    assert repr(sampler) == shown


def test_an_unfinished_episode_counts_with_its_prefix():
    sampler = bound(ARB(1.0), 10, 1)
    for _ in range(2):
        step(sampler)
    weighed(sampler, [-1.0, -2.0, -4.0])
    p = sampler.probabilities()
    assert p[1] / p[0] == pytest.approx(np.exp(-2.0))
    step(sampler)
    weighed(sampler, [-1.0, -2.0, -4.0, -6.0])
    assert sampler.probabilities()[1] / sampler.probabilities()[0] == pytest.approx(np.exp(-3.0))


def test_mixed_batches_have_exact_counts():
    buffer = ReplayBuffer(100, Mixed(0.5), seed=0)
    buffer.load_dataset(dataset(20))
    assert not buffer.ledger.is_online(buffer.sample_indices(256)).any()  # nothing is online yet
    for _ in range(3):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    online = buffer.ledger.is_online(buffer.sample_indices((50, 256)))
    assert (online.sum(1) == 128).all()
    assert online[:, 128:].all()


def test_mixed_without_offline_rows_left():
    buffer = ReplayBuffer(4, Mixed(0.5), seed=0)
    buffer.load_dataset(dataset(4))
    with pytest.warns(UserWarning, match="online steps overwrite offline rows from now on: a capacity above 4"):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    for _ in range(3):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    assert buffer.ledger.is_online(buffer.sample_indices(64)).all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"clip": (1.0, 1.0)}, "lower clip bound"),
        ({"level": "episode"}, "'trajectory' or 'transition'"),
        ({"temperature": float("nan")}, "greater than 0"),
        ({"temperature": "automatic"}, "greater than 0, or \"auto\", not 'automatic'"),
        ({"temperature": "auto", "effective": 0.0}, "effective must be a share"),
        ({"temperature": "auto", "least_effective": 0.5}, "leave out least_effective"),
        ({"temperature": 0.5, "effective": 0.5}, 'effective needs temperature="auto"'),
        ({"least_effective": 0.5}, "leave out least_effective"),
        ({"temperature": 0.5, "least_effective": -0.5}, "least_effective must be"),
        ({"unit": "std"}, "unit must be 'score' or 'spread'"),
    ],
)
def test_impossible_settings_are_refused(kwargs, message):
    with pytest.raises(DataError, match=message):
        ARB(**kwargs)


def test_an_impossible_share_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Mixed(1.5)


def dataset(n):
    return {
        "observations": np.arange(n, dtype=np.float32)[:, None],
        "actions": np.zeros((n, 1)),
        "rewards": np.zeros(n),
        "terminals": np.ones(n),
    }
