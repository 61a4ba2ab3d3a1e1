"""Every benchmark runs. What it measures means nothing here: `--quick` is the smallest size at which all of it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
HELPERS = {"interleaved", "rivals"}
"""Modules that benchmarks share."""
NEEDS = {
    "batches": ["torchrl", "stable_baselines3"],
    "boundaries": ["h5py", "mujoco"],
    "cycle": ["torch", "mujoco"],
    "learning": ["gymnasium"],
    "own_code": ["torch", "gymnasium", "scipy"],
    "load_million": ["h5py"],
    "memmap": ["torchrl"],
    "sb3": ["stable_baselines3"],
    "staleness": ["mujoco"],
    "updates": ["torch"],
}
ARGUMENTS = {"learning": ["online"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in HELPERS))
def test_a_benchmark_runs(name, tmp_path):
    for module in NEEDS.get(name, []):
        pytest.importorskip(module)
    source = str(FOLDER.parent / "src")
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *ARGUMENTS.get(name, []), "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) >= 2, "a benchmark prints what it found"


def test_every_campaign_can_be_configured(monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.syspath_prepend(FOLDER)
    import campaign

    for name, one in campaign.CAMPAIGNS.items():
        folders = [folder for _, folder, _ in one.cells([0])]
        assert len(folders) == len(set(folders)) > 0, name


def test_a_campaign_does_not_repeat_what_its_archive_holds(monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.syspath_prepend(FOLDER)
    import campaign
    from arb.lab.config import flat
    from arb.report.records import Record

    (_, _, config), (_, _, other), *_ = campaign.CAMPAIGNS["locomotion"].cells([0])
    settings = flat(config)
    assert campaign.holds(Record("a", settings, "done"), config)
    for changed in ({"seed": 1}, {"schedule.batch": 64}, {"task": "suite:hopper-random"}):
        assert not campaign.holds(Record("a", {**settings, **changed}, "done"), config)
    assert not campaign.holds(Record("a", settings, "done"), other)
    assert not campaign.holds(Record("a", settings, "failed"), config)
    assert not campaign.holds(Record("a", {}, "damaged"), config)
    for _, _, config in campaign.CAMPAIGNS["locomotion"].cells([0]):  # training on without an environment too
        assert campaign.holds(Record("a", flat(config), "done"), config)


@pytest.mark.parametrize("option", ["--task", "--agent", "--strategy"])
def test_a_mistyped_filter_of_a_campaign_is_an_error(monkeypatch, capsys, tmp_path, option):
    pytest.importorskip("jax")
    monkeypatch.syspath_prepend(FOLDER)
    import campaign

    monkeypatch.setattr(sys, "argv", ["campaign.py", "locomotion", option, "hoper", "--results", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        campaign.main()
    assert f"{option} hoper: locomotion has no such {option[2:]}; it has " in capsys.readouterr().err
