"""Files that a run leaves and reads again, damaged at random: read as they were, or refused in one line.

`ARB_FUZZ=500 pytest tests/lab/test_damaged.py` tries that many of each kind instead of a few.
"""

import json
import os
import random

import gymnasium
import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from arb.agents import IQL, IQLConfig
from arb.agents.learn import load, save
from arb.envs.rollout import ActionMap
from arb.errors import DataError
from arb.lab.config import configure, flat
from arb.lab.folder import RunFolder
from arb.lab.setup import Normalization
from arb.lab.sweep import Cell, Plan, write_plan
from arb.policies import export_policy, load_policy
from arb.replay.buffer import ReplayBuffer
from tests.data.test_hostile import _bytes_changed as bytes_changed
from tests.report.test_hostile import altered, cut

TIMES = int(os.environ.get("ARB_FUZZ", "10"))
CONFIG = configure(task="hopper-medium-v2", agent="iql", strategy="arb", preset="smoke")


@pytest.fixture(scope="module")
def agent():
    return IQL.create(jax.random.key(0), 3, 2, IQLConfig(hidden_dims=(4,)))


def tried(path, content, read, damage=bytes_changed):
    """Damage a file many times; every time it is read, or refused in one line that names it."""
    complaints = []
    for number in range(TIMES):
        path.write_bytes(damage(content, random.Random(f"{path.name} {number}")))
        try:
            read(path)
        except DataError as problem:
            complaints.append(str(problem))
    path.write_bytes(content)
    assert len(complaints) >= TIMES // 10
    assert all("\n" not in text and path.parent.name in text for text in complaints)


def text_damaged(content, rng):
    text = altered(json.loads(content), rng) if rng.random() < 0.7 else cut(content.decode(), rng)
    return text.encode(errors="surrogatepass")


def test_agents(agent, tmp_path):
    path = tmp_path / "agent.safetensors"
    save(agent, path)
    tried(path, path.read_bytes(), lambda path: np.isfinite(load(path, IQL).policy.log_std).all())


def test_headers_of_agents(agent, tmp_path):
    path = tmp_path / "agent.safetensors"
    save(agent, path)
    arrays = load_file(path)
    with safe_open(str(path), framework="numpy") as file:
        about = file.metadata()["arb"].encode()

    def with_header(_, rng):
        save_file(arrays, path, metadata={"arb": text_damaged(about, rng).decode(errors="replace")})
        return path.read_bytes()

    tried(path, path.read_bytes(), lambda path: load(path, IQL), with_header)


def test_policies(agent, tmp_path):
    actions = ActionMap(gymnasium.spaces.Box(-1.0, 1.0, (2,)))
    path = export_policy(tmp_path / "policy.npz", agent.actor, Normalization(), actions)
    tried(path, path.read_bytes(), lambda path: load_policy(path)(np.zeros(3)))


def test_buffers(tmp_path):
    buffer, path = ReplayBuffer(20, seed=0), tmp_path / "buffer.npz"
    for t in range(12):
        buffer.add([t % 4.0], [0.0], 1.0, [t % 4 + 1.0], terminated=t % 4 == 3)
    buffer.refresh(lambda obs, action: -obs[:, 0])
    buffer.save(path)
    tried(path, path.read_bytes(), lambda path: ReplayBuffer(20, seed=1).load(path))


def test_checkpoints(agent, tmp_path):
    """A checkpoint is taken only if every byte is as it was written; the one before it is taken otherwise."""
    for number in (1, 2):
        RunFolder(tmp_path).write_checkpoint(number, lambda folder: save(agent, folder / "agent.safetensors"))
    first, second = sorted((tmp_path / "checkpoint").iterdir())
    files = sorted(second.iterdir())
    for number in range(TIMES):
        rng = random.Random(number)
        path = rng.choice(files)
        content = path.read_bytes()
        path.write_bytes(bytes_changed(content, rng))
        same = path.read_bytes() == content
        if path.name == "agent.safetensors" and not same:
            assert next(RunFolder(tmp_path).intact_checkpoints()) == first
        else:
            assert next(RunFolder(tmp_path).intact_checkpoints()) in (first, second)
        path.write_bytes(content)
    assert next(RunFolder(tmp_path).intact_checkpoints()) == second


def test_descriptions_of_runs(tmp_path):
    folder = RunFolder(tmp_path)
    content = json.dumps({"config": flat(CONFIG), "env": "Hopper-v5", "data": {"rows": 5}, "reference": [0, 1]})

    def read(_):
        folder.description()
        folder.finished(CONFIG)

    folder.done_mark.touch()
    tried(folder.config_file, content.encode(), read, text_damaged)


def test_plans_of_sweeps(tmp_path):
    cells = [Cell("a", CONFIG), Cell("b", configure(task="hopper-medium-v2", agent="pex", seed=1))]
    content = json.dumps({"cells": [{"folder": cell.folder, "config": flat(cell.config)} for cell in cells]})
    tried(
        tmp_path / "plan.json", content.encode(), lambda path: write_plan(Plan(path.parent, cells, cells)), text_damaged
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "plan.json"]
