"""A dataset as trajectories: where each row led."""

import numpy as np
import pytest

from arb import ReplayBuffer, Uniform
from arb.replay.dataset import check_dataset
from arb.replay.episodes import usable_trajectories


def test_next_obs_is_the_next_row_and_at_the_end_the_final_observation():
    past = {
        "observations": np.array([[0.0], [1.0], [2.0], [10.0], [11.0]]),
        "actions": np.zeros((5, 1)),
        "rewards": np.zeros(5),
        "terminals": np.array([0, 0, 1, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1]),
        "next_observations": np.array([[1.0], [2.0], [3.0], [11.0], [12.0]]),
    }
    kept = usable_trajectories(check_dataset(past), "resets", 0.99, None).cut()
    np.testing.assert_array_equal(kept.next_obs[""][:, 0], [1, 2, 3, 11, 12])
    del past["next_observations"]  # the last step of the second trajectory leads nowhere known, and is dropped
    kept = usable_trajectories(check_dataset(past), "resets", 0.99, None).cut()
    np.testing.assert_array_equal(kept.next_obs[""][:2, 0], [1, 2])
    np.testing.assert_array_equal(kept.next_obs[""][3:, 0], [11])


def without_ends(rows):
    zeros = np.zeros((rows, 1), np.float32)
    return {"observations": zeros, "actions": zeros, "rewards": zeros, "terminals": zeros}


def test_a_long_dataset_without_ends_is_doubted():
    with pytest.warns(UserWarning, match="10001 rows are taken for a single trajectory.*'timeouts'"):
        kept = usable_trajectories(check_dataset(without_ends(10_001)), "resets", 0.99, None)
    assert kept.lengths.tolist() == [10_000]


@pytest.mark.parametrize(
    ("rows", "more"),
    [(10_000, {}), (10_001, {"episode_ids": np.zeros(10_001, int)}), (10_001, {"timeouts": np.arange(10_001) == 500})],
    ids=["short", "confirmed", "two trajectories"],
)
def test_other_datasets_are_not_doubted(rows, more):  # a warning would be an error
    usable_trajectories(check_dataset(without_ends(rows) | more), "resets", 0.99, None)


def test_blocks_of_a_column_are_its_used_rows(monkeypatch):
    monkeypatch.setattr("arb.replay.episodes._CHUNK", 3)
    rows = 10
    past = {
        "observations": np.arange(rows, dtype=np.float32)[:, None],
        "actions": np.zeros((rows, 1)),
        "rewards": np.zeros(rows),
        "terminals": np.zeros(rows),
        "timeouts": np.isin(np.arange(rows), [2, 4, 5, 9]),  # the trajectory of row 5 is nothing but a dropped step
    }
    found = usable_trajectories(check_dataset(past), "resets", 0.99, None)
    assert found.lengths.tolist() == [2, 1, 3]
    blocks = [block[:, 0].tolist() for block in found.blocks(found.obs[""])]
    assert blocks == [[0, 1], [3], [6, 7, 8], []]
    assert found.cut().obs[""][:, 0].tolist() == [0, 1, 3, 6, 7, 8]
    assert found.cut().kept is None


def test_a_dataset_with_dropped_steps_goes_round_the_end_of_the_ring(monkeypatch):
    monkeypatch.setattr("arb.replay.episodes._CHUNK", 4)
    buffer = ReplayBuffer(8, Uniform(), seed=0)
    for _ in range(5):
        buffer.add([-1.0], [0.0], 0.0, [-1.0], terminated=True)
    past = {
        "observations": np.arange(9, dtype=np.float32)[:, None],
        "actions": np.arange(9, dtype=np.float32)[:, None],
        "rewards": np.arange(9),
        "terminals": np.zeros(9),
        "timeouts": np.isin(np.arange(9), [2, 8]),
    }
    assert buffer.load(past).rows == 7
    batch = buffer.take(np.arange(5, 12) % 8)
    np.testing.assert_array_equal(batch.obs[:, 0], [0, 1, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(batch.next_obs[:, 0], [1, 2, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(batch.reward, [0, 1, 3, 4, 5, 6, 7])
