"""Updates of SAC in PyTorch, in the style of CleanRL's script, with batches from several buffers.

    pip install -e . -r benchmarks/requirements.txt
    taskset -c 0 python benchmarks/batches.py               one core; without taskset, all of them

Every buffer holds the same Hopper-sized transitions and hands out tensors in batches of 256: ours by ARB's weights, the
hosts' own evenly. "One fixed batch" is the learner alone. With `prefetch` a thread prepares the next batch, or block of
batches, while the learner works. All take turns; the ratio is to Stable-Baselines3's buffer in the same turn.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from arb import Batch
from interleaved import cpu_model, table, time_in_turns
from rivals import TwinQ, follow, mlp, step
from sampling import ACTION, BATCH, OBS, Columns, filled, stable_baselines3

BLOCK = 50
Batches = Iterator[tuple[Tensor, ...]]
"""Observation, action, reward, next observation, and 1 where the task goes on."""


class SAC:
    """Two critics and their targets, a squashed Gaussian, the entropy weight adapted: an update per call."""

    def __init__(self) -> None:
        self.q, self.actor, self.log_alpha = (
            TwinQ(OBS + ACTION, 2),
            mlp(OBS, 2, 2 * ACTION),
            nn.Parameter(torch.zeros(1)),
        )
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.adams = [
            torch.optim.Adam(part, 1e-3) for part in (self.q.parameters(), self.actor.parameters(), [self.log_alpha])
        ]

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, torch.exp(-5 + 3.5 * (torch.tanh(log_std) + 1)), validate_args=False)
        x = normal.rsample()
        action = torch.tanh(x)
        return action, (normal.log_prob(x) - torch.log(1 - action**2 + 1e-6)).sum(-1)

    def update(self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, going: Tensor) -> None:
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            following, log_prob = self.sample(next_obs)
            y = reward + 0.99 * going * (self.target(next_obs, following) - alpha * log_prob)
        step(self.adams[0], sum(functional.mse_loss(q, y) for q in self.q.both(obs, action)))
        chosen, log_prob = self.sample(obs)
        step(self.adams[1], (alpha * log_prob - self.q(obs, chosen)).mean())
        step(self.adams[2], (-self.log_alpha.exp() * (log_prob.detach() - ACTION)).mean())
        follow(self.target, self.q)


def parts(batch: Batch) -> tuple[Any, ...]:
    return batch.obs, batch.action, batch.reward, batch.next_obs, batch.mask


def batches_of(data: Columns) -> dict[str, Batches]:
    """An endless stream from every buffer."""
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = filled(data)
    buffer.refresh(lambda obs, _action: obs[:, 0])
    host = stable_baselines3(data)
    other = TensorDictReplayBuffer(storage=LazyTensorStorage(data.rows), batch_size=BATCH)
    names = ("obs", "action", "reward", "next_obs", "end")
    columns = {name: torch.from_numpy(getattr(data, name)) for name in names}
    other.extend(TensorDict(columns, batch_size=[data.rows]))

    def of_host() -> Batches:
        while True:
            drawn = host(BATCH)
            yield drawn.observations, drawn.actions, drawn.rewards[:, 0], drawn.next_observations, 1 - drawn.dones[:, 0]

    def of_torchrl() -> Batches:
        while True:
            drawn = other.sample()
            obs, action, reward, next_obs, end = (drawn[name] for name in names)
            yield obs, action, reward, next_obs, 1.0 - end.float()

    def of_ours(prefetch: bool) -> Batches:
        return map(parts, buffer.batches(10**9, BATCH, to=torch, prefetch=prefetch))

    def in_blocks(prefetch: bool) -> Batches:
        blocks = buffer.batches(10**9, (BLOCK, BATCH), to=torch, prefetch=prefetch)
        return itertools.chain.from_iterable(zip(*parts(block), strict=True) for block in blocks)

    return {
        "Stable-Baselines3": of_host(),
        "TorchRL": of_torchrl(),
        "arb": of_ours(prefetch=False),
        "arb, prefetch": of_ours(prefetch=True),
        f"arb, {BLOCK} batches per call": in_blocks(prefetch=False),
        f"arb, {BLOCK} batches per call, prefetch": in_blocks(prefetch=True),
        "one fixed batch": itertools.repeat(next(of_ours(prefetch=False))),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=float, default=1e6)
    options.add_argument("--updates", type=int, default=200)
    options.add_argument("--turns", type=int, default=9)
    options.add_argument("--cpu", action="store_true", help="count the time of this process alone, on a busy machine")
    options.add_argument("--quick", action="store_true", help="1e4 rows, ten updates, one turn")
    chosen = options.parse_args()
    rows, updates, turns = (10_000, 10, 1) if chosen.quick else (int(chosen.rows), chosen.updates, chosen.turns)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def learning(batches: Batches) -> Callable[[], object]:
        agent = SAC()
        return lambda: [agent.update(*batch) for batch in itertools.islice(batches, updates)]

    def drawing(batches: Batches) -> Callable[[], object]:
        return lambda: [None for _ in itertools.islice(batches, updates)]

    streams = batches_of(Columns(rows))
    clock = time.process_time if chosen.cpu else time.perf_counter
    seconds = time_in_turns({name: learning(stream) for name, stream in streams.items()}, turns, clock)
    drawn = time_in_turns({name: drawing(stream) for name, stream in streams.items()}, turns, clock)
    base, lines = seconds["Stable-Baselines3"], []
    for name, times in seconds.items():
        low, middle, high = np.percentile(base / times, [25, 50, 75])
        cells = [f"{updates / np.median(times):.0f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
        lines.append([name, *cells, f"{1e6 * np.median(drawn[name]) / updates:.0f}"])
    print(f"{rows:.0e} rows, {cpu_model()}, {turns} turns of {updates} updates")
    print(table(["batches from", "updates/s", "against Stable-Baselines3", "µs per batch alone"], lines))


if __name__ == "__main__":
    main()
