"""A published goal-reaching ant walks our mazes: what the physics tests say step by step, said by whole episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arb.envs
from arb.envs.antmaze import CELL, MAZES, Maze

Array = NDArray[Any]


class GoalPolicy:
    """Tanh-Gaussian, ReLU 256-256, on the ant's state without x and y and the direction to a waypoint at norm 10."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.weights = {key: file[key] for key in file.files}

    def __call__(self, obs: Array, target: Array, rng: np.random.Generator) -> Array:
        direction = target - obs[:2]
        x = np.concatenate([obs[2:], 10 * direction / max(np.linalg.norm(direction), 1e-8)])
        w = self.weights
        for layer in ("fc0", "fc1"):
            x = np.maximum(w[f"{layer}_w"] @ x + w[f"{layer}_b"], 0)
        mean = w["last_fc_w"] @ x + w["last_fc_b"]
        log_std = np.clip(w["last_fc_log_std_w"] @ x + w["last_fc_log_std_b"], -20, 2)
        action = np.tanh(mean + np.exp(log_std) * rng.standard_normal(8)) + 0.2 * rng.standard_normal(8)
        return np.clip(action, -1, 1)


def waypoint(maze: Maze, position: Array, goal: Array, rng: np.random.Generator) -> Array:
    """The next cell on the shortest way, as D4RL's generator finds it (cells by floor, not by the nearest centre)."""

    def cell(xy: Array) -> tuple[int, int]:
        x, y = np.maximum(xy, 1e-4)
        return int(1 + y / CELL), int(1 + x / CELL)

    here, there = cell(position), cell(goal)
    reached_from, queue = {there: there}, [there] if here != there else []
    while queue:
        row, column = queue.pop(0)
        for near in ((row, column - 1), (row, column + 1), (row + 1, column), (row - 1, column)):
            if near == here:
                return goal if (row, column) == there else maze.centre(row, column) + rng.uniform(0, 1, 2)
            if near not in reached_from and maze.rows[near[0]][near[1]] != "#":
                reached_from[near] = (row, column)
                queue.append(near)
    return goal


@pytest.mark.slow
@pytest.mark.parametrize(("maze", "episodes"), [("umaze", 20), ("medium", 10)])
def test_most_episodes_reach_the_goal(shared_data: Path, maze: str, episodes: int) -> None:
    policy, rng = GoalPolicy(shared_data / "policies" / "ant_goal.npz"), np.random.default_rng(0)
    env: Any = arb.envs.make(f"arb/antmaze-{maze}-v2")
    successes = 0
    for episode in range(episodes):
        obs, info = env.reset(seed=episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, info = env.step(
                policy(obs, waypoint(MAZES[maze], obs[:2], info["goal"], rng), rng)
            )
            over = terminated or truncated
            successes += int(reward)
    print(f"{maze}: {successes} of {episodes}")
    assert successes > episodes / 2
