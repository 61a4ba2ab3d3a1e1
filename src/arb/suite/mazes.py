"""AntMaze data in the manner of D4RL's: an ant with a policy of its own walks from goal to goal through a maze.

The ant steers by waypoints, with noise on its actions, and takes a new goal when it has reached one. It falls now and
then, and lies there until the time limit. Rewards and terminals refer to one goal of the evaluation, whatever goals the
ant had: a walk ends soon after it has come there, or passes by, or never comes near.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.envs.antmaze import CELL, GOAL_RADIUS, MAZES, AntMaze, Maze, egocentric
from arb.replay.dataset import Dataset
from arb.suite.ladders import on_grid
from arb.suite.recorder import Tell, record

Floats = NDArray[np.float64]
Place = tuple[int, int]
NOISE = (0.1, 0.3)
"""Standard deviation of the noise on every entry of an action, drawn once per walk between these."""
SPREAD = (0.3, 1.85)
"""How far a goal is drawn from the centre of its cell, along each axis: 0.4 to 2.6 m away, as in D4RL's files."""
LINGER = 6
"""Rows of a walk within reach of the evaluation's goal, after which it ends."""
TOWARDS = {"play": 0.8, "diverse": 0.3}
"""The probability that a goal is drawn in the cell of the evaluation's goal, by kind of dataset; else in any cell."""
APART = 2.0
"""A new goal is at least this far from where the ant is."""
EVALUATION_GOAL = 0.75
"""Offset of the goal that rewards refer to from the centre of its cell, along each axis: the evaluation's mean."""


class Walk(AntMaze):
    """A maze in which nothing ends an episode, and the ant has a new goal when it has reached one."""

    def __init__(self, maze: str, anywhere: bool, towards: float) -> None:
        super().__init__(MAZES[maze])
        self.anywhere, self.towards, self.noise, self.there = anywhere, towards, 0.0, 0
        self.free = sorted(place for kind in ".RG" for place in self.maze.find(kind))
        self.evaluation_goal = self.maze.centre(*self.maze.find("G")[0]) + EVALUATION_GOAL

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Draw the start as in AntMaze, or where it may be anywhere a cell and a place in it; then noise and a goal."""
        super().reset(seed=seed, options=options)
        if self.anywhere:
            qpos, qvel = self.data.qpos.copy(), self.data.qvel.copy()
            centre = self.maze.centre(*self.free[self.np_random.integers(len(self.free))])
            qpos[:2] = centre + self.np_random.uniform(0.0, 1.0, 2)
            self.set_state(qpos, qvel)
        self.noise, self.there = self.np_random.uniform(*NOISE), 0
        self._draw_goal()
        return self.observe(), {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Advance one control step of 0.1 s, without reward or end."""
        self.advance(action)
        if _distance(self.data.qpos[:2], self.goal) <= GOAL_RADIUS:
            self._draw_goal()
        self.there += _distance(self.data.qpos[:2], self.evaluation_goal) <= GOAL_RADIUS
        return self.observe(), 0.0, False, self.there >= LINGER, {}

    def _draw_goal(self) -> None:
        while True:
            cells = self.maze.find("G") if self.np_random.uniform() < self.towards else self.free
            goal = self.maze.centre(*cells[self.np_random.integers(len(cells))]) + self.np_random.uniform(*SPREAD, 2)
            if _distance(self.data.qpos[:2], goal) > APART:
                return self.set_goal(goal)


def _distance(a: Floats, b: Floats) -> float:
    return float(np.hypot(*(a - b)))


def cell_of(position: Floats) -> Place:
    """Row and column by D4RL's rule, which rounds down: cells are shifted by half a cell against the walls."""
    x, y = np.maximum(position, 1e-4)
    return int(1 + y // CELL), int(1 + x // CELL)


@lru_cache(maxsize=64)
def routes(maze: Maze, goal: Place) -> dict[Place, Place]:
    """For every cell next to a free one the cell to walk to on a shortest way to the goal cell (breadth-first).

    A wall cell can be where D4RL's rule puts the ant, so walls have a way out as well; no way leads through them.
    """
    before: dict[Place, Place] = {goal: goal}
    queue = [goal]
    for row, column in queue:
        for cell in ((row, column - 1), (row, column + 1), (row + 1, column), (row - 1, column)):
            if cell not in before:
                before[cell] = (row, column)
                inside = 0 <= cell[0] < len(maze.rows) and 0 <= cell[1] < len(maze.rows[0])
                if inside and maze.rows[cell[0]][cell[1]] != "#":
                    queue.append(cell)
    return before


def waypoint(maze: Maze, position: Floats, goal: Floats, rng: np.random.Generator) -> Floats:
    """Where the ant is to walk: the goal itself from its own and the neighbouring cells, else a point of a cell."""
    target = cell_of(goal)
    cell = routes(maze, target).get(cell_of(position), target)
    return goal if cell == target else maze.centre(*cell) + rng.uniform(0.0, 1.0, 2)


def record_walks(
    policy: Any, walk: Walk, horizon: int, rows: int, seed: tuple[int, ...], tell: Tell = lambda _: None
) -> Dataset:
    """Walks of `horizon` rows by an ant's `policy`, with the rewards and terminals of the evaluation."""

    def act(obs: Any, rng: np.random.Generator) -> Any:
        place = waypoint(walk.maze, obs[:2], walk.goal, rng)
        action = policy.sample(egocentric(obs[:15], obs[15:], place), rng)
        noisy = action + walk.noise * rng.standard_normal(action.shape)
        return on_grid(np.clip(noisy, -1.0, 1.0)).astype(np.float32)

    dataset = record(gymnasium.wrappers.TimeLimit(walk, horizon), act, rows, seed, tell)
    provenance = {"evaluation_goal": walk.evaluation_goal.tolist()}
    return replace(relabelled(dataset, walk.evaluation_goal), provenance=provenance)


def relabelled(dataset: Dataset, goal: Floats) -> Dataset:
    """With reward 1 and terminal set in every step that leads to within 0.5 m of the goal, else 0."""
    offset = np.asarray(dataset.next_observations)[:, :2].astype(np.float64) - goal
    there = np.hypot(offset[:, 0], offset[:, 1]) <= GOAL_RADIUS
    return replace(dataset, rewards=there.astype(np.float32), terminals=there)
