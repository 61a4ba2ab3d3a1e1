"""A SAC run in a folder, and the D4RL-style datasets that are made of it, for any Gymnasium environment.

The agent, the replay buffer and the collector are those of `arb run`. The folder holds one policy per evaluation
(`actor-XXXXXXXX.npz`), and what a run that was stopped needs to continue bit for bit: agent, buffer and, written last,
`run.json`, which names them. Several datasets can be made from one folder. No file holds a pickle.
"""

import json
from collections.abc import Callable, Sequence
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
from arb.files import read_json, write_text
from arb.policies import export_policy, load_policy
from arb.progress import count, progress
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset
from arb.replay.samplers import Uniform
from arb.suite.ladders import FRACTIONS
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


class Run:
    """A SAC run between two chunks; `history` has one (step, mean return of the mode) per evaluation."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        act, draw, self.evaluation = np.random.SeedSequence(plan.seed).spawn(3)
        self.collector = Collector(self.make_env(), act)
        self.actions: ActionMap = self.collector.actions
        if self.actions.discrete:
            raise DataError(f"{plan.env} has discrete actions: SAC needs a bounded box, only 'random' works without it")
        shape = self.collector.env.observation_space.shape
        if shape is None or len(shape) != 1:
            raise DataError(f"{plan.env} gives observations of shape {shape}: SAC needs vectors, 'random' does not")
        self.buffer = ReplayBuffer(LONGEST, Uniform(), seed=draw)
        self.key = jax.random.key(plan.seed)
        self.agent = SAC.create(self.key, shape[0], self.actions.size, plan.sac)
        self.step, self.history = 0, list[tuple[int, float]]()
        if (folder / RUN).exists():
            self._restore()

    def make_env(self) -> Any:
        return flattened(make(self.plan.env))

    # ---- training ----------------------------------------------------------------------------------------------------
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
        export_policy(self.folder / f"actor-{self.step:08d}.npz", actor, None, self.actions)
        self._save()

    def _save(self) -> None:
        """Write agent and buffer under the step's name, then `run.json`; then remove those of the step before."""
        save(self.agent, self.folder / f"agent-{self.step:08d}.safetensors")
        self.buffer.save(self.folder / f"buffer-{self.step:08d}.npz")
        state = {"plan": asdict(self.plan), "step": self.step, "history": self.history}
        write_text(self.folder / RUN, json.dumps({**state, "collector": self.collector.state()}))
        for old in (*self.folder.glob("agent-*.safetensors"), *self.folder.glob("buffer-*.npz")):
            if f"-{self.step:08d}." not in old.name:
                old.unlink()

    def _restore(self) -> None:
        state = read_json(self.folder / RUN)
        kept, asked = state["plan"], json.loads(json.dumps(asdict(self.plan)))
        changed = [f"{key} {kept.get(key)} there, {asked[key]} here" for key in asked if kept.get(key) != asked[key]]
        if [change for change in changed if not change.startswith("steps ")]:
            raise DataError(f"{self.folder} holds another run ({', '.join(changed)}): choose another folder")
        self.step, self.history = state["step"], [(step, value) for step, value in state["history"]]
        self.agent = load(self.folder / f"agent-{self.step:08d}.safetensors", SAC, self.plan.sac)
        self.buffer.load(self.folder / f"buffer-{self.step:08d}.npz")
        self.collector.restore(state["collector"])

    # ---- what it leaves ----------------------------------------------------------------------------------------------
    def policy(self, name: str) -> tuple[Actor, str]:
        """How the policy of this name (a key of `FRACTIONS`) acts, and what made it."""
        step = reaches(self.history, FRACTIONS[name])
        actor = load_policy(self.folder / f"actor-{step:08d}.npz").actor
        made_by = f"SAC (seed {self.plan.seed}) after {step} steps, whose mode returned {dict(self.history)[step]:.0f}"
        return lambda obs, rng: actor.act(np.asarray(obs, np.float32), rng), made_by

    def replay(self, until: int) -> Dataset:
        """Everything the run did up to a step, in order, with actions as the environment took them."""
        rows = np.arange(min(until, self.step))
        batch = self.buffer.gather(rows)
        ends = self.buffer.index.next_index[rows] < 0
        ends[-1] = True  # the recording stops here
        actions = np.asarray(self.actions.to_env(batch.action), np.float32)
        lengths = np.diff(np.flatnonzero(ends), prepend=-1)
        return Dataset(batch.obs, actions, batch.reward, batch.mask == 0, lengths, np.asarray(batch.next_obs)[ends])


def reaches(history: Sequence[tuple[int, float]], fraction: float) -> int:
    """The first step whose return lies at least this fraction of the way from the first evaluation to the best.

    >>> reaches([(10, 0.0), (20, 31.0), (30, 34.0), (40, 99.0), (50, 60.0)], 1 / 3)
    30
    """
    low, high = history[0][1], max(value for _, value in history)
    return next(step for step, value in history if value >= low + fraction * (high - low))


@dataclass(frozen=True)
class _Random:
    size: int

    def act(self, _: Any, rng: np.random.Generator) -> Any:
        return rng.uniform(-1.0, 1.0, self.size).astype(np.float32)


def train(plan: Plan, folder: Path, tell: Callable[[int], None] = lambda _: None) -> Run:
    """Run SAC to the end of the plan, continuing what the folder holds."""
    if plan.evaluate_every % plan.chunk or plan.steps % plan.evaluate_every or plan.warmup % plan.chunk:
        raise DataError("steps must be a multiple of evaluate_every, and that and warmup multiples of chunk")
    if plan.steps > LONGEST:
        raise DataError(f"{plan.steps:,} steps of SAC are too many: at most {LONGEST:,}")
    run = Run(plan, folder)
    while run.step < plan.steps:
        run.advance()
        if run.step % plan.evaluate_every == 0:
            run.evaluate()
            tell(run.step)
    run.history = [entry for entry in run.history if entry[0] <= plan.steps]
    return run


# ---- datasets --------------------------------------------------------------------------------------------------------
REPLAYS = ("medium-replay", "full-replay")
"""Qualities that are the run's own experience, up to its medium policy or all of it."""


def collect(plan: Plan, quality: str, rows: int, out: Path, folder: Path, command: str = "") -> Dataset:
    """Make a dataset and write it as its suffix says; the file appears only when it is complete.

    Qualities other than `random` need the policies of the planned SAC run, which is kept in the folder.
    """
    check_choice("quality", quality, (*RECIPES, *REPLAYS))
    fewest = sum(RECIPES.get(quality, {"": 1}).values())
    if rows < fewest:
        raise DataError(f"a dataset {quality!r} needs at least {count(fewest, 'step')}, not {rows}")
    check_suffix(out)
    env, policy = flattened(make(plan.env)), {"random": (None, "uniformly random actions")}.get
    if quality != "random":
        with progress(f"SAC on {plan.env}", plan.steps) as tell:
            run = train(plan, folder, tell)
    if quality in REPLAYS:
        until = reaches(run.history, FRACTIONS["33"]) if quality == "medium-replay" else plan.steps
        dataset = replace(run.replay(until), provenance={"made_by": f"everything SAC did in its first {until} steps"})
    else:
        with progress(quality, rows) as tell:
            dataset = record_recipe(
                env, quality, lambda name: policy(name) or run.policy(name), rows, (plan.seed,), tell
            )
    box: Any = env.action_space
    provenance = {
        "env": plan.env,
        "quality": quality,
        "seed": plan.seed,
        **dataset.provenance,
        "command": command,
        **({"action_low": float(box.low.min()), "action_high": float(box.high.max())} if hasattr(box, "low") else {}),
        "versions": json.dumps(versions("arb-rl", "gymnasium", "mujoco", "numpy", "jax", "optax")),
    }
    dataset = replace(dataset, provenance=provenance)
    write_dataset(out, dataset)
    return dataset
