"""The strategies that every adapter must carry, by the name of what is special about each."""

import pytest

import arb


def learned_ratio():
    """BERB's, for the sizes of Pendulum."""
    jax = pytest.importorskip("jax", reason="BERB needs pip install 'arb-rl[train]'")
    from arb.agents.density import DensityRatio, Ratio

    return DensityRatio(Ratio.create(jax.random.key(0), obs_dim=3, action_dim=1))


STRATEGIES = {
    "uniform": arb.Uniform,
    "mixed": arb.Mixed,
    "trajectory": lambda: arb.ARB(0.5),
    "transition": lambda: arb.ARB(0.5, level="transition"),
    "auto": lambda: arb.ARB("auto", effective=0.25),
    "learned ratio": learned_ratio,
}
