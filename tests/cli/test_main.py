"""What all commands share: help without waiting, one line for every mistake, and nothing that a terminal obeys."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import arb
from arb import cli


@pytest.fixture
def demo_command(monkeypatch):
    """A command table with one entry, whose module is a stand-in that the test fills."""

    class Module:
        main = staticmethod(lambda arguments: 0)

        @staticmethod
        def add_train(parser):
            parser.add_argument("words", nargs="*")
            parser.set_defaults(run=lambda options: Module.main(options.words))

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
    assert capsys.readouterr().err == "arb: there is no command 'trian' (did you mean 'train'?)\n"
    assert cli.main(["xyz"]) == 2
    assert "`arb --help` lists the commands" in capsys.readouterr().err


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
    assert capsys.readouterr().err == "arb train: needs the package jax: pip install 'arb-rl[train]'\n"


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


HELP = """
import sys
from arb.cli import main
status = main([sys.argv[1], "--help"])
loaded = {name.partition(".")[0] for name in sys.modules}
heavy = loaded & {"jax", "gymnasium", "mujoco", "matplotlib", "ray", "torch", "h5py"}
print(status, sorted(heavy))
"""


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_needs_no_library_of_a_run(command):
    done = subprocess.run([sys.executable, "-c", HELP, command], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert done.stdout.startswith(f"usage: arb {command}")


def test_a_command_that_argparse_refuses_is_a_status(capsys):
    assert cli.main(["eval"]) == 2
    assert "the following arguments are required: RUN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device; free some space"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "a/b: Read-only file system; choose a folder"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied; choose a folder that you may"),
        (OSError("Unable to write\n  (file write failed)"), "Unable to write (file write failed)"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_trouble_with_the_machine_is_one_line(capsys, demo_command, problem, line):
    def fails(arguments):
        raise problem

    demo_command.main = staticmethod(fails)
    assert cli.main(["train"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"arb train: {line}")
    assert said.count("\n") == 1


KEEP = """
import os
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
from arb.cli import COMPILED, keep_compiled
keep_compiled()
import jax
jax.jit(lambda x: x * 2 + 1)(1.0)
print(jax.config.jax_compilation_cache_dir, jax.config.jax_compilation_cache_max_size == COMPILED)
"""


def kept(cache: Path) -> str:
    env = os.environ | {"ARB_CACHE": str(cache)}
    env.pop("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", None)
    done = subprocess.run([sys.executable, "-c", KEEP], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_was_compiled_is_kept_in_the_cache_folder_up_to_a_bound(tmp_path):
    assert kept(tmp_path) == f"{tmp_path / 'compiled'} True"
    assert list((tmp_path / "compiled").glob("*-cache"))


def test_without_a_cache_folder_every_command_compiles_for_itself(tmp_path):
    (tmp_path / "file").touch()
    assert kept(tmp_path / "file") == "None False"
