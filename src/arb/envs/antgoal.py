"""An ant on an open floor that walks towards a goal: the task behind the AntMaze sets of the suite.

It sees itself and the direction of the goal in a frame turned with it, so that it always looks along +x. What it
learns for one direction therefore holds for all of them, and the same policy walks from waypoint to waypoint of a maze.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from arb.envs.antmaze import RESET_NOISE, AntMaze
from arb.envs.maze import GOAL_RADIUS, Maze
from arb.envs.simulation import Floats, Simulation

DISTANCE = (1.0, 10.0)
"""How far away a goal is drawn, in metres."""
MOVE = 0.01
"""The probability of a new goal at every step: the ant learns to turn in mid-stride."""
ALIVE, CONTROL = 0.5, 0.02
UPRIGHT, HEIGHT = 0.2, (0.2, 1.5)
"""The ant has fallen when the z-part of its own up-axis is below the first, or its torso outside the second."""
OPEN = Maze("open", ("R",), 1000)


def egocentric(qpos: Floats, qvel: Floats, goal: Floats) -> Floats:
    """The ant's state without its place and heading, and the unit vector to the goal, in the ant's own frame.

    29 numbers: height, orientation without heading (4), joints (8), velocities (14, x and y turned), direction (2).
    """
    w, x, y, z = qpos[3:7]
    heading = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    c, s, half = np.cos(heading), np.sin(heading), heading / 2
    turn = np.array([[c, s], [-s, c]])
    ch, sh = np.cos(half), np.sin(half)
    upright = np.array([ch * w + sh * z, ch * x + sh * y, ch * y - sh * x, ch * z - sh * w])
    if upright[0] < 0:  # a quaternion and its negative are one orientation
        upright = -upright
    offset = turn @ (goal - qpos[:2])
    direction = offset / max(float(np.linalg.norm(offset)), 1e-6)
    return np.concatenate([qpos[2:3], upright, qpos[7:], turn @ qvel[:2], qvel[2:], direction])


class AntGoal(AntMaze):
    """Reward is speed towards the goal, plus a bonus for staying up, minus a cost of control; falling over ends it."""

    def __init__(self, render_mode: str | None = None, width: int = 480, height: int = 480) -> None:
        super().__init__(OPEN, render_mode, width, height)
        self.observation_space = Box(-np.inf, np.inf, (self.model.nq + self.model.nv,), np.float64)

    def observe(self) -> Floats:
        """The egocentric observation."""
        return egocentric(self.data.qpos, self.data.qvel, self.goal)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start at the origin, facing anywhere."""
        Simulation.reset(self, seed=seed, options=options)
        qpos = self.model.qpos0 + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        angle = self.np_random.uniform(0, 2 * np.pi)
        noise = self.np_random.uniform(-RESET_NOISE, RESET_NOISE, 4)
        qpos[3:7] = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)]) + noise
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        self.set_state(qpos, RESET_NOISE * self.np_random.standard_normal(self.model.nv))
        self._draw_goal()
        return self.observe(), {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Advance one control step of 0.1 s."""
        before = float(np.linalg.norm(self.goal - self.data.qpos[:2]))
        applied = self.advance(action)
        after = float(np.linalg.norm(self.goal - self.data.qpos[:2]))
        reward = (before - after) / self.dt + ALIVE - CONTROL * float(np.square(applied).sum())
        terminated = fallen(self.data.qpos)
        if after < GOAL_RADIUS or self.np_random.uniform() < MOVE:
            self._draw_goal()
        return self.observe(), reward, terminated, False, {"distance": after}

    def _draw_goal(self) -> None:
        angle, distance = self.np_random.uniform(0, 2 * np.pi), self.np_random.uniform(*DISTANCE)
        self.set_goal(self.data.qpos[:2] + distance * np.array([np.cos(angle), np.sin(angle)]))


def fallen(qpos: Floats) -> bool:
    """Whether the ant lies on its side or back, or has left the ground."""
    _, x, y, _ = qpos[3:7]
    return bool(1 - 2 * (x * x + y * y) < UPRIGHT or not HEIGHT[0] < qpos[2] < HEIGHT[1])
