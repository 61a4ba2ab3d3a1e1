"""The command `arb`: finds the module of a sub-command and hands over; nothing heavy is imported before that.

Every mistake of the user, and all trouble with the machine that can be expected, is one line on standard error. A
mistake ends with status 2, trouble with 1, a request to stop with 130.
"""

import argparse
import errno
import importlib
import io
import os
import sys
from contextlib import suppress
from typing import NamedTuple

from arb.errors import DataError, EnvironmentFailure, Interrupted, suggest


class Command(NamedTuple):
    """A sub-command: the module whose `add_NAME(parser)` describes it, the extra it needs, and what it does."""

    module: str
    extra: str
    purpose: str


COMMANDS: dict[str, Command] = {
    "run": Command("arb.cli.run", "train", "pre-train an agent on offline data, then fine-tune it online"),
    "compare": Command("arb.cli.sweep", "train", "compare replay strategies on one task: table, curves, page"),
    "sweep": Command("arb.cli.sweep", "train", "run a grid of runs, on the cores of this machine or on Ray"),
    "reproduce": Command("arb.cli.sweep", "train", "reproduce a table or figure of the paper from its grid of runs"),
    "eval": Command("arb.cli.eval", "train", "evaluate a run's policy: returns, score, success, or a video (GIF)"),
    "data": Command("arb.cli.data", "train", "list, fetch, inspect, audit and collect datasets"),
    "report": Command("arb.cli.report", "report", "make tables, statistics, plots and one page from run folders"),
    "watch": Command("arb.cli.report", "report", "a page that follows runs while they go on"),
    "doctor": Command("arb.cli.doctor", "train", "check everything a run needs and say what to install or change"),
    "completion": Command("arb.cli.completion", "train", "print a script for TAB completion in your shell"),
}
COMPILED = 1 << 28
"""Bytes of compiled code that are kept in the cache folder."""
_HINTS = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EROFS: "choose a folder that is writable",
    errno.EACCES: "choose a folder that you may use",
}


def main(arguments: list[str] | None = None) -> int:
    from arb import __version__

    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may hold what a terminal cannot show
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(f"arb {__version__}: adaptive replay for offline-to-online reinforcement learning")
        print("\nusage: arb COMMAND\n")
        print("\n".join(f"  {name:<10} {command.purpose}" for name, command in COMMANDS.items()))
        print("\nRun `arb COMMAND --help` for details.")
        return 0 if arguments else 2
    name, *rest = arguments
    if name in ("-V", "--version"):
        print(__version__)
        return 0
    if name in COMMANDS:
        return _run(name, rest)
    hint = suggest(name, COMMANDS) or "; `arb --help` lists the commands"
    print(f"arb: there is no command {name!r}{hint}", file=sys.stderr)
    return 2


def parser_of(name: str) -> argparse.ArgumentParser:
    """The options of a command; `run` among them is the function that carries it out."""
    module, _, purpose = COMMANDS[name]
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"arb {name}", description=purpose, formatter_class=style)
    getattr(importlib.import_module(module), f"add_{name}")(parser)
    return parser


def _run(name: str, arguments: list[str]) -> int:
    try:
        if COMMANDS[name].extra == "train":
            keep_compiled()
        sys.path.append("")  # where `python -m` would look for `--env my_module:MyEnv-v0`
        parser = parser_of(name)
        parse = parser.parse_args if name == "data" else parser.parse_intermixed_args  # which knows no sub-commands
        options = parse(arguments)
        options.arguments = arguments
        status = int(options.run(options) or 0)
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
        return _said(name, f"needs the package {missing.name}: pip install 'arb-rl[{COMMANDS[name].extra}]'", 2)
    except (DataError, EnvironmentFailure) as problem:
        return _said(name, str(problem), 2 if isinstance(problem, DataError) else 1)
    except OSError as problem:
        return _said(name, trouble(problem), 1)
    except MemoryError:
        return _said(name, "not enough memory: close other programs, or use a smaller dataset", 1)
    except (KeyboardInterrupt, Interrupted) as stopped:
        return _said(name, str(stopped) or "interrupted", 130)


def keep_compiled() -> None:
    """Let JAX find what an earlier command compiled; its own environment variables overrule this."""
    from arb.data.fetch import cache_directory

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = cache_directory() / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):  # if not, every command compiles for itself
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(COMPILED))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _said(name: str, line: str, status: int) -> int:
    print(f"arb {name}: {line}", file=sys.stderr)
    return status


def trouble(problem: OSError) -> str:
    """What the machine refused, in one line: where, what, and what to do.

    >>> trouble(OSError(errno.ENOSPC, "No space left on device", "runs/a/eval.csv"))
    'runs/a/eval.csv: No space left on device; free some space, then run the same command again'
    """
    said, hint = " ".join((problem.strerror or str(problem)).split()), _HINTS.get(problem.errno or 0)
    return (f"{problem.filename}: " if problem.filename else "") + said + (f"; {hint}" if hint else "")
