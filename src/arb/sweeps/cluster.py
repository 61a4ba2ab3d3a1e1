"""The same jobs on Ray's core tasks: each works in a scratch folder of its node and hands its result to the driver.

Nothing but Ray connects the machines; no storage need be shared. A task does at most a slice of some minutes, saves and
returns its folder, and the driver sends it on from there: when a node dies, Ray runs the task again elsewhere, and what
is lost is that slice. A run ends in the same bytes however often it was cut.
"""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from arb.data.load import locate
from arb.errors import DataError
from arb.files import whole
from arb.sweeps.pool import Worker, cores
from arb.sweeps.worker import Answer, Order

MAX_RETRIES = 5
"""How often Ray repeats a slice whose node or process was lost."""


class Parcel(NamedTuple):
    """What a task needs besides its order; objects of Ray are fetched where they are used."""

    state: bytes | None
    pretrained: Any = None
    data_name: str = ""
    data_size: int = 0
    data: Any = None


class Cluster:
    """Takes orders as a `Pool` does; Ray keeps the queue."""

    def __init__(self, address: str | None, slice_seconds: float = 300.0):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        _refuse_silence(address)
        alone = address is None and "RAY_ADDRESS" not in os.environ
        try:
            ray.init(address=address, log_to_driver=False, **({"include_dashboard": False} if alone else {}))
        except ConnectionError as problem:
            raise DataError(f"no Ray cluster answers at {address}: {problem}") from None
        self._ray, self._slice = ray, slice_seconds
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(carry_out)
        self._underway: dict[Any, tuple[Hashable, Order]] = {}
        self._objects: dict[Path, Any] = {}
        self._stopping = False

    @property
    def size(self) -> int:
        """Cores of the cluster."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def seats(self) -> Iterator[int]:
        """There is always one more: Ray begins a task when a core is free."""
        return itertools.repeat(0)

    def give(self, _seat: int, key: Hashable, order: Order) -> None:
        """Send an order with all it needs."""
        folder = Path(order["folder"])
        kept = Path(order["cache"]) / order["kept"] if order.get("kept") else None
        parcel = Parcel(
            state=packed(folder) if folder.exists() else None,
            pretrained=[self._object(kept)] if kept is not None else None,
            **self._data(order["config"]["task"]),
        )
        sent = self._task.remote({**order, "seconds": self._slice}, parcel)
        self._underway[sent] = (key, order)

    def hear(self, timeout: float) -> list[tuple[Any, Answer]]:
        """Answers that have come; a slice that is over, but not the run, is sent on."""
        if not self._underway:
            return []
        ready, _ = self._ray.wait(list(self._underway), num_returns=len(self._underway), timeout=timeout)
        found: list[tuple[Any, Answer]] = []
        for sent in ready:
            key, order = self._underway.pop(sent)
            try:
                answers, archive = self._ray.get(sent)
            except self._ray.exceptions.RayError as problem:
                what = "stopped" if self._stopping else "failed"
                found.append((key, {"answer": what, "reason": f"Ray: {_first_line(problem)}", "traceback": ""}))
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
        """Leave the cluster."""
        self._ray.shutdown()

    def _object(self, path: Path) -> Any:
        """A file or folder as an object of Ray, put there once; the driver owns it, so that it outlives any node."""
        if path not in self._objects:
            self._objects[path] = self._ray.put(packed(path) if path.is_dir() else path.read_bytes())
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


def _refuse_silence(address: str | None) -> None:
    """Ask first whether anything listens there: Ray itself tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as problem:
        raise DataError(f"no Ray cluster answers at {address}: {problem}") from None


def carry_out(order: Order, parcel: Parcel) -> tuple[list[Answer], bytes]:
    """On a node: do what an order says in a scratch folder; the answers, and what is to be kept, as an archive."""
    import ray

    with tempfile.TemporaryDirectory(prefix="arb-") as scratch:
        folder, cache = Path(scratch) / "run", Path(scratch) / "cache"
        cache.mkdir()
        if parcel.state is not None:
            unpack(parcel.state, folder)
        if parcel.pretrained is not None:
            unpack(ray.get(parcel.pretrained[0]), cache / order["kept"])
        here = {"folder": str(folder), "cache": str(cache), "data": _data_here(parcel)}
        answers = _ask({**order, **here})
        kept = cache / answers[-1]["kept"] if "kept" in answers[-1] else folder
        return answers, packed(kept) if kept.exists() else b""


def packed(folder: Path) -> bytes:
    """A folder as the bytes of an archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, arcname=".")
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Put an archive in the place of a folder: whole, or not at all."""
    unfinished = folder.with_name(f".{folder.name}.unpacked")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(unfinished, filter="data")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.replace(folder)


def _receive(order: Order, last: Answer, archive: bytes) -> None:
    """Take in what a task hands over."""
    folder = Path(order["folder"])
    if "kept" in last:
        unpack(archive, Path(order["cache"]) / last["kept"])
        shutil.rmtree(folder, ignore_errors=True)
    elif archive:
        unpack(archive, folder)


_WORKER: Worker | None = None
_CORE: IO[str] | None = None


def _ask(order: Order) -> list[Answer]:
    """Let this process's worker do it; it is kept, with its compiled code, for the next task that Ray sends here."""
    global _WORKER
    if _WORKER is None:
        _WORKER = Worker(_free_core())
    _WORKER.order(order)
    told: list[Answer] = []
    for answer in _WORKER.answers():
        if answer["answer"] != "told":
            return [*told[-1:], answer]
        told.append(answer)
    dead, _WORKER = _WORKER, None
    answer = dead.death()
    dead.close()
    return [answer]


def _free_core() -> int:
    """A core of this node that no other process of this kind has taken; if there is none, one to share."""
    global _CORE
    place = Path(tempfile.gettempdir()) / f"arb-cores-{os.getuid()}"
    place.mkdir(exist_ok=True)
    for core in cores():
        _CORE = (place / str(core)).open("w")
        try:
            fcntl.flock(_CORE, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return core
        except BlockingIOError:
            _CORE.close()
    return cores()[os.getpid() % len(cores())]


def _data_here(parcel: Parcel) -> str | None:
    """The path of the dataset on this node: where the driver has it, if a file of its size is there, else a copy."""
    import ray

    path = Path(parcel.data_name)
    if not parcel.data_name or (path.exists() and path.stat().st_size == parcel.data_size):
        return parcel.data_name or None
    session = ray.get_runtime_context().get_job_id()
    copy = Path(tempfile.gettempdir()) / f"arb-data-{os.getuid()}" / session / path.name
    if not copy.exists() or copy.stat().st_size != parcel.data_size:
        with whole(copy) as temporary:
            temporary.write_bytes(ray.get(parcel.data[0]))
    return str(copy)


def _first_line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {(str(problem).strip().splitlines() or ['no reason given'])[0]}"
