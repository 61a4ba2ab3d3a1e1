"""Bad input gets one clear line: what is wrong, where, what to do."""

import numpy as np
import pytest

from arb import ARB, DataError, ReplayBuffer, Uniform, keep_best


def good(n=6):
    return {
        "observations": np.arange(2 * n, dtype=np.float64).reshape(n, 2),
        "actions": np.zeros((n, 1)),
        "rewards": np.arange(n, dtype=np.float64),
        "terminals": np.arange(n) % 3 == 2,
    }


def buffer(capacity=100, **kwargs):
    return ReplayBuffer(capacity, Uniform(), seed=0, **kwargs)


def test_what_d4rl_files_hold_is_accepted():
    data = good()
    data["rewards"] = data["rewards"][:, None]  # (N, 1)
    data["terminals"] = data["terminals"].astype(np.float64)
    data["timeouts"] = np.zeros(6, np.float32)
    data["infos/qpos"] = np.zeros((6, 3))
    target = buffer()
    assert target.load_dataset(data) == (6, 2, 0)
    batch = target.gather(np.arange(6))
    assert batch.reward.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.mask.tolist() == [1, 1, 0, 1, 1, 0]
    assert batch.obs.dtype == np.float32


BAD = {
    "not a dict": (lambda d: list(d), "a dataset is a dict of arrays"),
    "missing key": (lambda d: {k: v for k, v in d.items() if k != "rewards"}, "the dataset has no 'rewards'"),
    "misspelt key": (
        lambda d: {("terminal" if k == "terminals" else k): v for k, v in d.items()},
        r"no 'terminals' \(rename 'terminal'\?\)",
    ),
    "misspelt key beside one that is like it": (
        lambda d: {("obs" if k == "observations" else k): v for k, v in d.items()},
        r"no 'observations'; it needs",
    ),
    "second misspelt key": (lambda d: {"reward": d["rewards"], "actions": d["actions"]}, "no 'observations'; it needs"),
    "only next observations": (
        lambda d: {("next_observations" if k == "observations" else k): v for k, v in d.items()},
        r"no 'observations'; it needs",
    ),
    "nan in a dict of observations": (
        lambda d: d | {"observations": {"a": np.full(6, np.nan)}},
        r"^dataset\['observations'\]\['a'\] has a value",
    ),
    "bytes that turn into fractions": (
        lambda d: d | {"observations": np.zeros((6, 2), np.uint8), "next_observations": np.zeros((6, 2))},
        "next_obs has dtype float32, which does not fit the uint8",
    ),
    "wrong length": (lambda d: d | {"actions": d["actions"][:-1]}, r"dataset\['actions'\] has 5 rows but .* has 6"),
    "nan observation": (
        lambda d: d | {"observations": np.where(np.arange(12).reshape(6, 2) == 7, np.nan, 1.0)},
        r"dataset\['observations'\] has a value that is not finite in row 3, entry 1: nan",
    ),
    "infinite reward": (lambda d: d | {"rewards": [0, 0, np.inf, 0, 0, 0]}, r"'rewards'\] .* not finite in row 2"),
    "nan action": (lambda d: d | {"actions": np.full((6, 1), np.nan)}, r"'actions'\] .* not finite in row 0"),
    "too large for float32": (lambda d: d | {"observations": np.full((6, 2), 1e300)}, "not finite in row 0"),
    "terminals that are no flags": (
        lambda d: d | {"terminals": [0, 0, 0.5, 0, 0, 1]},
        r"True or False, got 0.5 in row 2",
    ),
    "rewards in columns": (lambda d: d | {"rewards": np.zeros((6, 2))}, r"one value per row, got shape \(6, 2\)"),
    "rewards as text": (lambda d: d | {"rewards": list("abcdef")}, "must hold numbers"),
    "actions as text": (lambda d: d | {"actions": list("abcdef")}, "must hold numbers, got dtype <U1"),
    "complex actions": (lambda d: d | {"actions": 1j * d["actions"]}, "must hold numbers, got dtype complex"),
    "scalar actions": (lambda d: d | {"actions": 3.0}, r"dataset\['actions'\] must be an array with one row per step"),
    "ragged observations": (lambda d: d | {"observations": np.array([[1], [1, 2]], object)}, "one row per step"),
    "no rows": (lambda d: {k: v[:0] for k, v in d.items()}, "has no rows: there is nothing to load"),
    "next observations of another shape": (
        lambda d: d | {"next_observations": np.zeros((6, 3))},
        "must have the keys and shapes",
    ),
    "fractional episode ids": (lambda d: d | {"episode_ids": np.zeros(6)}, "one integer per row"),
    "empty dict of observations": (lambda d: d | {"observations": {}}, "a dict without arrays"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_dataset_is_refused_in_one_line(case):
    spoil, message = BAD[case]
    target = buffer()
    with np.errstate(over="ignore"), pytest.raises(DataError, match=message) as caught:
        target.load_dataset(spoil(good()))
    assert "\n" not in str(caught.value)
    assert len(target) == 0  # nothing was taken in


def test_a_dataset_larger_than_the_capacity_is_refused():
    with pytest.raises(DataError, match=r"6 rows but the buffer a capacity of 5 and 0 rows.*make the buffer larger"):
        buffer(5).load_dataset(good())


def test_actions_outside_the_bounds_are_refused_by_row():
    data = good()
    data["actions"][4] = 1.5
    with pytest.raises(DataError, match=r"leaves the bounds \[-1, 1\] in row 4: \[1.5\]; clip"):
        buffer(action_bounds=(-1, 1)).load_dataset(data)
    with pytest.raises(DataError, match="action leaves the bounds"):
        buffer(action_bounds=(-1, 1)).add([0.0, 0.0], [2.0], 0.0, [0.0, 0.0], False)


def test_a_second_dataset_must_fit_the_first():
    target = buffer()
    target.load_dataset(good())
    with pytest.raises(DataError, match=r"obs has shape \(3,\) per step, but the buffer holds \(2,\)"):
        target.load_dataset(good() | {"observations": np.zeros((6, 3))})
    discrete = buffer()
    discrete.load_dataset(good() | {"actions": np.zeros(6, np.int64)})
    with pytest.raises(DataError, match="action has dtype float32, which does not fit the int64"):
        discrete.load_dataset(good() | {"actions": np.zeros(6)})
    with pytest.raises(DataError, match="observations have the keys"):
        target.load_dataset(good() | {"observations": {"image": np.zeros((6, 2))}})


def test_bad_steps_are_refused():
    target = buffer()
    with pytest.raises(DataError, match="next_obs has a value that is not finite in row 0"):
        target.add([0.0], [0.0], 0.0, [np.nan], False)
    with pytest.raises(DataError, match="reward has a value that is not finite"):
        target.add([0.0], [0.0], np.inf, [0.0], False)
    with pytest.raises(DataError, match=r"obs has shape \(3, 1\), but 2 rewards were given"):
        target.add_batch(np.zeros((3, 1)), np.zeros((2, 1)), [0, 0], np.zeros((2, 1)), [0, 0])
    with pytest.raises(DataError, match="2 different environments"):
        target.add_batch(np.zeros((2, 1)), np.zeros((2, 1)), [0, 0], np.zeros((2, 1)), [0, 0], envs=[1, 1])
    with pytest.raises(DataError, match="the keys"):
        target.add({"a": [0.0]}, [0.0], 0.0, [0.0], False)
    with pytest.raises(DataError, match="3 steps at once do not fit"):
        buffer(2).add_batch(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)), np.zeros(3))
    assert len(target) == 0


def test_an_empty_buffer_says_so():
    empty = ReplayBuffer(10, seed=0)
    for action in (lambda: empty.sample(1), lambda: empty.refresh(lambda o, a: 0), empty.stats):
        with pytest.raises(DataError, match=r"empty buffer cannot be .*: load a dataset or add a step first"):
            action()
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        ReplayBuffer(0)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda obs, action: action, r"shape \(100, 1, 1\)|shape \(100, 2\)"),
        (lambda obs, action: np.zeros(3), r"returned shape \(3,\) for 100 rows"),
        (lambda obs, action: np.full(100, np.nan), "the score is nan in row 0"),
        (lambda obs, action: np.where(np.arange(100) == 4, -np.inf, 0.0), "the score is -inf in row 4"),
    ],
)
def test_bad_scores_are_refused(score, message):
    target = ReplayBuffer(100, ARB(), seed=0)
    target.load_dataset(good() | {"actions": np.zeros((6, 2))})
    before = target.sampler.probabilities()
    with pytest.raises(DataError, match=message):
        target.refresh(score)
    assert (target.sampler.probabilities() == before).all()
    with pytest.raises(DataError, match="refresh needs a function"):
        target.refresh(np.zeros(6))


# ---- Top-N ------------------------------------------------------------------------------------------------------


def test_keep_best_takes_whole_trajectories_by_true_return():
    data = {
        "observations": np.arange(8.0)[:, None],
        "actions": np.zeros((8, 1)),
        "rewards": np.array([1.0, 1.0, 9.0, 0.0, 0.0, 3.0, 3.0, 3.0]),
        "terminals": np.array([0, 1, 1, 0, 1, 0, 0, 1]),
        "infos/goal": np.arange(8),
        "metadata": np.zeros(3),
    }
    # returns: 2 (2 rows), 9 (1 row), 0 (2 rows), 9 (3 rows); the first two of these to exceed 1 row
    best = keep_best(1)(data)
    assert best.observations.ravel().tolist() == [2, 5, 6, 7]
    assert best.extras["infos/goal"].tolist() == [2, 5, 6, 7]
    assert best.lengths.tolist() == [1, 3]
    assert len(keep_best(4)(data)) == 6  # 4 rows do not exceed 4, so one more trajectory
    assert len(keep_best(50_000)(data)) == 8


def test_keep_best_keeps_trajectories_apart_when_loaded():
    data = good(9) | {"rewards": np.repeat([5.0, 0.0, 4.0], 3)}
    target = buffer()
    assert target.load_dataset(keep_best(4)(data)) == (6, 2, 0)
    assert target.index.members().steps.tolist() == [3, 3]


def test_keep_best_refuses_nonsense():
    with pytest.raises(ValueError, match="at least 1 transition"):
        keep_best(0)
    with pytest.raises(DataError, match="no 'rewards'"):
        keep_best(5)({"observations": np.zeros((1, 1)), "actions": [0], "terminals": [0]})
