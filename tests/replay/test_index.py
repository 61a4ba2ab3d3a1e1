"""Rows without columns: what a host library's buffer stands on."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb import ARB, DataError, Mixed, ReplayBuffer, Uniform
from arb.replay.index import ReplayIndex


def test_streams_make_trajectories_by_hand():
    rows = ReplayIndex(8, Uniform(), seed=0)
    assert rows.extend([2, 1])[0].tolist() == [0, 1, 2]
    assert rows.append([0, 1], ends=[False, True])[0].tolist() == [3, 4]
    assert rows.append([0, 1], ends=[True, False])[0].tolist() == [5, 6]
    assert rows.episode_ids[:7].tolist() == [0, 0, 1, 2, 3, 2, 4]
    assert rows.next_index[:7].tolist() == [1, -1, -1, 5, -1, -1, -1]
    assert rows.is_online(np.arange(7)).tolist() == [False] * 3 + [True] * 4
    assert rows.close(1).tolist() == [6]
    assert rows.close(1).tolist() == []


@given(size=st.integers(1, 40), chunk=st.integers(1, 17))
def test_a_refresh_asks_for_living_rows_only_and_always_for_as_many(size, chunk):
    rows, asked = ReplayIndex(64, ARB(), seed=0), []
    rows.extend([size])
    numbers = np.arange(size, dtype=float)

    def score(chosen):
        asked.append(numbers[chosen])  # refuses what is not there
        return -asked[-1]

    rows.refresh(score, rows_per_call=chunk)
    assert {len(part) for part in asked} == {chunk}
    assert set(np.concatenate(asked)) == set(numbers)


@pytest.mark.parametrize("sampler", [Uniform, Mixed, ARB])
def test_a_copy_by_state_or_by_pickle_draws_the_same(sampler):
    def filled():
        rows = ReplayIndex(20, sampler(), seed=3)
        rows.extend([4, 6])
        rows.append([0])
        rows.refresh(lambda chosen: -np.arange(20.0)[chosen])
        return rows

    rows, restored = filled(), ReplayIndex(20, sampler(), seed=99)
    rows.sample_indices(7)
    restored.restore(*rows.state())
    pickled = pickle.loads(pickle.dumps(rows))
    for other in (restored, pickled):
        other.append([0], ends=[True])
    rows.append([0], ends=[True])
    expected = rows.sample_indices((5, 8)).tolist()
    assert restored.sample_indices((5, 8)).tolist() == expected
    assert pickled.sample_indices((5, 8)).tolist() == expected
    assert pickled.stats() == rows.stats()


def test_only_a_strategy_that_learns_is_given_columns():
    class Learner(Uniform):
        trainable = True

        def train(self, rows, gather, rng):
            batch = gather(rows)
            self.seen = (rows.tolist(), batch.obs.tolist(), batch.action.tolist())
            return 0.0

    class Other(Uniform):
        def train(self, rows, gather, rng):
            pytest.fail("this strategy does not learn")

    obs, action = np.arange(6.0)[:, None], -np.arange(6.0)[:, None]
    learner, other = ReplayIndex(6, Learner(), seed=0), ReplayIndex(6, Other(), seed=0)
    for rows in (learner, other):
        rows.extend([6])
        rows.train(np.array([4, 1]), lambda chosen: (obs[chosen], action[chosen]))
    assert learner.sampler.seen == ([4, 1], [[4.0], [1.0]], [[-4.0], [-1.0]])


def test_a_refresh_that_is_forgotten_is_called_for_once(monkeypatch):
    monkeypatch.setattr("arb.replay.index.PATIENCE", 6)
    never, once, quiet = ReplayIndex(50, ARB()), ReplayIndex(50, ARB()), ReplayIndex(50, Uniform())
    for rows in (never, once, quiet):
        rows.extend([9])  # past experience alone may be learned from without a refresh
        rows.sample_indices(1)
        for _ in range(3):
            rows.append([0, 1])
    quiet.sample_indices(1)
    once.refresh(lambda chosen: np.zeros(50)[chosen])
    once.append([0, 1, 2, 3, 4])
    once.sample_indices(1)
    once.append([0])
    for rows in (never, once):
        with pytest.warns(UserWarning, match="6 steps were added without a refresh, so ARB does not follow"):
            rows.sample_indices(1)
        rows.append([0])
        rows.sample_indices(1)  # a second warning would be an error


def test_steps_added_one_by_one_are_counted_too(monkeypatch):
    monkeypatch.setattr("arb.replay.index.PATIENCE", 6)
    buffer, here = ReplayBuffer(50, ARB(), seed=0), np.zeros(1, np.float32)
    for _ in range(6):
        buffer.add(here, here, 0.0, here, terminated=False)
    with pytest.warns(UserWarning, match="6 steps were added without a refresh"):
        buffer.sample_indices(1)


def test_steps_that_come_while_rows_are_scored_are_counted_as_not_weighed(monkeypatch):
    monkeypatch.setattr("arb.replay.index.PATIENCE", 6)
    rows = ReplayIndex(50, ARB())
    rows.append([0])

    def score(chosen):
        rows.append([0, 1, 2, 3])  # another thread's
        return np.zeros(1)

    rows.refresh(score, rows_per_call=1)
    rows.append([0])
    rows.sample_indices(1)  # five steps: not yet
    rows.append([0])
    with pytest.warns(UserWarning, match="6 steps were added without a refresh"):
        rows.sample_indices(1)


def test_draws_are_counted_from_the_last_refresh():
    rows = ReplayIndex(50, Uniform(), seed=0)
    rows.extend([10])
    rows.sample_indices((3, 5))
    rows.sample_indices(5)
    assert rows.stats()["replay_volume"] == pytest.approx(20 / 10)
    rows.refresh(lambda chosen: np.zeros(50)[chosen])
    rows.sample_indices(5)
    assert rows.stats()["replay_volume"] == pytest.approx(5 / 10)


def test_a_state_of_another_strategy_is_refused():
    rows = ReplayIndex(5, Uniform())
    with pytest.raises(DataError, match=r"sampler ARB\(.*\), this one has Uniform\(\)"):
        rows.restore(*ReplayIndex(5, ARB()).state())


def test_a_refresh_is_due_at_first_and_every_so_many_rows_also_after_restoring():
    rows = ReplayIndex(8, ARB("auto"), seed=0)
    rows.extend([2, 2])
    assert rows.is_due(100)
    rows.refresh(lambda chosen: np.zeros(4)[chosen])
    rows.append([0])
    again = ReplayIndex(8, ARB("auto"), seed=0)
    again.restore(*rows.state())
    for one in (rows, again):
        assert (one.is_due(2), one.is_due(1)) == (False, True)


@pytest.mark.parametrize("call", [lambda r: r.sample_indices(3), lambda r: r.refresh(lambda x: x), lambda r: r.stats()])
def test_empty_rows_say_so(call):
    with pytest.raises(DataError, match="an empty buffer cannot be"):
        call(ReplayIndex(3))


WRONG = {
    "float capacity": (
        lambda: ReplayIndex(1e6),
        DataError,
        "capacity must be a whole number, got 1000000.0: write 1000000",
    ),
    "no capacity": (lambda: ReplayIndex(0), DataError, "capacity must be at least 1, got 0"),
    "word as sampler": (lambda: ReplayIndex(5, "arb"), DataError, r"must be a strategy, such as arb.ARB.*got 'arb'"),
    "class as sampler": (lambda: ReplayIndex(5, ARB), DataError, r"class ARB: make one of it, ARB\(\)"),
    "float batch": (
        lambda: one_row().sample_indices(256.0),
        DataError,
        "a batch must be a whole number, got 256.0: write",
    ),
    "half a batch": (lambda: one_row().sample_indices((2, 0.5)), DataError, "whole number, got 0.5$"),
    "negative batch": (lambda: one_row().sample_indices(-1), DataError, "a batch must be at least 1, got -1"),
    "empty batch": (lambda: one_row().sample_indices((4, 0)), DataError, "a batch must be at least 1, got 0"),
}


def one_row():
    rows = ReplayIndex(5, Uniform(), seed=0)
    rows.extend([1])
    return rows


@pytest.mark.parametrize(("call", "kind", "said"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused_in_one_sentence(call, kind, said):
    with pytest.raises(kind, match=said):
        call()


def test_a_single_row_is_a_buffer():
    rows = ReplayIndex(1, Uniform(), seed=0)
    for stream in (0, 1, 1):
        rows.append([stream])
    assert rows.sample_indices(3).tolist() == [0, 0, 0]
    assert rows.close(0).tolist() == []
    assert rows.close(1).tolist() == [0]


def test_integers_of_any_kind_are_sizes():
    assert one_row().sample_indices(np.int64(3)).tolist() == [0, 0, 0]
    assert one_row().sample_indices([np.int32(1), 2]).tolist() == [[0, 0]]
    assert type(ReplayIndex(np.int64(7)).capacity) is int


class Listening(Uniform):
    def __init__(self):
        self.told = []

    def insert(self, rows):
        self.told.append(rows.tolist())


def test_a_strategy_hears_of_every_row_however_it_came():
    rows = ReplayIndex(6, Listening())
    rows.extend([2, 1])
    rows.append([0, 1])
    rows.append([0, 0], ends=[True, False])  # round the end of the ring
    rows.append([1])
    assert rows.sampler.told == [[0, 1, 2], [3, 4], [5, 0], [1]]


@pytest.mark.parametrize("lengths", [[[1000], [1000]], [[3, 250], [40, 70, 30]], [[100], [100], [30, 100]]])
def test_episodes_longer_than_the_ring_free_their_ids_once(lengths):
    index = ReplayIndex(100, Uniform(), seed=0)
    for some in lengths:
        rows, ids = index.extend(some)
        assert len(rows) == sum(some)
        assert len(set(ids.tolist())) == len(some)
    assert index.num_added == sum(sum(some) for some in lengths)
    alive, _, steps = index.members()
    assert len(alive) == 100
    last = np.repeat(np.arange(len(some)), some)[-100:]  # by hand: the last hundred rows of the last call
    assert steps.tolist() == np.unique(last, return_counts=True)[1].tolist()
    (row,), (new,) = index.append([0])
    others = np.delete(np.arange(100), row)
    assert new not in index.episode_ids[others]
    assert (index.episode_ids == new).sum() == 1
    taken = {int(number) for number in index.episode_ids}
    for env in range(1, 60):
        _, (more,) = index.append([env])
        assert more not in taken or (index.episode_ids == more).sum() == 1
        taken = {int(number) for number in index.episode_ids}


def test_loading_over_weighed_rows_forgets_them():
    rows = ReplayIndex(6, ARB(0.01), seed=0)
    rows.extend([3, 3])
    rows.refresh(lambda chosen: np.array([-1.0, -1, -1, -9, -9, -9])[chosen])
    rows.extend([3])  # in the place of the heaviest
    assert set(rows.sample_indices(200).tolist()) == set(range(6))


@pytest.mark.parametrize("capacity", [5, 6, 9, 40])
def test_links_follow_the_steps_of_any_environments(capacity):
    """Against lists of rows by trajectory, for environments that come and go in any order."""
    rng, rows, begun = np.random.default_rng(capacity), ReplayIndex(capacity, Uniform(), seed=0), 0
    held, open_ = {}, {}
    for _ in range(300):
        kind = rng.random()
        if kind < 0.1:
            lengths = rng.integers(1, 4, size=rng.integers(1, 3))[: 1 if capacity < 6 else 2]
            taken = rows.extend(lengths)[0].tolist()
            for length in lengths.tolist():
                new, taken = taken[:length], taken[length:]
                for row in new:
                    held[row] = begun
                begun += 1
        elif kind < 0.8:
            envs = rng.permutation(4)[: rng.integers(1, 4)].tolist()
            for env, row in zip(envs, rows.append(envs)[0].tolist(), strict=True):
                if env not in open_:
                    open_[env], begun = begun, begun + 1
                held[row] = open_[env]
        else:
            env = int(rng.integers(4))
            mine = open_.pop(env, None)
            in_order = [r for r in order(rows) if mine is not None and held[r] == mine]
            assert rows.close(env).tolist() == in_order
        chains = {}
        for row in order(rows):
            chains.setdefault(held[row], []).append(row)
        links = {a: b for chain in chains.values() for a, b in zip(chain, [*chain[1:], -1], strict=True)}
        assert {row: int(rows.next_index[row]) for row in links} == links
        slots = {name: {int(rows.episode_ids[row]) for row in chain} for name, chain in chains.items()}
        assert all(len(slot) == 1 for slot in slots.values())
        assert len(set.union(*slots.values(), set())) == len(slots)


def order(rows):
    return (np.arange(rows.oldest, rows.num_added) % rows.capacity).tolist()


def test_a_path_ends_in_minus_one():
    index = ReplayIndex(4, Uniform())
    index.extend([2])
    assert index.path(np.array([0, 1]), 4).tolist() == [[0, 1], [1, -1], [-1, -1], [-1, -1]]
