"""Without its host an adapter says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "host"), [("sb3", "stable_baselines3"), ("torchrl", "torchrl"), ("d3rlpy", "d3rlpy")]
)
def test_import_names_the_extra(adapter, host):
    code = f"import sys; sys.modules['{host}'] = None; import arb.adapters.{adapter}"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith(f": pip install 'arb-rl[{adapter}]'")
