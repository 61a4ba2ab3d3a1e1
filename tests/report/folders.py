"""Run folders in the format of `arb run` with made-up numbers: a report needs many runs, and training is slow."""

import json
import zlib
from pathlib import Path

import numpy as np

REFERENCE = (-20.272305, 3234.3)
REPLAY = ("online_rows", "online_share", "effective_share", "entropy", "top_trajectories", "clipped_low", "age")


def config_of(task="hopper-medium-v2", agent="iql", strategy="arb", seed=0, **leaves):
    return {
        "task": task, "env": "", "agent": agent, "seed": seed,
        "replay.strategy": strategy, "replay.temperature": 0.5, "replay.clip": [-12.0, 7.0],
        "replay.level": "trajectory", "schedule.pretrain": 4000, "schedule.online": 10000,
        "evaluation.every": 2000, "evaluation.episodes": 3, "settings.expectile": 0.7, **leaves,
    }  # fmt: skip


def write_run(
    folder, config=None, *, final=None, reference=REFERENCE, done=True, online_steps=None, points=10, **given
):
    """One run; `final` is the score of every episode of the last evaluation."""
    config = config or config_of(**given)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "config": config, "env": "Env-v0", "data": {"rows": 1000, "sha256": "0f" * 32},
        "reference": list(reference) if reference else None, "normalization": {}, "versions": {"numpy": "2.0"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(described))
    words = [config["task"], config["agent"], config["replay.strategy"]]
    rng = np.random.default_rng([config["seed"], *(zlib.crc32(word.encode()) for word in words)])
    skill = {"naive": 0.7, "parallel": 0.8, "top_n": 0.85, "berb": 0.8, "arb": 1.0}.get(config["replay.strategy"], 0.5)
    total, every = config["schedule.online"], config["evaluation.every"]
    rows = ["phase,step,episode,return,score"]
    for phase, end in (("pretrain", config["schedule.pretrain"]), ("online", online_steps or total)):
        for step in range(0, end + 1, every):
            progress = step / end if phase == "pretrain" else 1.0 + skill * (1.0 - np.exp(-3.0 * step / total))
            center = 40.0 * progress + 3.0 * rng.normal()
            for episode in range(config["evaluation.episodes"]):
                score = center + rng.normal()
                if final is not None and phase == "online" and step == total:
                    score = final
                value = score if reference is None else reference[0] + score / 100.0 * (reference[1] - reference[0])
                rows.append(f"{phase},{step},{episode},{float(value)!r},{float(score)!r}")
    (folder / "eval.csv").write_text("\n".join(rows) + "\n")
    lines = ["phase,step,critic_loss," + ",".join(f"replay.{name}" for name in REPLAY)]
    lines.append("pretrain,4000,0.5" + ",nan" * len(REPLAY))
    for step in np.linspace(total / points, online_steps or total, points):
        share = step / (step + 3.0 * total)
        biased = min(1.0, share * (1.0 + 2.0 * skill * (config["replay.strategy"] == "arb")))
        numbers = [share, biased, 1.0 - 0.5 * biased, 0.99, 0.05 + 0.1 * biased, 0.02, 2e4]
        lines.append(f"online,{int(step)},0.5," + ",".join(repr(float(n)) for n in numbers))
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if done:
        (folder / "DONE").touch()
    return folder


def write_sweep(root, *, tasks, agents=("iql",), strategies=("naive", "arb"), seeds=2, **given):
    """A grid of runs with its plan."""
    root, cells = Path(root), []
    for task in tasks:
        for agent in agents:
            for strategy in strategies:
                for seed in range(seeds):
                    config = config_of(task, agent, strategy, seed)
                    name = f"{task.replace('/', '-').replace(':', '-')}/{agent}-{strategy}-{seed}"
                    write_run(root / name, config, **given)
                    cells.append({"folder": name, "config": config})
    (root / "plan.json").write_text(json.dumps({"cells": cells}))
    return root


def write_pairs(root, differences, *, task="hopper-medium-v2", base="naive", strategy="arb", **leaves):
    """Runs whose every evaluation has one score; those of a seed differ by the number given."""
    for seed, difference in enumerate(differences):
        level = 40.0 + 10.0 * seed
        for name, score in ((base, level), (strategy, level + difference)):
            config = config_of(task, "iql", name, seed, **leaves)
            folder = write_run(root / f"{task}-{name}-{seed}-{len(leaves)}", config)
            text = (folder / "eval.csv").read_text().splitlines()
            flat = [",".join([*line.split(",")[:3], "0", repr(score)]) for line in text[1:] if line[:6] == "online"]
            (folder / "eval.csv").write_text("\n".join([text[0], *flat]) + "\n")
    return root
