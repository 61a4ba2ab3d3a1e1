"""Gradients reach exactly the networks they should: what each network's gradient depends on, part by part.

Adam's first moment after one step is a tenth of the gradient. Perturb one part of an agent, update, and compare: the
set of parts whose gradient changed must be the one in the table, no more and no less.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from arb.agents import IQL, PEX, SAC, CalQL, CalQLConfig, FamO2O, FamO2OConfig, IQLConfig, PEXConfig, SACConfig
from tests.agents.conftest import random_batches, updated

CRITIC_PARTS = {
    "q": lambda a: a.critics.q,
    "target": lambda a: a.critics.target,
    "value": lambda a: a.critics.value,
}
CRITIC_GRADIENTS = {
    "q": lambda a: a.critics.adam["q"].mu,
    "value": lambda a: a.critics.adam["value"].mu,
}
CALQL_PARTS = {
    name: (lambda a, n=name: getattr(a, n)) for name in ("q", "target", "policy", "log_alpha", "log_multiplier")
}
SAC_PARTS = {name: part for name, part in CALQL_PARTS.items() if name != "log_multiplier"}
CALQL_GRADIENTS = {
    "q": lambda a: a.adam["q"].mu,
    "policy": lambda a: a.adam["policy"].mu,
    "log_alpha": lambda a: a.adam["log_alpha"].mu,
}
PEX_PARTS = CRITIC_PARTS | {"old": lambda a: a.old, "new": lambda a: a.new}
FAMILY_PARTS = CRITIC_PARTS | {
    "universal": lambda a: a.universal,
    "balance": lambda a: a.balance,
    "log_temperature": lambda a: a.log_temperature,
}
FAMILY_GRADIENTS = CRITIC_GRADIENTS | {
    "universal": lambda a: a.adam["universal"].mu,
    "balance": lambda a: a.adam["balance"].mu,
    "log_temperature": lambda a: a.adam["log_temperature"].mu,
}
WITH_MULTIPLIER = CALQL_GRADIENTS | {"log_multiplier": lambda a: a.adam["log_multiplier"].mu}
POLICY = {"policy": lambda a: next(iter(a.adam.values())).mu}  # the only optimiser of IQL and PEX

IQL_AGENT = (IQL, IQLConfig(hidden_dims=(6,)))
PEX_AGENT = (PEX, PEXConfig(hidden_dims=(6,)))
PEX_BUFFER = (PEX, PEXConfig(hidden_dims=(6,), policy_actions="buffer"))
FAMILY = (FamO2O, FamO2OConfig(hidden_dims=(6,)))
CALQL_PLAIN = (CalQL, CalQLConfig(actor_hidden_dims=(6,), critic_hidden_dims=(6,), cql_n_actions=2))
SAC_AGENT = (SAC, SACConfig(hidden_dims=(6,), layer_norm=True))
CALQL_LAGRANGE = (CalQL, replace(CALQL_PLAIN[1], cql_lagrange=True))

CASES = {
    "iql": (IQL_AGENT, False, CRITIC_PARTS | {"policy": lambda a: a.policy}, CRITIC_GRADIENTS | POLICY, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "policy": {"policy", "value", "target"},
    }),
    "pex offline": (PEX_AGENT, False, PEX_PARTS, CRITIC_GRADIENTS | POLICY, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "policy": {"old", "value", "target"},
    }),
    "pex online": (PEX_AGENT, True, PEX_PARTS, CRITIC_GRADIENTS | POLICY, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "policy": {"old", "new", "q", "value", "target"},
    }),
    "pex online, buffer actions": (PEX_BUFFER, True, PEX_PARTS, CRITIC_GRADIENTS | POLICY, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "policy": {"new", "value", "target"},
    }),
    "famo2o offline": (FAMILY, False, FAMILY_PARTS, FAMILY_GRADIENTS, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "universal": {"universal", "value", "target"},
        "balance": {"balance", "universal", "target", "log_temperature"},
        "log_temperature": {"balance", "log_temperature"},
    }),
    "famo2o online": (FAMILY, True, FAMILY_PARTS, FAMILY_GRADIENTS, {
        "q": {"q", "value"},
        "value": {"value", "target"},
        "universal": {"universal", "value", "target", "balance"},
        "balance": {"balance", "universal", "target", "log_temperature"},
        "log_temperature": {"balance", "log_temperature"},
    }),
    "calql": (CALQL_PLAIN, False, CALQL_PARTS, CALQL_GRADIENTS, {
        "q": {"q", "target", "policy"},
        "policy": {"policy", "q", "log_alpha"},
        "log_alpha": {"policy"},
    }),
    "sac": (SAC_AGENT, False, SAC_PARTS, CALQL_GRADIENTS, {
        "q": {"q", "target", "policy", "log_alpha"},
        "policy": {"policy", "q", "log_alpha"},
        "log_alpha": {"policy"},
    }),
    "calql with lagrange": (CALQL_LAGRANGE, False, CALQL_PARTS, WITH_MULTIPLIER, {
        "q": {"q", "target", "policy", "log_multiplier"},
        "policy": {"policy", "q", "log_alpha"},
        "log_alpha": {"policy"},
        "log_multiplier": {"q", "policy", "log_multiplier"},
    }),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Which number depends on which is not changed by optimising the program, and compiling it is most of the time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def differ(a, b) -> bool:
    return any(bool((x != y).any()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def shaken(tree):
    return jax.tree.map(lambda x: x + 0.05 * jax.random.normal(jax.random.key(7), x.shape), tree)


def with_shaken(where, agent):
    """The agent with other numbers in the part that `where` names."""
    part = where(agent)
    others = dict(zip(map(id, jax.tree.leaves(part)), jax.tree.leaves(shaken(part)), strict=True))
    return jax.tree.map(lambda leaf: others.get(id(leaf), leaf), agent)


@pytest.mark.parametrize("case", CASES)
def test_each_gradient_depends_on_exactly_these_parts(case):
    (kind, config), online, parts, gradients, table = CASES[case]
    agent = kind.create(jax.random.key(0), 4, 2, config)
    agent = agent.begin_online() if online else agent
    batch, key = random_batches(16), jax.random.key(1)
    after, _ = updated(agent, batch, key)
    found = {name: set() for name in gradients}
    for part, where in parts.items():
        changed, _ = updated(with_shaken(where, agent), batch, key)
        for name, gradient in gradients.items():
            if differ(gradient(after), gradient(changed)):
                found[name].add(part)
    assert found == table


@pytest.mark.parametrize("case", CASES)
def test_an_update_moves_every_trained_network_and_no_other(case):
    (kind, config), online, parts, _, table = CASES[case]
    agent = kind.create(jax.random.key(0), 4, 2, config)
    agent = agent.begin_online() if online else agent
    after, _ = updated(agent, random_batches(16), jax.random.key(1))
    moved = {name for name, where in parts.items() if differ(where(agent), where(after))}
    trained = {"new" if online else "old"} if kind is PEX else set()
    assert moved == (set(table) & set(parts)) | {"target"} | trained


def test_the_order_of_samples_does_not_matter():
    agent, batch = IQL.create(jax.random.key(0), 4, 2, IQL_AGENT[1]), random_batches(16)
    reversed_batch = jax.tree.map(lambda x: x[::-1], batch)
    one, two = (updated(agent, b)[0].critics.adam["q"].mu for b in (batch, reversed_batch))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, atol=1e-6)), one, two))
