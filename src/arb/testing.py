"""Checks for samplers and agents of your own: whether they keep the promises that this package relies on.

from arb.testing import check_agent, check_sampler

def test_my_sampler():
    check_sampler(lambda: MySampler(alpha=0.6))

def test_my_agent():
    check_agent(MyAgent, MySettings(hidden_dims=(16, 16)))
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.replay.index import ReplayIndex
from arb.replay.samplers import Sampler

MakeSampler = Callable[[], Sampler]


def check_sampler(make: MakeSampler, *, draws: int = 100_000, seed: int = 0) -> None:
    """Raise an `AssertionError` that says which promise a sampler breaks, and in which situation.

    The situations: one row, one trajectory, offline trajectories, an open episode on top of them, several
    environments at once, a ring that has wrapped through the middle of an episode, rows added after a refresh.
    In each: probabilities sum to one; draws have the shape asked for and name living rows; equal generators give
    equal rows; frequencies match the probabilities, and what has none is never drawn; a restored sampler continues
    with the same rows. `make` returns a new sampler, always with the same settings.
    """
    for situation, state in _SITUATIONS.items():
        try:
            _check_sampler(make, _in_situation(make(), seed, *state), draws, seed)
        except AssertionError as broken:
            raise AssertionError(f"{situation}: {broken}") from None
    print(f"{type(make()).__name__}: all checks passed")


def frequency_excess(counts: NDArray[np.int64], p: NDArray[np.float64]) -> float:
    """How far draws are from their probabilities: Pearson's chi-square as a standard normal score.

    Cells that expect fewer than ten draws are pooled. Values above 5 have a chance of about 3e-7 for fair draws
    (Wilson and Hilferty's approximation).
    """
    expected = p * counts.sum()
    small = expected < 10.0
    observed = np.append(counts[~small], counts[small].sum()).astype(np.float64)
    expected = np.append(expected[~small], expected[small].sum())
    observed, expected = observed[expected > 0.0], expected[expected > 0.0]
    freedom = len(expected) - 1
    if freedom < 1:
        return 0.0
    chi_square = float(np.sum((observed - expected) ** 2 / expected))
    spread = 2.0 / (9.0 * freedom)
    return float(((chi_square / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / np.sqrt(spread))


_REFRESH = ((), 0, 0)
_WRAPPED = (40, (9, 20), ((0,), 25, 8), _REFRESH)
_SITUATIONS: dict[str, tuple[Any, ...]] = {
    # capacity, lengths of the offline trajectories, and then steps: environments, how many, an end every so many
    "one row": (4, (1,), _REFRESH),
    "one trajectory": (20, (7,), _REFRESH),
    "offline trajectories before any refresh": (100, (10, 1, 25)),
    "offline trajectories": (100, (10, 1, 25), _REFRESH),
    "an open episode": (100, (10, 5), ((0,), 12, 99), _REFRESH),
    "several environments out of step": (60, (6,), ((0, 1, 2), 8, 4), ((2, 0), 3, 99), ((1,), 1, 99), _REFRESH),
    "a ring that wrapped through an episode": _WRAPPED,
    "rows added to a wrapped ring since the refresh": (*_WRAPPED, ((0, 1), 7, 5)),
    "all rows replaced since the refresh": (*_WRAPPED, ((0,), 47, 11)),
    "refreshed after that": (*_WRAPPED, ((0,), 47, 11), _REFRESH),
}


def _in_situation(sampler: Sampler, seed: int, capacity: int, lengths: Sequence[int], *stages: Any) -> Sampler:
    index = ReplayIndex(capacity, sampler, seed)
    index.extend(lengths)
    for envs, times, ends in stages:
        for t in range(times):
            index.append(envs)
            for env in envs if (t + 1) % ends == 0 else ():
                index.close(env)
        if not envs and sampler.needs_scores:
            scores = np.random.default_rng(seed).normal(-2.0, 1.0, index.size).astype(np.float32)
            sampler.update_weights(scores, index.num_added)
    return sampler


def _check_sampler(make: MakeSampler, sampler: Sampler, draws: int, seed: int) -> None:
    def sampled(which: Sampler, *shape: int) -> NDArray[np.int64]:
        return which.sample_indices(np.random.default_rng(seed), shape)

    p, size = sampler.probabilities(), sampler.index.size
    assert p.shape == (size,), f"probabilities() has shape {p.shape} for {size} rows"
    assert (p >= 0.0).all(), "probabilities() has negative entries"
    assert abs(p.sum() - 1.0) < 1e-9, f"probabilities() sums to {p.sum()}, not to 1"
    for shape in ((256,), (3, 8), (1,)):
        rows = sampled(sampler, *shape)
        assert rows.shape == shape, f"sample_indices(rng, {shape}) returned shape {rows.shape}"
        assert np.issubdtype(rows.dtype, np.integer), f"sample_indices returned {rows.dtype}, not integers"
        assert ((rows >= 0) & (rows < size)).all(), f"sample_indices returned rows outside 0..{size - 1}"
        assert (rows == sampled(sampler, *shape)).all(), "two draws from equal generators differ: use rng alone"
    counts = np.bincount(sampled(sampler, max(draws // 256, 1), 256).reshape(-1), minlength=size)
    never = np.flatnonzero((counts > 0) & (p == 0.0))
    assert len(never) == 0, f"row {never[:1]} has probability 0 and was drawn"
    excess = frequency_excess(counts, p)
    assert excess < 5.0, f"frequencies do not match probabilities(): chi-square at {excess:.1f} sigma"
    twin = make()
    ReplayIndex(sampler.index.capacity, twin).restore(*sampler.index.state())
    assert (sampled(sampler, 64) == sampled(twin, 64)).all(), "a sampler restored from state() draws other rows"


# ---- agents ----------------------------------------------------------------------------------------------------------
def check_agent(kind: Any, config: Any, *, obs_dim: int = 4, action_dim: int = 2, seed: int = 0) -> None:
    """Raise an `AssertionError` that says which promise an agent breaks, before or after `begin_online`.

    The promises: equal keys make equal agents; an update returns an agent of the same shape, changes its networks,
    leaves the agent passed in as it was, and reports finite losses; actions lie in [-1, 1] and have the right shape,
    also from the actor in NumPy; the score is one finite number per row; a file holds the agent bit for bit.

    `kind` is the agent's class, for continuous actions, and `config` its settings; small networks make this quick.
    """
    import jax

    from arb.agents import load, save

    agent, twin = (kind.create(jax.random.key(seed), obs_dim, action_dim, config) for _ in range(2))
    _check_same(agent, twin, "two agents created from equal keys differ")
    expected = {"obs_dim": obs_dim, "action_dim": action_dim, "config": config, "online": False}
    for name, value in expected.items():
        assert getattr(agent, name, None) == value, f"a new agent's {name} is {getattr(agent, name, None)!r}"
    assert agent.begin_online().online, "begin_online() must set `online`"
    for situation, current in (("offline", agent), ("online", agent.begin_online())):
        try:
            _check_update(current, obs_dim, action_dim, seed)
            _check_actions(current, obs_dim, action_dim, seed)
            with tempfile.TemporaryDirectory() as folder:
                save(current, Path(folder, "agent"))
                loaded = load(Path(folder, "agent"), kind, config)
            _check_same(current, loaded, "an agent loaded from a file is not the one that was saved")
        except AssertionError as broken:
            raise AssertionError(f"{situation}: {broken}") from None
    print(f"{kind.__name__}: all checks passed")


def _check_update(agent: Any, obs_dim: int, action_dim: int, seed: int) -> None:
    import jax

    from arb.replay.storage import Batch

    rng = np.random.default_rng(seed)
    obs, next_obs = rng.standard_normal((2, 32, obs_dim), dtype=np.float32)
    action = rng.uniform(-1.0, 1.0, (32, action_dim)).astype(np.float32)
    reward, mask = rng.standard_normal(32, dtype=np.float32), (rng.random(32) > 0.2).astype(np.float32)
    batch = Batch(obs, action, reward, next_obs, mask, np.full(32, -np.inf, np.float32))
    before = jax.tree.map(np.array, agent)
    update = jax.jit(lambda agent, batch, key: agent.update(batch, key))
    (after, metrics), (again, _) = (update(agent, batch, jax.random.key(seed)) for _ in range(2))
    _check_same(agent, before, "update() changed the agent it was called on")
    _check_same(after, again, "two updates with equal keys differ: take all randomness from the key")
    shape_of: Any = jax.tree.structure
    assert shape_of(agent) == shape_of(after), "update() returned an agent of another structure"
    pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))
    for old, new in pairs:
        was, is_now = (f"{array.dtype}{array.shape}" for array in (old, new))
        assert was == is_now, f"update() made an array of {was} one of {is_now}"
    assert any((old != np.asarray(new)).any() for old, new in pairs), "update() changed nothing"
    assert any(name.endswith("_loss") for name in metrics), f"no metric's name ends in _loss: {', '.join(metrics)}"
    for name, value in metrics.items():
        assert np.shape(value) == (), f"metric {name} has shape {np.shape(value)}, not one number"
        assert np.isfinite(value), f"metric {name} is {value} on ordinary data"


def _check_actions(agent: Any, obs_dim: int, action_dim: int, seed: int) -> None:
    import jax

    from arb.agents import on_host, scores

    obs = np.random.default_rng(seed).standard_normal((16, obs_dim), dtype=np.float32)
    host, key = on_host(agent.actor), jax.random.key(seed)
    for name, action in {
        "act": agent.act(obs, key),
        "mode": agent.mode(obs),
        "actor.act in NumPy": host.act(obs, np.random.default_rng(seed)),
        "actor.act in NumPy of one observation": host.act(obs[0], np.random.default_rng(seed))[None],
        "actor.mode in NumPy": host.mode(obs),
    }.items():
        rows = 1 if "one observation" in name else 16
        assert np.shape(action) == (rows, action_dim), f"{name} has shape {np.shape(action)}, not {(rows, action_dim)}"
        assert (np.abs(action) <= 1.0 + 1e-6).all(), f"{name} leaves the box [-1, 1]"
    assert np.allclose(host.mode(obs), agent.mode(obs), atol=1e-3), "the actor's mode in NumPy is not that in JAX"
    assert (np.asarray(agent.mode(obs)) == np.asarray(agent.mode(obs))).all(), "mode() without a key is random"
    for likelihood in ("standard", "density"):
        score = scores(agent, obs, np.clip(agent.act(obs, key), -0.99, 0.99), likelihood, chunk=16)
        assert score.shape == (16,), f"score has shape {score.shape} for 16 rows"
        assert np.isfinite(score).all(), f"score ({likelihood}) is not finite for the agent's own actions"


def _check_same(agent: Any, other: Any, problem: str) -> None:
    import jax

    shape_of: Any = jax.tree.structure
    assert shape_of(agent) == shape_of(other), f"{problem}, already in structure"
    same = jax.tree.map(lambda x, y: np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True), agent, other)
    assert all(jax.tree.leaves(same)), problem
