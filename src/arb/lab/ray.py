"""Sweeps on Ray: a folder that is taken travels to a node as a task, and comes back after a slice of the work.

Nothing but Ray connects the machines; no storage need be shared. When a node dies, Ray repeats its tasks elsewhere, and
at most a slice of each is lost; a run ends in the same bytes however often it was cut.

Ray ends its driver at once when it loses the node through which it is connected, and blocks it when the head does not
answer. So the driver is a process of its own, and `on_ray` sees it end or fall silent.
"""

import hashlib
import importlib.util
import io
import logging
import os
import secrets
import shutil
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from arb.data.formats import split_columns
from arb.errors import DataError
from arb.lab import sweep
from arb.lab.config import Config, flat, from_flat
from arb.lab.folder import SHARED
from arb.lab.machine import cores
from arb.lab.sweep import Cell, Claim, Message, Request, Say, Stop, View, Worker, pretraining_of
from arb.suite.datasets import locate

MAX_RETRIES = 5  # of a slice whose node or process was lost
START_SECONDS, SILENT_SECONDS, LOOK_SECONDS, LEAVE_SECONDS = 300.0, 120.0, 5.0, 20.0
"""Without a word from the driver while it starts, and when the head is gone; between two words; for it to end."""


# ---- in the command --------------------------------------------------------------------------------------------------
def check_address(address: str) -> str:
    """The address of a cluster that answers, or "" to start one; Ray itself would try for minutes."""
    if "=" in address:
        raise DataError(f"{address!r} is not an address: put --ray behind the settings, or write --ray ADDRESS")
    if importlib.util.find_spec("ray") is None:
        raise DataError("--ray needs Ray: pip install 'arb-rl[ray]'")
    address = address or os.environ.get("RAY_ADDRESS") or ""
    try:
        _connect(address)
    except (OSError, ValueError, OverflowError) as problem:  # the last two are of names and ports that cannot be
        raise DataError(f"no Ray cluster answers at {address}: {problem}") from None
    return address


def _connect(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def on_ray(request: Request, address: str, view: View, asked_to_stop: Stop) -> None:
    """Let the nodes of a cluster do the work; without an address, start Ray on this machine for this sweep alone."""
    # Ray names sockets after its folder, whose path must be short.
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 40 else "/tmp"
    folder, queue = tempfile.mkdtemp(prefix="arb-", dir=short), Queue[Any]()
    own = {**request, "address": address, "folder": folder}
    driver = Worker("arb.lab.ray:drive", own, Path(folder) / "driver.log", queue)
    head, stopping, heard = "", False, time.monotonic()
    try:
        while True:
            if asked_to_stop() and not stopping:
                stopping = True
                view.screen.say("Cancelling the tasks; what they did since their last slice is lost")
                driver.process.terminate()
            message: Message | None = {"event": "silence"}
            with suppress(Empty):
                message, heard = queue.get(timeout=sweep.WAIT_SECONDS)[1], time.monotonic()
            if message is None and (stopping or not driver.death()):
                return
            if message is None or time.monotonic() - heard > (SILENT_SECONDS if head else START_SECONDS):
                if "Traceback" in driver.printed():
                    raise RuntimeError(f"the process that talks to Ray failed:\n{driver.printed()}")
                if head:
                    again = "finished slices are saved: start Ray again and run the same command to continue"
                    raise DataError(f"the head of the Ray cluster at {head} is gone; {again}")
                message = {"event": "refused", "reason": "it does not answer"}
            match message:
                case {"event": "connected"}:
                    head = message["head"]
                case {"event": "refused"}:
                    raise DataError(_refusal(address, message["reason"], driver.printed()))
                case _:
                    view.hear(message)
    finally:
        driver.close(LEAVE_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _refusal(address: str, reason: str, log: str) -> str:
    if any(word in reason + log for word in ("AuthToken", "uthentication")):
        tokens = "export the RAY_AUTH_MODE and RAY_AUTH_TOKEN with which its head was started (docs/sweep.md)"
        return f"the Ray cluster at {address} refuses this token: {tokens}"
    where = f"the Ray cluster at {address} cannot be used" if address else "Ray does not start on this machine"
    return f"{where}: {' '.join(reason.split())}"


# ---- in the driver ---------------------------------------------------------------------------------------------------
def drive(request: Request, say: Say, asked_to_stop: Stop) -> None:
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
    before, silent = dict[str, str](), 0
    while silent < 3:
        silent += 1
        with suppress(Exception):  # whatever Ray raises
            alive = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
            for node in before.keys() - alive.keys():
                lost = f"Ray lost the node {before[node]} (its raylet died or does not answer)"
                say({"event": "notice", "text": f"{lost}; its runs continue elsewhere"})
            before = alive
            _connect(head)
            silent = 0
            say({"event": "alive"})
        time.sleep(LOOK_SECONDS)
    os._exit(1)


class _Driver:
    """Folders as tasks of Ray, which keeps the queue."""

    def __init__(self, ray: Any, request: Request, say: Say):
        self._ray, self._request, self._say, self._out = ray, request, say, Path(request["out"])
        self._cells = [Cell(folder, from_flat(config)) for folder, config in request["cells"]]
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(run_slice)
        self._claims: dict[Any, Claim] = {}
        self._inputs: dict[tuple[str, ...], tuple[str, list[Any]]] = {}

    def work(self, asked_to_stop: Stop) -> None:
        while not asked_to_stop() and not all(sweep.is_settled(self._out, cell) for cell in self._cells):
            while claim := sweep.take(self._out, self._cells):
                self._say({"event": "begins", "cell": claim.cell.folder})
                self._send(claim)
            if not self._claims:
                time.sleep(sweep.WAIT_SECONDS)  # another sweep works on the rest
                continue
            for sent in self._ray.wait(list(self._claims), num_returns=1, timeout=sweep.WAIT_SECONDS)[0]:
                self._receive(sent, self._claims.pop(sent))
        for sent in self._claims:
            self._ray.cancel(sent, force=True)

    def _send(self, claim: Claim) -> None:
        note = self._name_of_pretraining(claim)
        kept = f"{SHARED}/{note.read_text() if note.exists() else 'none'}"
        state = packed({"run": claim.folder.path, kept: self._out / kept})
        task = {**self._request, "cells": [(claim.cell.folder, flat(claim.cell.config))]}
        self._claims[self._task.remote(task, state, *self._input(claim.cell.config))] = claim

    def _name_of_pretraining(self, claim: Claim) -> Path:
        """The file with the name under which a run's pre-training is kept: only a node with the data can tell it."""
        return self._out / SHARED / f"{pretraining_of(claim.cell.config)}.name"

    def _receive(self, sent: Any, claim: Claim) -> None:
        """Put a folder back into its place, and send it on if there is more to do."""
        try:
            messages, archive = self._ray.get(sent, timeout=10.0)
        except self._ray.exceptions.GetTimeoutError:  # its node died just now, and Ray repeats the task
            self._claims[sent] = claim
            return
        except self._ray.exceptions.RayError as problem:
            reason = f"Ray: {type(problem).__name__}: {(str(problem).splitlines() or ['no reason given'])[0]}"
            claim.folder.write_failure(reason, str(problem))
            self._say({"event": "failed", "cell": claim.cell.folder, "reason": reason, "again": False})
            claim.release()
            return
        with tempfile.TemporaryDirectory(prefix="arb-", dir=self._out / SHARED) as scratch:
            unpack(archive, Path(scratch))
            for kept in (path for path in (Path(scratch) / SHARED).glob("[0-9a-f]*") if path.is_dir()):
                if not (self._out / SHARED / kept.name).exists():
                    kept.replace(self._out / SHARED / kept.name)
                self._name_of_pretraining(claim).write_text(kept.name)
            put_back(Path(scratch) / "run", claim.folder.path)
        for message in messages:
            self._say(message)
            if message.get("phase") == "online":
                claim.pretraining.close()
            elif message["event"] == "failed" and not message["again"]:
                sweep.give_up_pretraining(claim, self._request, message["reason"])
        if sweep.is_settled(self._out, claim.cell):
            claim.release()
        else:
            self._send(claim)

    def _input(self, config: Config) -> tuple[str, list[Any]]:
        """The dataset and modules of a run, if they are files here (modules: below this folder), with their hash."""
        key = (config.task, config.env, config.agent, config.replay.strategy)
        if key not in self._inputs:
            parts: dict[str, Path] = {}
            with suppress(DataError):
                data = Path(split_columns(locate(config.task))[0])
                parts[f"data/{data.name}"] = data
            for top in (name.partition(":")[0].partition(".")[0] for name in key[1:] if ":" in name):
                spec = importlib.util.find_spec(top) if top.isidentifier() else None
                if spec and spec.origin:
                    path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
                    if Path.cwd() in path.resolve().parents and "site-packages" not in path.parts:
                        parts[f"modules/{path.name}"] = path
            content = packed(parts)
            self._inputs[key] = hashlib.sha256(content).hexdigest()[:24], [self._ray.put(content)]
        return self._inputs[key]


# ---- on a node -------------------------------------------------------------------------------------------------------
def run_slice(request: dict[str, Any], state: bytes, digest: str, content: list[Any]) -> tuple[list[Message], bytes]:
    """Work on a folder for some time: the last messages of the worker, and the folder as it is then."""
    import ray

    take_core()
    place, said = private_folder(), list[Message]()
    inputs = place / f"input-{digest}"
    if not inputs.exists():
        unpack(ray.get(content[0]), place / "unfinished")
        (place / "unfinished").replace(inputs)
    data = next((str(path) for path in (inputs / "data").glob("*")), None)
    (name, config), *_ = request["cells"]

    def say(message: Message) -> None:
        said[:] = [old for old in said if not old["event"] == message["event"] == "progress"]
        said.append({**message, "cell": name})

    with tempfile.TemporaryDirectory(dir=place) as scratch:
        unpack(state, Path(scratch))
        own = {"out": scratch, "cells": [("run", config)], "data": data}
        own |= {name: str(inputs / name) for name in ("modules", "datasets")}
        sweep.work({**request, **own}, say, lambda: False)
        return said, packed({part: Path(scratch) / part for part in ("run", SHARED)})


@cache
def take_core() -> socket.socket | None:
    """Keep this process on one core before JAX looks how many there are; Ray has set its number of threads.

    A core is taken by a name in Linux's abstract namespace, which the system frees. If all are taken, one is shared.
    """
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for core in cores():
        with suppress(OSError):
            taken.bind(f"\0arb-core-{core}")
            sweep.pin(core)
            return taken
    sweep.pin(cores()[os.getpid() % len(cores())])
    return None


@cache
def private_folder() -> Path:
    """For the tasks of this process; the folders of processes that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob("arb-ray-*-*"):
        if not Path(f"/proc/{left.name.split('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"arb-ray-{os.getpid()}-"))


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
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def put_back(source: Path, folder: Path) -> None:
    """Move a run's files into its folder, whose lock stays."""
    folder.mkdir(parents=True, exist_ok=True)
    # If this is killed, the run can continue: checkpoints come after the tables whose lengths they tell, DONE last.
    for path in sorted(source.iterdir(), key=lambda path: (path.name == "DONE", path.name == "checkpoint")):
        if path.is_dir():
            shutil.rmtree(folder / path.name, ignore_errors=True)
        path.replace(folder / path.name)
