from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Genuine and D4RL-like files for development: `$ARB_DATA`, or `shared/data` beside the checkout."""
    path = Path(os.environ.get("ARB_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no development data at {path} (set ARB_DATA)")
    return path
