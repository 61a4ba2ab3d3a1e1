"""The commands for many runs: `arb sweep`, `arb compare` and `arb reproduce`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arb.cli.run import add_subject, setting
from arb.errors import DataError

if TYPE_CHECKING:  # importing JAX takes a second, which --help need not wait for
    from arb.lab.sweep import Cell

SWEEP = """
examples:
  arb sweep --strategy naive,arb --seed 0-3                    eight runs; their data is made on first use
  arb sweep --task hopper-random-v2,hopper-medium-v2 --agent iql,calql --strategy naive,arb --seed 0-3 --dry-run
  arb sweep --strategy arb replay.temperature=0.1,0.5,2        any setting can be an axis
  arb sweep replay.clip='(-12,7),(-9,7)'                       a comma inside brackets belongs to the value
  arb sweep --strategy naive,arb --ray 10.0.0.1:6379           the same on a Ray cluster (docs/sweep.md)

Every run has its own folder below --out. The same command again skips what is finished, continues what was interrupted
and retries what failed; a larger grid adds to the smaller one. Runs that differ only in their strategy share one
pre-training. `arb report OUT` makes tables and plots of it.
"""
COMPARE = """
examples:
  arb compare                                          six strategies, three seeds, on suite:hopper-mixed
  arb compare --task hopper-medium-v2 --agent calql --preset small --seed 0-3
  arb compare --strategy naive,arb schedule.online=50000

All strategies of a seed start from the same pre-trained agent. The folder holds all runs; its report/ holds the table,
the learning curves, the online share of the batches, and a page with all of it. The same command again continues.
"""
REPRODUCE = """
examples:
  arb reproduce main --preset smoke               a quick trial, on small datasets made on this machine
  arb reproduce clip --preset paper               the paper's own grid (fetch antmaze-large-diverse-v2 first)
  arb reproduce iql --preset small --data suite   the same on the suite, without a download
  arb reproduce iql --preset paper --dry-run      which runs it takes
  arb reproduce --run results/locomotion.jsonl:RUN    one archived run again: does it agree, on which processor?

`--data suite` takes the datasets of this project's suite that resemble D4RL's, which are made on first use: their
scores are not comparable with published ones. With `--data d4rl` a task needs its file (`arb data fetch TASK`).
"""


def add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.epilog = SWEEP
    add_subject(parser, ("task", "agent", "strategy", "seed"))
    _add_working(parser, "folder of the sweep (sweeps/PRESET)")
    parser.add_argument("settings", nargs="*", metavar="NAME=V1,V2", help="values of any setting")
    parser.set_defaults(run=sweep)


def sweep(options: argparse.Namespace) -> int:
    from arb.lab.sweep import grid, seed_range, split_list

    tasks, agents, strategies = map(split_list, (options.task, options.agent, options.strategy))
    axes = {name: split_list(values) for name, values in map(setting, options.settings)}
    cells = grid(tasks, agents, strategies, seed_range(options.seed), axes, env=options.env, preset=options.preset)
    out = options.out or Path("sweeps") / options.preset
    status = _carry_out(cells, out, options)
    print(f"results in {out}; `arb report {out}` shows them")
    return status


def add_compare(parser: argparse.ArgumentParser) -> None:
    from arb.lab.strategies import COMPARED

    parser.epilog = COMPARE
    add_subject(parser, ("strategy", "seed"), strategy=",".join(COMPARED), seed="0-2")
    _add_working(parser, "folder of the comparison (compare/TASK-AGENT-PRESET)")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="any setting, the same for all runs")
    parser.set_defaults(run=compare)


def compare(options: argparse.Namespace) -> int:
    from arb.lab.sweep import comparison, grid, seed_range, split_list
    from arb.report.page import make_report

    lists = ([options.task], [options.agent], split_list(options.strategy), seed_range(options.seed))
    cells = grid(*lists, env=options.env, preset=options.preset, overrides=dict(map(setting, options.settings)))
    folder, title = comparison(options.task, options.agent, options.preset)
    out = options.out or folder
    status = _carry_out(cells, out, options)
    report = make_report([out], out / "report", title=title)
    print(f"\n{report.text}\n\nreport in {report.page}")
    return status


def add_reproduce(parser: argparse.ArgumentParser) -> None:
    from arb.paper.experiments import DATA, EXPERIMENTS, SEEDS

    names = "".join(f"  {name:<14} {experiment.shows}\n" for name, experiment in EXPERIMENTS.items())
    parser.description = f"{parser.description}\n\n{names}"
    parser.epilog = REPRODUCE
    parser.add_argument("name", nargs="?", help="one of the above", metavar="NAME")
    again = "instead: run one archived run again, and say whether it agrees"
    parser.add_argument("--run", dest="archived", metavar="ARCHIVE:RUN", help=again)
    parser.add_argument("-p", "--preset", default="smoke", help=f"how much training: {', '.join(SEEDS)}")
    parser.add_argument("--data", help=f"{' or '.join(DATA)} (suite for smoke, else d4rl)")
    _add_working(parser, "folder of the runs (reproduce/NAME-PRESET)")
    parser.set_defaults(run=reproduce)


def reproduce(options: argparse.Namespace) -> int:
    from arb.paper.experiments import EXPERIMENTS, cells_of
    from arb.paper.tables import render

    if bool(options.name) == bool(options.archived):
        raise DataError("name an experiment, or an archived run with --run ARCHIVE:RUN")
    if options.archived:
        return _again(options.archived, options.out)
    data = options.data or ("suite" if options.preset == "smoke" else "d4rl")
    cells = cells_of(options.name, options.preset, data)
    out = options.out or Path("reproduce") / f"{options.name}-{options.preset}"
    status = _carry_out(cells, out, options)
    print(f"\n{render(options.name, [out], out / 'report')}")
    tasks, all_tasks = {cell.config.task for cell in cells}, EXPERIMENTS[options.name].tasks
    if len(tasks) < len(all_tasks):
        print(f"\nOnly {len(tasks)} of the paper's {len(all_tasks)} tasks, one for each group.")
    if data == "suite":
        print("\nThe data came from the suite, made on this machine: these are not scores on D4RL's tasks.")
    print(f"\nfiles in {out / 'report'}")
    return status


def _again(archived: str, out: Path | None) -> int:
    """Run an archived run anew and compare; status 1 if it differs."""
    from arb.lab.agents import is_plug_in
    from arb.lab.config import from_flat
    from arb.lab.folder import default_folder
    from arb.lab.machine import processor_text
    from arb.lab.training import run
    from arb.progress import live_view
    from arb.report.records import agreement, archived_run, from_folder

    before = archived_run(archived)
    for name in (before.agent, str(before.config.get("replay.strategy")), str(before.config.get("env", ""))):
        if is_plug_in(name):
            unsafe = f"{archived} uses {name}, and an archive may not load code: use `arb run` with its settings"
            raise DataError(unsafe)
    try:
        config = from_flat(before.config)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{archived} was made by another version of arb: {error}") from None
    folder = out or Path("reproduce") / default_folder(config, "archived").name
    with live_view() as tell:
        run(config, folder, tell=tell)
    now = from_folder(folder)
    same, said = agreement(before, now)
    print(f"{archived} {said}")
    print(f"archived  {processor_text(before.machine)}\nhere      {processor_text(now.machine)}")
    then, here = (
        {"data": one.data_hash[:12], **{name: one.machine.get(name) for name in ("commit", "cores")}, **one.versions}
        for one in (before, now)
    )
    print(
        "".join(f"other {name}: {old}, here {here.get(name)}\n" for name, old in then.items() if old != here.get(name))
    )
    return 0 if same else 1


# ---- what they share -------------------------------------------------------------------------------------------------
def _add_working(parser: argparse.ArgumentParser, out: str) -> None:
    add = parser.add_argument
    add("-o", "--out", type=Path, help=out)
    add("--workers", type=int, help="processes on this machine (one per core)")
    ray = "run on Ray: on the cluster at ADDRESS or $RAY_ADDRESS, or else on one started on this machine"
    add("--ray", nargs="?", const="", metavar="ADDRESS", help=ray)
    add("--slice", type=float, default=300.0, metavar="SECONDS", help="on Ray: seconds between checkpoints (300)")
    add("--retry", type=int, default=1, metavar="N", help="number of retries of a failed run (1)")
    add("-n", "--dry-run", action="store_true", help="show the runs and stop")


def _carry_out(cells: Sequence[Cell], out: Path, options: argparse.Namespace) -> int:
    """Announce a grid, run it and list what failed; the exit status. A dry run ends with the announcement."""
    from arb.lab.sweep import View, plan, sweep
    from arb.progress import screen

    todo = plan(cells, out)
    print("\n".join(todo.lines(one_by_one=options.dry_run)), flush=True)
    if options.dry_run:
        raise SystemExit(0)
    how = {"workers": options.workers, "ray": options.ray, "slice_seconds": options.slice, "retry": options.retry}
    with screen(rows_as_lines=False) as shown:
        outcome = sweep(todo, **how, view=View(todo, shown))
    for folder, reason in outcome.failed.items():
        print(f"failed: {folder}: {reason}", file=sys.stderr)
    return 1 if outcome.failed else 0
