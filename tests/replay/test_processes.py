"""Actors in other processes: what the example shows, and what it does when one of them is killed."""

from pathlib import Path

import numpy as np
import pytest

import arb

pytest.importorskip("gymnasium")


def test_an_actor_that_is_killed_is_replaced(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    import several_processes

    buffer = arb.ReplayBuffer(5000, arb.ARB("auto"), seed=0)
    actors = several_processes.Actors("Pendulum-v1", 2, np.zeros((1, 3)))
    try:
        for steps, started in ((600, 2), (1200, 3), (1800, 4)):
            several_processes.learn(actors, buffer, steps)
            assert actors.started == started
            next(process for number, process in actors.team.values() if number == 0).kill()
    finally:
        actors.stop()
    rows = np.flatnonzero(buffer.index.next_index[: len(buffer)] >= 0)
    following = buffer.gather(buffer.index.next_index[rows])
    assert (following.obs == buffer.gather(rows).next_obs).all()  # no episode mixes two processes
    assert max(len(episode) for episode in buffer.episodes()) <= 200  # Pendulum's time limit
    assert actors.policy.any()  # the learner has learnt from them
