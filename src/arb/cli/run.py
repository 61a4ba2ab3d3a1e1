"""`arb run`, and the options that say what to run, which the commands for many runs share."""

from __future__ import annotations

import argparse
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arb.cli.eval import summary
from arb.data.tasks import FIRST
from arb.errors import DataError, Interrupted
from arb.lab.folder import RunFolder
from arb.lab.machine import stoppable

if TYPE_CHECKING:  # importing JAX takes a second, which --help need not wait for
    from arb.lab.config import Config
    from arb.lab.rounds import Round
    from arb.lab.setup import Setup

EXAMPLES = """
examples:
  arb run                                              a hopping robot: its data is made first, then kept
  arb run --task hopper-medium-v2 --preset paper       a run of the paper (arb data fetch hopper-medium-v2 first)
  arb run --agent calql --strategy naive --seed 3
  arb run --task my.hdf5 --env my_module:MyEnv-v0      your data and your environment
  arb run --strategy arb replay.temperature=2 schedule.online=50000 settings.expectile=0.8
  arb run --task logs.csv schedule.online=0            offline alone, without an environment (docs/robot.md)
  arb run --from runs/RUN --new logs/*.npz             the next round, with what the robot did since

A run is a folder. The same command again continues an interrupted run, or shows the result of a finished one.
Every setting can be given as NAME=VALUE; `arb run --settings` lists them.
"""


def add_subject(parser: argparse.ArgumentParser, lists: tuple[str, ...] = (), **defaults: str) -> None:
    """Add task, agent, strategy, seed, environment and preset; `defaults` are those that differ from a run's."""
    from arb.lab.agents import AGENTS, DEFAULT_AGENT
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
        default, read = defaults.get(name, usual), int if name == "seed" and name not in lists else str
        parser.add_argument(*letter, f"--{name}", default=default, type=read, help=f"{kind}{text} ({default})")
    env = "Gymnasium id, or my_module:MyEnv-v0, for data that does not name its own"
    parser.add_argument("-e", "--env", default="", help=env)
    parser.add_argument("-p", "--preset", default="demo", help=f"how much training: {', '.join(PRESETS)} (demo)")
    rows = "".join(f"  {name:<11} {row.purpose}\n" for name, row in STRATEGIES.items())
    parser.epilog = f"strategies:\n{rows}{parser.epilog}"


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE in two parts.

    >>> setting("schedule.online=500")
    ('schedule.online', '500')
    """
    from arb.suite.datasets import is_source

    name, equals, value = text.partition("=")
    if equals:
        return name, value
    hint = f"did you mean --task {text}?" if is_source(text) else "write NAME=VALUE, e.g. schedule.online=50000"
    raise DataError(f"{text!r} is not a setting: {hint}")


def files_and_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands behind --new in two parts: files, which may carry columns, and settings.

    >>> files_and_settings(["a.npz", "b.csv?actions=torque", "schedule.updates=500"])
    (['a.npz', 'b.csv?actions=torque'], ['schedule.updates=500'])
    """
    settings = [w for w in words if "=" in w and "?" not in w.partition("=")[0] and not Path(w).exists()]
    return [word for word in words if word not in settings], settings


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_subject(parser)
    add = parser.add_argument
    add("-o", "--out", type=Path, help="folder of the run (runs/TASK-AGENT-STRATEGY-PRESET-SEED)")
    add(
        "--from",
        dest="source",
        type=Path,
        help="start from the pre-trained agent of another run's folder; with --new "
        "or --collect from where that run ended",
    )
    new = "recorded after that run: files of episodes that are online steps of the next round, in a folder of its own"
    add("--new", nargs="+", metavar="FILE", default=(), help=new)
    collect = "online steps come from the files of arb.Recorder that appear in this folder, not from an environment"
    add("--collect", type=Path, metavar="FOLDER", help=collect)
    columns = "column names in the dataset file, e.g. observations=state,actions=command"
    add("--columns", default="", metavar="A=B,...", help=columns)
    hardware = "the environment is a robot: opened once, whole episodes, no rollouts for evaluation"
    add("--hardware", action="store_true", help=hardware)
    add("--wait", action="store_true", help="with --hardware, wait for the Enter key before every episode")
    add("--tensorboard", action="store_true", help="also write TensorBoard events into the folder")
    add("--wandb", metavar="PROJECT", help="also log to Weights & Biases")
    add("--trackio", metavar="PROJECT", help="also log to trackio, a page of curves on this machine")
    listed = "list all settings of this agent and strategy"
    add("--settings", dest="list_settings", action="store_true", help=listed)
    add("settings", nargs="*", metavar="NAME=VALUE", help="any setting, e.g. schedule.online=50000")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with stoppable("Saving a checkpoint; press Ctrl-C again to quit now", own_process=True) as asked_to_stop:
        _run(options, asked_to_stop)


def _run(options: argparse.Namespace, asked_to_stop: Callable[[], bool]) -> None:
    from arb.lab.config import configure, flat
    from arb.lab.folder import default_folder
    from arb.lab.metrics import with_loggers
    from arb.lab.setup import Setup
    from arb.lab.training import run
    from arb.progress import live_view

    subject = {name: getattr(options, name) for name in ("env", "agent", "strategy", "seed", "preset")}
    task = f"{options.task}?{options.columns}" if options.columns else options.task
    options.new, late = files_and_settings(options.new)
    overrides: dict[str, Any] = dict(map(setting, [*options.settings, *late]))
    if options.hardware or options.collect:
        overrides["source"] = "hardware" if options.hardware else "files"
    after = _round(options)
    config = after.config(_given(options), overrides) if after else configure(task=task, **subject, overrides=overrides)
    if options.list_settings:
        print("\n".join(settings_lines(config)))
        return
    folder = options.out or (after.default_folder if after else default_folder(config, options.preset))
    place = RunFolder(folder)
    if after:
        after.check(place)
    place.check_config(config)
    if place.finished(config):
        result = run(config, folder)
        print("This run is already finished:")
    else:
        setup = after.setup(config) if after else Setup.of(config, audited=True)
        _announce(config, setup, folder)
        if options.collect:
            options.collect.mkdir(parents=True, exist_ok=True)
            print(f"episodes come from {options.collect}; the newest policy is {place.policy()}", flush=True)
        if asked_to_stop():
            raise Interrupted("stopped before the first update; run the same command to start")
        loggers = {name: getattr(options, name) for name in ("tensorboard", "wandb", "trackio")}
        with live_view() as tell, with_loggers(tell, folder, flat(config), **loggers) as tell_all:

            def tell_and_draw(phase: str, step: int, total: int, metrics: dict[str, float]) -> None:
                tell_all(phase, step, total, metrics)
                if "score" in metrics:
                    _draw(place)

            result = run(
                config,
                folder,
                tell=tell_and_draw,
                setup=setup,
                pretraining=None if after else options.source,
                stop=asked_to_stop,
                inbox=options.collect,
                after=after,
                ready=asked_for_enter() if options.wait else lambda: True,
            )
        _draw(place)
    print("\n".join(summary(place, result)))
    print(f"plot        {place.picture_file}")


def _round(options: argparse.Namespace) -> Round | None:
    """The round that the options ask for, if they do."""
    from arb.lab.rounds import Round

    if options.source and not options.source.is_dir():
        raise DataError(f"--from {options.source}: there is no such folder")
    if options.new and not options.source:
        raise DataError("--new continues a run: add --from RUN")
    if (options.hardware and (options.new or options.collect)) or (options.new and options.collect):
        raise DataError("online steps come from one place: give --hardware, --new or --collect")
    if options.wait and not options.hardware:
        raise DataError("--wait is for --hardware")
    return Round.after(options.source, options.new) if options.source and (options.new or options.collect) else None


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Options that say what to run and differ from their defaults."""
    from arb.cli import parser_of
    from arb.lab.config import OPTIONS

    usual = parser_of("run").get_default
    return {name: getattr(options, name) for name in OPTIONS.values() if str(getattr(options, name)) != usual(name)}


def asked_for_enter() -> Callable[[], bool]:
    """Whether Enter was pressed since the question, which is asked once; looks for a moment and does not wait."""
    asked = False

    def ready() -> bool:
        nonlocal asked
        if not asked:
            print("Reset the robot, then press Enter", file=sys.stderr, flush=True)
        asked = True
        if not select.select([sys.stdin], [], [], 0.2)[0]:
            return False
        asked = False
        if not sys.stdin.readline():
            raise DataError("--wait needs a terminal: nobody can press Enter here")
        return True

    return ready


def _draw(place: RunFolder) -> None:
    from arb.report.plots import plot_run  # Matplotlib need not come before the first update

    plot_run(place.path, place.picture_file)


def settings_lines(config: Config) -> list[str]:
    """A line for every setting that can be given as NAME=VALUE: its type, its value here, and its meaning."""
    from arb.lab.config import OPTIONS, settings_table

    rows = [("setting", "type", "value", "meaning")]
    for row in settings_table(config):
        if row.name not in OPTIONS:
            value = "(" + ",".join(map(str, row.default)) + ")" if isinstance(row.default, tuple) else str(row.default)
            rows.append((row.name, row.type, value, row.meaning))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(map(str.ljust, row, [*widths, 0])).rstrip() for row in rows]


def _announce(config: Config, setup: Setup, folder: Path) -> None:
    from arb.envs import LIMIT
    from arb.lab.config import flat
    from arb.lab.folder import convergence_note
    from arb.lab.strategies import strategy_row

    plan, rows = config.schedule, len(setup.dataset)
    print(
        f"{config.agent} with {config.replay.strategy} on {config.task} ({setup.env or 'no environment'}), "
        f"seed {config.seed}\n"
        f"{plan.pretrain:,} updates offline on {rows:,} steps, then {plan.online:,} steps online; results in {folder}",
        flush=True,
    )
    if not strategy_row(config.replay.strategy).keeps_all and getattr(config.replay, "keep", 0) >= rows:
        print(f"{config.replay.strategy} keeps all of these steps, so it filters nothing: choose a smaller replay.keep")
    if note := convergence_note(flat(config)):
        print(note, flush=True)
    for fault in setup.faults:
        print(f"warning: {fault} (`arb data audit` says more)", flush=True)
    if setup.unlimited:
        print(
            f"{setup.env} is registered without a time limit: an episode that it does not end stops at {LIMIT:,} steps"
        )
