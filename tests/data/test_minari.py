"""Minari's datasets, recorded here with Minari itself into a folder of this test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arb.data import audit, write_dataset
from arb.errors import DataError

from .recordings import load, sound

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore")  # Minari warns of missing author, licence and the like


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """An installed dataset `arb/pendulum/random-v0` of three episodes; returns their rewards."""
    import gymnasium
    from minari.data_collector import EpisodeBuffer

    patch = pytest.MonkeyPatch()
    patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
    env = gymnasium.make("Pendulum-v1", max_episode_steps=20)
    buffers, rewards = [], []
    for episode, length in enumerate((20, 20, 7)):
        rows: dict[str, list[Any]] = {name: [] for name in ("actions", "rewards", "terminations", "truncations")}
        obs = [env.reset(seed=episode)[0]]
        for step in range(length):
            action = env.action_space.sample()
            after, reward, _, truncated, _ = env.step(action)
            obs.append(after)
            for name, value in zip(rows, (action, float(reward), step == 6 == length - 1, truncated), strict=True):
                rows[name].append(value)
        buffers.append(EpisodeBuffer(id=episode, seed=episode, observations=np.array(obs), **rows, infos={}))
        rewards.append(rows["rewards"])
    minari.create_dataset_from_buffers("arb/pendulum/random-v0", buffers, env=env)
    return rewards


def test_episodes_and_their_ends(recorded: list[list[float]]) -> None:
    dataset = load("minari:arb/pendulum/random-v0")
    assert dataset.lengths.tolist() == [20, 20, 7]
    np.testing.assert_allclose(dataset.episode_returns, [sum(rewards) for rewards in recorded], rtol=1e-6)
    assert np.flatnonzero(dataset.timeouts).tolist() == [19, 39]
    assert np.flatnonzero(dataset.terminals).tolist() == [46]
    assert dataset.observations.dtype == np.float32


def test_it_knows_its_environment_and_is_sound(recorded: list[list[float]]) -> None:
    assert load("minari:arb/pendulum/random-v0").provenance["env"] == "Pendulum-v1"
    assert audit("minari:arb/pendulum/random-v0").ok  # the pendulum's torque goes to 2, as its environment says


def test_one_that_is_not_installed_is_one_line(recorded: list[list[float]]) -> None:
    with pytest.raises(
        DataError, match=r"not installed \(installed: arb/pendulum/random-v0\).*minari download"
    ) as caught:
        load("minari:mujoco/hopper/medium-v0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["vector", "dict", "discrete"])
def test_what_is_written_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    raw = sound()
    if kind == "dict":
        for name in ("observations", "next_observations"):
            raw[name] = {"joints": raw[name][:, :2], "time": raw[name][:, 2:]}
    if kind == "discrete":
        raw["actions"] = np.arange(72) % 3
    dataset = load(raw)
    write_dataset(Path("minari:arb/mine/log-v0"), dataset)
    assert load("minari:arb/mine/log-v0").fingerprint == dataset.fingerprint
    with pytest.raises(DataError, match="minari:arb/mine/log-v0 cannot be written"):
        write_dataset(Path("minari:arb/mine/log-v0"), dataset)
