"""A SAC run in a folder, and the D4RL-style datasets that are made of it, for any Gymnasium environment.

The agent, the replay buffer and the collector are those of `arb run`. The folder holds one policy per evaluation
(`actor-XXXXXXXX.npz`), and what a run that was stopped needs to continue bit for bit: agent, buffer and, written last,
`run.json`, which names them. Several datasets can be made from one folder. No file holds a pickle.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arb.agents import SAC, SACConfig, learn, load, on_host, save
from arb.data.formats import check_suffix, write_dataset
from arb.envs import flattened, make
from arb.envs.rollout import ActionMap, Collector, play
from arb.errors import DataError, check_choice
from arb.files import read_json, write_npz, write_text
from arb.policies.actors import TanhGaussian
from arb.policies.networks import MLP
from arb.progress import count, progress
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset
from arb.replay.samplers import Uniform
from arb.suite.ladders import FRACTIONS, read_layers
from arb.suite.recorder import RECIPES, Actor, record_recipe, versions

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
    sac: SACConfig = field(default_factory=lambda: SACConfig(hidden_dims=(128, 128)))


@dataclass
class Run:
    """A finished run: `history` has one (step, mean return of the mode) per evaluation."""

    plan: Plan
    folder: Path
    history: list[tuple[int, float]]

    def reaches(self, fraction: float) -> int:
        """The first step whose return lies at least this fraction of the way from the first evaluation to the best."""
        low, high = self.history[0][1], max(value for _, value in self.history)
        return next(step for step, value in self.history if value >= low + fraction * (high - low))

    def policy(self, name: str) -> tuple[Actor | None, str]:
        """How the policy of this name (a key of `FRACTIONS`, or `random`) acts, and what made it."""
        if name == "random":
            return None, "uniformly random actions"
        step = self.reaches(FRACTIONS[name])
        weights, biases = zip(*read_layers(self.folder / f"actor-{step:08d}.npz"), strict=True)
        actor = TanhGaussian(MLP(weights, biases), np.float32(1.0), np.float32(0.0))
        story = f"SAC (seed {self.plan.seed}) after {step} steps, whose mode returned {dict(self.history)[step]:.0f}"
        return lambda obs, rng: actor.act(np.asarray(obs, np.float32), rng), story

    def replay(self, until: int) -> Dataset:
        """Everything the run did up to a step, in order, with actions as the environment took them."""
        session = Session(self.plan, self.folder)
        session.restore()
        rows = np.arange(min(until, session.step))
        batch = session.buffer.gather(rows)
        ends = session.buffer.index.next_index[rows] < 0
        ends[-1] = True  # the recording stops here
        actions = np.asarray(session.actions.to_env(batch.action), np.float32)
        lengths = np.diff(np.flatnonzero(ends), prepend=-1)
        return Dataset(batch.obs, actions, batch.reward, batch.mask == 0, lengths, np.asarray(batch.next_obs)[ends])


class Session:
    """The moving parts of a run between two chunks."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        act, draw, self.evaluation = np.random.SeedSequence(plan.seed).spawn(3)
        self.collector = Collector(self.make_env(), act)
        self.actions: ActionMap = self.collector.actions
        if self.actions.discrete:
            raise DataError(f"{plan.env} has discrete actions: SAC needs a bounded box, only 'random' works without it")
        self.buffer = ReplayBuffer(LONGEST, Uniform(), seed=draw)
        shape = self.collector.env.observation_space.shape
        if shape is None or len(shape) != 1:
            raise DataError(f"{plan.env} gives observations of shape {shape}: SAC needs vectors, 'random' does not")
        self.key = jax.random.key(plan.seed)
        self.agent = SAC.create(self.key, shape[0], self.actions.size, plan.sac)
        self.step = 0
        self.history: list[tuple[int, float]] = []

    def make_env(self) -> Any:
        return flattened(make(self.plan.env))

    def advance(self) -> None:
        """Collect a chunk with the policy as it is, random before the end of the warm-up, and learn as much."""
        actor = on_host(self.agent.actor) if self.step >= self.plan.warmup else _Random(self.actions.size)
        self.collector.collect(actor, self.buffer, self.plan.chunk)
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
        state = read_json(self.folder / RUN)
        kept, asked = state["plan"], json.loads(json.dumps(asdict(self.plan)))
        changed = [f"{key} {kept.get(key)} there, {asked[key]} here" for key in asked if kept.get(key) != asked[key]]
        if [change for change in changed if not change.startswith("steps ")]:
            raise DataError(f"{self.folder} holds another run ({', '.join(changed)}): choose another folder")
        self.step, self.history = state["step"], [(step, value) for step, value in state["history"]]
        self.agent = load(self.folder / f"agent-{self.step:08d}.safetensors", SAC, self.plan.sac)
        self.buffer.load(self.folder / f"buffer-{self.step:08d}.npz")
        self.collector.restore(state["collector"])


@dataclass(frozen=True)
class _Random:
    size: int

    def act(self, _: Any, rng: np.random.Generator) -> Any:
        return rng.uniform(-1.0, 1.0, self.size).astype(np.float32)


def train(plan: Plan, folder: Path, report: Callable[[int, float], None] = lambda _step, _value: None) -> Run:
    """Run SAC to the end of the plan, continuing what the folder holds; `report` hears every evaluation."""
    if plan.evaluate_every % plan.chunk or plan.steps % plan.evaluate_every or plan.warmup % plan.chunk:
        raise DataError("steps must be a multiple of evaluate_every, and that and warmup multiples of chunk")
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


# Datasets ------------------------------------------------------------------------------------------------------------
REPLAYS = ("medium-replay", "full-replay")
"""Qualities that are the run's own experience, up to its medium policy or all of it."""


@dataclass(frozen=True)
class Request:
    """What to collect. `sac_steps` and the folder matter only where a policy is needed."""

    env: str
    quality: str
    steps: int
    seed: int = 0
    sac_steps: int = 200_000
    evaluate_every: int = 10_000
    folder: Path = field(default=Path("sac"))
    compact: bool = False
    """Leave out `next_observations`: half the size, and the last row of every cut-off episode cannot be used."""


def collect(request: Request, out: Path, command: str = "") -> Dataset:
    """Make a dataset and write it as its suffix says; the file appears only when it is complete."""
    check_choice("quality", request.quality, (*RECIPES, *REPLAYS))
    fewest = sum(RECIPES.get(request.quality, {"": 1}).values())
    if request.steps < fewest:
        raise DataError(f"a dataset {request.quality!r} needs at least {count(fewest, 'step')}, not {request.steps}")
    check_suffix(out)
    env = flattened(make(request.env))
    if request.quality == "random":
        run = Run(Plan(request.env, request.seed), request.folder, [])
    else:
        plan = Plan(request.env, request.seed, request.sac_steps, request.evaluate_every)
        with progress(f"SAC on {request.env}", request.sac_steps) as tell:
            run = train(plan, request.folder, lambda step, _: tell(step))
    if request.quality in REPLAYS:
        until = run.reaches(FRACTIONS["33"]) if request.quality == "medium-replay" else request.sac_steps
        dataset = replace(run.replay(until), provenance={"made_by": f"everything SAC did in its first {until} steps"})
    else:
        with progress(request.quality, request.steps) as tell:
            dataset = record_recipe(env, request.quality, run.policy, request.steps, (request.seed,), tell)
    box: Any = env.action_space
    provenance = {
        "env": request.env,
        "quality": request.quality,
        "seed": request.seed,
        **dataset.provenance,
        "command": command or " ".join(Path(sys.argv[0]).name.split() + sys.argv[1:]),
        **({"action_low": float(box.low.min()), "action_high": float(box.high.max())} if hasattr(box, "low") else {}),
        "versions": json.dumps(versions("arb-rl", "gymnasium", "mujoco", "numpy", "jax", "optax")),
    }
    final = None if request.compact else dataset.final_observations
    dataset = replace(dataset, final_observations=final, provenance=provenance)
    write_dataset(out, dataset)
    return dataset
