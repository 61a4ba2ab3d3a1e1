"""An agent in a file and back, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from arb.agents import IQL, IQLConfig, learn, load, save
from arb.agents.agent import pytree
from arb.errors import DataError
from tests.agents.conftest import random_batches
from tests.agents.test_learn import AGENTS, fresh, same


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_agent_is_the_saved_one(name, online, tmp_path):
    agent, path = fresh(name, online), tmp_path / "agent.safetensors"
    save(agent, path)
    loaded = load(path, *AGENTS[name])
    assert type(loaded) is type(agent)
    assert jax.tree.structure(loaded) == jax.tree.structure(agent)
    assert same(loaded, agent)
    assert [p.name for p in tmp_path.iterdir()] == ["agent.safetensors"]


def test_training_goes_on_bit_for_bit(tmp_path):
    agent, _ = learn(fresh("IQL"), random_batches(4, 8), jax.random.key(0), unroll=1)
    save(agent, tmp_path / "a")
    loaded = load(tmp_path / "a", IQL)
    futures = [learn(a, random_batches(4, 8, seed=1), jax.random.key(1), unroll=1) for a in (agent, loaded)]
    assert same(futures[0][0], futures[1][0])
    assert futures[0][1] == futures[1][1]


def test_another_configuration_is_refused_with_a_sentence(tmp_path):
    save(fresh("IQL"), tmp_path / "a")
    asked = replace(AGENTS["IQL"][1], expectile=0.9)
    with pytest.raises(DataError, match=r"other settings: expectile is 0\.7 in the file and 0\.9 here"):
        load(tmp_path / "a", IQL, asked)


def test_a_file_of_another_agent_is_refused_and_its_name_is_only_compared(tmp_path):
    save(fresh("PEX"), tmp_path / "a")
    with pytest.raises(DataError, match="holds the agent PEX, not IQL: choose that agent, or train again"):
        load(tmp_path / "a", IQL)
    assert same(load(tmp_path / "a", AGENTS["PEX"][0]), fresh("PEX"))


def test_an_agent_from_outside_is_loaded_as_the_class_that_is_given(tmp_path):
    own = pytree(type("Own", (IQL,), {"__annotations__": {}}))
    agent = own.create(jax.random.key(0), 4, 2, AGENTS["IQL"][1])
    save(agent, tmp_path / "own")
    loaded = load(tmp_path / "own", own, AGENTS["IQL"][1])
    assert type(loaded) is own
    assert same(loaded, agent)


def test_a_foreign_or_newer_file_is_refused(tmp_path):
    save_file({"x": np.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(DataError, match="holds no agent of this library"):
        load(tmp_path / "foreign", IQL)
    newer = dataclass(frozen=True)(
        type("Newer", (IQLConfig,), {"__annotations__": {"momentum": float}, "momentum": 0.9})
    )
    save(IQL.create(jax.random.key(0), 4, 2, newer(hidden_dims=(6,))), tmp_path / "newer")
    with pytest.raises(DataError, match="settings that this version does not have: momentum"):
        load(tmp_path / "newer", IQL)


def test_a_flipped_bit_anywhere_is_refused(tmp_path):
    save(fresh("IQL"), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 40):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(place) % 8
        (tmp_path / "flipped").write_bytes(bytes(damaged))
        with pytest.raises(DataError, match="flipped"):
            load(tmp_path / "flipped", IQL)


FLOAT8 = b'{"x": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged or was not written by arb.agents.save"),
        (pickle.dumps({"policy": 1}), "is damaged or was not written by arb.agents.save"),
        (b"PK\x03\x04" + bytes(100), "is damaged or was not written by arb.agents.save"),
        (
            len(FLOAT8).to_bytes(8, "little") + FLOAT8 + b"\0",
            "is damaged or was not written by arb.agents.save .*float8",
        ),
    ],
)
def test_a_file_of_another_format_is_refused_with_its_path(content, message, tmp_path):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(DataError, match=rf"other {message}.*: copy it again, or train again"):
        load(tmp_path / "other", IQL)


def test_a_file_cut_short_or_not_there_is_refused_with_its_path(tmp_path):
    save(fresh("IQL"), tmp_path / "whole")
    (tmp_path / "short").write_bytes((tmp_path / "whole").read_bytes()[:-100])
    with pytest.raises(DataError, match=r"short is damaged or was not written by arb\.agents\.save .*: copy it again"):
        load(tmp_path / "short", IQL)
    for name in ("missing", ""):  # the latter is a folder
        with pytest.raises(DataError, match="cannot be read"):
            load(tmp_path / name, IQL)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    agent = fresh("IQL")
    save(replace(agent, policy=replace(agent.policy, log_std=np.array([0.0, np.nan], np.float32))), tmp_path / "nan")
    with pytest.raises(DataError, match=r"nan holds a value that is not finite, in \.policy\.log_std: copy it again"):
        load(tmp_path / "nan", IQL)


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    save(fresh("IQL"), path)
    before = path.read_bytes()

    def broken(path, content):
        with path.open("wb") as file:
            file.write(content[:100])
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_bytes", broken)
    with pytest.raises(OSError, match="disk full"):
        save(fresh("PEX"), path)
    assert path.read_bytes() == before
