"""A run whose losses leave the finite numbers: what it says, what it leaves, and what the same command does then."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb import cli
from arb.agents import IQL, CalQL, CalQLConfig, NotFiniteError, load
from arb.lab.algorithm import Progress
from arb.lab.config import flat, with_key
from arb.lab.folder import RunFolder
from arb.lab.sweep import work
from arb.lab.training import keeping_last_good, run
from tests.lab import tiny

LAST_GOOD = "last-good.safetensors"
ENV = "arb-tests/HugeReward-v0"
HUGE = 1e30
"""A number that storage accepts, and whose square no float32 holds."""
TOO_FAST = {"settings.actor_lr": 1e12, "settings.critic_lr": 1e12, "schedule.updates": 40}
"""Ends in its first updates; forty to a call, as the estimate before a run has, need not be compiled again."""


class HugeReward(gymnasium.RewardWrapper):
    """Whose rewards are as usual for a while."""

    left = 32

    def reward(self, reward):
        self.left -= 1
        return reward if self.left > 0 else HUGE


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    tiny.write_data(folder / "data.npz")
    gymnasium.register(ENV, lambda: HugeReward(gymnasium.make("Pendulum-v1").unwrapped), max_episode_steps=40)
    yield folder
    del gymnasium.registry[ENV]


def config_of(place, strategy, env=ENV, **more):
    return with_key(tiny.config_of(place / "data.npz", "iql", strategy, **more), "env", env)


def test_a_loss_that_overflows_online_keeps_the_agent_before_it(place, monkeypatch):
    monkeypatch.setattr("arb.lab.training.SLOW", 1e9)  # no checkpoint: this environment's count is not part of one
    config, folder = config_of(place, "naive"), place / "naive"
    with pytest.raises(NotFiniteError) as caught:
        run(config, folder)
    error = caught.value
    assert 60 <= error.update < 80  # forty of pre-training, twenty of the first block, and some of the second
    assert str(error) == (
        f"critic_loss or its gradient is not finite at update {error.update} of the run (online phase, after 40 "
        f"steps); the agent before it is in {folder / LAST_GOOD}. Rerunning will fail at the same update: try a "
        "lower settings.actor_lr or settings.critic_lr, or observations and rewards of a smaller scale, in another "
        "folder"
    )
    kept = load(folder / LAST_GOOD, IQL, config.settings)
    assert kept.online
    assert int(kept.adam["policy"].count) == error.update  # its optimiser counts the good updates of both phases
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept))
    assert not (folder / "DONE").exists()
    before = (folder / LAST_GOOD).read_bytes()
    with pytest.raises(NotFiniteError, match=rf"at update {error.update} of the run"):  # the same command
        run(config, folder)
    assert (folder / LAST_GOOD).read_bytes() == before


def test_with_a_strategy_that_learns_the_number_is_that_of_the_run_too(place):
    with pytest.raises(NotFiniteError, match=r"critic_loss.*of the run \(online phase") as caught:
        run(config_of(place, "berb"), place / "berb")
    assert int(load(place / "berb" / LAST_GOOD, IQL).adam["policy"].count) == caught.value.update >= 60


def test_a_ratio_that_is_not_finite_leaves_the_agent_that_is(place, monkeypatch):
    def spoilt(_key, n_in, n_out):
        return jnp.full((n_in, n_out), jnp.nan), jnp.zeros(n_out)

    monkeypatch.setattr("arb.agents.density.hidden_uniform", spoilt)
    with pytest.raises(NotFiniteError, match=r"ratio_loss or its gradient is not finite at update 40 of the run"):
        run(config_of(place, "berb", env="Pendulum-v1"), place / "ratio")
    assert (
        int(load(place / "ratio" / LAST_GOOD, IQL).adam["policy"].count) == 40
    )  # the batch was drawn, not yet learnt from


def test_a_run_that_ends_well_takes_the_remains_of_a_bad_attempt_away(place):
    folder = place / "well"
    folder.mkdir()
    (folder / LAST_GOOD).write_bytes(b"of an attempt before")
    run(config_of(place, "naive", env="Pendulum-v1"), folder)
    assert (folder / "DONE").exists()
    assert not (folder / LAST_GOOD).exists()


def test_no_pretraining_at_all_is_a_run_too(place):
    config = config_of(place, "naive", env="Pendulum-v1", **{"schedule.pretrain": 0, "schedule.online": 20})
    assert config.settings.lr_decay_steps == 0
    assert run(config, place / "none").folder == place / "none"


def test_the_command_line_says_it_in_one_line(place, capsys):
    folder = place / "fast"
    settings = [f"{k}={v}" for k, v in (tiny.SMALL | tiny.NETWORKS["iql"] | TOO_FAST).items()]
    assert cli.main(["run", "-t", str(place / "data.npz"), "-e", "Pendulum-v1", "-o", str(folder), *settings]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    count = int(load(folder / LAST_GOOD, IQL).adam["policy"].count)
    assert f"is not finite at update {count} of the run (pretrain phase); the agent before it is in {folder}" in line
    assert line.startswith("arb run: ")
    assert "try a lower settings.actor_lr or settings.critic_lr, or" in line


def test_the_rates_of_the_agent_at_hand_are_named(tmp_path):
    agent = CalQL.create(jax.random.key(0), 3, 1, CalQLConfig(actor_hidden_dims=(2,), critic_hidden_dims=(2,)))

    def chunks():
        yield Progress(20, agent, {}, {}, [])
        raise NotFiniteError("critic_loss", 25, agent, "of the run (pretrain phase)")

    kept = keeping_last_good(chunks(), tmp_path / LAST_GOOD, agent.config)
    assert next(kept).step == 20
    with pytest.raises(NotFiniteError, match=r"try a lower settings\.actor_lr or settings\.critic_lr, or"):
        next(kept)
    assert load(tmp_path / LAST_GOOD, CalQL, agent.config).obs_dim == 3


def test_a_sweep_records_the_same_sentence_for_all_that_share_the_pretraining(place):
    configs = [config_of(place, strategy, env="Pendulum-v1", **TOO_FAST) for strategy in ("naive", "parallel")]
    request = {"out": str(place / "s"), "cells": [(name, flat(c)) for name, c in zip("ab", configs, strict=True)]}
    said = []
    work(request | {"retry": 3}, said.append, lambda: False)
    assert [message["event"] for message in said] == ["begins", "failed"]  # it would fail again
    with pytest.raises(NotFiniteError) as caught:
        run(configs[0], place / "s" / "a")
    first, second = (RunFolder(place / "s" / name).failure for name in "ab")
    assert first == said[-1]["reason"] == str(caught.value)
    assert second == f"its pre-training failed: {first}"
