"""Checks for samplers of your own: whether they keep the promises that the buffer and its users rely on.

from arb.testing import check_sampler

def test_my_sampler():
    check_sampler(lambda: MySampler(alpha=0.6))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from arb.buffer.ledger import Ledger
from arb.buffer.samplers import Sampler

MakeSampler = Callable[[], Sampler]


def check_sampler(make: MakeSampler, *, draws: int = 100_000, seed: int = 0) -> None:
    """Raise an `AssertionError` that says which promise a sampler breaks, and in which situation.

    The situations: one row, one trajectory, offline trajectories, an open episode on top of them, several
    environments at once, a ring that has wrapped through the middle of an episode, rows added after a refresh.
    In each: probabilities sum to one; draws have the shape asked for and name living rows; equal generators give
    equal rows; frequencies match the probabilities, and what has none is never drawn; a restored sampler continues
    with the same rows.

    Args:
        make: returns a new sampler, always with the same settings.
        draws: rows to draw per situation for the comparison of frequencies.
        seed: of everything random here.
    """
    for situation, sampler in _situations(make, seed):
        try:
            _check_probabilities(sampler)
            _check_shapes(sampler, seed)
            _check_frequencies(sampler, draws, seed)
            _check_restored(make, sampler, seed)
        except AssertionError as broken:
            raise AssertionError(f"{situation}: {broken}") from None


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


def _situations(make: MakeSampler, seed: int) -> Iterator[tuple[str, Sampler]]:
    """Samplers bound to ledgers in typical states, weighed where they ask for it."""
    rng = np.random.default_rng(seed)

    def begin(capacity: int, *lengths: int) -> Sampler:
        sampler = make()
        sampler.bind(Ledger(capacity))
        if lengths:
            sampler.insert(sampler.ledger.extend(np.array(lengths), online=False)[0])
        return sampler

    def step(sampler: Sampler, *envs: int, times: int = 1, ends: int = 10**9) -> None:
        for t in range(times):
            sampler.insert(sampler.ledger.append(envs, online=True)[0])
            if (t + 1) % ends == 0:
                for env in envs:
                    sampler.ledger.close(env)

    def weigh(sampler: Sampler) -> Sampler:
        if sampler.asks_policy:
            ledger = sampler.ledger
            sampler.reweigh(rng.normal(-2.0, 1.0, ledger.size).astype(np.float32), ledger.head)
        return sampler

    yield "one row", weigh(begin(4, 1))
    yield "one trajectory", weigh(begin(20, 7))
    yield "offline trajectories before any refresh", begin(100, 10, 1, 25)
    yield "offline trajectories", weigh(begin(100, 10, 1, 25))
    opened = begin(100, 10, 5)
    step(opened, 0, times=12)
    yield "an open episode", weigh(opened)
    several = begin(60, 6)
    step(several, 0, 1, 2, times=8, ends=4)
    step(several, 2, 0, times=3)
    step(several, 1)
    yield "several environments out of step", weigh(several)
    wrapped = begin(40, 9, 20)
    step(wrapped, 0, times=25, ends=8)
    yield "a ring that wrapped through an episode", weigh(wrapped)
    step(wrapped, 0, 1, times=7, ends=5)
    yield "rows added to a wrapped ring since the refresh", wrapped
    step(wrapped, 0, times=40, ends=11)
    yield "all rows replaced since the refresh", wrapped
    yield "refreshed after that", weigh(wrapped)


def _check_probabilities(sampler: Sampler) -> None:
    p, size = sampler.probabilities(), sampler.ledger.size
    assert p.shape == (size,), f"probabilities() has shape {p.shape} for {size} rows"
    assert (p >= 0.0).all(), "probabilities() has negative entries"
    assert abs(p.sum() - 1.0) < 1e-9, f"probabilities() sums to {p.sum()}, not to 1"


def _check_shapes(sampler: Sampler, seed: int) -> None:
    size = sampler.ledger.size
    for shape in ((256,), (3, 8), (1,)):
        rows = sampler.draw(np.random.default_rng(seed), shape)
        again = sampler.draw(np.random.default_rng(seed), shape)
        assert rows.shape == shape, f"draw(rng, {shape}) returned shape {rows.shape}"
        assert np.issubdtype(rows.dtype, np.integer), f"draw returned {rows.dtype}, not integers"
        assert ((rows >= 0) & (rows < size)).all(), f"draw returned rows outside 0..{size - 1}"
        assert (rows == again).all(), "two draws from equal generators differ: take all randomness from rng"


def _check_frequencies(sampler: Sampler, draws: int, seed: int) -> None:
    p = sampler.probabilities()
    rows = sampler.draw(np.random.default_rng(seed), (max(draws // 256, 1), 256))
    counts = np.bincount(rows.reshape(-1), minlength=len(p))
    never = np.flatnonzero((counts > 0) & (p == 0.0))
    assert len(never) == 0, f"row {never[0] if len(never) else ''} has probability 0 and was drawn"
    excess = frequency_excess(counts, p)
    assert excess < 5.0, f"frequencies of draw() do not match probabilities(): chi-square at {excess:.1f} sigma"


def _check_restored(make: MakeSampler, sampler: Sampler, seed: int) -> None:
    ledger = Ledger.from_state(sampler.ledger.capacity, sampler.ledger.state())
    twin = make()
    twin.bind(ledger)
    twin.restore(sampler.state())
    ours, theirs = (s.draw(np.random.default_rng(seed), (64,)) for s in (sampler, twin))
    assert (ours == theirs).all(), "a sampler restored from state() draws other rows"
