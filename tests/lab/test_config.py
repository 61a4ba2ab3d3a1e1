"""What a configuration comes to: the family of every task, the hints, and the table of settings."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arb import DataError
from arb.data.tasks import FAMILIES, SUITE, TASKS, family_of
from arb.lab.algorithms import AGENTS, agent_settings, tuned
from arb.lab.config import OPTIONS, PRESETS, configure, with_leaf
from arb.lab.folder import default_folder
from arb.lab.grid import grid
from arb.lab.metrics import LOGGED
from arb.lab.settings import settings_table
from arb.lab.strategies import STRATEGIES, strategy_colour, strategy_label
from tests.lab import tiny

DOCS = Path(__file__).parents[2] / "docs" / "run.md"


@pytest.mark.parametrize("task", [*TASKS, *SUITE])
def test_the_family_follows_from_the_task(task):
    family = "antmaze" if "antmaze" in task else "locomotion"
    assert family_of(task).name == family
    for agent in AGENTS:
        config = configure(task=task, agent=agent, strategy="arb", preset="paper")
        assert config.settings == agent_settings(agent, FAMILIES[family])
        assert config.replay.temperature == tuned(agent, FAMILIES[family]).arb_temperature


def test_the_family_of_ones_own_data_is_that_of_its_environment(tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as file:
        np.savez(tmp_path / "maze.npz", env="arb/antmaze-large-v2", **file)
    expectile = {
        "plain": configure(task=str(tmp_path / "data.npz")).settings.expectile,
        "by option": configure(task=str(tmp_path / "data.npz"), env="arb/antmaze-large-v2").settings.expectile,
        "by its file": configure(task=str(tmp_path / "maze.npz")).settings.expectile,
        "against its file": configure(task=str(tmp_path / "maze.npz"), env="arb/hopper-v2").settings.expectile,
    }
    assert expectile == {"plain": 0.7, "by option": 0.9, "by its file": 0.9, "against its file": 0.7}


def test_what_a_family_knows():
    assert FAMILIES["antmaze"].successes([0.0, 1.0, 3.0]).tolist() == [False, True, True]
    assert FAMILIES["locomotion"].successes([0.0, 1.0]) is None
    assert FAMILIES["other"].settings == "locomotion"
    assert all(task.family in FAMILIES for task in (*TASKS.values(), *SUITE.values()))


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ("schedule.offline", "there is no setting 'schedule.offline' (did you mean 'schedule.pretrain'?)"),
        ("temperature", "(did you mean replay.temperature?)"),
        ("online", "(did you mean schedule.online?)"),
        ("lambda", "(did you mean replay.temperature?)"),
        ("settings.gamma", "(did you mean 'settings.discount'?)"),
        ("replay.temprature", "(did you mean 'temperature'?); here are"),
    ],
)
def test_another_word_gets_its_hint(leaf, message):
    with pytest.raises(DataError, match=re.escape(message)):
        configure(overrides={leaf: 2})


@pytest.mark.parametrize(("kind", "name", "hint"), [("strategy", "ARB", "arb"), ("agent", "CalQL", "calql")])
def test_capitals_get_their_hint(kind, name, hint):
    with pytest.raises(DataError, match=f"there is no {kind} '{name}' .did you mean '{hint}'"):
        configure(**{kind: name})


@pytest.mark.parametrize("agent", AGENTS)
def test_every_setting_is_listed_and_can_be_set_to_what_it_is(agent):
    config = configure(agent=agent)
    rows = {row.name: row for row in settings_table(config)}
    assert rows["schedule.collect"].meaning.startswith("d_update: steps between")
    assert rows["replay.strategy"].default == "arb_auto"
    changed = configure(agent=agent, overrides={n: row.default for n, row in rows.items() if n not in OPTIONS})
    assert changed == config
    assert all(row.meaning for name, row in rows.items() if not name.startswith("settings."))


@pytest.mark.parametrize(
    ("leaf", "value"), [("task", "antmaze-umaze-v2"), ("env", "Hopper-v5"), ("agent", "pex"), ("seed", 3),
                        ("replay.strategy", "arb")],
)  # fmt: skip
def test_what_other_settings_follow_from_is_an_option_and_no_setting(leaf, value):
    line = f"{leaf} has an option of its own: --{leaf.removeprefix('replay.')}"
    with pytest.raises(DataError, match=line):
        configure(overrides={leaf: value})
    with pytest.raises(DataError, match=line):
        grid(["hopper-medium-v2"], overrides={leaf: value})
    with pytest.raises(DataError, match=line):
        grid(["hopper-medium-v2"], leaves={leaf: [value]})


def test_a_run_that_names_nothing_is_small_and_sets_its_own_temperature():
    config = configure()
    assert (config.task, config.replay.strategy, config.replay.temperature) == (
        "suite:walker2d-mixed",
        "arb_auto",
        "auto",
    )
    assert config.settings.hidden_dims == (128, 128)
    assert config.schedule.batch == 128
    calql = configure(agent="calql", task="antmaze-umaze-v2").settings
    assert calql.actor_hidden_dims == calql.critic_hidden_dims == (128, 128)
    assert configure(preset="small").settings.hidden_dims == (256, 256)
    with pytest.raises(DataError, match=r"with the strategy arb_auto replay\.temperature is auto: add --strategy arb"):
        configure(overrides={"replay.temperature": 2})


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_those_of_the_docs(preset):
    pretrain, online, evaluation = re.search(
        rf"^\| `{preset}` \| ([\d,]+) \| ([\d,]+) \| (.*) \|$", DOCS.read_text(), re.MULTILINE
    ).groups()
    schedule, when, _ = PRESETS[preset]
    assert (f"{schedule.pretrain:,}", f"{schedule.online:,}") == (pretrain, online)
    often = "" if preset == "smoke" else f" every {when.every:,}"  # only at the ends of both phases
    assert evaluation.startswith(f"{when.episodes} episodes{often}")


def test_another_strategy_keeps_the_settings_that_both_have():
    config = configure(strategy="arb", overrides={"replay.temperature": 2, "replay.clip": (-3.0, 3.0)})
    naive = with_leaf(config, "replay.strategy", "naive")
    assert naive == replace(config, replay=replace(config.replay, strategy="naive"))
    recent = with_leaf(config, "replay.strategy", "recent")  # whose settings are others
    assert recent.replay == configure(strategy="recent").replay


def test_strategies_are_told_apart():
    colours = [row.colour for row in STRATEGIES.values()]
    assert len(set(colours)) == len(colours)
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert strategy_label("top_n") == "Top-N"
    assert strategy_label("my_module:NewestFirst") == "NewestFirst"
    assert strategy_colour("my_module:NewestFirst") not in colours
    assert len(set(LOGGED)) == len(LOGGED)
    assert all(set(row.reads) <= set(row.settings.__dataclass_fields__) for row in STRATEGIES.values())


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("hopper-medium-v2", "hopper-medium-v2-iql-arb-smoke-3"),
        ("/data/my robot.hdf5", "my-robot-iql-arb-smoke-3"),
        ("suite:hopper-mixed", "suite-hopper-mixed-iql-arb-smoke-3"),
        ("../../x.npz?observations=state", "x-iql-arb-smoke-3"),
    ],
)
def test_a_folder_is_named_by_what_was_asked(task, name):
    folder = default_folder(configure(task=task, strategy="arb", seed=3), "smoke")
    assert str(folder) == f"runs/{name}"


def test_configuring_needs_no_jax_until_an_agent_is_asked_for():
    code = "import sys, arb.lab.config, arb.lab.strategies, arb.lab.algorithms; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
