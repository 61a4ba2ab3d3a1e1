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
    elif [ "$command" = run ]; then
        case "$before" in
{values}
            *) words="{options}" ;;
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
    from arb.cli import COMMANDS
    from arb.config import BUDGETS
    from arb.data import TASKS, bundled_names
    from arb.presets import PRESETS
    from arb.run_cli import parser
    from arb.strategies import STRATEGIES

    values = {
        "-t|--task": [*TASKS, *(f"bundled:{name}" for name in bundled_names())],
        "-a|--agent": sorted({agent for agent, _ in PRESETS}),
        "-s|--strategy": list(STRATEGIES),
        "-p|--preset": list(BUDGETS),
    }
    options = [name for action in parser()._actions for name in action.option_strings]
    cases = "\n".join(f'            {names}) words="{" ".join(words)}" ;;' for names, words in values.items())
    return TEMPLATE.format(commands=" ".join(COMMANDS), values=cases, options=" ".join(options))
