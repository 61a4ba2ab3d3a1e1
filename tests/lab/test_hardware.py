"""Runs on hardware, and runs without an environment."""

import os

import gymnasium
import numpy as np
import pytest

from arb.cli import main
from arb.cli.run import asked_for_enter
from arb.errors import DataError
from arb.lab.estimate import REPLICATES, fitted_q_evaluation
from arb.lab.folder import RunFolder
from arb.lab.setup import Setup
from arb.lab.training import run
from arb.policies import load_policy
from tests.lab import tiny


class Robot(gymnasium.Wrapper):
    """A pendulum that refuses a second connection, cannot be copied, and may fail at one step."""

    open, opened, steps, fails_at = 0, 0, 0, -1

    def __init__(self):
        if Robot.open:
            raise RuntimeError("robot is busy")
        Robot.open, Robot.opened = 1, Robot.opened + 1
        super().__init__(gymnasium.make("Pendulum-v1").unwrapped)
        self.unwrapped.connection = object()

    def step(self, action):
        Robot.steps += 1
        if Robot.steps == Robot.fails_at:
            raise TimeoutError("CAN bus timeout")
        return self.env.step(action)

    def close(self):
        Robot.open = 0


@pytest.fixture
def robot(tmp_path):
    Robot.open = Robot.opened = Robot.steps = 0
    Robot.fails_at = -1
    gymnasium.register("arb-tests/robot-v0", Robot, max_episode_steps=40, disable_env_checker=True)
    tiny.write_data(tmp_path / "data.npz")
    yield tmp_path
    del gymnasium.registry["arb-tests/robot-v0"]


def command(place, *more):
    small = [f"{k}={str(v).replace(' ', '')}" for k, v in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
    return main(["run", "--task", str(place / "data.npz"), "-o", str(place / "run"), *small, *more])


def test_hardware_is_opened_once_and_takes_no_step_but_those_of_whole_episodes(robot):
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware") == 0
    assert (Robot.opened, Robot.steps) == (1, 80)  # 60 steps are two episodes of 40
    curves = RunFolder(robot / "run").curves()
    assert curves["pretrain"].steps.tolist() == [40.0]  # no untrained policy is scored
    assert len(curves["pretrain"].scores[-1]) == REPLICATES


def test_an_exception_of_the_robot_is_one_line_and_the_same_command_continues(robot, capsys):
    Robot.fails_at = 50
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware") == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "TimeoutError: CAN bus timeout" in said
    assert "the same command continues" in said
    assert "step 49" in said
    assert Robot.open == 0
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware") == 0
    assert Robot.steps == 50 + 40  # 49 steps were kept


def test_a_policy_can_be_played_while_pre_training_goes_on(robot):
    config = tiny.config_of(robot / "data.npz", "iql", "naive", **{"evaluation.every": 20})
    seen = []

    def tell(phase, step, _total, _metrics):
        seen.append((phase, step, RunFolder(robot / "run").policy().exists()))

    run(config, robot / "run", tell=tell)
    assert [there for phase, step, there in seen if phase == "pretrain" and step >= 20] == [True, True]


def test_a_start_that_is_refused_leaves_no_run(robot):
    config = tiny.config_of(robot / "data.npz", "iql", "naive")
    with pytest.raises(DataError, match="has no pre-training for this run"):
        run(config, robot / "run", pretraining=robot / "other")
    assert not RunFolder(robot / "run").config_file.exists()


def test_an_untrained_policy_is_not_sent(robot, capsys):
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware", "schedule.pretrain=0") == 2
    assert "untrained" in capsys.readouterr().err
    assert Robot.steps == 0


def test_rollouts_on_hardware_begin_with_a_trained_policy(robot):
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware", "evaluation.by=rollouts") == 0
    assert RunFolder(robot / "run").curves()["pretrain"].steps.tolist() == [40.0]


def test_updates_follow_the_steps_of_whole_episodes(robot, monkeypatch):
    import arb.lab.algorithm

    updates, learn = [], arb.lab.algorithm.learn
    monkeypatch.setattr(
        arb.lab.algorithm,
        "learn",
        lambda agent, batch, *a, **k: updates.append(len(batch.obs)) or learn(agent, batch, *a, **k),
    )
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware", "schedule.updates=30") == 0
    assert updates[-2:] == [60, 60]  # 30 for each 20 steps, in blocks of 40


def test_with_wait_the_robot_starts_when_enter_is_pressed(robot, monkeypatch, capsys):
    ready = iter([False, True, False, False, True])
    monkeypatch.setattr("arb.cli.run.asked_for_enter", lambda: lambda: next(ready))
    assert command(robot, "--env", "arb-tests/robot-v0", "--wait") == 2
    assert "--wait is for --hardware" in capsys.readouterr().err
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware", "--wait") == 0
    assert list(ready) == []


def test_the_question_is_asked_once_for_each_episode(monkeypatch, capsys):
    read, write = os.pipe()
    with os.fdopen(read) as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        ready = asked_for_enter()
        assert [ready(), ready()] == [False, False]
        assert capsys.readouterr().err.count("press Enter") == 1
        os.write(write, b"\n")
        assert ready()
        os.close(write)
        with pytest.raises(DataError, match="nobody can press Enter"):
            ready()
    assert capsys.readouterr().err.count("press Enter") == 1


def test_an_offline_run_goes_on_online_in_the_same_folder(robot):
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware", "schedule.online=0") == 0
    assert Robot.steps == 0
    assert command(robot, "--env", "arb-tests/robot-v0", "--hardware") == 0
    assert Robot.steps == 80


def test_training_offline_needs_no_environment(robot, capsys):
    assert command(robot, "schedule.online=0") == 0
    assert "by fitted Q evaluation" in capsys.readouterr().out
    assert load_policy(robot / "run")(np.zeros(3)).shape == (1,)
    assert Robot.opened == 0


def test_fitted_q_evaluation_is_exact_on_a_chain():
    """State 0 leads to 1 with reward 1, state 1 to the end with reward 2: a return of 3, in two steps."""
    one_hot = np.eye(2)
    inputs, after = np.tile(one_hot, (50, 1)), np.tile(one_hot[[1, 0]], (50, 1))
    rewards, goes_on = np.tile([1.0, 2.0], 50), np.tile([1.0, 0.0], 50)
    episodes = np.repeat(np.arange(50), 2)
    starts, rng = np.tile(one_hot[:1], (50, 1)), np.random.default_rng(0)
    for horizon, value in ((1, 1.0), (2, 3.0), (9, 3.0)):
        found = fitted_q_evaluation(inputs, rewards, after, goes_on, episodes, starts, horizon, rng, lambda x: x)
        np.testing.assert_allclose(found, value, rtol=1e-3)


def test_early_stopping_ends_after_evaluations_without_a_gain(robot):
    config = tiny.config_of(robot / "data.npz", "iql", "arb", **{"evaluation.patience": 2, "schedule.online": 2000})
    run(config, robot / "run")
    scores = RunFolder(robot / "run").curves()["online"].means[1:]
    assert len(scores) < 50
    assert len(scores) - 1 - scores.argmax() == 2


def test_held_out_episodes_are_not_trained_on(robot):
    config = tiny.config_of(robot / "data.npz", "iql", "arb", **{"evaluation.by": "data"})
    setup = Setup.of(config)
    held, rewards = setup.held_out
    assert held.num_episodes == 5
    assert setup.dataset.num_episodes == 15
    assert len(rewards) == len(held)
    seen = {row.tobytes() for row in np.asarray(setup.dataset.observations)}
    assert not seen & {row.tobytes() for row in np.asarray(held.observations)}
