"""Without Stable-Baselines3 its adapter says what to install."""

import subprocess
import sys


def test_import_names_the_extra():
    code = "import sys; sys.modules['stable_baselines3'] = None; import arb.adapters.sb3"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith(": pip install 'arb-rl[sb3]'")
