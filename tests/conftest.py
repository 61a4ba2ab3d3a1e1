"""Where tests find data that is too large to ship."""

from __future__ import annotations

import os
from pathlib import Path

# Two test processes with two threads each wait for one another on two cores; set before torch or jax is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# A loaded machine is no reason to fail; in CI the same examples every time, elsewhere new ones.
settings.register_profile("arb", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("arb")


@pytest.fixture(scope="session")
def golden() -> Path:
    return HERE / "golden"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with D4RL excerpts and D4RL-like sets: $ARB_DATA, or shared/data beside the checkout."""
    folder = Path(os.environ.get("ARB_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs the D4RL excerpts: set ARB_DATA to the folder that holds d4rl-excerpts/")
    return folder
