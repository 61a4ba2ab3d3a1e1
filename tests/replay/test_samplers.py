import numpy as np
import pytest

from arb import ARB, Annealed, DataError, Mixed, Prioritized, Recent, ReplayBuffer, Sampler, Uniform
from arb.replay.index import ReplayIndex
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
    "annealed": lambda: Annealed(online_steps=40),
    "annealed, from all offline": lambda: Annealed(online_steps=10, first_share=1.0),
    "prioritized": Prioritized,
    "mixed of three origins": lambda: Mixed({"online": 0.3, "offline": 0.7, "demos": 0.0}),
    "recent": Recent,
    "recent, 5 rows": lambda: Recent(half_life=5),
    "recent, almost uniform": lambda: Recent(half_life=1e9),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_promises(name):
    check_sampler(STRATEGIES[name])


# ---- the conformance kit notices what it should -----------------------------------------------------------------


class Forgetful(Uniform):
    """Ignores its generator."""

    def sample_indices(self, rng, shape):
        return np.random.default_rng().integers(self.index.size, size=shape)


class Biased(Uniform):
    """Draws the first row too often."""

    def sample_indices(self, rng, shape):
        rows = super().sample_indices(rng, shape)
        return np.where(rng.random(shape) < 0.02, 0, rows)


class Dangling(Uniform):
    """Draws from the whole ring, filled or not."""

    def sample_indices(self, rng, shape):
        return rng.integers(self.index.capacity, size=shape)


class Amnesiac(ARB):
    """Loses its weights when saved."""

    def restore(self, state):
        pass


class Unnormalised(Uniform):
    def probabilities(self):
        return np.ones(self.index.size)


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
    ReplayIndex(capacity, sampler)
    sampler.index.extend(lengths)
    return sampler


def weighed(sampler, scores):
    sampler.update_weights(np.asarray(scores, np.float32), sampler.index.num_added)
    return sampler


def step(sampler):
    sampler.index.append([0])


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
        (ARB(), "ARB()"),
        (ARB("auto", effective=0.1), "ARB(effective=0.1)"),
        (Annealed(7), "Annealed(online_steps=7)"),
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
    assert not buffer.index.is_online(buffer.sample_indices(256)).any()  # nothing is online yet
    for _ in range(3):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    online = buffer.index.is_online(buffer.sample_indices((50, 256)))
    assert (online.sum(1) == 128).all()
    assert online[:, 128:].all()


@pytest.mark.parametrize(("share", "offline"), [(0.29, 29), (0.57, 57), (0.005, 0), (0.015, 2), (0.995, 100)])
def test_mixed_counts_are_rounded(share, offline):
    buffer = ReplayBuffer(100, Mixed(share), seed=0)
    buffer.load_dataset(dataset(20))
    buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    assert (~buffer.index.is_online(buffer.sample_indices(100))).sum() == offline  # 100 * 0.29 is 28.999999999999996


def test_mixed_without_offline_rows_left():
    buffer = ReplayBuffer(4, Mixed(0.5), seed=0)
    buffer.load_dataset(dataset(4))
    with pytest.warns(UserWarning, match="online steps overwrite offline rows from now on: a capacity above 4"):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    for _ in range(3):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    assert buffer.index.is_online(buffer.sample_indices(64)).all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"clip": (1.0, 1.0)}, "lower clip bound"),
        ({"level": "episode"}, "'trajectory' or 'transition'"),
        ({"temperature": float("nan")}, "greater than 0"),
        ({"temperature": "automatic"}, "greater than 0, or \"auto\", not 'automatic'"),
        ({"temperature": "auto", "effective": 0.0}, "effective must be a share"),
        ({"effective": 1.5}, "effective must be a share of the rows, above 0 and at most 1, not 1.5"),
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


# ---- annealed ---------------------------------------------------------------------------------------------------


def origins(sampler, capacity=1000, offline=100, online=0):
    index = ReplayIndex(capacity, sampler)
    if offline:
        index.extend([offline])
    if online:
        index.extend([online], origin="online")
    return sampler


def share_drawn_offline(sampler, n=256):
    return float((~sampler.index.is_online(sampler.sample_indices(np.random.default_rng(0), (n,)))).mean())


def test_the_offline_share_falls_in_a_straight_line():
    sampler = origins(Annealed(online_steps=200), offline=50)
    found = []
    for _ in range(5):
        sampler.index.extend([50], origin="online")
        found.append(share_drawn_offline(sampler))
    assert found == [96 / 256, 64 / 256, 32 / 256, 0.0, 0.0]
    assert sampler.metrics() == {"offline_share": 0.0}


def test_annealing_counts_steps_that_have_been_overwritten():
    sampler = origins(Annealed(online_steps=200), capacity=60, offline=10)
    for _ in range(3):
        sampler.index.extend([50], origin="online")
    assert sampler.offline_share == 0.5 * 0.25


def test_annealing_goes_on_where_it_was_saved():
    sampler = origins(Annealed(online_steps=200), offline=50, online=100)
    other = origins(Annealed(online_steps=200), offline=50)
    other.restore(sampler.state())
    assert other.offline_share == 0.25


# ---- recent -----------------------------------------------------------------------------------------------------


def test_the_probability_halves_with_every_half_life():
    sampler = origins(Recent(half_life=10), offline=20, online=11)
    p = sampler.probabilities()
    assert p[30] / p[20] == pytest.approx(2.0)
    assert p[30] / p[0] == pytest.approx(8.0)
    assert origins(Recent(half_life=0.5), offline=40).probabilities()[[39, 19]] == pytest.approx(
        np.array([1.0, 0.5]) * origins(Recent(half_life=20), offline=40).probabilities()[39]
    )


def test_a_half_life_of_one_is_the_whole_buffer():
    p = origins(Recent(half_life=1.0), offline=41).probabilities()
    assert p[40] / p[0] == pytest.approx(2 ** (40 / 41))


def test_recency_follows_the_ring():
    sampler = origins(Recent(half_life=2), capacity=10, offline=8, online=5)  # rows 0, 1, 2 are the newest
    assert np.argsort(-sampler.probabilities()).tolist() == [2, 1, 0, 9, 8, 7, 6, 5, 4, 3]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Annealed(online_steps=0), "online_steps must be at least 1"),
        (lambda: Annealed(online_steps=5, first_share=2.0), "between 0 and 1"),
        (lambda: Recent(half_life=0.0), "half_life must be"),
    ],
)
def test_impossible_settings_of_the_others_are_refused(make, said):
    with pytest.raises(DataError, match=said):
        make()


@pytest.mark.filterwarnings("ignore:the buffer is full")
@pytest.mark.parametrize("name", ["annealed", "recent"])
def test_they_serve_a_buffer_through_saving(name, tmp_path):
    def buffer():
        return ReplayBuffer(60, STRATEGIES[name](), seed=0)

    ours, other = buffer(), buffer()
    ours.load_dataset(dataset(40))
    for _ in range(30):
        ours.add([0.0], [0.0], 0.0, [0.0], terminated=False)
    ours.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    assert (ours.sample_indices((4, 64)) == other.sample_indices((4, 64))).all()
    assert 0.0 <= ours.stats()["online_share"] <= 1.0


# ---- priorities ------------------------------------------------------------------------------------------------------
def prioritized(errors, **settings):
    buffer = ReplayBuffer(len(errors) + 1, Prioritized(**settings), seed=0)
    for t in range(len(errors)):
        buffer.add([t], [0.0], 1.0, [t + 1], terminated=False)
    buffer.update_priorities(np.arange(len(errors)), np.array(errors))
    return buffer


def test_rows_are_drawn_by_their_errors_to_the_power_of_alpha():
    buffer = prioritized([1.0, -4.0, 0.0], alpha=0.5, epsilon=1e-12)  # with a fourth row to come
    np.testing.assert_allclose(buffer.sampler.probabilities(), [1 / 3, 2 / 3, 1e-6 / 3], rtol=1e-5)
    buffer.add([3], [0.0], 1.0, [4], terminated=True)  # as likely as the largest so far
    np.testing.assert_allclose(buffer.sampler.probabilities(), [0.2, 0.4, 0.0, 0.4], atol=1e-6)
    buffer.update_priorities([1, 3], [1.0, 1.0])
    buffer.add([9], [0.0], 1.0, [10], terminated=True)
    assert buffer.sampler.probabilities()[0] == pytest.approx(0.5)  # row 0 is new; the largest priority so far was 2


def test_importance_weights_undo_the_preference():
    buffer = prioritized([1.0, 3.0, 4.0, 8.0], alpha=1.0, beta=1.0)
    values, rng = np.array([5.0, -1.0, 2.0, 7.0]), np.random.default_rng(0)
    batch = buffer.sample(200_000, weights=True, rng=rng)
    rows, weights = batch.extras["rows"], batch.extras["weights"]
    assert weights.dtype == np.float32
    assert weights.max() == 1.0
    assert np.average(values[rows], weights=weights) == pytest.approx(values.mean(), abs=0.05)
    assert abs(values[rows].mean() - values.mean()) > 0.5
    np.testing.assert_allclose(weights, (1.0 / np.array([1.0, 3.0, 4.0, 8.0]))[rows], rtol=1e-5)
    buffer.sampler.beta = 0.5
    np.testing.assert_allclose(buffer.index.importance_weights(np.array([0, 2])), [1.0, 0.5], rtol=1e-5)
    assert buffer.sample((3, 4), weights=True).extras["weights"].max(-1).tolist() == [1.0] * 3


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_importance_weights(name):
    buffer = ReplayBuffer(40, STRATEGIES[name](), seed=0)
    buffer.load_dataset({
        "observations": np.arange(20.0)[:, None], "actions": np.zeros((20, 1)), "rewards": np.zeros(20),
        "terminals": np.arange(20) % 5 == 4,
    })  # fmt: skip
    for t in range(5):
        buffer.add([100.0 + t], [0.0], 1.0, [101.0 + t], terminated=False)
    buffer.refresh(lambda obs, action: -obs[:, 0] / 100)
    batch = buffer.sample(64, weights=True)
    p = buffer.sampler.probabilities()[batch.extras["rows"]]
    np.testing.assert_allclose(batch.extras["weights"], p.min() / p, rtol=1e-5)
    assert (batch.obs == buffer.gather(batch.extras["rows"]).obs).all()


def test_priorities_survive_saving_and_removal(tmp_path):
    buffer = prioritized([1.0, 2.0, 3.0])
    buffer.end_episode()
    buffer.add([50], [0.0], 1.0, [51], terminated=True)
    buffer.sampler.beta = 1.0  # may have moved during training
    buffer.save(tmp_path / "buffer.npz")
    other = ReplayBuffer(4, Prioritized(), seed=9)
    other.load(tmp_path / "buffer.npz")
    assert (other.sampler.probabilities() == buffer.sampler.probabilities()).all()
    assert (other.sample_indices(20) == buffer.sample_indices(20)).all()
    other.update_priorities([3], [100.0])
    other.remove(0)
    assert other.sampler.probabilities().tolist() == [1.0]
    other.add([60], [0.0], 1.0, [61], terminated=True)
    assert other.sampler.probabilities().tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("rows", "errors", "message"),
    [
        (
            [0, 1],
            [1.0],
            r"update_priorities needs the numbers of rows and an error for each, got rows of type int64 \(2,\)",
        ),
        ([0.5], [1.0], "needs the numbers of rows"),
        ([1], [np.nan], "the error of row 1 is not finite"),
        ([3], [1.0], "rows must lie between 0 and 2, as the buffer holds 3; got 3 to 3"),
        ([-1], [1.0], "rows must lie between 0 and 2"),
    ],
)
def test_priorities_that_cannot_be_are_refused(rows, errors, message):
    with pytest.raises(DataError, match=message):
        prioritized([1.0, 2.0, 3.0]).update_priorities(rows, errors)


def test_strategies_without_priorities_say_so():
    buffer = ReplayBuffer(4, Uniform(), seed=0)
    buffer.add([0], [0.0], 1.0, [1], terminated=True)
    with pytest.raises(DataError, match=r"Uniform has no priorities: make the buffer with arb.Prioritized\(\)"):
        buffer.update_priorities([0], [1.0])
    for wrong in ({"alpha": -1.0}, {"beta": 1.5}, {"epsilon": 0.0}):
        with pytest.raises(DataError, match="Prioritized needs alpha from 0 on, beta from 0 to 1 and epsilon above 0"):
            Prioritized(**wrong)


# ---- defaults and thresholds -----------------------------------------------------------------------------------------
def test_recent_halves_after_a_quarter_of_the_rows():
    index = ReplayIndex(40, Recent(), seed=0)
    index.extend([40])
    p = index.sampler.probabilities()
    assert p[29] == pytest.approx(p[39] / 2)


def test_half_of_the_scores_at_a_bound_is_not_yet_too_many():
    index = ReplayIndex(4, ARB(1.0, clip=(-1.0, 1.0)), seed=0)
    index.extend([1, 1, 1, 1])
    index.refresh(lambda rows: np.array([-5.0, 5.0, 0.0, 0.5])[rows])  # warnings are errors
    with pytest.warns(UserWarning, match="more than half of the scores lie outside the clip bounds"):
        index.refresh(lambda rows: np.array([-5.0, 5.0, -1.0, 0.5])[rows])


def test_a_restored_index_waits_as_long_for_a_refresh(monkeypatch):
    monkeypatch.setattr("arb.replay.index.PATIENCE", 3)
    index, other = (ReplayIndex(20, ARB(), seed=0) for _ in range(2))
    index.append([0])
    index.refresh(lambda rows: np.zeros(20)[rows])
    other.restore(*index.state())
    for _ in range(2):
        other.append([0])
    other.sample_indices(1)  # warnings are errors
    other.append([0])
    with pytest.warns(UserWarning, match="3 steps were added without a refresh"):
        other.sample_indices(1)
