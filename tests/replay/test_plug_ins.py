"""The strategies that are plug-ins, in examples/strategies."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from arb import DataError, ReplayBuffer
from arb.replay.index import ReplayIndex
from arb.testing import check_sampler

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "strategies"))

from road import Road, best_arm
from warm_start import WarmStart

PLUG_INS = {"warm start": WarmStart, "road": Road}


@pytest.mark.parametrize("name", PLUG_INS)
def test_every_plug_in_keeps_the_promises(name):
    check_sampler(PLUG_INS[name])


def bound(sampler, capacity=1000, offline=100, online=0):
    index = ReplayIndex(capacity, sampler)
    index.extend([offline])
    if online:
        index.extend([online], origin="online")
    return sampler


def share_drawn_offline(sampler, n=256):
    return float((~sampler.index.is_online(sampler.sample_indices(np.random.default_rng(0), (n,)))).mean())


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
        lambda rows: np.where(sampler.index.is_online(rows), online, offline).astype(float), np.random.default_rng(0)
    )


def test_the_reward_is_the_gap_of_the_gaps():
    sampler = bound(Road(), online=50)
    judged(sampler, 2.0, 0.5)
    assert math.isnan(sampler.metrics()["bandit_reward"])  # nothing has been chosen yet
    assert sampler.offline_share == 0.1
    judged(sampler, 2.0, 0.5)
    assert sampler.metrics() == {"bandit_reward": 1.5, "offline_share": 0.3}
    assert share_drawn_offline(sampler) == 77 / 256


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
@pytest.mark.parametrize("name", PLUG_INS)
def test_every_plug_in_serves_a_buffer_through_saving(name, tmp_path):
    def buffer():
        return ReplayBuffer(60, PLUG_INS[name](), seed=0)

    ours, other = buffer(), buffer()
    ours.load_dataset({"observations": np.zeros((40, 1)), "actions": np.zeros((40, 1)), "rewards": np.zeros(40),
               "terminals": np.arange(40) % 8 == 7})  # fmt: skip
    for _ in range(30):
        ours.add([0.0], [0.0], 0.0, [0.0], terminated=False)
    ours.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    assert (ours.sample_indices((4, 64)) == other.sample_indices((4, 64))).all()
    assert 0.0 <= ours.stats()["online_share"] <= 1.0
