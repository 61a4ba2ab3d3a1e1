"""Observations of several parts: dicts, tuples, and both inside each other; and goals among them."""

import pydoc

import gymnasium as gym
import numpy as np
import pytest

import arb
from arb import DataError, Dataset, Hindsight, ReplayBuffer, Uniform
from arb.replay.dataset import leaves, unwrapped
from arb.replay.index import ReplayIndex
from arb.replay.sequences import future

SPACE = gym.spaces.Dict({
    "arm": gym.spaces.Tuple((gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(5))),
    "cameras": gym.spaces.Dict({"left": gym.spaces.Box(0, 255, (2, 2), np.uint8)}),
    "x.y/z": gym.spaces.Box(-1, 1, (1,)),
})  # fmt: skip


def assert_same(one, other):
    assert type(one) is type(other) or {type(one), type(other)} <= {np.ndarray, np.int64, np.float32, np.uint8}
    if isinstance(one, dict):
        assert one.keys() == other.keys()
    if isinstance(one, dict | tuple):
        for key in one if isinstance(one, dict) else range(len(one)):
            assert_same(one[key], other[key])
    else:
        np.testing.assert_array_equal(one, other)


def at(tree, i):
    if isinstance(tree, dict):
        return {key: at(part, i) for key, part in tree.items()}
    return tuple(at(part, i) for part in tree) if isinstance(tree, tuple) else tree[i]


def test_flat_names_and_back():
    obs = {"b": (np.ones(2), {"c": np.zeros(1)}), "a": np.arange(3)}
    assert list(leaves(obs)) == ["a", "b//#0", "b//#1//c"]
    assert_same(unwrapped(leaves(obs)), obs)
    many = tuple(np.full(1, i) for i in range(12))
    assert_same(unwrapped(leaves(many)), many)
    assert leaves((1.0, 2.0))[""].tolist() == [1, 2]  # a tuple of numbers is an array
    assert leaves(((1, 2), (3, 4)))[""].tolist() == [[1, 2], [3, 4]]
    for key in ("a//b", "#0", 3):
        with pytest.raises(DataError, match="an observation's key must be text without // and no # at its start"):
            leaves({key: np.ones(1)})


def test_a_buffer_keeps_them_as_they_are(tmp_path):
    SPACE.seed(0)
    seen = [SPACE.sample() for _ in range(6)]
    buffer, other = (ReplayBuffer(8, Uniform(), seed=0) for _ in range(2))
    for t in range(5):
        buffer.add(seen[t], [0.0], 1.0, seen[t + 1], terminated=t == 2, truncated=t == 4)
    batch = buffer.gather(np.arange(5))
    for t in range(5):
        assert_same(at(batch.obs, t), seen[t])
        assert_same(at(batch.next_obs, t), seen[t + 1])
    assert batch.obs["arm"][1].dtype == np.int64
    assert buffer.sample((3, 4)).obs["arm"][0].shape == (3, 4, 3)
    assert buffer.sample(2, length=3).obs["cameras"]["left"].shape == (2, 3, 2, 2)
    buffer.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    assert_same(other.sample(20).obs, buffer.sample(20).obs)
    data = buffer.to_dataset()
    assert_same(data.observations, batch.obs)
    data.save(tmp_path / "data.npz")
    again = Dataset.from_dict(Dataset.load(tmp_path / "data.npz").to_dict())
    assert again.fingerprint == Dataset.load(tmp_path / "data.npz").fingerprint == data.fingerprint
    fresh = ReplayBuffer(8, Uniform(), seed=0)
    fresh.load_dataset(again)
    assert_same(fresh.gather(np.arange(5)).next_obs, batch.next_obs)

    asked = []
    fresh = ReplayBuffer(8, arb.ARB(), seed=0)
    fresh.load_dataset(again)
    fresh.refresh(lambda obs, action: asked.append(obs["arm"][0].shape) or np.zeros(len(action)))
    assert set(asked) == {(8, 3)}
    with pytest.raises(DataError, match=r"obs has the keys .* but next_obs"):
        buffer.add(seen[0], [0.0], 1.0, {"arm": seen[0]["arm"]}, terminated=False)


def test_vector_environments_hand_over_final_observations():
    buffer = ReplayBuffer(8, Uniform(), seed=0, autoreset="same_step")
    before, after = (np.zeros((2, 1)), np.zeros(2)), (np.ones((2, 1)), np.ones(2))
    final = np.array([None, None], object)
    final[1] = (np.full(1, 7.0), 8.0)
    infos = {"final_obs": final, "_final_obs": np.array([False, True])}
    buffer.add_batch(before, np.zeros((2, 1)), [0.0, 0.0], after, [False, True], infos=infos)
    found = buffer.gather([0, 1]).next_obs
    assert found[0].ravel().tolist() == [1, 7]
    assert found[1].tolist() == [1, 8]
    assert after[0].tolist() == [[1], [1]]


# ---- choices of unequal number ---------------------------------------------------------------------------------------
def test_unequal_numbers_of_choices_by_hand():
    small, large = np.log([[0.25, 0.75], [0.5, 0.5]]), np.log([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    action = np.array([[1, 2], [0, 0]])
    sums = np.log([0.75 * 0.5, 0.5 * 0.1])
    for policy in ([small, large], (small, large)):
        score = arb.categorical_score(lambda obs, said=policy: said, "density")
        np.testing.assert_allclose(score(None, action), sums)
    np.testing.assert_allclose(arb.categorical_score(lambda obs: [small, large])(None, action), sums / 2)
    with pytest.raises(DataError, match="the actions run from 0 to 2, but the policy's logits are for 2 choices"):
        arb.categorical_score(lambda obs: [small, large])(None, np.array([[2, 0], [0, 0]]))
    for wrong, shape in (([small], (2, 2)), ([small, large[:1]], (2, 2)), ([small, large], (2,))):
        with pytest.raises(DataError, match=r"the policy's logits have the shapes .*: return one .rows, choices. for"):
            arb.categorical_score(lambda obs, said=wrong: said)(None, np.zeros(shape, int))


# ---- goals in hindsight ----------------------------------------------------------------------------------------------
def test_a_later_step_is_drawn_uniformly_within_the_episode():
    index, rng = ReplayIndex(7, Uniform(), seed=0), np.random.default_rng(0)
    for ends in (False, True, False, False, False, False, False, True):  # rows 1 to 6 and 0; the last episode wraps
        index.append([0], ends=[ends])
    index.append([0])
    rows = np.repeat([4, 6, 0], 30_000)
    later = future(index, rows, rng)
    assert {row: set(later[rows == row].tolist()) for row in (4, 6, 0)} == {4: {4, 5, 6, 0}, 6: {6, 0}, 0: {0}}
    for row, n in ((4, 4), (6, 2)):
        share = np.bincount(later[rows == row], minlength=7) / 30_000
        np.testing.assert_allclose(share[share > 0], 1 / n, atol=0.015)


def goals(n=6, **settings):
    buffer = ReplayBuffer(20, Uniform(), seed=0, **settings)
    for t in range(n):
        seen = {"observation": [float(t)], "achieved_goal": [t, 0.0], "desired_goal": [99.0, 0.0]}
        after = {"observation": [t + 1.0], "achieved_goal": [t + 1.0, 0.0], "desired_goal": [99.0, 0.0]}
        buffer.add(seen, [0.0], -1.0, after, terminated=False, truncated=t % 3 == 2)
    return buffer


def reached(achieved, goal):
    return np.where(np.abs(achieved - goal).max(-1) < 0.5, 0.0, -1.0)


def test_goals_become_what_was_reached_later():
    buffer = goals()
    batch = buffer.sample((20, 100), hindsight=Hindsight(reached, share=0.8))
    goal, here = batch.obs["desired_goal"][..., 0], batch.obs["observation"][..., 0]
    new = goal != 99.0
    assert new.mean() == pytest.approx(0.8, abs=0.03)
    assert (batch.next_obs["desired_goal"] == batch.obs["desired_goal"]).all()
    assert (goal[new] > here[new]).all()
    assert (goal[new] <= np.where(here < 3, 3, 6)[new]).all()  # of the same episode
    assert (batch.reward == np.where(goal == here + 1, 0.0, -1.0)).all()
    assert (np.isneginf(batch.return_to_go) == new).all()
    first = goal[new & (here == 0)]
    np.testing.assert_allclose([(first == k).mean() for k in (1, 2, 3)], 1 / 3, atol=0.08)
    stored = buffer.gather(np.arange(6))
    assert (stored.obs["desired_goal"][:, 0] == 99.0).all()
    assert (stored.reward == -1.0).all()


def test_equal_generators_relabel_alike():
    one, other = (goals().sample(50, hindsight=Hindsight(reached), rng=np.random.default_rng(3)) for _ in range(2))
    assert (one.obs["desired_goal"] == other.obs["desired_goal"]).all()
    assert (goals().sample(50, hindsight=Hindsight(reached, share=0.0)).obs["desired_goal"][:, 0] == 99.0).all()


def test_what_has_no_goals_cannot_be_relabelled():
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    buffer.add([0.0], [0.0], 1.0, [1.0], terminated=True)
    with pytest.raises(DataError, match="hindsight needs dict observations with the parts 'achieved_goal'"):
        buffer.sample(1, hindsight=Hindsight(reached))
    with pytest.raises(DataError, match="goals are relabelled in single steps: leave out n_step, chunk and length"):
        goals().sample(1, n_step=2, hindsight=Hindsight(reached))


def test_help_can_be_read():
    text = pydoc.plain(pydoc.render_doc(ReplayBuffer))
    assert "ndarray[tuple" not in text
    assert "load_dataset(self, dataset: 'Dataset | Mapping[str, Any]'" in text.replace("\n", " ")


def test_numbers_too_large_for_float32_are_named():
    buffer = ReplayBuffer(5, Uniform(), seed=0)
    with pytest.raises(DataError, match=r"obs has .* in row 0: inf \(or too large for float32, which ends at 3.4e38\)"):
        buffer.add([1e300], [0.0], 1.0, [1.0], terminated=True)
