"""`arb completion`: a script for TAB completion of commands, options and their values."""

import argparse

EXAMPLES = """
bash: put this line into ~/.bashrc
  eval "$(arb completion bash)"
zsh: write the script to a folder of $fpath
  arb completion zsh > ~/.zsh/completions/_arb
"""


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=completion)


def completion(options: argparse.Namespace) -> None:
    import shtab

    print(shtab.complete(tree(), options.shell))


def tree() -> argparse.ArgumentParser:
    """All commands in one parser, with words for the options that take names; others may be given as well."""
    from arb.cli import COMMANDS, parser_of
    from arb.data import TASKS, bundled_names
    from arb.lab.agents import AGENTS
    from arb.lab.config import PRESETS
    from arb.lab.strategies import STRATEGIES
    from arb.paper.experiments import DATA, EXPERIMENTS, SEEDS

    words = {
        "task": [*TASKS, *(f"bundled:{name}" for name in bundled_names())],
        "agent": [*AGENTS],
        "strategy": [*STRATEGIES],
        "preset": [*PRESETS],
        "reproduce name": [*EXPERIMENTS],
        "reproduce data": [*DATA],
        "reproduce preset": [*SEEDS],
    }
    root = argparse.ArgumentParser(prog="arb")
    commands = root.add_subparsers()
    for name, known in COMMANDS.items():
        options = parser_of(name)
        for action in options._actions:
            action.choices = words.get(f"{name} {action.dest}", words.get(action.dest, action.choices))
        commands.add_parser(name, help=known.purpose, parents=[options], add_help=False)
    return root
