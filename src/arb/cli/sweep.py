"""Run a grid of runs, on the cores of this machine or on Ray."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arb.cli.options import add_subject, command, setting
from arb.errors import DataError

if TYPE_CHECKING:  # importing JAX takes a second, which --help need not wait for
    from arb.lab.grid import Cell
    from arb.lab.launch import Outcome
    from arb.lab.ray_cluster import RayCluster

EXAMPLES = """
examples:
  arb sweep --strategy naive,arb --seed 0-3                    eight runs; their data is made on first use
  arb sweep --task hopper-random-v2,hopper-medium-v2 --agent iql,calql --strategy naive,arb --seed 0-3 --dry-run
  arb sweep --strategy arb replay.temperature=0.1,0.5,2        any setting can be an axis
  arb sweep replay.clip='(-12,7),(-9,7)'                       a comma inside brackets belongs to the value
  arb sweep --strategy naive,parallel,arb --until-decided      more seeds only where they are needed
  arb sweep --strategy naive,arb --ray 10.0.0.1:6379           the same on a Ray cluster (docs/sweep.md)

Every run has its own folder below --out. The same command again skips what is finished, continues what was interrupted
and retries what failed; a larger grid adds to the smaller one. Runs that differ only in their strategy share one
pre-training. `arb report OUT` makes tables and figures of it.
"""


def main(arguments: list[str]) -> int:
    """Run the command: 0 when all runs are done, 1 when some failed, 2 for a mistake, 130 when stopped on request."""
    options = parser().parse_args(arguments)
    from arb.lab.grid import grid, pieces, seed_range
    from arb.report.paired import LOOKS

    strategies = pieces(options.strategy)
    if options.until_decided and options.baseline not in strategies:
        raise DataError(f"--until-decided compares with {options.baseline}: add it to --strategy")
    cells = grid(
        pieces(options.task),
        pieces(options.agent),
        strategies,
        seed_range(options.seed or (f"0-{LOOKS[-1] - 1}" if options.until_decided else "0")),
        {name: pieces(values) for name, values in map(setting, options.settings)},
        env=options.env,
        preset=options.preset,
    )
    out = options.out or Path("sweeps") / options.preset
    outcome = _until_decided(cells, out, options) if options.until_decided else carry_out(cells, out, options)
    if outcome is None:
        return 0
    print(f"results in {out}; `arb report {out}` shows them")
    return 1 if outcome.failed else 0


def _until_decided(cells: Sequence[Cell], out: Path, options: argparse.Namespace) -> Outcome | None:
    """Run more and more seeds of the cells whose comparison with the baseline is undecided."""
    from arb.lab.jobs import rounds
    from arb.report.baseline import undecided
    from arb.report.paired import LOOKS

    outcome = None
    for chosen in rounds(cells, LOOKS[0], lambda: undecided([out], baseline=options.baseline, margin=options.margin)):
        outcome = carry_out(chosen, out, options)
        if outcome is None or outcome.failed:
            return outcome
    found = undecided([out], baseline=options.baseline, margin=options.margin)
    left = [f"{one.task} {one.agent} {one.strategy}" for one in found if one.strategy != options.baseline]
    if left:
        print(f"undecided with all seeds used: {', '.join(left)}")
    else:
        print(f"every comparison with {options.baseline} is decided")
    return outcome


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = command("sweep", __doc__, EXAMPLES)
    add_subject(options, ("task", "agent", "strategy", "seed"), seed="")  # no seed: 0, or as many as are needed
    options.add_argument("-o", "--out", type=Path, help="folder of the sweep (sweeps/PRESET)")
    options.add_argument(
        "--until-decided",
        action="store_true",
        help="run seeds of --seed (0-11) until every comparison with --baseline is decided (docs/sweep.md)",
    )
    options.add_argument("--baseline", default="naive", metavar="STRATEGY", help="for --until-decided (naive)")
    options.add_argument(
        "--margin", type=float, default=5.0, help="for --until-decided: a difference in score that does not matter (5)"
    )
    add_working(options)
    options.add_argument("settings", nargs="*", metavar="NAME=V1,V2", help="values of any setting")
    return options


def add_working(options: argparse.ArgumentParser) -> None:
    """The options that say how a grid is run: the same for all commands that have one."""
    options.add_argument("--workers", type=int, help="processes on this machine (one per core)")
    options.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on Ray: on the cluster at ADDRESS or $RAY_ADDRESS, or else on one started on this machine",
    )
    options.add_argument(
        "--slice", type=float, default=300.0, metavar="SECONDS", help="on Ray: seconds between checkpoints (300)"
    )
    options.add_argument("--retry", type=int, default=1, metavar="N", help="number of retries of a failed run (1)")
    options.add_argument("-n", "--dry-run", action="store_true", help="show the runs and stop")


def carry_out(cells: Sequence[Cell], out: Path, options: argparse.Namespace) -> Outcome | None:
    """Announce a grid, run it and list what failed; a dry run only announces it."""
    from arb.lab import plan
    from arb.lab.launch import live_view, sweep
    from arb.lab.stopping import Interrupted

    if (options.workers is not None and options.workers < 1) or options.retry < 0:
        raise DataError("--workers must be at least 1, --retry at least 0")
    cells = plan.placed(out, cells)
    left = [cell for cell in cells if not plan.done(out, cell)]
    plan.refuse_hopeless(out, cells)
    crew = (
        _ray_cluster(options.ray, options.slice) if options.ray is not None and not options.dry_run and left else None
    )
    _announce(cells, left, out, options.dry_run)
    if options.dry_run:
        return None
    try:
        with live_view(left, len(cells) - len(left)) as view:
            outcome = sweep(cells, out, workers=options.workers, crew=crew, retry=options.retry, view=view)
    except Interrupted as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(130) from None
    for folder, reason in outcome.failed.items():
        print(f"failed: {folder}: {reason}", file=sys.stderr)
    return outcome


def _ray_cluster(address: str, slice_seconds: float) -> RayCluster:
    if "=" in address:
        raise DataError(f"{address!r} is not an address: put --ray behind the settings, or write --ray ADDRESS")
    if importlib.util.find_spec("ray") is None:
        raise DataError("--ray needs Ray: pip install 'arb-rl[ray]'")
    from arb.lab.ray_cluster import RayCluster

    return RayCluster(address or None, slice_seconds)


def _announce(cells: Sequence[Cell], left: Sequence[Cell], out: Path, one_by_one: bool) -> None:
    from arb.lab.grid import counted
    from arb.lab.jobs import group_of
    from arb.progress import count

    shared = count(len({group_of(cell) for cell in cells}), "pre-training")
    print(f"{count(len(cells), 'run')} ({len(cells) - len(left)} finished), {shared}, in {out}")
    print("\n".join(counted(cells)), flush=True)
    if one_by_one:
        for cell in cells:
            print(f"  {'to do  ' if cell in left else 'done   '} {cell.folder}")
