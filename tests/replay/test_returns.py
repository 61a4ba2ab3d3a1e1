import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb.errors import DataError
from arb.replay.dataset import return_to_go


def by_loop(reward, stop, gamma):
    total, after = np.zeros(len(reward)), 0.0
    for i in reversed(range(len(reward))):
        after = reward[i] + (0.0 if stop[i] else gamma * after)
        total[i] = after
    return total


@given(st.lists(st.tuples(st.floats(-10, 10), st.booleans()), min_size=1, max_size=70), st.floats(0, 1))
def test_equals_the_loop(steps, gamma):
    reward, stop = np.array([r for r, _ in steps]), np.array([s for _, s in steps])
    np.testing.assert_allclose(return_to_go(reward, stop, gamma), by_loop(reward, stop, gamma), atol=1e-9)


def test_by_hand():
    # two episodes, (1, 2) and (3); the last row counts as cut off
    total = return_to_go(np.array([1.0, 2.0, 3.0]), np.array([False, True, False]), 0.5)
    assert total.tolist() == [2.0, 2.0, 3.0]


def test_an_episode_that_only_fails_fails_forever():
    reward = np.array([-5.0, -5.0, -5.0, 5.0])
    total = return_to_go(reward, np.array([False, True, False, True]), 0.9, failure_reward=-5.0)
    np.testing.assert_allclose(total, [-50.0, -50.0, -5.0 + 0.9 * 5.0, 5.0])


def test_failing_forever_without_discount_is_refused():
    with pytest.raises(DataError, match="gamma < 1"):
        return_to_go(np.zeros(1), np.array([True]), 1.0, failure_reward=0.0)


def test_a_long_episode_needs_no_recursion():
    reward = np.ones(200_000)
    total = return_to_go(reward, np.zeros(200_000, bool), 0.99)
    assert total[0] == pytest.approx(100.0)
    assert total[-1] == 1.0
