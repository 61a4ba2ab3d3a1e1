"""`arb completion bash`: a script that completes commands, options and their values at the TAB key."""

from __future__ import annotations

import argparse
import sys

TEMPLATE = """# put `eval "$(arb completion bash)"` into ~/.bashrc; zsh: first `autoload bashcompinit && bashcompinit`
_arb() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    local words=""
    if [ "$COMP_CWORD" = 1 ]; then
        words="{commands}"
    else
        case "$command:$before" in
{values}
{options}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ ${{#COMPREPLY[@]}} = 0 ]; then COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _arb arb
"""


def main(arguments: list[str]) -> int:
    """Print the script."""
    options = argparse.ArgumentParser(prog="arb completion", description=__doc__)
    options.add_argument("shell", choices=("bash", "zsh"))
    options.parse_args(arguments)
    sys.stdout.write(script())
    return 0


def script() -> str:
    """The script, from the tables that the commands themselves use."""
    from arb.algorithms import AGENTS
    from arb.cli import COMMANDS
    from arb.data import TASKS, bundled_names
    from arb.paper.experiments import DATA, EXPERIMENTS, SEEDS
    from arb.runs.config import PRESETS
    from arb.strategies import STRATEGIES

    values = {
        ("-t", "--task"): [*TASKS, *(f"bundled:{name}" for name in bundled_names())],
        ("-a", "--agent"): list(AGENTS),
        ("-s", "--strategy"): list(STRATEGIES),
        ("-p", "--preset"): list(PRESETS),
    }
    cases = {
        "reproduce:reproduce": list(EXPERIMENTS),
        "reproduce:--data": list(DATA),
        "reproduce:-p|reproduce:--preset": list(SEEDS),
    }
    parsers = _parsers()
    for flags, words in values.items():
        cases["|".join(f"{command}:{flag}" for command in parsers for flag in flags)] = words
    options = {f"{command}:*": _flags(parser) for command, parser in parsers.items()}
    return TEMPLATE.format(commands=" ".join(COMMANDS), values=_lines(cases), options=_lines(options))


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """Of the commands whose options are completed."""
    from arb.cli import compare, reproduce, run, sweep

    return {
        "run": run.parser(),
        "compare": compare.parser(),
        "sweep": sweep.parser(),
        "reproduce": reproduce.parser(),
    }


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _lines(cases: dict[str, list[str]]) -> str:
    return "\n".join(f'            {pattern}) words="{" ".join(words)}" ;;' for pattern, words in cases.items())
