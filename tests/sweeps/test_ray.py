"""A real cluster of two nodes on this machine, one of which is killed while it works."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs import tiny

pytest.importorskip("ray", reason="Ray is not installed: pip install 'arb-rl[ray]'")

SETTINGS = [f"{k}={v}" for k, v in (tiny.SMALL | tiny.NETWORKS["iql"]).items() if k != "replay.keep"]
FILES = ("eval.csv", "metrics.csv", "config.json", "policy/policy.npz")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with a short name, as Ray's sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="arb-ray-"))
    tiny.write_data(folder / "data.npz")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    paths = [str(Path(__file__).parents[2] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    compiled = {name: value.format(place / "compiled") for name, value in tiny.COMPILED_ONCE.items()}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
    return os.environ | compiled | quiet | {"PYTHONPATH": os.pathsep.join(paths)}


def node(place: Path, environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address=127.0.0.1"]
    common = [
        "--num-cpus=1",
        "--object-store-memory=80000000",
        "--disable-usage-stats",
        f"--temp-dir={place}/{options[-1]}",
    ]
    scratch = place / f"{options[-1]}-scratch"
    scratch.mkdir()
    with (place / f"{options[-1]}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *common, *options[:-1]],
            stdout=log,
            stderr=log,
            env=environment | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )


def children(pid: int) -> list[int]:
    """The processes below one, as far as they are still its descendants."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def named(pids: list[int], name: str) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").exists() and name in Path(f"/proc/{pid}/comm").read_text()]


def wait_for(what, seconds: float = 120.0):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def cluster(place: Path, environment: dict[str, str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = [node(place, environment, "--head", f"--port={port}", "--include-dashboard=false", "h")]
    wait_for(lambda: named(children(nodes[0].pid), "raylet"))
    nodes.append(node(place, environment, f"--address=127.0.0.1:{port}", "w"))
    try:
        wait_for(lambda: named(children(nodes[1].pid), "raylet"))
        yield f"127.0.0.1:{port}", nodes[1]
    finally:
        for process in nodes:
            family = children(process.pid)
            for pid in (process.pid, *family):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()


def sweep_command(place: Path, out: str, *options: str) -> list[str]:
    what = ["-t", str(place / "data.npz"), "-e", "Pendulum-v1", "-s", "naive,arb", "--seed", "0-1"]
    return [sys.executable, "-m", "arb.cli", "sweep", *what, "-o", str(place / out), *options, *SETTINGS]


def test_a_cluster_that_loses_a_node_ends_in_the_bytes_of_the_pool(place, environment, cluster):
    address, worker = cluster
    raylet = named(children(worker.pid), "raylet")
    started = subprocess.Popen(
        sweep_command(place, "ray", "--ray", address, "--slice", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    wait_for(lambda: list((place / "w-scratch").glob("arb-*/run/metrics.csv")))  # in the middle of a job
    for pid in raylet:
        os.kill(pid, signal.SIGKILL)
    output, errors = started.communicate(timeout=300)
    assert started.returncode == 0, output + errors
    assert output.count("  score ") == 4, output  # every run ended once

    subprocess.run(sweep_command(place, "pool"), check=True, env=environment, timeout=300, capture_output=True)
    runs = sorted(path.parent.relative_to(place / "pool") for path in (place / "pool").rglob("DONE"))
    assert len(runs) == 4
    assert sorted(path.parent.relative_to(place / "ray") for path in (place / "ray").rglob("DONE")) == runs
    for run in runs:
        for name in FILES:
            assert (place / "ray" / run / name).read_bytes() == (place / "pool" / run / name).read_bytes(), run / name
    kept = [sorted(path.name for path in (place / out / ".pretrained").iterdir()) for out in ("ray", "pool")]
    assert kept[0] == kept[1]


SHIPPED = """
import pathlib, sys, ray
from arb.runs.config import configure, flat
from arb.sweeps.cluster import Parcel, carry_out

ray.init(address=sys.argv[1], log_to_driver=False)
content = pathlib.Path(sys.argv[2]).read_bytes()
config = configure(task="/nowhere/data.npz", env="Pendulum-v1", preset="smoke", overrides={"settings.hidden": (8, 8)})
parcel = Parcel(None, None, config.task, len(content), [ray.put(content)])
answers, _ = ray.get(ray.remote(carry_out).remote({"kind": "estimate", "config": flat(config)}, parcel))
print(answers[-1]["answer"], answers[-1].get("reason", ""))
"""


def test_a_dataset_travels_to_a_node_that_does_not_have_it(place, environment, cluster):
    command = [sys.executable, "-c", SHIPPED, cluster[0], str(place / "data.npz")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["done"], done.stdout + done.stderr


def test_no_cluster_is_said_in_one_line(place, environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = sweep_command(place, "nowhere", "--ray", f"127.0.0.1:{port}")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 2
    assert f"arb sweep: no Ray cluster answers at 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
