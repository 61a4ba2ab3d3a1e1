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
        return [pid for pid in self.family if b"arb.lab.worker" in read(f"/proc/{pid}/cmdline")]

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
    wait_for(lambda: (place / "ray.log").read_text().count("  pre-trained") == 2)
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
    kept = [sorted(path.name for path in (place / out / ".pretrained").iterdir()) for out in ("ray", "pool")]
    assert kept[0] == kept[1]
    assert not (place / "home" / ".ray").exists()


SHIPPED = """
import pathlib, sys, ray
from arb.lab.ray_node import Parcel, _data_here

ray.init(address=sys.argv[1], log_to_driver=False)
contents = [bytes([number]) * 60_000_000 for number in range(3)]  # they do not fit into the object store of a node
objects = [ray.put(content) for content in contents]
ship = ray.remote(_data_here)
parcels = [Parcel(None, data_name="/nowhere/data.npz", data_hash=str(n) * 64, data=[o]) for n, o in enumerate(objects)]
paths = ray.get([ship.remote(parcel) for parcel in parcels])
for path, content in zip(paths, contents):
    assert pathlib.Path(path).read_bytes() == content, path
    assert pathlib.Path(path).parents[1].stat().st_mode & 0o077 == 0
    pathlib.Path(path).unlink()
print("done")
"""


@pytest.mark.slow
def test_datasets_travel_to_a_node_that_has_neither_them_nor_room_in_its_store(environment, cluster):
    done = subprocess.run(
        [sys.executable, "-c", SHIPPED, cluster[0]], capture_output=True, text=True, env=environment, timeout=PATIENCE
    )
    assert done.stdout.split() == ["done"], done.stdout + done.stderr


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
import os, sys
from pathlib import Path
from arb.cli import main
from arb.lab.ray_cluster import RayCluster

def sockets(pids):
    held = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                held.add(os.readlink(link))
            except OSError:
                pass
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held}

def watched(self, *arguments, hear=RayCluster.hear):
    from tests.lab.test_ray import children
    seen.update(sockets([os.getpid(), *children(os.getpid())]))
    folders.update(path.stat().st_mode & 0o777 for path in Path(os.environ["TMPDIR"]).glob("arb-*"))
    return hear(self, *arguments)

seen, folders = set(), set()
RayCluster.hear = watched
status = main(sys.argv[1:])
loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
print("status", status, "strange", sorted(seen - loopback), "listening", bool(seen), "modes", sorted(map(oct, folders)))
print("left", "RAY_AUTH_TOKEN" in os.environ)
"""
MINE = '''
from arb import Uniform


class Mine(Uniform):
    """As naive, from a module of one's own."""
'''


@pytest.mark.slow
def test_ray_started_here_is_private_and_knows_plug_ins(place, environment):
    there, scratch, home = place / "there", place / "t", place / "clean"
    for folder in (there, scratch, home):
        folder.mkdir()
    (there / "mine.py").write_text(MINE)
    command = [sys.executable, "-c", OWN, *sweep_command(place, "own")[3:], "--ray"]
    command[command.index("naive,arb")] = "mine:Mine"
    command[command.index("0-1")] = "0"
    own = {k: v for k, v in environment.items() if not k.startswith("RAY_AUTH")}
    own |= {"HOME": str(home), "TMPDIR": str(scratch)}
    own["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parents[2]}"
    done = subprocess.run(command, cwd=there, capture_output=True, text=True, env=own, timeout=2 * PATIENCE)
    assert "status 0 strange [] listening True modes ['0o700']" in done.stdout, done.stdout + done.stderr
    assert "left False" in done.stdout
    assert [path.parts[-3] for path in (place / "own").rglob("DONE")] == ["mine-Mine"]
    assert not (home / ".ray").exists()
    assert [path.name for path in scratch.iterdir()] in ([], [f"arb-{os.getuid()}"])


def test_no_cluster_is_said_in_one_line(place, environment):
    port = free_port()
    command = sweep_command(place, "nowhere", "--ray", f"127.0.0.1:{port}")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert done.returncode == 2
    assert f"arb sweep: no Ray cluster answers at 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
