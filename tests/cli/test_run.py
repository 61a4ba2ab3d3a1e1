"""`arb run` from the command line: its settings, and the mistakes that get one line."""

import json

import pytest

from arb.cli import main
from arb.lab.config import configure, flat


def test_settings_are_listed_with_type_value_and_meaning(capsys):
    assert main(["run", "--settings", "--agent", "iql", "--strategy", "arb", "schedule.online=77"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["setting", "type", "value", "meaning"]
    rows = {line.split()[0]: line for line in lines}
    options = {"task", "env", "agent", "seed", "replay.strategy"}
    assert rows.keys() == flat(configure(agent="iql", strategy="arb")).keys() - options
    assert rows["schedule.online"].split()[1:3] == ["int", "77"]
    place = head.index("meaning")
    assert all(line.ljust(place)[place - 1] == " " for line in lines)  # aligned
    assert all(line[place:].strip() for name, line in rows.items() if name.startswith(("schedule.", "replay.")))


def test_values_can_be_given_back_as_they_are_listed(capsys):
    assert main(["run", "--settings"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    start, end = head.index("value"), head.index("meaning")
    given = {line.split()[0]: line[start:end].strip() for line in lines}
    assert json.dumps(flat(configure(overrides=given))) == json.dumps(flat(configure()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "ARB"], "there is no strategy 'ARB' (did you mean 'arb'?)"),
        (["--agent", "IQL"], "there is no agent 'IQL' (did you mean 'iql'?)"),
        (["good.hdf5"], "'good.hdf5' is not a setting: did you mean --task good.hdf5?"),
        (["bundled:pendulum-random"], "did you mean --task bundled:pendulum-random?"),
        (["my.csv"], "did you mean --task my.csv?"),
        (["suite:hopper-mixed"], "did you mean --task suite:hopper-mixed?"),
        (["schedule.online"], "'schedule.online' is not a setting: write NAME=VALUE"),
        (["--env", "json:Arm"], "environment 'json:Arm': it has no version: an environment is called NAME-v0"),
        (["--env", "Pendulum"], "environment 'Pendulum': it has no version: an environment is called NAME-v0"),
        (["--env", "no_such_robot:Arm-v0"], "No module named 'no_such_robot'"),
    ],
)
def test_mistakes_get_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
