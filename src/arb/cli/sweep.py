"""`arb sweep`: a grid of runs, on the cores of this machine or on Ray."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arb.cli.options import add_subject, setting
from arb.errors import DataError

if TYPE_CHECKING:  # importing JAX takes a second, which --help need not wait for
    from arb.sweeps.cluster import Cluster
    from arb.sweeps.grid import Cell
    from arb.sweeps.launch import Outcome

EXAMPLES = """
examples:
  arb sweep --strategy naive,arb --seed 0-3                    eight runs on data that comes with the package
  arb sweep --task hopper-random-v2,hopper-medium-v2 --agent iql,calql --strategy naive,arb --seed 0-3 --dry-run
  arb sweep replay.temperature=0.1,0.5,2                       any setting can be an axis
  arb sweep replay.clip='(-12,7),(-9,7)'                       a comma inside brackets belongs to the value
  arb sweep --strategy naive,arb --ray 10.0.0.1:6379           the same on a Ray cluster

Every run has a folder of its own below --out. The same command again skips what is finished, goes on with what was
interrupted and retries what failed; a larger grid adds to the smaller one. Pre-trainings are done once and shared.
`arb report OUT` makes tables and figures of it.
"""


def main(arguments: list[str]) -> int:
    """Run the command: 0 when all runs are done, 1 when some failed, 2 for a mistake, 130 when stopped on request."""
    options = parser().parse_args(arguments)
    from arb.sweeps.grid import grid, pieces, seed_range

    cells = grid(
        pieces(options.task),
        pieces(options.agent),
        pieces(options.strategy),
        seed_range(options.seed),
        {name: pieces(values) for name, values in map(setting, options.settings)},
        env=options.env,
        budget=options.preset,
    )
    out = options.out or Path("sweeps") / options.preset
    outcome = carry_out(cells, out, options)
    if outcome is None:
        return 0
    print(f"results in {out}; `arb report {out}` shows them")
    return 1 if outcome.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="arb sweep", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_subject(options, ("task", "agent", "strategy", "seed"))
    options.add_argument("-o", "--out", type=Path, help="folder of the sweep (sweeps/PRESET)")
    add_working(options)
    options.add_argument("settings", nargs="*", metavar="NAME=V1,V2", help="values of any setting")
    return options


def add_working(options: argparse.ArgumentParser) -> None:
    """The options that say how a grid is worked off: the same for all commands that have one."""
    options.add_argument("--workers", type=int, help="processes on this machine (one per core)")
    options.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="work on Ray: on the cluster at ADDRESS, or of $RAY_ADDRESS, or one started on this machine",
    )
    options.add_argument(
        "--slice", type=float, default=300.0, metavar="SECONDS", help="on Ray: work between two saved states (300)"
    )
    options.add_argument("--retry", type=int, default=1, help="how often a failed run is tried again (1)")
    options.add_argument("-n", "--dry-run", action="store_true", help="show the runs and their cost, and stop")


def carry_out(cells: Sequence[Cell], out: Path, options: argparse.Namespace) -> Outcome | None:
    """Announce a grid, work it off and list what failed; nothing but the announcement for a dry run."""
    from arb.runs.stopping import Interrupted
    from arb.sweeps import plan
    from arb.sweeps.launch import sweep
    from arb.sweeps.pool import cores
    from arb.sweeps.progress import live_view
    from arb.sweeps.refusals import refuse_hopeless, refuse_unknown

    if (options.workers is not None and options.workers < 1) or options.retry < 0:
        raise DataError("--workers must be at least 1, --retry at least 0")
    for task in dict.fromkeys(cell.config.task for cell in cells):
        refuse_unknown(task)
    plan.check(out, cells)
    left = [cell for cell in cells if not plan.done(out, cell)]
    refuse_hopeless(left)
    crew = _cluster(options.ray, options.slice) if options.ray is not None and not options.dry_run and left else None
    _announce(cells, out, options, crew.size if crew else options.workers or len(cores()))
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


def _cluster(address: str, slice_seconds: float) -> Cluster:
    if "=" in address:
        raise DataError(f"{address!r} is no address: put --ray behind the settings, or write --ray ADDRESS")
    try:
        import ray  # noqa: F401
    except ImportError:
        raise DataError("--ray needs Ray: pip install 'arb-rl[ray]'") from None
    from arb.sweeps.cluster import Cluster

    return Cluster(address or None, slice_seconds)


def _announce(cells: Sequence[Cell], out: Path, options: argparse.Namespace, workers: int) -> None:
    from arb.report.counting import count
    from arb.sweeps import plan
    from arb.sweeps.cost import cost
    from arb.sweeps.grid import counted
    from arb.sweeps.roster import group_of

    done = [cell for cell in cells if plan.done(out, cell)]
    groups = {group_of(cell) for cell in cells}
    share = "with" if len(cells) == 1 else "that share"
    shared = f"{count(len(cells), 'run')} {share} {count(len(groups), 'pre-training')}"
    print(f"{shared}, {len(done)} of them finished before, in {out}")
    print("\n".join(counted(cells)), flush=True)
    if options.dry_run:
        for cell in cells:
            print(f"  {'done   ' if cell in done else 'to do  '} {cell.folder}")
    for line in cost(cells, out, options.workers).lines(workers):
        print(line, flush=True)
