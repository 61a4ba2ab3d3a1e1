"""Grids, their names, and what is refused before anything starts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb import DataError
from arb.cli import main
from arb.lab.config import configure, flat, from_flat
from arb.lab.sweep import grid, plan, seed_range, split_list

TASK = "hopper-medium-v2"


def test_a_grid_is_a_product_in_order():
    cells = grid(["a.npz", "b.npz"], ["iql", "calql"], ["naive", "arb"], [0, 5])
    assert len(cells) == 16
    assert [cell.config.seed for cell in cells[:2]] == [0, 5]
    assert {(c.config.task, c.config.agent, c.config.replay.strategy) for c in cells} == set(
        itertools.product(["a.npz", "b.npz"], ["iql", "calql"], ["naive", "arb"])
    )


def test_a_key_varies_only_where_the_strategy_reads_it():
    axes = {"replay.temperature": ["0.1", "2"], "schedule.online": ["500", "600"]}
    folders = [cell.folder for cell in grid([TASK], ["iql"], ["naive", "arb"], axes=axes)]
    assert folders == [
        f"{TASK}/iql/naive-schedule.online=500/seed-0",
        f"{TASK}/iql/naive-schedule.online=600/seed-0",
        f"{TASK}/iql/arb-replay.temperature=0.1-schedule.online=500/seed-0",
        f"{TASK}/iql/arb-replay.temperature=0.1-schedule.online=600/seed-0",
        f"{TASK}/iql/arb-replay.temperature=2.0-schedule.online=500/seed-0",
        f"{TASK}/iql/arb-replay.temperature=2.0-schedule.online=600/seed-0",
    ]


def test_a_setting_that_makes_a_strategy_what_it_is_does_not_vary():
    cells = grid([TASK], strategies=["arb", "arb_auto"], axes={"replay.temperature": [1, 2]})
    assert [cell.config.replay.temperature for cell in cells] == [1.0, 2.0, "auto"]
    chosen = grid([TASK], strategies=["arb", "arb_auto"], overrides={"replay.temperature": 2})
    assert [cell.config.replay.temperature for cell in chosen] == [2.0, "auto"]
    with pytest.raises(DataError, match=r"replay\.temperature is read only by arb, .*: add --strategy arb"):
        grid([TASK], strategies=["arb_auto"], overrides={"replay.temperature": 2})


OWN = """
import arb


class Mine(arb.Uniform):
    def __init__(self, knob: float = 1.0):
        self.knob = knob
"""


def test_settings_of_ones_own_strategy_and_agent_are_for_those_that_have_them(tmp_path, monkeypatch):
    (tmp_path / "mine_of_grid.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    strategies = ["naive", "arb", "mine_of_grid:Mine"]
    axes = {"replay.knob": ["1", "2"], "settings.expectile": ["0.7", "0.9"]}
    cells = grid([TASK], ["iql", "calql"], strategies, axes=axes)
    folders = [cell.folder for cell in cells]
    assert f"{TASK}/iql/naive/seed-0" in folders
    assert f"{TASK}/iql/mine_of_grid-Mine-replay.knob=2.0-settings.expectile=0.9/seed-0" in folders
    assert [cell.folder for cell in cells if "calql" in cell.folder] == [
        f"{TASK}/calql/{name}/seed-0"
        for name in ("naive", "arb", "mine_of_grid-Mine", "mine_of_grid-Mine-replay.knob=2.0")
    ]
    chosen = grid([TASK], strategies=strategies, overrides={"replay.knob": 3, "replay.temperature": 2})
    assert [getattr(cell.config.replay, "knob", None) for cell in chosen] == [None, None, 3.0]
    assert [getattr(cell.config.replay, "temperature", None) for cell in chosen] == [None, 2.0, None]
    for wrong in ({"axes": {"replay.knobb": [1]}}, {"overrides": {"replay.knobb": 1}}):
        with pytest.raises(DataError, match=r"there is no setting 'replay\.knobb'"):
            grid([TASK], strategies=strategies, **wrong)


def test_a_name_has_what_differs_from_the_preset():
    axes = {"schedule.online": ["5000", "500"], "replay.temperature": ["0.2", "2"]}
    cells = grid([TASK], strategies=["naive", "arb"], axes=axes, overrides={"schedule.pretrain": 40})
    assert [cell.folder.split("/")[2] for cell in cells] == [
        "naive",
        "naive-schedule.online=500",
        "arb",
        "arb-schedule.online=500",
        "arb-replay.temperature=2.0",
        "arb-replay.temperature=2.0-schedule.online=500",
    ]
    assert {cell.config.schedule.pretrain for cell in cells} == {40}


def test_values_that_are_equal_are_one_run():
    (cell,) = grid([TASK, TASK], strategies=["arb"], axes={"replay.temperature": ["2", "2.0", "2.00"]})
    assert cell.folder == f"{TASK}/iql/arb-replay.temperature=2.0/seed-0"


def test_tuples_are_values_of_a_list():
    cells = grid([TASK], strategies=["arb"], axes={"replay.clip": split_list("(-12,7),(-9,7)")})
    assert [cell.config.replay.clip for cell in cells] == [(-12, 7), (-9, 7)]
    assert cells[1].folder == f"{TASK}/iql/arb-replay.clip=(-9,7)/seed-0"


def test_the_paper_s_settings_of_the_family_are_taken():
    maze, made, hopper = grid(["antmaze-umaze-v2", "suite:antmaze-umaze-play:2000", TASK])
    assert maze.config.settings == made.config.settings
    assert maze.config.settings.expectile == 0.9
    assert hopper.config.settings.expectile == 0.7
    assert made.folder.startswith("suite-antmaze-umaze-play-2000")


NAMES = st.text("ab/:.-_ ()é", min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True))
def test_different_tasks_never_share_a_folder(tasks):
    cells = grid([task + ".npz" for task in tasks])
    assert len({cell.folder for cell in cells}) == len(tasks)
    for cell in cells:
        parts = cell.folder.split("/")
        assert len(parts) == 4
        assert all(part and part[0] != "." for part in parts)


@given(st.dictionaries(st.sampled_from(["hidden_dims", "expectile", "beta"]), st.none(), max_size=3), st.data())
def test_a_configuration_comes_back_from_its_axes(names, data):
    values = {"hidden_dims": (8, 4), "expectile": 0.3, "beta": data.draw(st.floats(0.1, 9.0))}
    config = configure(strategy="arb", overrides={f"settings.{name}": values[name] for name in names}, preset="paper")
    assert from_flat(flat(config)) == config


def test_long_names_end_in_a_hash_and_stay_apart():
    axes = {
        f"schedule.{name}": ["100", "101"] for name in ("pretrain", "online", "collect", "updates", "refresh", "batch")
    }
    cells = grid([TASK], axes=axes | {"evaluation.every": ["1", "2"], "evaluation.episodes": ["7"]})
    assert len({cell.folder for cell in cells}) == 2**7
    assert all(len(cell.folder) < 120 for cell in cells)


def test_lists_and_ranges_of_the_command_line():
    assert split_list("a, b") == ["a", "b"]
    assert split_list("[1,2],(3,),4") == ["[1,2]", "(3,)", "4"]
    assert seed_range("3") == [3]
    assert seed_range("0-2,1,7") == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "iqll"], "there is no agent 'iqll' (did you mean 'iql'?)"),
        (["--strategy", "naive,abr"], "there is no strategy 'abr' (did you mean 'arb'?)"),
        (["--strategy", "ARB"], "there is no strategy 'ARB' (did you mean 'arb'?)"),
        (["good.hdf5"], "'good.hdf5' is not a setting: did you mean --task good.hdf5?"),
        (["hopper-medium-v2"], "did you mean --task hopper-medium-v2?"),
        (["--preset", "smok"], "there is no preset 'smok' (did you mean 'smoke'?)"),
        (["--task", "hopper-medum-v2"], "did you mean 'hopper-medium-v2"),
        (["--task", "nowhere.hdf5"], "nowhere.hdf5: no such file"),
        (["--seed", "3-1"], "'3-1' is not a seed"),
        (["--seed", "x"], "'x' is not a seed"),
        (["replay.temprature=1,2"], "no setting 'replay.temprature' (did you mean 'temperature'?)"),
        (["replay.clip=-12,7"], "replay.clip must be float values, 2 of them with a comma between, not -12"),
        (["replay.clip=(-12,7"], "is not a list"),
        (
            ["--strategy", "naive", "replay.temperature=1,2"],
            "replay.temperature is read only by arb, which is not among the",
        ),
        (["seed=1,2"], "seed has an option of its own: --seed"),
        (["replay.temperature"], "is not a setting: write NAME=VALUE"),
        (["--preset", "smoke", "--ray", "replay.temperature=1,2"], "put --ray behind the settings"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["-n", "--env", "Pendulm-v1"], "Did you mean: `Pendulum`?"),
        (["-n", "--task", "walker2d-medium-v2", "--env", "Pendulm-v1"], "Did you mean: `Pendulum`?"),
        (
            ["-n", "-t", "bundled:hopper-tiny", "--agent", "calql", "--env", "CartPole-v1"],
            "CartPole-v1 has discrete actions",
        ),
        (
            ["-n", "-s", "arb", "replay.temperature=0.5,-1"],
            "replay.temperature must be greater than 0, or auto, not -1.0",
        ),
        (["-n", "-s", "top_n", "replay.keep=0"], "replay.keep must be at least 1, not 0"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_one_run_is_announced_without_plurals(capsys, tmp_path):
    assert main(["sweep", "-n", "--preset", "smoke", "--workers", "1", "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("1 run (0 finished), 1 pre-training")


def test_what_would_make_every_run_fail_is_refused_before_anything_starts(tmp_path):
    plan(grid(["hopper-medium-v2"]), tmp_path)  # its file may be on another machine
    with pytest.raises(DataError, match="did you mean"):
        plan(grid(["suite:hoper-medium"]), tmp_path)
    for task in ("bundled:pendulum-random", "hopper-medium-v2"):
        with pytest.raises(DataError, match="cannot be made: No module named 'nowhere_to_import'"):
            plan(grid([task], env="nowhere_to_import:Mine-v0"), tmp_path)
    assert list(tmp_path.iterdir()) == []
