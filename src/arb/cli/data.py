"""`arb data`: list, fetch, info, audit, convert, repair, merge, export, make, collect."""

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from arb.data.audit import Audit
from arb.data.tasks import FAMILIES, PAPER, SUITE, TASKS, Task, find_task
from arb.errors import DataError
from arb.files import check_writable
from arb.replay.dataset import Dataset, leaves

OUT = "ends in .hdf5, .h5 or .npz, or is minari:NAME"


def _list(arguments: argparse.Namespace) -> None:
    from arb.data.fetch import bundled, bundled_names, cached

    print(f"{'task':<28}{'environment':<24}{'horizon':>8}{'score 0 .. 100':>22}{'MB':>6}  {'here':<5}reward for IQL")
    for task in TASKS.values():
        if not arguments.paper or task.name in PAPER:
            here, shift = "yes" if cached(task).exists() else "no", FAMILIES[task.family].shift
            rule = f"r {shift:+g}" if shift else "r"
            print(f"{_about(task)}{task.size // 10**6:>6}  {here:<5}{rule}")
            if arguments.long:
                print("".join(f"    {line}\n" for line in (f"sha256 {task.sha256}", *task.urls)), end="")
    for task in () if arguments.paper else SUITE.values():
        print(f"{_about(task)}{'':>6}  {'made':<5}")
    for name in bundled_names():
        print(f"bundled:{name:<20}{'':<24}{'':>8}{'':>22}{bundled(name).stat().st_size / 1e6:>6.1f}  yes")


def _about(task: Task) -> str:
    scale = f"{task.reference.low:.1f} .. {task.reference.high:.1f}" if task.reference else ""
    return f"{task.name:<28}{task.env:<24}{task.horizon:>8}{scale:>22}"


def _fetch(arguments: argparse.Namespace) -> None:
    from arb.data.fetch import fetch

    mirrors = [*arguments.mirror, *filter(None, os.environ.get("ARB_MIRROR", "").split())]
    for name in arguments.name:
        print(fetch(find_task(name), tuple(mirrors)))


def _load(source: str, columns: str) -> Dataset:
    from arb.data.episodes import DataWarning
    from arb.suite.datasets import load_dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the commands print what was repaired
        return load_dataset(source, columns)


def _info(arguments: argparse.Namespace) -> None:
    from arb.data.audit import describe, reference_of
    from arb.data.tasks import Reference

    data = _load(arguments.file, arguments.columns)
    reference = Reference(*arguments.reference) if arguments.reference else reference_of(arguments.file, data)
    print("\n".join(describe(data, reference)))


def _audit(arguments: argparse.Namespace) -> int:
    from arb.data.audit import audit
    from arb.progress import count
    from arb.suite.datasets import locate

    result = audit(locate(arguments.file), arguments.env, arguments.columns)
    counted = f": {count(result.rows, 'row')}, {count(result.episodes, 'episode')}" if result.rows else ""
    print(f"{result.source}{counted}")
    for finding in result.findings:
        print(f"  {finding.level:<8}{finding.check:<18}{finding.text}")
    for label, text in (("checked", ", ".join(result.checked)), ("not checked", result.unknown)):
        print(f"{label}: {text}" if text else "", end="\n" * bool(text))
    print(f"verdict: {result.verdict}")
    return 0 if result.ok else 1


def _convert(arguments: argparse.Namespace) -> None:
    from arb.data.audit import audit
    from arb.suite.datasets import locate

    place = locate(arguments.file)
    data = _load(place, arguments.columns)
    env = {"env": arguments.env} if arguments.env else {}
    try:
        checked = audit(place, arguments.env, arguments.columns)
    except DataError:  # the environment may be on another machine
        checked = audit(place, columns=arguments.columns)
    _write(arguments.out, data, {**env, "converted_from": place}, checked)


def _repair(arguments: argparse.Namespace) -> None:
    from arb.data.episodes import repair_dataset
    from arb.data.formats import read_columns, split_columns
    from arb.lab.agents import plug_in
    from arb.suite.datasets import locate

    place, carried = split_columns(locate(arguments.file))
    columns, reward = arguments.columns or carried, None
    if arguments.reward:
        reward = plug_in(arguments.reward)
        columns += "" if "rewards=" in columns else ",rewards=0"  # the file need not have any
    data = repair_dataset(*read_columns(place, columns), place, arguments.time_limit, reward)
    notes = "; ".join(data.provenance["repaired"])
    _write(arguments.out, data, {"repairs": notes or "none", "converted_from": place})


def _merge(arguments: argparse.Namespace) -> None:
    datasets = [_load(file, "") for file in arguments.file]

    def shapes(data: Dataset) -> dict[str, Any]:
        columns = {**leaves(data.observations), "actions": data.actions, **data.extras}
        return {name: (column.shape[1:], column.dtype.kind) for name, column in columns.items()}

    for name, data in zip(arguments.file, datasets, strict=True):
        if shapes(data) != shapes(datasets[0]):
            differ = f"{name} and {arguments.file[0]} differ in names, shapes or types"
            raise DataError(f"{differ}: `arb data info` shows them")
    _write(arguments.out, Dataset.concatenate(datasets), {"merged_from": ", ".join(arguments.file)})


def _export(arguments: argparse.Namespace) -> None:
    from arb.lab.folder import export_steps

    _write(arguments.out, export_steps(arguments.run_folder), {})


def _write(out: Path, data: Dataset, more: dict[str, str], checked: Audit | None = None) -> None:
    """Write a dataset, and say what was repaired and what the audit of it, or of where it comes from, found."""
    from arb.data.audit import FAULT, audit
    from arb.data.formats import write_dataset
    from arb.progress import count

    write_dataset(out, replace(data, provenance={**data.provenance, **more}), 9)
    for note in data.provenance.get("repaired", ()):
        print(f"repaired: {note}")
    for finding in (checked or audit(data)).findings:
        if finding.level == FAULT or finding.check in ("missing ends", "no rewards"):
            print(f"warning: {finding.text}")
    print(f"{out}: {count(len(data), 'row')}, {count(data.num_episodes, 'episode')}")


def _make(arguments: argparse.Namespace) -> None:
    from arb.suite.datasets import load_dataset, made, make, verdict, wanted

    asked = wanted(arguments.name, arguments.rows, arguments.seed)
    if arguments.out is None and asked.seed:
        raise DataError("the cache holds the datasets of seed 0: say with --out where to write another seed")
    place = arguments.out or made(asked.source)
    dataset = make(asked, place) if arguments.out else load_dataset(place)
    use = "" if arguments.out else f"\nuse it with: arb run --task {asked.source}"
    print(f"{place}: {len(dataset):,} rows\n{verdict(asked, dataset)}{use}")


def _collect(arguments: argparse.Namespace) -> None:
    from arb.suite.sac import Plan, collect

    check_writable(arguments.out)
    folder = arguments.folder or arguments.out.with_suffix(".sac")
    plan = Plan(arguments.env, arguments.seed, arguments.sac_steps, arguments.evaluate_every)
    command = "arb data " + " ".join(arguments.arguments)
    dataset = collect(plan, arguments.quality, arguments.steps, arguments.out, folder, command)
    print(f"{arguments.out}: {len(dataset):,} rows")


def add_data(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    def convert(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("file", help="a file, a LeRobot folder, or minari:NAME")
        sub.add_argument("out", type=Path, help=OUT)

    def columns(sub: argparse.ArgumentParser) -> None:
        text = "column names in the file, e.g. observations=state,actions=command; a+b joins two, a number is constant"
        sub.add_argument("--columns", default="", metavar="A=B,...", help=text)

    def out(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--out", type=Path, required=True, metavar="FILE", help=OUT)

    sub = command("list", _list, "List the known tasks and whether their files are on this machine.")
    sub.add_argument("--paper", action="store_true", help="only the 18 tasks of the paper")
    sub.add_argument("--long", action="store_true", help="with addresses and checksums")
    sub = command("fetch", _fetch, "Download the files of tasks; resumes, and verifies checksums.")
    sub.add_argument("name", nargs="+")
    sub.add_argument("--mirror", action="append", default=[], metavar="URL", help="a directory of files, tried first")
    sub = command("info", _info, "Print size, episodes, returns and score of a dataset.")
    sub.add_argument("file")
    sub.add_argument("--reference", nargs=2, type=float, metavar=("LOW", "HIGH"), help="returns that score 0 and 100")
    columns(sub)
    sub = command("audit", _audit, "Check for missing episode ends, bad values, duplicates; status 1 if one is found.")
    sub.add_argument("file")
    sub.add_argument("--env", default="", metavar="ID", help="Gymnasium id to check sizes, bounds, time limit against")
    columns(sub)
    sub = command("convert", _convert, "Rewrite HDF5, npz, CSV, Parquet, robomimic or Minari data in D4RL's layout.")
    convert(sub)
    columns(sub)
    sub.add_argument("--env", default="", metavar="ID", help="the Gymnasium id to record in the file")
    text = "Like convert, and cut episodes off where values are not finite; lists each change."
    sub = command("repair", _repair, text)
    convert(sub)
    columns(sub)
    sub.add_argument("--time-limit", type=int, metavar="N", help="terminals after exactly N steps become time limits")
    text = "f(observations, actions, next_observations) -> rewards"
    sub.add_argument("--reward", metavar="MODULE:FUNCTION", help=text)
    sub = command("merge", _merge, "Join datasets of one task to one file.")
    sub.add_argument("file", nargs="+", help="files, or other sources of data")
    out(sub)
    sub = command("export", _export, "Write the steps that a run collected in its environment as a dataset.")
    sub.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of a run")
    out(sub)
    sub = command("make", _make, "Make a dataset of the suite; nothing is downloaded.")
    sub.add_argument("name", help="e.g. suite:hopper-mixed ('arb data list' shows all)")
    sub.add_argument("--rows", type=int, help="number of rows; the last episode is completed")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", type=Path, metavar="FILE", help="an HDF5 file (default: the cache)")
    sub = command("collect", _collect, "Make a D4RL-style dataset for a Gymnasium environment.")
    sub.add_argument("env", help="Gymnasium id, e.g. arb/hopper-v2")
    sub.add_argument("quality", help="random, medium, medium-replay, expert, medium-expert, full-replay or mixed")
    out(sub)
    sub.add_argument("--steps", type=int, default=200_000, help="rows to record (200000)")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--sac-steps", type=int, default=200_000, help="training steps of SAC (200000)")
    sub.add_argument("--evaluate-every", type=int, default=10_000, help="steps between two snapshots of SAC (10000)")
    sub.add_argument("--folder", type=Path, help="where SAC runs and resumes (default: next to the file)")
