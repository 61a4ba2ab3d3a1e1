"""`arb doctor`: try everything a run needs, one line each, and say what to do about what does not work."""

import argparse
import platform
import shutil
import subprocess
import sys
from importlib import metadata

SECONDS = 120
INSTALL = "pip install 'arb-rl[train]'"
TRIALS = {
    # Code that prints a line about a library at work, and advice where it cannot. Each runs in a process of its own:
    # a library that is built for another processor would end this one.
    "JAX": (
        "import arb.agents, jax; jax.jit(lambda x: x + x)(1.0).block_until_ready(); "
        "print(jax.__version__, 'on', ', '.join(f'{x.platform} ({x.device_kind})' for x in jax.devices()))",
        INSTALL,
    ),
    "MuJoCo": (
        "import arb.envs, mujoco, numpy as np; env = arb.envs.make('arb/hopper-v2'); env.reset(seed=0); "
        "assert np.isfinite(env.step(np.zeros(3))[0]).all(); print(mujoco.__version__, 'stepped arb/hopper-v2')",
        f"{INSTALL}; if MUJOCO_GL is set, unset it",
    ),
    "h5py": ("import h5py; print(h5py.__version__)", INSTALL),
    "Matplotlib": ("import matplotlib.figure; print(matplotlib.__version__)", INSTALL),
}
DRAWING = (
    "from arb.cli.eval import choose_backend; choose_backend(); import arb.envs, os; "
    "env = arb.envs.make('arb/hopper-v2', render_mode='rgb_array'); env.reset(seed=0); env.render(); env.close(); "
    "print('MUJOCO_GL=' + os.environ.get('MUJOCO_GL', ''))"
)
EXTRAS = {
    "sb3": ("stable_baselines3", "ARB inside Stable-Baselines3"),
    "torchrl": ("torchrl", "ARB inside TorchRL"),
    "d3rlpy": ("d3rlpy", "ARB inside d3rlpy"),
    "minari": ("minari", "datasets from Minari"),
    "lerobot": ("pyarrow", "LeRobot datasets and Parquet files"),
    "ogbench": ("ogbench", "OGBench's tasks"),
    "ray": ("ray", "sweeps over several machines"),
    "wandb": ("wandb", "live curves in Weights & Biases"),
    "trackio": ("trackio", "live curves in trackio"),
    "tensorboard": ("tensorboardX", "live curves in TensorBoard"),
}
LEAST_PYTHON, LEAST_DISK = (3, 11), 2 * 10**9


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The exit status is 0 if `arb run` works and 1 if not; what is optional may be missing."
    parser.set_defaults(run=doctor)


def doctor(_options: argparse.Namespace) -> int:
    failed = []

    def check(what: str, good: bool, detail: str, advice: str) -> None:
        print(f"{'ok' if good else 'problem':<9} {what:<18} {detail}" + ("" if good else f"  -> {advice}"), flush=True)
        failed.extend([] if good else [what])

    version = ".".join(map(str, LEAST_PYTHON))
    check("Python", sys.version_info >= LEAST_PYTHON, platform.python_version(), f"use Python {version} or newer")
    for what, (code, advice) in TRIALS.items():
        check(what, *tried(code), advice)
    free = shutil.disk_usage(".").free
    check("disk", free >= LEAST_DISK, f"{free / 1e9:,.1f} GB free here", "a long run writes 2 GB of checkpoints")
    if "MuJoCo" not in failed:
        drawn, problem = tried(DRAWING)
        advice = "" if drawn else f"only `arb eval --gif` needs it ({problem})  -> apt install libegl1 libosmesa6"
        print(f"{'ok' if drawn else 'optional':<9} {'drawing':<18} {problem if drawn else advice}")
    for extra, (package, purpose) in EXTRAS.items():
        try:  # a folder of that name in the current one could be imported, too
            print(f"{'ok':<9} {package:<18} {metadata.version(package)}: {purpose}")
        except metadata.PackageNotFoundError:
            print(f"{'optional':<9} {package:<18} {purpose}  -> pip install 'arb-rl[{extra}]'")
    alone = "the replay buffer and trained policies need NumPy alone"
    print(f"\n`arb run` will not work yet: see {', '.join(failed)}; {alone}" if failed else "\n`arb run` works here")
    return 1 if failed else 0


def tried(code: str) -> tuple[bool, str]:
    """Whether code runs in a process of its own, and the last line that it printed or failed with."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False, f"no answer in {SECONDS} seconds"
    lines = (done.stderr if done.returncode else done.stdout).split("\n")
    return done.returncode == 0, next((text for text in reversed(lines) if text.strip()), f"status {done.returncode}")
