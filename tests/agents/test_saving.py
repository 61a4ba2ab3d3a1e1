"""An agent in a file and back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from arb.agents import learn, load, save
from tests.agents.conftest import random_batches
from tests.agents.test_learn import AGENTS, fresh, same


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_agent_is_the_saved_one(name, online, tmp_path):
    agent, path = fresh(name, online), tmp_path / "agent.safetensors"
    save(agent, path)
    loaded = load(path, AGENTS[name][1])
    assert type(loaded) is type(agent)
    assert jax.tree.structure(loaded) == jax.tree.structure(agent)
    assert same(loaded, agent)
    assert [p.name for p in tmp_path.iterdir()] == ["agent.safetensors"]


def test_training_goes_on_bit_for_bit(tmp_path):
    agent, _ = learn(fresh("IQL"), random_batches(4, 8), jax.random.key(0), unroll=1)
    save(agent, tmp_path / "a")
    loaded = load(tmp_path / "a")
    futures = [learn(a, random_batches(4, 8, seed=1), jax.random.key(1), unroll=1) for a in (agent, loaded)]
    assert same(futures[0][0], futures[1][0])
    assert futures[0][1] == futures[1][1]


def test_another_configuration_is_refused_with_a_sentence(tmp_path):
    save(fresh("IQL"), tmp_path / "a")
    asked = replace(AGENTS["IQL"][1], expectile=0.9)
    with pytest.raises(ValueError, match=r"another configuration: expectile is 0\.7 in the file and 0\.9 here"):
        load(tmp_path / "a", asked)
    with pytest.raises(ValueError, match="the file holds IQLConfig, asked was PEXConfig"):
        load(tmp_path / "a", AGENTS["PEX"][1])


def test_a_foreign_or_damaged_file_is_refused(tmp_path):
    save_file({"x": np.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="holds no agent of this library"):
        load(tmp_path / "foreign")
    save(fresh("IQL"), tmp_path / "whole")
    arrays = load_file(tmp_path / "whole")
    with safe_open(str(tmp_path / "whole"), framework="numpy") as file:
        about = json.loads(file.metadata()["arb"])
    arrays.pop(next(iter(arrays)))
    save_file(arrays, tmp_path / "damaged", metadata={"arb": json.dumps(about)})
    with pytest.raises(ValueError, match="is damaged, it does not fit its own configuration"):
        load(tmp_path / "damaged")
    about["config"]["momentum"] = 0.9
    save_file(arrays, tmp_path / "newer", metadata={"arb": json.dumps(about)})
    with pytest.raises(ValueError, match="settings this version does not know: momentum"):
        load(tmp_path / "newer")


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    save(fresh("IQL"), path)
    before = path.read_bytes()

    def broken(arrays, name, metadata):
        name.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("arb.agents.saving.save_file", broken)
    with pytest.raises(OSError, match="disk full"):
        save(fresh("PEX"), path)
    assert path.read_bytes() == before
