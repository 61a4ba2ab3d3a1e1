"""Downloads from a real server on this machine: whole, resumed, from a mirror, spoilt, and not at all."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arb.data.fetch import cached, fetch, fetched
from arb.data.tasks import TASKS, Task
from arb.errors import DataError

CONTENT = np.random.default_rng(0).bytes(3_000_000)


class Server(http.server.ThreadingHTTPServer):
    served: list[str | None]
    """The `Range` of every request."""
    ranges = True
    cut: int | None = None
    """Close the connection after so many bytes of the next answer."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.served.append(asked)
        if not self.path.endswith("/hopper_medium-v2.hdf5"):
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(body[:cut])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.served = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "cache"


def task_at(server: Server, folder: str = "d4rl") -> Task:
    url = f"http://127.0.0.1:{server.server_port}/{folder}/hopper_medium-v2.hdf5"
    return replace(TASKS["hopper-medium-v2"], urls=(url,), size=len(CONTENT), sha256=sha256(CONTENT).hexdigest())


def test_a_download_is_kept(server: Server, cache: Path) -> None:
    task = task_at(server)
    assert fetch(task) == cache / "hopper_medium-v2.hdf5" == cached(task)
    assert cached(task).read_bytes() == CONTENT
    fetch(task)
    assert len(server.served) == 1
    assert [path.name for path in cache.iterdir()] == ["hopper_medium-v2.hdf5"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(server: Server, ranges: bool) -> None:
    task, server.cut, server.ranges = task_at(server), 1_000_000, ranges
    with pytest.raises(DataError, match="hopper-medium-v2 could not be fetched"):
        fetch(task)
    assert not cached(task).exists()
    assert fetch(task).read_bytes() == CONTENT
    assert server.served == [None, "bytes=1000000-"]


def test_mirrors_and_addresses_are_tried_in_turn(server: Server) -> None:
    here = f"http://127.0.0.1:{server.server_port}"
    task = replace(task_at(server), urls=(f"{here}/gone", *task_at(server).urls))
    assert fetch(task, mirrors=(f"{here}/mirror",)).read_bytes() == CONTENT
    assert len(server.served) == 3  # the mirror's /mirror/gone, the first address, the second


def test_another_file_is_refused_and_not_kept(server: Server, cache: Path) -> None:
    task = replace(task_at(server), sha256="0" * 64)
    with pytest.raises(DataError, match="another SHA-256 sum"):
        fetch(task)
    assert list(cache.iterdir()) == []


def test_what_a_bad_server_left_behind_does_not_spoil_the_next(server: Server, cache: Path) -> None:
    task = task_at(server)
    cache.mkdir()
    (cache / f"{task.file}.part").write_bytes(b"<html>This domain is for sale</html>")
    assert fetch(task).read_bytes() == CONTENT
    assert server.served == ["bytes=36-", None]


def test_a_wrong_file_of_the_users_is_named_and_left(server: Server) -> None:
    task = task_at(server)
    cached(task).parent.mkdir()
    cached(task).write_bytes(b"mine")
    with pytest.raises(DataError, match="has 4 bytes, hopper-medium-v2 has 3,000,000"):
        fetch(task)
    assert cached(task).read_bytes() == b"mine"


def test_offline_it_says_where_to_put_the_file(server: Server, cache: Path) -> None:
    task = replace(task_at(server), urls=("http://127.0.0.1:1/hopper_medium-v2.hdf5",))
    with pytest.raises(DataError) as caught:
        fetch(task)
    assert str(caught.value).endswith(f"put hopper_medium-v2.hdf5 at {cache / 'hopper_medium-v2.hdf5'}")
    assert "\n" not in str(caught.value)


def test_a_file_that_d4rl_has_fetched_is_used(server: Server, tmp_path: Path) -> None:
    task = task_at(server)
    theirs = tmp_path / "home" / ".d4rl" / "datasets" / task.file
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(CONTENT)
    assert fetch(task) == theirs
    assert server.served == []


@pytest.mark.parametrize(
    "mirror",
    ["nowhere", "ftp://host/x", "http://", "http://[::1", "http://a b/", "file:///etc", ""],
)
def test_a_malformed_mirror_is_one_line_before_anything_is_fetched(cache: Path, mirror: str) -> None:
    with pytest.raises(DataError, match="is not a mirror: give the address of a folder") as caught:
        fetch(TASKS["hopper-medium-v2"], (mirror,))
    assert "\n" not in str(caught.value)
    assert not cache.exists()


def test_a_server_that_offers_another_file_does_not_spoil_what_came_before(server: Server, cache: Path) -> None:
    task = replace(task_at(server), size=len(CONTENT) + 5)
    cache.mkdir()
    part = cache / f"{task.file}.part"
    part.write_bytes(CONTENT[:1000])
    server.ranges = False
    with pytest.raises(DataError, match=r"it offers 3,000,000 bytes.*not the same file.*1,000 bytes are kept"):
        fetch(task)
    assert part.read_bytes() == CONTENT[:1000]


def test_a_task_that_was_not_fetched_says_where_its_file_goes(cache: Path) -> None:
    with pytest.raises(DataError, match=r"arb data fetch hopper-medium-v2.*hopper_medium-v2\.hdf5") as caught:
        fetched("d4rl:hopper-medium-v2")
    assert str(cache) in str(caught.value)
