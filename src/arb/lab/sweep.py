"""Many runs: grids of them, and identical workers that take the next folder of a grid.

A folder with its lock is the scheduler. A worker takes the next folder that is neither DONE, nor FAILED, nor locked;
runs that share a pre-training wait for the one that does it, which holds a lock of its own meanwhile. So a worker that
dies loses nothing but its work since the last checkpoint, and any number of sweeps may work in one folder.

A worker is a process on one core. XLA looks once how many cores there are and never splits a sum on a single one, so a
run ends in the same bytes in a sweep, on Ray, and alone on one core.
"""

import importlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any, NamedTuple, cast

from arb.data.formats import without_suffix
from arb.data.tasks import task_of
from arb.errors import DataError, Interrupted
from arb.files import check_folder, digest, locked, read_json, write_text
from arb.lab.agents import DEFAULT_AGENT, settings_class
from arb.lab.config import OPTIONS, Config, configure, flat, from_flat, pretraining_keys
from arb.lab.folder import DATASETS, PLAN, SHARED, RunFolder, Shared
from arb.lab.machine import cores, stoppable
from arb.lab.strategies import DEFAULT, STRATEGIES, strategy_row
from arb.progress import PHASES, Screen, count, described
from arb.suite.datasets import locate

WAIT_SECONDS, SAVE_SECONDS = 0.5, 120.0  # between two attempts to find a folder to take; between two checkpoints
Message = dict[str, Any]
Request = Mapping[str, Any]
Say = Callable[[Message], None]
Stop = Callable[[], bool]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LONGEST_NAME = 120
"""Characters of a folder's name; a longer one ends in a hash instead."""


# ---- grids -----------------------------------------------------------------------------------------------------------
class Cell(NamedTuple):
    """One run of a grid, and its folder below that of the sweep."""

    folder: str
    config: Config


def grid(
    tasks: Iterable[str],
    agents: Iterable[str] = (DEFAULT_AGENT,),
    strategies: Iterable[str] = (DEFAULT,),
    seeds: Iterable[int] = (0,),
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    env: str = "",
    preset: str = "demo",
    overrides: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """All combinations, in order; a setting of an agent or a strategy is for those that have it.

    A folder is named after the values of the axes that are not the preset's.

    >>> [cell.folder for cell in grid(["hopper-medium-v2"], strategies=["naive", "arb"],
    ...                               axes={"replay.temperature": [0.2, 2]})]     # doctest: +NORMALIZE_WHITESPACE
    ['hopper-medium-v2/iql/naive/seed-0',
     'hopper-medium-v2/iql/arb/seed-0',
     'hopper-medium-v2/iql/arb-replay.temperature=2.0/seed-0']

    The axes are values to try by setting, the overrides one value by setting that is never part of a name. The other
    arguments are those of `arb.sweep`.
    """
    overrides, pairs, seeds = dict(overrides or {}), list(itertools.product(agents, strategies)), list(seeds)
    values = {key: [value] for key, value in overrides.items()} | dict(sorted((axes or {}).items()))
    for key in values:
        _check_axis(key, values[key], pairs)
    cells: dict[str, Cell] = {}
    for task, (agent, strategy) in itertools.product(tasks, pairs):
        named: dict[str, Any] = {"task": task, "env": env, "agent": agent, "strategy": strategy, "preset": preset}
        read = [key for key in values if _reads(agent, strategy, key)]
        usual = flat(configure(**named, overrides={key: overrides[key] for key in read if key in overrides}))
        for given, seed in itertools.product(list(itertools.product(*(values[key] for key in read))), seeds):
            config = configure(**named, seed=seed, overrides=dict(zip(read, given, strict=True)))
            cell = Cell(_folder(config, [key for key in read if flat(config)[key] != usual[key]]), config)
            if cells.setdefault(cell.folder, cell) != cell:
                raise DataError(f"two different runs would be kept in {cell.folder}: give them different settings")
    return list(cells.values())


def _reads(agent: str, strategy: str, key: str) -> bool:
    """Whether an agent and a strategy have a setting, and one that can be chosen."""
    group, _, name = key.partition(".")
    if group == "replay":
        return name in strategy_row(strategy).reads
    return group != "settings" or name in {f.name for f in fields(settings_class(agent))}


def _check_axis(key: str, values: Sequence[Any], pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a setting that has an option of its own, or that no pair of agent and strategy reads."""
    if key in OPTIONS or not any(_reads(*pair, key) for pair in pairs):
        readers = [name for name in STRATEGIES if key.startswith("replay.") and _reads(pairs[0][0], name, key)]
        if readers and key not in OPTIONS:
            only = f"{key} is read only by {' and '.join(readers)}, which is not among the strategies"
            raise DataError(f"{only}: add --strategy {readers[0]}")
        configure(agent=pairs[0][0], strategy=pairs[0][1], overrides={key: values[0]})  # says what is wrong


def _folder(config: Config, keys: Iterable[str]) -> str:
    strategy = folder_name(config.replay.strategy)
    name = "-".join([strategy, *(f"{key}={_text(flat(config)[key])}" for key in keys)])
    if len(name) > LONGEST_NAME:
        name = f"{strategy}-{digest(name, {})[:12]}"
    return "/".join((folder_name(config.task), folder_name(config.agent), name, f"seed-{config.seed}"))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({','.join(map(_text, value))})"
    return folder_name(value) if isinstance(value, str) else str(value)


def folder_name(text: str) -> str:
    """A text as the name of a folder; where that loses something, a hash tells it from its like."""
    plain = text.replace(":", "-", 1)
    if re.fullmatch(r"[\w.+=(),-]+", plain) and plain == without_suffix(plain) and plain[0] != ".":
        return plain
    stem = re.sub(r"[^\w.+=(),-]+", "-", without_suffix(text.rstrip("/").rpartition("/")[2]))
    return f"{stem.strip('.-') or 'data'}-{digest(text, {})[:8]}"


def comparison(task: str, agent: str, preset: str) -> tuple[Path, str]:
    """The folder of a comparison that names none, and the title of its report."""
    folder = Path("compare") / f"{folder_name(task)}-{folder_name(agent)}-{preset}"
    return folder, f"Replay strategies for {agent} on {task}"


def split_list(text: str) -> list[str]:
    """A list as it is written on the command line: commas separate, but not inside brackets.

    >>> split_list("(-12,7),(-9,7)")
    ['(-12,7)', '(-9,7)']
    """
    parts = [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text)]
    if not all(part and len(re.findall(r"[(\[]", part)) == len(re.findall(r"[)\]]", part)) for part in parts):
        raise DataError(f"{text!r} is not a list: write A,B,C, a tuple in brackets, e.g. replay.clip='(-12,7),(-9,7)'")
    return parts


def seed_range(text: str) -> list[int]:
    """Seeds as they are written on the command line.

    >>> seed_range("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in split_list(text):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise DataError(f"{part!r} is not a seed: write 3, or 0-3, or 0,2,5-7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(seeds))


# ---- the folders of a sweep ------------------------------------------------------------------------------------------
class Plan(NamedTuple):
    """The cells with the folders that they have in a sweep, and those of them that are not finished."""

    out: Path
    cells: list[Cell]
    left: list[Cell]

    def lines(self, one_by_one: bool) -> Iterator[str]:
        """How many runs and pre-trainings, and perhaps a line per run."""
        shared = count(len({pretraining_of(cell.config) for cell in self.cells}), "pre-training")
        done = len(self.cells) - len(self.left)
        yield f"{count(len(self.cells), 'run')} ({done} finished), {shared}, in {self.out}"
        for cell in self.cells if one_by_one else ():
            yield f"  {'to do  ' if cell in self.left else 'done   '} {cell.folder}"


def plan(cells: Iterable[Cell], out: str | Path) -> Plan:
    """Look at the folders of the cells, and refuse what would make every run of its kind fail; nothing is written."""
    out, cells = Path(out).absolute(), list(cells)
    check_folder(out)
    for cell in cells:
        RunFolder(out / cell.folder).check_config(cell.config)
    left = [cell for cell in cells if not RunFolder(out / cell.folder).finished(cell.config)]
    _check_possible(left)
    return Plan(out, cells, left)


def _check_possible(cells: Sequence[Cell]) -> None:
    """Refuse data and environments that cannot be used, each looked at once; D4RL's files may be on other machines."""
    from arb.envs import make
    from arb.lab.setup import Setup, load_data

    load = cache(load_data)
    for agent, task, env in dict.fromkeys((c.config.agent, c.config.task, c.config.env) for c in cells):
        known = task_of(task)
        if name := env or (known.env if known else ""):
            make(name).close()
        if known is None and not locate(task).startswith("minari:"):
            Setup.of(next(c.config for c in cells if (c.config.agent, c.config.task) == (agent, task)), load(task))


def write_plan(plan: Plan) -> None:
    """Add the cells to plan.json; two sweeps may do so at once."""
    file = plan.out / PLAN
    with locked(plan.out / ".lock"):
        try:
            rows = {row["folder"]: row["config"] for row in read_json(file)["cells"]} if file.exists() else {}
        except (ValueError, KeyError, TypeError):
            damaged = f"{file} is damaged: move it away; the runs beside it keep their own config.json"
            raise DataError(damaged) from None
        rows |= {cell.folder: flat(cell.config) for cell in plan.cells}
        write_text(file, json.dumps({"cells": [{"folder": f, "config": c} for f, c in rows.items()]}, indent=1))


def pretraining_of(config: Config) -> str:
    """A name for the pre-training of a run; runs with the same name share it."""
    return digest(pretraining_keys(config), {})[:24]


# ---- workers ---------------------------------------------------------------------------------------------------------
class Claim(NamedTuple):
    """A cell whose folder this process has locked, and its pre-training until that is there."""

    cell: Cell
    folder: RunFolder
    lock: ExitStack
    pretraining: ExitStack

    def release(self) -> None:
        self.pretraining.close()
        self.lock.close()


def take(out: Path, cells: Iterable[Cell]) -> Claim | None:
    """Claim the next cell that is not finished, has not failed, and that nobody works on or pre-trains for."""
    for cell in cells:
        claim = Claim(cell, RunFolder(out / cell.folder), ExitStack(), ExitStack())
        with suppress(DataError):  # somebody has it
            if not is_settled(out, cell):
                claim.lock.enter_context(locked(claim.folder.lock, "taken"))
                place = out / SHARED / f"{pretraining_of(cell.config)}.lock"
                claim.pretraining.enter_context(locked(place, "under way"))
                if not is_settled(out, cell):  # nobody was faster
                    return claim
        claim.release()
    return None


def is_settled(out: Path, cell: Cell) -> bool:
    """Whether a run has failed or is finished."""
    folder = RunFolder(out / cell.folder)
    return folder.failure_mark.exists() or folder.finished(cell.config)


def work(request: Request, say: Say, asked_to_stop: Stop) -> None:
    """Take cells and run them until all are settled, or until asked to stop.

    A request has the folder `out` of the sweep, the `cells` as folders and configurations, and how often to `retry` a
    failed run; perhaps a file of `data` to read instead of what the configurations name, a folder of `modules` to
    import from, and `seconds` after which to save and stop. Messages have an `event` and the folder of a `cell`.
    """
    sys.path[:0] = {request["modules"]} - {*sys.path} if "modules" in request else ()
    out, until = Path(request["out"]), time.monotonic() + request.get("seconds", float("inf"))
    cells = [Cell(folder, from_flat(config)) for folder, config in request["cells"]]
    shared = Shared(Path(request.get("datasets") or out / SHARED / DATASETS))

    def stop() -> bool:
        return asked_to_stop() or time.monotonic() > until

    while not all(is_settled(out, cell) for cell in cells):
        claim = take(out, cells)
        if claim is None:
            time.sleep(WAIT_SECONDS)
        else:
            try:
                _run(claim, request, shared, say, stop)
            finally:
                claim.release()
        if stop():
            return


def _run(claim: Claim, request: Request, shared: Shared, say: Say, stop: Stop) -> None:
    """Run a cell, again if it fails for a reason that may go away."""
    from arb.lab.setup import Setup, load_data
    from arb.lab.training import run_locked

    config, phase, cell = claim.cell.config, "pretrain", claim.cell.folder

    def tell(now: str, step: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal phase
        phase = now
        if phase == "online":
            claim.pretraining.close()  # others may go on from it
        say({"event": "progress", "cell": cell, "phase": phase, "step": step, "total": total, "metrics": metrics})

    for attempt in itertools.count():
        say({"event": "begins", "cell": cell})
        try:
            load = partial(load_data, config.task, request.get("data"))
            setup = Setup.of(config, shared.get(digest(config.task, {}), load), shared=shared)
            kept = Path(request["out"]) / SHARED
            result = run_locked(config, claim.folder, kept, tell, SAVE_SECONDS, setup, stop=stop)
            say({"event": "done", "cell": cell, "score": result.last})
        except Interrupted as stopped:
            say({"event": "stopped", "cell": cell, "reason": str(stopped)})
        except Exception as failure:
            text, explained = " ".join(str(failure).split()), isinstance(failure, DataError)
            reason = text if explained else f"{type(failure).__name__}: {text}"
            again = attempt < request["retry"] and not explained  # what is explained would fail in the same way
            say({"event": "failed", "cell": cell, "reason": reason, "again": again, "phase": phase})
            if again:
                continue
            claim.folder.write_failure(reason, traceback.format_exc())
            if phase == "pretrain":
                give_up_pretraining(claim, request, reason)
        return


def give_up_pretraining(claim: Claim, request: Request, reason: str) -> None:
    """Mark the runs that would have started from the same pre-training: it would fail again."""
    for folder, config in request["cells"]:
        place = RunFolder(Path(request["out"]) / folder)
        same = pretraining_of(from_flat(config)) == pretraining_of(claim.cell.config)
        if same and folder != claim.cell.folder and not place.done:
            place.write_failure(f"its pre-training failed: {reason}", "")


class Worker:
    """A process in which the function `module:name` handles a request, on one core if one is given.

    What it says is put into a queue, with itself, and None when it has ended; what it prints goes to a log.
    """

    def __init__(self, function: str, request: Request, log: Path, queue: Queue[Any], core: int | None = None):
        self.core, self.cell, self.log = core, "", log
        log.parent.mkdir(parents=True, exist_ok=True)
        code = "import sys; from arb.lab.sweep import serve; serve(*sys.argv[1:])"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | ({} if core is None else ONE_THREAD)
        command = [sys.executable, "-P", "-c", code, function, "" if core is None else str(core)]
        # In a session of its own: Ctrl-C is for whoever starts it.
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=environment, text=True,
                start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(queue,), daemon=True).start()
        with suppress(BrokenPipeError):  # it has died already
            print(json.dumps(request), file=self.process.stdin, flush=True)

    def _listen(self, queue: Queue[Any]) -> None:
        with suppress(ValueError):  # of a line that a kill cut short
            for line in cast(IO[str], self.process.stdout):
                queue.put((self, json.loads(line)))
        queue.put((self, None))

    def death(self) -> str:
        """How it ended; empty if it did all that it was asked to do."""
        status = self.process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"its worker process {how}{' (out of memory?)' * (status == -signal.SIGKILL)}" if status else ""

    def printed(self) -> str:
        """The last of what it printed."""
        return self.log.read_text(errors="replace").strip()[-4000:]

    def close(self, seconds: float = 0.0) -> None:
        """Wait so long for it to end; then end it."""
        with self.process:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            self.process.kill()


def serve(function: str, core: str) -> None:
    """In the process of a worker: handle its request. Messages take standard output, and prints go to the log."""
    messages, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)
    pin(int(core)) if core else None
    request, (module, _, name) = json.loads(sys.stdin.readline()), function.partition(":")

    def say(message: Message) -> None:
        with lock, suppress(OSError):  # nobody may be there any more
            print(json.dumps(message, default=float), file=messages, flush=True)

    def stop_with_parent() -> None:
        os.read(0, 1)  # until it is closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    with stoppable(own_process=bool(core)) as asked_to_stop:
        getattr(importlib.import_module(module), name)(request, say, asked_to_stop)


def pin(core: int) -> None:
    """Keep this process on a core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [core])


# ---- the command -----------------------------------------------------------------------------------------------------
class Outcome(NamedTuple):
    """What became of the cells, by their folders: done now, finished before, and failed with a reason."""

    done: list[str]
    skipped: list[str]
    failed: dict[str, str]


class View:
    """A line for every run that ends, a row for every run at work, and how many are done."""

    def __init__(self, plan: Plan, shown: Screen | None = None):
        self.screen = shown or Screen(lambda _: None, rows_as_lines=False)
        self.screen.summary = self.summary
        self._all, self._done, self._failed = len(plan.cells), len(plan.cells) - len(plan.left), 0

    def hear(self, message: Message) -> None:
        match message:
            case {"event": "begins", "cell": cell}:
                self.screen.update(cell, cell)
            case {"event": "progress", "cell": cell, "phase": phase, "step": step, "total": total, "metrics": metrics}:
                score = {name: value for name, value in metrics.items() if name == "score"}
                self.screen.update(cell, f"{cell}  {PHASES[phase]}", step, total, score)
            case {"event": "done", "cell": cell, "score": score}:
                self._done += 1
                self.screen.drop(cell)
                self.screen.say(f"{cell}  {described({'score': score})}  ({self.summary()})")
            case {"event": "failed", "cell": cell, "reason": reason, "again": again}:
                self._failed += not again
                self.screen.drop(cell)
                self.screen.say(f"{cell}  failed{', will be tried again' if again else ''}: {reason}")
            case {"event": "notice", "text": text}:
                self.screen.say(text)

    def summary(self) -> str:
        return f"{self._done} of {count(self._all, 'run')} done" + f", {self._failed} failed" * (self._failed > 0)


def sweep(
    cells: Iterable[Cell] | Plan,
    out: str | Path = "",
    *,
    workers: int | None = None,
    ray: str | None = None,
    slice_seconds: float = 300.0,
    retry: int = 1,
    view: View | None = None,
) -> Outcome:
    """Run the cells of a grid below a folder; what is finished there is skipped, what was interrupted continues.

    Args:
        cells: made by `grid`, or a `plan` of them, which has the folder `out` already.
        out: the folder of the sweep.
        workers: processes on this machine, one per core if not given.
        ray: the address of a Ray cluster to work on; "" is the one at $RAY_ADDRESS, or one that is started here.
        slice_seconds: on Ray, seconds between two times that the work done so far is handed over.
        retry: how often a run is tried again that fails, or whose worker dies.
        view: what is shown meanwhile.
    """
    if (workers is not None and workers < 1) or retry < 0:
        raise DataError("--workers must be at least 1, --retry at least 0")
    todo = cells if isinstance(cells, Plan) else plan(cells, out)
    view = view or View(todo)
    if ray is not None:
        from arb.lab.ray import check_address, on_ray

        ray = check_address(ray)
    write_plan(todo)
    if todo.left:
        for cell in todo.left:
            RunFolder(todo.out / cell.folder).failure_mark.unlink(missing_ok=True)
        rows = [(cell.folder, flat(cell.config)) for cell in todo.left]
        request = {"out": str(todo.out), "cells": rows, "retry": retry}
        with stoppable() as asked_to_stop, own_datasets(todo.out / SHARED / DATASETS):
            if ray is None:
                _local(request, workers or len(cores()), view, asked_to_stop)
            else:
                on_ray(request | {"seconds": slice_seconds}, ray, view, asked_to_stop)
            if asked_to_stop():
                left = sum(not RunFolder(todo.out / cell.folder).done for cell in todo.left)
                raise Interrupted(f"stopped with {count(left, 'run')} left; run the same command to continue")
    folders = {cell.folder: RunFolder(todo.out / cell.folder) for cell in todo.left}
    skipped = [cell.folder for cell in todo.cells if cell.folder not in folders]
    failed = {name: folder.failure for name, folder in folders.items() if not folder.done}
    return Outcome([name for name in folders if name not in failed], skipped, failed)


@contextmanager
def own_datasets(folder: Path) -> Iterator[None]:
    """Remove the shared datasets before, which a killed sweep left, and after; of two sweeps the first does."""
    with ExitStack() as own:
        with suppress(DataError):
            own.enter_context(locked(folder.with_suffix(".lock"), "another sweep's"))
            shutil.rmtree(folder, ignore_errors=True)
            own.callback(shutil.rmtree, folder, ignore_errors=True)
        yield


def _local(request: Request, number: int, view: View, asked_to_stop: Stop) -> None:
    """Let workers do the work, one on each core; one that dies is replaced, and its run tried again or given up."""
    out, own, stopping = Path(request["out"]), cores(), False
    queue: Queue[tuple[Worker, Message | None]] = Queue()
    deaths: Counter[str] = Counter()

    def start(core: int | None) -> Worker:
        return Worker("arb.lab.sweep:work", request, out / SHARED / "workers.log", queue, core)

    def bury(worker: Worker, reason: str) -> None:
        folder = RunFolder(out / worker.cell)
        if not worker.cell:
            raise RuntimeError(f"a worker of the sweep does not start ({reason}):\n{worker.printed()}")
        deaths[worker.cell] += 1
        again = deaths[worker.cell] <= request["retry"]
        if not again:
            with suppress(DataError), locked(folder.lock, "another worker tries it again"):
                folder.write_failure(reason, worker.printed())
        view.hear({"event": "failed", "cell": worker.cell, "reason": reason, "again": again})

    workers = [start(own[i % len(own)]) for i in range(min(number, len(request["cells"])))]
    try:
        while workers:
            if asked_to_stop() and not stopping:
                stopping = True
                view.screen.say("Saving a checkpoint of every run; press Ctrl-C again to quit now")
                for worker in workers:
                    worker.process.terminate()
            with suppress(Empty):
                worker, message = queue.get(timeout=WAIT_SECONDS)
                if message is not None:
                    view.hear(message)
                    worker.cell = message["cell"] if message["event"] in ("begins", "progress") else ""
                    continue
                workers.remove(worker)
                reason = worker.death()
                worker.close()
                if reason and not stopping:
                    bury(worker, reason)
                    workers.append(start(worker.core))
    finally:
        for worker in workers:
            worker.close()
