"""AntMaze data as D4RL made it: an ant with a policy of its own walks from waypoint to waypoint through a maze.

Every episode has a goal drawn from the goal cells of a map for recording (`RECORDING`; same walls, more goals), goes on
past it, and is cut off by the time limit. Rewards and terminals are put in afterwards, against one goal of the
evaluation map for the whole file.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.envs.antmaze import CELL, GOAL_RADIUS, MAZES, AntMaze, Maze, egocentric
from arb.suite.recorder import Dataset, Tell, record

Floats = NDArray[np.float64]
Place = tuple[int, int]
NOISE = 0.2
"""Standard deviation of the noise on every entry of an action."""
GOALS: dict[str, tuple[Place, ...]] = {
    "umaze": ((3, 1),),
    "medium": ((2, 6), (5, 1), (6, 5)),
    "large": ((1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9)),
}
"""Goal cells (row, column) of the maps for recording."""


def _recording_map(maze: Maze, goals: tuple[Place, ...]) -> Maze:
    grid = [list(line.replace("G", ".")) for line in maze.rows]
    for row, column in goals:
        grid[row][column] = "G"
    return replace(maze, rows=tuple("".join(line) for line in grid))


RECORDING = {name: _recording_map(MAZES[name], goals) for name, goals in GOALS.items()}


class Walk(AntMaze):
    """A maze in which nothing ends an episode; the ant may start in any cell without a goal."""

    def __init__(self, maze: str, anywhere: bool) -> None:
        super().__init__(RECORDING[maze])
        self.anywhere = anywhere

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Draw a goal, then the start: noise as in AntMaze, and where it may be anywhere, a cell and a place in it."""
        obs, info = super().reset(seed=seed, options=options)
        if self.anywhere:
            qpos, qvel = self.data.qpos.copy(), self.data.qvel.copy()
            cells = sorted(self.maze.find(".") + self.maze.find("R"))
            centre = self.maze.centre(*cells[self.np_random.integers(len(cells))])
            qpos[:2] = np.maximum(centre + self.np_random.uniform(0.0, 1.0, 2), 0.0)
            self.set_state(qpos, qvel)
            obs = self.observe()
        return obs, info

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Advance one control step of 0.1 s, without reward or end."""
        self.advance(action)
        return self.observe(), 0.0, False, False, {}


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
                if 0 <= cell[0] < len(maze.rows) and 0 <= cell[1] < len(maze.rows[0]) and _free(maze, cell):
                    queue.append(cell)
    return before


def _free(maze: Maze, cell: Place) -> bool:
    return maze.rows[cell[0]][cell[1]] != "#"


def waypoint(maze: Maze, position: Floats, goal: Floats, rng: np.random.Generator) -> Floats:
    """Where the ant is to walk: the goal itself from its own and the neighbouring cells, else a point of a cell."""
    target = cell_of(goal)
    cell = routes(maze, target).get(cell_of(position), target)
    return goal if cell == target else maze.centre(*cell) + rng.uniform(0.0, 1.0, 2)


def record_walks(
    policy: Any, maze: str, anywhere: bool, horizon: int, rows: int, seed: tuple[int, ...], tell: Tell = lambda _: None
) -> tuple[Dataset, Floats]:
    """Columns as D4RL stores them, and the goal that rewards and terminals refer to.

    An episode has `horizon + 1` rows, one more than the limit of the evaluation, as in D4RL's files.
    """
    walk = Walk(maze, anywhere)

    def act(obs: Any, rng: np.random.Generator) -> Any:
        place = waypoint(walk.maze, obs[:2], walk.goal, rng)
        action = policy.sample(egocentric(obs[:15], obs[15:], place), rng)
        goals.append(walk.goal)
        return np.clip(action + NOISE * rng.standard_normal(action.shape, np.float32), -1.0, 1.0)

    goals: list[Floats] = []
    columns = record(gymnasium.wrappers.TimeLimit(walk, horizon + 1), act, rows, seed, tell)
    after = columns.pop("next_observations")
    goal = MAZES[maze].draw_goal(np.random.default_rng(seed))
    columns["infos/goal"] = np.asarray(goals, np.float32)
    columns["infos/qpos"], columns["infos/qvel"] = after[:, :15], after[:, 15:]
    return relabelled(columns, goal), goal


def relabelled(columns: Dataset, goal: Floats) -> Dataset:
    """With reward 1 and terminal set in every step that leads to within 0.5 m of the goal, else 0."""
    there = np.linalg.norm(columns["infos/qpos"][:, :2].astype(np.float64) - goal, axis=1) <= GOAL_RADIUS
    return {**columns, "rewards": there.astype(np.float32), "terminals": there}
