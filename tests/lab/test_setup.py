"""What a configuration comes to: preprocessing, what does not fit its environment, and how much memory it takes."""

import json
import subprocess
import sys
import tracemalloc

import gymnasium
import numpy as np
import pytest

from arb import DataError
from arb.cli import main
from arb.data import Reference, normalised
from arb.envs import LIMIT, make
from arb.envs.rollout import ActionMap
from arb.lab.config import Preprocessing, configure
from arb.lab.folder import RunFolder
from arb.lab.setup import Normalization, Setup, agent_actions, check_observations, fit, moments, return_scale
from tests.lab import tiny

BOX, DISCRETE = gymnasium.spaces.Box(-2.0, 2.0, (1,)), gymnasium.spaces.Discrete(3)


@pytest.mark.parametrize(
    ("recorded", "space", "message"),
    [
        (np.zeros((5, 3)), gymnasium.spaces.Box(-1, 1, (4,)), r"shape \(3,\), Env gives \(4,\): was it recorded"),
        (np.zeros((5, 3)), gymnasium.spaces.Box(0, 255, (8, 8)), "read vectors.*FlattenObservation"),
        (np.zeros(5), gymnasium.spaces.Discrete(4), "read vectors"),
    ],
)
def test_observations_that_do_not_fit(recorded, space, message):
    with pytest.raises(DataError, match=message):
        check_observations(recorded, "Env", space)


@pytest.mark.parametrize(
    ("recorded", "space", "message"),
    [
        (np.full((5, 1), 9.0), BOX, "action 9 in row 0 of the data is outside the bounds of Env, -2 to 2: rescale"),
        (np.zeros((5, 2)), BOX, r"actions of shape \(2,\), Env takes \(1,\)"),
        (np.full(5, 3), DISCRETE, "3 discrete actions: the data must hold one number from 0 to 2"),
        (np.full(5, 0), gymnasium.spaces.Discrete(3, start=5), "one number from 5 to 7"),
        (np.full(5, -1), DISCRETE, "one number from 0 to 2"),
        (np.full(5, 0.5), DISCRETE, "one number from 0 to 2"),
        (np.eye(3), DISCRETE, "one number from 0 to 2"),
    ],
)
def test_actions_that_do_not_fit(recorded, space, message):
    with pytest.raises(DataError, match=message):
        agent_actions(recorded, "Env", ActionMap(space))


def test_actions_that_fit():
    bounds = np.array([[-2.0], [2.0], [1.0]], np.float32)
    np.testing.assert_allclose(agent_actions(bounds, "Env", ActionMap(BOX)), [[-1.0], [1.0], [0.5]])
    column = agent_actions(np.array([[0.0], [2.0]]), "Env", ActionMap(DISCRETE))
    assert column.tolist() == [0, 2]
    assert column.dtype == np.int64
    from_five = gymnasium.spaces.Discrete(3, start=5)
    assert agent_actions(np.array([5, 7]), "Env", ActionMap(from_five)).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schedule.online", "-5", "schedule.online must be at least 0, not -5"),
        ("schedule.batch", 0, "schedule.batch must be at least 1"),
        ("schedule.collect", 0, "schedule.collect must be at least 1"),
        ("evaluation.every", 0, "evaluation.every must be at least 1"),
        ("replay.temperature", "-1", "replay.temperature must be greater than 0, or auto, not -1.0"),
        ("replay.clip", (7.0, -12.0), "replay.clip must be a lower and a higher bound"),
        ("replay.offline_share", 1.5, "replay.offline_share must be from 0 to 1"),
        ("settings.discount", 1.0, "settings.discount must be from 0 to below 1"),
        ("settings.expectile", 1, "settings.expectile must be between 0 and 1"),
        ("settings.tau", 0, "settings.tau must be greater than 0 and at most 1"),
        (
            "settings.hidden_dims",
            "0,5",
            r"must be the units of each hidden layer, at least 1, not \(0, 5\)",
        ),
        ("settings.hidden_dims", (), "settings.hidden_dims must be the units of each hidden layer, at least 1"),
        ("settings.hidden_dims", "128", "settings.hidden_dims must be int values, a comma after each, not 128"),
        ("replay.clip", "7", "replay.clip must be float values, 2 of them with a comma between, not 7"),
    ],
)
def test_settings_that_make_no_sense(key, value, message):
    strategy = "parallel" if key == "replay.offline_share" else "arb"
    with pytest.raises(DataError, match=message):
        configure(strategy=strategy, overrides={key: value})


def test_a_seed_that_makes_no_sense():
    with pytest.raises(DataError, match="seed must be at least 0, not -1"):
        configure(seed=-1)


OWN_ENVIRONMENT = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
gymnasium.register("Endless-v0", PendulumEnv)
"""


def test_an_environment_of_ones_own_without_a_limit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny.write_data(tmp_path / "data.npz")
    (tmp_path / "own_environment.py").write_text(OWN_ENVIRONMENT)
    settings = [f"{key}={value}" for key, value in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
    half = len(settings) // 2
    command = ["run", "--task", "data.npz", *settings[:half], "--env", "own_environment:Endless-v0", *settings[half:]]
    assert main([*command, "evaluation.episodes=1"]) == 0
    assert f"an episode that it does not end stops at {LIMIT:,} steps" in capsys.readouterr().out
    assert make("Endless-v0").spec.max_episode_steps == LIMIT
    assert main(["run", "--task", "data.npz", "--env", "no_module:Endless-v0", "-o", "other"]) == 2
    assert "environment 'no_module:Endless-v0' cannot be made: No module named 'no_module'" in capsys.readouterr().err


def test_the_environment_may_have_the_name_of_a_task():
    setup = Setup.of(configure(task="bundled:hopper-tiny", env="hopper-medium-v2", preset="smoke"))
    assert not setup.unlimited
    assert setup.make_env().spec.id == "arb/hopper-v2"


def test_a_file_may_not_load_a_module(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as file:
        np.savez(tmp_path / "named.npz", env="antigravity:Pendulum-v1", **file)
    with pytest.raises(DataError, match="may not load code: add --env antigravity:Pendulum-v1"):
        Setup.of(configure(task=str(tmp_path / "named.npz")))
    assert "antigravity" not in sys.modules


def test_changed_data_is_not_mixed_with_what_was_done(tmp_path):
    folder = RunFolder(tmp_path)
    path = tmp_path / "data.npz"
    tiny.write_data(path)
    config = tiny.config_of(path, "iql", "arb")
    folder.write_config(config, Setup.of(config).describe())
    folder.write_config(config, Setup.of(config).describe())
    with np.load(path) as file:
        np.savez(path, **{name: file[name][:400] for name in file.files})
    with pytest.raises(DataError, match=r"has changed since the run in .* began"):
        folder.write_config(config, Setup.of(config).describe())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-o", "taken"], "taken is a file, not a folder: choose another with --out"),
        (["-o", "damaged"], "config.json is damaged"),
        (["--from", "nowhere"], "--from nowhere: there is no such folder"),
    ],
)
def test_folders_that_will_not_do(more, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    assert main(["run", "-p", "smoke", *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


ASKED_WHILE_LOADING = """
import os, signal, sys
import arb.lab.setup
from arb.cli import main
from arb.data import Reference, normalised

of = arb.lab.setup.Setup.of

def asked(config, source=None, audited=False):
    os.kill(os.getpid(), signal.SIGINT)
    return of(config, source)

arb.lab.setup.Setup.of = asked
sys.exit(main(["run", "-t", "bundled:hopper-tiny", "-o", sys.argv[1]]))
"""


def test_ctrl_c_while_the_data_is_loaded_stops_before_the_first_update(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ASKED_WHILE_LOADING, str(tmp_path / "run")], capture_output=True, text=True
    )
    assert done.returncode == 130
    assert "press Ctrl-C again to quit now" in done.stderr
    assert "stopped before the first update" in done.stderr
    assert not (tmp_path / "run").exists()


# ---- preprocessing ---------------------------------------------------------------------------------------------------


def fitted(agent, task="hopper-medium-v2", obs=((1.0, 5.0), (3.0, 5.0)), returns=(3.0, -3.0, 10.0), **more):
    rule = configure(task=task, agent=agent, overrides={f"preprocessing.{k}": v for k, v in more.items()}).preprocessing
    return fit(rule, np.array(obs, np.float32), np.array(returns))


def test_observations_by_hand():
    # means 2 and 5, deviations 1 and 0, plus 0.001
    np.testing.assert_allclose(fitted("iql").observations([[3, 5]]), [[1 / 1.001, 0]], rtol=1e-6)
    assert fitted("iql", normalize_observations=False).observations([[3, 5]]).tolist() == [[3, 5]]


def test_rewards_by_hand():
    assert return_scale(np.array([3.0, -3.0, 10.0])) == pytest.approx(1000 / 13)
    np.testing.assert_allclose(fitted("pex").rewards([1, -3]), [1000 / 13, -3000 / 13], rtol=1e-6)
    np.testing.assert_allclose(fitted("iql", reward_scale="return_range").rewards(1), 1000 / 13, rtol=1e-6)
    assert fitted("iql").rewards(1) == 1.0


@pytest.mark.parametrize(
    ("agent", "zero", "one", "normalized"),
    [("iql", -1, 0, True), ("pex", -1, 0, True), ("famo2o", -1, 0, True), ("calql", -5, 5, False)],
)
def test_antmaze(agent, zero, one, normalized):
    found = fitted(agent, "antmaze-umaze-v2")
    assert found.rewards([0, 1]).tolist() == [zero, one]
    assert (found.mean is not None) is normalized


def test_moments_over_several_blocks():
    obs = np.random.default_rng(0).normal(3, 2, (150_000, 2)).astype(np.float32)
    np.testing.assert_allclose(moments(obs)[0], obs.mean(0, dtype=float), rtol=1e-6)
    np.testing.assert_allclose(moments(obs)[1], obs.std(0, dtype=float), rtol=1e-6)


def test_a_normalization_survives_json_bit_for_bit():
    found = fitted("pex", obs=np.random.default_rng(0).normal(size=(9, 3)))
    said = json.loads(json.dumps(found.to_dict()))
    arrays = (np.asarray(said[name], np.float32) for name in ("mean", "std"))
    back = Normalization(*arrays, said["scale"], said["shift"])
    obs = np.random.default_rng(1).normal(size=(4, 3))
    np.testing.assert_array_equal(back.observations(obs), found.observations(obs))
    assert (back.scale, back.shift) == (found.scale, found.shift)


def test_returns_that_are_all_equal_cannot_be_scaled():
    with pytest.raises(DataError, match=r"have the same return: add preprocessing.reward_scale=none"):
        fit(Preprocessing(reward_scale="return_range"), np.zeros((2, 1), np.float32), np.ones(2))


def test_scores_by_hand():
    assert normalised([-20.272305, 3234.3], Reference(-20.272305, 3234.3)).tolist() == [0, 100]
    assert normalised(0.85, Reference(0, 1)) == pytest.approx(85)
    with pytest.raises(ValueError, match="must be two numbers, the second larger"):
        normalised(1, Reference(1, 1))


def test_a_run_knows_the_returns_of_its_data(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    setup = Setup.of(tiny.config_of(tmp_path / "data.npz", "iql", "arb"))
    with np.load(tmp_path / "data.npz") as file:
        returns = file["rewards"].reshape(20, 40).sum(1)
    data = setup.describe()["data"]
    assert (data["rows"], data["episodes"]) == (800, 20)
    assert (data["mean_return"], data["best_return"]) == pytest.approx((returns.mean(), returns.max()))


# ---- memory ----------------------------------------------------------------------------------------------------------
ROWS = 400_000


def test_a_run_holds_little_more_than_two_and_a_half_times_its_data(tmp_path):
    """The promise of `benchmarks/load_million.py`, without what JAX takes."""
    rng, path = np.random.default_rng(0), tmp_path / "hopper.npz"
    columns = {
        "observations": rng.normal(size=(ROWS, 11)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        "rewards": rng.normal(size=ROWS).astype(np.float32),
        "terminals": np.zeros(ROWS, bool),
        "timeouts": np.arange(1, ROWS + 1) % 1000 == 0,
    }
    np.savez(path, **columns)
    held = sum(column.nbytes for column in columns.values()) + 8 * ROWS  # and the episode and raw reward of each row
    del columns
    config = configure(task=str(path), env="Hopper-v5", agent="iql", strategy="arb", preset="smoke")
    make("Hopper-v5").close()  # what it imports does not count
    tracemalloc.start()
    try:
        setup = Setup.of(config)
        dataset, sampler = setup.strategy()
        buffer = setup.new_buffer(sampler, len(dataset) + 400, "online")
        buffer.load_dataset(dataset)
        buffer.refresh(lambda obs, action: -np.square(action).sum(-1))
        buffer.sample_indices((4, 256))
        buffer.stats()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.7 * held


def test_policies_that_act_in_chunks_are_not_estimated_from_data(tmp_path):
    config = configure(task="bundled:hopper-tiny", agent="qcfql", overrides={"evaluation.by": "data"})
    with pytest.raises(DataError, match=r"evaluation\.by=data knows only .* qcfql chooses 5: evaluate it in an env"):
        Setup.of(config)
