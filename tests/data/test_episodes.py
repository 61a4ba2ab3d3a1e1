"""Boundaries, flags and repairs, worked by hand and on files whose boundaries are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arb
from arb.data.episodes import make_dataset, unknown_starts
from arb.errors import DataError

from .recordings import lengths_of, load, walk, without

episodes = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(episodes, st.integers(0, 100))
def test_boundaries_come_from_next_observations_alone(lengths: list[int], seed: int) -> None:
    assert lengths_of(load(without(walk(lengths, seed), "timeouts"))) == lengths


@given(episodes, st.integers(0, 100))
def test_boundaries_come_from_timeouts_alone(lengths: list[int], seed: int) -> None:
    assert lengths_of(load(without(walk(lengths, seed), "next_observations"))) == lengths


@given(episodes, st.integers(0, 100))
def test_returns_add_up(lengths: list[int], seed: int) -> None:
    dataset = load(walk(lengths, seed))
    assert dataset.episode_returns.sum() == pytest.approx(dataset.rewards.astype(float).sum())
    by_hand = [
        dataset.rewards[a : b + 1].astype(float).sum() for a, b in zip(dataset.starts, dataset.ends, strict=True)
    ]
    np.testing.assert_allclose(dataset.episode_returns, by_hand)


def test_ended_and_cut_off_are_kept_apart() -> None:
    raw = walk([3, 4, 2])
    raw["terminals"][2] = True
    raw["timeouts"][2] = False
    dataset = load(raw)
    assert lengths_of(dataset) == [3, 4, 2]
    assert np.flatnonzero(dataset.terminals).tolist() == [2]
    assert np.flatnonzero(dataset.timeouts).tolist() == [6, 8]


def test_flags_and_rewards_may_come_as_columns_of_floats() -> None:
    raw = walk([3, 4])
    odd = {**raw, "rewards": raw["rewards"][:, None].astype(float), "timeouts": raw["timeouts"].astype(float)}
    odd["terminals"] = raw["terminals"].astype(np.int64)[:, None]
    assert load(odd).fingerprint == load(raw).fingerprint


def test_terminals_that_the_walk_passes_through_are_no_boundaries() -> None:
    """AntMaze: the goal is flagged as terminal, and the ant walks on."""
    raw = without(walk([20] * 8), "next_observations")
    raw["terminals"][[25, 26, 27, 90]] = True
    dataset = load(raw)
    assert lengths_of(dataset) == [20] * 8
    assert dataset.terminals.sum() == 4


def test_terminals_that_are_followed_by_a_start_are_boundaries() -> None:
    raw = without(walk([20] * 8), "next_observations")
    raw["terminals"][[39, 79]] = True
    raw["timeouts"][[39, 79]] = False
    assert lengths_of(load(raw)) == [20] * 8


def test_a_time_limit_flagged_too_early_is_moved_to_the_jump() -> None:
    """AntMaze -v0: the flag is at row 998, the reset after row 1000."""
    raw = walk([11, 11])
    raw["timeouts"] = np.isin(np.arange(22), [8, 19])
    dataset = load(raw)
    (note,) = dataset.provenance["repaired"]
    assert note.startswith("timeouts is set where the episode continues (rows 8, 19)")
    assert lengths_of(dataset) == [11, 11]
    assert np.flatnonzero(dataset.timeouts).tolist() == [10, 21]


def test_next_observations_that_are_only_shifted_are_not_believed() -> None:
    raw = walk([5, 6])
    raw["next_observations"] = np.roll(raw["observations"], -1, 0)
    dataset = load(raw)
    assert "shifted by one row" in dataset.provenance["repaired"][0]
    assert lengths_of(dataset) == [5, 6]
    assert dataset.final_observations is None


def test_the_buffer_takes_what_is_loaded() -> None:
    """With next observations nothing is lost; without, the last row of an episode that was cut off."""
    raw = walk([5, 6])
    assert arb.ReplayBuffer(20).load_dataset(load(raw)) == (11, 2, 0)
    assert arb.ReplayBuffer(20).load_dataset(load(without(raw, "next_observations"))) == (9, 2, 2)


def test_a_mistake_names_the_source() -> None:
    raw = walk([5])
    raw["rewards"][3] = np.nan
    with pytest.raises(DataError, match=r"^there: .*rewards.*row 3"):
        make_dataset(raw, "there")


def test_the_box_of_starts_by_hand() -> None:
    # five known starts span 0 .. 1; 1.25 + 10/5 = 3.25 times the half-width makes the box 0.5 +- 1.625
    obs = np.array([[0.0], [1.0], [0.2], [0.4], [0.9], [2.12], [2.13], [-1.12], [-1.13]])
    known = np.arange(5)
    found = unknown_starts(obs, known)
    assert found is not None
    assert found.tolist() == [5, 7]
    assert unknown_starts(obs, known[:4]) is None  # too few


def test_starts_anywhere_tell_nothing() -> None:
    obs = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    assert unknown_starts(obs, np.arange(0, 500, 50)) is None


def test_an_ant_that_walks_on_through_its_goal_is_one_episode() -> None:
    """So begins D4RL's antmaze-medium-diverse-v0: terminals in a run, no end, states recorded after each step."""
    raw = walk([67])
    after = raw.pop("next_observations")
    raw |= {"infos/qpos": after[:, :2], "infos/qvel": after[:, 2:], "timeouts": np.zeros(67, bool)}
    raw["terminals"] = np.isin(np.arange(67), [64, 65, 66])
    dataset = load(raw)
    assert lengths_of(dataset) == [67]
    assert "repaired" not in dataset.provenance  # nothing about a column that it does not have
    assert dataset.extras == {}
    shifted = load({**without(raw, "infos/qpos", "infos/qvel"), "next_observations": after})
    assert lengths_of(shifted) == [65, 1, 1]  # a column of its own may be a mere shift: then terminals end
    assert "next_observations is observations shifted" in shifted.provenance["repaired"][0]


# Genuine files.

# file: rows, returns of its episodes (summed from the file's own rewards by terminals and timeouts), lengths
EXCERPTS = {
    "hopper_medium-v2.hdf5": ([470, 441], "terminal"),
    "hopper_medium_replay-v1.hdf5": ([40, 9], "terminal"),
    "hopper_random-v1.hdf5": ([31, 19], "terminal"),
    "halfcheetah_medium-v2.hdf5": ([1000, 1000], "timeout"),
    "walker2d_medium-v2.hdf5": ([1000, 1000], "timeout"),
    "antmaze-umaze-v0.hdf5": ([701, 701], "timeout"),
    "antmaze-umaze-diverse-v0.hdf5": ([1001, 997], "timeout"),
    "antmaze-medium-play-v0.hdf5": ([1001, 997], "timeout"),
    "antmaze-large-play-v0.hdf5": ([1001, 997], "timeout"),
}


@pytest.mark.filterwarnings("ignore::arb.data.episodes.DataWarning")
@pytest.mark.parametrize(("name", "expected"), EXCERPTS.items())
def test_genuine_excerpts_have_their_episodes(shared_data: Path, name: str, expected: tuple[list[int], str]) -> None:
    h5py = pytest.importorskip("h5py")
    lengths, end = expected
    path = shared_data / "d4rl-excerpts" / name
    dataset = load(path)
    assert lengths_of(dataset) == lengths
    last = np.cumsum(lengths) - 1
    assert dataset.terminals[last].tolist() == [end == "terminal"] * 2
    assert dataset.timeouts[last].tolist() == [end == "timeout"] * 2
    with h5py.File(path) as file:
        rewards = file["rewards"][()].reshape(-1).astype(float)
    np.testing.assert_allclose(
        dataset.episode_returns, [rewards[: lengths[0]].sum(), rewards[lengths[0] :].sum()], rtol=1e-6
    )


@pytest.mark.parametrize(("name", "count", "length"), [("antmaze-umaze", 214, 701), ("antmaze-medium-play", 150, 1001)])
def test_antmaze_sets_without_next_observations(shared_data: Path, name: str, count: int, length: int) -> None:
    pytest.importorskip("h5py")
    dataset = load(shared_data / "d4rl-like" / f"{name}.hdf5")
    assert lengths_of(dataset) == [length] * count
    assert dataset.terminals.sum() > 10_000


def test_the_seam_of_two_recordings_is_found_without_a_flag() -> None:
    """Medium-expert datasets are two files in one; the first may stop in the middle of an episode."""
    parts = [walk([9, 4], seed=1), walk([6, 8], seed=2)]
    raw = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    raw["timeouts"][12] = False
    assert lengths_of(load(raw)) == [9, 4, 6, 8]
