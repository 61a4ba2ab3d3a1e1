import threading
import time

import numpy as np

from arb import ARB, ReplayBuffer


def test_one_thread_adds_while_another_samples_and_refreshes():
    buffer = ReplayBuffer(500, ARB("auto"), seed=0, autoreset="disabled")
    stop, errors = threading.Event(), []

    def collect():
        try:
            x = 0.0
            while not stop.is_set():
                end = x % 37 == 36
                buffer.add([x, -x], [x / 2], x, [x + 1, -x - 1], terminated=False, truncated=end)
                x += 1.0
        except BaseException as error:
            errors.append(error)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        deadline = time.monotonic() + 3.0
        batches = 0
        while time.monotonic() < deadline or batches < 20:
            if len(buffer) < 10:
                continue
            buffer.refresh(lambda obs, action: np.cos(obs[:, 0]) - 2.0, rows_per_call=64)
            batch = buffer.sample((4, 64))
            x = batch.obs[..., 0]
            # every part of a transition belongs to the same step, whatever was written meanwhile
            assert (batch.obs[..., 1] == -x).all()
            assert (batch.action[..., 0] == x / 2).all()
            assert (batch.reward == x).all()
            assert (batch.next_obs[..., 0] == x + 1).all()
            batches += 1
    finally:
        stop.set()
        collector.join()
    assert not errors
    assert buffer.index.num_added > 500
    assert abs(buffer.sampler.probabilities().sum() - 1.0) < 1e-9


def test_a_refresh_does_not_keep_others_from_adding():
    buffer = ReplayBuffer(5, ARB(0.5), seed=0)
    buffer.add([0.0], [0.0], 0.0, [1.0], terminated=True)

    def slow_score(obs, action):
        for x in range(3):  # another thread adds while the policy is asked
            adder = threading.Thread(target=buffer.add, args=([10.0 + x], [0.0], 0.0, [0.0], True))
            adder.start()
            adder.join(timeout=10.0)
            assert not adder.is_alive()
        return np.zeros(len(obs))

    buffer.refresh(slow_score)
    assert len(buffer) == 4
    assert buffer.stats()["steps_since_refresh"] == 3


def test_rows_overwritten_during_a_refresh_keep_no_old_score():
    buffer = ReplayBuffer(4, ARB(0.5), seed=0)
    for x in range(4):
        buffer.add([float(x)], [0.0], 0.0, [0.0], terminated=True)

    def score(obs, action):
        if len(buffer) == 4 and buffer.index.num_added == 4:
            for x in range(2):
                buffer.add([10.0 + x], [0.0], 0.0, [0.0], terminated=True)
        return np.array([-1.0, -1.0, -3.0, -5.0])

    buffer.refresh(score)
    # rows 0 and 1 are new and weigh the most; 2 and 3 by their scores, e^(-2/0.5) apart
    p = buffer.sampler.probabilities()
    np.testing.assert_allclose(p / p[2], [1.0, 1.0, 1.0, np.exp(-4.0)], rtol=1e-5)
    buffer.refresh(lambda obs, action: [buffer.add([7.0], [0.0], 0.0, [0.0], True) for _ in range(9)] and np.zeros(4))
    np.testing.assert_allclose(buffer.sampler.probabilities(), 0.25)
