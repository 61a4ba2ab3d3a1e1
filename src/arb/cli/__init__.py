"""The command `arb`: finds the module of a sub-command and hands over; nothing heavy is imported before that.

What every command shares is here: mistakes and trouble with the machine are one line on standard error.
"""

import errno
import importlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

from arb.errors import DataError, near


class Command(NamedTuple):
    """A sub-command: the module whose `main(arguments)` runs it, the extra it needs, and what it does."""

    module: str
    extra: str
    purpose: str


COMMANDS: dict[str, Command] = {
    "run": Command("arb.cli.run", "train", "pre-train offline, fine-tune online"),
    "compare": Command("arb.cli.compare", "train", "replay strategies on one task: table, curves, page"),
    "sweep": Command("arb.cli.sweep", "train", "a grid of runs, on all cores or on Ray"),
    "reproduce": Command("arb.cli.reproduce", "train", "a table or figure of the paper"),
    "eval": Command("arb.cli.eval", "train", "evaluate a run's policy: returns, score, success, or a GIF"),
    "data": Command("arb.cli.data", "train", "list, fetch, inspect, audit and collect datasets"),
    "report": Command("arb.cli.report", "report", "tables, statistics, figures and one page from run folders"),
    "doctor": Command("arb.cli.doctor", "train", "check this machine and say what to install or change"),
    "completion": Command("arb.cli.completion", "train", "print a script for TAB completion in bash or zsh"),
}
_HINTS = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EROFS: "choose a folder that is writable",
    errno.EACCES: "choose a folder that you may use",
}


def usage() -> str:
    """The text of `arb --help`."""
    from arb import __version__

    lines = [f"  {name:<10} {command.purpose}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"arb {__version__}: adaptive replay for offline-to-online reinforcement learning",
            "",
            "usage: arb COMMAND",
            "",
            *lines,
            "",
            "Run `arb COMMAND --help` for details.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command and return its exit status."""
    from arb import __version__

    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may hold what a terminal cannot show
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name in ("-V", "--version"):
        print(__version__)
        return 0
    if name not in COMMANDS:
        hint = near(name, COMMANDS) or "; `arb --help` lists the commands"
        print(f"arb: there is no command {name!r}{hint}", file=sys.stderr)
        return 2
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    """Run a command; every mistake and all trouble that can be expected ends in one line."""
    command = COMMANDS[name]
    try:
        sys.path.append(_current_folder())  # where `python -m` would look for `--env my_module:MyEnv-v0`
        status = int(importlib.import_module(command.module).main(arguments))
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse has said what is wrong, or has printed the help
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141  # as if the signal of a closed pipe had ended it
    except ModuleNotFoundError as missing:  # at the import, or at one that the command makes when it needs it
        if (missing.name or "").startswith("arb"):
            raise
        return _said(name, f"needs the package {missing.name}: pip install 'arb-rl[{command.extra}]'", 2)
    except DataError as mistake:
        return _said(name, str(mistake), 2)
    except OSError as problem:
        return _said(name, trouble(problem), 1)
    except MemoryError:
        return _said(name, "not enough memory: close other programs, or use a smaller dataset", 1)
    except KeyboardInterrupt:
        return _said(name, "interrupted", 130)


def _said(name: str, line: str, status: int) -> int:
    print(f"arb {name}: {line}", file=sys.stderr)
    return status


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise DataError("the current folder has been deleted: change to another one") from None


def trouble(problem: OSError) -> str:
    """What the machine refused, in one line: where, what, and what to do.

    >>> trouble(OSError(errno.ENOSPC, "No space left on device", "runs/a/eval.csv"))
    'runs/a/eval.csv: No space left on device; free some space, then run the same command again'
    """
    said = " ".join((problem.strerror or str(problem)).split())
    place = f"{problem.filename}: " if problem.filename else ""
    hint = _HINTS.get(problem.errno or 0, "")
    return f"{place}{said}" + (f"; {hint}" if hint else "")
