"""Algorithm 1 of the paper, as two generators.

Both yield after every chunk of work, so that whoever drives them can log, evaluate and save in between; both can start
in the middle. All randomness of a chunk is either in the buffer's and the collector's generators, which their states
hold, or derived from the step at which the chunk starts.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from arb.agents.learn import ROWS_PER_CALL, NotFiniteError, advantages, learn, on_host, scores
from arb.envs.rollout import Collector
from arb.lab.config import Schedule
from arb.lab.inbox import Inbox
from arb.lab.machine import Timer
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Ints
from arb.replay.scores import Likelihood

Pause = Callable[[], None]
LONGEST_WARM_UP = 10
"""A warm-up is at most this part of the online steps, so that a short run learns too."""


class Progress(NamedTuple):
    """Where training stands after a chunk."""

    step: int
    """Updates while pre-training, environment steps while fine-tuning."""
    agent: Any
    metrics: dict[str, float]
    """Of the updates, as means over the chunk."""
    replay: dict[str, float]
    """Of the buffer, and the mean raw return of the episodes that ended; empty while pre-training."""
    returns: list[float]
    """The raw returns of the episodes that ended."""


def pretrain(
    agent: Any,
    buffer: ReplayBuffer,
    key: jax.Array,
    plan: Schedule,
    done: int = 0,
    timer: Timer | None = None,
    pause: Pause = lambda: None,
) -> Iterator[Progress]:
    """Phase 1: updates on batches drawn uniformly from the dataset.

    `pause` is called between pieces of the work and may raise; `timer` counts the time of the parts.
    """
    timer = timer or Timer()
    for start in range(done, plan.pretrain, plan.updates):
        updates = min(plan.updates, plan.pretrain - start)
        where = (start, "of the run (pretrain phase)")
        with timer.part("pretrain updates"):
            agent, metrics = _update(agent, buffer, updates, plan.batch, jax.random.fold_in(key, start), where, pause)
        yield Progress(start + updates, agent, metrics, {}, [])


def finetune(
    agent: Any,
    buffer: ReplayBuffer,
    collector: Collector | Inbox,
    key: jax.Array,
    plan: Schedule,
    likelihood: Likelihood = "standard",
    done: int = 0,
    timer: Timer | None = None,
    pause: Pause = lambda: None,
) -> Iterator[Progress]:
    """Phase 2: collect with the current policy, refresh the weights, update; the first draw comes after a refresh.

    A strategy with a warm-up collects longer before the first update. `likelihood` is that of `scores`. `pause` is
    called between pieces of the work and may raise; `timer` counts the time of the parts.
    """
    timer = timer or Timer()
    warm_up = min(buffer.sampler.warm_up, plan.online // LONGEST_WARM_UP)
    start = done
    while start < plan.online:
        block = max(plan.collect, 0 if start else warm_up)
        steps = min(block, plan.online - start)
        with timer.part("collecting"):
            before = buffer.index.num_added
            returns = collector.collect(on_host(agent.actor), buffer, steps, pause)
            steps = buffer.index.num_added - before  # episodes are taken whole, and hardware may fail
        if collector.failure:
            yield Progress(start + steps, agent, {}, {}, returns)
            return
        with timer.part("refresh"):
            if start == 0 or (start + steps) // plan.refresh > start // plan.refresh:
                score = partial(scores, agent, likelihood=likelihood)
                buffer.refresh(score, rows_per_call=ROWS_PER_CALL, **_steps(agent))
            if buffer.sampler.needs_critic:
                buffer.sampler.update_from_critic(partial(_advantages, agent, buffer), buffer.rng)
        updates = round(plan.updates * steps / block)
        waited = max(min(start, warm_up) - plan.collect, 0)  # a warm-up counts as one block of updates
        done_before = plan.pretrain + round(plan.updates * (start - waited) / plan.collect)
        where = (done_before, f"of the run (online phase, after {start + steps:,} steps)")
        with timer.part("online updates"):
            agent, metrics = _update(agent, buffer, updates, plan.batch, jax.random.fold_in(key, start), where, pause)
        collected = {"collected_return": float(np.mean(returns)) if returns else math.nan}
        start += steps
        yield Progress(start, agent, metrics, collected | collector.metrics | buffer.stats(), returns)


def _steps(agent: Any) -> dict[str, Any]:
    """What an agent's batches and scores are made of, if that is more than one action."""
    chunk = getattr(agent, "chunk", 1)
    return {"chunk": chunk} if chunk > 1 else {}


def _advantages(agent: Any, buffer: ReplayBuffer, rows: Ints) -> NDArray[np.float32]:
    batch = buffer.gather(rows, **_steps(agent))
    return advantages(agent, batch.obs, batch.action)


def _update(
    agent: Any, buffer: ReplayBuffer, updates: int, batch: int, key: jax.Array, where: tuple[int, str], pause: Pause
) -> tuple[Any, dict[str, float]]:
    """Updates in one compiled call, and the mean of each metric.

    A strategy that learns from its batches draws each after it has learned from the one before. It never looks at the
    agent, so all batches can be drawn before the first update. `where` is the number of updates before these and the
    place that errors name.
    """
    if updates == 0:
        return agent, {}
    before, place = where
    rows = np.empty((updates, batch), np.int64) if buffer.sampler.trainable else buffer.sample_indices((updates, batch))
    for update in range(updates) if buffer.sampler.trainable else ():
        pause()
        rows[update] = buffer.sample_indices((batch,))
        try:
            buffer.sampler.train(rows[update], buffer.gather, buffer.rng)
        except NotFiniteError as error:  # of the strategy's own network; the agent is sound
            raise NotFiniteError(error.loss, before + update, agent, place) from None
    try:
        return learn(agent, buffer.gather(rows, **_steps(agent)), jax.random.fold_in(key, 0), pause=pause)
    except NotFiniteError as error:
        raise NotFiniteError(error.loss, before + error.update, error.agent, place) from None
