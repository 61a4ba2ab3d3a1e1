"""Compare replay strategies on one task, from the same pre-trained agents: table, curves and a page."""

import argparse
from pathlib import Path

from arb.cli.options import add_subject, command, setting
from arb.cli.sweep import add_working, carry_out

EXAMPLES = """
examples:
  arb compare                                          six strategies, three seeds, on suite:walker2d-mixed
  arb compare --task hopper-medium-v2 --agent calql --preset small --seed 0-3
  arb compare --strategy naive,arb schedule.online=50000

All strategies of a seed start from the same pre-trained agent. The folder holds all runs; its report/ holds the table,
the learning curves, the online share of the batches, and a page with all of it. The same command again continues.
"""


def main(arguments: list[str]) -> int:
    """Run the command: 0 when all runs are done, 1 when some failed, 2 for a mistake, 130 when stopped on request."""
    options = parser().parse_args(arguments)
    from arb.lab.grid import comparison, grid, pieces, seed_range

    cells = grid(
        [options.task],
        [options.agent],
        pieces(options.strategy),
        seed_range(options.seed),
        env=options.env,
        preset=options.preset,
        overrides=dict(map(setting, options.settings)),
    )
    folder, title = comparison(options.task, options.agent, options.preset)
    out = options.out or folder
    outcome = carry_out(cells, out, options)
    if outcome is None:
        return 0
    from arb.report.page import write_report

    report = write_report([out], out / "report", title=title)
    print(f"\n{report.text}\n\nreport in {out / 'report' / 'index.html'}")
    return 1 if outcome.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    from arb.lab.strategies import COMPARED

    options = command("compare", __doc__, EXAMPLES)
    add_subject(options, ("strategy", "seed"), strategy=",".join(COMPARED), seed="0-2")
    options.add_argument("-o", "--out", type=Path, help="folder of the comparison (compare/TASK-AGENT-PRESET)")
    add_working(options)
    options.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="any setting, the same for all runs")
    return options
