"""The paper's tables, value by value."""

from __future__ import annotations

import subprocess
import sys

import pytest

from arb.presets import PRESETS, preset


def test_values_of_the_papers_tables():
    rows = {
        "pex": ("sharpness", 3.0, 10.0),
        "iql": ("temperature", 3.0, 10.0),
        "famo2o": ("lowest_balance", 1.0, 8.0),
        "calql": ("conservatism", 10.0, 5.0),
    }
    for algorithm, (name, locomotion, antmaze) in rows.items():
        assert getattr(preset(algorithm, "locomotion").config, name) == locomotion
        assert getattr(preset(algorithm, "antmaze").config, name) == antmaze
    for algorithm in ("iql", "pex", "famo2o"):
        assert preset(algorithm, "locomotion").config.expectile == 0.7
        assert preset(algorithm, "antmaze").config.expectile == 0.9
    assert (
        preset("famo2o", "locomotion").config.highest_balance,
        preset("famo2o", "antmaze").config.highest_balance,
    ) == (
        5.0,
        14.0,
    )
    assert {p.arb_temperature for (name, _), p in PRESETS.items() if name != "calql"} == {0.5}
    assert preset("calql", "antmaze").arb_temperature == 5.0


def test_calql_follows_the_release_where_the_papers_table_is_transposed():
    locomotion, antmaze = (preset("calql", d).config for d in ("locomotion", "antmaze"))
    assert (len(locomotion.critic_hidden), len(antmaze.critic_hidden)) == (3, 5)
    assert (locomotion.policy_rate, antmaze.policy_rate) == (3e-5, 1e-4)
    assert (locomotion.lagrange, antmaze.lagrange, antmaze.target_gap, antmaze.max_backup) == (False, True, 0.8, True)


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(KeyError, match="no preset for sac on antmaze; there are: iql on locomotion"):
        preset("sac", "antmaze")


def test_importing_the_package_does_not_import_jax():
    code = "import sys, arb; sys.exit(any(m in sys.modules for m in ('jax', 'torch', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
