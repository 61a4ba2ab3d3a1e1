"""Real clusters on this machine: nodes, drivers and heads are killed while they work, and strangers are kept out."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from arb import DataError
from arb.lab.ray import check_address, packed, put_back, unpack
from tests.lab import tiny

pytest.importorskip("ray", reason="Ray is not installed: pip install 'arb-rl[ray]'")

SETTINGS = [f"{k}={v}" for k, v in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
FILES = ("eval.csv", "metrics.csv", "config.json", "policy/policy.npz")
PATIENCE = 400.0
"""Seconds to wait for what takes ten on an idle machine."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with a short name, as Ray's sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="arb-t-"))
    tiny.write_data(folder / "data.npz")
    (folder / "home").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    """As docs/sweep.md says: one token on every machine. Nothing of the user's own Ray is seen or changed."""
    paths = [str(Path(__file__).parents[2] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"HOME": str(place / "home"), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-the-tests" * 4}
    # A node that misses five health checks is dead. One whose raylet was killed misses them at once: 3 s instead of 15.
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(paths), "RAY_health_check_period_ms": "500"}
    return {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | quiet | own


class Node:
    """A node of a cluster, started as the docs say."""

    def __init__(self, place: Path, environment: dict[str, str], name: str, *options: str):
        self.scratch, self.log = place / f"{name}-scratch", place / f"{name}.log"
        self.scratch.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address=127.0.0.1"]
        command += ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--temp-dir={place}/{name}", *options],
                stdout=log,
                stderr=log,
                env=environment | {"TMPDIR": str(self.scratch)},
                start_new_session=True,
            )

    @property
    def family(self) -> list[int]:
        return [self.process.pid, *children(self.process.pid)]

    def raylet(self) -> list[int]:
        """Its raylet, once it has joined; a node that cannot join says why at once."""
        said = self.log.read_text()
        assert self.process.poll() is None, said
        assert "InvalidAuthToken" not in said, said
        assert "Z" not in [state(pid) for pid in named(self.family, "raylet")], "its raylet died"
        return named(self.family, "raylet") if "Ray runtime started" in said else []

    def jobs(self) -> list[int]:
        """The processes that train on it."""
        return [pid for pid in self.family if b"ray::run_slice" in read(f"/proc/{pid}/cmdline")]

    def kill(self) -> None:
        send(signal.SIGKILL, self.family)
        self.process.wait()


def joined(place: Path, environment: dict[str, str], name: str, *options: str) -> Node:
    """A node that is up. A raylet gives its agents 15 s to start and then dies, which happens on a busy machine."""
    for _ in range(5):
        node = Node(place, environment, name, *options)
        try:
            wait_for(node.raylet)
            return node
        except AssertionError as problem:
            node.kill()
            reason = problem
    raise reason


def head(place: Path, environment: dict[str, str], name: str, port: int) -> Node:
    return joined(place, environment, name, "--head", f"--port={port}", "--include-dashboard=false")


def read(path: str) -> bytes:
    """A file of a process; nothing if the process is gone."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def state(pid: int) -> str:
    return read(f"/proc/{pid}/stat").decode().rpartition(")")[2][1:2]


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """A signal to those processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def children(pid: int) -> list[int]:
    """The processes below one, as far as they are still its descendants."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        if fields := read(str(path)).rpartition(b")")[2].split():
            below.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += below.get(one, [])
    return found[1:]


def named(pids: list[int], name: str) -> list[int]:
    return [pid for pid in pids if name.encode() in read(f"/proc/{pid}/comm")]


def wait_for(what, seconds: float = PATIENCE):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.2)
    return found


def found(place: Path, name: str) -> bool:
    """Whether there is such a file or folder somewhere below a place that is changing."""
    try:
        return any(place.rglob(name))
    except FileNotFoundError:
        return False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(place: Path, environment: dict[str, str]) -> Iterator[tuple[str, Node, Node]]:
    """Its address, its head and another node."""
    port, nodes = free_port(), []
    try:
        nodes.append(head(place, environment, "h", port))
        nodes.append(joined(place, environment, "w", f"--address=127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}", *nodes
    finally:
        for node in nodes:
            node.kill()


def sweep_command(place: Path, out: str, *options: str) -> list[str]:
    what = ["-t", str(place / "data.npz"), "-e", "Pendulum-v1", "-s", "naive,arb", "--seed", "0-1"]
    return [sys.executable, "-m", "arb.cli", "sweep", *what, "-o", str(place / out), *options, *SETTINGS]


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def pool(place: Path, environment: dict[str, str]) -> dict[Path, bytes]:
    """What the same sweep leaves without Ray."""
    subprocess.run(sweep_command(place, "pool"), check=True, env=environment, timeout=2 * PATIENCE, capture_output=True)
    return left(place / "pool")


def left(out: Path) -> dict[Path, bytes]:
    runs = sorted(path.parent.relative_to(out) for path in out.rglob("DONE"))
    assert len(runs) == 4
    return {run / name: (out / run / name).read_bytes() for run in runs for name in FILES}


LOST = "(its raylet died or does not answer); its runs continue elsewhere"


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_ends_in_the_bytes_of_the_pool(place, environment, cluster, pool):
    address, first, second = cluster
    raylet = second.raylet()
    with (place / "ray.log").open("w") as log:
        command = sweep_command(place, "ray", "--ray", address, "--slice", "0")
        driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    wait_for(lambda: len(list((place / "ray" / ".pretrained").glob("*.name"))) == 2)
    jobs = second.jobs()
    send(signal.SIGSTOP, jobs)  # a job is over in a blink: this one is held in its middle
    send(signal.SIGKILL, raylet)

    def noticed() -> bool:
        assert driver.poll() is None, (place / "ray.log").read_text()
        send(signal.SIGSTOP, first.jobs())  # else the other node could end all runs before Ray counts this one as dead
        return LOST in (place / "ray.log").read_text()

    try:
        wait_for(noticed)
    finally:
        send(signal.SIGCONT, [*jobs, *first.jobs()])
    status, said = driver.wait(timeout=2 * PATIENCE), (place / "ray.log").read_text()
    assert status == 0, said
    assert said.count("  score ") == 4, said  # every run ended once
    assert left(place / "ray") == pool
    assert not list((place / "ray" / ".pretrained").glob("arb-*"))
    assert not (place / "home" / ".ray").exists()


@pytest.mark.slow
def test_another_token_is_refused_in_one_line(place, environment, cluster):
    stranger = environment | {"RAY_AUTH_TOKEN": "of-a-stranger" * 4}
    command = sweep_command(place, "strange", "--ray", cluster[0])
    done = subprocess.run(command, capture_output=True, text=True, env=stranger, timeout=PATIENCE)
    assert done.returncode == 2, done.stderr
    assert f"the Ray cluster at {cluster[0]} refuses this token: export the RAY_AUTH_MODE" in done.stderr
    assert "Traceback" not in done.stderr
    node = Node(place, stranger, "s", f"--address={cluster[0]}")
    try:
        with pytest.raises(AssertionError, match="InvalidAuthToken: Authentication token is missing or incorrect"):
            wait_for(node.raylet)
    finally:
        node.kill()


@pytest.mark.slow
def test_killed_drivers_and_heads_lose_no_more_than_a_slice(place, environment, pool):
    port = free_port()
    command = sweep_command(place, "again", "--ray", f"127.0.0.1:{port}", "--slice", "0")
    node = head(place, environment, "a", port)
    try:
        driver = started(command, environment)
        wait_for(lambda: found(place / "again", "checkpoint"))
        driver.kill()
        driver.communicate()
        driver = started(command, environment)
        wait_for(lambda: found(place / "again", "DONE"))
        node.kill()
        output, errors = driver.communicate(timeout=PATIENCE)
        assert driver.returncode == 2, output + errors
        assert f":{port} is gone; finished slices are saved" in errors
        assert "Traceback" not in errors
        for name in "bcd":  # a raylet that starts on a busy machine may die once more
            node.kill()
            node = head(place, environment, name, port)
            done = subprocess.run(command, env=environment, timeout=2 * PATIENCE, capture_output=True, text=True)
            if "is gone; finished slices are saved" not in done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        node.kill()
    assert left(place / "again") == pool


OWN = """
import arb
from arb.testing import check_sampler


class Mine(arb.Uniform):
    pass
"""


@pytest.mark.slow
def test_ray_on_this_machine_is_private_and_takes_along_what_it_needs(place, environment, pool):
    """Without an address: on the loopback, with a token of its own, and with modules of the current folder."""
    (place / "mine_of_ray.py").write_text(OWN)
    own = {key: value for key, value in environment.items() if not key.startswith("RAY_")} | {"TMPDIR": str(place)}
    command = sweep_command(place, "own", "--ray", "--slice", "1")
    command[command.index("naive,arb")] = "naive,mine_of_ray:Mine"
    seen: set[str] = set()
    with (place / "own.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=own, cwd=place)
    while process.poll() is None:
        seen |= listening([process.pid, *children(process.pid)])
        time.sleep(0.5)
    assert process.returncode == 0, (place / "own.log").read_text()
    assert seen
    assert seen <= {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert not (place / "home" / ".ray").exists()
    runs = {path: content for path, content in left(place / "own").items() if "/naive-" in str(path)}
    assert runs == {path: content for path, content in pool.items() if "/naive-" in str(path)} != {}


def listening(pids: list[int]) -> set[str]:
    """The addresses on which processes listen, as the kernel writes them."""
    held = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                held.add(str(link.readlink()))
    lines = [line for kind in ("tcp", "tcp6") for line in read(f"/proc/net/{kind}").decode().splitlines()[1:]]
    rows = [line.split() for line in lines]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held}


def test_mistakes_about_the_cluster_are_one_line(monkeypatch):
    with pytest.raises(DataError, match=r"no Ray cluster answers at 127.0.0.1:1: .*refused"):
        check_address("127.0.0.1:1")
    with pytest.raises(DataError, match="is not an address: put --ray behind the settings"):
        check_address("replay.temperature=1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert check_address("") == ""


def test_a_folder_travels_without_its_lock_and_is_put_back_in_order(tmp_path):
    run = tmp_path / "there" / "run"
    (run / "checkpoint" / "1").mkdir(parents=True)
    for name in ("DONE", ".lock", "eval.csv", "checkpoint/1/state.json"):
        (run / name).write_text("new")
    unpack(packed({"run": run, "none": tmp_path / "none"}), tmp_path / "here")
    assert not (tmp_path / "here" / "run" / ".lock").exists()
    place = tmp_path / "out"
    (place / "checkpoint" / "0").mkdir(parents=True)
    (place / ".lock").write_text("held")
    put_back(tmp_path / "here" / "run", place)
    assert sorted(path.name for path in place.rglob("*") if path.is_file()) == [
        ".lock",
        "DONE",
        "eval.csv",
        "state.json",
    ]
    assert (place / ".lock").read_text() == "held"
    assert not (place / "checkpoint" / "0").exists()
