"""Which seeds are run next where a comparison is undecided."""

import json

import pytest

from arb.cli import main
from arb.lab.config import flat
from arb.lab.grid import grid
from arb.lab.jobs import rounds
from arb.report.baseline import Undecided
from arb.report.paired import LOOKS

TASK = "hopper-medium-v2"


def cells_of(seeds=8, strategies=("naive", "parallel", "arb")):
    return grid([TASK], strategies=strategies, seeds=range(seeds), preset="smoke")


def undecided(cells, strategy, wanted):
    config = next(flat(cell.config) for cell in cells if cell.config.replay.strategy == strategy)
    config = json.loads(json.dumps({leaf: value for leaf, value in config.items() if leaf != "seed"}))  # as in a file
    return Undecided(TASK, "iql", strategy, "", config, 3, wanted)


def counted(cells):
    found = {}
    for cell in cells:
        found.setdefault(cell.config.replay.strategy, []).append(cell.config.seed)
    return found


def test_only_what_is_undecided_gets_more_seeds():
    cells, said = cells_of(), [["naive", "arb"], []]
    ask = lambda: [undecided(cells, name, 5) for name in said.pop(0)]  # noqa: E731
    first, second = rounds(cells, 3, ask)
    assert counted(first) == {"naive": [0, 1, 2], "parallel": [0, 1, 2], "arb": [0, 1, 2]}
    assert counted(second) == {"naive": [0, 1, 2, 3, 4], "parallel": [0, 1, 2], "arb": [0, 1, 2, 3, 4]}
    assert said == []


def test_rounds_end_when_the_seeds_are_used_up():
    cells = cells_of(seeds=4)
    found = [counted(chosen)["arb"] for chosen in rounds(cells, 3, lambda: [undecided(cells, "arb", 8)])]
    assert found == [[0, 1, 2], [0, 1, 2, 3]]


def test_seeds_are_used_in_the_order_in_which_they_are_given():
    cells = grid([TASK], strategies=["arb"], seeds=[7, 2, 9], preset="smoke")
    found = rounds(cells, 1, lambda: [undecided(cells, "arb", 2)])
    assert [[cell.config.seed for cell in chosen] for chosen in found] == [[7], [7, 2]]


def test_runs_of_another_configuration_in_the_folder_do_not_count():
    cells = cells_of(strategies=("arb",))
    other = undecided(cells, "arb", 8)
    other.config["schedule.online"] = 7
    (only,) = rounds(cells, 3, lambda: [other])
    assert counted(only) == {"arb": [0, 1, 2]}


def test_the_command_starts_with_the_first_look_and_needs_a_baseline(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--strategy", "naive,arb", "--until-decided", "-n", "-p", "smoke"]) == 0
    said = capsys.readouterr().out
    assert said.count("to do") == 2 * LOOKS[0]
    assert main(["sweep", "--strategy", "arb", "--until-decided", "-n"]) == 2
    assert "--until-decided compares with naive: add it to --strategy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_sweep_goes_on_until_it_is_decided_or_out_of_seeds(tmp_path, monkeypatch, capsys):
    from tests.lab import tiny

    monkeypatch.chdir(tmp_path)
    tiny.write_data(tmp_path / "data.npz")
    settings = [f"{name}={value}" for name, value in (tiny.SMALL | tiny.NETWORKS["iql"]).items() if "keep" not in name]
    command = ["sweep", "-t", "data.npz", "-e", "Pendulum-v1", "-s", "naive,arb", "--seed", "0-3", "-o", "out"]
    assert main([*command, "--until-decided", *settings]) == 0
    said = capsys.readouterr().out
    runs = sorted(path.parent.name for path in (tmp_path / "out").rglob("DONE"))
    if len(runs) == 8:
        assert "undecided with all seeds used: " in said
    else:
        assert len(runs) == 6
        assert "every comparison with naive is decided" in said
