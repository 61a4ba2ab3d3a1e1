"""Many runs: identical workers that take the next folder of a grid.

A folder with its lock is the scheduler. A worker takes the next folder that is neither DONE, nor FAILED, nor locked;
runs that share a pre-training wait for the one that does it, which holds a lock of its own meanwhile. So a worker that
dies loses nothing but its work since the last checkpoint, and any number of sweeps may work in one folder.

A worker is a process on one core, `python -m arb.lab.sweep`. It reads requests and writes messages, one JSON object per
line. XLA looks once how many cores there are and never splits a sum on a single one, so a run ends in the same bytes in
a sweep, on Ray, and alone on one core.
"""

import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from arb.data.tasks import task_of
from arb.errors import DataError, Interrupted
from arb.files import check_folder, digest, locked, read_json, write_text
from arb.lab.config import Config, flat, from_flat, pretraining_keys
from arb.lab.folder import PLAN, SHARED, RunFolder
from arb.lab.grid import Cell
from arb.lab.machine import cores, stoppable
from arb.progress import PHASES, Screen, count, described, screen
from arb.suite.datasets import locate

WAIT_SECONDS, SAVE_SECONDS = 0.5, 120.0
"""Between two looks for a folder that can be taken; between two checkpoints."""
Message = dict[str, Any]
Say = Callable[[Message], None]
Stop = Callable[[], bool]


# ---- the folder of a sweep -------------------------------------------------------------------------------------------
class Plan(NamedTuple):
    """The cells with the folders that they have in a sweep, and those of them that are not finished."""

    out: Path
    cells: list[Cell]
    left: list[Cell]

    def lines(self, one_by_one: bool) -> Iterator[str]:
        """How many runs and pre-trainings, and a line per task and agent, or per run."""
        shared = count(len({pretraining_of(cell.config) for cell in self.cells}), "pre-training")
        done = len(self.cells) - len(self.left)
        yield f"{count(len(self.cells), 'run')} ({done} finished), {shared}, in {self.out}"
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(f"  {cell.config.task}  {cell.config.agent}", []).append(cell)
        for place, members in groups.items():
            variants = dict.fromkeys(cell.folder.split("/")[2] for cell in members)
            seeds = sorted({cell.config.seed for cell in members})
            yield f"{place}  {', '.join(variants)}  seeds {', '.join(map(str, seeds))}"
        for cell in self.cells if one_by_one else ():
            yield f"  {'to do  ' if cell in self.left else 'done   '} {cell.folder}"


def plan(cells: Iterable[Cell], out: str | Path) -> Plan:
    """Find a folder for every cell, and refuse what would make every run of its kind fail; nothing is written.

    A run that plan.json knows keeps its folder, whatever today's grid would call it. Where a name was given to another
    run, the name with all given settings is taken.
    """
    out = Path(out).absolute()
    check_folder(out)
    planned = _planned(out)
    known = {_frozen(config): folder for folder, config in planned.items()}
    placed = []
    for cell in cells:
        asked = flat(cell.config)
        folder = known.get(_frozen(asked), cell.full if planned.get(cell.folder, asked) != asked else cell.folder)
        held = planned.get(folder, asked)
        if held != asked:
            key = next(key for key in sorted(held.keys() | asked.keys()) if held.get(key) != asked.get(key))
            raise DataError(
                f"{out} plans {folder} with {key} = {held.get(key)!r}, not {asked.get(key)!r}: "
                "choose another folder with --out"
            )
        RunFolder(out / folder).check_config(cell.config)
        placed.append(cell._replace(folder=folder))
    left = [cell for cell in placed if not RunFolder(out / cell.folder).finished(cell.config)]
    _check_possible(left)
    return Plan(out, placed, left)


def _frozen(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _planned(out: Path) -> dict[str, dict[str, Any]]:
    """The configurations in plan.json by their folders; a name that `grid` would not make is passed over."""
    if not (out / PLAN).exists():
        return {}
    try:
        planned = {str(cell["folder"]): dict(cell["config"]) for cell in read_json(out / PLAN)["cells"]}
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{out / PLAN} is damaged: move it away; the runs beside it keep their own config.json"
        ) from None
    name = r"[\w+=(),-][\w.+=(),-]*"
    return {folder: config for folder, config in planned.items() if re.fullmatch("/".join([name] * 4), folder)}


def _check_possible(cells: Sequence[Cell]) -> None:
    """Refuse data and environments that cannot be used, each looked at once; D4RL's files may be on other machines."""
    from arb.envs import make
    from arb.lab.setup import Setup

    for agent, task, env in dict.fromkeys((c.config.agent, c.config.task, c.config.env) for c in cells):
        known = task_of(task)
        if known is None and not locate(task).startswith("minari:"):
            Setup.of(next(c.config for c in cells if (c.config.agent, c.config.task) == (agent, task)))
        elif env or known:
            make(env or known.env).close()


def pretraining_of(config: Config) -> str:
    """A name for the pre-training of a run; runs with the same name share it."""
    return digest(pretraining_keys(config), {})[:24]


# ---- workers ---------------------------------------------------------------------------------------------------------
class Claim(NamedTuple):
    """A cell whose folder this process has locked, with its pre-training until that is there."""

    cell: Cell
    folder: RunFolder
    lock: ExitStack
    pretraining: ExitStack

    def pretrained(self) -> None:
        """The pre-training is there: others may go on from it."""
        self.pretraining.close()

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
    """Whether nothing is left to do for a cell: it is finished, or was given up."""
    return folder.failure_mark.exists() or folder.finished(cell.config)


def work(request: Mapping[str, Any], say: Say, asked_to_stop: Stop) -> None:
    """Take cells and run them until all are settled, or until asked to stop.

    Args:
        request: the folder `out` of the sweep, the `cells` with their folders and configurations, and how often to
            `retry` a failed run. It may name a file of `data` to read instead of what the configurations name, a
            folder of `modules` to import from, and `seconds` after which to save and stop.
        say: takes messages, each with an `event` and the folder of a `cell`.
        asked_to_stop: whether to save and stop.
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
    """Run a cell, again if it fails for a reason that may go away; why it failed for good stays in its folder.

    `datasets` holds the one of the last task, so that it is read once for all its runs.
    """
    from arb.lab.setup import Setup, load_data
    from arb.lab.training import run_locked

    config, phase = claim.cell.config, "pretrain"
    about, cache = {"cell": claim.cell.folder}, Path(request["out"]) / SHARED

    def tell(now: str, step: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal phase
        phase = now
        if phase == "online":
            claim.pretrained()
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


def serve(handle: Callable[[Mapping[str, Any], Say], None]) -> None:
    """Handle requests from standard input until there are no more; messages go to standard output.

    When the input ends, whoever made the requests is gone, and this process asks itself to stop.
    """
    messages, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)  # whatever else is printed must not get between the messages
    requests: queue.Queue[Mapping[str, Any] | None] = queue.Queue()

    def say(message: Message) -> None:
        with lock:
            messages.write(json.dumps(message) + "\n")
            messages.flush()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        requests.put(None)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    while (request := requests.get()) is not None:
        handle(request, say)
        say({"event": "end"})


class Messages(queue.Queue["tuple[Worker, Message | None]"]):
    """What workers say; None at the end of one."""


class Worker:
    """A process that serves requests, started on one core if one is given; its messages come through a queue."""

    def __init__(self, module: str, messages: Messages, core: int | None = None):
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        own = {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        if core is not None:
            own |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with _on_core(core):  # a child starts on its parent's cores, before it imports anything
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],  # modules of the current folder come last
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **own},
                text=True,
                start_new_session=True,  # Ctrl-C is for whoever makes the requests
            )
        self.core, self.cell = core, ""
        self._reader = threading.Thread(target=self._listen, args=(messages,), daemon=True)
        self._reader.start()

    def _listen(self, messages: Messages) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it died while it wrote
                messages.put((self, json.loads(line)))
        messages.put((self, None))

    def request(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()

    def death(self) -> str:
        """How a process that is gone ended."""
        status = self.process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"its worker process {how}{' (out of memory?)' if status == -signal.SIGKILL else ''}"

    def log(self) -> str:
        """The last of what it wrote to standard error."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-4000:]

    def close(self, seconds: float = 0.0) -> None:
        """End its requests and wait so long for it to end; then end it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@contextmanager
def _on_core(core: int | None) -> Iterator[None]:
    """Run on one core inside the block, where the system can pin a process."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- the command -----------------------------------------------------------------------------------------------------
class Outcome(NamedTuple):
    """What became of the cells, by their folders."""

    done: list[str]
    skipped: list[str]
    """Runs that were already finished."""
    failed: dict[str, str]
    """With the reason."""


class View:
    """Shows a sweep: a line for every run that ends, a row for every run at work, and how many are done."""

    def __init__(self, plan: Plan, shown: Screen | None = None):
        self.screen = shown or Screen(lambda _: None, rows_as_lines=False)
        self.screen.summary = self.summary
        self._all, self._done, self._failed = len(plan.cells), len(plan.cells) - len(plan.left), 0

    def hear(self, message: Message) -> None:
        """Show a message of a worker."""
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
        """How much is done, in one line."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {count(self._all, 'run')} done{failed}"


@contextmanager
def live_view(plan: Plan) -> Iterator[View]:
    """A view of a sweep on standard error."""
    with screen(rows_as_lines=False) as shown:
        yield View(plan, shown)


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
    with locked(todo.out / ".lock"):  # two sweeps may add to one plan
        rows = _planned(todo.out) | {cell.folder: flat(cell.config) for cell in todo.cells}
        text = json.dumps({"cells": [{"folder": f, "config": c} for f, c in rows.items()]}, indent=1)
        write_text(todo.out / PLAN, text)
    if todo.left:
        for cell in todo.left:
            RunFolder(todo.out / cell.folder).failure_mark.unlink(missing_ok=True)
        cells = [(cell.folder, flat(cell.config)) for cell in todo.left]
        request = {"out": str(todo.out), "cells": cells, "retry": retry}
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
    """Let workers do the work, one on each core; one that dies is replaced, and its run tried again."""
    own, messages, deaths = cores(), Messages(), dict[str, int]()

    def start(core: int) -> Worker:
        worker = Worker("arb.lab.sweep", messages, core)
        worker.request(request)
        return worker

    workers = [start(own[i % len(own)]) for i in range(min(number, len(request["cells"])))]
    stopping = False
    try:
        while workers:
            if asked_to_stop() and not stopping:
                stopping = True
                view.screen.say("Saving a checkpoint of every run; press Ctrl-C again to quit now")
                for worker in workers:
                    worker.process.terminate()
            try:
                worker, message = messages.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                continue
            if message is not None and message["event"] != "end":
                view.hear(message)
                worker.cell = message["cell"] if message["event"] in ("begins", "progress") else ""
                continue
            if worker not in workers:
                continue
            workers.remove(worker)
            if message is None and not stopping:
                workers.append(_replaced(worker, request, deaths, view, start))
            worker.close(WAIT_SECONDS)
    finally:
        for worker in workers:
            worker.close()


def _replaced(
    worker: Worker, request: Mapping[str, Any], deaths: dict[str, int], view: View, start: Callable[[int], Worker]
) -> Worker:
    """A new worker in the place of one that died; its run is tried again, or given up."""
    if not worker.cell:
        raise RuntimeError(f"a worker of the sweep does not start ({worker.death()}):\n{worker.log()}")
    deaths[worker.cell] = deaths.get(worker.cell, 0) + 1
    again = deaths[worker.cell] <= request["retry"]
    if not again:
        folder = RunFolder(Path(request["out"]) / worker.cell)
        with suppress(DataError), locked(folder.lock, "another worker tries it again"):
            folder.write_failure(worker.death(), worker.log())
    view.hear({"event": "failed", "cell": worker.cell, "reason": worker.death(), "again": again})
    assert worker.core is not None
    return start(worker.core)


if __name__ == "__main__":
    with stoppable(own_process=True) as _asked:
        serve(lambda request, say: work(request, say, _asked))
