"""What adaptive replay does to plain TD3 and SAC: five seeds on Pendulum, every strategy from the same trained agent.

    python benchmarks/own_code.py                    all strategies, five seeds; the archive keeps what is done
    python benchmarks/own_code.py --agents td3       one of them
    python benchmarks/own_code.py --table            the table of the archive, without runs
    python benchmarks/own_code.py --quick            a few steps, to see that it works

The agents are written here in PyTorch, as one would write them: two critics, no pessimism towards the dataset. The past
data are 10,000 random steps and the 10,000 of a noisy TD3 that learns. 2,000 updates offline, then 4,000 steps online
with an update each, an evaluation of 10 episodes every 500 steps. Two remedies stand beside ARB: half of each batch
drawn uniformly, and critics that learn from uniform batches while the policy learns from ARB's. What was expected is in
results/forecasts.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from scipy import stats
from torch import nn

import arb

ARCHIVE = Path(__file__).parent.parent / "results" / "own-code" / "pendulum.jsonl"
AGENTS, LIMIT, GAMMA, BATCH = ("td3", "sac"), 2.0, 0.99, 256
STRATEGIES = {
    "uniform": (lambda: arb.Uniform(), "all"),
    "parallel": (lambda: arb.Mixed(), "all"),
    "arb_auto 0.25": (lambda: arb.ARB("auto"), "all"),
    "arb_auto 0.5": (lambda: arb.ARB("auto", effective=0.5), "all"),
    "half uniform": (lambda: arb.ARB("auto"), "half"),
    "uniform critics": (lambda: arb.ARB("auto"), "actor"),
}
"""The sampler, and which part of an update its rows are for."""


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs))


class Agent(nn.Module):
    """TD3 or SAC with a fixed entropy weight of 0.2."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.updates = kind, 0
        self.actor, self.critics = network(3, 1 if kind == "td3" else 2), nn.ModuleList([network(4, 1), network(4, 1)])
        self.slow = copy.deepcopy(nn.ModuleList([self.actor, self.critics]))
        self.adams = [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.actor, self.critics)]

    def gaussian(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.actor(torch.as_tensor(obs, dtype=torch.float32)).chunk(2, -1)
        return mean, log_std.clamp(-5, 2)

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.gaussian(obs)
        noise = torch.distributions.Normal(mean, log_std.exp())
        before = noise.rsample()
        action = torch.tanh(before)
        return LIMIT * action, (noise.log_prob(before) - torch.log(1 - action**2 + 1e-6)).sum(-1)

    def mean(self, obs: Any) -> torch.Tensor:
        return LIMIT * torch.tanh(self.actor(torch.as_tensor(obs, dtype=torch.float32))[..., :1])

    def q(self, critics: Any, obs: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        return [critic(torch.cat([obs, action], -1))[..., 0] for critic in critics]

    def update(self, batch: Any, for_actor: Any) -> None:
        obs, action, reward, next_obs, mask = (torch.as_tensor(np.asarray(x), dtype=torch.float32) for x in batch[:5])
        slow_actor, slow_critics = self.slow
        with torch.no_grad():
            if self.kind == "td3":
                noise = (0.2 * LIMIT * torch.randn_like(action)).clamp(-0.5 * LIMIT, 0.5 * LIMIT)
                next_action = (LIMIT * torch.tanh(slow_actor(next_obs)) + noise).clamp(-LIMIT, LIMIT)
                bonus = torch.zeros_like(reward)
            else:
                next_action, log_prob = self.sample(next_obs)
                bonus = -0.2 * log_prob
            y = reward + GAMMA * mask * (torch.min(*self.q(slow_critics, next_obs, next_action)) + bonus)
        self.step(1, sum(((q - y) ** 2).mean() for q in self.q(self.critics, obs, action)))
        self.updates += 1
        obs = torch.as_tensor(np.asarray(for_actor.obs), dtype=torch.float32)
        if self.kind == "sac":
            action, log_prob = self.sample(obs)
            self.step(0, (0.2 * log_prob - torch.min(*self.q(self.critics, obs, action))).mean())
        elif self.updates % 2 == 0:
            self.step(0, -self.q(self.critics, obs, self.mean(obs))[0].mean())
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.fast(), strict=True):
                slow.lerp_(fast, 0.005)

    def fast(self) -> Iterator[nn.Parameter]:
        yield from self.actor.parameters()
        yield from self.critics.parameters()

    def step(self, which: int, loss: torch.Tensor) -> None:
        self.adams[which].zero_grad()
        loss.backward()
        self.adams[which].step()

    @torch.no_grad()
    def act(self, obs: np.ndarray) -> np.ndarray:
        if self.kind == "sac":
            return self.sample(torch.as_tensor(obs, dtype=torch.float32))[0].numpy()
        return (self.mean(obs) + 0.1 * LIMIT * torch.randn(1)).clamp(-LIMIT, LIMIT).numpy()

    def score(self) -> Any:
        """What the docs say: the distance to a deterministic actor, the likelihood under a Gaussian one."""
        if self.kind == "td3":
            return arb.distance_score(torch.no_grad()(lambda obs: self.mean(obs).numpy()))
        gaussian = torch.no_grad()(lambda obs: tuple(x.numpy() for x in self.gaussian(obs)))
        return arb.tanh_gaussian_score(gaussian, low=-LIMIT, high=LIMIT)


def evaluate(agent: Agent, episodes: int = 10) -> float:
    env, total = gym.make("Pendulum-v1"), 0.0
    for episode in range(episodes):
        obs, over = env.reset(seed=10_000 + episode)[0], False
        while not over:
            with torch.no_grad():
                obs, reward, _, over, _ = env.step(agent.mean(obs).numpy())
            total += float(reward)
    return total / episodes


def train(agent: Agent, buffer: arb.ReplayBuffer, steps: int, seed: int, part: str, every: int) -> list[float]:
    """Online steps with an update each; the evaluations."""
    env, rng, curve = gym.make("Pendulum-v1"), np.random.default_rng(seed), []
    obs = env.reset(seed=seed)[0]
    adaptive = isinstance(buffer.sampler, arb.ARB)
    for step in range(steps):
        if adaptive and step % every == 0:
            buffer.refresh(agent.score())
        action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        obs = env.reset(seed=int(rng.integers(2**31)))[0] if terminated or truncated else next_obs
        update(agent, buffer, rng, part)
        if (step + 1) % every == 0:
            curve.append(round(evaluate(agent), 1))
    return curve


def update(agent: Agent, buffer: arb.ReplayBuffer, rng: np.random.Generator, part: str) -> None:
    rows = buffer.sample_indices(BATCH)
    uniform = rng.integers(len(buffer), size=BATCH)
    if part == "half":
        rows = np.concatenate([rows[: BATCH // 2], uniform[: BATCH // 2]])
    batch = buffer.gather(rows)
    agent.update(buffer.gather(uniform) if part == "actor" else batch, batch)


def past_data(steps: int) -> dict[str, np.ndarray]:
    """Half random steps, half those of a TD3 that learns from them and explores widely."""
    torch.manual_seed(1234)
    rng, env, agent = np.random.default_rng(1234), gym.make("Pendulum-v1"), Agent("td3")
    buffer = arb.ReplayBuffer(steps, arb.Uniform(), gamma=GAMMA, seed=1234)
    obs = env.reset(seed=1234)[0]
    for step in range(steps):
        learned = step >= steps // 2
        action = agent.act(obs) + rng.normal(0, 0.3 * LIMIT, 1) if learned else rng.uniform(-LIMIT, LIMIT, 1)
        action = np.clip(action, -LIMIT, LIMIT).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        obs = env.reset(seed=int(rng.integers(2**31)))[0] if truncated else next_obs
        if learned and step % 4 == 0:
            update(agent, buffer, rng, "all")
    return buffer.to_dataset()


def compare(agents: list[str], seeds: list[int], quick: bool) -> None:
    """Run what the archive does not have."""
    rows = archived() if ARCHIVE.is_file() and not quick else []
    done = {(row["agent"], row["strategy"], row["seed"]) for row in rows}
    past, (offline, steps, every) = past_data(600 if quick else 20_000), (20, 40, 20) if quick else (2000, 4000, 500)
    for seed in seeds:
        for kind in agents:
            torch.manual_seed(seed)
            fresh, rng = Agent(kind), np.random.default_rng(seed)
            buffer = arb.ReplayBuffer(len(past), arb.Uniform(), gamma=GAMMA, seed=seed)
            buffer.load_dataset(past)
            for _ in range(offline):
                update(fresh, buffer, rng, "all")
            before = evaluate(fresh)
            for strategy, (sampler, part) in STRATEGIES.items():
                if (kind, strategy, seed) in done:
                    continue
                torch.manual_seed(seed)
                buffer = arb.ReplayBuffer(
                    len(past) + steps, sampler(), gamma=GAMMA, action_bounds=(-LIMIT, LIMIT), seed=seed
                )
                buffer.load_dataset(past)
                curve = train(copy.deepcopy(fresh), buffer, steps, seed, part, every)
                row = {
                    "agent": kind,
                    "strategy": strategy,
                    "seed": seed,
                    "pretrained": round(before, 1),
                    "curve": curve,
                }
                row["versions"] = {"numpy": np.__version__, "torch": torch.__version__, "gymnasium": gym.__version__}
                row["machine"] = platform.machine()
                rows.append(row)
                print(
                    f"{kind} {strategy:<16} seed {seed}: {before:.0f} -> {curve[-1]:.0f}, mean {np.mean(curve):.0f}",
                    flush=True,
                )
                if not quick:
                    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
                    ARCHIVE.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table(rows)


def archived() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ARCHIVE.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> None:
    """Mean return of the online curve, and the paired difference to uniform sampling with Student's 95 % interval."""
    print("\n| agent | strategy | seeds | offline | mean of the curve | worst evaluation | minus uniform |")
    print("|---|---|---|---|---|---|---|")
    for kind in AGENTS:
        base = {
            row["seed"]: np.mean(row["curve"]) for row in rows if row["agent"] == kind and row["strategy"] == "uniform"
        }
        for strategy in STRATEGIES:
            ours = [row for row in rows if (row["agent"], row["strategy"]) == (kind, strategy)]
            if not ours:
                continue
            apart = np.array([np.mean(row["curve"]) - base[row["seed"]] for row in ours if row["seed"] in base])
            half = (
                stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else None
            )
            minus = f"{apart.mean():+.0f}" + (
                f" [{apart.mean() - half:+.0f}, {apart.mean() + half:+.0f}]" if half else ""
            )
            worst = min(min(row["curve"]) for row in ours)
            offline, mean = (
                np.mean([row["pretrained"] for row in ours]),
                np.mean([np.mean(row["curve"]) for row in ours]),
            )
            print(f"| {kind} | {strategy} | {len(ours)} | {offline:.0f} | {mean:.0f} | {worst:.0f} | {minus} |")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--agents", nargs="+", default=list(AGENTS), choices=AGENTS)
    options.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    options.add_argument("--quick", action="store_true")
    options.add_argument("--table", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    if chosen.table:
        table(archived())
    else:
        compare(chosen.agents, chosen.seeds[:1] if chosen.quick else chosen.seeds, chosen.quick)
