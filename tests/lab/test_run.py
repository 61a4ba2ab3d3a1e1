"""What a run keys behind, and what it does when asked to stop, when files are damaged, and when the disk is full."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from arb import DataError, load_dataset
from arb.cli import main
from arb.data.formats import read_attributes
from arb.errors import Interrupted
from arb.lab.config import configure, flat, from_flat, with_key
from arb.lab.folder import RunFolder, export_steps
from arb.lab.training import run
from arb.policies import load_policy
from arb.suite.sac import Plan, collect
from tests.lab import tiny


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    tiny.write_data(folder / "data.npz")
    return folder


@pytest.fixture(scope="module")
def finished(place):
    config = tiny.config_of(place / "data.npz", "iql", "arb")
    return config, run(config, place / "finished")


def test_the_steps_of_a_run_are_a_dataset_in_the_environment_s_own_numbers(place, capsys):
    scaled = {"preprocessing.reward_scale": "return_range", "preprocessing.reward_shift": -1.0}
    folder = run(
        tiny.config_of(place / "data.npz", "iql", "naive", **scaled),
        place / "exported",
        cache=place / "cache-of-exported",
    ).folder
    out = place / "steps.hdf5"
    assert main(["data", "export", str(folder), "--out", str(out)]) == 0
    assert "steps.hdf5: 60 rows, 1 episode" in capsys.readouterr().out
    steps = load_dataset(out)
    cos, sin, speed = steps.observations.T
    np.testing.assert_allclose(cos**2 + sin**2, 1.0, atol=1e-5)
    torque = steps.actions[:, 0]
    assert np.abs(torque).max() > 1.0
    cost = np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * torque**2  # as Pendulum's source has it
    np.testing.assert_allclose(steps.rewards, -cost, atol=1e-3)
    gained = speed + 0.05 * (15.0 * sin + 3.0 * torque)
    np.testing.assert_allclose(steps.next_observations[:, 2], np.clip(gained, -8, 8), atol=1e-3)
    assert read_attributes(out)["env"] == "Pendulum-v1"
    with pytest.raises(DataError, match="has collected no steps yet"):
        export_steps(shutil.copytree(folder, place / "bare", ignore=shutil.ignore_patterns("checkpoint")))


def rows(path: Path) -> list[dict[str, str]]:
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


def test_the_folder_of_a_run(finished):
    _, result = finished
    folder = result.folder
    names = {path.name for path in folder.iterdir()}
    assert {"DONE", "config.json", "metrics.csv", "eval.csv", "checkpoint", "policy", "result.json"} <= names
    described = json.loads((folder / "config.json").read_text())
    assert described["config"]["replay.temperature"] == 0.2
    assert described["config"]["settings.hidden_dims"] == [8, 8]
    assert described["versions"]["mujoco"]
    assert len(described["data"]["sha256"]) == 64
    assert str(Path.home()) not in json.dumps(described["versions"])
    evaluations = [(row["phase"], int(row["step"])) for row in rows(folder / "eval.csv")]
    assert set(evaluations) == {("pretrain", 0), ("pretrain", 40), ("online", 0), ("online", 40), ("online", 60)}
    assert len(evaluations) == 10  # two episodes each
    online = [row for row in rows(folder / "metrics.csv") if row["phase"] == "online"]
    assert [int(row["step"]) for row in online] == [20, 40, 60]
    assert all(float(row["replay.online_share"]) > 0 for row in online)


def test_the_exported_policy_of_a_run_plays(finished):
    policy = load_policy(finished[1].folder)
    actions = policy(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    assert actions.shape == (2, 1)
    assert (np.abs(actions) <= 2.0).all()


def test_the_scores_of_a_run(finished):
    _, result = finished
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows(result.folder / "eval.csv"):
        means.setdefault((row["phase"], row["step"]), []).append(float(row["score"]))
    mean = {place: np.mean(values) for place, values in means.items()}
    assert result.pretrained == pytest.approx(mean["pretrain", "40"])
    assert result.last == pytest.approx(mean["online", "60"])
    assert result.best == pytest.approx(max(mean["online", "40"], mean["online", "60"]))
    assert result.drop == pytest.approx(mean["pretrain", "40"] - mean["online", "40"])


def test_a_finished_run_returns_at_once(finished, monkeypatch):
    config, result = finished
    monkeypatch.setattr("arb.lab.training.Setup", None)  # nothing may be loaded
    assert run(config, result.folder) == result


def test_another_configuration_in_the_same_folder_is_refused(finished):
    config, result = finished
    with pytest.raises(DataError, match=r"holds a run with seed = 0, not 5: choose another folder"):
        run(with_key(config, "seed", 5), result.folder)


def test_strategies_fork_from_the_same_pretraining(place, finished):
    naive = run(tiny.config_of(place / "data.npz", "iql", "naive"), place / "naive")
    arb = finished[1]
    assert naive.pretrained == arb.pretrained
    ours, theirs = (
        [line for line in (folder / "metrics.csv").read_text().splitlines() if line.startswith("pretrain")]
        for folder in (naive.folder, arb.folder)
    )
    assert ours == theirs
    assert len(list((place / ".pretrained").iterdir())) == 1


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(place, finished):
    config, result = finished
    again = run(config, place / "again", cache=place / "own-cache")
    other = run(with_key(config, "seed", 1), place / "other")
    for name in ("metrics.csv", "eval.csv"):
        assert (again.folder / name).read_bytes() == (result.folder / name).read_bytes()
        assert (other.folder / name).read_bytes() != (result.folder / name).read_bytes()


def test_pretraining_of_another_run_can_be_taken_over(place, finished):
    config, result = finished
    taken = run(
        tiny.config_of(place / "data.npz", "iql", "parallel"), place / "elsewhere" / "p", pretraining=result.folder
    )
    assert taken.pretrained == result.pretrained
    with pytest.raises(DataError, match="no pre-training for this run: it was done under other"):
        run(with_key(config, "seed", 9), place / "elsewhere" / "q", pretraining=result.folder)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(place, finished):
    config, result = finished

    def stop_late(phase, step, *_):
        if phase == "online" and step == 40:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = place / "damaged"
    with pytest.raises(Interrupted, match="stopped at online step 40; the same command continues from there"):
        run(config, folder, tell=stop_late, save_every=0.0, cache=place / "cache-of-damaged")
    newest = next(RunFolder(folder).intact_checkpoints())
    agent = newest / "agent.safetensors"
    agent.write_bytes(agent.read_bytes()[:-8] + b"spoilt!!")
    assert next(RunFolder(folder).intact_checkpoints()) != newest
    run(config, folder)
    for name in ("metrics.csv", "eval.csv"):
        assert (folder / name).read_bytes() == (result.folder / name).read_bytes()


def test_a_full_disk_loses_nothing_saved(place, finished, monkeypatch):
    config, result = finished
    folder, calls = place / "full", 0
    write = RunFolder.write_checkpoint

    def full(*arguments):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(28, "No space left on device")
        write(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_checkpoint", full)
        with pytest.raises(OSError, match="No space left"):
            run(config, folder, save_every=0.0, cache=place / "cache-of-full")
    assert any(RunFolder(folder).intact_checkpoints())
    run(config, folder)
    assert (folder / "eval.csv").read_bytes() == (result.folder / "eval.csv").read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(place):
    folder = place / "stopped"
    small = tiny.SMALL | tiny.NETWORKS["iql"]
    settings = [f"{k}={v}" for k, v in (small | {"schedule.pretrain": 100_000}).items()]
    options = ["-t", str(place / "data.npz"), "-e", "Pendulum-v1", "-o", str(folder), *settings]
    command = [sys.executable, "-m", "arb.cli", "run", *options]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (folder / "metrics.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    output, errors = started.communicate(timeout=120)
    assert started.returncode == 130
    assert "the same command continues from there" in errors
    assert "Traceback" not in errors
    assert "updates offline on" in output
    assert any(RunFolder(folder).intact_checkpoints())


# ---- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": "iqll"}, "there is no agent 'iqll' (did you mean 'iql'?)"),
        ({"strategy": "abr"}, "there is no strategy 'abr' (did you mean 'arb'?)"),
        ({"preset": "tiny"}, "there is no preset 'tiny'"),
        (
            {"overrides": {"replay.temperature": "automatic"}},
            "replay.temperature must be float or 'auto', not 'automatic'",
        ),
        ({"overrides": {"replay.temperature": 0}}, "replay.temperature must be greater than 0, or auto, not 0.0"),
        ({"overrides": {"replay.effective": 0}}, "replay.effective must be above 0 and at most 1"),
        ({"overrides": {"schedule.onlin": 5}}, "no setting 'schedule.onlin' (did you mean 'online'?)"),
        ({"overrides": {"schedule": 5}}, "'schedule' is a group of settings"),
        ({"overrides": {"seed.x": 5}}, "'seed' is a single setting"),
        ({"overrides": {"schedule.online": "many"}}, "schedule.online must be int, not 'many'"),
        ({"overrides": {"replay.level": "episode"}}, "must be 'trajectory' or 'transition', not 'episode'"),
        ({"overrides": {"settings.actions": "both"}}, "must be 'continuous' or 'discrete' or None, not 'both'"),
    ],
)
def test_a_mistaken_setting_is_one_line(arguments, message):
    with pytest.raises(DataError) as caught:
        configure(**{"strategy": "arb"} | arguments)
    assert message in str(caught.value)


def test_every_key_can_be_set_from_text():
    overrides = {
        "schedule.online": "500",
        "replay.temperature": "2",
        "replay.clip": "(-9.0, 7.0)",
        "replay.level": "transition",
        "settings.hidden_dims": "[32, 32]",
    }
    config = configure(strategy="arb", overrides=overrides)
    assert config.schedule.online == 500
    assert config.replay.temperature == 2.0
    assert config.replay.clip == (-9.0, 7.0)
    assert config.settings.hidden_dims == (32, 32)
    assert type(config.replay.temperature) is float
    assert configure(strategy="arb_auto").replay.temperature == "auto"
    assert from_flat(flat(config)) == config


def test_a_discrete_environment_makes_the_policy_categorical(place):
    collect(Plan("CartPole-v1"), "random", 200, place / "cart.hdf5", place)
    small = tiny.SMALL | tiny.NETWORKS["iql"]
    result = run(configure(task=str(place / "cart.hdf5"), overrides=small), place / "cart")
    assert set(load_policy(result.folder)(np.random.default_rng(0).normal(scale=0.05, size=(50, 4)))) <= {0, 1}
    berb = run(configure(task=str(place / "cart.hdf5"), strategy="berb", overrides=small), place / "cart-berb")
    assert berb.pretrained == result.pretrained  # found in the cache, whose agent is categorical too


@pytest.mark.parametrize(
    ("agent", "env", "keys", "message"),
    [
        ("pex", "CartPole-v1", {}, "CartPole-v1 has discrete actions, which PEX does not support: choose --agent iql"),
        ("iql", "CartPole-v1", {"settings.actions": "continuous"}, "leave out settings.actions=continuous"),
        ("iql", "Pendulum-v1", {"settings.actions": "discrete"}, "Pendulum-v1 has continuous actions: leave"),
    ],
)
def test_actions_that_the_environment_does_not_have(place, agent, env, keys, message):
    with pytest.raises(DataError, match=message):
        run(configure(task=str(place / "data.npz"), env=env, agent=agent, overrides=keys), place / "nowhere")


def test_data_without_an_environment_asks_for_one(place):
    with pytest.raises(DataError, match="does not name its environment: add --env"):
        run(configure(task=str(place / "data.npz")), place / "nowhere")
    with pytest.raises(DataError, match="environment 'Nope-v0'"):
        run(configure(task=str(place / "missing.npz"), env="Nope-v0"), place / "nowhere")  # before any data is read
