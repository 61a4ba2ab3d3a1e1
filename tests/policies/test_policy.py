"""An exported policy does what the agent does, with NumPy alone."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from arb import DataError
from arb.agents import (
    FQL,
    IQL,
    PEX,
    SAC,
    CalQL,
    CalQLConfig,
    FamO2O,
    FamO2OConfig,
    FQLConfig,
    IQLConfig,
    PEXConfig,
    SACConfig,
)
from arb.envs.rollout import ActionMap, flat_vector
from arb.lab.folder import RunFolder
from arb.lab.setup import Normalization
from arb.policies import Policy, load_policy
from arb.policies.export import POLICIES, shapes_of
from arb.policies.export import export_policy as export_to_file

OBS, ACTION = 5, 3
BOX = gymnasium.spaces.Box(np.array([-2.0, 0.0, -1.0], np.float32), np.array([2.0, 3.0, 5.0], np.float32))
SCALING = Normalization(np.arange(OBS, dtype=np.float32), np.linspace(0.5, 3.0, OBS, dtype=np.float32))
RAW = np.random.default_rng(7).normal(1.0, 3.0, (40, OBS))


SMALL = (8, 8)
AGENTS = {
    "iql": (IQL, IQLConfig(hidden_dims=SMALL)),
    "discrete": (IQL, IQLConfig(hidden_dims=SMALL, actions="discrete")),
    "calql": (CalQL, CalQLConfig(actor_hidden_dims=SMALL, critic_hidden_dims=SMALL)),
    "pex": (PEX, PEXConfig(hidden_dims=SMALL, epsilon=0.5)),
    "famo2o": (FamO2O, FamO2OConfig(hidden_dims=SMALL)),
    "sac": (SAC, SACConfig(hidden_dims=SMALL)),
    "fql": (FQL, FQLConfig(hidden_dims=SMALL)),
    "qcfql": (FQL, FQLConfig(hidden_dims=SMALL, chunk=4)),
}


def actor_of(name: str) -> Any:
    """An online agent's actor with random numbers everywhere, so that zeros and ones at the start hide no mistake."""
    kind, config = AGENTS[name]
    shapes = jax.eval_shape(lambda: kind.create(jax.random.key(0), OBS, ACTION, config).begin_online())
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: rng.normal(0.0, 0.6, leaf.shape).astype(np.float32), shapes.actor)


def export_policy(actor: Any, scaling: Any, actions: Any, folder: Path, which: Any = "last", **more: Any) -> Path:
    return export_to_file(RunFolder(folder).policy(which), actor, scaling, actions, **more)


@pytest.fixture(scope="module")
def actors() -> dict[str, Any]:
    return {name: actor_of(name) for name in AGENTS}


def actions_of(name: str) -> ActionMap:
    return ActionMap(gymnasium.spaces.Discrete(ACTION) if name == "discrete" else BOX)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("scaling", [SCALING, Normalization()], ids=["normalised", "raw"])
def test_the_same_action_as_the_agents(actors, name, scaling, tmp_path):
    actor, actions = actors[name], actions_of(name)
    export_policy(actor, scaling, actions, tmp_path)
    policy = load_policy(tmp_path)
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    for obs in (RAW, RAW[0], RAW.reshape(4, 10, OBS)):
        expected = np.asarray(actor.mode(scaling.observations(obs), theirs))
        np.testing.assert_array_equal(policy.mode(obs, ours), expected)
    np.testing.assert_array_equal(
        policy(RAW, ours), actions.to_env(np.asarray(actor.mode(scaling.observations(RAW), theirs)))
    )
    assert ours.bit_generator.state == theirs.bit_generator.state


@pytest.mark.parametrize("likelihood", ["standard", "density"])
@pytest.mark.parametrize("name", AGENTS)
def test_scores_are_the_same_in_numpy_and_jax(actors, name, likelihood):
    rng = np.random.default_rng(2)
    obs = rng.standard_normal((20, OBS), dtype=np.float32)
    shape = (20, 4, ACTION) if name == "qcfql" else (20, ACTION)
    action = rng.integers(0, ACTION, 20) if name == "discrete" else rng.uniform(-0.9, 0.9, shape).astype("f4")
    host = actors[name].score(obs, action, likelihood)
    assert isinstance(host, np.ndarray)
    compiled = jax.tree.map(jax.numpy.asarray, actors[name]).score(obs, action, likelihood)
    np.testing.assert_allclose(host, compiled, rtol=1e-4, atol=1e-4)


def test_a_number_that_is_no_action_has_no_probability(actors):
    for policy in (actors["discrete"], jax.tree.map(jax.numpy.asarray, actors["discrete"])):
        known = np.isfinite(policy.log_prob(np.zeros((4, OBS), np.float32), np.array([-1, 0, ACTION - 1, ACTION])))
        assert known.tolist() == [False, True, True, False]


def test_actions_fill_the_range_of_the_environment(actors, tmp_path):
    export_policy(actors["iql"], Normalization(), actions_of("iql"), tmp_path)
    action = load_policy(tmp_path)(1e6 * RAW)
    assert action.dtype == np.float32
    np.testing.assert_allclose(
        np.abs(action - [0.0, 1.5, 2.0]), np.broadcast_to([2.0, 1.5, 3.0], action.shape), rtol=1e-6
    )


def test_discrete_actions_are_numbers(actors, tmp_path):
    export_policy(actors["discrete"], SCALING, actions_of("discrete"), tmp_path)
    policy = load_policy(tmp_path)
    assert policy(RAW).shape == (40,)
    assert set(policy(RAW).tolist()) <= set(range(ACTION))
    assert gymnasium.spaces.Discrete(ACTION).contains(policy(RAW[0]))
    export_policy(actors["discrete"], SCALING, ActionMap(gymnasium.spaces.Discrete(ACTION, start=5)), tmp_path)
    np.testing.assert_array_equal(load_policy(tmp_path)(RAW), policy(RAW) + 5)


def test_chance_without_a_generator_starts_the_same_every_time(actors, tmp_path):
    export_policy(actors["pex"], SCALING, actions_of("pex"), tmp_path)
    first, second = load_policy(tmp_path), load_policy(tmp_path)
    np.testing.assert_array_equal(first(RAW), second(RAW))
    assert not np.array_equal(first(RAW), load_policy(tmp_path)(RAW))  # its generator has moved on


def test_needs_numpy_alone(actors, tmp_path):
    export_policy(actors["pex"], SCALING, actions_of("pex"), tmp_path)
    code = f"""
import sys
for name in ("jax", "jaxlib", "optax", "gymnasium", "safetensors", "h5py", "matplotlib", "torch"):
    sys.modules[name] = None  # importing it fails
from arb.policies import load_policy
import json, numpy as np
policy = load_policy({str(tmp_path)!r})
print(json.dumps(policy(np.array({RAW[:2].tolist()!r}), np.random.default_rng(4)).tolist()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = load_policy(tmp_path)(RAW[:2], np.random.default_rng(4))
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-6)


def test_run_folder_policy_folder_and_file_all_load(actors, tmp_path):
    path = export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    assert path == RunFolder(tmp_path).policy()
    assert [p.name for p in (tmp_path / "policy").iterdir()] == ["policy.npz"]  # nothing unfinished is left
    for place in (tmp_path, tmp_path / "policy", path, str(tmp_path)):
        np.testing.assert_array_equal(load_policy(place)(RAW), load_policy(path)(RAW))


def test_pretrained_best_and_last_policies_lie_side_by_side(actors, tmp_path):
    for scale, which in enumerate(POLICIES):
        actor = jax.tree.map(lambda x, s=scale: s * x, actors["iql"])
        export_policy(actor, SCALING, actions_of("iql"), tmp_path, which)
    assert sorted(p.name for p in (tmp_path / "policy").iterdir()) == ["best.npz", "policy.npz", "pretrained.npz"]
    np.testing.assert_array_equal(load_policy(tmp_path)(RAW), load_policy(tmp_path, "last")(RAW))
    actions = [load_policy(place, which)(RAW) for which in POLICIES for place in (tmp_path, tmp_path / "policy")]
    assert len({action.tobytes() for action in actions}) == 3
    RunFolder(tmp_path).policy("best").unlink()
    assert "holds no best policy" in refused(tmp_path, "best")
    assert "no policy 'worst' in a run: choose last, best, pretrained" in refused(tmp_path, "worst")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("iql", "<Policy Gaussian: 5 numbers -> 3 numbers>"),
        ("discrete", "<Policy Categorical: 5 numbers -> a discrete action>"),
        ("famo2o", "<Policy PolicyFamily: 5 numbers -> 3 numbers>"),
    ],
)
def test_a_policy_prints_in_one_line(actors, name, line, tmp_path):
    export_policy(actors[name], SCALING, actions_of(name), tmp_path)
    assert repr(load_policy(tmp_path)) == line


def refused(place: Path, which: Any = "last") -> str:
    with pytest.raises(DataError) as problem:
        load_policy(place, which)
    assert "\n" not in str(problem.value)
    return str(problem.value)


def test_bad_folders_are_refused_in_one_line(actors, tmp_path):
    assert "no such file or folder" in refused(tmp_path / "nowhere")
    assert "holds no last policy: give the folder of a finished run" in refused(tmp_path)
    path = export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    whole = path.read_bytes()
    for broken in (b"", b"text", whole[: len(whole) // 2], whole.replace(b"Gaussian", b"naissuaG")):
        path.write_bytes(broken)
        assert "damaged" in refused(tmp_path)


def edited(path: Path, **changed: Any) -> None:
    """The file with other arrays, or without those that are None."""
    with np.load(path) as file:
        arrays = {**file, **changed}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


def test_arrays_that_do_not_fit_are_refused(actors, tmp_path):
    for change in (
        {"net.weights.1": None},
        {"net.biases.0": np.zeros(3)},
        {"half": np.full(3, np.nan)},
        {"low": np.zeros(OBS + 1)},
        {"std": np.ones((1, OBS))},
    ):
        path = export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
        edited(path, **change)
        assert "damaged" in refused(tmp_path)
    edited(path, about=np.frombuffer(b'{"format": 1}', np.uint8))
    assert "format 1" in refused(tmp_path)
    edited(path, about=np.array([{"a": 1}], dtype=object))  # a pickle, which is never opened
    assert "damaged" in refused(tmp_path)


def test_observations_that_do_not_fit_are_refused(actors, tmp_path):
    export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    policy = load_policy(tmp_path)
    for wrong in (np.zeros(OBS + 1), np.zeros((2, 1)), 0.0):
        with pytest.raises(DataError, match="observations of 5 numbers"):
            policy(wrong)
    with pytest.raises(DataError, match="not finite"):
        policy(np.full(OBS, np.nan))

    for wrong in ("left", [1.0, "x", 2.0, 3.0, 4.0], [[1.0], [1.0, 2.0]]):
        with pytest.raises(DataError, match="not numbers in one array"):
            policy(wrong)


# ---- exploring -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", AGENTS)
def test_a_sample_is_the_exploring_action_of_the_agent(actors, name, tmp_path):
    actor, actions = actors[name], actions_of(name)
    export_policy(actor, SCALING, actions, tmp_path)
    policy = load_policy(tmp_path)
    expected = actions.to_env(np.asarray(actor.act(SCALING.observations(RAW), np.random.default_rng(5))))
    sampled = policy.sample(RAW, np.random.default_rng(5))
    np.testing.assert_array_equal(sampled, expected)
    assert not np.array_equal(sampled, policy.sample(RAW, np.random.default_rng(6)))
    space = gymnasium.spaces.Discrete(ACTION) if name == "discrete" else BOX
    assert policy.chunk == (4 if name == "qcfql" else 1)
    assert all(space.contains(action) for action in (np.concatenate(sampled) if policy.chunk > 1 else sampled))
    one = policy.sample(RAW[0])  # without a generator it has its own
    assert space.contains(one[0] if policy.chunk > 1 else one)


# ---- dict observations -----------------------------------------------------------------------------------------------
ROOM = {"walls": RAW[:, :4].reshape(40, 2, 2), "air": {"heat": RAW[:, 4]}}


def test_a_policy_takes_the_dict_that_the_environment_gives(actors, tmp_path):
    assert shapes_of(RAW) is None
    export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path, parts=shapes_of(ROOM))
    policy = load_policy(tmp_path)
    flat = flat_vector(ROOM, (40,))
    np.testing.assert_array_equal(flat, RAW[:, [4, 0, 1, 2, 3]])  # by name
    np.testing.assert_array_equal(policy(ROOM), policy(flat))
    one = {"walls": ROOM["walls"][0], "air": {"heat": float(RAW[0, 4])}}
    np.testing.assert_array_equal(policy(one), policy(flat[0]))
    np.testing.assert_array_equal(
        policy.sample(one, np.random.default_rng(1)), policy.sample(flat[0], np.random.default_rng(1))
    )


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"walls": np.zeros((2, 2))}, "with the parts air, walls"),
        ({"walls": np.zeros((2, 2)), "air": 1.0}, "with the parts heat"),
        ({"walls": np.zeros(4), "air": {"heat": 1.0}}, r"shape \(4,\) where this policy takes \(2, 2\)"),
        ({"walls": np.zeros((3, 2, 2)), "air": {"heat": np.zeros(2)}}, "or in one for each part"),
    ],
)
def test_a_dict_of_other_parts_is_refused(actors, obs, message, tmp_path):
    export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path, parts=shapes_of(ROOM))
    with pytest.raises(DataError, match=message):
        load_policy(tmp_path)(obs)
    export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    with pytest.raises(DataError, match="that are vectors"):
        load_policy(tmp_path)(obs)  # of a policy that knows of no parts


# ---- observations outside the training data --------------------------------------------------------------------------
SEEN = SCALING.observations(RAW)
LOW, HIGH = RAW.min(0), RAW.max(0)
NEAR, FAR = HIGH + 0.9 * (HIGH - LOW), np.where(np.arange(OBS) == 2, LOW - 1.1 * (HIGH - LOW), RAW[0])


def ranged(actors: Any, tmp_path: Path, outside: Any = "warn", name: str = "iql", seen: Any = SEEN) -> Policy:
    export_policy(actors[name], SCALING, actions_of(name), tmp_path, observations=seen)
    return load_policy(tmp_path, outside=outside)


def test_an_observation_far_outside_the_training_data_is_reported(actors, tmp_path):
    policy = ranged(actors, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = policy(NEAR)
    for call in (policy, policy.sample):
        with pytest.warns(UserWarning, match=r"entry 2 of the observation is far outside .* check the sensor"):
            call(FAR)
    with pytest.warns(UserWarning, match="entry 0"):
        policy(np.full(OBS, 1e9))
    strict = load_policy(tmp_path, outside="raise")
    np.testing.assert_array_equal(strict(NEAR), expected)
    with pytest.raises(DataError, match=f"which has {LOW[2]:.4g} to {HIGH[2]:.4g} there"):
        strict(FAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(tmp_path, outside="ignore")(np.full(OBS, 1e9))


def test_a_fallback_action_replaces_only_the_rows_that_are_far(actors, tmp_path):
    stop = [0.0, 1.0, -1.0]
    policy, plain = ranged(actors, tmp_path, stop), load_policy(tmp_path)
    batch = np.stack([RAW[0], FAR, NEAR, np.full(OBS, np.nan), np.full(OBS, np.inf)])
    sampled = policy.sample(batch, np.random.default_rng(3))
    np.testing.assert_array_equal(sampled[0], plain.sample(batch[0], np.random.default_rng(3)))
    np.testing.assert_array_equal(sampled[[1, 3, 4]], np.tile(np.float32(stop), (3, 1)))
    np.testing.assert_array_equal(policy(batch)[[0, 2]], plain(batch[[0, 2]]))
    np.testing.assert_array_equal(policy(batch)[[1, 3, 4]], np.tile(np.float32(stop), (3, 1)))
    np.testing.assert_array_equal(policy(FAR), np.float32(stop))
    numbers = ranged(actors, tmp_path, 1, "discrete")
    assert numbers(FAR) == 1
    assert numbers(batch).dtype == numbers(RAW).dtype


def test_what_to_do_outside_is_checked_when_the_policy_is_loaded(actors, tmp_path):
    for outside, message in (
        ("shout", "outside"),
        ([0.0, 1.0], r"an action of .* is numbers of shape \(3,\)"),
        (["a", "b", "c"], "is numbers"),
    ):
        with pytest.raises(DataError, match=message):
            ranged(actors, tmp_path, outside)


def test_a_constant_entry_may_round_and_no_more(actors, tmp_path):
    policy = ranged(actors, tmp_path, "raise", seen=np.zeros((9, OBS), np.float32))  # raw: 0, 1, 2, 3, 4
    policy(np.arange(OBS) + 0.009)
    with pytest.raises(DataError, match="entry 0"):
        policy(np.arange(OBS) + 0.011)


def test_a_policy_without_a_range_reports_nothing(actors, tmp_path):
    export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(tmp_path)(np.full(OBS, 1e9))


def test_an_unknown_actor_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be exported"):
        export_policy(object(), Normalization(), actions_of("iql"), tmp_path)


def test_a_file_that_names_other_kinds_or_sizes_is_refused(actors, tmp_path):
    path = export_policy(actors["famo2o"], SCALING, actions_of("famo2o"), tmp_path)
    with np.load(path) as file:
        about = json.loads(file["about"].tobytes())
    assert about["actor"]["kind"] == "PolicyFamily"
    whole = path.read_bytes()
    for change in (
        {"actor": {"kind": "os.system"}},
        {"actor": about["actor"]["universal"]["net"]},  # a network, which is no policy
        {"actor": {**about["actor"], "more": 1}},
        {"actor": {**about["actor"], "code_size": 10**15}},
        {"actor": "net.weights.0"},
        {"obs_size": OBS + 6},
        {"obs_size": -1},
        {"parts": {"a": [OBS + 1]}},
        {"parts": {"a": ["b"]}},
        {"parts": 7},
    ):
        path.write_bytes(whole)
        edited(path, about=np.frombuffer(json.dumps(about | change).encode(), np.uint8))
        assert "damaged" in refused(tmp_path), change


def test_a_file_that_unpacks_to_more_than_any_policy_is_refused_unread(actors, tmp_path, monkeypatch):
    path = export_policy(actors["iql"], SCALING, actions_of("iql"), tmp_path)
    monkeypatch.setattr("arb.policies.export.LARGEST", path.stat().st_size // 2)
    monkeypatch.setattr("numpy.load", lambda *_, **__: pytest.fail("read"))
    assert "damaged" in refused(tmp_path)


def test_a_fallback_action_stands_for_a_whole_chunk(actors, tmp_path):
    export_policy(actors["qcfql"], SCALING, actions_of("qcfql"), tmp_path, observations=SCALING.observations(RAW))
    fallback = np.array([1.0, 2.0, 3.0], np.float32)
    policy, plain = load_policy(tmp_path, outside=fallback), load_policy(tmp_path)
    far = np.stack([RAW[0], np.full(OBS, np.nan), RAW[1]])
    taken = policy(far, np.random.default_rng(0))
    np.testing.assert_array_equal(taken[1], np.tile(fallback, (4, 1)))
    near = plain(np.where(np.isfinite(far), far, 0.0), np.random.default_rng(0))
    np.testing.assert_array_equal(taken[[0, 2]], near[[0, 2]])
    assert repr(policy) == f"<Policy OneStep: {OBS} numbers -> {ACTION} numbers, 4 times>"
    with pytest.raises(DataError, match=r"is numbers of shape \(3,\)"):
        load_policy(tmp_path, outside=np.zeros((4, 3)))
