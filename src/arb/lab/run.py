"""A run is a folder: from a configuration to a fine-tuned policy, its tables and its picture.

`run` is idempotent. A finished folder returns at once; an interrupted one continues from its newest checkpoint.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from arb.errors import DataError
from arb.files import check_folder, locked, write_text
from arb.lab.checkpoint import SHARED, Pretrained
from arb.lab.config import Config
from arb.lab.folder import finished, refuse_other_data, write_config
from arb.lab.machine import refuse_too_little_memory
from arb.lab.runfolder import Result, RunFolder
from arb.lab.setup import Problem, describe_run
from arb.lab.stopping import stoppable
from arb.lab.training import Training
from arb.progress import Tell
from arb.report.plots import plot_run
from arb.suite.datasets import load_dataset


def run(
    config: Config,
    folder: str | Path,
    *,
    tell: Tell | None = None,
    save_every: float = 120.0,
    cache: Path | None = None,
    problem: Problem | None = None,
    pretraining: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Pre-train offline, fine-tune online, and leave everything in a folder.

    >>> from arb.lab.config import configure
    >>> config = configure(task="bundled:hopper-tiny", strategy="arb", preset="smoke")
    >>> run(config, "runs/first").last      # doctest: +SKIP

    Args:
        config: what to run.
        folder: where; an interrupted run that is there continues, a finished one is returned.
        tell: called after every chunk of work.
        save_every: seconds between checkpoints.
        cache: where pre-trainings are shared; beside the folder if not given.
        problem: what the configuration describes, if the caller has it already.
        pretraining: another run's folder whose pre-training to take over; it must be the one this run would do.
        stop: asked after every chunk whether to save and stop; by default whether SIGINT or SIGTERM came.
    """
    place = RunFolder(folder)
    check_folder(place.path)
    if finished(place.path, config):
        _refuse_changed_data(place.path, config, problem)
        return place.result()
    with locked(place.lock, f"another process is working on the run in {place.path}: wait for it to end"):
        problem = problem or Problem.of(config)
        refuse_too_little_memory(f"a run on {config.task}", problem.memory)
        write_config(place.path, config, describe_run(problem))
        place.done_mark.unlink(missing_ok=True)  # of a shorter run that is continued
        shared = Pretrained(cache or (pretraining or place.path).parent / SHARED, problem)
        if pretraining is not None and not shared.there:
            raise DataError(
                f"{pretraining} has no pre-training that this run could take over: it was done under other settings"
            )
        training = Training(config, place, problem, tell or (lambda *_: None), save_every, shared)
        with stoppable() if stop is None else nullcontext(stop) as asked_to_stop:
            training.go(asked_to_stop)
        plot_run(place.path, place.picture_file)
        found = place.result()
        write_text(place.result_file, json.dumps(found._asdict() | {"folder": place.path.name}, indent=1))
        place.last_good.unlink(missing_ok=True)  # of an attempt before
        place.done_mark.touch()
    return found


def _refuse_changed_data(folder: Path, config: Config, problem: Problem | None) -> None:
    """Refuse to return a finished run of other data; where the data is not here, there is nothing to compare."""
    try:
        data_hash = problem.data_hash if problem else load_dataset(config.task).fingerprint
    except (DataError, OSError):
        return
    refuse_other_data(folder, config, data_hash)


def pretrain_for(
    config: Config,
    folder: Path,
    cache: Path,
    *,
    tell: Tell | None = None,
    save_every: float = 120.0,
    problem: Problem | None = None,
    stop: Callable[[], bool] | None = None,
) -> Path:
    """Only the pre-training, left in a cache for all runs that share it.

    Args:
        config: one of those runs.
        folder: where the work is kept meanwhile; an interrupted one continues, and at the end the folder is removed.
        cache: where pre-trainings are shared.
        tell: called after every chunk of work.
        save_every: seconds between checkpoints.
        problem: what the configuration describes, if the caller has it already.
        stop: asked whether to save and stop, as for `run`.
    """
    problem = problem or Problem.of(config)
    shared = Pretrained(cache, problem)
    if not shared.there:
        folder.mkdir(parents=True, exist_ok=True)
        training = Training(config, RunFolder(folder), problem, tell or (lambda *_: None), save_every, shared)
        with stoppable() if stop is None else nullcontext(stop) as asked_to_stop:
            training.pretrain(asked_to_stop)
    shutil.rmtree(folder, ignore_errors=True)
    return shared.folder
