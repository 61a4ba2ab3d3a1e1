"""Runs that are killed at random moments end in the same bytes as runs that were left alone.

`pytest -m long tests/lab/test_kills.py` kills a hundred times, with ARB_KILLS=1000 a thousand times. Half of the runs
are started as the command line does, with its own save interval; the other half save after every chunk of work. A
server that has imported everything forks the processes, so that most of their time is training.
"""

import contextlib
import io
import json
import math
import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest

from tests.lab import tiny
from tests.lab.test_resume import outcome

KILLS = int(os.environ.get("ARB_KILLS", "100"))
PAIRS = [
    ("iql", "arb"),
    ("iql", "berb"),
    ("pex", "naive"),
    ("calql", "parallel"),
    ("famo2o", "arb_auto"),
    ("fql", "arb_auto"),
    ("qcfql", "arb_auto"),
]
MOST = 10
"""Kills of one run; then it may end."""


def work(folder: str, agent: str, strategy: str, seed: int, by_command: bool) -> None:
    """One attempt at a run, in a process of its own."""
    os.setpgrp()
    import jax

    place = Path(folder).parent.parent
    jax.config.update("jax_compilation_cache_dir", str(place / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        config = tiny.config_of(place / "data.npz", agent, strategy, seed=seed)
        if by_command:
            from arb.cli import main
            from arb.lab.config import flat

            own = ("task", "env", "agent", "seed", "replay.strategy")
            leaves = [f"{leaf}={_typed(value)}" for leaf, value in flat(config).items() if leaf not in own]
            subject = ["-t", config.task, "-e", config.env, "-a", agent, "-s", strategy, "--seed", str(seed)]
            status = main(["run", *subject, "-o", folder, *leaves])
        else:
            from arb.lab.training import run

            run(config, Path(folder), save_every=0.0)
            status = 0
    os._exit(status)


def _typed(value: object) -> str:
    return str(tuple(value)) if isinstance(value, list | tuple) else str(value)


@pytest.fixture(scope="module")
def server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.lab.test_kills", "arb.cli.run", "arb.lab.training", "arb.report.plots"])
    return context


def attempt(server, arguments, seconds: float = math.inf) -> tuple[bool, float]:
    """Let a process work, at most so many seconds of processor time; whether it was killed, and the time it had.

    Processor time, because on a busy machine the clock on the wall says nothing of how far a run is.
    """
    process = server.Process(target=work, args=arguments)
    process.start()
    used, place = 0.0, Path("/proc", str(process.pid), "stat")
    while process.is_alive() and used < seconds:
        process.join(0.01)
        with contextlib.suppress(OSError):
            user, system = place.read_text().rpartition(")")[2].split()[11:13]
            used = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") or used
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), arguments
    return process.exitcode != 0, used


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time of another process is read from /proc")
def test_runs_killed_at_random_moments_end_in_the_same_bytes(server, tmp_path):
    tiny.write_data(tmp_path / "data.npz")
    rng, kills, runs = random.Random(0), 0, 0
    while kills < KILLS:
        agent, strategy = PAIRS[runs // 2 % len(PAIRS)]
        by_command, seed = runs % 2 == 1, runs // (2 * len(PAIRS))
        name = f"{agent}-{strategy}-{seed}-{'command' if by_command else 'call'}"
        first, whole, killed = (tmp_path / kind / name for kind in ("first", "whole", "killed"))
        if seed == 0:  # to compile, so that the next one tells how long a run takes
            attempt(server, (str(first), agent, strategy, seed, by_command))
        _, usual = attempt(server, (str(whole), agent, strategy, seed, by_command))
        arguments, here = (str(killed), agent, strategy, seed, by_command), 0
        while here < MOST and attempt(server, arguments, usual * rng.uniform(0.1, 0.8))[0]:
            here += 1
        assert not attempt(server, arguments)[0]
        assert (killed / "DONE").exists()
        assert outcome(killed) == outcome(whole), name
        runs, kills = runs + 1, kills + here
        print(json.dumps({"runs": runs, "kills": kills, name: here}), flush=True)
