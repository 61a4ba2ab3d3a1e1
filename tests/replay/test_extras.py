"""Columns beside the usual ones: kept, sampled, saved and exported, and never mistaken for an argument."""

import numpy as np
import pytest

import arb
from arb import DataError, ReplayBuffer, Uniform

PAST = {
    "observations": np.arange(6.0)[:, None],
    "actions": np.zeros((6, 1)),
    "rewards": np.ones(6),
    "terminals": np.array([0, 0, 1, 0, 0, 1]),
    "log_prob": -np.arange(6.0),
    "sensors": {"qpos": np.arange(12.0).reshape(6, 2)},
    "name": np.array(list("abcdef")),
}


def step(buffer, t, **extras):
    buffer.add([10.0 + t], [0.0], 1.0, [11.0 + t], terminated=t == 2, **extras)


def test_columns_of_a_dataset_and_of_steps_are_sampled():
    buffer = ReplayBuffer(8, Uniform(), seed=0)
    buffer.load_dataset(PAST)
    step(buffer, 0, log_prob=-0.5, cost=np.array([1.0, 2.0]))
    step(buffer, 1)
    batch = buffer.gather(np.arange(8))
    assert list(batch.extras) == ["log_prob", "sensors/qpos", "cost"]
    np.testing.assert_array_equal(batch.extras["log_prob"], [0, -1, -2, -3, -4, -5, -0.5, np.nan])
    np.testing.assert_array_equal(batch.extras["sensors/qpos"][5:], [[10, 11], [np.nan] * 2, [np.nan] * 2])
    np.testing.assert_array_equal(batch.extras["cost"][5:], [[np.nan] * 2, [1, 2], [np.nan] * 2])
    assert buffer.sample((2, 3)).extras["sensors/qpos"].shape == (2, 3, 2)
    assert (
        buffer.storage.nbytes
        == sum(c.nbytes for c in (*buffer.storage.columns.values(), *batch.extras.values())) + 3 * 4
    )


def test_the_ring_overwrites_them():
    buffer = ReplayBuffer(3, Uniform(), seed=0)
    for t in range(3):
        step(buffer, t, tag=float(t))
    step(buffer, 3)
    step(buffer, 4, tag=4.0)
    np.testing.assert_array_equal(buffer.gather([0, 1, 2]).extras["tag"], [np.nan, 4.0, 2.0])


def test_several_environments_chunks_and_sequences_have_them():
    buffer = ReplayBuffer(20, Uniform(), seed=0)
    for t in range(3):
        at = np.array([[t], [t + 10.0]])
        buffer.add_batch(at, at, [1.0, 1.0], at + 1, [t == 2] * 2, tag=[t, t + 10], valid=[True, t < 2])
    assert buffer.gather(np.arange(5)).extras["tag"].tolist() == [0, 10, 1, 11, 2]
    assert buffer.gather([0, 3], chunk=3).extras["tag"].tolist() == [[0, 1, 2], [11, 11, 11]]
    assert buffer.gather([2], length=3, burn_in=1).extras["tag"].tolist() == [[0, 1, 2, 2]]
    assert buffer.gather([0], n_step=2).extras["tag"].tolist() == [0]


def test_they_are_saved_and_exported(tmp_path):
    buffer, other = (ReplayBuffer(10, Uniform(), seed=0) for _ in range(2))
    buffer.load_dataset(PAST)
    step(buffer, 0, cost=2.0)
    buffer.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    read = arb.load_dataset(tmp_path / "buffer.npz")
    for data in (other.to_dataset(), read):
        np.testing.assert_array_equal(data.extras["cost"], [np.nan] * 6 + [2.0])
        np.testing.assert_array_equal(data.extras["sensors/qpos"][:6], PAST["sensors"]["qpos"])
        assert data.extras["online"].tolist() == [False] * 6 + [True]
    again = ReplayBuffer(10, Uniform(), seed=0)
    again.load_dataset(other.to_dataset())
    assert list(again.gather([0]).extras) == ["log_prob", "sensors/qpos", "cost"]  # a buffer has `online` itself


def test_a_saved_buffer_without_its_dataset_brings_its_own_columns(tmp_path):
    buffer, other, plain = (ReplayBuffer(10, Uniform(), seed=0) for _ in range(3))
    for one in (buffer, other):
        one.load_dataset(PAST)
    step(buffer, 0, cost=2.0, log_prob=7.0)
    buffer.save(tmp_path / "since.npz", since=6)
    other.load(tmp_path / "since.npz")
    for name, column in buffer.gather(np.arange(7)).extras.items():
        np.testing.assert_array_equal(other.gather(np.arange(7)).extras[name], column)
    step(plain, 0, cost=[1.0, 2.0])
    buffer.save(tmp_path / "all.npz")
    with pytest.raises(DataError, match=r"all.npz: cost has shape \(\) per step, but the buffer holds \(2,\)"):
        plain.load(tmp_path / "all.npz")
    plain = ReplayBuffer(10, Uniform(), seed=0)
    step(plain, 0, other=1.0)
    plain.load(tmp_path / "all.npz")
    assert set(plain.gather([0]).extras) == {"log_prob", "sensors/qpos", "cost"}


def test_whole_numbers_that_are_missing_are_announced():
    buffer = ReplayBuffer(10, Uniform(), seed=0)
    step(buffer, 0, camera=7)
    with pytest.warns(UserWarning, match="the column 'camera' is 0 in rows that came without it"):
        step(buffer, 1)
    with pytest.warns(UserWarning, match="the column 'late' is 0"):
        step(buffer, 2, camera=8, late=True)
    assert buffer.gather([0, 1, 2]).extras["camera"].tolist() == [7, 0, 8]
    assert buffer.gather([0, 1, 2]).extras["late"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"truncate": True}, r"'truncate' cannot be a further column \(did you mean truncated\?\)"),
        ({"done": True}, r"'done' cannot be a further column \(did you mean done\?\)"),
        ({"weights": 1.0}, "'weights' cannot be a further column: give it another name"),
        ({"cost": "much"}, "cost must hold numbers, got dtype"),
        ({"cost": np.nan}, "cost has a value that is not finite in row 0"),
        ({"cost": [1.0, 2.0]}, r"cost has shape \(2,\) per step, but the buffer holds \(\)"),
        ({"cost": 1j}, "cost must hold numbers, got dtype complex"),
    ],
)
def test_what_cannot_be_a_column_is_refused_before_anything_changes(extras, message):
    buffer = ReplayBuffer(10, Uniform(), seed=0)
    step(buffer, 0, cost=1.0)
    with pytest.raises(DataError, match=message):
        step(buffer, 1, **extras)
    assert len(buffer) == 1
    step(buffer, 1, cost=2.0)


def test_one_chooses_the_columns_of_a_dataset():
    buffer = ReplayBuffer(20, Uniform(), seed=0)
    buffer.load_dataset(PAST, extras=["log_prob"])
    assert list(buffer.gather([0]).extras) == ["log_prob"]
    with pytest.raises(DataError, match="the dataset has no column qpos; it has log_prob, sensors/qpos, name"):
        buffer.load_dataset(PAST, extras=["qpos"])
    plain = ReplayBuffer(20, Uniform(), seed=0)
    plain.load_dataset(PAST, extras=())
    assert plain.gather([0]).extras == {}


# ---- origins ---------------------------------------------------------------------------------------------------------
def three_origins(sampler, capacity=20):
    buffer = ReplayBuffer(capacity, sampler, seed=0)
    buffer.load_dataset(PAST)
    buffer.load_dataset({name: column[:3] for name, column in PAST.items() if name != "sensors"}, origin="demos")
    for t in range(3):
        step(buffer, t, log_prob=0.0)
    step(buffer, 5, origin="corrections", log_prob=1.0)
    return buffer


def test_every_row_knows_its_origin(tmp_path):
    buffer = three_origins(Uniform())
    words = ["offline"] * 6 + ["demos"] * 3 + ["online"] * 3 + ["corrections"]
    names = np.array(buffer.index.origins)
    assert names[buffer.index.origin(np.arange(13))].tolist() == words
    assert buffer.to_dataset().extras["origin"].tolist() == words
    stats = buffer.stats()
    assert stats["demos_rows"] == stats["demos_share"] == pytest.approx(3 / 13)
    assert stats["corrections_share"] == pytest.approx(1 / 13)
    assert stats["offline_rows"] == pytest.approx(6 / 13)
    assert stats["online_rows"] == stats["online_share"] == pytest.approx(3 / 13)
    buffer.save(tmp_path / "buffer.npz")
    other = ReplayBuffer(20, Uniform(), seed=1)
    other.load(tmp_path / "buffer.npz")
    assert other.index.origins == buffer.index.origins
    assert other.stats() == pytest.approx(stats, nan_ok=True)
    step(other, 6, origin="corrections", log_prob=1.0)
    assert other.stats()["corrections_rows"] == pytest.approx(2 / 14)
    with pytest.raises(DataError, match="an origin is a word, such as 'demos', got 'two words'"):
        step(buffer, 6, origin="two words")


def test_a_batch_has_the_shares_that_were_asked_for():
    shares = {"offline": 0.25, "demos": 0.25, "online": 0.5}
    buffer = three_origins(arb.Mixed(shares))
    origin = buffer.index.origin(buffer.sample_indices((50, 10)))
    names = buffer.index.origins
    drawn = {name: (origin == code).sum(-1) for code, name in enumerate(names)}
    assert {name: set(counts) for name, counts in drawn.items() if name != "corrections"} == {
        "offline": {2}, "demos": {3}, "online": {5}  # 2.5 rows cannot be drawn
    }  # fmt: skip
    assert not drawn["corrections"].any()
    p = buffer.sampler.probabilities()
    np.testing.assert_allclose(p, [0.25 / 6] * 6 + [0.25 / 3] * 3 + [0.5 / 3] * 3 + [0.0])
    assert buffer.stats()["demos_share"] == pytest.approx(0.25)


def test_missing_origins_are_made_up_for_in_proportion():
    buffer = ReplayBuffer(20, arb.Mixed({"offline": 0.2, "demos": 0.2, "online": 0.6}), seed=0)
    buffer.load_dataset(PAST)
    step(buffer, 0, log_prob=1.0)
    np.testing.assert_allclose(buffer.sampler.probabilities(), [0.25 / 6] * 6 + [0.75])
    assert (buffer.sample_indices((9, 8)) == 6).sum(-1).tolist() == [6] * 9
    only = ReplayBuffer(20, arb.Mixed({"demos": 1.0}), seed=0)
    only.load_dataset(PAST)
    with pytest.raises(DataError, match=r"no row has an origin of Mixed.*the buffer holds offline, online"):
        only.sample(1)
    never = ReplayBuffer(20, arb.Mixed({"demos": 1.0, "offline": 0.0}), seed=0)
    never.load_dataset(PAST)
    np.testing.assert_allclose(never.sampler.probabilities(), 1 / 6)


def test_half_and_half_counts_all_past_data_as_offline():
    buffer = three_origins(arb.Mixed(0.5))
    np.testing.assert_allclose(buffer.sampler.probabilities(), [0.05] * 9 + [0.5 / 3] * 3 + [0.05])


@pytest.mark.parametrize("shares", [{}, {"offline": 0.5}, {"offline": -0.5, "online": 1.5}])
def test_shares_must_add_up(shares):
    with pytest.raises(DataError, match="the shares of all origins must not be negative and add up to 1"):
        arb.Mixed(shares)


# ---- episodes --------------------------------------------------------------------------------------------------------
def test_episodes_are_a_sequence():
    buffer = three_origins(Uniform())
    episodes = buffer.episodes()
    assert [len(episode) for episode in episodes] == [3, 3, 3, 3, 1]
    assert episodes[-2].observations.ravel().tolist() == [10, 11, 12]
    assert [len(episode) for episode in episodes[3:]] == [3, 1]
    with pytest.raises(IndexError):
        episodes[5]
    assert len(ReplayBuffer(3).episodes()) == 0


def test_episodes_are_removed_and_the_others_stay():
    buffer = three_origins(arb.ARB(0.5))
    buffer.refresh(lambda obs, action: -obs[:, 0])
    assert buffer.remove([0, -2]) == 6
    assert buffer.remove(0) == 3
    batch = buffer.gather(np.arange(4))
    assert batch.obs.ravel().tolist() == [0, 1, 2, 15]
    assert batch.next_obs.ravel()[:2].tolist() == [1, 2]
    np.testing.assert_allclose(batch.return_to_go[:3], [1 + 0.99 + 0.99**2, 1.99, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(buffer.sampler.probabilities(), 0.25)
    assert buffer.stats()["steps_since_refresh"] == 4
    step(buffer, 6, log_prob=1.0)  # continues the open episode, which stayed
    assert [len(episode) for episode in buffer.episodes()] == [3, 2]
    with pytest.raises(DataError, match="there are 2 episodes, 0 to 1; got 2"):
        buffer.remove(2)
    assert buffer.remove([]) == 0
    buffer.clear()
    assert len(buffer) == 0
    assert not buffer.index.open
    with pytest.raises(DataError, match="an empty buffer cannot be sampled"):
        buffer.sample(1)
    buffer.load_dataset(PAST)
    assert buffer.sample(5).obs.max() <= 5


def test_a_refresh_of_removed_rows_is_forgotten():
    buffer = three_origins(arb.ARB(0.5))

    def score(obs, action):
        if len(buffer) == 13:
            buffer.remove(0)
        return -obs[:, 0]

    buffer.refresh(score)
    assert buffer.index.refreshed_at is None
    np.testing.assert_allclose(buffer.sampler.probabilities(), 0.1)


def test_a_buffer_that_lost_episodes_cannot_leave_out_its_dataset(tmp_path):
    buffer, other = (ReplayBuffer(20, Uniform(), seed=0) for _ in range(2))
    for one in (buffer, other):
        one.load_dataset(PAST)
    buffer.remove(0)
    buffer.save(tmp_path / "buffer.npz", since=6)
    with pytest.raises(DataError, match="leaves out a dataset, and another one of the same size"):
        other.load(tmp_path / "buffer.npz")


def test_batches_one_after_the_other():
    buffer, other = three_origins(Uniform()), three_origins(Uniform())
    for batch in buffer.batches(3, 4, n_step=2):
        np.testing.assert_array_equal(batch.reward, other.sample(4, n_step=2).reward)
    assert list(buffer.batches(0, 4)) == []


def test_a_buffer_in_files_has_none_of_these(tmp_path):
    buffer = ReplayBuffer(20, Uniform(), seed=0, storage=f"memmap:{tmp_path / 'files'}")
    assert buffer.load_dataset(PAST).rows == 6
    assert buffer.gather([0]).extras == {}
    only = "a buffer in files keeps no further columns and no origins of your own"
    for wrong in ({"cost": 1.0}, {"origin": "demos"}):
        with pytest.raises(DataError, match=only):
            step(buffer, 0, **wrong)
    for wrong in ({"extras": ["log_prob"]}, {"origin": "demos"}):
        with pytest.raises(DataError, match=only):
            buffer.load_dataset(PAST, **wrong)
    with pytest.raises(DataError, match="episodes cannot be removed from a buffer in files"):
        buffer.clear()
    step(buffer, 0)
    assert len(buffer) == 7
