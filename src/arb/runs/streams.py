"""One seed, named streams: every source of chance has its own, so more of one does not disturb the others."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    import jax


def stream(seed: int, *names: str | int) -> np.random.SeedSequence:
    """The seeds of a named stream of a run.

    >>> stream(0, "eval", 1000).generate_state(1)[0] == stream(0, "eval", 1000).generate_state(1)[0]
    np.True_
    """
    return np.random.SeedSequence([seed, *(crc32(str(name).encode()) for name in names)])


def key_of(seed: int, *names: str | int) -> jax.Array:
    """The same as a JAX key."""
    import jax

    return jax.random.key(int(stream(seed, *names).generate_state(1)[0]))
