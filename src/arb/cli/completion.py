"""Print a script for TAB completion of commands, options and their values."""

import argparse
import importlib
import sys

from arb.cli.options import command

EXAMPLES = """
bash: put this line into ~/.bashrc
  eval "$(arb completion bash)"
zsh: write the script to a folder of $fpath
  arb completion zsh > ~/.zsh/completions/_arb
"""


def main(arguments: list[str]) -> int:
    """Print the script."""
    sys.stdout.write(script(parser().parse_args(arguments).shell))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = command("completion", __doc__, EXAMPLES)
    options.add_argument("shell", choices=("bash", "zsh"))
    return options


def script(shell: str) -> str:
    """The script for a shell, from the parsers and tables that the commands themselves use."""
    import shtab

    from arb.cli import COMMANDS

    root = argparse.ArgumentParser(prog="arb")
    commands = root.add_subparsers()
    words = _words()
    for name, known in COMMANDS.items():
        options: argparse.ArgumentParser = importlib.import_module(known.module).parser()
        for action in options._actions:
            action.choices = words.get(f"{name} {action.dest}", words.get(action.dest, action.choices))
        commands.add_parser(name, help=known.purpose, parents=[options], add_help=False)
    return str(shtab.complete(root, shell))


def _words() -> dict[str, list[str]]:
    """The words that complete an option, by its name or by command and name; others may be given as well."""
    from arb.data import TASKS, bundled_names
    from arb.lab.algorithms import AGENTS
    from arb.lab.config import PRESETS
    from arb.lab.strategies import STRATEGIES
    from arb.paper.experiments import DATA, EXPERIMENTS, SEEDS

    return {
        "task": [*TASKS, *(f"bundled:{name}" for name in bundled_names())],
        "agent": list(AGENTS),
        "strategy": list(STRATEGIES),
        "preset": list(PRESETS),
        "reproduce name": list(EXPERIMENTS),
        "reproduce data": list(DATA),
        "reproduce preset": list(SEEDS),
    }
