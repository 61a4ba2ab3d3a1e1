"""A robot in the loop: three rounds with `arb run --collect`, and one with `--from RUN --new FILES`.

Three processes work at the same time. The robot is a pendulum behind a socket: it accepts one connection, takes 20
steps in a second and drops the connection now and then. Its program plays the newest policy and saves episodes. The run
learns from their files. Program and run are killed at random and started again.

python benchmarks/robot.py [--seed 0,1] [--out results/robot/rounds.jsonl]    a quarter of an hour for each seed
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples")]
from robot_side import Robot, run_episode  # noqa: E402

import arb  # noqa: E402
from arb.files import GrowingTable  # noqa: E402
from arb.replay.robot import read_recorded  # noqa: E402
from arb.report.stats import t_interval  # noqa: E402

ROUNDS, EPISODES, STEPS = 3, 10, 200
DROPS = 1 / 1000
"""Chance that the connection is lost at a step: in every fifth episode."""


# ---- the robot -------------------------------------------------------------------------------------------------------
def serve(socket: str, hertz: float, seed: int) -> None:
    """The robot itself: it obeys one connection, at its own speed."""
    robot, rng, chance = Robot(), np.random.default_rng(seed), random.Random(seed)
    with Listener(socket, "AF_UNIX", backlog=1) as listener:
        while True:
            with listener.accept() as connection:
                obey(robot, connection, rng, chance, 1 / hertz)


def obey(robot: Robot, connection: Connection, rng: Any, chance: random.Random, pause: float) -> None:
    try:
        while chance.random() >= DROPS:
            torque = connection.recv()
            time.sleep(pause)
            connection.send(robot.reset(rng) if torque is None else robot.step(torque))
    except (EOFError, OSError):
        return


class Remote:
    """The robot as its program sees it; connects again when the connection was lost."""

    def __init__(self, socket: str):
        self.socket, self.connection = socket, None

    def ask(self, what: Any) -> Any:
        try:
            self.connection = self.connection or Client(self.socket, "AF_UNIX")
            self.connection.send(what)
            return self.connection.recv()
        except (EOFError, OSError) as problem:
            self.connection = None
            raise ConnectionError("the robot has dropped the connection") from problem

    def reset(self, rng: Any) -> Any:  # noqa: ARG002 - the robot has its own chance
        while True:
            try:
                return self.ask(None)
            except ConnectionError:
                time.sleep(0.05)

    def step(self, torque: float) -> Any:
        return self.ask(torque)


def program(socket: str, run: Path, folder: Path, seed: int) -> None:
    """The robot's own program, until the run is done."""
    robot, rng = Remote(socket), np.random.default_rng(seed)
    while not (run / "DONE").exists():
        try:
            policy = arb.load_policy(run, outside="raise")
        except arb.DataError:
            time.sleep(0.2)
            continue
        run_episode(robot, rng, lambda obs, act=policy.sample: act(obs, rng), policy.version).save(folder)


# ---- the data there is already ---------------------------------------------------------------------------------------
def record(path: Path, episodes: int) -> None:
    """An old controller: it pumps energy, with much noise, and holds the pendulum badly."""
    robot, rng, rows = Robot(), np.random.default_rng(0), []
    for _ in range(episodes):
        obs, over, noise, skill = robot.reset(rng), False, 0.0, rng.uniform(0, 1)
        while not over:
            noise = 0.8 * noise + rng.normal() * 0.8
            swing = 2 * np.sign(obs[2]) if obs[0] < 0.7 else -8 * np.arctan2(obs[1], obs[0]) - 2 * obs[2]
            torque = float(np.clip(skill * swing + noise, -2, 2))
            after, reward, terminal, over = robot.step(torque)
            rows.append([*obs, torque, reward, int(terminal), int(over)])
            obs = after
    names = "observations_0,observations_1,observations_2,actions,rewards,terminals,timeouts"
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]))


# ---- all together ----------------------------------------------------------------------------------------------------
def command(*words: str, **more: Any) -> list[str]:
    return [sys.executable, "-m", "arb.cli", "run", *words, *(f"{key}={value}" for key, value in more.items())]


def collect(place: Path, folder: Path, learner: list[str], robot: str, seed: int, kills: int) -> dict[str, int]:
    """A run and the robot's program side by side, each killed so many times, until the run is done."""
    run = place / "rounds"
    actor = [sys.executable, __file__, "--program", robot, str(run), str(folder)]
    chance, killed, starts, sides = random.Random(seed), {"run": 0, "program": 0}, 0, {}
    (run / "DONE").unlink(missing_ok=True)
    following = time.monotonic() + chance.uniform(10, 40)
    with (place / "log").open("a") as log:
        while "run" not in sides or sides["run"].poll() != 0:
            for name, line in (("run", learner), ("program", actor)):
                if name not in sides or sides[name].poll() not in (None, 0):
                    starts += 1
                    more = [str(1000 * seed + starts)] if name == "program" else []
                    sides[name] = subprocess.Popen([*line, *more], stdout=log, stderr=log)
            time.sleep(0.2)
            name = chance.choice(["run", "program"])
            if time.monotonic() > following and killed[name] < kills and sides[name].poll() is None:
                sides[name].kill()
                sides[name].wait()
                killed[name] += 1
                following = time.monotonic() + chance.uniform(10, 40)
    sides["program"].wait()
    return killed


def account(run: Path, folder: Path, first: int) -> tuple[list[dict[str, str]], int]:
    """What a run took from one round's folder, after a check that it took every file at most once; files left over."""
    told = [row for _, row in GrowingTable(run / "episodes.csv").rows()][first:]
    files = {path.name for path in folder.glob("episode-*.npz")}
    names = [row["file"] for row in told]
    assert len(set(names)) == len(names), "an episode was counted twice"
    assert set(names) <= files, "an episode came from nowhere"
    for row in told:
        data = read_recorded(folder / row["file"])
        assert (len(data), float(data.episode_returns[0])) == (int(row["steps"]), float(row["return"])), row
    return told, len(files - set(names))


def campaign(place: Path, seed: int, quick: bool, hertz: float) -> list[dict[str, Any]]:
    """All rounds of one seed: a line each."""
    data, run, robot = place / "old.csv", place / "rounds", str(place / "robot")
    record(data, 20 if quick else 100)
    small = {"settings.hidden_dims": "(8,8)", "schedule.pretrain": 40, "schedule.updates": 20} if quick else {}
    words = ["--task", str(data), "--seed", str(seed)]
    size = {
        "schedule.collect": 2 * STEPS,
        **({} if quick else {"schedule.pretrain": 6000, "schedule.updates": 4 * STEPS}),
        **small,
    }
    size |= {"evaluation.every": 2 * STEPS if quick else 1000}
    episodes, found, took, left = (2 if quick else EPISODES), [], 0, []
    server = subprocess.Popen([sys.executable, __file__, "--serve", robot, str(hertz), str(seed)])
    try:
        for number in range(1, ROUNDS + 1):
            folder = place / f"round-{number}"
            folder.mkdir()
            for path in left:  # recorded while the last round ended
                shutil.copy(path, folder)
            learner = command(*words, "--collect", str(folder), "-o", str(run),
                              **{"schedule.online": number * episodes * STEPS}, **size)  # fmt: skip
            began = time.monotonic()
            killed = collect(place, folder, learner, robot, 10 * seed + number, kills=1 if quick else 2)
            told, over = account(run, folder, took)
            took += len(told)
            left = [path for path in folder.glob("episode-*.npz") if path.name not in {row["file"] for row in told}]
            assert len(left) == over
            found.append(line(seed, f"--collect {number}", told, killed, over, time.monotonic() - began, run, number))
        new = place / "new"
        new.mkdir()
        policy, remote, rng = arb.load_policy(run), Remote(robot), np.random.default_rng(seed)
        while len(list(new.iterdir())) < episodes:
            run_episode(remote, rng, lambda obs: policy.sample(obs, rng), policy.version).save(new)
        began = time.monotonic()
        files = sorted(map(str, new.iterdir()))
        words = ["--from", str(run), "-o", str(place / "next"), "--new", *files]
        done = subprocess.run(command(*words), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told, over = account(place / "next", new, took)
        assert over == 0
        found.append(line(seed, "--from --new", told, {}, 0, time.monotonic() - began, place / "next", 4))
        # What the last policy does without its noise.
        last, files = arb.load_policy(place / "next"), []
        for i in range(episodes):
            episode = run_episode(Robot(), np.random.default_rng([seed, i]), last, last.version)
            files.append(episode.save(place / "last"))
        returns = [float(read_recorded(file).episode_returns[0]) for file in files]
        found.append({"seed": seed, "round": "last policy, mean action", "returns": returns})
    finally:
        server.kill()
        server.wait()
    return found


def line(seed: int, name: str, told: list[dict[str, str]], killed: dict[str, int], left: int, seconds: float,
         run: Path, number: int) -> dict[str, Any]:  # fmt: skip
    whole = [float(row["return"]) for row in told if int(row["steps"]) == STEPS]
    versions = [int(row["version"]) for row in told]
    behind = [int(row["online_step"]) - version for row, version in zip(told, versions, strict=True)]
    return {"seed": seed, "round": name, "episodes": len(told), "steps": sum(int(row["steps"]) for row in told),
            "cut_off": len(told) - len(whole), "returns": whole, "versions": len(set(versions)),
            "most_steps_behind": max(behind), "killed": killed, "left_over": left, "seconds": round(seconds),
            "policy_version": arb.load_policy(run).version, "number": number}  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """A row per round: the mean return of whole episodes, each seed's mean counting once where there are several."""
    rows = ["| round | episodes | cut off by the robot | run and program killed | mean return, 95 % interval |",
            "|---|---|---|---|---|"]  # fmt: skip
    for name in dict.fromkeys(one["round"] for one in lines):
        own = [one for one in lines if one["round"] == name]
        mean, low, high = t_interval([np.concatenate([one["returns"] for one in own])])
        killed = "" if not own[0].get("killed") else ", ".join(
            str(sum(one["killed"][side] for one in own)) for side in ("run", "program"))  # fmt: skip
        episodes = sum(one.get("episodes", len(one["returns"])) for one in own)
        cut = sum(one.get("cut_off", 0) for one in own)
        rows.append(f"| {name} | {episodes} | {cut} | {killed} | {mean:.0f} [{low:.0f}, {high:.0f}] |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="0,1", help="a list (0,1)")
    parser.add_argument("--hertz", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="also write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="the smallest size at which all of it runs")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--program", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve[0], float(asked.serve[1]), int(asked.serve[2]))
    elif asked.program:
        socket, run, folder, seed = asked.program
        program(socket, Path(run), Path(folder), int(seed))
    else:
        play(asked)


def play(asked: argparse.Namespace) -> None:
    """Every seed's rounds, and the table."""
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    lines = []
    for seed in [0] if asked.quick else map(int, asked.seed.split(",")):
        with tempfile.TemporaryDirectory(prefix="arb-robot-") as place:
            lines += campaign(Path(place), seed, asked.quick, 2000.0 if asked.quick else asked.hertz)
        if asked.out:
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text("".join(json.dumps(one) + "\n" for one in lines))
    print(table(lines))


if __name__ == "__main__":
    main()
