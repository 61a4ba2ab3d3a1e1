"""D4RL's AntMaze: an ant walks through a maze to a goal it is not told about."""

import copy
from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from arb.envs.maze import CELL, GOAL_RADIUS, MAZES, Maze
from arb.envs.physics import drop_margin, load_spec, restore_capsule_inertia
from arb.envs.simulation import Floats, Simulation

TORQUE = 30.0
"""Motor torque at action 1."""
FRAME_SKIP = 5
RESET_NOISE = 0.1
WALL_HEIGHT = 2.0
SOFTNESS = (0.8, 0.8, 0.01, 0.5, 2.0)
"""`solimp` of every geom; joints keep MuJoCo's default."""


def build_model(maze: Maze) -> Any:
    """D4RL's ant in a maze, from Gymnasium's ant: timestep, contact softness, motors, walls, and the old physics."""
    return copy.copy(_compiled(maze))


@cache
def _compiled(maze: Maze) -> Any:
    spec = load_spec("ant.xml")
    spec.option.timestep = 0.02
    for motor in spec.actuators:
        motor.gear = [1, 0, 0, 0, 0, 0]
        motor.ctrlrange = [-TORQUE, TORQUE]
    for row, column in maze.find("#"):
        x, y = maze.centre(row, column)
        spec.worldbody.add_geom(
            name=f"wall_{row}_{column}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[x, y, WALL_HEIGHT / 2],
            size=[CELL / 2, CELL / 2, WALL_HEIGHT / 2],
            contype=1,
            conaffinity=1,
            condim=3,
            friction=[1, 0.5, 0.5],
            solref=[0.02, 1],
            rgba=[0.55, 0.5, 0.45, 1],
        )
    for geom in spec.geoms:
        geom.solimp = SOFTNESS
    drop_margin(spec, "world")
    restore_capsule_inertia(spec)
    # Anywhere but at the origin: a site compiled there is taken to be its body's frame, and cannot be moved.
    mark = spec.worldbody.add_site(name="goal", type=mujoco.mjtGeom.mjGEOM_CYLINDER, pos=[1, 1, 0.03])
    mark.size, mark.rgba = [GOAL_RADIUS, 0.02, 0], [0.1, 0.8, 0.2, 0.6]
    return spec.compile()


class AntMaze(Simulation):
    """Sparse reward: 1 and the end within 0.5 m of the goal, else 0. Falling over ends nothing.

    The observation is the full state (15 positions with x and y, 14 velocities) without the goal, which is drawn
    anew at every reset, as in D4RL's -v2 environments; `info["goal"]` tells it.
    """

    def __init__(self, maze: str | Maze, render_mode: str | None = None, width: int = 480, height: int = 480) -> None:
        self.maze = maze if isinstance(maze, Maze) else MAZES[maze]
        model = build_model(self.maze)
        across = CELL * max(len(self.maze.rows), len(self.maze.rows[0]))
        middle = self.maze.centre(len(self.maze.rows) - 1, len(self.maze.rows[0]) - 1) / 2 - CELL / 2
        super().__init__(
            model,
            FRAME_SKIP,
            observation_size=model.nq + model.nv,
            action_scale=TORQUE,
            render_mode=render_mode,
            camera={"lookat": np.array([*middle, 0.0]), "distance": 1.3 * across, "elevation": -75.0, "azimuth": 90.0},
            width=width,
            height=height,
        )
        self.goal = np.zeros(2)

    def set_goal(self, goal: NDArray[Any]) -> None:
        """Move the goal (and the mark that is drawn there)."""
        self.goal = np.asarray(goal, np.float64).copy()
        self.model.site("goal").pos[:2] = self.goal

    def observe(self) -> Floats:
        """The observation of the present state."""
        return np.concatenate([self.data.qpos, self.data.qvel])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Draw a goal, then put the ant into the start cell with noise on every number of its state."""
        super().reset(seed=seed, options=options)
        self.set_goal(self.maze.draw_goal(self.np_random))
        qpos = self.model.qpos0 + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        qpos[3:7] /= np.linalg.norm(qpos[3:7])  # old MuJoCo did this itself; today's keeps what it is given
        self.set_state(qpos, RESET_NOISE * self.np_random.standard_normal(self.model.nv))
        return self.observe(), {"goal": self.goal.copy()}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Advance one control step of 0.1 s."""
        self.advance(action)
        success = reached(self.data.qpos[:2], self.goal)
        return self.observe(), float(success), success, False, {"goal": self.goal.copy(), "success": success}

    def state_extra(self) -> dict[str, Any]:
        """What `save_state` must keep besides the simulator: the goal."""
        return {"goal": self.goal.tolist()}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        """Undo `state_extra`."""
        self.set_goal(np.asarray(extra["goal"]))


def reached(position: Floats, goal: Floats) -> bool:
    """Whether a position in the plane is within 0.5 m of the goal, the rim included."""
    return bool(np.linalg.norm(position - goal) <= GOAL_RADIUS)
