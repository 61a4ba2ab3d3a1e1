"""The process that talks to Ray: it sends orders on as tasks, and hands their results back.

Ray ends its driver, at once and without a word, when it loses the node through which it is connected, and blocks it
when the head does not answer. So the driver is a process of its own, which does nothing else. Whoever gave it the
orders sees it end or fall silent, and can say so.

It is given the address of a cluster, or none to start one, and a private folder. An order is a `task` with its
`number`, or `stop`. Answers are `connected`, `alive` every few seconds, `notice` of a lost node, and `result` with the
answers of a task and an archive of what it keeps; the last may be `refused` by Ray, `trouble` with a file, or `broken`.
When the orders end, it leaves the cluster.
"""

import hashlib
import importlib.util
import logging
import os
import queue
import secrets
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arb.data.load import locate
from arb.errors import DataError
from arb.lab.child import Order, Say, serve
from arb.lab.ray_node import Parcel, carry_out, packed

MAX_RETRIES = 5
"""How often Ray repeats a slice whose node or process was lost."""
LOOK_SECONDS = 5.0
"""Between two looks at the nodes."""
LOOKS = 3
"""Failed ones in a row after which the head is taken to be gone."""
GET_SECONDS = 10.0
"""For an answer that is here. If its node dies just then, Ray would wait for another."""
LEAVE_SECONDS = 20.0
"""To leave a cluster, and end one that was started here."""
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


def main(address: str, folder: str) -> None:
    """Connect, serve until the orders end, and leave."""
    orders, say = serve(at_end=lambda: _leave_at_last(folder))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own = {} if address else own_cluster(Path(folder))
    try:
        import ray

        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        head, size = ray.get_runtime_context().gcs_address, int(ray.cluster_resources().get("CPU", 1))
    except Exception as problem:  # Ray raises whatever it likes: a bare Exception on a machine that is too busy
        say({"answer": "refused", "reason": str(problem)})
        return
    say({"answer": "connected", "head": head, "size": size})
    threading.Thread(target=_look, args=(ray, head, say), daemon=True).start()
    try:
        Driver(ray, Path(folder), say).obey(orders)
    except ray.exceptions.RayError as problem:
        say({"answer": "refused", "reason": explained(problem)})
    except OSError as problem:
        say({"answer": "trouble", "problem": [problem.errno, problem.strerror, problem.filename]})
    except Exception:
        say({"answer": "broken", "traceback": traceback.format_exc()})
    else:
        orders.put(None)
    while orders.get() is not None:
        pass  # results that were not taken in yet lie in the folder
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)  # whoever gave the orders may have been killed


def own_cluster(folder: Path) -> dict[str, Any]:
    """How to start Ray for this process alone: on the loopback address, with a token, in a private folder."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        # Ray would else write a token to the home folder, and every later cluster would ask for it.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # Ray opens the folder that it is given to everyone: one inside stays private.
    return {"include_dashboard": False, "_temp_dir": str(folder / "ray")}


def silence(address: str) -> str:
    """Why nothing answers at an address, if so: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return ""
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as problem:  # the last two are of names and ports that cannot be
        return str(problem)
    return ""


def _leave_at_last(folder: str) -> None:
    """End this process even if Ray does not let it go."""
    time.sleep(LEAVE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _look(ray: Any, head: str, say: Say) -> None:
    """Say that the head answers, and which nodes were lost; end this process if it is gone. Blocked if it is silent."""
    before: dict[str, str] = {}
    silent = 0
    while True:
        alive = None if silence(head) else _nodes(ray)
        silent = silent + 1 if alive is None else 0
        if silent >= LOOKS:
            os._exit(1)
        if alive is not None:
            for node in before.keys() - alive.keys():
                text = f"Ray lost the node {before[node]} (its raylet died or does not answer); its runs continue"
                say({"answer": "notice", "text": f"{text} elsewhere"})
            say({"answer": "alive"})
            before = alive
        time.sleep(LOOK_SECONDS)


def _nodes(ray: Any) -> dict[str, str] | None:
    """Addresses of the nodes that are alive, by their ids; None if Ray does not know."""
    try:
        return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    except Exception:  # whatever Ray raises
        return None


class Driver:
    """Orders as tasks of Ray, which keeps the queue."""

    def __init__(self, ray: Any, folder: Path, say: Say):
        self._ray, self._folder, self._say = ray, folder, say
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(carry_out)
        self._underway: dict[Any, int] = {}
        self._objects: dict[Path, tuple[Any, str]] = {}
        self._stopping = False

    def obey(self, orders: "queue.Queue[Order | None]") -> None:
        """Send tasks and hear of them until the orders end."""
        while True:
            try:
                order = orders.get(timeout=0.0 if self._underway else 0.5)
            except queue.Empty:
                self.hear(0.2)
                continue
            if order is None:
                return
            if order["kind"] == "stop":
                self._stopping = True
                with self._asking():
                    for sent in self._underway:
                        self._ray.cancel(sent, force=True)
            else:
                parcel = self._parcel(order["order"])
                with self._asking():
                    sent = self._task.remote(order["order"], parcel)
                self._underway[sent] = order["number"]

    def hear(self, timeout: float) -> None:
        """Hand on the results that have come."""
        if not self._underway:
            return
        with self._asking():
            ready, _ = self._ray.wait(list(self._underway), num_returns=1, timeout=timeout)
        for sent in ready:
            number = self._underway.pop(sent)
            archive, answers = b"", []
            try:
                with self._asking():
                    answers, archive = self._ray.get(sent, timeout=GET_SECONDS)
            except self._ray.exceptions.GetTimeoutError:
                self._underway[sent] = number
                continue
            except self._ray.exceptions.RayError as problem:
                what = "stopped" if self._stopping else "failed"
                answers = [{"answer": what, "reason": explained(problem), "traceback": str(problem)}]
            place = self._folder / f"{number}.tar"
            place.write_bytes(archive)
            self._say({"answer": "result", "number": number, "answers": answers, "archive": str(place)})

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around a question to Ray: a socket that breaks under it belongs to the node through which we ask."""
        try:
            yield
        except self._ray.exceptions.RayError:  # of which some are timeouts, and those are OSErrors
            raise
        except OSError:
            os._exit(1)

    def _parcel(self, order: Order) -> Parcel:
        """All that an order needs."""
        folder, config = Path(order["folder"]), order["config"]
        kept = Path(order["cache"]) / order["kept"] if order.get("kept") else None
        return Parcel(
            state=packed(folder) if folder.exists() else None,
            pretrained=[self._object(kept)[0]] if kept is not None else None,
            **self._data(config["task"]),
            modules=plugins(config),
        )

    def _object(self, path: Path) -> tuple[Any, str]:
        """A file or folder as an object of Ray, and its hash; the driver owns it, so that it outlives any node."""
        if path not in self._objects:
            content = packed(path) if path.is_dir() else path.read_bytes()
            with self._asking():
                self._objects[path] = self._ray.put(content), hashlib.sha256(content).hexdigest()
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
        sent, digest = self._object(path)
        return {"data_name": str(path), "data_hash": digest, "data_packed": path.is_dir(), "data": [sent]}


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


def explained(problem: BaseException) -> str:
    """An error of Ray in one line: what happened, or Ray's own first line."""
    for kind in type(problem).__mro__:
        if kind.__name__ in _REASONS:
            return f"Ray: {_REASONS[kind.__name__]}"
    return f"Ray: {type(problem).__name__}: {(str(problem).strip().splitlines() or ['no reason given'])[0]}"


if __name__ == "__main__":
    main(*sys.argv[1:])
