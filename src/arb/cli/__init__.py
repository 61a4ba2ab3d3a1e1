"""The command `arb`: finds the module of a sub-command and hands over; nothing heavy is imported before that."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import NamedTuple


class Command(NamedTuple):
    """A sub-command: the module whose `main(arguments)` runs it, the extra it needs, and what it does."""

    module: str
    extra: str
    purpose: str


COMMANDS: dict[str, Command] = {
    "run": Command("arb.cli.run", "train", "pre-train offline, fine-tune online, end in a picture"),
    "compare": Command("arb.cli.compare", "train", "all replay strategies on one task: table, curves, online share"),
    "sweep": Command("arb.cli.sweep", "train", "a grid of runs, on all cores or on Ray"),
    "reproduce": Command("arb.cli.reproduce", "train", "a table or figure of the paper"),
    "eval": Command("arb.cli.eval", "train", "play a run's policy again: returns, score, success, or a GIF"),
    "data": Command("arb.cli.data", "train", "list, fetch, inspect, audit and collect datasets"),
    "report": Command("arb.cli.report", "report", "tables, statistics, figures and one page from run folders"),
    "doctor": Command("arb.cli.doctor", "train", "check what a run needs, and say what to do"),
    "completion": Command("arb.cli.completion", "train", "print a script for completion at the TAB key"),
}


def usage() -> str:
    """The text of `arb --help`."""
    from arb import __version__

    lines = [f"  {name:<10} {command.purpose}" for name, command in COMMANDS.items()]
    text = [
        f"arb {__version__}: adaptive replay for offline-to-online reinforcement learning",
        "",
        "usage: arb COMMAND",
    ]
    if lines:
        text += ["", *lines, "", "`arb COMMAND --help` says more."]
    return "\n".join(text)


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command and return its exit status."""
    from arb import DataError, __version__

    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name in ("-V", "--version"):
        print(__version__)
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `arb {near[0]}`?" if near else "`arb --help` lists them."
        print(f"arb: there is no command {name!r}; {hint}", file=sys.stderr)
        return 2
    command = COMMANDS[name]
    sys.path.append(str(Path.cwd()))  # where `--env my_module:MyEnv-v0` would be looked for by `python -m`
    try:
        status = int(importlib.import_module(command.module).main(rest))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141  # as if the signal of a closed pipe had ended it
    except ModuleNotFoundError as missing:  # at the import, or at one that the command makes when it needs it
        if (missing.name or "").startswith("arb"):
            raise
        print(f"arb {name} needs {missing.name}: pip install 'arb-rl[{command.extra}]'", file=sys.stderr)
        return 2
    except DataError as mistake:
        print(f"arb {name}: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"arb {name}: interrupted", file=sys.stderr)
        return 130
