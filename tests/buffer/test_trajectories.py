"""A dataset as trajectories: where each row led."""

import numpy as np

from arb.buffer.dataset import check_dataset
from arb.buffer.trajectories import usable_trajectories


def test_next_obs_is_the_next_row_and_at_the_end_the_final_observation():
    past = {
        "observations": np.array([[0.0], [1.0], [2.0], [10.0], [11.0]]),
        "actions": np.zeros((5, 1)),
        "rewards": np.zeros(5),
        "terminals": np.array([0, 0, 1, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1]),
        "next_observations": np.array([[1.0], [2.0], [3.0], [11.0], [12.0]]),
    }
    kept = usable_trajectories(check_dataset(past), "resets", 0.99, None)
    np.testing.assert_array_equal(kept.next_obs[""][:, 0], [1, 2, 3, 11, 12])
    del past["next_observations"]  # the last step of the second trajectory leads nowhere known, and is dropped
    kept = usable_trajectories(check_dataset(past), "resets", 0.99, None)
    np.testing.assert_array_equal(kept.next_obs[""][:2, 0], [1, 2])
    np.testing.assert_array_equal(kept.next_obs[""][3:, 0], [11])
