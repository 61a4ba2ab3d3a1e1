"""D4RL's AntMaze, and the ant on an open floor whose policy walks the mazes of the suite.

In AntMaze an ant walks through a maze to a goal that it does not observe. `AntGoal` is the task behind the AntMaze
datasets of the suite: the ant observes itself and the direction of the goal in a frame that turns with it. What it
learns for one direction therefore holds for all of them, and the policy walks from waypoint to waypoint of a maze.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from arb.envs.simulation import Floats, Simulation, drop_margin, load_spec, restore_capsule_inertia

CELL, WALL_HEIGHT = 4.0, 2.0  # metres
GOAL_RADIUS = 0.5  # an episode succeeds when the torso is within this distance of the goal, in the plane
TORQUE = 30.0  # of a motor at action 1
FRAME_SKIP = 5
RESET_NOISE = 0.1
SOFTNESS = (0.8, 0.8, 0.01, 0.5, 2.0)  # `solimp` of every geom; joints keep MuJoCo's default


@dataclass(frozen=True)
class Maze:
    """A grid of `#` wall, `.` free, `R` start and `G` goal cells; row 0 is the first line.

    The centre of `R` is the origin of the world; columns run along +x and rows along +y, so the printed grid is
    upside down.
    """

    name: str
    rows: tuple[str, ...]
    horizon: int

    def find(self, kind: str) -> list[tuple[int, int]]:
        """(row, column) of every cell of a kind, in reading order."""
        return [(r, c) for r, line in enumerate(self.rows) for c, cell in enumerate(line) if cell == kind]

    def centre(self, row: int, column: int) -> Floats:
        """World x, y of the centre of a cell."""
        ((start_row, start_column),) = self.find("R")
        return CELL * np.array([column - start_column, row - start_row], np.float64)

    def draw_goal(self, rng: np.random.Generator) -> Floats:
        """A goal as D4RL draws it: a goal cell, two uniform offsets from its centre per axis, never negative."""
        cells = self.find("G")
        centre = self.centre(*cells[rng.integers(len(cells))])
        return np.maximum(centre + rng.uniform(0.0, 1.0, 2) + rng.uniform(0.0, 0.5, 2), 0.0)


_UMAZE = ("#####", "#R..#", "###.#", "#G..#", "#####")
_MEDIUM = (
    "########",
    "#R.##..#",
    "#..#...#",
    "##...###",
    "#..#...#",
    "#.#..#.#",
    "#...#.G#",
    "########",
)
_LARGE = (
    "############",
    "#R...#.....#",
    "#.##.#.#.#.#",
    "#......#...#",
    "#.####.###.#",
    "#..#.#.....#",
    "##.#.#.#.###",
    "#..#...#.G.#",
    "############",
)
_ROWS = {"umaze": (_UMAZE, 700), "medium": (_MEDIUM, 1000), "large": (_LARGE, 1000)}
MAZES = {name: Maze(name, rows, horizon) for name, (rows, horizon) in _ROWS.items()}


# ---- AntMaze ---------------------------------------------------------------------------------------------------------
@cache
def build_model(maze: Maze) -> Any:
    """D4RL's ant in a maze, from Gymnasium's ant: timestep, contact softness, motors, walls, and the old physics."""
    spec = load_spec("ant.xml")
    spec.option.timestep = 0.02
    for motor in spec.actuators:
        motor.gear = [1, 0, 0, 0, 0, 0]
        motor.ctrlrange = [-TORQUE, TORQUE]
    for row, column in maze.find("#"):
        x, y = maze.centre(row, column)
        spec.worldbody.add_geom(
            name=f"wall_{row}_{column}", type=mujoco.mjtGeom.mjGEOM_BOX, rgba=[0.55, 0.5, 0.45, 1],
            pos=[x, y, WALL_HEIGHT / 2], size=[CELL / 2, CELL / 2, WALL_HEIGHT / 2],
            contype=1, conaffinity=1, condim=3, friction=[1, 0.5, 0.5], solref=[0.02, 1],
        )  # fmt: skip
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

    def __init__(self, maze: str | Maze, **view: Any) -> None:
        self.maze = maze if isinstance(maze, Maze) else MAZES[maze]
        self.goal = np.zeros(2)
        across = CELL * max(len(self.maze.rows), len(self.maze.rows[0]))
        middle = self.maze.centre(len(self.maze.rows) - 1, len(self.maze.rows[0]) - 1) / 2 - CELL / 2
        camera = {"lookat": np.array([*middle, 0.0]), "distance": 1.3 * across, "elevation": -75.0, "azimuth": 90.0}
        super().__init__(build_model(self.maze), FRAME_SKIP, action_scale=TORQUE, camera=camera, **view)

    def set_goal(self, goal: NDArray[Any]) -> None:
        """Move the goal (and the mark that is drawn there)."""
        self.goal = np.asarray(goal, np.float64).copy()
        self.model.site("goal").pos[:2] = self.goal

    def observe(self) -> Floats:
        return np.concatenate([self.data.qpos, self.data.qvel])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Draw a goal, then put the ant into the start cell with noise on every number of its state."""
        super().reset(seed=seed, options=options)
        self.set_goal(self.maze.draw_goal(self.np_random))
        qpos = self.model.qpos0 + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        normalise(qpos[3:7])  # old MuJoCo did this itself; today's keeps what it is given
        self.set_state(qpos, RESET_NOISE * self.np_random.standard_normal(self.model.nv))
        return self.observe(), {"goal": self.goal.copy()}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        self.advance(action)
        success = reached(self.data.qpos[:2], self.goal)
        return self.observe(), float(success), success, False, {"goal": self.goal.copy(), "success": success}

    def state_extra(self) -> dict[str, Any]:
        """What `save_state` must keep besides the simulator: the goal."""
        return {"goal": self.goal.tolist()}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.set_goal(np.asarray(extra["goal"]))


def normalise(quaternion: Floats) -> None:
    """Scale to length 1, in place. The last digit of `np.linalg.norm` would depend on the processor."""
    w, x, y, z = quaternion.tolist()
    quaternion /= math.sqrt(w * w + x * x + y * y + z * z)


def reached(position: Floats, goal: Floats) -> bool:
    """Whether a position in the plane is within 0.5 m of the goal, the rim included."""
    return bool(np.linalg.norm(position - goal) <= GOAL_RADIUS)


# ---- the ant on an open floor ----------------------------------------------------------------------------------------
DISTANCE = (1.0, 10.0)  # how far away a goal is drawn, in metres
MOVE = 0.01  # the probability of a new goal at every step: the ant learns to turn in mid-stride
ALIVE, CONTROL = 0.5, 0.02
UPRIGHT, HEIGHT = 0.2, (0.2, 1.5)  # fallen: the z-part of its up-axis below the first, or its torso outside the second
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

    def __init__(self, **view: Any) -> None:
        super().__init__(OPEN, **view)

    def observe(self) -> Floats:
        return egocentric(self.data.qpos, self.data.qvel, self.goal)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start at the origin, facing anywhere."""
        Simulation.reset(self, seed=seed, options=options)
        qpos = self.model.qpos0 + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        angle = self.np_random.uniform(0, 2 * np.pi)
        noise = self.np_random.uniform(-RESET_NOISE, RESET_NOISE, 4)
        qpos[3:7] = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)]) + noise
        normalise(qpos[3:7])
        self.set_state(qpos, RESET_NOISE * self.np_random.standard_normal(self.model.nv))
        self._draw_goal()
        return self.observe(), {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
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
