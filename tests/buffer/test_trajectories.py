"""Where the rows of a dataset led to."""

import numpy as np
import pytest

from arb.buffer.dataset import check_dataset
from arb.buffer.statefile import flattened, grouped
from arb.buffer.trajectories import usable_trajectories


@pytest.mark.parametrize("given", [False, True])
def test_next_observations_by_hand(given):
    """Two trajectories, 0 1 2 and 5 6: the first ended by its task, the second cut off at an observation 7."""
    past = {
        "observations": np.array([[0.0], [1.0], [2.0], [5.0], [6.0]]),
        "actions": np.zeros((5, 1)),
        "rewards": np.zeros(5),
        "terminals": np.array([0, 0, 1, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1]),
    }
    if given:
        past["next_observations"] = np.array([[1.0], [2.0], [3.0], [6.0], [7.0]])
    rows = usable_trajectories(check_dataset(past), "resets", gamma=1.0, failure_reward=None)
    if given:
        assert rows.next_obs[""].ravel().tolist() == [1, 2, 3, 6, 7]
    else:  # what the terminal step led to is unknown and unused; the last step cannot be bootstrapped and is dropped
        assert rows.next_obs[""].ravel()[[0, 1, 3]].tolist() == [1, 2, 6]


def test_grouped_undoes_flattened():
    parts = {"a": {"x.y": 1}, "b": {"x": 2, "z": 3}}
    assert grouped({"header": 0, **flattened(parts)}) == parts
