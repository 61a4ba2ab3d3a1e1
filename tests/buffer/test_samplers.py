import numpy as np
import pytest

from arb import Mixed, OnPolicy, ReplayBuffer, Sampler, Uniform
from arb.buffer.ledger import Ledger, Runs
from arb.buffer.onpolicy import random_steps
from arb.buffer.onpolicyness import group_mean
from arb.testing import check_sampler, frequency_excess

STRATEGIES = {
    "naive": Uniform,
    "parallel": Mixed,
    "parallel, a quarter offline": lambda: Mixed(0.25),
    "arb": OnPolicy,
    "arb, cold": lambda: OnPolicy(0.1),
    "arb, warm": lambda: OnPolicy(5.0),
    "arb, transitions": lambda: OnPolicy(0.5, level="transition"),
    "arb, cold transitions": lambda: OnPolicy(0.1, level="transition"),
    "arb, budget": lambda: OnPolicy(0.5, budget=12),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_promises(name):
    check_sampler(STRATEGIES[name])


# ---- the conformance kit notices what it should -----------------------------------------------------------------


class Forgetful(Uniform):
    """Ignores its generator."""

    def draw(self, rng, shape):
        return np.random.default_rng().integers(self.ledger.size, size=shape)


class Biased(Uniform):
    """Draws the first row too often."""

    def draw(self, rng, shape):
        rows = super().draw(rng, shape)
        return np.where(rng.random(shape) < 0.02, 0, rows)


class Dangling(Uniform):
    """Draws from the whole ring, filled or not."""

    def draw(self, rng, shape):
        return rng.integers(self.ledger.capacity, size=shape)


class Amnesiac(OnPolicy):
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
    request = sampler.request(np.random.default_rng(0))
    assert request.sequence is None
    sampler.reweigh(request, np.asarray(scores, np.float32))
    return sampler


def test_arb_by_hand():
    # means -1 and -2 at λ = 0.5: weights 1 and e^-2 per row, on 2 and 3 rows
    sampler = weighed(bound(OnPolicy(0.5), 10, 2, 3), [-0.5, -1.5, -2.0, -3.0, -1.0])
    e = np.exp(-2.0)
    np.testing.assert_allclose(sampler.probabilities(), np.array([1, 1, e, e, e]) / (2 + 3 * e), rtol=1e-6)


def test_arb_transitions_by_hand():
    sampler = weighed(bound(OnPolicy(0.5, level="transition"), 10, 3), [-1.0, -2.0, -50.0])
    expected = np.exp(np.array([0.0, -2.0, -22.0]))  # the last is clipped to -12, 11 below the first
    np.testing.assert_allclose(sampler.probabilities(), expected / expected.sum(), rtol=1e-6)


def test_new_rows_get_the_largest_weight():
    sampler = weighed(bound(OnPolicy(0.5), 10, 2, 2), [-1.0, -1.0, -9.0, -9.0])
    sampler.ledger.append([0], np.array([True]), online=True)
    p = sampler.probabilities()
    assert p[4] == pytest.approx(p[0])
    assert p[4] == p.max()
    assert p[2] < p[0]


def test_an_unfinished_episode_counts_with_its_prefix():
    sampler = bound(OnPolicy(1.0), 10, 1)
    for _ in range(2):
        sampler.ledger.append([0], np.array([sampler.ledger.open_run(0) < 0]), online=True)
    weighed(sampler, [-1.0, -2.0, -4.0])
    p = sampler.probabilities()
    assert p[1] / p[0] == pytest.approx(np.exp(-2.0))
    sampler.ledger.append([0], np.array([False]), online=True)
    weighed(sampler, [-1.0, -2.0, -4.0, -6.0])
    assert sampler.probabilities()[1] / sampler.probabilities()[0] == pytest.approx(np.exp(-3.0))


def test_mixed_batches_have_exact_counts():
    buffer = ReplayBuffer(100, Mixed(0.5), seed=0)
    buffer.load(dataset(20))
    assert not buffer.ledger.is_online(buffer.draw(256)).any()  # nothing is online yet
    for _ in range(3):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    online = buffer.ledger.is_online(buffer.draw((50, 256)))
    assert (online.sum(1) == 128).all()
    assert online[:, 128:].all()


def test_mixed_without_offline_rows_left():
    buffer = ReplayBuffer(4, Mixed(0.5), seed=0)
    buffer.load(dataset(4))
    for _ in range(4):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), terminated=True)
    assert buffer.ledger.is_online(buffer.draw(64)).all()


def test_a_partial_refresh_of_an_unchanged_policy_is_exact():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, size=40)
    scores = rng.normal(-3.0, 1.5, lengths.sum()).astype(np.float32)
    exact = weighed(bound(OnPolicy(0.5), 5000, *lengths), scores)
    partial = weighed(bound(OnPolicy(0.5, budget=70), 5000, *lengths), scores)
    for _ in range(5):
        request = partial.request(rng)
        assert abs(len(request.sequence) - 70) <= 1
        partial.reweigh(request, scores[request.sequence])
        np.testing.assert_allclose(partial.probabilities(), exact.probabilities(), rtol=1e-5)


def test_a_partial_refresh_scores_new_and_open_trajectories_whole():
    sampler = weighed(bound(OnPolicy(0.5, budget=20), 1000, 400, 400), np.zeros(800))
    for t in range(15):
        sampler.ledger.append([0], np.array([t == 0]), online=True)
    request = sampler.request(np.random.default_rng(0))
    assert set(range(800, 815)) <= set(request.sequence.tolist())
    sampler.reweigh(request, np.full(len(request.sequence), -1.0, np.float32))
    again = sampler.request(np.random.default_rng(0))  # still open, so again whole
    assert set(range(800, 815)) <= set(again.sequence.tolist())
    sampler.ledger.close(0)
    assert not set(range(800, 815)) <= set(sampler.request(np.random.default_rng(0)).sequence.tolist())


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def test_a_partial_refresh_follows_a_moving_policy():
    rng = np.random.default_rng(1)
    lengths = np.full(60, 200)
    index = np.repeat(np.arange(60), 200)
    partial = bound(OnPolicy(0.5, budget=12_000 // 16), 12_000, *lengths)
    exact = bound(OnPolicy(0.5), 12_000, *lengths)
    scores = rng.normal(-3.0, 0.5, 12_000) + rng.normal(0.0, 0.5, 60)[index]
    weighed(partial, scores)
    for _ in range(10):
        scores = scores + rng.normal(0.0, 0.05, 60)[index] + rng.normal(0.0, 0.05, 12_000)
        weighed(exact, scores)
        request = partial.request(rng)
        partial.reweigh(request, scores[request.sequence].astype(np.float32))
        ours = total_variation(partial.probabilities(), exact.probabilities())
        plain = group_mean(scores[request.sequence], index[request.sequence], 60)[index] / 0.5
        plain = np.exp(plain - plain.max())
        assert ours < 0.5 * total_variation(plain / plain.sum(), exact.probabilities())


def test_random_steps_are_even_over_all_rows():
    rng = np.random.default_rng(0)
    runs = Runs(np.arange(3), np.array([0, 7, 100]), np.array([1, 1, 2]), np.array([7, 3, 40]))
    drawn = np.concatenate([random_steps(rng, runs, 10) for _ in range(4000)])
    rows = np.concatenate([np.arange(10), np.arange(100, 180, 2)])
    counts = np.array([(drawn == row).sum() for row in rows])
    assert counts.sum() == len(drawn)
    assert frequency_excess(counts, np.full(50, 0.02)) < 5.0
    assert len(random_steps(rng, runs, 0)) == 0
    assert abs(len(random_steps(rng, runs, 10**6)) - 50) <= 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"clip": (1.0, 1.0)}, "lower clip bound"),
        ({"level": "episode"}, '"trajectory" or "transition"'),
        ({"budget": 0}, "at least 1 row"),
        ({"budget": 5, "level": "transition"}, "needs level='trajectory'"),
    ],
)
def test_impossible_settings_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        OnPolicy(**kwargs)


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
