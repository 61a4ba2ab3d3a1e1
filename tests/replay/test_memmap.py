"""A buffer in memory-mapped files is the buffer in memory, opens again as it was, and survives kills."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from arb import ARB, DataError, Mixed, ReplayBuffer, Uniform
from arb.replay import storage as module
from tests.replay.test_restore import data


def step(x, env=0, dicts=False):
    """One step of an endless walk, whose every part follows from where it begins; episodes have seven steps."""
    at, to = np.array([x, 100.0 * env], np.float32), np.array([x + 1, 100.0 * env], np.float32)
    obs, after = ({"at": at, "n": at[:1]}, {"at": to, "n": to[:1]}) if dicts else (at, to)
    return obs, np.array([x / 2], np.float32), float(x), after, False, x % 7 == 6


def walk(buffer, n, start=0, **kwargs):
    for x in range(start, start + n):
        buffer.add(*step(x, **kwargs))


def opened(folder, capacity=50, sampler=None, **kwargs):
    return ReplayBuffer(capacity, sampler or Uniform(), seed=0, storage=f"memmap:{folder}", **kwargs)


def content(buffer):
    """Every row in the order in which it was added."""
    rows = np.argsort(buffer.index.insertion_order(np.arange(len(buffer))))
    batch = buffer.gather(rows)
    parts = [*batch[:6], buffer.index.is_online(rows)]
    return [np.concatenate(list(part.values()), axis=1) if isinstance(part, dict) else part for part in parts]


def assert_same(one, other):
    for mine, theirs in zip(content(one), content(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kwargs", [{}, {"discontinuity": None}, {"sampler": ARB("auto")}], ids=str)
@pytest.mark.parametrize("dicts", [False, True])
def test_files_hold_what_memory_holds(tmp_path, kwargs, dicts):
    buffers = [ReplayBuffer(50, seed=0, **copy.deepcopy({"sampler": Uniform()} | kwargs), storage=place)
               for place in ("memory", f"memmap:{tmp_path / 'b'}")]  # fmt: skip
    for buffer in buffers:
        walk(buffer, 133, dicts=dicts)
        buffer.refresh(lambda obs, action: -action[:, 0])
    assert_same(*buffers)
    one, other = (buffer.sample((3, 64), n_step=2) for buffer in buffers)
    np.testing.assert_array_equal(one.action, other.action)
    np.testing.assert_array_equal(one.reward, other.reward)


@pytest.mark.parametrize("steps", [0, 5, 7, 49, 50, 51, 133])
def test_a_restart_opens_the_same_rows(tmp_path, steps):
    memory, buffer = ReplayBuffer(50, Uniform()), opened(tmp_path / "b")
    walk(memory, steps)
    walk(buffer, steps)
    del buffer
    buffer = opened(tmp_path / "b")
    assert buffer.index.num_added == steps
    memory.end_episode()  # a restart cuts off what was open
    if steps:
        assert_same(memory, buffer)
    walk(memory, 30, start=700)
    walk(buffer, 30, start=700)
    assert_same(memory, buffer)


def test_a_restart_knows_datasets_origins_and_their_ends(tmp_path):
    memory, buffer = ReplayBuffer(90, Mixed()), opened(tmp_path / "b", 90, Mixed())
    for each in (memory, buffer):
        each.load_dataset(data(40))
        each.add_batch(np.ones((3, 3)), np.ones((3, 2)), np.ones(3), np.zeros((3, 3)), np.ones(3, bool))
        each.load_dataset(data(20, seed=1), origin="online")
    del buffer, each
    buffer = opened(tmp_path / "b", 90, Mixed())
    assert_same(memory, buffer)
    assert buffer.index.spans(online=False)[1].tolist() == memory.index.spans(online=False)[1].tolist()
    assert (buffer.sample(100).obs.sum(), buffer._offline) != (0, 0)
    with pytest.raises(DataError, match="past data would be overwritten"):
        buffer.load_dataset(data(40), origin="online")


def test_opening_copies_no_column(tmp_path):
    buffer = opened(tmp_path / "b")
    walk(buffer, 20)
    del buffer
    buffer = opened(tmp_path / "b")
    assert not any(column.flags.owndata for column in buffer.storage.columns.values())
    place = buffer.storage.columns["reward"]
    place[3] = 99.0
    del buffer, place
    assert opened(tmp_path / "b").gather([3]).reward == 99.0


def test_with_save_a_restart_draws_what_the_buffer_would_have_drawn(tmp_path):
    def sampled(buffer):
        batches = [buffer.sample(8)]
        walk(buffer, 10, start=60)
        return [part for batch in [*batches, buffer.sample(20)] for part in batch]

    buffer = opened(tmp_path / "b", sampler=ARB(0.5))
    walk(buffer, 60)
    buffer.refresh(lambda obs, action: -action[:, 0] / 9)
    buffer.sample(8)
    buffer.save(tmp_path / "state.npz")
    assert (tmp_path / "state.npz").stat().st_size < 20_000
    files = {path: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    expected = sampled(buffer)
    del buffer
    with pytest.raises(DataError, match="saved with 60 rows, and the files have 70"):
        opened(tmp_path / "b", sampler=ARB(0.5)).load(tmp_path / "state.npz")
    for path, before in files.items():
        path.write_bytes(before)
    again = opened(tmp_path / "b", sampler=ARB(0.5))
    again.load(tmp_path / "state.npz")
    for mine, theirs in zip(sampled(again), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# ---- mistakes --------------------------------------------------------------------------------------------------------
def test_mistakes_get_one_line(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="storage must be 'memory' or 'memmap:FOLDER'"):
        ReplayBuffer(5, storage="memmap")
    with pytest.raises(DataError, match="storage must be"):
        ReplayBuffer(5, storage="disk:here")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="holds other files"):
        opened(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        opened(tmp_path / "file")
    buffer = opened(tmp_path / "b")
    walk(buffer, 3)
    with pytest.raises(DataError, match="in use"):
        opened(tmp_path / "b")
    with pytest.raises(DataError, match="cannot be copied"):
        copy.deepcopy(buffer)
    del buffer
    with pytest.raises(DataError, match="made with capacity=50, and this buffer has capacity=60"):
        opened(tmp_path / "b", 60)
    with pytest.raises(DataError, match=r"made with gamma=0\.99"):
        opened(tmp_path / "b", gamma=0.5)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: SimpleNamespace(free=100))
    with pytest.raises(DataError, match="lower the capacity"):
        walk(opened(tmp_path / "full"), 1)


@pytest.mark.parametrize("name", ["column0", "column3", "final0"])
def test_a_file_that_was_cut_off_is_refused(tmp_path, name):
    buffer = opened(tmp_path / "b")
    walk(buffer, 30)
    del buffer
    os.truncate(tmp_path / "b" / f"{name}.bin", 8)
    with pytest.raises(DataError, match=rf"{name}\.bin is damaged"):
        opened(tmp_path / "b")


@pytest.mark.parametrize("columns", [[], 5, [["obs", [2], "O"]], [["obs", [-2], "<f4"]], [["../x", [2], "nonsense"]]])
def test_a_description_that_was_changed_is_refused(tmp_path, columns):
    buffer = opened(tmp_path / "b")
    walk(buffer, 3)
    del buffer
    path = tmp_path / "b" / "buffer.json"
    said = json.loads(path.read_text())
    plain = [column for column in said["columns"] if column[0] != "obs"]
    said["columns"] = plain + columns if columns and columns != 5 else columns
    path.write_text(json.dumps(said))
    with pytest.raises(DataError, match="is damaged"):
        opened(tmp_path / "b")
    path.write_text("7")
    with pytest.raises(DataError, match="is damaged"):
        opened(tmp_path / "b")


def test_an_episode_that_cannot_be_is_refused(tmp_path):
    buffer = opened(tmp_path / "b")
    walk(buffer, 3)
    for number, said in ((-1, "is damaged"), (40, "final0.bin is damaged")):
        buffer.storage.columns["episode_id"][1] = number
        del buffer
        with pytest.raises(DataError, match=said):
            opened(tmp_path / "b")
        buffer = SimpleNamespace(storage=module.Storage(50, folder=tmp_path / "b"))
        buffer.storage.columns["episode_id"] = buffer.storage.files.array("column5", 50, (), np.int32)


# ---- kills -----------------------------------------------------------------------------------------------------------
class Killed(BaseException):
    pass


def three_calls(buffer, x):
    """Steps of one environment, of three others, and of the first again."""
    yield buffer.add(*step(x))
    yield buffer.add_batch(*(np.array(part) for part in zip(*(step(x, env) for env in (1, 2, 3)), strict=True)),
                           envs=[1, 2, 3])  # fmt: skip
    yield buffer.add(*step(x + 1))


@pytest.mark.parametrize("steps", [0, 10, 63])
def test_a_stop_between_any_two_writes_loses_at_most_the_last_call(tmp_path, steps):
    """Every assignment to an array of the files is a place to stop, in the middle of it."""
    writes, stop = 0, -1

    class Watched(np.ndarray):
        def __setitem__(self, key, value):
            nonlocal writes
            writes += 1
            if writes == stop:
                if isinstance(key, slice):
                    half = slice(key.start, ((key.start or 0) + key.stop) // 2)
                    super().__setitem__(half, np.broadcast_to(value, self[key].shape)[: len(self[half])])
                raise Killed
            super().__setitem__(key, value)

    def watched(arrays):
        return {name: array.view(Watched) for name, array in arrays.items()}

    for at in range(1, 75):
        buffer, done, writes, stop = opened(tmp_path / str(at)), 0, 0, -1
        walk(buffer, steps)
        held = buffer.storage
        held.columns, held._final, held._log = watched(held.columns), watched(held._final), watched(held._log)
        held._counts, writes, stop = held._counts.view(Watched), 0, at
        try:
            for _ in three_calls(buffer, steps):
                done += 1
        except Killed:
            pass
        del buffer, held
        buffer, expected = opened(tmp_path / str(at)), ReplayBuffer(50, Uniform())
        added = (0, 1, 4, 5).index(buffer.index.num_added - steps)
        assert done <= added <= done + 1
        walk(expected, steps)
        for _ in zip(range(added), three_calls(expected, steps), strict=False):
            pass
        for env in range(4):
            expected.end_episode(env=env)
        if len(expected):
            assert_same(expected, buffer)
        del buffer
    assert done == 3


ENDLESS = """
import sys
from tests.replay.test_memmap import opened, several
buffer = opened(sys.argv[1], autoreset="disabled")
print("open", flush=True)
several(buffer, buffer.index.num_added // 3)
"""


def several(buffer, first=0, steps=10**9):
    """Three environments whose episodes end at different times."""
    for x in range(first, first + steps):
        each = [step(x, env) for env in range(3)]
        columns = [np.array(part) for part in zip(*each, strict=True)]
        columns[5] = np.array([(x + env) % 5 == 4 for env in range(3)])
        buffer.add_batch(*columns)


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_step(tmp_path):
    rng, before = np.random.default_rng(0), 0
    for _ in range(12):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path / "b")], stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"open\n"
        time.sleep(rng.uniform(0.01, 0.3))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        buffer = opened(tmp_path / "b", autoreset="disabled")
        assert buffer.index.num_added % 3 == 0
        assert buffer.index.num_added > before
        before = buffer.index.num_added
        rows = np.argsort(buffer.index.insertion_order(np.arange(len(buffer))))
        batch = buffer.gather(rows)
        x = np.repeat(np.arange(before // 3), 3)[-50:]
        np.testing.assert_array_equal(batch.obs[:, 0], x)
        np.testing.assert_array_equal(batch.next_obs[:, 0], x + 1)
        np.testing.assert_array_equal(batch.next_obs[:, 1], batch.obs[:, 1])
        np.testing.assert_array_equal(batch.reward, x)
        np.testing.assert_array_equal(batch.action[:, 0], x / 2)
        assert np.isfinite(batch.return_to_go).all()
        del buffer
