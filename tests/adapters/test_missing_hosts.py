"""Without its host an adapter says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "host"), [("sb3", "stable_baselines3"), ("torchrl", "torchrl"), ("d3rlpy", "d3rlpy")]
)
@pytest.mark.parametrize("named", ["import arb.adapters.{}", "import arb; arb.adapters.{}"])
def test_import_names_the_extra(adapter, host, named):
    code = f"import sys; sys.modules['{host}'] = sys.modules['torch'] = None; {named.format(adapter)}"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith(f": pip install 'arb-rl[{adapter}]'")
