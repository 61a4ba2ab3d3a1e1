"""Chunks and sequences by hand; `test_interleavings` compares them with brute force in any state of the ring."""

import numpy as np
import pytest

from arb import ARB, DataError, ReplayBuffer


def walk(n=6, terminals=(), **settings):
    buffer = ReplayBuffer(20, gamma=0.5, seed=0, **settings)
    flags = np.isin(np.arange(n), terminals)
    obs = np.arange(n + 1.0)[:, None]
    buffer.load_dataset({
        "observations": obs[:-1], "next_observations": obs[1:], "actions": 10 + obs[:-1],
        "rewards": 2.0 ** np.arange(n),
        "terminals": flags, "timeouts": np.arange(n) == n - 1, "episode_ids": np.zeros(n, int),
    })  # fmt: skip
    return buffer


def test_a_chunk_by_hand():
    batch = walk().gather([0, 4], chunk=3)
    assert batch.action[..., 0].tolist() == [[10, 11, 12], [14, 15, 15]]
    assert batch.valid.tolist() == [[True, True, True], [True, True, False]]
    assert batch.reward.tolist() == [1 + 1 + 1, 16 + 16]
    assert batch.next_obs.ravel().tolist() == [3, 6]
    assert batch.mask.tolist() == [0.25, 0.5]


def test_a_chunk_ends_where_the_task_ends_though_the_recording_goes_on():
    batch = walk(terminals=[2]).gather([1, 3], chunk=3)
    assert batch.valid.tolist() == [[True, True, False], [True, True, True]]
    assert batch.mask.tolist() == [0.0, 0.25]
    assert batch.next_obs[0] == 3


def test_a_sequence_goes_on_where_the_recording_does():
    batch = walk(terminals=[2]).gather([2], length=3, burn_in=1)
    assert batch.obs[0, :, 0].tolist() == [1, 2, 3, 4]
    assert batch.valid.all()
    assert batch.mask.tolist() == [[1, 0, 1, 1]]
    assert not batch.start.any()
    assert walk().gather([1], length=1, burn_in=3).start.tolist() == [[False, False, True, False]]


def test_sequences_with_returns_over_several_steps():
    buffer = walk()
    batch = buffer.gather([0, 3], length=4, n_step=2)
    plain = buffer.gather(np.arange(6), n_step=2)
    assert (batch.reward[0] == plain.reward[:4]).all()
    assert (batch.reward[1] == plain.reward[[3, 4, 5, 5]]).all()


def test_observations_of_several_parts():
    buffer = ReplayBuffer(8, seed=0)
    for t in range(3):
        buffer.add({"a": [t], "b": [[t]]}, [t], 0.0, {"a": [t + 1], "b": [[t + 1]]}, terminated=t == 2)
    assert buffer.sample((4, 5), chunk=2).next_obs["b"].shape == (4, 5, 1, 1)
    assert buffer.sample(5, length=2).obs["b"].shape == (5, 2, 1, 1)


def test_rows_are_those_of_the_strategy():
    buffer = walk(sampler=ARB(0.01, level="transition"))
    buffer.refresh(lambda obs, action: -np.abs(obs[:, 0] - 3))
    assert (buffer.sample(50, chunk=2).obs == 3).all()
    assert (buffer.sample(50, length=2, burn_in=2).obs[:, 2] == 3).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"length": 2, "burn_in": -1}, "burn_in must be at least 0"),
        ({"chunk": 2, "n_step": 3}, "leave out n_step"),
        ({"chunk": 2, "length": 3}, "leave out n_step, length"),
        ({"burn_in": 3}, "pass length"),
    ],
)
def test_what_does_not_go_together(given, said):
    with pytest.raises(DataError, match=said):
        walk().sample(4, **given)


def test_a_score_sees_whole_trajectories_in_order():
    buffer = ReplayBuffer(12, ARB(1.0, level="transition"), autoreset="disabled", seed=0)
    seen = {}
    for t in range(9):  # two environments in turns, round the edge of the ring
        buffer.add_batch([[t], [100 + t]], [[0.0]] * 2, [0.0] * 2, [[t + 1], [101 + t]], [False, t == 4])

    def recurrent(obs, action):
        seen[float(obs[0, 0])] = obs[:, 0].tolist()
        return np.cumsum(obs[:, 0] < 100) / 4.0

    buffer.refresh(recurrent, by="trajectory")
    assert seen == {3: [3, 4, 5, 6, 7, 8], 103: [103, 104], 105: [105, 106, 107, 108]}
    rows = {float(x): i for i, x in enumerate(buffer.gather(np.arange(12)).obs[:, 0])}
    p = buffer.sampler.probabilities()
    assert p[rows[8]] == pytest.approx(p[rows[3]] * np.exp(5 / 4))
    assert p[rows[103]] == p[rows[108]]


@pytest.mark.parametrize("by", ["row", "trajectory"])
def test_a_score_sees_the_chunks_that_are_sampled(by):
    buffer, seen = walk(sampler=ARB(), terminals=[2]), {}

    def chunked(obs, action):
        seen.update(zip(obs[:, 0].tolist(), action.tolist(), strict=True))
        return np.zeros(len(obs))

    buffer.refresh(chunked, by=by, chunk=3)
    batch = buffer.gather(np.arange(6), chunk=3)
    assert seen == dict(zip(batch.obs[:, 0].tolist(), batch.action.tolist(), strict=True))


def test_a_refresh_by_something_else_is_refused():
    with pytest.raises(DataError, match="by"):
        walk().refresh(lambda obs, action: action[:, 0], by="episode")
    with pytest.raises(DataError, match="returned shape \\(2,\\) for 6 rows"):
        walk().refresh(lambda obs, action: np.zeros(2), by="trajectory")
