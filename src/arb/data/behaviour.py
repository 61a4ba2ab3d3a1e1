"""A SAC run in a folder: the policies and the replay that collected datasets are made of.

The folder holds one shard of rows and one actor per evaluation, and a checkpoint from which the run continues bit for
bit after a kill. All files appear under a temporary name first; none holds a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from arb.data.rollout import Actor, Dataset, Recording, action_bounds, evaluate, flat_env, rescale
from arb.data.sac import Config, Learner, Policy, Rows, create, update
from arb.files import write_npz


@dataclass(frozen=True)
class Plan:
    """What is run. Two plans that agree give the same folder, byte for byte, on one machine."""

    env: str
    seed: int = 0
    steps: int = 200_000
    evaluate_every: int = 10_000
    evaluation_episodes: int = 10
    sac: Config = field(default_factory=Config)


@dataclass
class Run:
    """A run under way or finished: `history` has one (step, mean return of the mode) per evaluation."""

    plan: Plan
    folder: Path
    history: list[tuple[int, float]]

    def actor(self, step: int) -> Actor:
        """The policy as it was at one of the steps of `history`, sampling its actions."""
        with np.load(self.folder / f"actor-{step:08d}.npz", allow_pickle=False) as file:
            layers = [(file[f"weight_{i}"], file[f"bias_{i}"]) for i in range(len(file.files) // 2)]
        policy, bounds = Policy(layers), action_bounds(flat_env(self.plan.env))
        return lambda obs, rng: rescale(policy(obs, rng), bounds)

    def replay(self, until: int) -> Dataset:
        """Everything the run did up to a step, in order."""
        recording = Recording()
        for path in sorted(self.folder.glob("rows-*.npz")):
            if int(path.stem.split("-")[1]) <= until:
                recording.extend_from(path)
        return recording.dataset()

    def best(self) -> int:
        """The step of the best evaluation."""
        return max(self.history, key=lambda entry: entry[1])[0]

    def part_way(self, fraction: float) -> float:
        """The return that lies this fraction of the way from the first evaluation to the best."""
        low, high = self.history[0][1], max(value for _, value in self.history)
        return low + fraction * (high - low)

    def reaches(self, fraction: float) -> int:
        """The first step that has come this far."""
        return next(step for step, value in self.history if value >= self.part_way(fraction))

    def nearest(self, fraction: float) -> int:
        """The step whose return is nearest to this far."""
        return min(self.history, key=lambda entry: abs(entry[1] - self.part_way(fraction)))[0]


class Session:
    """The moving parts of a run between two chunks."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.env = flat_env(plan.env)
        self.bounds = action_bounds(self.env)
        act, draw, env = np.random.SeedSequence(plan.seed).spawn(3)
        self.act_rng, self.draw_rng = np.random.default_rng(act), np.random.default_rng(draw)
        self.env_seed = int(env.generate_state(1)[0])
        obs_dim, action_dim = self.env.observation_space.shape[0], self.env.action_space.shape[0]
        self.learner: Learner = create(plan.seed, obs_dim, action_dim, plan.sac)
        self.rows, self.fresh, self.step = Recording(), Recording(), 0
        self.history: list[tuple[int, float]] = []
        self.obs, _ = self.env.reset(seed=self.env_seed)

    def collect(self, steps: int) -> None:
        """Act for some steps with the policy as it is; random before the end of the warm-up."""
        policy = Policy(self.learner.actor)
        for _ in range(steps):
            if self.step < self.plan.sac.warmup:
                action = self.act_rng.uniform(-1.0, 1.0, len(self.bounds[0])).astype(np.float32)
            else:
                action = policy(self.obs, self.act_rng)
            after, reward, terminated, truncated, _ = self.env.step(rescale(action, self.bounds))
            for recording in (self.rows, self.fresh):
                recording.add(self.obs, action, float(reward), after, terminated, truncated)
            self.obs = self.env.reset()[0] if terminated or truncated else after
            self.step += 1

    def learn(self, updates: int) -> None:
        """As many updates on batches drawn uniformly from everything so far."""
        data = self.rows.dataset()
        rows = self.draw_rng.integers(len(data["rewards"]), size=(updates, self.plan.sac.batch))
        discount = 1.0 - data["terminals"][rows]
        batches = Rows(
            data["observations"][rows],
            data["actions"][rows],
            data["rewards"][rows],
            data["next_observations"][rows],
            discount.astype(np.float32),
        )
        self.learner = update(self.learner, batches, self.plan.sac)

    def evaluate(self) -> None:
        """Measure the mode of the policy, keep the actor, and write what is needed to continue."""
        policy = Policy(self.learner.actor)
        returns = evaluate(
            flat_env(self.plan.env),
            lambda obs, _: rescale(policy(obs), self.bounds),
            self.plan.evaluation_episodes,
            seed=self.plan.seed + 10_000,
        )
        self.history.append((self.step, float(np.mean(returns))))
        actor = {f"{name}_{i}": layer[j] for i, layer in enumerate(policy.layers) for j, name in enumerate(NAMES)}
        write_npz(self.folder / f"actor-{self.step:08d}.npz", actor)
        write_npz(self.folder / f"rows-{self.step:08d}.npz", self.fresh.dataset())
        self.fresh = Recording()
        self.save()

    def save(self) -> None:
        """Write the checkpoint; the shards before it are already there."""
        import jax

        from arb.envs.state import save_state

        state = {
            "plan": asdict(self.plan),
            "step": self.step,
            "history": self.history,
            "act": self.act_rng.bit_generator.state,
            "draw": self.draw_rng.bit_generator.state,
            "env": save_state(self.env),
        }
        leaves = {f"leaf_{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.learner))}
        write_npz(self.folder / "checkpoint.npz", {**leaves, "obs": self.obs, "state": np.array(json.dumps(state))})

    def restore(self) -> None:
        """Continue from the checkpoint of the folder."""
        import jax

        from arb.envs.state import restore_state

        with np.load(self.folder / "checkpoint.npz", allow_pickle=False) as file:
            state = json.loads(str(file["state"]))
            kept = {key: value for key, value in state["plan"].items() if key != "steps"}
            asked = {key: value for key, value in asdict(self.plan).items() if key != "steps"}
            if kept != asked:
                changed = ", ".join(
                    f"{key} {kept[key]} there, {asked[key]} here" for key in asked if kept[key] != asked[key]
                )
                raise ValueError(f"{self.folder} holds another run ({changed}): choose another folder")
            leaves = [file[f"leaf_{i:03d}"] for i in range(len(file.files) - 2)]
            self.obs = file["obs"]
        self.learner = jax.tree.unflatten(jax.tree.structure(self.learner), leaves)
        self.step, self.history = state["step"], [(step, value) for step, value in state["history"]]
        self.act_rng.bit_generator.state, self.draw_rng.bit_generator.state = state["act"], state["draw"]
        restore_state(self.env, state["env"])
        for path in sorted(self.folder.glob("rows-*.npz")):
            if int(path.stem.split("-")[1]) <= self.step:
                self.rows.extend_from(path)


NAMES = ("weight", "bias")


def train(plan: Plan, folder: Path, report: Callable[[int, float], None] = lambda _step, _value: None) -> Run:
    """Run SAC to the end of the plan, continuing what the folder holds; `report` hears every evaluation."""
    if plan.evaluate_every % plan.sac.chunk or plan.steps % plan.evaluate_every or plan.sac.warmup % plan.sac.chunk:
        raise ValueError(
            f"steps {plan.steps} must be a multiple of evaluate_every {plan.evaluate_every}, and that and warmup "
            f"{plan.sac.warmup} a multiple of chunk {plan.sac.chunk}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(plan, folder)
    if (folder / "checkpoint.npz").exists():
        session.restore()
    while session.step < plan.steps:
        session.collect(plan.sac.chunk)
        if session.step > plan.sac.warmup:
            session.learn(plan.sac.chunk)
        if session.step % plan.evaluate_every == 0:
            session.evaluate()
            report(*session.history[-1])
    return Run(plan, folder, [entry for entry in session.history if entry[0] <= plan.steps])
