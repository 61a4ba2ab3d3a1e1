"""Collecting on a small real environment: SAC learns, stops, goes on, and its datasets are what they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from arb.agents import SAC, on_host
from arb.agents import load as load_agent
from arb.cli import main
from arb.data import audit
from arb.envs.rollout import Step
from arb.errors import DataError
from arb.suite.datasets import load_dataset
from arb.suite.recorder import as_dataset
from arb.suite.sac import Plan, collect, reaches, train


def test_steps_become_a_dataset() -> None:
    ends = [(False, False), (True, False), (True, True)]
    steps = [Step(np.full(2, row), row, row / 2, np.full(2, row + 0.5), *end) for row, end in enumerate(ends)]
    dataset = as_dataset(steps)
    assert [dataset.actions.dtype, dataset.rewards.dtype] == [np.int64, np.float32]
    assert dataset.rewards.tolist() == [0.0, 0.5, 1.0]
    assert dataset.final_observations.tolist() == [[2.5, 2.5]]
    assert dataset.terminals.tolist() == [False, True, True]
    assert not dataset.timeouts.any()  # ended and cut off at once counts as ended


def test_a_kept_policy_acts_as_the_agent_does(tmp_path: Path) -> None:
    """Also in its deviation: two learned scalars of the agent are folded into the last layer of the file."""
    run = train(plan(400), tmp_path)
    agent = load_agent(tmp_path / "agent-00000400.safetensors", SAC)
    assert float(agent.actor.multiplier) != 1.0
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    kept, made_by = run.policy("100")
    assert made_by.startswith("SAC (seed 1) after 400 steps")
    theirs = on_host(agent.actor).act(obs, np.random.default_rng(1))
    np.testing.assert_allclose(kept(obs, np.random.default_rng(1)), theirs, rtol=1e-5)


def plan(steps: int, seed: int = 1) -> Plan:
    """Short, and with the shapes of every other run here: compiling takes longer than all of them."""
    return Plan("Pendulum-v1", seed, steps, evaluate_every=400, evaluation_episodes=1, warmup=200)


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = train(plan(1200), tmp_path / "whole")
    train(plan(400), tmp_path / "parts")
    parts = train(plan(1200), tmp_path / "parts")
    assert parts.history == whole.history
    assert [step for step, _ in whole.history] == [400, 800, 1200]
    assert parts.replay(1200).fingerprint == whole.replay(1200).fingerprint
    with pytest.raises(DataError, match=r"holds another run \(seed 1 there, 2 here\)"):
        train(plan(1200, seed=2), parts.folder)


def test_medium_is_a_third_of_the_way() -> None:
    history = [(10, 0.0), (20, 31.0), (30, 34.0), (40, 99.0), (50, 60.0)]
    assert reaches(history, 1 / 3) == 30
    assert reaches(history, 1.0) == 40


LEARNED = Plan("Pendulum-v1", 0, 6400, 800)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short SAC run with the defaults that `collect` uses."""
    path = tmp_path_factory.mktemp("sac")
    train(LEARNED, path / "run")
    return path / "run"


@pytest.mark.parametrize(
    ("quality", "episodes"),
    [("random", 2), ("medium", 2), ("expert", 2), ("medium-expert", 2), ("mixed", 6), ("full-replay", 32)],
)
def test_every_quality(tmp_path: Path, folder: Path, quality: str, episodes: int) -> None:
    out = tmp_path / f"{quality}.hdf5"
    collect(LEARNED, quality, 400, out, folder, "the command")
    dataset = load_dataset(out)
    assert audit(out).ok
    assert dataset.num_episodes == episodes
    assert dataset.actions.min() < -1  # in the environment's own bounds, -2 .. 2
    assert (dataset.provenance["env"], dataset.provenance["command"]) == ("Pendulum-v1", "the command")
    assert "gymnasium" in dataset.provenance["versions"]
    if quality != "random":
        assert "SAC" in dataset.provenance["made_by"]


def test_medium_replay_is_the_run_up_to_medium(tmp_path: Path, folder: Path) -> None:
    medium = collect(LEARNED, "medium-replay", 1, tmp_path / "x.hdf5", folder)
    full = collect(LEARNED, "full-replay", 1, tmp_path / "y.hdf5", folder)
    assert len(medium) % 800 == 0
    assert len(medium) <= 6400
    np.testing.assert_array_equal(medium.observations, full.observations[: len(medium)])


def test_the_same_request_gives_the_same_data(tmp_path: Path, folder: Path) -> None:
    copies = []
    for name in ("a", "b"):
        shutil.copytree(folder, tmp_path / name)
        collect(LEARNED, "expert", 200, tmp_path / f"{name}.hdf5", tmp_path / name)
        copies.append(load_dataset(tmp_path / f"{name}.hdf5").fingerprint)
    assert copies[0] == copies[1]


def test_random_works_with_discrete_actions_and_sac_says_why_not(tmp_path: Path) -> None:
    dataset = collect(Plan("CartPole-v1"), "random", 100, tmp_path / "x.hdf5", tmp_path / "sac")
    assert set(np.unique(dataset.actions)) == {0, 1}
    assert audit(tmp_path / "x.hdf5").ok
    with pytest.raises(DataError, match="SAC needs a bounded box"):
        collect(Plan("CartPole-v1"), "expert", 100, tmp_path / "y.hdf5", tmp_path / "sac")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "hopper.hdf5"
    argv = ["data", "collect", "arb/hopper-v2", "random", "--steps", "200", "--out", str(out)]
    assert main(argv) == 0
    dataset = load_dataset(out)
    assert dataset.provenance["command"] == " ".join(["arb", *argv])
    assert main(["data", "audit", str(out)]) == 0
    assert main(["data", "info", str(out)]) == 0
    assert "score" in capsys.readouterr().out
    assert main(["data", "collect", "arb/hopper-v2", "worst", "--out", str(out)]) == 2
    assert "quality must be 'random' or 'mixed' or" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npz", ".NPZ", ".h5"])
def test_the_file_is_what_its_name_says(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"x{suffix}"
    recorded = collect(Plan("Pendulum-v1", 3), "random", 200, out, tmp_path / "sac", "the command")
    dataset = load_dataset(out)
    assert dataset.fingerprint == recorded.fingerprint
    kept = {name: dataset.provenance[name] for name in ("env", "seed", "command", "action_low", "action_high")}
    wanted = {"env": "Pendulum-v1", "seed": 3, "command": "the command", "action_low": -2.0, "action_high": 2.0}
    assert kept == wanted
    assert audit(out).ok


@pytest.mark.parametrize(
    ("name", "quality", "steps", "message"),
    [
        ("a.txt", "random", 200, "a.txt: a dataset is written to a name ending in .hdf5"),
        ("a.hdf5", "random", 0, "a dataset 'random' needs at least 1 step, not 0"),
        ("a.hdf5", "mixed", 7, "a dataset 'mixed' needs at least 8 steps, not 7"),
    ],
)
def test_what_cannot_be_collected_is_refused_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, quality: str, steps: int, message: str
) -> None:
    # An environment that is not there would be what stops it, if it had started.
    argv = ["data", "collect", "arb/nowhere-v0", quality, "--steps", str(steps), "--out", str(tmp_path / name)]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
