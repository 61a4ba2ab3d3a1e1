import warnings

import numpy as np
import pytest

from arb import ARB, Batch, DataError, Mixed, ReplayBuffer, Uniform


def uniform(capacity=100, **kwargs):
    return ReplayBuffer(capacity, Uniform(), seed=0, **kwargs)


def everything(buffer) -> Batch:
    return buffer.gather(np.arange(len(buffer)))


# ---- loading ----------------------------------------------------------------------------------------------------


def test_loading_by_hand():
    buffer = uniform(gamma=0.5)
    loaded = buffer.load_dataset({
        "observations": np.array([[0.0], [1.0], [10.0], [11.0], [12.0]]),
        "actions": np.array([[0.0], [0.1], [0.2], [0.3], [0.4]]),
        "rewards": np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
        "terminals": np.array([0, 1, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1]),
    })  # fmt: skip
    # the last step was cut off and nobody knows where it led: it cannot be bootstrapped, but it is where its
    # predecessor led to, and its reward counts in the returns
    assert loaded == (4, 2, 1)
    batch = everything(buffer)
    assert batch.obs.ravel().tolist() == [0, 1, 10, 11]
    assert batch.next_obs.ravel().tolist() == [1, 1, 11, 12]
    assert batch.mask.tolist() == [1, 0, 1, 1]
    assert batch.return_to_go.tolist() == [2.0, 2.0, 12.0, 16.0]


def test_known_next_observations_keep_every_step():
    buffer = uniform()
    loaded = buffer.load_dataset({
        "observations": np.array([[0.0], [1.0], [10.0]]),
        "next_observations": np.array([[1.0], [2.0], [11.0]]),
        "actions": np.zeros((3, 1)),
        "rewards": np.zeros(3),
        "terminals": np.zeros(3),
        "timeouts": np.array([0, 1, 1]),
    })  # fmt: skip
    assert loaded == (3, 2, 0)
    assert everything(buffer).next_obs.ravel().tolist() == [1, 2, 11]
    assert everything(buffer).mask.tolist() == [1, 1, 1]  # a truncated step bootstraps


def test_a_terminal_inside_a_trajectory_ends_its_return_only():
    buffer = uniform(gamma=1.0)
    buffer.load_dataset({
        "observations": np.arange(4.0)[:, None],
        "actions": np.zeros((4, 1)),
        "rewards": np.array([1.0, 1.0, 1.0, 1.0]),
        "terminals": np.array([0, 1, 0, 1]),
        "episode_ids": np.zeros(4, int),
    })  # fmt: skip
    batch = everything(buffer)
    assert batch.return_to_go.tolist() == [2, 1, 2, 1]
    assert batch.next_obs.ravel().tolist() == [1, 2, 3, 3]
    assert buffer.stats()["trajectories"] == 1


def test_an_episode_of_which_nothing_can_be_used_vanishes():
    buffer = uniform()
    data = {"observations": np.zeros((1, 1)), "actions": np.zeros((1, 1)), "rewards": [0.0], "terminals": [0]}
    assert buffer.load_dataset(data) == (0, 0, 1)
    assert len(buffer) == 0


# ---- adding -----------------------------------------------------------------------------------------------------


def test_the_end_of_an_episode_by_hand():
    buffer = uniform(gamma=0.5)
    buffer.add([0.0], [0.0], 1.0, [1.0], terminated=False)
    buffer.add([1.0], [0.0], 2.0, [2.0], terminated=False)
    assert everything(buffer).return_to_go.tolist() == [-np.inf, -np.inf]
    assert everything(buffer).next_obs.ravel().tolist() == [1.0, 2.0]
    buffer.add([2.0], [0.0], 4.0, [3.0], terminated=False, truncated=True)
    buffer.add([50.0], [0.0], 0.0, [51.0], terminated=False)
    batch = everything(buffer)
    assert batch.return_to_go.tolist() == [3.0, 4.0, 4.0, -np.inf]
    assert batch.next_obs.ravel().tolist() == [1.0, 2.0, 3.0, 51.0]
    assert batch.mask.tolist() == [1, 1, 1, 1]


def test_several_environments_have_trajectories_of_their_own():
    buffer = uniform(autoreset="disabled")
    for t in range(3):
        buffer.add_batch(
            obs=np.array([[t], [100.0 + t]]),
            action=np.zeros((2, 1)),
            reward=[1.0, 10.0],
            next_obs=np.array([[t + 1], [101.0 + t]]),
            terminated=[False, t == 1],
        )
        if t == 1:
            buffer.add([500.0], [0.0], 0.0, [501.0], terminated=True, env=7)
    batch = everything(buffer)
    assert batch.obs.ravel().tolist() == [0, 100, 1, 101, 500, 2, 102]
    assert batch.next_obs.ravel().tolist() == [1, 101, 2, 102, 501, 3, 103]
    assert np.isneginf(batch.return_to_go).tolist() == [True, False, True, False, False, True, True]
    assert buffer.stats()["trajectories"] == 4


def test_rows_marked_invalid_are_passed_over():
    buffer = uniform()
    obs = np.array([[0.0], [1.0], [2.0]])
    buffer.add_batch(obs, np.zeros((3, 1)), np.zeros(3), obs + 1, np.zeros(3), valid=[True, False, True])
    assert everything(buffer).obs.ravel().tolist() == [0, 2]
    buffer.add_batch(obs, np.zeros((3, 1)), np.zeros(3), obs + 1, np.zeros(3), valid=[False] * 3)
    assert len(buffer) == 2


def test_a_jump_without_a_flag_starts_a_trajectory_and_is_said_once():
    buffer = uniform()
    buffer.add([0.0], [0.0], 1.0, [1.0], terminated=False)
    with pytest.warns(UserWarning, match="environment 0 moved to another .* truncated=True when you reset"):
        buffer.add([5.0], [0.0], 1.0, [6.0], terminated=False)
    buffer.add([9.0], [0.0], 1.0, [10.0], terminated=False)
    assert everything(buffer).next_obs.ravel().tolist() == [1.0, 6.0, 10.0]
    assert buffer.stats()["trajectories"] == 3


def test_jumps_can_be_allowed_and_keep_every_next_observation(tmp_path):
    buffer = uniform(discontinuity=None)
    for x in (0.0, 5.0, 9.0):
        buffer.add([x], [0.0], 1.0, [x + 1.0], terminated=False)
    assert everything(buffer).next_obs.ravel().tolist() == [1.0, 6.0, 10.0]
    assert buffer.gather([0], n_step=2).next_obs.ravel().tolist() == [6.0]
    assert buffer.stats()["trajectories"] == 1
    past = {"observations": [[0.0], [1.0], [7.0]], "actions": np.zeros((3, 1)), "rewards": np.zeros(3)}
    buffer.load_dataset(past | {"terminals": [0, 0, 1], "timeouts": [0, 1, 0]})
    assert everything(buffer).next_obs.ravel().tolist() == [1.0, 6.0, 10.0, 1.0, 7.0]
    buffer.save(tmp_path / "buffer.npz")
    again = uniform(discontinuity=None)
    again.load(tmp_path / "buffer.npz")
    np.testing.assert_array_equal(everything(again).next_obs, everything(buffer).next_obs)


def test_a_second_dataset_does_not_overwrite_the_first():
    past = {"observations": np.zeros((4, 1)), "actions": np.zeros((4, 1)), "rewards": np.arange(4.0)}
    past["terminals"] = np.arange(4) == 3
    buffer = ReplayBuffer(7, Uniform(), autoreset="disabled")
    buffer.load_dataset(past)
    with pytest.raises(DataError, match="4 rows but the buffer a capacity of 7 and 4 rows, so past data would be"):
        buffer.load_dataset(past)
    assert len(buffer) == 4
    with pytest.warns(UserWarning, match="overwrite offline rows"):
        buffer.load_dataset(past, origin="online")
    for _ in range(3):  # the rest of the first
        buffer.add([0.0], [0.0], 0.0, [0.0], True)
    buffer.load_dataset(past)
    assert buffer.stats()["online_rows"] == pytest.approx(3 / 7)


def test_mistakes_at_the_front_door_are_said_in_one_line():
    for gamma in (1.5, -0.1, np.nan):
        with pytest.raises(DataError, match="gamma must lie between 0 and 1"):
            ReplayBuffer(5, gamma=gamma)
    for seed in ("x", -1, 0.5):
        with pytest.raises(DataError, match="seed must be a whole number"):
            ReplayBuffer(5, seed=seed)
    buffer = uniform()
    buffer.add([0.0], [0.0], 1.0, [0.0], True)
    assert buffer.gather(0).reward == 1.0
    with pytest.raises(DataError, match=r"rng must be np.random.default_rng\(seed\), got RandomState"):
        buffer.sample(1, rng=np.random.RandomState(0))
    weighed = ReplayBuffer(5)
    weighed.add([0.0], [0.0], 1.0, [0.0], True)
    with pytest.raises(DataError, match="rows_per_call must be at least 1, got 0"):
        weighed.refresh(lambda obs, action: np.zeros(len(obs)), rows_per_call=0)

    def linear(obs, action):
        raise TypeError("linear(): argument 'input' (position 1) must be Tensor, not numpy.ndarray")

    with pytest.raises(DataError, match=r"begin it with obs = torch\.as_tensor"):
        weighed.refresh(linear)
    with pytest.raises(TypeError, match="ufunc"):
        weighed.refresh(lambda obs, action: obs + "x")


def test_images_stay_bytes_and_dicts_stay_dicts():
    buffer = uniform()
    for t in range(3):
        obs, after = ({"image": np.full((4, 4, 3), x, np.uint8), "pose": np.full(2, float(x))} for x in (t, t + 1))
        buffer.add(obs, np.int64(t % 2), 0.0, after, terminated=t == 2)
    batch = buffer.sample((5, 8))
    assert batch.obs["image"].dtype == np.uint8
    assert batch.obs["image"].shape == (5, 8, 4, 4, 3)
    assert batch.next_obs["pose"].shape == (5, 8, 2)
    assert batch.action.dtype == np.int64
    assert (batch.next_obs["image"][..., 0, 0, 0] == batch.obs["image"][..., 0, 0, 0] + 1).all()


def test_the_ring_wraps_through_the_middle_of_an_episode():
    buffer = ReplayBuffer(10, ARB(), seed=0)
    buffer.load_dataset({
        "observations": np.arange(8.0)[:, None],
        "actions": np.zeros((8, 1)),
        "rewards": np.ones(8),
        "terminals": np.array([0, 0, 0, 0, 0, 0, 0, 1]),
    })  # fmt: skip
    buffer.add([100.0], [0.0], 0.0, [101.0], terminated=False)
    buffer.add([101.0], [0.0], 0.0, [102.0], terminated=False)
    with pytest.warns(UserWarning, match="overwrite offline rows from now on: a capacity above 10"):
        buffer.add([102.0], [0.0], 0.0, [103.0], terminated=False)
    for t in range(3, 6):
        buffer.add([100.0 + t], [0.0], 0.0, [101.0 + t], terminated=t == 5)
    batch = buffer.sample(2000)
    assert set(batch.obs.ravel().tolist()) == {4, 5, 6, 7, 100, 101, 102, 103, 104, 105}
    inner = batch.mask == 1
    assert (batch.next_obs[inner] == batch.obs[inner] + 1).all()
    stats = buffer.stats()
    assert stats["online_rows"] == 0.6  # by origin: rows 0 to 3 of the ring are online now
    assert stats["online_share"] == pytest.approx(0.6)
    assert stats["drawn_online_share"] == pytest.approx(0.6, abs=0.05)


# ---- refresh ----------------------------------------------------------------------------------------------------


def many(n=1000, length=50):
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(n, 3)),
        "actions": rng.uniform(-1, 1, (n, 2)),
        "rewards": rng.normal(size=n),
        "terminals": np.arange(n) % length == length - 1,
    }


@pytest.mark.parametrize("capacity", [1000, 1003, 5000])
@pytest.mark.parametrize("chunk", [64, 999, 4096])
def test_a_score_is_called_with_one_size_and_covers_every_row(capacity, chunk):
    buffer = ReplayBuffer(capacity, ARB(0.5, level="transition"), seed=0)
    buffer.load_dataset(many())
    sizes = set()

    def score(obs, action):
        sizes.add((len(obs), len(action)))
        return obs[:, 0] - 3.0

    buffer.refresh(score, rows_per_call=chunk)
    assert sizes == {(min(chunk, capacity), min(chunk, capacity))}
    expected = np.exp((buffer.storage.columns["obs"][:1000, 0]) / 0.5)
    np.testing.assert_allclose(buffer.sampler.probabilities(), expected / expected.sum(), rtol=1e-4)


def test_scores_may_come_from_other_frameworks():
    torch = pytest.importorskip("torch")
    jnp = pytest.importorskip("jax.numpy")
    weight = torch.nn.Parameter(torch.ones(3))
    scores = {
        "numpy": lambda obs, action: obs.sum(-1) - 5.0,
        "torch": lambda obs, action: torch.as_tensor(obs) @ weight - 5.0,
        "torch, a column": lambda obs, action: (torch.as_tensor(obs) @ weight - 5.0)[:, None],
        "jax": lambda obs, action: jnp.asarray(obs).sum(-1) - 5.0,
    }
    found = []
    for score in scores.values():
        buffer = ReplayBuffer(1000, seed=0)
        buffer.load_dataset(many())
        buffer.refresh(score)
        found.append(buffer.sampler.probabilities())
    for p in found[1:]:
        np.testing.assert_allclose(p, found[0], rtol=1e-4)


def test_strategies_that_do_not_look_at_the_policy_never_call_it():
    for sampler in (Uniform(), Mixed()):
        buffer = ReplayBuffer(1000, sampler, seed=0)
        buffer.load_dataset(many())
        buffer.refresh(lambda obs, action: pytest.fail("called"))


def test_statistics_tell_a_temperature_that_is_too_low():
    figures = {}
    for temperature in (0.02, 0.5, 100.0):
        buffer = ReplayBuffer(2000, ARB(temperature), seed=0)
        buffer.load_dataset(many(length=10))
        buffer.refresh(lambda obs, action: 4.0 * obs[:, 0] - 10.0)
        figures[temperature] = buffer.stats()
    low, high = figures[0.02], figures[100.0]
    assert high["effective_share"] > 0.99
    assert high["entropy"] > 0.999
    assert low["effective_rows"] < 0.05 * high["effective_rows"]
    assert low["top_trajectories"] > 0.9 > 0.05 > high["top_trajectories"]
    # a score of 4x - 10 is at the lower bound of -12 where x <= -0.5
    expected = (many(length=10)["observations"][:, 0] <= -0.5).mean()
    assert low["clipped_low"] == pytest.approx(expected, abs=1e-3)
    assert low["clipped_high"] == 0.0
    assert low["steps_since_refresh"] == 0.0


def test_age_by_hand():
    buffer = uniform()
    buffer.load_dataset(many(n=11, length=11))
    assert buffer.stats()["age"] == pytest.approx(5.0)  # the mean of 0..10


# ---- saving -----------------------------------------------------------------------------------------------------


def used_buffer(sampler):
    buffer = ReplayBuffer(1200, sampler, seed=3)
    buffer.load_dataset(many())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the buffer is full")
        add_steps(buffer)
    return buffer


def add_steps(buffer):
    for t in range(300):
        start = t + 1000 * (t >= 100)
        buffer.add(np.full(3, start), np.zeros(2), 0.0, np.full(3, start + 1), terminated=False, truncated=t == 99)
        if t == 100:
            buffer.refresh(lambda obs, action: np.cos(obs[:, 0]) - 3.0)


STRATEGIES = [Uniform, Mixed, ARB, lambda: ARB(level="transition"), lambda: ARB("auto")]


@pytest.mark.parametrize("make", STRATEGIES)
def test_a_restored_buffer_continues_with_the_same_samples(tmp_path, make):
    warnings.filterwarnings("ignore", "the buffer is full")
    buffer = used_buffer(make())
    buffer.sample(10)
    buffer.save(tmp_path / "buffer.npz")
    other = ReplayBuffer(1200, make(), seed=99)
    other.load(tmp_path / "buffer.npz")
    for step in range(3):
        a, b = (x.sample((4, 16)) for x in (buffer, other))
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        for x in (buffer, other):
            x.refresh(lambda obs, action: np.cos(obs[:, 0]) - 3.0)
            here = 1300.0 + step + 10 * (step == 2)  # the second step ends an episode
            x.add(np.full(3, here), np.zeros(2), 1.0, np.full(3, here + 1), terminated=step == 1)
    assert buffer.stats() == other.stats()
    assert [p.name for p in tmp_path.iterdir()] == ["buffer.npz"]


@pytest.mark.parametrize("capacity", [1300, 1200])  # at 1200, online steps have overwritten a part of the dataset
def test_a_file_may_leave_out_the_dataset(tmp_path, capacity):
    def loaded():
        buffer = ReplayBuffer(capacity, ARB(), seed=3)
        return buffer, buffer.load_dataset(many()).rows

    buffer, rows = loaded()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the buffer is full")
        add_steps(buffer)
    buffer.refresh(lambda obs, action: np.cos(obs[:, 0]) - 3.0)
    buffer.save(tmp_path / "whole.npz")
    buffer.save(tmp_path / "online.npz", since=rows)
    assert (tmp_path / "online.npz").stat().st_size < 0.5 * (tmp_path / "whole.npz").stat().st_size
    other, _ = loaded()
    other.load(tmp_path / "online.npz")
    a, b = (x.sample((4, 64)) for x in (buffer, other))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    with pytest.raises(DataError, match="leaves out a dataset of 1000 rows: load it"):
        ReplayBuffer(capacity, ARB(), seed=3).load(tmp_path / "online.npz")


def test_saving_a_new_buffer_and_restoring_it(tmp_path):
    uniform().save(tmp_path / "empty.npz")
    buffer = uniform()
    buffer.load(tmp_path / "empty.npz")
    assert len(buffer) == 0


def test_what_cannot_be_restored_is_said(tmp_path):
    path = tmp_path / "buffer.npz"
    used_buffer(Uniform()).save(path)
    with pytest.raises(DataError, match=r"has the sampler Uniform\(\), this one has ARB"):
        ReplayBuffer(1200, seed=0).load(path)
    with pytest.raises(DataError, match="capacity of 1200, this one of 100"):
        uniform().load(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="damaged, or was not saved by this library"):
        uniform().load(path)
    with pytest.raises(FileNotFoundError):
        uniform().load(tmp_path / "nowhere.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "buffer.npz"
    buffer = used_buffer(Uniform())
    buffer.save(path)
    before = path.read_bytes()

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        buffer.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["buffer.npz"]


# ---- size -------------------------------------------------------------------------------------------------------


def test_a_million_rows_load_vectorised():
    import time

    n = 1_000_000
    data = {
        "observations": np.zeros((n, 11), np.float32),
        "actions": np.zeros((n, 3), np.float32),
        "rewards": np.zeros(n, np.float32),
        "terminals": np.arange(n) % 100 == 99,
    }
    buffer = uniform(n)
    start = time.process_time()
    buffer.load_dataset(data)
    assert time.process_time() - start < 20.0  # about a second; a loop over rows would take minutes
    raw = sum(column.nbytes for column in data.values()) + n  # with a flag for time limits
    assert raw < buffer.nbytes < 1.2 * raw


def test_slots_do_not_grow_with_time():
    buffer = uniform(50, autoreset="disabled")
    for t in range(3000):
        buffer.add_batch(np.full((2, 1), t), np.zeros((2, 1)), np.zeros(2), np.full((2, 1), t + 1), [t % 3 == 0, False])
    assert buffer.index.num_ids <= 51


def test_nbytes_worked_by_hand():
    buffer = ReplayBuffer(4, Uniform(), seed=0)
    buffer.add(np.zeros(1, np.float32), np.zeros(1, np.float32), 0.0, np.ones(1, np.float32), terminated=True)
    rows = 4 * (4 + 4 + 4 + 1 + 4)  # observation, action, reward, terminated, return
    assert buffer.nbytes == rows + 4 + 4 * (4 + 4)  # the final observation; trajectory and following row


def test_gather_takes_lists_and_refuses_what_is_no_row():
    buffer = uniform()
    for t in range(3):
        buffer.add([t], [0.0], float(t), [t + 1], terminated=False)
    assert buffer.gather([0]).reward.tolist() == [0.0]
    assert buffer.gather([[2, 1]]).reward.tolist() == [[2.0, 1.0]]
    for rows, said in [
        (np.array([True, False, True]), "gather needs the numbers of rows, got values of type bool"),
        ([0.0], "gather needs the numbers of rows, got values of type float64"),
        ([-1], "rows must lie between 0 and 2, as the buffer holds 3; got -1 to -1"),
        ([0, 3], "rows must lie between 0 and 2, as the buffer holds 3; got 0 to 3"),
    ]:
        with pytest.raises(DataError, match=said):
            buffer.gather(rows)


def test_an_episode_may_begin_where_the_last_one_ended():
    """In a grid world with few cells: flags that are right are never refused."""
    rng, buffer, cell = np.random.default_rng(0), uniform(200), 0
    lengths = []
    for _ in range(50):
        length = int(rng.integers(1, 5))
        for t in range(length):
            after = int(rng.integers(3))
            buffer.add([float(cell)], [0.0], 0.0, [float(after)], False, truncated=t == length - 1)
            cell = after
        cell = after if rng.random() < 0.5 else int(rng.integers(3))
        lengths.append(length)
    dataset = buffer.to_dataset()
    assert dataset.lengths.tolist() == lengths
    assert dataset.extras["online"].all()


@pytest.mark.filterwarnings("ignore:the buffer is full")
def test_what_a_buffer_holds_is_a_dataset():
    buffer = ReplayBuffer(6, Uniform(), seed=0)
    buffer.load_dataset({
        "observations": np.arange(4.0)[:, None], "actions": np.zeros((4, 1)), "rewards": np.arange(4.0),
        "terminals": [0, 1, 0, 1],
    })  # fmt: skip
    for t in range(3):  # overwrites the first row
        buffer.add([10.0 + t], [0.0], 10.0 + t, [11.0 + t], terminated=False)
    dataset = buffer.to_dataset()
    assert dataset.rewards.tolist() == [1, 2, 3, 10, 11, 12]
    assert dataset.lengths.tolist() == [1, 2, 3]
    assert dataset.extras["online"].tolist() == [False] * 3 + [True] * 3
    assert dataset.final_observations[-1].tolist() == [13.0]
    again = ReplayBuffer(6, Uniform(), seed=0)
    again.load_dataset(dataset)
    assert again.to_dataset().select(slice(None)).rewards.tolist() == dataset.rewards.tolist()


def test_steps_without_any_float_are_taken():
    buffer = uniform()
    buffer.add([0], [1], 1, [1], terminated=False)
    buffer.add_batch(np.ones((2, 1), int), np.ones((2, 1), int), [2, True], np.zeros((2, 1), int), [0, 1], envs=[0, 1])
    batch = buffer.gather([0, 1, 2])
    assert batch.reward.tolist() == [1, 2, 1]
    assert batch.reward.dtype == np.float32
    assert batch.next_obs.ravel().tolist() == [1, 0, 0]
