"""The hyper-parameters of the paper, per domain: tables one can read.

Sources: the paper's appendix, and the authors' release where the two disagree or the paper is silent; the pages under
docs/algorithms say which, value by value. How states and rewards are shaped is in `arb.runs.shaping.RULES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from arb.agents import CalQLConfig, FamO2OConfig, IQLConfig, PEXConfig, SACConfig
from arb.errors import DataError

Domain = Literal["locomotion", "antmaze"]


@dataclass(frozen=True)
class Preset:
    """One algorithm on one domain."""

    config: Any
    arb_temperature: float
    """λ of ARB."""


_PRETRAINING = 1_000_000
"""Updates of pre-training, over which the policy's learning rate falls."""

PRESETS: dict[tuple[str, Domain], Preset] = {
    ("iql", "locomotion"): Preset(IQLConfig(policy_decay=_PRETRAINING), 0.5),
    ("iql", "antmaze"): Preset(
        IQLConfig(expectile=0.9, temperature=10.0, policy_decay=_PRETRAINING),
        0.5,
    ),
    ("calql", "locomotion"): Preset(CalQLConfig(), 5.0),
    ("calql", "antmaze"): Preset(
        CalQLConfig(
            critic_hidden=(256,) * 5,
            policy_rate=1e-4,
            conservatism=5.0,
            lagrange=True,
            target_gap=0.8,
            max_backup=True,
            lowest_gap=-200.0,
        ),
        5.0,
    ),
    ("pex", "locomotion"): Preset(PEXConfig(policy_decay=_PRETRAINING), 0.5),
    ("pex", "antmaze"): Preset(
        PEXConfig(expectile=0.9, temperature=10.0, sharpness=10.0, policy_decay=_PRETRAINING),
        0.5,
    ),
    ("famo2o", "locomotion"): Preset(FamO2OConfig(), 0.5),
    ("famo2o", "antmaze"): Preset(
        FamO2OConfig(expectile=0.9, lowest_balance=8.0, highest_balance=14.0),
        0.5,
    ),
    # Not in the paper: layer normalisation as RLPD has it, and Cal-QL's λ, whose policy is of the same kind.
    ("sac", "locomotion"): Preset(SACConfig(layer_norm=True), 5.0),
    ("sac", "antmaze"): Preset(SACConfig(layer_norm=True), 5.0),
}


def preset(algorithm: str, domain: Domain) -> Preset:
    """The paper's settings of an algorithm on a domain."""
    if (algorithm, domain) not in PRESETS:
        known = ", ".join(f"{a} on {d}" for a, d in PRESETS)
        raise DataError(f"no preset for {algorithm} on {domain}; there are: {known}")
    return PRESETS[algorithm, domain]
