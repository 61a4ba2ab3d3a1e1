"""A dataset's way into the buffer: which rows are used, and where each led."""

import numpy as np
import pytest

from arb import Dataset, ReplayBuffer, Uniform


def without_ends(rows):
    zeros = np.zeros((rows, 1), np.float32)
    return {"observations": zeros, "actions": zeros, "rewards": zeros, "terminals": zeros}


def test_a_long_dataset_without_ends_is_doubted():
    with pytest.warns(UserWarning, match="10001 rows are taken for a single trajectory.*'timeouts'"):
        data = Dataset.from_dict(without_ends(10_001))
    assert data.usable().lengths.tolist() == [10_000]


@pytest.mark.parametrize(
    ("rows", "more"),
    [(10_000, {}), (10_001, {"episode_ids": np.zeros(10_001, int)}), (10_001, {"timeouts": np.arange(10_001) == 500})],
    ids=["short", "confirmed", "two trajectories"],
)
def test_other_datasets_are_not_doubted(rows, more):  # a warning would be an error
    Dataset.from_dict(without_ends(rows) | more)


def test_a_dataset_with_dropped_steps_goes_round_the_end_of_the_ring(monkeypatch):
    monkeypatch.setattr("arb.replay.buffer._CHUNK", 4)
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
    assert buffer.load_dataset(past) == (7, 2, 2)
    batch = buffer.gather(np.arange(5, 12) % 8)
    np.testing.assert_array_equal(batch.obs[:, 0], [0, 1, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(batch.next_obs[:, 0], [1, 2, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(batch.reward, [0, 1, 3, 4, 5, 6, 7])


def test_an_episode_of_one_cut_off_step_has_nothing_to_use():
    buffer = ReplayBuffer(8, Uniform(), seed=0)
    past = {"observations": np.zeros((1, 1)), "actions": np.zeros((1, 1)), "rewards": [0.0], "terminals": [0]}
    assert buffer.load_dataset(past) == (0, 0, 1)
    with pytest.raises(ValueError, match="no row can be used"):
        Dataset.from_dict(past).usable()
