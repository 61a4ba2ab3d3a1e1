"""Where a buffer gets its seed inside a library that seeds NumPy's global stream and nothing else."""

import numpy as np


def seed_sequence(seed: int | None) -> np.random.SeedSequence:
    """The seed given, or a number from NumPy's global stream, which a seeded host or script has seeded before."""
    return np.random.SeedSequence(np.random.randint(2**31) if seed is None else seed)  # noqa: NPY002 - see above
