"""The same jobs as tasks of Ray: each works in a scratch folder of its node and hands its result to the driver.

Nothing but Ray connects the machines; no storage need be shared. A task does at most a slice of some minutes, saves and
returns its folder, and the driver sends it on from there. When a node dies, Ray repeats the task elsewhere, and at most
that slice is lost. A run ends in the same bytes however often it was cut.
"""

import importlib.util
import itertools
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from arb.data.load import locate
from arb.errors import DataError
from arb.sweeps.ray_node import Parcel, carry_out, packed, unpack
from arb.sweeps.worker import Answer, Order

MAX_RETRIES = 5
"""How often Ray repeats a slice whose node or process was lost."""
LOOK_SECONDS = 5.0
"""Between two looks at the nodes. Ray itself ends a driver whose head does not answer for a minute."""
LOOKS = 3
"""Failed ones in a row after which the head is taken to be gone."""
GET_SECONDS = 10.0
"""For an answer that is here. If its node dies just then, Ray would wait for another, and nobody look at the head."""
_LONGEST_TEMPORARY = 40
"""Characters of a folder in which Ray can still name its sockets."""
_REASONS = {
    "NodeDiedError": "its node was lost",
    "WorkerCrashedError": "its Ray worker process died (out of memory?)",
    "LocalRayletDiedError": "the raylet of its node died",
    "OutOfMemoryError": "Ray ended it because its node ran out of memory",
    "ObjectStoreFullError": "Ray's object store is full: start the nodes with a larger --object-store-memory",
    "OutOfDiskError": "the disk to which Ray moves objects is full: free some space in its --temp-dir",
    "ObjectLostError": "data that Ray kept for it was lost with a node",
    "OwnerDiedError": "data that Ray kept for it was lost with the driver",
    "TaskCancelledError": "cancelled",
}
"""Ray's errors in plain words, by class."""


class RayCluster:
    """Takes orders as a `Pool` does; Ray keeps the queue."""

    def __init__(self, address: str | None, slice_seconds: float = 300.0):
        self._ray, self._leave = _connected(address)
        self._slice = slice_seconds
        self._task = self._ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(carry_out)
        self._underway: dict[Any, tuple[Hashable, Order]] = {}
        self._objects: dict[Path, Any] = {}
        self._stopping = False
        self._head = self._ray.get_runtime_context().gcs_address
        self._alive, self._looked, self._silent = self._nodes(), time.monotonic(), 0

    @property
    def size(self) -> int:
        """Cores of the cluster."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def seats(self) -> Iterator[int]:
        """There is always one more: Ray begins a task when a core is free."""
        return itertools.repeat(0)

    def give(self, _seat: int, key: Hashable, order: Order) -> None:
        """Send an order with all it needs."""
        folder, config = Path(order["folder"]), order["config"]
        kept = Path(order["cache"]) / order["kept"] if order.get("kept") else None
        parcel = Parcel(
            state=packed(folder) if folder.exists() else None,
            pretrained=[self._object(kept)] if kept is not None else None,
            **self._data(config["task"]),
            modules=plugins(config),
        )
        with self._connected():
            sent = self._task.remote({**order, "seconds": self._slice}, parcel)
        self._underway[sent] = (key, order)

    def hear(self, timeout: float) -> list[tuple[Any, Answer]]:
        """Answers by the key of their job, and `notice`s of lost nodes by none; a slice of a longer run is sent on."""
        found: list[tuple[Any, Answer]] = [(None, {"answer": "notice", "text": text}) for text in self._look()]
        if not self._underway:
            return found
        with self._connected():
            ready, _ = self._ray.wait(list(self._underway), num_returns=len(self._underway), timeout=timeout)
        for sent in ready:
            key, order = self._underway.pop(sent)
            try:
                with self._connected():
                    answers, archive = self._ray.get(sent, timeout=GET_SECONDS)
            except self._ray.exceptions.GetTimeoutError:
                self._underway[sent] = (key, order)
                continue
            except self._ray.exceptions.RayError as problem:
                what = "stopped" if self._stopping else "failed"
                found.append((key, {"answer": what, "reason": explained(problem), "traceback": str(problem)}))
                continue
            _receive(order, answers[-1], archive)
            if answers[-1]["answer"] == "stopped" and not self._stopping:
                answers.pop()
                self.give(0, key, order)
            found += [(key, answer) for answer in answers]
        return found

    def stop(self) -> None:
        """Cancel all tasks: what they did since their last slice is lost."""
        self._stopping = True
        for sent in self._underway:
            self._ray.cancel(sent, force=True)

    def close(self) -> None:
        """Leave the cluster; end one that was started here."""
        self._leave()

    def _look(self) -> Iterator[str]:
        """Say which nodes were lost since the last look; raise if the head is gone, before Ray ends this process."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            _refuse_silence(self._head)
        except DataError:
            self._silent += 1
            if self._silent >= LOOKS:
                raise self._gone() from None
            return
        self._silent, before = 0, self._alive
        self._alive = self._nodes()
        for node in before.keys() - self._alive.keys():
            yield f"Ray lost the node {before[node]} (its raylet died or does not answer); its runs continue elsewhere"

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Around a question to Ray: a socket that breaks under it belongs to the node through which we ask."""
        try:
            yield
        except self._ray.exceptions.RayError:  # of which some are timeouts, and those are OSErrors
            raise
        except OSError:
            raise self._gone() from None

    def _gone(self) -> DataError:
        return DataError(
            f"the head of the Ray cluster at {self._head} is gone; finished slices are saved: start Ray again "
            "and run the same command to continue"
        )

    def _nodes(self) -> dict[str, str]:
        """Addresses of the nodes that are alive, by their ids."""
        return {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}

    def _object(self, path: Path) -> Any:
        """A file or folder as an object of Ray, put there once; the driver owns it, so that it outlives any node."""
        if path not in self._objects:
            content = packed(path) if path.is_dir() else path.read_bytes()
            with self._connected():
                self._objects[path] = self._ray.put(content)
        return self._objects[path]

    def _data(self, task: str) -> dict[str, Any]:
        """The dataset, if it is a file here; else the nodes must know the task themselves."""
        try:
            kind, name = locate(task)
        except DataError:
            return {}
        path = Path(name)
        if kind == "minari" or not path.exists():
            return {}
        return {"data_name": str(path), "data_size": path.stat().st_size, "data": [self._object(path)]}


# ---- connecting ------------------------------------------------------------------------------------------------------
def _connected(address: str | None) -> tuple[Any, Callable[[], None]]:
    """Ray, connected to a cluster or to one started here, and what ends that."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None:
        _refuse_silence(address)
    with ExitStack() as stack:
        own = {} if address else _own_cluster(stack)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        stack.callback(ray.shutdown)
        heard = tempfile.TemporaryFile()  # noqa: SIM115 - Ray's own words, which come in dozens of lines
        try:
            with _standard_error(heard.fileno()):
                ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as problem:  # Ray raises whatever it likes: a bare Exception on a machine that is too busy
            heard.seek(0)
            raise DataError(_refused(address, f"{problem} {heard.read().decode(errors='replace')}")) from None
        finally:
            heard.close()
        if own and not ray.get_runtime_context().gcs_address.startswith("127.0.0.1:"):
            raise DataError("Ray was imported before, and would listen on all addresses: give --ray an ADDRESS")
        return ray, stack.pop_all().close
    raise AssertionError("unreachable")


def _own_cluster(stack: ExitStack) -> dict[str, Any]:
    """How to start Ray for this process alone: on the loopback address, with a token, in a private folder."""
    environment = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        # Ray would else write a token to the home folder, and every later cluster would ask for it.
        environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    stack.callback(_restore, {name: os.environ.get(name) for name in environment})
    os.environ.update(environment)
    place = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="arb-", dir=place if len(place) < _LONGEST_TEMPORARY else "/tmp")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    # Ray opens the folder that it is given to everyone: one inside stays private.
    return {"include_dashboard": False, "_temp_dir": str(Path(folder) / "ray")}


def _restore(environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@contextmanager
def _standard_error(file: int) -> Iterator[None]:
    """Send what this process and its libraries write to standard error into a file."""
    before = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _refused(address: str | None, said: str) -> str:
    """Why Ray could not be had, in one line."""
    if "AuthToken" in said or "uthentication" in said:
        return (
            f"the Ray cluster at {address} refuses this token: export the RAY_AUTH_MODE and RAY_AUTH_TOKEN with which "
            "its head was started (docs/sweep.md)"
        )
    where = f"the Ray cluster at {address} cannot be used" if address else "Ray does not start on this machine"
    return f"{where}: {said.strip().splitlines()[0]}"


def _refuse_silence(address: str) -> None:
    """Ask first whether anything listens there: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as problem:
        raise DataError(f"no Ray cluster answers at {address}: {problem}") from None


def explained(problem: BaseException) -> str:
    """An error of Ray in one line: what happened, or Ray's own first line."""
    for kind in type(problem).__mro__:
        if kind.__name__ in _REASONS:
            return f"Ray: {_REASONS[kind.__name__]}"
    return f"Ray: {type(problem).__name__}: {(str(problem).strip().splitlines() or ['no reason given'])[0]}"


# ---- what travels ----------------------------------------------------------------------------------------------------
def plugins(config: Mapping[str, Any]) -> dict[str, bytes]:
    """The modules that a configuration names as `module:Name` and that lie below the current folder, as archives.

    Others are installed packages, which every node must have.
    """
    found: dict[str, bytes] = {}
    for leaf in ("env", "agent", "replay.strategy"):
        module, colon, _ = str(config.get(leaf, "")).partition(":")
        top = module.partition(".")[0]
        spec = importlib.util.find_spec(top) if colon and top.isidentifier() else None
        if spec is None or spec.origin is None:
            continue
        path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        if path.suffix in (".py", "") and Path.cwd() in path.resolve().parents and "site-packages" not in path.parts:
            found[top] = packed(path, path.name)
    return found


def _receive(order: Order, last: Answer, archive: bytes) -> None:
    """Take in what a task hands over."""
    folder = Path(order["folder"])
    if "kept" in last:
        unpack(archive, Path(order["cache"]) / last["kept"])
        shutil.rmtree(folder, ignore_errors=True)
    elif archive:
        unpack(archive, folder)
