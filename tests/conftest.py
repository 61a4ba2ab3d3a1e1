"""What all tests share: one thread each, compiled code, and data that is too large to ship."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# Two test processes with two threads each wait for one another on two cores; set before torch or jax is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# JAX takes longer to compile than anything else takes here, and networks are tiny: their machine code need not be fast.
# What one process has compiled, the others of this session read: xdist's workers and all programs that tests start
# inherit these settings.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="arb-compiled-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

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
    """The folder with D4RL excerpts and D4RL-like datasets: $ARB_DATA, or shared/data beside the checkout."""
    folder = Path(os.environ.get("ARB_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs the D4RL excerpts: set ARB_DATA to the folder that holds d4rl-excerpts/")
    return folder
