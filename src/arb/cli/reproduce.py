"""Reproduce a table or figure of the paper from its grid of runs."""

import argparse
from pathlib import Path

from arb.cli.options import command
from arb.cli.sweep import add_working, carry_out

EXAMPLES = """
examples:
  arb reproduce main --preset smoke           a quick trial, on small sets made on this machine
  arb reproduce clip --preset paper           the paper's own grid (fetch antmaze-large-diverse-v2 first)
  arb reproduce iql --preset small --data suite   the same on the suite, without a download
  arb reproduce iql --preset paper --dry-run  which runs it takes
  arb reproduce main --preset paper --ray 10.0.0.1:6379

presets: `paper` is the paper's schedule with four seeds; `small` is 30,000 updates and 20,000 steps with two seeds;
`smoke` is a hundred of both with one seed, and for the tables one task per group.

`--data suite`, the default of `smoke`, trains on the sets of this project's suite that resemble D4RL's:
suite:hopper-mixed for hopper-medium-replay-v2, and so on (2,000 rows each with `smoke`). They are made on first use and
keep their own names: their scores are not comparable with published ones. With `--data d4rl` a task without its file
fails, and the table says so: `arb data fetch TASK` downloads it.
"""


def main(arguments: list[str]) -> int:
    """Run the command: 0 when all runs are done, 1 when some failed, 2 for a mistake, 130 when stopped on request."""
    options = parser().parse_args(arguments)
    from arb.paper.experiments import EXPERIMENTS, cells_of

    data = options.data or ("suite" if options.preset == "smoke" else "d4rl")
    cells = cells_of(options.name, options.preset, data)
    out = options.out or Path("reproduce") / f"{options.name}-{options.preset}"
    outcome = carry_out(cells, out, options)
    if outcome is None:
        return 0
    from arb.paper.reproduction import render

    print()
    print(render(options.name, [out], out / "report"))
    tasks = {cell.config.task for cell in cells}
    if len(tasks) < len(EXPERIMENTS[options.name].tasks):
        print(f"\nOnly {len(tasks)} of the paper's {len(EXPERIMENTS[options.name].tasks)} tasks, one for each group.")
    if data == "suite":
        print("\nThe data came from the suite, made on this machine: these are not scores on D4RL's tasks.")
    print(f"\nfiles in {out / 'report'}")
    return 1 if outcome.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    from arb.paper.experiments import DATA, EXPERIMENTS, SEEDS

    names = "".join(f"  {name:<14} {experiment.shows}\n" for name, experiment in EXPERIMENTS.items())
    options = command("reproduce", f"{__doc__}\n\n{names}", EXAMPLES)
    options.add_argument("name", help="one of the above", metavar="NAME")
    options.add_argument("-p", "--preset", default="smoke", help=f"how much training: {', '.join(SEEDS)}")
    options.add_argument("--data", help=f"{' or '.join(DATA)} (suite for smoke, else d4rl)")
    options.add_argument("-o", "--out", type=Path, help="folder of the runs (reproduce/NAME-PRESET)")
    add_working(options)
    return options
