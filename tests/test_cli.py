import subprocess
import sys

import pytest

import arb
from arb import cli


@pytest.fixture
def demo_command(monkeypatch):
    """A command table with one entry, whose module is a stand-in that the test fills."""

    class Module:
        main = staticmethod(lambda arguments: 0)

    monkeypatch.setitem(sys.modules, "arb_demo", Module)
    monkeypatch.setattr(cli, "COMMANDS", {"train": cli.Command("arb_demo", "train", "does things")})
    return Module


def test_version_and_help(capsys, demo_command):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == arb.__version__
    assert cli.main(["--help"]) == 0
    assert "does things" in capsys.readouterr().out
    assert cli.main([]) == 2


def test_an_unknown_command_gets_a_suggestion(capsys, demo_command):
    assert cli.main(["trian"]) == 2
    assert capsys.readouterr().err == "arb: there is no command 'trian'; did you mean `arb train`?\n"
    assert cli.main(["xyz"]) == 2
    assert "`arb --help` lists them" in capsys.readouterr().err


def test_arguments_and_status_are_passed_on(demo_command):
    demo_command.main = staticmethod(lambda arguments: len(arguments))
    assert cli.main(["train", "a", "b", "c"]) == 3


def test_a_users_mistake_is_one_line(capsys, demo_command):
    def mistaken(arguments):
        raise arb.DataError("my.hdf5 has no 'rewards'")

    demo_command.main = staticmethod(mistaken)
    assert cli.main(["train"]) == 2
    assert capsys.readouterr().err == "arb train: my.hdf5 has no 'rewards'\n"


def test_a_missing_extra_is_named(capsys, demo_command, monkeypatch):
    monkeypatch.setattr(cli, "COMMANDS", {"train": cli.Command("module_that_is_not_there", "train", "")})
    assert cli.main(["train"]) == 2
    assert "pip install 'arb-rl[train]'" in capsys.readouterr().err


def test_an_extra_that_is_missed_only_while_running_is_named(capsys, demo_command):
    def needs_jax(arguments):
        raise ModuleNotFoundError("No module named 'jax'", name="jax")

    demo_command.main = staticmethod(needs_jax)
    assert cli.main(["train"]) == 2
    assert capsys.readouterr().err == "arb train needs jax: pip install 'arb-rl[train]'\n"


def test_ctrl_c_leaves_cleanly(capsys, demo_command):
    def interrupted(arguments):
        raise KeyboardInterrupt

    demo_command.main = staticmethod(interrupted)
    assert cli.main(["train"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_leaves_early_gets_no_complaint():
    ready = subprocess.Popen(
        [sys.executable, "-m", "arb.cli", "data", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    ready.stdout.close()  # before anything is written
    assert ready.stderr.read() == b""
    ready.stderr.close()
    assert ready.wait() == 141
