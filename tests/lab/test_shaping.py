from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from arb.data import Reference, normalised
from arb.data.tasks import FAMILIES, family_of
from arb.lab.algorithms import ShapingRule, tuned
from arb.lab.preprocessing import Shaping, fit, moments, return_scale
from tests.data.recordings import load as load_walk
from tests.data.recordings import walk


def load(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return load_walk(columns).to_dict()


def rule(agent: str, family: str) -> ShapingRule:
    found = tuned(agent, FAMILIES[family]).rule
    assert found is not None
    return found


def test_states_by_hand() -> None:
    columns = {"observations": np.array([[1.0, 5], [3, 5]], np.float32)}
    shaping = fit(ShapingRule(), columns)
    # means 2 and 5, deviations 1 and 0, plus 0.001
    np.testing.assert_allclose(shaping.observations([[3, 5]]), [[1 / 1.001, 0]], rtol=1e-6)


def test_rewards_by_hand() -> None:
    columns = load(walk([2, 1, 2]))
    columns["rewards"] = np.array([1, 2, -3, 5, 5], np.float32)
    # returns 3, -3, 10: the range is 13
    assert return_scale(columns) == pytest.approx(1000 / 13)
    shaping = fit(rule("pex", "locomotion"), columns)
    np.testing.assert_allclose(shaping.dataset(columns)["rewards"], columns["rewards"] * 1000 / 13, rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "zero", "one", "states"),
    [("iql", -1, 0, True), ("pex", -1, 0, True), ("famo2o", -1, 0, True), ("calql", -5, 5, False)],
)
def test_antmaze_rules(algorithm: str, zero: float, one: float, states: bool) -> None:
    shaping = fit(rule(algorithm, "antmaze"), load(walk([4, 4])))
    assert shaping.rewards([0, 1]).tolist() == [zero, one]
    assert (shaping.mean is not None) is states


def test_a_task_of_ones_own_is_shaped_like_locomotion() -> None:
    for agent in ("iql", "pex", "my_module:MyAgent"):
        assert tuned(agent, family_of("mine.hdf5")).rule == rule(agent, "locomotion")
    assert rule("my_module:MyAgent", "antmaze") == ShapingRule(shift=-1.0)


@given(arrays(np.float32, (70_000 // 1000, 3), elements=st.floats(-100, 100, width=32)))
def test_moments_are_those_of_numpy(obs: np.ndarray) -> None:
    mean, std = moments(obs)
    np.testing.assert_allclose(mean, obs.mean(0, dtype=float), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(std, obs.std(0, dtype=float), rtol=1e-5, atol=1e-5)


def test_moments_over_several_blocks() -> None:
    obs = np.random.default_rng(0).normal(3, 2, (150_000, 2)).astype(np.float32)
    np.testing.assert_allclose(moments(obs)[1], obs.std(0, dtype=float), rtol=1e-6)


def test_a_shaping_survives_json_bit_for_bit() -> None:
    shaping = fit(rule("pex", "locomotion"), load(walk([5, 6, 7])))
    said = json.loads(json.dumps(shaping.to_dict()))
    back = Shaping(*(np.asarray(said[name], np.float32) for name in ("mean", "std")), said["scale"], said["shift"])
    obs = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(back.observations(obs), shaping.observations(obs))
    assert (back.scale, back.shift) == (shaping.scale, shaping.shift)


def test_unchanged_columns_are_shared() -> None:
    columns = load(walk([5, 6]))
    shaped = fit(rule("calql", "antmaze"), columns).dataset(columns)
    assert shaped["observations"] is columns["observations"]
    assert shaped["actions"] is columns["actions"]


def test_returns_that_are_all_equal_cannot_be_scaled() -> None:
    columns = load(walk([3, 3]))
    columns["rewards"][:] = 1
    with pytest.raises(ValueError, match="all episodes of the dataset have the same"):
        fit(ShapingRule(by_return_range=True), columns)


def test_scores_by_hand() -> None:
    assert normalised([-20.272305, 3234.3], Reference(-20.272305, 3234.3)).tolist() == [0, 100]
    assert normalised(0.85, Reference(0, 1)) == pytest.approx(85)
    with pytest.raises(ValueError, match="must be two numbers, the second larger"):
        normalised(1, Reference(1, 1))
