"""From the command to the first update: where the first seconds of `arb run` go, for every agent.

    taskset -c 0 python benchmarks/startup.py --task suite:hopper-mixed

Seconds of processor time of a fresh process, at the end of each part; the dataset is in the cache. The first run of an
agent compiles, and later ones find what it compiled. At the end, how long a worker of a sweep takes for its data. To
compare two versions, run this in both, in turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from interleaved import cpu_model, table

PARTS = ("import", "data", "first evaluation", "first update", "end, with the picture")


def watch(task: str, agent: str, folder: str) -> dict[str, float]:
    """Run the command in this process and note when each part ends for the first time."""
    import arb.cli.run as command
    from arb.cli import main

    found: dict[str, float] = {}
    run = command._run

    def noting(part: str, function: Any) -> Any:
        def noted(*arguments: Any, **options: Any) -> Any:
            answer = function(*arguments, **options)
            found.setdefault(part, time.process_time())
            return answer

        return noted

    def with_notes(*arguments: Any) -> None:
        from arb.lab import config, training

        learn = importlib.import_module("arb.agents.learn")
        config.configure = noting("import", config.configure)  # the first thing that a run does
        command._announce = noting("data", command._announce)
        training.play = noting("first evaluation", training.play)
        learn._scan = noting("first update", learn._scan)
        run(*arguments)

    command._run = with_notes
    few = ["schedule.pretrain=200", "schedule.online=0", "evaluation.episodes=1"]
    status = main(["run", "--task", task, "--agent", agent, "--preset", "smoke", "--out", folder, *few])
    assert status == 0
    return {**found, PARTS[-1]: time.process_time()}


def sharing(task: str) -> dict[str, float]:
    """Processor seconds until a worker of a sweep has its data: by itself, and with others."""
    from arb.lab.config import configure
    from arb.lab.folder import Shared
    from arb.lab.setup import Setup, load_data

    config, found = configure(task=task), {}
    with tempfile.TemporaryDirectory() as place:
        first, second = Shared(Path(place)), Shared(Path(place))
        for name, shared in (
            ("imports", None), ("by itself", None), ("the first worker", first), ("another worker", second),
            ("its next run", second),
        ):  # fmt: skip
            start = time.process_time()
            data = shared.get("raw", lambda: load_data(task)) if shared else load_data(task)
            Setup.of(config, data, shared=shared)
            found[name] = time.process_time() - start
    del found["imports"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default="suite:hopper-mixed")
    parser.add_argument("--agents", default="iql,calql,pex,famo2o,sac,fql")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--watch", nargs=2, metavar=("AGENT", "FOLDER"))
    asked = parser.parse_args()
    if asked.watch:
        print(json.dumps(watch(asked.task, *asked.watch)))
        return
    agents, turns, task = asked.agents.split(","), asked.turns, asked.task
    if asked.quick:
        agents, turns, task = ["iql"], 1, "bundled:hopper-tiny"
    rows = []
    for agent in agents:
        with tempfile.TemporaryDirectory() as place:
            environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{place}/compiled"}
            environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            seen = []
            for turn in range(turns + 1):
                command = [sys.executable, __file__, "--task", task, "--watch", agent, f"{place}/{turn}/run"]
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                seen.append(json.loads(done.stdout.splitlines()[-1]))
        for name, times in ((f"{agent}, compiling", seen[0]), (agent, median(seen[1:]))):
            rows.append([name, *(f"{times[part]:.1f}" for part in PARTS)])
    print(f"{task}, {cpu_model()}; processor seconds from the start to the end of each part, medians of {turns}")
    print(table(["agent", *PARTS], rows))
    data = ", ".join(f"{name} {seconds:.2f}" for name, seconds in sharing(task).items())
    print(f"the data of a run in a sweep, processor seconds: {data}")


def median(seen: list[dict[str, float]]) -> dict[str, float]:
    return {part: sorted(one[part] for one in seen)[len(seen) // 2] for part in PARTS}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
