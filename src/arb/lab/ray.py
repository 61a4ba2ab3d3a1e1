"""Sweeps on Ray: a folder that is taken travels to a node as a task, and comes back after a slice of the work.

Nothing but Ray connects the machines; no storage need be shared. A task unpacks the folder on its node, lets the same
worker process work on it as a local sweep has, and returns it. When a node dies, Ray repeats the task elsewhere, and at
most a slice is lost; a run ends in the same bytes however often it was cut.

Ray ends its driver at once when it loses the node through which it is connected, and blocks it when the head does not
answer. So the driver is a process of its own, `python -m arb.lab.ray`; `on_ray` sees it end or fall silent.
"""

import fcntl
import hashlib
import importlib.util
import io
import logging
import os
import queue
import secrets
import shutil
import socket
import stat
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from arb.data.formats import split_columns
from arb.errors import DataError
from arb.files import atomic_write, sha256_of
from arb.lab.config import from_flat
from arb.lab.folder import SHARED, RunFolder
from arb.lab.machine import cores, stoppable
from arb.lab.sweep import (
    Cell,
    Claim,
    Message,
    Say,
    View,
    Worker,
    give_up_pretraining,
    is_settled,
    pretraining_of,
    serve,
    take,
)  # fmt: skip
from arb.suite.datasets import locate

MAX_RETRIES = 5
"""How often Ray repeats a slice whose node or process was lost."""
START_SECONDS, SILENT_SECONDS = 300.0, 120.0
"""Without a word from the driver, which speaks every 5 s: while it starts Ray, and later, when the head is gone."""
LOOK_SECONDS = 5.0
LEAVE_SECONDS = 20.0
"""To leave a cluster, and end one that was started here."""
_REASONS = {
    "NodeDiedError": "its node was lost",
    "WorkerCrashedError": "its Ray worker process died (out of memory?)",
    "OutOfMemoryError": "Ray ended it because its node ran out of memory",
    "ObjectStoreFullError": "Ray's object store is full: start the nodes with a larger --object-store-memory",
    "OutOfDiskError": "the disk to which Ray moves objects is full: free some space in its --temp-dir",
}
"""Ray's errors in plain words, by class."""


# ---- in the command --------------------------------------------------------------------------------------------------
def on_ray(
    request: Mapping[str, Any], address: str, slice_seconds: float, view: View, asked_to_stop: Callable[[], bool]
) -> None:
    """Let the nodes of a cluster do the work; without an address, start Ray on this machine for this sweep alone."""
    # Ray names sockets after its folder, whose path must be short.
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 40 else "/tmp"
    folder = tempfile.mkdtemp(prefix="arb-", dir=short)
    messages: queue.Queue[tuple[Worker, Message | None]] = queue.Queue()
    driver = Worker("arb.lab.ray", messages)
    driver.request({**request, "address": address, "folder": folder, "seconds": slice_seconds})
    head, stopping, heard = "", False, time.monotonic()
    try:
        while True:
            if asked_to_stop() and not stopping:
                stopping = True
                view.screen.say("Cancelling the tasks; what they did since their last slice is lost")
                driver.process.terminate()
            try:
                _, message = messages.get(timeout=0.5)
                heard = time.monotonic()
            except queue.Empty:
                message = {"event": "silence"}
            silent = time.monotonic() - heard > (SILENT_SECONDS if head else START_SECONDS)
            if message is None or silent:
                if stopping:
                    return
                if "Traceback" in driver.log():
                    raise RuntimeError(f"the process that talks to Ray failed:\n{driver.log()}")
                raise DataError(
                    f"the head of the Ray cluster at {head} is gone; finished slices are saved: start Ray again and "
                    "run the same command to continue"
                    if head
                    else refusal(address, "" if message is None else "it does not answer", driver.log())
                )
            match message:
                case {"event": "connected", "head": found}:
                    head = found
                case {"event": "refused", "reason": reason}:
                    raise DataError(refusal(address, reason, driver.log()))
                case {"event": "end"}:
                    return
                case _:
                    view.hear(message)
    finally:
        driver.close(LEAVE_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def check_address(address: str) -> str:
    """The address of a cluster that answers, or "" to start one; Ray itself tries for minutes."""
    if "=" in address:
        raise DataError(f"{address!r} is not an address: put --ray behind the settings, or write --ray ADDRESS")
    if importlib.util.find_spec("ray") is None:
        raise DataError("--ray needs Ray: pip install 'arb-rl[ray]'")
    address = address or os.environ.get("RAY_ADDRESS") or ""
    if problem := unreachable(address):
        raise DataError(f"no Ray cluster answers at {address}: {problem}")
    return address


def unreachable(address: str) -> str:
    """Why nothing answers at an address, if so."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return ""
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as problem:  # the last two are of names and ports that cannot be
        return str(problem)
    return ""


def refusal(address: str, reason: str, log: str) -> str:
    """Why Ray could not be had, in one line."""
    if "AuthToken" in reason + log or "uthentication" in reason + log:
        return (
            f"the Ray cluster at {address} refuses this token: export the RAY_AUTH_MODE and RAY_AUTH_TOKEN with which "
            "its head was started (docs/sweep.md)"
        )
    where = f"the Ray cluster at {address} cannot be used" if address else "Ray does not start on this machine"
    return f"{where}: {' '.join((reason or (log.splitlines() or ['it does not say why'])[-1]).split())}"


# ---- in the driver ---------------------------------------------------------------------------------------------------
def drive(request: Mapping[str, Any], say: Say, asked_to_stop: Callable[[], bool]) -> None:
    """Connect, send every cell that can be taken as a task, and put what comes back into its folder."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {}
    if not request["address"]:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
            # Ray would else write a token to the home folder, and every later cluster would ask for it.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        # Ray opens the folder that it is given to everyone: one inside stays private.
        own = {"include_dashboard": False, "_temp_dir": f"{request['folder']}/ray"}
    try:
        import ray

        address = request["address"] or "local"
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        head = ray.get_runtime_context().gcs_address
    except Exception as problem:  # Ray raises whatever it likes: a bare Exception on a machine that is too busy
        say({"event": "refused", "reason": str(problem) or type(problem).__name__})
        return
    say({"event": "connected", "head": head})
    threading.Thread(target=_look, args=(ray, head, say), daemon=True).start()
    _Driver(ray, request, say).work(asked_to_stop)
    ray.shutdown()


def _look(ray: Any, head: str, say: Say) -> None:
    """Say that the head answers, and which nodes were lost; end this process if it is gone. Blocked if it is silent."""
    before: dict[str, str] = {}
    silent = 0
    while silent < 3:
        try:
            alive = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
            silent = 1 + silent if unreachable(head) else 0
        except Exception:  # whatever Ray raises
            alive, silent = before, silent + 1
        for node in before.keys() - alive.keys():
            text = f"Ray lost the node {before[node]} (its raylet died or does not answer); its runs continue elsewhere"
            say({"event": "notice", "text": text})
        if not silent:
            say({"event": "alive"})
        before = alive
        time.sleep(LOOK_SECONDS)
    os._exit(1)


class _Driver:
    """Folders as tasks of Ray, which keeps the queue."""

    def __init__(self, ray: Any, request: Mapping[str, Any], say: Say):
        self._ray, self._request, self._say = ray, request, say
        self._out = Path(request["out"])
        self._cells = [Cell(folder, from_flat(config)) for folder, config in request["cells"]]
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(run_slice)
        self._claims: dict[Any, Claim] = {}
        self._objects: dict[str, Any] = {}

    def work(self, asked_to_stop: Callable[[], bool]) -> None:
        """Until all cells are finished, or until asked to stop."""
        while not asked_to_stop():
            while claim := take(self._out, self._cells):
                self._say({"event": "begins", "cell": claim.cell.folder})
                self._send(claim)
            if not self._claims:
                if all(is_settled(RunFolder(self._out / cell.folder), cell) for cell in self._cells):
                    return
                time.sleep(0.5)  # another sweep works on the rest
                continue
            ready, _ = self._ray.wait(list(self._claims), num_returns=1, timeout=0.5)
            for sent in ready:
                self._receive(sent)
        for sent in self._claims:
            self._ray.cancel(sent, force=True)

    def _send(self, claim: Claim) -> None:
        config, folder = claim.cell.config, claim.folder.path
        note = self._out / SHARED / f"{pretraining_of(config)}.name"
        kept = self._out / SHARED / note.read_text() if note.exists() else None
        parts = {"run": folder} | ({f"{SHARED}/{kept.name}": kept} if kept and kept.is_dir() else {})
        task = {
            "cells": [(claim.cell.folder, dict(self._request["cells"])[claim.cell.folder])],
            "retry": self._request["retry"],
            "seconds": self._request["seconds"],
        }
        sent = self._task.remote(task, packed(parts), self._data(config.task), _modules(config))
        self._claims[sent] = claim

    def _receive(self, sent: Any) -> None:
        """Put a folder back into its place, and send it on if there is more to do."""
        claim = self._claims.pop(sent)
        cell, folder = claim.cell.folder, claim.folder
        try:
            messages, archive = self._ray.get(sent, timeout=10.0)
        except self._ray.exceptions.GetTimeoutError:  # its node died just now, and Ray repeats the task
            self._claims[sent] = claim
            return
        except self._ray.exceptions.RayError as problem:
            names = (kind.__name__ for kind in type(problem).__mro__)
            told = next((_REASONS[name] for name in names if name in _REASONS), "")
            reason = f"Ray: {told or f'{type(problem).__name__}: {(str(problem).splitlines() or [str()])[0]}'}"
            folder.write_failure(reason, str(problem))
            self._say({"event": "failed", "cell": cell, "reason": reason, "again": False, "phase": ""})
            claim.release()
            return
        with tempfile.TemporaryDirectory(prefix="arb-", dir=self._out / SHARED) as scratch:
            unpack(archive, Path(scratch))
            for kept in (Path(scratch) / SHARED).glob("[0-9a-f]*"):
                if kept.is_dir() and not (self._out / SHARED / kept.name).exists():
                    kept.replace(self._out / SHARED / kept.name)
                (self._out / SHARED / f"{pretraining_of(claim.cell.config)}.name").write_text(kept.name)
            put_back(Path(scratch) / "run", folder.path)
        for message in messages:
            self._say(message)
            if message["event"] == "progress" and message["phase"] == "online":
                claim.pretrained()
            if message["event"] == "failed" and message["phase"] == "pretrain" and not message["again"]:
                give_up_pretraining(claim, self._request, message["reason"])
        if is_settled(folder, claim.cell):
            claim.release()
        else:
            self._send(claim)

    def _data(self, task: str) -> tuple[str, str, list[Any]] | None:
        """The dataset, its hash and its content, if it is a file or folder here; else nodes must know the task."""
        try:
            name = split_columns(locate(task))[0]
        except DataError:
            return None
        if not Path(name).exists():  # Minari keeps its datasets where it likes
            return None
        if name not in self._objects:  # the driver owns it, so that it outlives any node
            content = packed({"data": Path(name)}) if Path(name).is_dir() else Path(name).read_bytes()
            self._objects[name] = (hashlib.sha256(content).hexdigest(), [self._ray.put(content)])
        return (name, *self._objects[name])


def _modules(config: Any) -> bytes:
    """The modules that a configuration names as `module:Name` and that lie below the current folder, packed.

    Others are installed packages, which every node must have.
    """
    found: dict[str, Path] = {}
    for name in (config.env, config.agent, config.replay.strategy):
        module, colon, _ = name.partition(":")
        top = module.partition(".")[0]
        spec = importlib.util.find_spec(top) if colon and top.isidentifier() else None
        if spec is None or spec.origin is None:
            continue
        path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        if path.suffix in (".py", "") and Path.cwd() in path.resolve().parents and "site-packages" not in path.parts:
            found[path.name] = path
    return packed(found) if found else b""


# ---- on a node -------------------------------------------------------------------------------------------------------
_WORKER: Worker | None = None
_MESSAGES: "queue.Queue[tuple[Worker, Message | None]]" = queue.Queue()
_CORE: IO[str] | None = None


def run_slice(
    request: dict[str, Any], state: bytes, data: tuple[str, str, list[Any]] | None, modules: bytes
) -> tuple[list[Message], bytes]:
    """Work on a folder for some time: the last messages of the worker, and the folder as it is then.

    The worker process is kept, with its compiled code, for the next task that Ray sends to this process.
    """
    global _WORKER
    for left in private_folder().glob("task-*-*"):  # of tasks that were killed, as those are that somebody cancels
        if not Path(f"/proc/{left.name.split('-')[1]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"task-{os.getpid()}-", dir=private_folder()) as scratch:
        unpack(state, Path(scratch))
        here = {"out": scratch, "data": _data_here(data), "modules": _modules_here(modules)}
        (name, config), *_ = request["cells"]
        _WORKER = _WORKER or Worker("arb.lab.sweep", _MESSAGES, _free_core())
        _WORKER.request({**request, **here, "cells": [("run", config)]})
        said: list[Message] = []
        while True:
            _, message = _MESSAGES.get()
            if message is None:
                reason, _WORKER = _WORKER.death(), None
                raise RuntimeError(reason)  # Ray repeats the task
            if message["event"] == "end":
                break
            said = [old for old in said if message["event"] != "progress" or old["event"] != "progress"]
            said.append({**message, "cell": name})
        return said, packed({part: Path(scratch) / part for part in ("run", SHARED) if (Path(scratch) / part).exists()})


@cache
def private_folder() -> Path:
    """A folder for what the tasks of one user share on a node, which nobody else can have prepared or can enter.

    One with a known name is used if it is really a folder, of this user, closed to others; else a fresh one.
    """
    folder = Path(tempfile.gettempdir()) / f"arb-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="arb-"))


def _free_core() -> int:
    """A core of this node that no other process of this kind has taken; if there is none, one to share."""
    global _CORE
    for core in cores():
        _CORE = (private_folder() / f"core-{core}").open("w")
        try:
            fcntl.flock(_CORE, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return core
        except BlockingIOError:
            _CORE.close()
    return cores()[os.getpid() % len(cores())]


def _data_here(data: tuple[str, str, list[Any]] | None) -> str | None:
    """The path of the dataset on this node: where the driver has it, if the same file is there, else a copy."""
    import ray

    if data is None:
        return None
    name, digest, content = data
    if Path(name).is_file() and _hash_of(Path(name), Path(name).stat().st_mtime_ns) == digest:
        return name
    copy = private_folder() / f"data-{digest[:24]}" / Path(name).name
    if not copy.exists():
        received = ray.get(content[0])
        if hashlib.sha256(received).hexdigest() != digest:
            raise DataError(f"the data of {name} was damaged on its way to a node")
        with atomic_write(copy) as temporary:
            temporary.write_bytes(received)
    return str(copy)


@cache
def _hash_of(path: Path, _changed: int) -> str:
    return sha256_of(path)


def _modules_here(archive: bytes) -> str | None:
    """A folder with the plug-ins that came along, to import from."""
    if not archive:
        return None
    folder = private_folder() / f"modules-{hashlib.sha256(archive).hexdigest()[:24]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            unpack(archive, Path(unfinished))
            shutil.copytree(unfinished, folder, dirs_exist_ok=True)
    return str(folder)


# ---- folders as bytes ------------------------------------------------------------------------------------------------
def packed(parts: Mapping[str, Path]) -> bytes:
    """Files and folders by their names in an archive; those that do not exist are left out, and so are locks."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in sorted(parts.items()):
            if path.exists():
                tar.add(path, arcname=name, filter=lambda entry: None if entry.name.endswith(".lock") else entry)
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """What was packed, below a folder and nowhere else."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def put_back(source: Path, folder: Path) -> None:
    """Move a run's files into its folder, whose lock stays; if this is killed meanwhile, the run can continue.

    Tables and policies come before the checkpoints that tell how long they were, and DONE comes last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda path: (path.name == "DONE", path.name == "checkpoint")):
        if path.is_dir():
            shutil.rmtree(folder / path.name, ignore_errors=True)
        path.replace(folder / path.name)


def main() -> None:
    """The driver's process."""
    with stoppable() as asked_to_stop:
        serve(lambda request, say: drive(request, say, asked_to_stop))


if __name__ == "__main__":
    from arb.lab import ray as module  # by its name, under which the nodes import it

    module.main()
