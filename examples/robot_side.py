"""The robot's side of `arb run --collect`: the newest policy acts, and every episode becomes a file. It needs NumPy.

python examples/robot_side.py RUN FOLDER

RUN is the folder of the run, or a copy of it; FOLDER is the one that the run collects from. Replace `Robot` by yours.
"""

import sys
import time
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


def run_episode(robot, policy, rng, seconds_per_step=0.0):
    """One episode with the policy's own noise; torque within 2, and no more than 2 away from the last one."""
    recorder = arb.Recorder(policy.version)
    obs, torque, over = robot.reset(rng), np.zeros(1), False
    try:
        while not over:
            torque = arb.limited(policy.sample(obs, rng), low=-2.0, high=2.0, before=torque, change=2.0)
            next_obs, reward, terminated, truncated = robot.step(float(torque[0]))
            recorder.add(obs, torque, reward, next_obs, terminated, truncated)
            obs, over = next_obs, terminated or truncated
            time.sleep(seconds_per_step)
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
        recorder = run_episode(robot, policy, rng, seconds_per_step=0.05)
        recorder.save(folder)
