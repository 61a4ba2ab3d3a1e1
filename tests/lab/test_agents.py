"""The paper's tables, value by value."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict

import pytest

from arb.data.tasks import FAMILIES
from arb.errors import DataError
from arb.lab.agents import AGENTS, agent_row, settings_class, tuned

DOMAINS = ("locomotion", "antmaze")


def both(value):
    """The same on both domains."""
    return (value, value)


IQL = {
    "hidden_dims": both((256, 256)),
    "expectile": (0.7, 0.9),
    "beta": (3.0, 10.0),
    "effective": both(0.5),  # read only with beta "auto"
    "max_weight": both(100.0),
    "discount": both(0.99),
    "tau": both(0.005),
    "actor_lr": both(3e-4),
    "critic_lr": both(3e-4),
    "lr_decay_steps": both(1_000_000),
    "actions": both(None),
}
PEX = IQL | {
    "inverse_temperature": (3.0, 10.0),
    "epsilon": both(0.1),
    "new_policy": both("random"),
    "policy_actions": both("composite"),
}
FAMO2O = IQL | {
    "beta": both(3.0),  # b takes its place
    "lr_decay_steps": both(None),
    "beta_min": (1.0, 8.0),
    "beta_max": (5.0, 14.0),
    "code_size": both(6),
    "target_entropy": both(-0.5),
}
CALQL = {
    "actor_hidden_dims": both((256,) * 3),
    "critic_hidden_dims": ((256,) * 3, (256,) * 5),  # the release's; the paper's table has them transposed
    "discount": both(0.99),
    "tau": both(0.005),
    "actor_lr": (3e-5, 1e-4),
    "critic_lr": both(3e-4),
    "cql_alpha": (10.0, 5.0),
    "cql_n_actions": both(10),
    "calibrate": both(True),
    "calibrate_online": both(True),
    "cql_lagrange": (False, True),
    "cql_target_action_gap": both(0.8),  # read only with a multiplier
    "cql_max_target_backup": (False, True),
    "cql_clip_diff_min": (None, -200.0),
    "chunk": both(16),
}
SAC = {
    "hidden_dims": both((256, 256)),
    "discount": both(0.99),
    "tau": both(0.005),
    "actor_lr": both(3e-4),
    "critic_lr": both(3e-4),
    "target_entropy": both(None),
    "layer_norm": both(True),
    "num_critics": both(2),
    "critic_subset": both(None),
    "actor_q": both("min"),
    "backup_entropy": both(True),
    "actor_period": both(1),
}
FQL = {
    "hidden_dims": both((512, 512, 512, 512)),
    "discount": both(0.99),
    "tau": both(0.005),
    "actor_lr": both(3e-4),
    "critic_lr": both(3e-4),
    "alpha": (1.0, 10.0),
    "normalize_q": (True, False),
    "flow_steps": both(10),
    "target_q": both("mean"),
    "layer_norm": both(True),
    "chunk": both(1),
}
TABLES = {"iql": (IQL, 0.2), "calql": (CALQL, 5.0), "pex": (PEX, 0.5), "famo2o": (FAMO2O, 0.5), "sac": (SAC, 5.0)}
TABLES |= {"fql": (FQL, 0.5), "qcfql": (FQL | {"chunk": both(5)}, 0.5)}
RLPD = {"num_critics": both(10), "critic_subset": both(2), "actor_q": both("mean")}
TABLES["rlpd"] = (SAC | RLPD, 5.0)
"""Settings on locomotion and on AntMaze, and λ of ARB."""


@pytest.mark.parametrize("algorithm", TABLES)
def test_every_value_is_that_of_the_table(algorithm):
    table, arb_temperature = TABLES[algorithm]
    for column, domain in enumerate(DOMAINS):
        found = tuned(algorithm, FAMILIES[domain])
        made = asdict(settings_class(algorithm)(**found.settings))
        assert made == {name: row[column] for name, row in table.items()}
        assert found.arb_temperature == arb_temperature


def test_there_is_a_preset_for_every_algorithm_on_every_domain():
    assert all(set(AGENTS[name].tuned) == set(DOMAINS) for name in TABLES)


def test_an_unknown_agent_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"^there is no agent 'IQLL' \(did you mean 'iql'\?\); there are iql, calql"):
        agent_row("IQLL")


def test_importing_the_package_does_not_import_jax():
    code = "import sys, arb; sys.exit(any(m in sys.modules for m in ('jax', 'torch', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
