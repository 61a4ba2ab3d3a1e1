"""The options that say what to run: the same for one run and for many, where a list may be given instead of a value."""

import argparse

from arb.data.tasks import FIRST
from arb.errors import DataError


def command(name: str, text: str | None, examples: str = "") -> argparse.ArgumentParser:
    """A parser without options yet; the text and the examples are printed as they are."""
    kind = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=f"arb {name}", description=text, epilog=examples, formatter_class=kind)


def add_subject(options: argparse.ArgumentParser, lists: tuple[str, ...] = (), **defaults: str) -> None:
    """Add task, agent, strategy, seed, environment and preset.

    Args:
        options: the parser.
        lists: those that may be lists.
        defaults: those that differ from a run's.
    """
    from arb.lab.algorithms import AGENTS, DEFAULT_AGENT
    from arb.lab.config import PRESETS
    from arb.lab.strategies import DEFAULT, STRATEGIES

    subject = {
        "task": (("-t",), FIRST, "task, file or other source of offline data"),
        "agent": (("-a",), DEFAULT_AGENT, f"{', '.join(AGENTS)}, or my_module:MyAgent"),
        "strategy": (("-s",), DEFAULT, "a replay strategy (see below), or my_module:MyStrategy"),
        "seed": ((), "0", "the seed"),
    }
    for name, (letter, usual, text) in subject.items():
        kind = ("a list A-B or A,B,C: " if name == "seed" else "a list A,B,C: ") if name in lists else ""
        default = defaults.get(name, usual)
        options.add_argument(
            *letter,
            f"--{name}",
            default=default,
            type=int if name == "seed" and name not in lists else str,
            help=f"{kind}{text} ({default or usual})",
        )
    options.add_argument(
        "-e", "--env", default="", help="Gymnasium id, or my_module:MyEnv-v0, for data that does not name its own"
    )
    options.add_argument("-p", "--preset", default="demo", help=f"how much training: {', '.join(PRESETS)} (demo)")
    rows = "".join(f"  {name:<11} {row.purpose}\n" for name, row in STRATEGIES.items())
    options.epilog = f"strategies:\n{rows}{options.epilog}"


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE in two parts.

    >>> setting("schedule.online=500")
    ('schedule.online', '500')
    """
    from arb.data.load import is_source

    name, equals, value = text.partition("=")
    if equals:
        return name, value
    hint = f"did you mean --task {text}?" if is_source(text) else "write NAME=VALUE, e.g. schedule.online=50000"
    raise DataError(f"{text!r} is not a setting: {hint}")
