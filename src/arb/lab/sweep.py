"""Many runs: identical workers that take the next folder of a grid.

A folder with its lock is the scheduler. A worker takes the next folder that is neither DONE, nor FAILED, nor locked;
runs that share a pre-training wait for the one that does it, which holds a lock of its own meanwhile. So a worker that
dies loses nothing but its work since the last checkpoint, and any number of sweeps may work in one folder.

A worker is a process on one core. XLA looks once how many cores there are and never splits a sum on a single one, so a
run ends in the same bytes in a sweep, on Ray, and alone on one core.
"""

import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

from arb.errors import DataError, Interrupted
from arb.files import locked
from arb.lab.config import flat, from_flat
from arb.lab.folder import SHARED, RunFolder
from arb.lab.grid import Cell, Plan, plan, pretraining_of, write_plan
from arb.lab.machine import cores, stoppable
from arb.progress import PHASES, Screen, count, described

WAIT_SECONDS, SAVE_SECONDS = 0.5, 120.0  # between two looks for a folder to take; between two checkpoints
Message = dict[str, Any]
Say = Callable[[Message], None]
Stop = Callable[[], bool]
Target = Callable[[Mapping[str, Any], Say, Stop], None]
SPAWN = multiprocessing.get_context("spawn")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


# ---- workers ---------------------------------------------------------------------------------------------------------
class Claim(NamedTuple):
    """A cell whose folder this process has locked, with its pre-training until that is there."""

    cell: Cell
    folder: RunFolder
    lock: ExitStack
    pretraining: ExitStack
    """Closed when the pre-training is there: others may go on from it."""

    def release(self) -> None:
        self.pretraining.close()
        self.lock.close()


def take(out: Path, cells: Iterable[Cell]) -> Claim | None:
    """Claim the next cell that is not finished, has not failed, and that nobody works on or pre-trains for."""
    for cell in cells:
        claim = Claim(cell, RunFolder(out / cell.folder), ExitStack(), ExitStack())
        try:
            if not is_settled(claim.folder, cell):
                claim.lock.enter_context(locked(claim.folder.lock, "taken"))
                place = out / SHARED / f"{pretraining_of(cell.config)}.lock"
                claim.pretraining.enter_context(locked(place, "under way"))
                if not is_settled(claim.folder, cell):  # nobody was faster
                    return claim
        except DataError:
            pass
        claim.release()
    return None


def is_settled(folder: RunFolder, cell: Cell) -> bool:
    return folder.failure_mark.exists() or folder.finished(cell.config)


def work(request: Mapping[str, Any], say: Say, asked_to_stop: Stop) -> None:
    """Take cells and run them until all are settled, or until asked to stop.

    A request has the folder `out` of the sweep, the `cells` as folders and configurations, and how often to `retry` a
    failed run; perhaps a file of `data` to read instead of what the configurations name, a folder of `modules` to
    import from, and `seconds` after which to save and stop. Messages have an `event` and the folder of a `cell`.
    """
    if request.get("modules") and request["modules"] not in sys.path:
        sys.path.insert(0, request["modules"])
    until = time.monotonic() + (float("inf") if request.get("seconds") is None else request["seconds"])
    out, like = Path(request["out"]), ("", "")
    cells = [Cell(folder, from_flat(config)) for folder, config in request["cells"]]
    datasets: dict[str, Any] = {}
    while left := [cell for cell in cells if not is_settled(RunFolder(out / cell.folder), cell)]:
        # Runs of the same agent and task share compiled code.
        claim = take(out, sorted(left, key=lambda cell: (cell.config.agent, cell.config.task) != like))
        if claim is None:
            time.sleep(WAIT_SECONDS)
        else:
            like = (claim.cell.config.agent, claim.cell.config.task)
            try:
                _run(claim, request, datasets, say, lambda: asked_to_stop() or time.monotonic() > until)
            finally:
                claim.release()
        if asked_to_stop() or time.monotonic() > until:
            return


def _run(claim: Claim, request: Mapping[str, Any], datasets: dict[str, Any], say: Say, stop: Stop) -> None:
    """Run a cell, again if it fails for a reason that may go away; `datasets` keeps that of the last task."""
    from arb.lab.setup import Setup, load_data
    from arb.lab.training import run_locked

    config, phase = claim.cell.config, "pretrain"
    about, cache = {"cell": claim.cell.folder}, Path(request["out"]) / SHARED

    def tell(now: str, step: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal phase
        phase = now
        if phase == "online":
            claim.pretraining.close()
        say({"event": "progress", **about, "phase": phase, "step": step, "total": total, "metrics": metrics})

    for attempt in itertools.count():
        say({"event": "begins", **about})
        try:
            if config.task not in datasets:
                datasets.clear()
                datasets[config.task] = load_data(config.task, request.get("data"))
            setup = Setup.of(config, datasets[config.task])
            result = run_locked(config, claim.folder, cache, tell, SAVE_SECONDS, setup, stop=stop)
            say({"event": "done", **about, "score": result.last})
        except Interrupted as stopped:
            say({"event": "stopped", **about, "reason": str(stopped)})
        except Exception as failure:
            text, explained = " ".join(str(failure).split()), isinstance(failure, DataError)
            reason = text if explained else f"{type(failure).__name__}: {text}"
            again = attempt < request["retry"] and not explained  # what is explained would fail in the same way
            say({"event": "failed", **about, "reason": reason, "again": again, "phase": phase})
            if again:
                continue
            claim.folder.write_failure(reason, traceback.format_exc())
            if phase == "pretrain":
                give_up_pretraining(claim, request, reason)
        return


def give_up_pretraining(claim: Claim, request: Mapping[str, Any], reason: str) -> None:
    """Mark the runs that would have started from the same pre-training: it would fail again."""
    group = pretraining_of(claim.cell.config)
    for folder, config in request["cells"]:
        place = RunFolder(Path(request["out"]) / folder)
        if folder != claim.cell.folder and pretraining_of(from_flat(config)) == group and not place.done:
            place.write_failure(f"its pre-training failed: {reason}", "")


class Worker:
    """A process for one request, on one core if one is given; `log` takes what it prints, `cell` is its run."""

    def __init__(self, target: Target, request: Mapping[str, Any], log: Path, core: int | None = None):
        self.core, self.cell, self.log = core, "", log
        self.messages, theirs = SPAWN.Pipe(duplex=False)  # of its own: one that dies while it writes harms no other
        self.process = SPAWN.Process(target=_serve, args=(target, request, theirs, log, core is not None))
        with _inherited(core):
            self.process.start()
        theirs.close()

    def receive(self) -> Message | None:
        """Its next message; None if it died."""
        try:
            return cast(Message, self.messages.recv())
        except (EOFError, OSError):
            return None

    def death(self) -> str:
        """How a process that is gone ended."""
        self.process.join()
        status = self.process.exitcode or 0
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"its worker process {how}{' (out of memory?)' if status == -signal.SIGKILL else ''}"

    def printed(self) -> str:
        """The last of what it printed."""
        return self.log.read_text(errors="replace").strip()[-4000:] if self.log.exists() else ""

    def close(self, seconds: float = 0.0) -> None:
        """Wait so long for it to end; then end it."""
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        self.messages.close()


def _serve(target: Target, request: Mapping[str, Any], messages: Connection, log: Path, alone: bool) -> None:
    """In the process of a worker: handle its request, then say "end"."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    lock, parent = threading.Lock(), cast(Any, multiprocessing.parent_process())

    def say(message: Message) -> None:
        with lock, suppress(OSError):  # nobody may be there any more
            messages.send(message)

    def stop_with_parent() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    with stoppable(own_process=alone) as asked_to_stop:
        target(request, say, asked_to_stop)
    say({"event": "end"})


@contextmanager
def _inherited(core: int | None) -> Iterator[None]:
    """What a process that is started inside the block has before it imports anything."""
    resource_tracker.ensure_running()  # it would unblock the signal
    main, own, environment = sys.modules["__main__"], cores(), dict(os.environ)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for whoever starts it
    sys.modules["__main__"] = ModuleType("__main__")  # the user's script is not run again
    os.environ |= ({} if core is None else ONE_THREAD) | {"PYTHONSAFEPATH": "1"}  # the current folder hides no module
    pin(*own if core is None else [core])
    try:
        yield
    finally:
        pin(*own)
        for key in os.environ.keys() - environment.keys():
            del os.environ[key]
        os.environ |= environment
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def pin(*chosen: int) -> None:
    """Keep this thread, and all that it starts, on these cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)


# ---- the command -----------------------------------------------------------------------------------------------------
class Outcome(NamedTuple):
    """What became of the cells, by their folders: done now, finished before, and failed with a reason."""

    done: list[str]
    skipped: list[str]
    failed: dict[str, str]


class View:
    """Shows a sweep: a line for every run that ends, a row for every run at work, and how many are done."""

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
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {count(self._all, 'run')} done{failed}"


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
        cells: made by `grid`, or a `plan` of them.
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
        with stoppable() as asked_to_stop:
            if ray is None:
                _local(request, workers or len(cores()), view, asked_to_stop)
            else:
                on_ray(request | {"seconds": slice_seconds}, ray, view, asked_to_stop)
            if asked_to_stop():
                left = sum(not RunFolder(todo.out / cell.folder).done for cell in todo.left)
                raise Interrupted(f"stopped with {count(left, 'run')} left; run the same command to continue")
    left_folders = {cell.folder: RunFolder(todo.out / cell.folder) for cell in todo.left}
    return Outcome(
        done=[name for name, folder in left_folders.items() if folder.done],
        skipped=[cell.folder for cell in todo.cells if cell.folder not in left_folders],
        failed={name: folder.failure for name, folder in left_folders.items() if not folder.done},
    )


def _local(request: Mapping[str, Any], number: int, view: View, asked_to_stop: Stop) -> None:
    """Let workers do the work, one on each core; one that dies is replaced, and its run tried again or given up."""
    out, own, stopping = Path(request["out"]), cores(), False
    workers: dict[Any, Worker] = {}
    deaths: Counter[str] = Counter()

    def start(core: int | None) -> None:
        worker = Worker(work, request, out / SHARED / "workers.log", core)
        workers[worker.messages] = worker

    def bury(worker: Worker) -> None:
        reason, folder = worker.death(), RunFolder(out / worker.cell)
        if not worker.cell:
            raise RuntimeError(f"a worker of the sweep does not start ({reason}):\n{worker.printed()}")
        deaths[worker.cell] += 1
        again = deaths[worker.cell] <= request["retry"]
        if not again:
            with suppress(DataError), locked(folder.lock, "another worker tries it again"):
                folder.write_failure(reason, worker.printed())
        view.hear({"event": "failed", "cell": worker.cell, "reason": reason, "again": again})

    try:
        for i in range(min(number, len(request["cells"]))):
            start(own[i % len(own)])
        while workers:
            if asked_to_stop() and not stopping:
                stopping = True
                view.screen.say("Saving a checkpoint of every run; press Ctrl-C again to quit now")
                for worker in workers.values():
                    worker.process.terminate()
            for ready in wait(list(workers), WAIT_SECONDS):
                worker = workers[ready]
                message = worker.receive()
                if message is not None and message["event"] != "end":
                    view.hear(message)
                    worker.cell = message["cell"] if message["event"] in ("begins", "progress") else ""
                    continue
                if message is None and not stopping:
                    bury(worker)
                    start(worker.core)
                workers.pop(ready).close(WAIT_SECONDS)
    finally:
        for worker in workers.values():
            worker.close()
