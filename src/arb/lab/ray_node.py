"""What happens on a node of Ray: a task unpacks what it was sent, lets a worker do it, and packs the result."""

import fcntl
import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from arb.files import atomic_write, sha256_of
from arb.lab.child import Answer, Order
from arb.lab.machine import cores
from arb.lab.pool import Worker


class Parcel(NamedTuple):
    """What a task needs besides its order; objects of Ray are fetched where they are used."""

    state: bytes | None
    pretrained: Any = None
    data_name: str = ""
    """Where the driver has its dataset."""
    data_hash: str = ""
    """Of that file, or of the archive of that folder."""
    data_packed: bool = False
    """Whether it is a folder, which travels as an archive."""
    data: Any = None
    modules: Mapping[str, bytes] = {}


def carry_out(order: Order, parcel: Parcel) -> tuple[list[Answer], bytes]:
    """On a node: do what an order says in a scratch folder; the answers, and what is to be kept, as an archive."""
    import ray

    _clear()
    with tempfile.TemporaryDirectory(prefix=f"task-{os.getpid()}-", dir=private_folder()) as scratch:
        folder, cache = Path(scratch) / "run", Path(scratch) / "cache"
        cache.mkdir()
        if parcel.state is not None:
            unpack(parcel.state, folder)
        if parcel.pretrained is not None:
            unpack(ray.get(parcel.pretrained[0]), cache / order["kept"])
        here = {
            "folder": str(folder),
            "cache": str(cache),
            "data": _data_here(parcel),
            "modules": _modules_here(parcel),
        }
        answers = _ask({**order, **here})
        kept = cache / answers[-1]["kept"] if "kept" in answers[-1] else folder
        return answers, packed(kept) if kept.exists() else b""


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
    place = private_folder()
    for core in cores():
        _CORE = (place / f"core-{core}").open("w")
        try:
            fcntl.flock(_CORE, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return core
        except BlockingIOError:
            _CORE.close()
    return cores()[os.getpid() % len(cores())]


def _clear() -> None:
    """Remove what tasks left that were killed, as those are that somebody cancels."""
    for folder in private_folder().glob("task-*-*"):
        try:
            os.kill(int(folder.name.split("-")[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)


def _data_here(parcel: Parcel) -> str | None:
    """The path of the dataset on this node: where the driver has it, if the same file is there, else a copy."""
    import ray

    path = Path(parcel.data_name)
    if not parcel.data_name or (path.is_file() and _hash(path, path.stat().st_mtime_ns) == parcel.data_hash):
        return parcel.data_name or None
    copy = private_folder() / f"data-{parcel.data_hash[:24]}" / path.name
    if not copy.exists():
        content = ray.get(parcel.data[0])
        if parcel.data_packed:
            unpack(content, copy)
        else:
            with atomic_write(copy) as temporary:
                temporary.write_bytes(content)
    return str(copy)


@cache
def _hash(path: Path, _changed: int) -> str:
    """Of a file as it was when it was last changed."""
    return sha256_of(path)


def _modules_here(parcel: Parcel) -> str | None:
    """A folder with the plug-ins that came along, to import from."""
    if not parcel.modules:
        return None
    content = b"".join(name.encode() + archive for name, archive in sorted(parcel.modules.items()))
    folder = private_folder() / f"modules-{hashlib.sha256(content).hexdigest()[:24]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            for archive in parcel.modules.values():
                with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                    tar.extractall(unfinished, filter="data")
            shutil.copytree(unfinished, folder, dirs_exist_ok=True)
    return str(folder)


def packed(path: Path, name: str = ".") -> bytes:
    """A folder or file as the bytes of an archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(path, arcname=name)
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
