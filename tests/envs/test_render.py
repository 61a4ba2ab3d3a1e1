from __future__ import annotations

import os
import subprocess
import sys

import pytest

DRAW = """
import sys
import numpy as np
import arb.envs
env = arb.envs.make(sys.argv[1], render_mode="rgb_array", width=160, height=120)
env.reset(seed=0)
picture = env.render()
assert picture.shape == (120, 160, 3), picture.shape
assert picture.dtype == np.uint8
assert picture.std() > 5, "an empty picture"
env.close()
"""


def graphics() -> str | None:
    """A backend that can draw here, each tried in a process of its own because a failed one may not be left."""
    trial = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
    for backend in filter(None, (os.environ.get("MUJOCO_GL"), "egl", "osmesa")):
        environment = {**os.environ, "MUJOCO_GL": backend}
        if subprocess.run([sys.executable, "-c", trial], env=environment, capture_output=True).returncode == 0:
            return backend
    return None


@pytest.fixture(scope="module")
def backend() -> str:
    found = graphics()
    if found is None:
        pytest.skip("no OpenGL on this machine (neither EGL nor OSMesa)")
    return found


@pytest.mark.parametrize("name", ["hopper-medium-v2", "antmaze-umaze-v2"])
def test_rgb_array(backend: str, name: str) -> None:
    environment = {**os.environ, "MUJOCO_GL": backend}
    result = subprocess.run([sys.executable, "-c", DRAW, name], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
