"""The agent of docs/extending.md in a run, and the checks that it and broken agents go through."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arb.agents import Agent, constant, pytree
from arb.agents.nn import adam, create_gaussian
from arb.policies.actors import Gaussian
from arb.testing import check_agent

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
SMALL = {"settings.hidden_dims": (8, 8), "schedule.collect": 20, "schedule.updates": 20, "schedule.batch": 16}


@dataclass(frozen=True)
class Rates:
    discount: float = 0.99
    learning_rate: float = 0.01


@pytree
class Cloning(Agent):
    """The smallest agent: a linear policy fitted to the data's actions."""

    policy: Gaussian
    adam: dict
    obs_dim: int = constant()
    action_dim: int = constant()
    config: Rates = constant()
    online: bool = constant(default=False)

    @classmethod
    def create(cls, key, obs_dim, action_dim, config):
        policy = create_gaussian(key, (obs_dim, action_dim))
        return cls(policy, adam(policy=policy), obs_dim, action_dim, config)

    def update(self, batch, key):
        def policy_loss(policy):
            return -jnp.mean(policy.log_prob(batch.obs, batch.action)), None

        agent, loss, _ = self.apply_loss("policy", policy_loss, 0.01)
        return agent, {"policy_loss": loss}

    @property
    def actor(self):
        return self.policy

    def score(self, obs, action, likelihood="standard"):
        return self.policy.score(obs, action, likelihood)

    def begin_online(self):
        return replace(self, online=True)


def test_a_sound_agent_passes():
    check_agent(Cloning, Rates())


class Wide(Gaussian):
    def act(self, obs, chance):
        return 3.0 * self.mode(obs)


class Restless(Gaussian):
    def mode(self, obs, chance=None):
        return np.random.default_rng().uniform(-1, 1, (*np.shape(obs)[:-1], 2)).astype(np.float32)


pytree(Wide)
pytree(Restless)
BROKEN = {
    "offline: update() changed nothing": {"update": lambda self, batch, key: (self, {"policy_loss": jnp.zeros(())})},
    "offline: no metric's name ends in _loss: error": {
        "update": lambda self, batch, key: (Cloning.update(self, batch, key)[0], {"error": jnp.zeros(())})
    },
    "offline: metric policy_loss is nan on ordinary data": {
        "update": lambda self, batch, key: (Cloning.update(self, batch, key)[0], {"policy_loss": jnp.nan})
    },
    "offline: metric policy_loss has shape (32,), not one number": {
        "update": lambda self, batch, key: (Cloning.update(self, batch, key)[0], {"policy_loss": batch.reward})
    },
    "offline: update() made an array of float32(2,) one of float16(2,)": {
        "update": lambda self, batch, key: (
            replace(self, policy=replace(self.policy, log_std=self.policy.log_std.astype(jnp.float16))),
            {"policy_loss": jnp.zeros(())},
        )
    },
    "begin_online() must set `online`": {"begin_online": lambda self: self},
    "two agents created from equal keys differ": {
        "create": classmethod(
            lambda cls, key, *rest: Cloning.create.__func__(cls, jax.random.key(np.random.randint(2**30)), *rest)  # noqa: NPY002
        )
    },
    "a new agent's obs_dim is 9": {
        "create": classmethod(
            lambda cls, key, o, a, config: replace(Cloning.create.__func__(cls, key, o, a, config), obs_dim=9)
        )
    },
    "offline: score has shape (32,) for 16 rows": {"score": lambda self, obs, action, likelihood="": action},
    "offline: score (density) is not finite for the agent's own actions": {
        "score": lambda self, obs, action, likelihood="standard": (
            self.policy.score(obs, action, likelihood) + (jnp.inf if likelihood == "density" else 0.0)
        )
    },
    "offline: act leaves the box [-1, 1]": {"actor": property(lambda self: Wide(self.policy.net, self.policy.log_std))},
    "offline: the actor's mode in NumPy is not that in JAX": {
        "actor": property(lambda self: Restless(self.policy.net, self.policy.log_std))
    },
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_promise_is_named(problem):
    broken = pytree(type("Broken", (Cloning,), {"__annotations__": {}, **BROKEN[problem]}))
    with pytest.raises(AssertionError, match=f"^{re.escape(problem)}"):
        check_agent(broken, Rates())


def newest(monkeypatch, folder):
    """The module of the strategy on the page."""
    code = re.search(r"## A strategy.*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    (folder / "newest.py").write_text(code[1])
    monkeypatch.syspath_prepend(folder)


def test_the_strategy_of_the_page_runs_resumes_and_is_reported(tmp_path, monkeypatch):
    import arb
    from arb.errors import Interrupted
    from arb.lab.config import configure, flat, from_flat, settings_table
    from arb.lab.training import run
    from arb.report.records import read_runs

    newest(monkeypatch, tmp_path)
    overrides = SMALL | {"replay.half_life": "300", "evaluation.episodes": 1}
    config = configure(strategy="newest:NewestFirst", preset="smoke", overrides=overrides)
    assert config.replay.half_life == 300.0
    assert from_flat(flat(config)) == config
    meanings = {row.name: row.meaning for row in settings_table(config)}
    assert meanings["replay.half_life"].startswith("rows after which")
    told: list[str] = []
    with pytest.raises(Interrupted):
        run(config, tmp_path / "own", tell=lambda phase, *_: told.append(phase), stop=lambda: "online" in told)
    result = run(config, tmp_path / "own")
    whole = run(config, tmp_path / "whole")
    assert (tmp_path / "own" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    shares = arb.lab.folder.RunFolder(tmp_path / "own").metrics()["online"]["replay.online_share"]
    assert shares[-1] > 0.5  # 400 of 5,400 rows are online, and the newest
    assert result.last == whole.last
    assert {run.strategy for run in read_runs([tmp_path]).done} == {"newest:NewestFirst"}
    assert "NewestFirst" in arb.make_report(tmp_path / "own", out=tmp_path / "report").text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Newest", "there is no module 'nowhere'"),
        ("newest:NewestFirs", "'newest' has no 'NewestFirs' (did you mean 'NewestFirst'?)"),
        ("newest:np", "newest:np is not a strategy: it must be a subclass of arb.Sampler"),
    ],
)
def test_a_plug_in_that_is_not_there_is_one_line(name, message, tmp_path, monkeypatch):
    from arb import DataError
    from arb.lab.config import configure

    newest(monkeypatch, tmp_path)
    with pytest.raises(DataError, match=re.escape(message)):
        configure(strategy=name)


def test_the_agent_of_the_page_runs_resumes_and_is_exported(tmp_path, monkeypatch):
    from arb.errors import Interrupted
    from arb.lab.config import configure
    from arb.lab.training import run
    from arb.policies import load_policy

    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    assert len(code[1].splitlines()) < 150
    (tmp_path / "awac.py").write_text(code[1])
    monkeypatch.syspath_prepend(tmp_path)
    overrides = SMALL | {"settings.temperature": 0.5, "evaluation.episodes": 1}
    config = configure(
        task="bundled:pendulum-random", agent="awac:AWAC", strategy="arb", preset="smoke", overrides=overrides
    )
    assert config.settings.temperature == 0.5
    told: list[str] = []
    with pytest.raises(Interrupted):  # in fine-tuning, after its first chunk
        run(config, tmp_path / "own", tell=lambda phase, *_: told.append(phase), stop=lambda: "online" in told)
    result = run(config, tmp_path / "own")
    assert np.isfinite(result.last)
    assert load_policy(tmp_path / "own")(np.zeros(3)).shape == (1,)


def test_the_checks_say_that_they_passed(capsys):
    check_agent(Cloning, Rates())
    assert capsys.readouterr().out == "Cloning: all checks passed\n"
