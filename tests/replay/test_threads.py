import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

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


def in_a_fork(work):
    """What a forked process returns, as bytes; it is killed if it hangs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.write(writer, work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        result = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return result


def filled(seed=0):
    buffer = ReplayBuffer(64, ARB(0.5), seed=seed)
    for x in range(50):
        buffer.add([float(x)], [0.0], float(x), [x + 1.0], x % 7 == 6)
    return buffer


@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, if another test imported it
def test_forked_processes_draw_batches_of_their_own_and_the_same_at_every_run():
    def draws():
        buffer = filled()
        children = [in_a_fork(lambda: buffer.sample_indices(32).tobytes()) for _ in range(3)]
        nested = in_a_fork(lambda: in_a_fork(lambda: buffer.sample_indices(32).tobytes()))
        return [*children, nested, buffer.sample_indices(32).tobytes()]

    first = draws()
    assert len(set(first)) == 5
    assert first == draws()
    assert first[-1] == filled().sample_indices(32).tobytes()  # the parent draws as if it had not forked


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_does_not_inherit_the_lock_of_a_thread():
    buffer, stop = filled(), threading.Event()

    def sample():
        while not stop.is_set():
            buffer.sample((20, 64))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for _ in range(10):
            assert in_a_fork(lambda: str(len(buffer.sample(3).reward)).encode()) == b"3"
    finally:
        stop.set()
        thread.join()


def test_a_copy_made_while_another_thread_adds_is_whole():
    buffer, stop = filled(), threading.Event()

    def collect():
        x = 50.0
        while not stop.is_set():
            buffer.add([x], [0.0], x, [x + 1.0], x % 7 == 6)
            x += 1.0

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for i in range(60):
            other = copy.deepcopy(buffer) if i % 2 else pickle.loads(pickle.dumps(buffer))
            batch = other.gather(np.arange(len(other)))
            np.testing.assert_array_equal(batch.obs[:, 0], batch.reward)
            np.testing.assert_array_equal(batch.next_obs[:, 0], batch.reward + 1)
            assert other.sampler is other.index.sampler
            assert other.sampler.index is other.index
    finally:
        stop.set()
        thread.join()


def test_a_copy_holds_the_lock():
    buffer = filled()
    with buffer.index.lock:
        copying = threading.Thread(target=copy.deepcopy, args=(buffer,))
        copying.start()
        copying.join(timeout=0.3)
        assert copying.is_alive()
    copying.join()
