"""`arb doctor`: try everything a run needs, one line each, and say what to do about what does not work.

Libraries are tried in separate processes: one that is built for another processor would end this one.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from arb.cli.film import ADVICE, drawing, last_line

SECONDS = 120
LEAST_PYTHON, LEAST_DISK, LEAST_MEMORY = (3, 11), 2 * 10**9, 2 * 10**9
INSTALL = "pip install 'arb-rl[train]'"


class Line(NamedTuple):
    """One line: `ok`, `missing` or `problem`, of what, in detail, and what to do."""

    status: str
    what: str
    detail: str
    advice: str = ""
    needed: bool = False
    """Whether `arb run` cannot work while this is not ok."""

    def __str__(self) -> str:
        line = f"{self.status:<8} {self.what:<18} {self.detail}"
        return f"{line}  -> {self.advice}" if self.advice else line


class Trial(NamedTuple):
    """A library at work: code that prints a line about itself, and advice where it cannot."""

    what: str
    code: str
    advice: str = INSTALL


TRIALS = (
    Trial("NumPy", "import numpy as np; np.linalg.solve(np.eye(3), np.ones(3)); print(np.__version__)"),
    Trial(
        "JAX",
        "import jax, jax.numpy as jnp; jax.jit(lambda x: x @ x)(jnp.eye(4)).block_until_ready(); "
        "d = jax.devices(); print(jax.__version__, 'on', ', '.join(f'{x.platform} ({x.device_kind})' for x in d))",
    ),
    Trial(
        "agents",
        "import optax, safetensors, arb.agents; from importlib.metadata import version; "
        "print(', '.join(f'{n} {version(n)}' for n in ('optax', 'safetensors')))",
    ),
    Trial(
        "MuJoCo",
        "import arb.envs, mujoco, numpy as np; env = arb.envs.make('arb/hopper-v2'); env.reset(seed=0); "
        "steps = [env.step(np.zeros(3)) for _ in range(10)]; assert all(np.isfinite(s[0]).all() for s in steps); "
        "print(mujoco.__version__, 'stepped arb/hopper-v2')",
        # MuJoCo cannot even be imported while this variable names a drawing library that is not there.
        f"unset MUJOCO_GL={os.environ['MUJOCO_GL']}, then {INSTALL}" if os.environ.get("MUJOCO_GL") else INSTALL,
    ),
    Trial(
        "h5py",
        "import h5py, io; f = h5py.File(io.BytesIO(), 'w'); f['x'] = [1.0]; assert f['x'][0] == 1.0; "
        "print(h5py.__version__)",
    ),
    Trial(
        "Matplotlib",
        "import io, matplotlib; matplotlib.use('Agg'); from matplotlib import pyplot as p; p.plot([1, 2]); "
        "p.savefig(io.BytesIO(), dpi=20); print(matplotlib.__version__)",
    ),
    Trial(
        "bundled data",
        "import h5py; from arb.data import bundled_names, read; names = bundled_names(); "
        "assert names, 'no dataset is bundled'; "
        "print(', '.join(f'{n} ({len(read(\"bundled:\" + n)):,} rows)' for n in names))",
        "reinstall arb-rl: its own files are not complete",
    ),
)

EXTRAS = (
    # extra, module, package, what it is for
    ("sb3", "stable_baselines3", "stable-baselines3", "ARB inside Stable-Baselines3"),
    ("torchrl", "torchrl", "torchrl", "ARB inside TorchRL"),
    ("d3rlpy", "d3rlpy", "d3rlpy", "ARB inside d3rlpy"),
    ("minari", "minari", "minari", "datasets from Minari"),
    ("ray", "ray", "ray", "sweeps over several machines"),
    ("wandb", "wandb", "wandb", "live curves in Weights & Biases"),
    ("tensorboard", "tensorboardX", "tensorboardX", "live curves in TensorBoard"),
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS", "JAX_PLATFORMS")


def main(arguments: list[str]) -> int:
    """Print all findings; 0 if `arb run` can work, 1 if something that it needs is missing."""
    parser().parse_args(arguments)
    stopping = []
    for finding in findings():
        print(finding, flush=True)
        if finding.needed and finding.status != "ok":
            stopping.append(finding.what)
    print()
    print(f"`arb run` will not work yet: see {', '.join(stopping)} above" if stopping else "`arb run` works here")
    return 1 if stopping else 0


def findings() -> Iterator[Line]:
    """Everything that is looked at, in order."""
    yield _python()
    for trial in TRIALS:
        yield _tried(trial)
    for what, look in _LOOKS:
        try:
            yield from look()
        except Exception as surprise:  # a look that fails must not hide the ones after it
            yield Line("problem", what, f"{type(surprise).__name__}: {last_line(str(surprise))}")


def _judged(good: bool, what: str, detail: str, advice: str, needed: bool = False) -> Line:
    """A line with advice where something is not good."""
    return Line("ok", what, detail, needed=needed) if good else Line("problem", what, detail, advice, needed)


def _python() -> Line:
    advice = f"make an environment with Python {'.'.join(map(str, LEAST_PYTHON))} or newer"
    detail = f"{platform.python_version()} at {sys.executable}"
    return _judged(sys.version_info >= LEAST_PYTHON, "Python", detail, advice, needed=True)


def _tried(trial: Trial) -> Line:
    command = [sys.executable, "-c", trial.code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Line("problem", trial.what, f"no answer in {SECONDS} seconds", trial.advice, needed=True)
    if done.returncode == 0:
        return Line("ok", trial.what, last_line(done.stdout), needed=True)
    reason = last_line(done.stderr) or f"its process ended with status {done.returncode}"
    absent = re.fullmatch(r"ModuleNotFoundError: No module named '([\w.]+)'.*", reason)
    if absent:
        detail = f"the package {absent[1].partition('.')[0]} is not installed"
        return Line("missing", trial.what, detail, trial.advice, needed=True)
    return Line("problem", trial.what, reason, trial.advice, needed=True)


# ---- looks: at what is around a run ----------------------------------------------------------------------------------
def _drawing() -> Iterator[Line]:
    backend, problem = drawing("arb/hopper-v2", SECONDS)
    if backend:
        yield Line("ok", "drawing", f"MUJOCO_GL={backend}")
    else:
        yield Line("missing", "drawing", f"only `arb eval --gif` needs it ({problem})", ADVICE)


def _extras() -> Iterator[Line]:
    for extra, module, package, purpose in EXTRAS:
        if util.find_spec(module) is None:
            yield Line("missing", module, f"optional: {purpose}", f"pip install 'arb-rl[{extra}]'")
        else:
            yield Line("ok", module, f"{metadata.version(package)}: {purpose}")


def _data() -> Iterator[Line]:
    from arb.data.fetch import cache_directory, cached
    from arb.data.tasks import TASKS

    folder = cache_directory()
    near = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(near, os.W_OK):
        yield Line("problem", "data cache", f"{folder} is not writable", "set ARB_CACHE to a writable folder")
    here = [task for task in TASKS.values() if cached(task).exists()]
    detail = f"{folder}: {len(here)} of {len(TASKS)} D4RL tasks"
    if here:
        yield Line("ok", "data cache", f"{detail}: {', '.join(task.name for task in here)}")
    else:
        yield Line("missing", "data cache", detail, "optional: arb data fetch hopper-medium-v2")
    for task in here:
        size = cached(task).stat().st_size
        if size != task.size:
            detail = f"{task.name} has {size:,} bytes, not {task.size:,}"
            yield Line("problem", "data cache", detail, f"remove {cached(task)} and arb data fetch {task.name}")


def _disk() -> Iterator[Line]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        yield Line("problem", "disk", f"{here} is not writable", "change to a writable folder", needed=True)
        return
    advice = "free some space: a long run writes up to 2 GB of checkpoints"
    yield _judged(free >= LEAST_DISK, "disk", f"{free / 1e9:,.1f} GB free in {here}", advice, needed=True)


def _machine() -> Iterator[Line]:
    from arb.data.contents import free_memory
    from arb.lab.machine import cores

    yield Line("ok", "cores", f"{len(cores())} for this process")
    memory = free_memory()
    detail = "not reported by this system" if memory is None else f"{memory / 1e9:,.1f} GB available"
    advice = "close other programs, or use a small dataset: a million rows take about 1 GB"
    yield _judged(memory is None or memory >= LEAST_MEMORY, "memory", detail, advice)


def _threads() -> Iterator[Line]:
    given = [f"{name}={os.environ[name]}" for name in THREADS if os.environ.get(name)]
    advice = "" if given else "for several runs at once: OMP_NUM_THREADS=1"
    yield Line("ok", "threads", ", ".join(given) or "nothing set: a run uses all cores", advice)


_LOOKS: tuple[tuple[str, Callable[[], Iterator[Line]]], ...] = (
    ("drawing", _drawing),
    ("data cache", _data),
    ("disk", _disk),
    ("machine", _machine),
    ("threads", _threads),
    ("extras", _extras),
)


def parser() -> argparse.ArgumentParser:
    """The options of the command: none."""
    return argparse.ArgumentParser(
        prog="arb doctor",
        description="Check everything that a run needs and say how to fix what does not work. Each line is ok, missing "
        "or problem; the exit status is 0 if `arb run` works and 1 if not. Optional parts may be missing.",
    )
