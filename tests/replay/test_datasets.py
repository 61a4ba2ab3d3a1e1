"""`Dataset`: worked by hand, and its round trips by chance."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arb import DataError, Dataset, ReplayBuffer, Uniform, keep_best

HAND = {
    "observations": np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [20.0]]),
    "actions": np.zeros((6, 1)),
    "rewards": np.array([1.0, 1.0, 1.0, 5.0, 0.5, 2.0]),
    "terminals": np.array([0, 0, 1, 0, 0, 1]),
    "timeouts": np.array([0, 0, 0, 0, 1, 0]),
}
NEXT = {"next_observations": np.array([[1.0], [2.0], [3.0], [11.0], [12.0], [21.0]])}


def test_a_dataset_by_hand():
    data = Dataset.from_dict(HAND | NEXT | {"infos/goal": np.arange(6), "meta": np.zeros(2)}, provenance={"env": "X"})
    assert len(data) == 6
    assert data.num_episodes == 3
    assert data.lengths.tolist() == [3, 2, 1]
    assert data.starts.tolist() == [0, 3, 5]
    assert data.ends.tolist() == [2, 4, 5]
    assert data.episode_ids.tolist() == [0, 0, 0, 1, 1, 2]
    assert data.episode_returns.tolist() == [3.0, 5.5, 2.0]
    assert data.timeouts.tolist() == [False, False, False, False, True, False]
    assert data.final_observations.ravel().tolist() == [3, 12, 21]
    assert data.next_observations.ravel().tolist() == [1, 2, 3, 11, 12, 21]
    assert data.observations.dtype == data.rewards.dtype == np.float32
    assert data.terminals.dtype == bool
    assert list(data.extras) == ["infos/goal"]
    assert data.provenance == {"env": "X"}
    assert data.usable() is data


def test_without_next_observations_the_last_row_of_a_cut_off_episode_is_not_usable():
    data = Dataset.from_dict(HAND)
    assert data.final_observations is None
    assert len(data) == 6
    assert data.episode_returns.tolist() == [3.0, 5.5, 2.0]  # its reward counts
    usable = data.usable()
    assert usable.lengths.tolist() == [3, 1, 1]
    assert usable.observations.ravel().tolist() == [0, 1, 2, 10, 20]
    assert usable.next_observations.ravel()[[0, 1, 3]].tolist() == [1, 2, 11]
    assert ReplayBuffer(10, Uniform()).load_dataset(data) == (5, 3, 1)


def test_select_by_numbers_slice_and_mask():
    data = Dataset.from_dict(HAND | NEXT | {"tag": np.arange(6)})
    assert data.select([2, 0]).extras["tag"].tolist() == [5, 0, 1, 2]
    assert data.select([2, 0]).final_observations.ravel().tolist() == [21, 3]
    assert data.select(slice(1, None)).lengths.tolist() == [2, 1]
    assert data.select(np.array([True, False, True])).extras["tag"].tolist() == [0, 1, 2, 5]
    assert data.select([-1]).rewards.tolist() == [2]
    assert [len(episode) for episode in data.episodes()] == [3, 2, 1]
    for wrong, message in [([3], "there are 3 episodes"), ([], "at least one"), ([True], "there are 3 episodes")]:
        with pytest.raises(DataError, match=message):
            data.select(np.array(wrong, bool if wrong == [True] else int))


def test_concatenate_keeps_what_all_agree_on():
    data = Dataset.from_dict(HAND | NEXT, provenance={"env": "X", "seed": 1})
    other = Dataset.from_dict(HAND | NEXT, provenance={"env": "X", "seed": 2})
    both = Dataset.concatenate([data, other])
    assert both.lengths.tolist() == [3, 2, 1, 3, 2, 1]
    assert both.provenance == {"env": "X"}
    assert both.select(slice(3)).fingerprint == data.fingerprint
    assert Dataset.concatenate([data, Dataset.from_dict(HAND)]).final_observations is None
    with pytest.raises(DataError, match="do not have the same columns"):
        Dataset.concatenate([data, Dataset.from_dict(HAND | NEXT | {"tag": np.arange(6)})])


def test_given_next_observations_are_never_replaced_by_other_rows():
    """Row 1 leads to 2.5, not to row 2: the trajectory ends there, also when episode ids say that it goes on."""
    data = HAND | {"next_observations": np.array([[1.0], [2.5], [3.0], [11.0], [12.0], [21.0]])}
    for more in ({}, {"episode_ids": np.array([0, 0, 0, 1, 1, 2])}, {"episode_ids": np.zeros(6, int)}):
        dataset = Dataset.from_dict(data | more)
        assert dataset.next_observations.ravel().tolist() == [1, 2.5, 3, 11, 12, 21]
        assert dataset.lengths.tolist() == [2, 1, 2, 1]


def test_antmaze_continues_after_terminals():
    rng = np.random.default_rng(0)
    steps = [start + np.cumsum(rng.uniform(0.1, 0.2, (5, 2)), 0) for start in (0.0, 10.0, 20.0)]
    columns = {
        "observations": np.concatenate(steps),
        "actions": np.zeros((15, 1)),
        "rewards": np.zeros(15),
        "terminals": np.isin(np.arange(15), [1, 2, 7]),
        "timeouts": np.arange(15) % 5 == 4,
    }
    data = Dataset.from_dict(columns)
    assert data.lengths.tolist() == [5, 5, 5]
    split = Dataset.from_dict(columns, boundaries="terminals")
    assert split.lengths.tolist() == [2, 1, 2, 3, 2, 5]
    assert data.split_at_terminals().fingerprint == split.fingerprint
    with_final = replace(data, final_observations=np.full((3, 2), 7.0))
    assert with_final.split_at_terminals().final_observations[0].tolist() == data.observations[2].tolist()
    np.testing.assert_array_equal(with_final.split_at_terminals().next_observations, with_final.next_observations)
    assert ReplayBuffer(20, Uniform(), boundaries="terminals").load_dataset(data).trajectories == 6


@pytest.mark.parametrize("name", ["timeout", "truncated", "truncations"])
def test_other_names_of_timeouts_are_understood(name):
    renamed = {name if key == "timeouts" else key: value for key, value in HAND.items()}
    assert Dataset.from_dict(renamed).fingerprint == Dataset.from_dict(HAND).fingerprint
    with pytest.raises(DataError, match=f"dataset\\['timeouts'\\] and dataset\\['{name}'\\] mean the same"):
        Dataset.from_dict(HAND | renamed)


def test_dones_that_agree_are_understood_and_others_refused():
    dones = np.array([0, 0, 1, 0, 1, 1])
    without = {key: value for key, value in HAND.items() if key != "timeouts"}
    expected = Dataset.from_dict(HAND).fingerprint
    assert Dataset.from_dict(without | {"dones": dones}).fingerprint == expected
    assert Dataset.from_dict(HAND | {"dones": dones}).fingerprint == expected
    for wrong in (HAND | {"dones": np.zeros(6)}, without | {"dones": np.zeros(6)}):
        with pytest.raises(DataError, match=r"dataset\['dones'\] contradicts"):
            Dataset.from_dict(wrong)
    with pytest.raises(DataError, match=r"no 'terminals' \('dones' may mean it"):
        Dataset.from_dict(
            {"dones": dones} | {key: v for key, v in HAND.items() if key not in ("terminals", "timeouts")}
        )


@pytest.mark.parametrize("name", ["next_observation", "next_obs", "episode_id"])
def test_a_near_miss_is_refused_in_one_line(name):
    with pytest.raises(DataError, match=f"dataset\\['{name}'\\] is not known: rename it '.*', or drop it") as caught:
        Dataset.from_dict(HAND | {name: np.zeros((6, 1))})
    assert "\n" not in str(caught.value)


def test_extras_in_groups_and_what_cannot_be_one():
    more = {"infos": {"qpos": np.zeros((6, 2)), "names": [object()] * 6}, "tag": list("abcdef"), "seed": 3}
    data = Dataset.from_dict(HAND | more)
    assert {name: column.shape for name, column in data.extras.items()} == {"infos/qpos": (6, 2), "tag": (6,)}


def test_columns_that_do_not_fit_each_other_are_refused():
    data = Dataset.from_dict(HAND)
    for change, message in [
        ({"lengths": np.array([3, 2])}, "add up to 6 rows"),
        ({"lengths": np.array([3, 3, 0])}, "positive"),
        ({"actions": np.zeros((5, 1))}, "actions of the dataset has 5 rows"),
        ({"final_observations": np.zeros((2, 1))}, "one observation per episode"),
    ]:
        with pytest.raises(DataError, match=message):
            replace(data, **change)
    assert replace(data, observations=np.zeros((6, 1))).observations.dtype == np.float32


def test_a_dataset_is_saved_whole(tmp_path):
    columns = HAND | {"observations": {"a": np.arange(6.0), "b": np.zeros((6, 2), np.uint8)}, "tag": np.arange(6)}
    data = Dataset.from_dict(columns, provenance={"env": "X", "reference": [1.0, 2.0]})
    data.save(tmp_path / "data.npz")
    again = Dataset.load(tmp_path / "data.npz")
    assert again.fingerprint == data.fingerprint
    assert again.provenance == data.provenance
    assert again.observations["b"].dtype == np.uint8
    np.savez(tmp_path / "other.npz", observations=np.zeros(3))
    (tmp_path / "broken.npz").write_bytes((tmp_path / "data.npz").read_bytes()[:300])
    for name in ("other.npz", "broken.npz"):
        with pytest.raises(DataError, match="is damaged, or was not saved by this library"):
            Dataset.load(tmp_path / name)


def test_keep_best_selects_episodes_by_return():
    data = Dataset.from_dict(HAND | NEXT)
    assert keep_best(1)(data).episode_returns.tolist() == [5.5]
    assert keep_best(2)(data).episode_returns.tolist() == [3.0, 5.5]  # 2 rows do not exceed 2; in the file's order
    assert keep_best(100)(data).fingerprint == data.fingerprint


# ---- by chance -------------------------------------------------------------------------------------------------------
@st.composite
def datasets(draw):
    lengths = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    rows = int(lengths.sum())
    values = st.integers(-3, 3).map(float)  # few values, so that episodes may begin where the last one ended

    def column(n, *shape):
        return draw(hnp.arrays(np.float32, (n, *shape), elements=values))

    named = draw(st.booleans())
    known = draw(st.booleans())
    obs = {"a": column(rows, 2), "b": column(rows)} if named else column(rows, 1)
    final = {"a": column(len(lengths), 2), "b": column(len(lengths))} if named else column(len(lengths), 1)
    extras = {"tag": np.arange(rows)} if draw(st.booleans()) else {}
    terminals = draw(hnp.arrays(bool, rows))
    return Dataset(obs, column(rows, 1), column(rows), terminals, lengths, final if known else None, extras)


@settings(max_examples=100, deadline=None)
@given(datasets(), st.data())
def test_round_trips(data, chance):
    again = Dataset.from_dict(data.to_dict())
    assert again.fingerprint == data.fingerprint
    assert Dataset.from_dict(again.to_dict()).fingerprint == data.fingerprint
    assert Dataset.concatenate(list(data.episodes())).fingerprint == data.fingerprint
    order = chance.draw(st.permutations(range(data.num_episodes)))
    back = data.select(order).select(np.argsort(order))
    assert back.fingerprint == data.fingerprint
    cut = chance.draw(st.integers(0, data.num_episodes - 1))
    parts = [data.select(slice(0, cut)), data.select(slice(cut, None))] if cut else [data]
    assert Dataset.concatenate(parts).fingerprint == data.fingerprint
    assert data.episode_returns.tolist() == [float(episode.rewards.sum()) for episode in data.episodes()]


@settings(max_examples=50, deadline=None)
@given(datasets())
def test_the_buffer_holds_what_the_dataset_says(data):
    buffer = ReplayBuffer(50, Uniform(), gamma=0.5)
    loaded = buffer.load_dataset(data)
    if loaded.rows == 0:
        return
    usable = data.usable()
    assert loaded == (len(usable), usable.num_episodes, len(data) - len(usable))
    batch, rows = buffer.gather(np.arange(len(usable))), np.flatnonzero(~data.timeouts | (len(usable) == len(data)))
    np.testing.assert_array_equal(batch.reward, usable.rewards)
    known = ~usable.terminals
    for ours, theirs in [(batch.obs, usable.observations), (batch.next_obs, usable.next_observations)]:
        for key in ours if isinstance(ours, dict) else [...]:
            np.testing.assert_array_equal(ours[key][known], theirs[key][known])
    returns, total = np.zeros(len(data)), 0.0
    for row in reversed(range(len(data))):
        total = data.rewards[row] + 0.5 * total * (row not in data.ends) * (not data.terminals[row])
        returns[row] = total
    np.testing.assert_allclose(batch.return_to_go, returns[rows], atol=1e-6)
