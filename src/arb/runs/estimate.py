"""What a run will cost, from a short measurement of its parts on this machine."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from arb.agents.learn import NotFiniteError, learn, on_host
from arb.buffer.samplers import Uniform
from arb.runs.config import Config
from arb.runs.problem import Problem, key_of

TOO_SMALL = 5_000
"""Updates and steps of a run that is over before an estimate is worth its time."""
_UPDATES, _STEPS = 40, 300


class Estimate(NamedTuple):
    """Seconds and bytes, and the rates they come from."""

    pretrain: float
    """Seconds of the first phase, which runs may share."""
    online: float
    memory: float
    updates_per_second: float
    steps_per_second: float

    @property
    def seconds(self) -> float:
        """Of both phases."""
        return self.pretrain + self.online


def estimate(config: Config, problem: Problem) -> Estimate:
    """Time a few updates and steps of a throw-away agent; evaluation is taken at the time limit, its worst case."""
    plan, evaluation = config.schedule, config.evaluation
    agent: Any = problem.new_agent(key_of(config.seed, "init"))
    buffer = problem.new_buffer(Uniform(), len(problem.dataset["rewards"]), "pretrain")
    buffer.load(problem.dataset)
    env = problem.make_env()
    per_step = _seconds_per_step(on_host(agent.actor), env, problem)
    batches = buffer.sample((_UPDATES, plan.batch))
    agent = _learnt(agent, batches)  # compiles
    start = time.perf_counter()
    _learnt(agent, batches)
    per_update = (time.perf_counter() - start) / _UPDATES
    horizon = env.spec.max_episode_steps if env.spec and env.spec.max_episode_steps else 1000
    per_evaluation = evaluation.episodes * horizon / 4 * per_step  # evaluated side by side
    pretrain = plan.pretrain * per_update + (1 + math.ceil(plan.pretrain / evaluation.every)) * per_evaluation
    online = plan.online * (plan.updates / plan.collect * per_update + per_step)
    online += (1 + math.ceil(plan.online / evaluation.every)) * per_evaluation
    row = buffer.nbytes / buffer.capacity
    memory = row * (2 * buffer.capacity + plan.online) + plan.updates * plan.batch * row * 3 + 4e8
    return Estimate(pretrain, online, memory, 1 / per_update, 1 / per_step)


def _learnt(agent: Any, batches: Any) -> Any:
    """After some updates: those after a loss that is not finite take as long, and the run itself will say where."""
    try:
        return learn(agent, batches, jax.random.key(0))[0]
    except NotFiniteError as error:
        return error.agent


def _seconds_per_step(actor: Any, env: Any, problem: Problem) -> float:
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    start = time.perf_counter()
    for _ in range(_STEPS):
        obs, _, terminated, truncated, _ = env.step(problem.actions.to_env(np.asarray(actor.act(obs, rng))))
        if terminated or truncated:
            obs, _ = env.reset()
    return (time.perf_counter() - start) / _STEPS
