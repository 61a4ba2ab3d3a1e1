"""Data that does not fit its environment, and settings that make no sense: one line before anything starts."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from arb import DataError
from arb.cli import main
from arb.envs import LIMIT, make
from arb.envs.rollout import ActionMap
from arb.lab.config import configure
from arb.lab.setup import Problem, agent_actions, describe_run, refuse_other_observations
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
        refuse_other_observations(recorded, "Env", space)


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
    ("leaf", "value", "message"),
    [
        ("schedule.online", "-5", "schedule.online must be at least 1, not -5"),
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
def test_settings_that_make_no_sense(leaf, value, message):
    with pytest.raises(DataError, match=message):
        configure(overrides={leaf: value})


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
    settings = [f"{leaf}={value}" for leaf, value in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
    half = len(settings) // 2
    command = ["run", "--task", "data.npz", *settings[:half], "--env", "own_environment:Endless-v0", *settings[half:]]
    assert main([*command, "evaluation.episodes=1"]) == 0
    assert f"Endless-v0 has no time limit: episodes end after {LIMIT:,} steps" in capsys.readouterr().out
    assert make("Endless-v0").spec.max_episode_steps == LIMIT
    assert main(["run", "--task", "data.npz", "--env", "no_module:Endless-v0", "-o", "other"]) == 2
    assert "environment 'no_module:Endless-v0' cannot be made: No module named 'no_module'" in capsys.readouterr().err


def test_a_file_may_not_load_a_module(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as file:
        np.savez(tmp_path / "named.npz", env="antigravity:Pendulum-v1", **file)
    with pytest.raises(DataError, match="may not load code: add --env antigravity:Pendulum-v1"):
        Problem.of(configure(task=str(tmp_path / "named.npz")))
    assert "antigravity" not in sys.modules


def test_changed_data_is_not_mixed_with_what_was_done(tmp_path):
    from arb.lab.folder import write_config

    path = tmp_path / "data.npz"
    tiny.write_data(path)
    config = tiny.config_of(path, "iql", "arb")
    write_config(tmp_path, config, describe_run(Problem.of(config)))
    write_config(tmp_path, config, describe_run(Problem.of(config)))
    with np.load(path) as file:
        np.savez(path, **{name: file[name][:400] for name in file.files})
    with pytest.raises(DataError, match=r"has changed since the run in .* began"):
        write_config(tmp_path, config, describe_run(Problem.of(config)))


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

of = arb.lab.setup.Problem.of

def asked(config, source=None, audited=False):
    os.kill(os.getpid(), signal.SIGINT)
    return of(config, source)

arb.lab.setup.Problem.of = asked
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
