"""What a configuration comes to: the family of every task, the hints, and the table of settings."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arb import DataError
from arb.data.tasks import FAMILIES, SUITE, TASKS, family_of
from arb.lab.agents import AGENTS, settings_class, tuned
from arb.lab.config import OPTIONS, PRESETS, configure, flat, settings_table, with_key
from arb.lab.folder import convergence_note, default_folder
from arb.lab.strategies import strategy_label
from arb.lab.sweep import grid
from tests.lab import tiny

DOCS = Path(__file__).parents[2] / "docs" / "run.md"


@pytest.mark.parametrize("task", [*TASKS, *SUITE])
def test_the_family_follows_from_the_task(task):
    family = "antmaze" if "antmaze" in task else "locomotion"
    assert family_of(task).name == family
    for agent in AGENTS:
        config = configure(task=task, agent=agent, strategy="arb", preset="paper")
        assert config.settings == settings_class(agent)(**tuned(agent, FAMILIES[family]).settings)
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
    ("key", "message"),
    [
        ("schedule.offline", "there is no setting 'schedule.offline' (did you mean 'schedule.pretrain'?)"),
        ("temperature", "(did you mean replay.temperature?)"),
        ("online", "(did you mean schedule.online?)"),
        ("lambda", "(did you mean replay.temperature?)"),
        ("settings.gamma", "(did you mean 'settings.discount'?)"),
        ("replay.temprature", "(did you mean 'temperature'?); here are"),
    ],
)
def test_another_word_gets_its_hint(key, message):
    with pytest.raises(DataError, match=re.escape(message)):
        configure(overrides={key: 2})


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
    ("key", "value"), [("task", "antmaze-umaze-v2"), ("env", "Hopper-v5"), ("agent", "pex"), ("seed", 3),
                        ("replay.strategy", "arb")],
)  # fmt: skip
def test_what_other_settings_follow_from_is_an_option_and_no_setting(key, value):
    line = f"{key} has an option of its own: --{key.removeprefix('replay.')}"
    with pytest.raises(DataError, match=line):
        configure(overrides={key: value})
    with pytest.raises(DataError, match=line):
        grid(["hopper-medium-v2"], overrides={key: value})
    with pytest.raises(DataError, match=line):
        grid(["hopper-medium-v2"], axes={key: [value]})


def test_a_run_that_names_nothing_is_small_and_sets_its_own_temperature():
    config = configure()
    assert (config.task, config.replay.strategy, config.replay.temperature) == (
        "suite:hopper-mixed",
        "arb_auto",
        "auto",
    )
    assert config.settings.hidden_dims == (256, 256)
    assert config.schedule.batch == 256
    assert convergence_note(flat(config)) == ""
    calql = configure(agent="calql", task="antmaze-umaze-v2").settings
    assert (calql.actor_hidden_dims, calql.critic_hidden_dims) == ((256,) * 3, (256,) * 5)
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


def test_a_strategy_has_the_settings_of_its_sampler():
    naive, arb = configure(strategy="naive"), configure(strategy="arb")
    assert [key for key in flat(naive) if key.startswith("replay.")] == ["replay.strategy"]
    assert [key for key in flat(arb) if key.startswith("replay.")] == [
        f"replay.{name}" for name in ("strategy", "temperature", "effective", "clip", "level", "likelihood")
    ]
    assert flat(configure(strategy="top_n"))["replay.keep"] == 50_000
    with pytest.raises(DataError, match=r"'replay.keep': the strategy naive has no settings"):
        configure(strategy="naive", overrides={"replay.keep": 5})
    with pytest.raises(DataError, match=r"another replay.strategy has other settings: make the configuration anew"):
        with_key(arb, "replay.strategy", "naive")
    assert strategy_label("top_n") == "Top-N"
    assert strategy_label("my_module:NewestFirst") == "NewestFirst"


def test_rewards_are_scaled_as_the_table_of_agents_says_or_as_one_likes():
    scales = {agent: configure(agent=agent, preset="paper").preprocessing.reward_scale for agent in AGENTS}
    assert scales == dict.fromkeys(AGENTS, "none") | {"pex": "return_range"}
    maze = configure(task="antmaze-umaze-v2", agent="calql").preprocessing
    assert (maze.reward_factor, maze.reward_shift, maze.normalize_observations) == (10.0, -5.0, False)
    assert configure(task="antmaze-umaze-v2").preprocessing.reward_shift == -1.0
    chosen = configure(overrides={"preprocessing.reward_scale": "return_range"})
    assert chosen.preprocessing.reward_scale == "return_range"
    with pytest.raises(DataError, match="reward_scale must be 'none' or 'return_range', not 'range'"):
        configure(overrides={"preprocessing.reward_scale": "range"})


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


def test_a_slip_in_the_name_of_an_environment_is_not_another_setting_of_the_same_folder():
    folders = [default_folder(configure(task="x.npz", env=env), "demo") for env in ("mine:Arm-v0", "mien:Arm-v0")]
    assert str(folders[0]) == "runs/x-mine-Arm-v0-iql-arb_auto-demo-0"
    assert folders[0] != folders[1]


def test_configuring_needs_no_jax_until_an_agent_is_asked_for():
    code = "import sys, arb.lab.config, arb.lab.strategies, arb.lab.agents; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
