"""A run so small that it can be killed many times: `python tiny.py FOLDER AGENT STRATEGY [KEY=VALUE] [WHERE:N ...]`.

`KEY=VALUE` changes a setting. For each WHERE:N the run is started in a process that kills itself with SIGKILL at the
N-th call of that function; a last process ends the run. Their exit codes are printed. All are forks of this program, so
that Python and JAX are imported once; JAX itself begins in each anew.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np

SMALL = {
    "schedule.pretrain": 40,
    "schedule.online": 60,
    "schedule.collect": 20,
    "schedule.updates": 20,
    "schedule.refresh": 20,
    "schedule.batch": 16,
    "evaluation.every": 40,
    "evaluation.episodes": 2,
}
NETWORKS = {
    "iql": {"settings.hidden_dims": (8, 8)},
    "pex": {"settings.hidden_dims": (8, 8)},
    "famo2o": {"settings.hidden_dims": (8, 8)},
    "fql": {"settings.hidden_dims": (8, 8)},
    "qcfql": {"settings.hidden_dims": (8, 8), "settings.chunk": 3},
    "rlpd": {"settings.hidden_dims": (8, 8)},
    "calql": {"settings.actor_hidden_dims": (8,), "settings.critic_hidden_dims": (8,), "settings.cql_n_actions": 2},
}


def write_data(path: Path) -> None:
    """Random steps of Pendulum."""
    env, rng = gymnasium.make("Pendulum-v1", max_episode_steps=40), np.random.default_rng(0)
    columns: dict[str, list] = {k: [] for k in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for episode in range(20):
        obs, over = env.reset(seed=episode)[0], False
        while not over:
            action = rng.uniform(-2, 2, 1).astype(np.float32)
            following, reward, terminated, over, _ = env.step(action)
            for column, value in zip(columns.values(), (obs, action, reward, terminated, over), strict=True):
                column.append(value)
            obs = following
    np.savez(path, **{name: np.array(values) for name, values in columns.items()})


def config_of(data: Path, agent: str, strategy: str, seed: int = 0, **more: object):
    from arb.lab.config import configure

    small = SMALL | ({"replay.keep": 300} if strategy == "top_n" else {})
    overrides = small | NETWORKS[agent] | more
    return configure(task=str(data), env="Pendulum-v1", agent=agent, strategy=strategy, seed=seed, overrides=overrides)


def die_at(where: str, number: int) -> None:
    """Make the N-th call of a function the last thing this process does."""
    import arb.files
    import arb.lab.algorithm
    import arb.lab.folder
    import arb.lab.training
    from arb.envs.rollout import Collector
    from arb.replay.buffer import ReplayBuffer

    places = {
        "update": (arb.lab.algorithm, "learn"),
        "collect": (ReplayBuffer, "add"),  # between two steps in the environment
        "refresh": (ReplayBuffer, "refresh"),
        "evaluate": (arb.lab.training, "play"),
        "checkpoint": (arb.lab.folder, "sha256_of"),  # files are there, the checkpoint is not complete
        "table": (arb.files.GrowingTable, "add"),
        "switch": (Collector, "__init__"),
    }
    owner, name = places[where]
    function, calls = getattr(owner, name), 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, dying)


def start(folder: Path, agent: str, strategy: str, more: dict[str, object], where: str = "", number: str = "0") -> None:
    """Start the run, or continue it."""
    from arb.lab.training import run

    if where:
        die_at(where, int(number))
    run(config_of(folder.parent.parent / "data.npz", agent, strategy, **more), folder, save_every=0.0)


def main() -> None:
    import arb.lab.training  # noqa: F401 - before the processes part

    folder, agent, strategy, *rest = sys.argv[1:]
    more = dict(text.split("=") for text in rest if "=" in text)
    for moment in [*(text.split(":") for text in rest if ":" in text), ()]:
        arguments = (Path(folder), agent, strategy, more, *moment)
        process = multiprocessing.get_context("fork").Process(target=start, args=arguments)
        process.start()
        process.join()
        print(process.exitcode, flush=True)
    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
