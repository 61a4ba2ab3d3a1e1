"""The algorithms of the paper, as pure updates on values. Importing this imports JAX; `import arb` does not."""

from arb.agents.agent import Agent, constant, pytree
from arb.agents.calql import CalQL, CalQLConfig
from arb.agents.density import DensityRatio, Ratio, RatioConfig
from arb.agents.famo2o import FamO2O, FamO2OConfig
from arb.agents.fql import FQL, FQLConfig
from arb.agents.iql import IQL, IQLConfig
from arb.agents.learn import NotFiniteError, clone, learn, load, on_host, save, scores
from arb.agents.pex import PEX, PEXConfig
from arb.agents.sac import SAC, SACConfig

__all__ = [
    "FQL",
    "IQL",
    "PEX",
    "SAC",
    "Agent",
    "CalQL",
    "CalQLConfig",
    "DensityRatio",
    "FQLConfig",
    "FamO2O",
    "FamO2OConfig",
    "IQLConfig",
    "NotFiniteError",
    "PEXConfig",
    "Ratio",
    "RatioConfig",
    "SACConfig",
    "clone",
    "constant",
    "learn",
    "load",
    "on_host",
    "pytree",
    "save",
    "scores",
]  # fmt: skip
