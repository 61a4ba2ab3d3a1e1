"""A SAC run in a folder: the policies and the replay that collected datasets are made of.

The agent, the replay buffer and the collector are those of `arb run`. The folder holds one policy per evaluation
(`actor-XXXXXXXX.npz`), and what a run that was stopped needs to continue bit for bit: agent, buffer and, written last,
`run.json`, which names them. No file holds a pickle.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arb.agents import SAC, SACConfig, learn, load, on_host, save
from arb.envs import flattened, make
from arb.envs.rollout import ActionMap, Collector, play
from arb.errors import DataError
from arb.files import read_json, write_npz, write_text
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Uniform
from arb.suite.ladders import Snapshot, nearest, read_policy
from arb.suite.recorder import Dataset

RUN = "run.json"
LONGEST = 5_000_000
"""Steps of a run, all of which its buffer keeps; memory is taken as they come."""


@dataclass(frozen=True)
class Plan:
    """What is run. Two plans that agree give the same folder on one machine."""

    env: str
    seed: int = 0
    steps: int = 200_000
    evaluate_every: int = 10_000
    evaluation_episodes: int = 10
    warmup: int = 5_000
    """Steps with uniformly random actions before the first update."""
    chunk: int = 200
    """Steps with one policy, then as many updates."""
    batch: int = 128
    sac: SACConfig = field(default_factory=lambda: SACConfig(hidden=(128, 128)))


@dataclass
class Run:
    """A finished run: `history` has one (step, mean return of the mode) per evaluation."""

    plan: Plan
    folder: Path
    history: list[tuple[int, float]]

    def policy(self, step: int) -> Snapshot:
        """The policy as it was at one of the steps of `history`."""
        return read_policy(self.folder / f"actor-{step:08d}.npz")

    def replay(self, until: int) -> Dataset:
        """Everything the run did up to a step, in order, with actions as the environment took them."""
        session = Session(self.plan, self.folder)
        session.restore()
        return session.rows(until)

    def best(self) -> int:
        """The step of the best evaluation."""
        return max(self.history, key=lambda entry: entry[1])[0]

    def reaches(self, fraction: float) -> int:
        """The first step whose return lies at least this fraction of the way from the first evaluation to the best."""
        low, high = self.history[0][1], max(value for _, value in self.history)
        return next(step for step, value in self.history if value >= low + fraction * (high - low))

    def nearest(self, fraction: float) -> int:
        """The step whose return is nearest to this fraction of the way."""
        return nearest(dict(self.history), self.history[0][1], fraction)[0]


class Session:
    """The moving parts of a run between two chunks."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        act, draw, self.evaluation = np.random.SeedSequence(plan.seed).spawn(3)
        self.collector = Collector(self.make_env(), act)
        self.actions: ActionMap = self.collector.actions
        if self.actions.discrete:
            raise DataError(
                f"{plan.env} has discrete actions: SAC needs a bounded box, only the quality 'random' works without it"
            )
        self.buffer = ReplayBuffer(LONGEST, Uniform(), seed=draw)
        shape = self.collector.env.observation_space.shape
        if shape is None or len(shape) != 1:
            raise DataError(
                f"{plan.env} gives observations of shape {shape}: SAC needs vectors, "
                "only the quality 'random' works without them"
            )
        self.key = jax.random.key(plan.seed)
        self.agent = SAC.create(self.key, shape[0], self.actions.size, plan.sac)
        self.step = 0
        self.history: list[tuple[int, float]] = []

    def make_env(self) -> Any:
        """The environment, its observations one vector."""
        return flattened(make(self.plan.env))

    def advance(self) -> None:
        """Collect a chunk with the policy as it is, random before the end of the warm-up, and learn as much."""
        warm = self.step >= self.plan.warmup
        self.collector.collect(
            on_host(self.agent.actor) if warm else _Random(self.actions.size), self.buffer, self.plan.chunk
        )
        if self.step + self.plan.chunk > self.plan.warmup:
            batches = self.buffer.sample((self.plan.chunk, self.plan.batch))
            self.agent, _ = learn(self.agent, batches, jax.random.fold_in(self.key, self.step))
        self.step += self.plan.chunk

    def evaluate(self) -> None:
        """Measure the mode of the policy, keep the policy, and write what is needed to continue."""
        actor = on_host(self.agent.actor)
        seed = np.random.SeedSequence(self.evaluation.entropy, spawn_key=self.evaluation.spawn_key)
        returns = play(actor, self.make_env, self.plan.evaluation_episodes, seed).returns
        self.history.append((self.step, float(np.mean(returns))))
        layers = {f"weight_{i}": weight for i, weight in enumerate(actor.net.weights)}
        layers |= {f"bias_{i}": bias for i, bias in enumerate(actor.net.biases)}
        last, size = len(actor.net.weights) - 1, self.actions.size
        # The two scalars that scale the log-deviation are part of the last layer in a file.
        for name, shift in ((f"weight_{last}", 0.0), (f"bias_{last}", float(actor.offset))):
            layers[name] = layers[name].copy()
            layers[name][..., size:] = float(actor.multiplier) * layers[name][..., size:] + shift
        write_npz(self.folder / f"actor-{self.step:08d}.npz", layers)
        self.save()

    def save(self) -> None:
        """Write agent and buffer under the step's name, then `run.json`; then remove those of the step before."""
        save(self.agent, self.folder / f"agent-{self.step:08d}.safetensors")
        self.buffer.save(self.folder / f"buffer-{self.step:08d}.npz")
        state = {"plan": asdict(self.plan), "step": self.step, "history": self.history}
        write_text(self.folder / RUN, json.dumps({**state, "collector": self.collector.state()}))
        for old in (*self.folder.glob("agent-*.safetensors"), *self.folder.glob("buffer-*.npz")):
            if f"-{self.step:08d}." not in old.name:
                old.unlink()

    def restore(self) -> None:
        """Continue from what the folder holds."""
        state = read_json(self.folder / RUN)
        kept, asked = state["plan"], json.loads(json.dumps(asdict(self.plan)))
        changed = [f"{key} {kept.get(key)} there, {asked[key]} here" for key in asked if kept.get(key) != asked[key]]
        if [change for change in changed if not change.startswith("steps ")]:
            raise DataError(f"{self.folder} holds another run ({', '.join(changed)}): choose another folder")
        self.step, self.history = state["step"], [(step, value) for step, value in state["history"]]
        self.agent = load(self.folder / f"agent-{self.step:08d}.safetensors", self.plan.sac)
        self.buffer.load(self.folder / f"buffer-{self.step:08d}.npz")
        self.collector.restore(state["collector"])

    def rows(self, until: int) -> Dataset:
        """The first steps of the run as a dataset."""
        rows = np.arange(min(until, self.step))
        batch = self.buffer.gather(rows)
        ends = self.buffer.ledger.following[rows] < 0
        ends[-1] = True  # the recording stops here
        ended = batch.mask == 0
        return {
            "observations": batch.obs,
            "actions": np.asarray(self.actions.to_env(batch.action), np.float32),
            "rewards": batch.reward,
            "next_observations": batch.next_obs,
            "terminals": ended,
            "timeouts": ends & ~ended,
        }


@dataclass(frozen=True)
class _Random:
    size: int

    def act(self, _: Any, rng: np.random.Generator) -> Any:
        return rng.uniform(-1.0, 1.0, self.size).astype(np.float32)


def train(plan: Plan, folder: Path, report: Callable[[int, float], None] = lambda _step, _value: None) -> Run:
    """Run SAC to the end of the plan, continuing what the folder holds; `report` hears every evaluation."""
    if plan.evaluate_every % plan.chunk or plan.steps % plan.evaluate_every or plan.warmup % plan.chunk:
        raise DataError(
            f"steps {plan.steps} must be a multiple of evaluate_every {plan.evaluate_every}, and that and warmup "
            f"{plan.warmup} a multiple of chunk {plan.chunk}"
        )
    if plan.steps > LONGEST:
        raise DataError(f"{plan.steps:,} steps of SAC are too many: at most {LONGEST:,}")
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(plan, folder)
    if (folder / RUN).exists():
        session.restore()
    while session.step < plan.steps:
        session.advance()
        if session.step % plan.evaluate_every == 0:
            session.evaluate()
            report(*session.history[-1])
    return Run(plan, folder, [entry for entry in session.history if entry[0] <= plan.steps])
