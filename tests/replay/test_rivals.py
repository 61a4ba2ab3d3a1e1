"""Other people's strategies."""

import math

import numpy as np
import pytest

from arb import DataError, ReplayBuffer
from arb.replay.index import Ledger
from arb.replay.rivals import Annealed, Recent, Road, WarmStart, annealed_share, best_arm
from arb.testing import check_sampler

RIVALS = {
    "annealed": lambda: Annealed(online_steps=40),
    "annealed, from all offline": lambda: Annealed(online_steps=10, first_share=1.0),
    "warm start": WarmStart,
    "recent": Recent,
    "recent, 5 rows": lambda: Recent(half_life=5),
    "recent, almost uniform": lambda: Recent(half_life=1e9),
    "road": Road,
}


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_keeps_the_promises(name):
    check_sampler(RIVALS[name])


def bound(sampler, capacity=1000, offline=100, online=0):
    sampler.bind(Ledger(capacity))
    if offline:
        sampler.insert(sampler.ledger.extend(np.array([offline]), online=False)[0])
    if online:
        sampler.insert(sampler.ledger.extend(np.array([online]), online=True)[0])
    return sampler


def share_drawn_offline(sampler, n=256):
    return float((~sampler.ledger.is_online(sampler.sample_indices(np.random.default_rng(0), (n,)))).mean())


# ---- annealed ---------------------------------------------------------------------------------------------------


def test_the_offline_share_falls_in_a_straight_line():
    assert annealed_share(0.5, 25, 100) == 0.375
    sampler = bound(Annealed(online_steps=200), offline=50)
    found = []
    for _ in range(5):
        sampler.insert(sampler.ledger.extend(np.array([50]), online=True)[0])
        found.append(share_drawn_offline(sampler))
    assert found == [96 / 256, 64 / 256, 32 / 256, 0.0, 0.0]
    assert sampler.metrics() == {"offline_share": 0.0}


def test_annealing_counts_steps_that_have_been_overwritten():
    sampler = bound(Annealed(online_steps=200), capacity=60, offline=10)
    for _ in range(3):
        sampler.insert(sampler.ledger.extend(np.array([50]), online=True)[0])
    assert sampler.offline_share == 0.5 * 0.25


def test_annealing_goes_on_where_it_was_saved():
    sampler = bound(Annealed(online_steps=200), offline=50, online=100)
    other = bound(Annealed(online_steps=200), offline=50)
    other.restore(sampler.state())
    assert other.offline_share == 0.25


# ---- recent -----------------------------------------------------------------------------------------------------


def test_the_probability_halves_with_every_half_life():
    sampler = bound(Recent(half_life=10), offline=20, online=11)
    p = sampler.probabilities()
    assert p[30] / p[20] == pytest.approx(2.0)
    assert p[30] / p[0] == pytest.approx(8.0)
    assert bound(Recent(half_life=0.5), offline=40).probabilities()[[39, 19]] == pytest.approx(
        np.array([1.0, 0.5]) * bound(Recent(half_life=20), offline=40).probabilities()[39]
    )


def test_a_half_life_of_one_is_the_whole_buffer():
    p = bound(Recent(half_life=1.0), offline=41).probabilities()
    assert p[40] / p[0] == pytest.approx(2 ** (40 / 41))


def test_recency_follows_the_ring():
    sampler = bound(Recent(half_life=2), capacity=10, offline=8, online=5)  # rows 0, 1, 2 are the newest
    assert np.argsort(-sampler.probabilities()).tolist() == [2, 1, 0, 9, 8, 7, 6, 5, 4, 3]


# ---- warm start -------------------------------------------------------------------------------------------------


def test_a_warm_start_draws_online_rows_alone():
    sampler = WarmStart(warm_up=7)
    assert sampler.warm_up == 7
    assert share_drawn_offline(bound(sampler, online=1)) == 0.0


# ---- road -------------------------------------------------------------------------------------------------------


def test_the_bandit_by_hand():
    # arm 0: rewards 4, 0 (mean 2); arm 1: reward 3; their standard deviation is √(26)/3
    choices, rewards = np.array([0, 0, 1]), np.array([4.0, 0.0, 3.0])
    scale = math.sqrt(26) / 3
    first = 2 / scale + math.sqrt(math.log(3) / 2)
    second = 3 / scale + math.sqrt(math.log(3))
    assert second > first
    assert best_arm(choices, rewards, 2, exploration=1.0) == 1
    assert best_arm(choices, rewards + np.array([0, 6, 0]), 2, exploration=0.0) == 0
    assert best_arm(np.array([0, 0, 0, 1]), np.array([1.1, 1.1, 1.1, 1.0]), 2, exploration=50.0) == 1
    assert best_arm(np.array([0, 2]), np.array([1.0, 9.0]), 3, exploration=1.0) == 1


def judged(sampler, offline, online):
    """One block: the critics' advantage is the same on all rows of an origin."""
    sampler.update_from_critic(
        lambda rows: np.where(sampler.ledger.is_online(rows), online, offline).astype(float), np.random.default_rng(0)
    )


def test_the_reward_is_the_gap_of_the_gaps():
    sampler = bound(Road(), online=50)
    judged(sampler, 2.0, 0.5)
    assert math.isnan(sampler.metrics()["bandit_reward"])  # nothing has been chosen yet
    assert sampler.offline_share == 0.1
    judged(sampler, 2.0, 0.5)
    assert sampler.metrics() == {"bandit_reward": 1.5, "offline_share": 0.3}
    assert share_drawn_offline(sampler) == 76 / 256


def test_the_share_that_pays_is_chosen_and_left_when_it_no_longer_does():
    sampler = bound(Road(shares=(0.1, 0.5, 0.9), window=12, exploration=0.1), online=50)
    chosen = []
    for block in range(80):
        best = 0.5 if block < 40 else 0.9
        judged(sampler, 1.0 if sampler.offline_share == best else 0.0, 0.0)
        chosen.append(sampler.offline_share)
    assert chosen[30:40].count(0.5) >= 7
    assert chosen[70:80].count(0.9) >= 7


def test_the_limits_of_the_settings():
    assert Road().shares == (0.1, 0.3, 0.5, 0.7, 0.9)
    assert Road(shares=(0.0, 1.0), window=2, exploration=0.0).window == 2
    assert WarmStart(0).warm_up == 0
    assert Annealed(1).online_steps == 1


def test_before_there_is_anything_to_compare_nothing_is_chosen():
    sampler = bound(Road())
    judged(sampler, 1.0, 0.0)
    assert sampler.offline_share == 0.5
    assert share_drawn_offline(sampler) == 1.0


def test_the_bandit_goes_on_where_it_was_saved():
    sampler, other = bound(Road(), online=50), bound(Road(), online=50)
    for block in range(9):
        judged(sampler, float(block % 4), 0.0)
    other.restore(sampler.state())
    for block in range(9):
        for each in (sampler, other):
            judged(each, float(block % 3), 0.0)
        assert sampler.metrics() == other.metrics()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Annealed(online_steps=0), "online_steps must be at least 1"),
        (lambda: Annealed(online_steps=5, first_share=2.0), "between 0 and 1"),
        (lambda: Recent(half_life=0.0), "half_life must be"),
        (lambda: WarmStart(-1), "warm_up must be at least 0"),
        (lambda: Road(shares=(0.5, 1.5)), "shares must lie between 0 and 1"),
        (lambda: Road(shares=()), "shares must lie between 0 and 1"),
        (lambda: Road(window=3), "window must hold 5 choices"),
    ],
)
def test_impossible_settings_are_refused(make, said):
    with pytest.raises(DataError, match=said):
        make()


@pytest.mark.filterwarnings("ignore:the buffer is full")
@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_serves_a_buffer_through_saving(name, tmp_path):
    def buffer():
        return ReplayBuffer(60, RIVALS[name](), seed=0)

    ours, other = buffer(), buffer()
    ours.load_dataset({"observations": np.zeros((40, 1)), "actions": np.zeros((40, 1)), "rewards": np.zeros(40),
               "terminals": np.arange(40) % 8 == 7})  # fmt: skip
    for _ in range(30):
        ours.add([0.0], [0.0], 0.0, [0.0], terminated=False)
    ours.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    assert (ours.sample_indices((4, 64)) == other.sample_indices((4, 64))).all()
    assert 0.0 <= ours.stats()["online_share"] <= 1.0
