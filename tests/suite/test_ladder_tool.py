"""tools/ladder.py: which snapshot becomes which level."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from arb.envs.rollout import ActionMap
from arb.policies import export_policy

jax = pytest.importorskip("jax")

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
ladder_tool = pytest.importorskip("ladder")
agents = pytest.importorskip("arb.agents")


class Snapshot:
    def __init__(self, worth: float) -> None:
        self.worth = worth

    def sample(self) -> None: ...

    def mode(self) -> None: ...


def evaluate(act: Any, episodes: int) -> float:
    """The first evaluation is off by 20 for one snapshot, which therefore looks like the best and is not."""
    true = act.__self__.worth
    return true + 20.0 * (true == 90 and episodes == 10) + (act.__name__ == "mode")


def test_the_second_evaluation_decides_which_snapshot_is_which_rung() -> None:
    ladder = ladder_tool.select("x", {step: Snapshot(step) for step in range(0, 110, 10)}, evaluate, 0.0, {})
    assert {name: level.steps for name, level in ladder.levels.items()} == {
        "random": 0, "10": 10, "25": 20, "33": 30, "50": 50, "75": 70, "100": 100,
    }  # fmt: skip
    assert ladder.levels["100"].mode == 101


def test_no_snapshot_is_on_two_rungs() -> None:
    """Halfcheetah learns so fast that one snapshot is the nearest to two levels."""
    worth = {10: 5.0, 20: 12.0, 30: 30.0, 40: 52.0, 50: 76.0, 60: 100.0}
    ladder = ladder_tool.select("x", {s: Snapshot(w) for s, w in worth.items()}, evaluate, 0.0, {}, (5, 6))
    steps = [level.steps for level in ladder.levels.values()]
    assert len(set(steps)) == len(steps) == 7


def test_nearest_counts_from_the_random_return() -> None:
    assert ladder_tool.nearest({1: 50.0, 2: 75.0, 3: 100.0}, 50.0, 0.5)[0] == 2
    assert ladder_tool.nearest({1: 50.0, 2: 75.0, 3: 100.0}, 0.0, 0.5)[0] == 1


def test_a_snapshot_has_the_mean_and_deviation_of_the_policy_in_the_folder(tmp_path: Path) -> None:
    agent = agents.SAC.create(jax.random.key(0), 3, 2, agents.SACConfig(hidden_dims=(8,)))
    actor = replace(agents.on_host(agent.actor), multiplier=np.float32(1.5), offset=np.float32(-0.25))
    export_policy(tmp_path / "actor-00000400.npz", actor, None, ActionMap(Box(-1.0, 1.0, (2,))))
    ((step, kept),) = ladder_tool.snapshots(tmp_path).items()
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert step == 400
    np.testing.assert_allclose(kept.parameters(obs), actor.parameters(obs), atol=5e-3)
