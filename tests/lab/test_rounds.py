"""Rounds: a run goes on with episodes that were recorded after it, or that arrive while it waits."""

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import arb
from arb.cli import main, parser_of
from arb.cli.run import _given
from arb.data.formats import read_dataset
from arb.lab.folder import RunFolder
from arb.lab.inbox import Inbox
from arb.replay.robot import read_recorded
from tests.lab import tiny
from tests.lab.test_resume import outcome


def options(more: dict[str, object]) -> list[str]:
    small = tiny.SMALL | tiny.NETWORKS["iql"] | more
    return [f"{key}={str(value).replace(' ', '')}" for key, value in small.items()]


def record(folder: Path, run: Path, episodes: int, seed: int = 0, steps: int = 25) -> list[Path]:
    """What the robot's own program does."""
    env, rng, files = gymnasium.make("Pendulum-v1", max_episode_steps=steps), np.random.default_rng(seed), []
    for episode in range(episodes):
        policy = arb.load_policy(run)
        recorder = arb.Recorder(policy.version)
        obs, over = env.reset(seed=100 * seed + episode)[0], False
        while not over:
            action = policy.sample(obs, rng)
            after, reward, terminated, truncated, _ = env.step(action)
            recorder.add(obs, action, float(reward), after, terminated, truncated)
            obs, over = after, terminated or truncated
        files.append(recorder.save(folder))
    return files


@pytest.fixture(scope="module")
def offline(tmp_path_factory) -> Path:
    """A run without an environment, and its data."""
    place = tmp_path_factory.mktemp("offline")
    tiny.write_data(place / "data.npz")
    assert main(["run", "-t", str(place / "data.npz"), "-o", str(place / "run"), *options({"schedule.online": 0})]) == 0
    return place


def again(place: Path, files: list[Path], *more: str, out: str = "second", run: str = "run") -> int:
    return main(["run", "--from", str(place / run), "--new", *map(str, files), "-o", str(place / out), *more])


@pytest.fixture
def place(offline, tmp_path) -> Path:
    shutil.copytree(offline, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["config"]["task"] = str(tmp_path / "data.npz")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    return tmp_path


def rows(path: Path) -> list[dict[str, str]]:
    from arb.files import GrowingTable

    return [row for _, row in GrowingTable(path).rows()]


def test_a_round_adds_every_new_episode_as_online_rows(place, capsys):
    files = record(place / "logs", place / "run", 4)
    assert again(place, files) == 0
    round_ = json.loads((place / "second" / "round.json").read_text())
    assert round_["parent"] == "run"
    assert [one["steps"] for one in round_["files"]] == [25] * 4
    assert [one["file"] for one in round_["files"]] == [str(path) for path in files]
    told = rows(place / "second" / "episodes.csv")
    assert [row["file"] for row in told] == [path.name for path in files]
    returns = [read_recorded(path).episode_returns[0] for path in files]
    np.testing.assert_allclose([float(row["return"]) for row in told], returns)
    np.testing.assert_allclose(np.ravel([one["returns"] for one in round_["files"]]), returns)
    curves = RunFolder(place / "second").curves()
    assert curves["online"].steps[-1] == 100
    np.testing.assert_allclose(sorted(np.concatenate(curves["online"].returns[1:])), sorted(returns), rtol=1e-6)
    last = RunFolder(place / "second").metrics()["online"]
    data = read_dataset(place / "data.npz")
    held = 5 * 40
    usable = len(data.usable()) - held + 5
    assert last["replay.online_rows"][-1] == pytest.approx(100 / (usable + 100), rel=0.02)
    assert last["replay.policy_version"].tolist() == [0.0] * len(last["step"])
    assert arb.load_policy(place / "second").version == 100


def test_a_second_round_continues_the_first_and_knows_its_episodes(place, capsys):
    first = record(place / "logs", place / "run", 2)
    assert again(place, first) == 0
    second = record(place / "more", place / "second", 2, seed=1)
    assert again(place, second, out="third", run="second") == 0
    assert rows(place / "third" / "episodes.csv")[0]["version"] == "0"
    assert rows(place / "third" / "episodes.csv")[-1]["version"] == "50"
    assert RunFolder(place / "third").curves()["online"].steps[-1] == 100
    capsys.readouterr()
    for file in (first[0], second[1]):
        assert again(place, [file], out="fourth", run="third") == 2
        assert f"{file} has no new episodes" in capsys.readouterr().err
    assert not (place / "fourth").exists()


def test_a_copy_of_a_file_counts_once(place, capsys):
    first, *_ = record(place / "logs", place / "run", 1)
    shutil.copy(first, place / "copy.npz")
    assert again(place, [first, place / "copy.npz"]) == 2
    assert "copy.npz has no new episodes" in capsys.readouterr().err


def test_only_options_that_differ_from_their_defaults_are_given_to_a_round():
    def given(*words: str) -> dict[str, Any]:
        return _given(parser_of("run").parse_args(["--from", "run", *words]))

    assert given() == {}  # the run before may have any seed
    assert given("--seed", "3", "--agent", "pex") == {"seed": 3, "agent": "pex"}


def test_what_a_round_refuses_in_one_line(place, capsys):
    files = record(place / "logs", place / "run", 1)
    (place / "run" / "DONE").rename(place / "not done")
    for change, said in (
        (lambda: again(place, files), "is not finished"),
        (lambda: (place / "not done").rename(place / "run" / "DONE") and again(place, files, out="run"), "of its own"),
        (lambda: main(["run", "--new", str(files[0])]), "--from"),
        (lambda: again(place, files, "--agent", "calql"), "has agent iql"),
        (lambda: again(place, files, "--seed", "3"), "has seed 0"),
        (lambda: again(place, files, "preprocessing.reward_shift=1"), "a round cannot change it"),
        (lambda: again(place, files, "--collect", str(place)), "from one place"),
        (lambda: again(place, [place / "gone.npz"]), "gone.npz"),
    ):
        assert change() == 2, said
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
    assert not (place / "second").exists()
    other = {
        "observations": np.zeros((30, 4), np.float32) + np.arange(30)[:, None],
        "actions": np.zeros((30, 1), np.float32),
        "rewards": np.ones(30, np.float32),
        "terminals": np.arange(30) % 10 == 9,
    }
    np.savez(place / "other.npz", **other)
    assert again(place, [place / "other.npz"]) == 2
    assert "has observations of 4 numbers, the data of this run 3 numbers" in capsys.readouterr().err
    assert again(place, files) == 0  # the folder was not spoilt
    assert again(place, record(place / "more", place / "run", 1, seed=5)) == 2
    assert "holds a round with other files" in capsys.readouterr().err
    assert again(place, files) == 0
    assert "already finished" in capsys.readouterr().out


def test_logs_of_any_format_make_a_round(place):
    rng = np.random.default_rng(0)
    angle = rng.normal(size=60)
    lines = ["observations_0,observations_1,observations_2,actions,rewards,terminals,timeouts"]
    for i in range(60):
        numbers = (np.cos(angle[i]), np.sin(angle[i]), 0.1 * i, rng.uniform(-1, 1), -1.0, 0, int(i % 20 == 19))
        lines.append(",".join(map(str, numbers)))
    (place / "log.csv").write_text("\n".join(lines))
    assert again(place, [place / "log.csv"]) == 0
    told = rows(place / "second" / "episodes.csv")
    assert [(row["steps"], row["version"]) for row in told] == [("19", "-1")] * 3  # where the last step led is unknown


# ---- files that arrive -----------------------------------------------------------------------------------------------
def collecting(place: Path, out: str, inbox: Path, steps: int = 100) -> int:
    plan = options({"schedule.online": steps})
    return main(["run", "-t", str(place / "data.npz"), "--collect", str(inbox), "-o", str(place / out), *plan])


def test_present_files_give_the_same_numbers_whenever_they_came(place):
    files = record(place / "logs", place / "run", 4)
    assert collecting(place, "whole", place / "logs") == 0

    late = place / "late"
    late.mkdir()

    def deliver() -> None:
        for path in files:
            half = late / path.name
            half.write_bytes(path.read_bytes()[:900])  # somebody copies slowly
            time.sleep(0.5)
            shutil.copy(path, half)
            shutil.copy(path, late / f"z-{path.name}")

    thread = threading.Thread(target=deliver)
    thread.start()
    assert collecting(place, "late-run", late) == 0
    thread.join()
    assert outcome(place / "late-run") == outcome(place / "whole")
    names = [{row["file"] for row in rows(place / run / "episodes.csv")}
             for run in ("whole", "late-run")]  # fmt: skip
    assert names[0] == names[1] == {path.name for path in files}
    assert len(rows(place / "late-run" / "episodes.csv")) == 4


def test_an_inbox_takes_what_is_whole_and_fits_and_reports_the_rest_once(place, capsys):
    inbox, files = place / "logs", record(place / "logs", place / "run", 2)
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[:-20])
    (inbox / ".hidden.npz").write_bytes(whole)
    np.savez(inbox / "foreign.npz", a=np.zeros(3))
    np.savez(inbox / "pickle.npz", a=np.array([{}], object))
    os.mkfifo(inbox / "pipe.npz")
    seen = Inbox(place / "kept", lambda data, _: data, inbox)
    assert [seen.receive() for _ in range(4)] == [1, 0, 0, 0]
    said = capsys.readouterr().err
    assert sorted(line.split()[0] for line in said.splitlines()) == sorted(
        ["foreign.npz", "pickle.npz", "pipe.npz", files[1].name]
    )
    files[1].write_bytes(whole)
    assert [seen.receive() for _ in range(2)] == [1, 0]
    assert Inbox(place / "kept", lambda data, _: data, inbox).receive() == 0  # nothing is counted again
    assert [path.name[:7] for path in sorted((place / "kept").iterdir())] == ["000000-", "000001-"]


def test_an_episode_that_does_not_fit_is_not_kept(place, capsys):
    from arb.lab.config import configure
    from arb.lab.setup import Setup

    setup = Setup.of(configure(task=str(place / "data.npz"), overrides={"source": "files"}))
    for obs, action, said in (
        (np.zeros(4), [0.0], "4 numbers"),
        ({"a": np.zeros(3)}, [0.0], "the parts"),
        (np.zeros(3), [5.0], "outside the bounds"),
        (np.zeros(3), [0.0, 0.0], "shape (2,)"),
    ):
        recorder = arb.Recorder()
        recorder.add(obs, action, 0.0, obs, False)
        recorder.save(place / "odd")
        inbox = Inbox(place / "kept", setup.recorded, place / "odd")
        inbox.receive()
        assert inbox.receive() == 0
        assert said in capsys.readouterr().err
        assert not (place / "kept").exists()
        shutil.rmtree(place / "odd")


def test_a_lost_copy_is_an_error_and_not_a_wait(place):
    record(place / "logs", place / "run", 3)
    inbox = Inbox(place / "kept", lambda data, _: data, place / "logs")
    inbox.receive()
    next((place / "kept").glob("000001-*")).unlink()
    inbox = Inbox(place / "kept", lambda data, _: data, place / "logs")
    with pytest.raises(arb.DataError, match="lost episode 1"):
        inbox.collect(None, arb.ReplayBuffer(100), 75)


def test_more_steps_continue_where_the_files_ended(place):
    files = record(place / "logs", place / "run", 4)
    later = [path.rename(path.with_suffix(".later")) for path in files[2:]]
    assert collecting(place, "run2", place / "logs", 40) == 0  # 50 steps came
    for path in later:
        path.rename(path.with_suffix(".npz"))
    assert collecting(place, "run2", place / "logs", 100) == 0
    assert [row["file"] for row in rows(place / "run2" / "episodes.csv")] == [path.name for path in files]


def test_a_run_that_collects_goes_on_from_another(place):
    assert again(place, record(place / "logs", place / "run", 2)) == 0
    record(place / "more", place / "second", 2, seed=1)
    command = ["run", "--from", str(place / "second"), "--collect", str(place / "more"), "-o", str(place / "third")]
    assert main(command) == 2  # how many?
    assert main([*command, "schedule.online=100"]) == 0
    assert RunFolder(place / "third").curves()["online"].steps[-1] == 100


# ---- the robot's side ------------------------------------------------------------------------------------------------
def test_a_recorder_saves_what_was_added(tmp_path):
    recorder = arb.Recorder(7)
    assert recorder.save(tmp_path) is None
    for t in range(3):
        recorder.add({"b": [t, t], "a": t}, [0.5], t, {"b": [t + 1, t + 1], "a": t + 1}, False)
    assert len(recorder) == 3
    path = recorder.save(tmp_path / "new" / "folder")
    assert recorder.save(tmp_path) is None
    data = read_recorded(path)
    assert data.provenance["version"] == 7
    np.testing.assert_array_equal(data.observations["b"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(data.final_observations["a"], [3])
    assert data.rewards.tolist() == [0, 1, 2]
    assert data.timeouts.tolist() == [False, False, True]
    recorder.add({"b": [0, 0], "a": 0}, [0.5], 1, {"b": [1, 1], "a": 1}, True)
    second = recorder.save(tmp_path / "new" / "folder")
    assert second != path
    assert read_recorded(second).terminals.tolist() == [True]


def test_a_recorder_refuses_a_step_that_is_not_finite_and_keeps_the_others(tmp_path):
    recorder = arb.Recorder()
    recorder.add([0.0], [0.5], 1.0, [1.0], False)
    with pytest.raises(arb.DataError, match="not finite"):
        recorder.add([1.0], [0.5], np.nan, [2.0], False)
    assert len(read_recorded(recorder.save(tmp_path))) == 1


def test_rows_of_a_loaded_episode_are_those_of_steps_that_were_added(tmp_path):
    """A round sees what an environment would have given: same batches, same statistics, after saving too."""
    past = {"observations": np.arange(20.0)[:, None], "actions": np.zeros((20, 1)), "rewards": np.ones(20),
            "terminals": np.arange(20) % 10 == 9}  # fmt: skip
    buffers = [arb.ReplayBuffer(100, arb.ARB("auto"), seed=0) for _ in range(2)]
    for number, buffer in enumerate(buffers):
        buffer.load_dataset(past)
        for episode in range(3):
            recorder = arb.Recorder()
            for t in range(5):
                step = ([100 * episode + t], [0.1 * t], 1.0, [100 * episode + t + 1], t == 4)
                recorder.add(*map(np.float32, step[:4]), step[4])
                if number == 0:
                    buffer.add(*map(np.float32, step[:4]), step[4])
            if number == 1:
                buffer.load_dataset(read_recorded(recorder.save(tmp_path)), origin="online")
        buffer.refresh(lambda obs, action: -obs[:, 0] / 100)
    assert buffers[0].stats() == buffers[1].stats()
    for one, other in zip(buffers[0].sample(64), buffers[1].sample(64), strict=True):
        np.testing.assert_array_equal(one, other)
    buffers[1].save(tmp_path / "buffer.npz", since=20)
    again = arb.ReplayBuffer(200, arb.ARB("auto"), seed=0)
    again.load_dataset(past)
    again.load(tmp_path / "buffer.npz")
    np.testing.assert_array_equal(again.sample(64).obs, buffers[0].sample(64).obs)
