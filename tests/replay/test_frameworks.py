"""Batches as arrays of other frameworks, and batches that a thread prepares."""

import threading

import numpy as np
import pytest

from arb import DataError, ReplayBuffer, Uniform


def filled(dicts=False):
    buffer = ReplayBuffer(20, Uniform(), seed=0)
    for t in range(20):
        obs, after = np.full(3, t, np.float32), np.full(3, t + 1, np.float32)
        ends = t % 5 == 4
        seen = ({"a": obs, "b": obs[:1]}, {"a": after, "b": after[:1]}) if dicts else (obs, after)
        buffer.add(seen[0], np.ones(2, np.float32), float(t), seen[1], False, ends, log_prob=-float(t))
    return buffer


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("options", [{}, {"chunk": 2}, {"length": 3}], ids=str)
def test_every_part_of_a_batch_is_converted(name, options):
    framework = pytest.importorskip(name)
    array = framework.Tensor if name == "torch" else framework.Array
    batch = filled(dicts=True).sample(8, **options)
    there = batch.to(framework)
    assert type(there) is type(batch)
    for part, before in zip(there, batch, strict=True):
        for key in before if isinstance(before, dict) else [None]:
            new, old = (part, before) if key is None else (part[key], before[key])
            assert isinstance(new, array)
            np.testing.assert_array_equal(np.asarray(new), old)


def test_torch_shares_the_memory_unless_there_is_a_device():
    torch = pytest.importorskip("torch")
    batch = filled().sample(8)
    shared, moved = batch.to(torch), batch.to(torch, "meta")
    batch.reward[0] = 77.0
    assert float(shared.reward[0]) == 77.0
    assert moved.obs.device.type == "meta"
    assert moved.extras["log_prob"].device.type == "meta"


def test_jax_shares_memory_that_is_aligned():
    jax = pytest.importorskip("jax")
    batch = filled().sample((200, 64))
    there = batch.to(jax, jax.devices("cpu")[0])
    pairs = [(batch.obs, there.obs), (batch.next_obs, there.next_obs), (batch.action, there.action)]
    for ours, theirs in pairs:
        if ours.ctypes.data % 64 == 0:
            assert theirs.unsafe_buffer_pointer() == ours.ctypes.data


@pytest.mark.parametrize("wrong", [np, "torch", None])
def test_other_frameworks_get_one_line(wrong):
    with pytest.raises(DataError, match="torch or jax, the modules"):
        filled().sample(2).to(wrong)


def test_prefetched_batches_are_the_same():
    one, other = filled(), filled()
    ahead = list(one.batches(5, 16, prefetch=True, n_step=2))
    for mine, theirs in zip(ahead, other.batches(5, 16, n_step=2), strict=True):
        np.testing.assert_array_equal(mine.reward, theirs.reward)
    assert len(ahead) == 5
    assert list(one.batches(0, 16, prefetch=True)) == []
    np.testing.assert_array_equal(one.sample(9).reward, other.sample(9).reward)  # none was drawn too many


def test_the_next_batch_is_drawn_while_one_is_in_use():
    buffer, drawn = filled(), threading.Semaphore(0)
    sample = buffer.sample
    buffer.sample = lambda *a, **k: (sample(*a, **k), drawn.release())[0]
    batches = buffer.batches(3, 4, prefetch=True)
    next(batches)
    assert drawn.acquire(timeout=30)
    assert drawn.acquire(timeout=30)  # the second, though nobody has asked for it
    batches.close()


def test_a_mistake_in_the_thread_reaches_the_caller():
    with pytest.raises(DataError, match="n_step"):
        next(filled().batches(3, 4, prefetch=True, n_step=0))


def test_batches_are_converted_in_the_thread():
    torch = pytest.importorskip("torch")
    for batch in filled().batches(2, 4, to=torch, device="meta", prefetch=True):
        assert batch.obs.device.type == "meta"
