import h5py
import numpy as np
import pytest

from arb import ReplayBuffer, Uniform
from arb.replay.dataset import check_columns, differs, episode_ends


def walk(*starts, length=5):
    """Episodes of small steps, each from its own start, two of them far apart."""
    rng = np.random.default_rng(0)
    obs = np.concatenate([start + np.cumsum(rng.uniform(0.1, 0.2, (length, 2)), axis=0) for start in starts])
    n = len(obs)
    return {
        "observations": obs,
        "actions": np.zeros((n, 1)),
        "rewards": np.zeros(n),
        "terminals": np.zeros(n, bool),
        "timeouts": np.arange(n) % length == length - 1,
    }


def ends(data, rule="resets"):
    return np.flatnonzero(episode_ends(check_columns(data), rule)).tolist()


def test_time_limits_end_trajectories():
    assert ends(walk(0.0, 10.0, 20.0)) == [4, 9, 14]


def test_a_jump_ends_a_trajectory():
    data = walk(0.0, 10.0)
    data["next_observations"] = np.vstack([data["observations"][1:], [[9.0, 9.0]]])
    data["next_observations"][4] += 0.05
    del data["timeouts"]
    assert ends(data) == [4, 9]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
@pytest.mark.parametrize("at", [0, 1, 2, 8])
def test_a_jump_is_found_wherever_it_is(at, chunk, monkeypatch):
    monkeypatch.setattr("arb.replay.dataset._CHUNK", chunk)
    data = walk(0.0, length=10)
    data["next_observations"] = np.vstack([data["observations"][1:], [[9.0, 9.0]]])
    data["next_observations"][at] += 0.05
    del data["timeouts"]
    assert ends(data) == [at, 9]


def test_terminals_end_trajectories_when_nothing_shows_otherwise():
    data = walk(0.0, 10.0)
    del data["timeouts"]
    data["terminals"][[4, 9]] = True
    assert ends(data) == [4, 9]
    data["terminals"][2] = True  # no other reset is known, so this one is taken at its word
    assert ends(data) == [2, 4, 9]


def test_a_goal_that_is_walked_through_does_not_end_a_trajectory():
    data = walk(0.0, 10.0, 20.0)
    data["terminals"][[1, 2, 3, 7]] = True
    assert ends(data) == [4, 9, 14]
    assert ends(data, "terminals") == [1, 2, 3, 4, 7, 9, 14]


def test_a_terminal_with_a_reset_ends_a_trajectory_among_time_limits():
    data = walk(0.0, 10.0, 20.0, 30.0)
    data["terminals"][9], data["timeouts"][9] = True, False
    assert ends(data) == [4, 9, 14, 19]


def test_next_observations_of_a_recorded_file_settle_it():
    data = walk(0.0, 10.0)
    following = np.vstack([data["observations"][1:], [[9.0, 9.0]]])
    following[4] = 1.0
    data |= {"next_observations": following, "terminals": np.isin(np.arange(10), [2, 4])}
    assert ends(data) == [4, 9]


def test_resets_that_look_like_steps_make_the_step_test_untrusted():
    data = walk(0.0, 0.0, 0.0)  # all start at the same place, close to where the others end
    data["observations"] = np.round(np.random.default_rng(1).uniform(0, 3, (15, 1)))  # a tiny grid world
    data["terminals"][[2, 7]] = True
    assert ends(data) == [2, 4, 7, 9, 14]


def test_episode_ids_settle_it():
    data = walk(0.0, 10.0) | {"episode_ids": np.repeat([7, 3, 7], [3, 3, 4])}
    data["terminals"][1] = True
    assert ends(data) == [2, 5, 9]
    assert ends(data, "terminals") == [1, 2, 5, 9]


def test_images_and_dicts_differ_in_any_value():
    a = {"image": np.zeros((2, 3, 3), np.uint8), "pose": np.zeros((2, 2), np.float32)}
    b = {"image": a["image"].copy(), "pose": a["pose"] + np.float32([[0.0], [1e-8]])}
    assert differs(a, b).tolist() == [False, False]
    b["image"][1, 0, 0] = 1
    assert differs(a, b).tolist() == [False, True]


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="'resets' or 'terminals'"):
        ends(walk(0.0), "done")


def test_the_references_trajectories_are_found(golden):
    with np.load(golden / "arb_weights_lambda05.npz") as file:
        data = {
            "observations": file["obs"],
            "next_observations": file["next_obs"],
            "actions": file["action"],
            "rewards": np.zeros(len(file["obs"])),
            "terminals": file["terminal"],
        }
        trajectory = file["trajectory"]
    expected = np.flatnonzero(np.append(np.diff(trajectory) > 0, True))
    assert ends(data, "terminals") == expected.tolist()


# ---- the real thing ---------------------------------------------------------------------------------------------


def excerpt(shared_data, name):
    keys = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    with h5py.File(shared_data / "d4rl-excerpts" / f"{name}.hdf5") as file:
        return {key: file[key][()] for key in keys if key in file}


@pytest.mark.parametrize("name", ["antmaze-umaze-v0", "antmaze-medium-play-v0", "antmaze-large-play-v0"])
def test_antmaze_trajectories_pass_through_the_goal(shared_data, name):
    data = excerpt(shared_data, name)
    reset = ends(data)
    assert reset[:-1] == np.flatnonzero(data["timeouts"])[: len(reset) - 1].tolist()
    if data["terminals"].any():
        assert len(ends(data, "terminals")) > len(reset)


@pytest.mark.parametrize(
    "name", ["hopper_medium-v2", "walker2d_medium-v2", "halfcheetah_medium-v2", "hopper_random-v1"]
)
@pytest.mark.parametrize("with_next", [True, False])
def test_locomotion_terminals_are_resets(shared_data, name, with_next):
    data = excerpt(shared_data, name)
    if not with_next:
        del data["next_observations"]
    expected = np.flatnonzero(data["terminals"].astype(bool) | data["timeouts"].astype(bool))
    found = [row for row in ends(data) if row < len(data["rewards"]) - 1]
    assert found == [row for row in expected.tolist() if row < len(data["rewards"]) - 1]


def test_a_float64_replay_file_loads(shared_data):
    data = excerpt(shared_data, "hopper_medium_replay-v1")
    assert data["rewards"].shape == (49, 1)
    buffer = ReplayBuffer(1000, Uniform(), seed=0)
    assert buffer.load_dataset(data).rows == 49
    assert np.isfinite(buffer.sample(64).next_obs).all()
