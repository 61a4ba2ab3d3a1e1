"""A refresh that begins before the steps it includes gives the weights of one that begins after them."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arb import ARB, DataError, ReplayBuffer, Uniform
from arb.replay.rows import Rows
from arb.replay.scoring import score_some


def score(obs, action):
    return -np.square(action).sum(-1)


def filled(capacity, actions, sampler=None):
    buffer = ReplayBuffer(capacity, sampler or ARB(0.5), seed=0)
    add(buffer, actions)
    return buffer


def add(buffer, actions):
    for number, action in enumerate(actions):
        buffer.add([0.0], [action], 1.0, [0.0], terminated=number % 3 == 2, truncated=False)


@pytest.mark.parametrize("background", [True, False])
@settings(max_examples=40, deadline=None)
@given(
    before=st.lists(st.floats(-2.0, 2.0, width=32), max_size=12),
    after=st.lists(st.floats(-2.0, 2.0, width=32), max_size=12),
    capacity=st.integers(2, 14),
    chunk=st.integers(1, 20),
)
def test_it_gives_the_weights_of_a_refresh_at_the_end(background, before, after, capacity, chunk):
    if not before + after:
        return
    one, other = filled(capacity, before), filled(capacity, before)
    with one.refresh_ahead(score, chunk=chunk, background=background) as refresh:
        add(one, after)
        refresh.finish()
    add(other, after)
    other.refresh(score, chunk=chunk)
    np.testing.assert_array_equal(one.sampler.probabilities(), other.sampler.probabilities())
    assert one.stats() == other.stats()


def test_rows_that_are_there_are_scored_on_another_thread_and_new_ones_here():
    buffer, asked = filled(20, [0.1] * 6), []

    def noting(obs, action):
        asked.append((threading.current_thread() is threading.main_thread(), float(action.max())))
        return score(obs, action)

    with buffer.refresh_ahead(noting, chunk=8) as refresh:
        refresh.wait()
        assert asked == [(False, pytest.approx(0.1))]
        add(buffer, [0.7] * 3)
        refresh.finish()
    assert asked[1:] == [(True, pytest.approx(0.7))]
    assert buffer.stats()["steps_since_refresh"] == 0


def test_what_goes_wrong_on_the_other_thread_is_raised_by_finish():
    buffer = filled(20, [0.1] * 6)
    before = buffer.sampler.probabilities()
    with buffer.refresh_ahead(lambda obs, action: np.full(len(obs), np.nan)) as refresh:
        refresh.wait()
        with pytest.raises(DataError, match="a log-likelihood must be finite"):
            refresh.finish()
    np.testing.assert_array_equal(buffer.sampler.probabilities(), before)
    with pytest.raises(DataError, match="needs a function"):
        buffer.refresh_ahead(3)


def test_leaving_the_block_waits_for_the_thread():
    buffer, gate = filled(20, [0.1] * 6), threading.Event()

    def slow(obs, action):
        gate.wait(5)
        return score(obs, action)

    threading.Timer(0.05, gate.set).start()
    with pytest.raises(KeyboardInterrupt), buffer.refresh_ahead(slow):
        raise KeyboardInterrupt
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("arb-refresh")]


def test_a_strategy_that_does_not_look_at_the_policy_is_never_asked():
    buffer = filled(20, [0.1] * 6, Uniform())
    with buffer.refresh_ahead(lambda *_: pytest.fail("asked")) as refresh:
        refresh.finish()
    buffer.sample(4)
    assert buffer.stats()["replay_volume"] == pytest.approx(4 / 6)
    with pytest.raises(DataError, match="an empty buffer cannot be refreshed"), Rows(5).refresh_ahead(lambda r: r) as r:
        r.finish()


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.integers(1, 12))
def test_some_rows_are_scored_in_calls_of_one_size(rows, chunk):
    sizes = []

    def known(asked):
        sizes.append(len(asked))
        return asked * 2.0

    np.testing.assert_array_equal(score_some(known, np.array(rows), chunk), 2.0 * np.array(rows))
    assert set(sizes) == {chunk}
