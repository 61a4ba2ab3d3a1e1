"""The parts of running on Ray that need no cluster: what is packed, where it is put, and how errors are told."""

import errno
import hashlib
import os
import queue
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from arb import DataError
from arb.lab import ray_node
from arb.lab.ray_cluster import SILENT_SECONDS, RayCluster, refused
from arb.lab.ray_driver import Driver, explained, plugins, silence
from arb.lab.ray_node import Parcel, _data_here, _modules_here, packed, private_folder, unpack


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    private_folder.cache_clear()
    yield folder
    private_folder.cache_clear()


def test_a_folder_comes_back_whole_and_replaces_what_was_there(tmp_path):
    (tmp_path / "a" / "checkpoint").mkdir(parents=True)
    (tmp_path / "a" / "checkpoint" / "state").write_bytes(b"\x00\xff")
    archive = packed(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "old").touch()
    unpack(archive, tmp_path / "b")
    assert [str(path.relative_to(tmp_path / "b")) for path in sorted((tmp_path / "b").rglob("*"))] == [
        "checkpoint",
        "checkpoint/state",
    ]
    assert (tmp_path / "b" / "checkpoint" / "state").read_bytes() == b"\x00\xff"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_archive_writes_nowhere_else(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("/etc")
    with pytest.raises(Exception, match="link"):
        unpack(packed(tmp_path / "a"), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_the_shared_folder_is_closed_to_others_and_used_again(scratch):
    folder = private_folder()
    assert folder == scratch / f"arb-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private_folder.cache_clear()
    assert private_folder() == folder


@pytest.mark.parametrize("prepared", ["symlink", "dangling", "file", "open"])
def test_what_somebody_else_may_have_prepared_is_not_used(scratch, tmp_path, prepared):
    known, elsewhere = scratch / f"arb-{os.getuid()}", tmp_path / "elsewhere"
    if prepared == "symlink":
        elsewhere.mkdir(mode=0o700)
    if prepared in ("symlink", "dangling"):
        known.symlink_to(elsewhere)
    elif prepared == "file":
        known.touch()
    else:
        known.mkdir()
        known.chmod(0o777)
    folder = private_folder()
    assert folder not in (known, elsewhere)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


def test_a_core_is_taken_by_one_process_only(scratch, monkeypatch):
    monkeypatch.setattr(ray_node, "cores", lambda: [3, 5])
    assert ray_node._free_core() == 3
    first = ray_node._CORE
    assert ray_node._free_core() == 5
    second = ray_node._CORE
    assert ray_node._free_core() in (3, 5)  # none is left: one is shared
    first.close()
    assert ray_node._free_core() == 3
    second.close()
    ray_node._CORE.close()


def sent(content: bytes, name, monkeypatch, **more) -> Parcel:
    """A parcel with a dataset; Ray's part is to hand over the object."""
    monkeypatch.setattr(pytest.importorskip("ray"), "get", lambda given: given)
    digest = hashlib.sha256(content).hexdigest()
    return Parcel(None, data_name=str(name), data_hash=digest, data=[content], **more)


def test_data_with_the_same_content_is_read_where_it_is(scratch, tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    path.write_bytes(b"1234")
    assert _data_here(sent(b"1234", path, monkeypatch)) == str(path)
    assert _data_here(Parcel(None)) is None


def test_data_of_the_same_name_and_size_is_not_mistaken_for_another(scratch, tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    path.write_bytes(b"1234")
    for content in (b"abcd", b"efgh", b"abcd"):
        copy = Path(_data_here(sent(content, path, monkeypatch)))
        assert copy != path
        assert (copy.name, copy.read_bytes()) == ("data.npz", content)
    path.write_bytes(b"efgh")
    assert _data_here(sent(b"efgh", path, monkeypatch)) == str(path)


def test_a_folder_of_data_arrives_as_a_folder(scratch, tmp_path, monkeypatch):
    (tmp_path / "lerobot" / "meta").mkdir(parents=True)
    (tmp_path / "lerobot" / "meta" / "info.json").write_text("{}")
    archive = packed(tmp_path / "lerobot")
    copy = Path(_data_here(sent(archive, "/nowhere/lerobot", monkeypatch, data_packed=True)))
    assert (copy.name, (copy / "meta" / "info.json").read_text()) == ("lerobot", "{}")


def test_what_killed_tasks_left_is_cleared_and_nothing_else(scratch):
    folder = private_folder()
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"task-{dead.pid}-x", f"task-{os.getpid()}-x", "data-x"):
        (folder / name).mkdir()
    ray_node._clear()
    assert sorted(path.name for path in folder.iterdir()) == ["data-x", f"task-{os.getpid()}-x"]


def test_plug_ins_below_the_current_folder_travel_and_installed_ones_do_not(scratch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lone_plugin.py").write_text("VALUE = 1")
    (tmp_path / "plugin_box").mkdir()
    (tmp_path / "plugin_box" / "__init__.py").touch()
    (tmp_path / "plugin_box" / "part.py").write_text("VALUE = 2")
    (tmp_path.parent / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path.parent / "elsewhere")
    (tmp_path.parent / "elsewhere" / "plugin_elsewhere.py").touch()
    config = {
        "env": "plugin_elsewhere:Pendulum-v1",
        "agent": "plugin_box.part:Mine",
        "replay.strategy": "lone_plugin:Own",
        "task": "lone_plugin:not_a_module",
    }
    found = plugins(config)
    assert sorted(found) == ["lone_plugin", "plugin_box"]
    assert plugins({"env": "nowhere_at_all:X", "agent": "iql"}) == {}
    folder = _modules_here(Parcel(None, modules=found))
    assert _modules_here(Parcel(None, modules=found)) == folder
    assert _modules_here(Parcel(None)) is None
    names = [str(path.relative_to(folder)) for path in sorted(private_folder().rglob("*.py"))]
    assert names == ["lone_plugin.py", "plugin_box/__init__.py", "plugin_box/part.py"]


def test_errors_of_ray_are_told_in_one_line():
    exceptions = pytest.importorskip("ray").exceptions
    assert explained(exceptions.NodeDiedError("x\ny")) == "Ray: its node was lost"
    assert explained(exceptions.WorkerCrashedError()) == "Ray: its Ray worker process died (out of memory?)"
    assert "larger --object-store-memory" in explained(exceptions.ObjectStoreFullError())
    assert explained(exceptions.RayError("one\ntwo")) == "Ray: RayError: one"
    assert explained(exceptions.RayError("")) == "Ray: RayError: no reason given"


class Late:
    """Ray, when the node that holds an answer dies after it was announced: the first question times out."""

    def __init__(self):
        self.exceptions, self.asked = pytest.importorskip("ray").exceptions, []

    def remote(self, **_):
        return lambda task: task

    def wait(self, sent, num_returns, timeout):
        return sent, []

    def get(self, sent, timeout=None):
        self.asked.append(timeout)
        if len(self.asked) == 1:
            raise self.exceptions.GetTimeoutError
        return [{"answer": "done"}], b""


def test_an_answer_that_is_lost_with_its_node_does_not_block_the_driver(tmp_path):
    ray, said = Late(), []
    driver = Driver(ray, tmp_path, said.append)
    driver._underway = {"sent": 7}
    driver.hear(0.0)
    assert said == []  # back to the orders
    driver.hear(0.0)
    (result,) = said
    assert (result["number"], result["answers"]) == (7, [{"answer": "done"}])
    assert None not in ray.asked
    assert not driver._underway


def spoken(*answers) -> RayCluster:
    """A cluster whose driver has given these answers."""
    cluster = RayCluster.__new__(RayCluster)
    cluster._heard, cluster._head, cluster._spoke = queue.Queue(), "10.0.0.1:6379", time.monotonic()
    cluster._failure, cluster._stopping = None, False
    for answer in answers:
        cluster._heard.put(answer)
    return cluster


GONE = r"the head of the Ray cluster at 10\.0\.0\.1:6379 is gone; finished slices are saved"


def test_a_driver_that_ends_means_that_the_head_is_gone():
    with pytest.raises(DataError, match=GONE):
        spoken({"answer": "alive"}, None).hear(0.0)


def test_what_was_answered_before_the_end_is_not_lost(tmp_path):
    (tmp_path / "0.tar").write_bytes(b"")
    done = {"answer": "result", "number": 0, "answers": [{"answer": "done"}], "archive": str(tmp_path / "0.tar")}
    for end in (None, {"answer": "refused", "reason": "Ray: no"}):
        (tmp_path / "0.tar").write_bytes(b"")
        cluster = spoken(done, end)
        cluster._underway = {0: ("key", {"folder": str(tmp_path / "run")})}
        assert cluster.hear(0.0) == [("key", {"answer": "done"})]
        for _ in range(2):
            with pytest.raises(DataError, match="is gone" if end is None else "Ray: no"):
                cluster.hear(0.0)


def test_a_driver_that_is_silent_for_long_means_that_the_head_is_gone():
    cluster = spoken()
    assert cluster.hear(0.0) == []
    cluster._spoke -= SILENT_SECONDS + 1.0
    cluster._heard.put({"answer": "alive"})
    assert cluster.hear(0.0) == []  # it has spoken
    cluster._spoke -= SILENT_SECONDS + 1.0
    with pytest.raises(DataError, match=GONE):
        cluster.hear(0.0)


def test_what_keeps_a_driver_from_going_on_is_said_as_it_is():
    full = {"answer": "trouble", "problem": [errno.ENOSPC, "No space left on device", "/tmp/7.tar"]}
    with pytest.raises(OSError, match="No space left") as caught:
        spoken(full).hear(0.0)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/tmp/7.tar")
    with pytest.raises(DataError, match="Ray's object store is full; finished slices are saved: run the same command"):
        spoken({"answer": "refused", "reason": "Ray's object store is full"}).hear(0.0)
    with pytest.raises(RuntimeError, match="the process that talks to Ray failed:\nTraceback"):
        spoken({"answer": "broken", "traceback": "Traceback ..."}).hear(0.0)


def test_why_ray_cannot_be_had_is_one_line():
    assert "refuses this token" in refused("10.0.0.1:6379", "", "... InvalidAuthToken ...")
    assert refused("a:1", "one\ntwo", "") == "the Ray cluster at a:1 cannot be used: one two"
    assert refused("", "", "Traceback\nModuleNotFoundError: no ray") == (
        "Ray does not start on this machine: ModuleNotFoundError: no ray"
    )
    assert refused("", "", "") == "Ray does not start on this machine: it does not say why"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "x" * 300 + ":6379", "127.0.0.1:99999999", "[::1]:1"])
def test_addresses_where_nothing_can_answer(address):
    assert silence(address)


def test_an_address_in_brackets_is_found():
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert silence(f"[::1]:{server.getsockname()[1]}") == ""


@pytest.mark.parametrize("address", ["", "auto", "head:²"])
def test_what_is_no_address_is_left_to_ray(address):
    assert silence(address) == ""
