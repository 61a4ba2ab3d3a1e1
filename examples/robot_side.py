"""The robot's side of `arb run --collect`: the newest policy acts, and every episode becomes a file. It needs NumPy.

python examples/robot_side.py RUN FOLDER

RUN is the folder of the run, or a copy of it; FOLDER is the one that the run collects from. Replace `Robot` by yours.
"""

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

import arb


class Robot:
    """A pendulum with a motor, in the place of your robot: the angle is 0 when it stands upright."""

    def reset(self, rng):
        self.angle, self.speed, self.steps = rng.uniform(-np.pi, np.pi), rng.uniform(-1, 1), 0
        return self.observation()

    def step(self, torque):
        upright = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(upright**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle, self.steps = self.angle + self.speed * 0.05, self.steps + 1
        return self.observation(), reward, False, self.steps == 200

    def observation(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed], np.float32)


def run_episode(robot, rng, act, version, wait=lambda: None):
    """One episode; the torque stays within 2, and within 2 of the last one."""
    recorder = arb.Recorder(version)
    obs, torque, over = robot.reset(rng), np.zeros(1), False
    try:
        while not over:
            torque = arb.limited(act(obs), low=-2.0, high=2.0, before=torque, change=2.0)
            next_obs, reward, terminated, truncated = robot.step(float(torque[0]))
            recorder.add(obs, torque, reward, next_obs, terminated, truncated)
            obs, over = next_obs, terminated or truncated
            wait()
    except (OSError, arb.DataError) as problem:  # a lost connection, or an observation that is not finite
        print(f"the episode ends after {len(recorder)} steps: {problem}")
    return recorder


if __name__ == "__main__":
    run, folder = map(Path, sys.argv[1:3])
    robot, rng = Robot(), np.random.default_rng()
    while not (run / "DONE").exists():
        try:
            policy = arb.load_policy(run, outside="raise")
        except arb.DataError:  # not trained yet
            time.sleep(1.0)
            continue
        act, pace = partial(policy.sample, rng=rng), partial(time.sleep, 0.05)
        run_episode(robot, rng, act, policy.version, pace).save(folder)
