"""A robot's program and the run that learns from it, both killed at random: every episode is counted exactly once.

`pytest -m long tests/lab/test_two_sides.py` kills forty times.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import arb
from arb.files import GrowingTable
from arb.lab.folder import RunFolder
from arb.replay.robot import named_episodes, read_recorded
from tests.lab import tiny
from tests.lab.test_resume import outcome

STEPS = 25


def act(run: Path, folder: Path, episodes: int, seed: int) -> None:
    """The robot's program: it sometimes copies a file, slowly, and sometimes acts with a policy it got long ago."""
    env, rng, policy = gymnasium.make("Pendulum-v1", max_episode_steps=STEPS), np.random.default_rng(seed), None
    while len(list(folder.glob("episode-*.npz"))) < episodes:
        try:
            policy = arb.load_policy(run) if policy is None or rng.random() < 0.7 else policy
        except arb.DataError:
            time.sleep(0.05)
            continue
        recorder = arb.Recorder(policy.version)
        obs, over = env.reset(seed=int(rng.integers(2**31)))[0], False
        while not over:
            action = policy.sample(obs, rng)
            after, reward, terminated, truncated, _ = env.step(action)
            recorder.add(obs, action, float(reward), after, terminated, truncated)
            obs, over = after, terminated or truncated
        path = recorder.save(folder)
        if rng.random() < 0.5:
            whole, copy = path.read_bytes(), folder / f"copy-{path.name}"
            copy.write_bytes(whole[: len(whole) // 2])
            time.sleep(0.1)
            copy.write_bytes(whole)
        time.sleep(0.1)


def learn(run: Path, inbox: Path, episodes: int) -> list[str]:
    """The command of the run that learns from the robot."""
    plan = tiny.SMALL | tiny.NETWORKS["iql"] | {"schedule.online": STEPS * episodes, "schedule.collect": 2 * STEPS}
    settings = [f"{key}={str(value).replace(' ', '')}" for key, value in plan.items()]
    return ["-t", str(run.parent / "data.npz"), "--collect", str(inbox), "-o", str(run), *settings]


def at_work(run: Path, since: float) -> bool:
    """Whether a learner that was started then has done something: importing JAX is no moment to be killed in."""
    places = (run / "metrics.csv", run / "eval.csv", run / "episodes", run / "checkpoint")
    return any(path.exists() and path.stat().st_mtime > since for path in places)


def both_sides(place: Path, episodes: int, kills: int) -> None:
    """Let both work to the end, and kill each so many times."""
    tiny.write_data(place / "data.npz")
    run, inbox, chance = place / "run", place / "inbox", random.Random(0)
    inbox.mkdir()
    commands = {
        "learner": ["-m", "arb.cli", "run", *learn(run, inbox, episodes)],
        "actor": ["-m", "tests.lab.test_two_sides", str(run), str(inbox), str(episodes)],
    }
    sides: dict[str, subprocess.Popen[bytes]] = {}
    left, began, end = dict.fromkeys(commands, kills), dict.fromkeys(commands, 0.0), time.monotonic() + 60 + 60 * kills
    with (place / "log").open("wb") as log:
        while "learner" not in sides or sides["learner"].poll() != 0:
            assert time.monotonic() < end, (place / "log").read_text()[-2000:]
            for name, command in commands.items():
                code = sides[name].poll() if name in sides else -9
                assert code in (None, 0, -9), (place / "log").read_text()[-2000:]
                if code == -9:
                    more = [str(left["actor"])] if name == "actor" else []
                    sides[name] = subprocess.Popen([sys.executable, *command, *more], stdout=log, stderr=log)
                    began[name] = time.time()
            time.sleep(chance.uniform(0.05, 0.6))
            for name, process in sides.items():
                ready = name == "actor" or at_work(run, began[name])
                if left[name] and ready and process.poll() is None and chance.random() < 0.5:
                    process.kill()
                    process.wait()
                    left[name] -= 1
    sides["actor"].kill()
    sides["actor"].wait()
    assert left == {"learner": 0, "actor": 0}
    check(place, episodes)


def check(place: Path, episodes: int) -> None:
    run, inbox = place / "run", place / "inbox"
    recorded = {}
    for path in inbox.glob("episode-*.npz"):
        ((name, _),) = named_episodes(data := read_recorded(path))
        recorded[name] = (float(data.episode_returns[0]), data.provenance["version"])
    assert len(recorded) == episodes
    kept = sorted((run / "episodes").iterdir())
    told = [row for _, row in GrowingTable(run / "episodes.csv").rows()]
    assert [int(row["episode"]) for row in told] == list(range(episodes))
    assert sorted(path.stem.partition("-")[2] for path in kept) == sorted(recorded)  # each once
    for row, path in zip(told, kept, strict=True):
        assert (float(row["return"]), int(row["version"])) == recorded[path.stem.partition("-")[2]]
    online = RunFolder(run).curves()["online"]
    returns = np.concatenate([found for step, found in zip(online.steps, online.returns, strict=True) if step > 0])
    np.testing.assert_allclose(sorted(returns), sorted(value for value, _ in recorded.values()), rtol=1e-6)
    assert RunFolder(run).metrics()["online"]["replay.policy_version"].tolist() == [
        min(int(row["version"]) for row in told if int(row["online_step"]) == begin)
        for begin in sorted({int(row["online_step"]) for row in told})
    ]
    # The same files in the same order, undisturbed, end in the same bytes.
    shutil.copytree(run / "episodes", place / "again" / "episodes")
    command = [sys.executable, "-m", "arb.cli", "run", *learn(place / "again", place / "empty", episodes)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert outcome(place / "again") == outcome(run)
    said = json.loads((run / "result.json").read_text())
    assert said["last"] == json.loads((place / "again" / "result.json").read_text())["last"]


def test_both_sides_are_killed_and_every_episode_counts_once(tmp_path):
    both_sides(tmp_path, episodes=10, kills=2)


@pytest.mark.long
def test_both_sides_are_killed_forty_times(tmp_path):
    both_sides(tmp_path, episodes=100, kills=int(os.environ.get("ARB_KILLS", "40")) // 2)


if __name__ == "__main__":
    act(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
