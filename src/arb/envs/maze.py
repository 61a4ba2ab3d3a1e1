"""D4RL's three mazes as text, and where their cells, walls and goals are in the world."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arb.data.tasks import MAZE_LIMITS

Floats = NDArray[np.float64]
CELL = 4.0
"""Side of a cell in metres."""
GOAL_RADIUS = 0.5
"""An episode succeeds when the torso is within this distance of the goal, in the plane."""


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


_GRIDS = {
    "umaze": ("#####", "#R..#", "###.#", "#G..#", "#####"),
    "medium": (
        "########",
        "#R.##..#",
        "#..#...#",
        "##...###",
        "#..#...#",
        "#.#..#.#",
        "#...#.G#",
        "########",
    ),
    "large": (
        "############",
        "#R...#.....#",
        "#.##.#.#.#.#",
        "#......#...#",
        "#.####.###.#",
        "#..#.#.....#",
        "##.#.#.#.###",
        "#..#...#.G.#",
        "############",
    ),
}
MAZES = {name: Maze(name, rows, MAZE_LIMITS[name]) for name, rows in _GRIDS.items()}
