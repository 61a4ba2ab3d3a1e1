"""A run that is killed again and again ends in the same bytes as one that was left alone."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arb.lab.training import run
from tests.lab import tiny

PROGRAM = Path(tiny.__file__)
PAIRS = [(agent, strategy) for agent in ("iql", "calql") for strategy in ("naive", "parallel", "top_n", "berb", "arb")]
PAIRS += [("iql", "arb_auto"), ("qcfql", "arb_auto")]  # the latter is saved within a chunk of three actions
MOMENTS = [
    # each counted from where the run was resumed; a row is what one pair of agent and strategy goes through
    ["update:2", "collect:13", "refresh:2", "checkpoint:2"],
    ["evaluate:2", "checkpoint:1", "collect:31", "update:1"],
    ["checkpoint:3", "switch:1", "table:1", "refresh:2"],
    ["table:3", "update:1", "collect:7", "evaluate:1"],
    ["evaluate:1", "update:2", "refresh:1", "checkpoint:4"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    tiny.write_data(folder / "data.npz")
    return folder


def started(folder: Path, agent: str, strategy: str, moments: list[str]) -> list[int]:
    """Start a run, once for each moment at which it dies and once to end it; the exit codes."""
    command = [sys.executable, str(PROGRAM), str(folder), agent, strategy, *moments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    codes = [int(code) for code in done.stdout.split()]
    assert len(codes) == len(moments) + 1, done.stderr
    assert set(codes) <= {0, -signal.SIGKILL}, done.stderr
    assert codes[-1] == 0, done.stderr
    return codes


def outcome(folder: Path) -> dict[str, bytes]:
    newest = sorted((folder / "checkpoint").iterdir())[-1]
    files = [folder / "metrics.csv", folder / "eval.csv", newest / "agent.safetensors", newest / "state.json"]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize(("agent", "strategy"), PAIRS)
def test_a_killed_run_ends_in_the_same_bytes(place, agent, strategy):
    whole, killed = (place / name / f"{agent}-{strategy}" for name in ("whole", "killed"))
    run(tiny.config_of(place / "data.npz", agent, strategy), whole, save_every=0.0)
    deaths = started(killed, agent, strategy, MOMENTS[PAIRS.index((agent, strategy)) % 5])
    assert deaths.count(-signal.SIGKILL) >= 3  # a moment may not come any more when a run is near its end
    assert outcome(killed) == outcome(whole)
    assert (killed / "DONE").exists()
