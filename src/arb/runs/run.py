"""A run is a folder: from a configuration to a fine-tuned policy, its tables and its picture.

`run` is idempotent. A finished folder returns at once; an interrupted one goes on from its newest checkpoint and ends
in the same bytes as if nothing had happened: a checkpoint holds everything that decides what comes next, and the tables
are cut back to where they were when it was written.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arb.agents.learn import on_host
from arb.agents.saving import load as load_agent
from arb.agents.saving import save as save_agent
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Uniform
from arb.envs.rollout import Collector, evaluate
from arb.errors import DataError
from arb.files import read_json, refuse_file, write_text
from arb.progress import Tell
from arb.report.picture import learning_curve
from arb.runfolder import Table
from arb.runs.algorithm import Progress, finetune, pretrain
from arb.runs.checkpoint import newest_checkpoint, write_checkpoint
from arb.runs.config import Config
from arb.runs.export import export_policy
from arb.runs.folder import Result, refuse_other_config, result, write_config
from arb.runs.lastgood import LAST_GOOD, keeping_last_good
from arb.runs.pretrained import Pretrained
from arb.runs.problem import Problem
from arb.runs.stopping import Interrupted, stoppable
from arb.runs.streams import key_of, stream

_REPLAY = (
    "collected_return", "online_rows", "online_share", "drawn_online_share", "effective_share", "entropy",
    "top_trajectories", "clipped_low", "clipped_high", "age", "ratio_loss", "online_priority", "temperature",
    "online_bound", "replay_volume",
)  # fmt: skip
"""Figures about replay in metrics.csv: the same columns for all strategies, which share pre-trainings."""


@dataclass
class _State:
    """Where a run stands; everything a checkpoint holds."""

    phase: str
    step: int
    agent: Any
    buffer: ReplayBuffer
    rows: int
    """Rows that the dataset brought into the buffer."""
    collector: Collector | None


def run(
    config: Config,
    folder: str | Path,
    *,
    tell: Tell | None = None,
    save_every: float = 120.0,
    cache: Path | None = None,
    problem: Problem | None = None,
    pretraining: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Pre-train offline, fine-tune online, and leave everything in a folder.

    >>> from arb.runs.config import configure
    >>> config = configure(task="bundled:hopper-tiny", strategy="arb", budget="smoke")
    >>> run(config, "runs/first").last      # doctest: +SKIP

    Args:
        config: what to run.
        folder: where; an interrupted run that is there goes on, a finished one is returned.
        tell: called after every chunk of work.
        save_every: seconds between checkpoints.
        cache: where pre-trainings are shared; beside the folder if not given.
        problem: what the configuration comes to, if the caller has it already.
        pretraining: another run's folder whose pre-training to take over; it must be the one this run would do.
        stop: asked after every chunk whether to save and stop; by default whether SIGINT or SIGTERM came.
    """
    folder = Path(folder)
    refuse_file(folder)
    if (folder / "DONE").exists():
        refuse_other_config(folder, config)
        return result(folder)
    problem = problem or Problem.of(config)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config, problem)
    shared = Pretrained(cache or (pretraining or folder).parent / ".pretrained", config, problem)
    if pretraining is not None and not shared.folder.exists():
        raise DataError(
            f"{pretraining} has no pre-training that this run could take over: it was done under other settings"
        )
    with stoppable() if stop is None else nullcontext(stop) as asked_to_stop:
        _Run(config, folder, problem, tell or (lambda *_: None), save_every, shared).go(asked_to_stop)
    learning_curve(folder, folder / "curve.png")
    found = result(folder)
    write_text(folder / "result.json", json.dumps(found._asdict() | {"folder": folder.name}, indent=1))
    (folder / LAST_GOOD).unlink(missing_ok=True)  # of an attempt before
    (folder / "DONE").touch()
    return found


def pretrain_for(
    config: Config,
    folder: Path,
    cache: Path,
    *,
    tell: Tell | None = None,
    save_every: float = 120.0,
    problem: Problem | None = None,
) -> Path:
    """Only the pre-training, left in a cache for all runs that share it.

    Args:
        config: one of those runs.
        folder: where the work is while it is under way; an interrupted one goes on, and at the end it is gone.
        cache: where pre-trainings are shared.
        tell: called after every chunk of work.
        save_every: seconds between checkpoints.
        problem: what the configuration comes to, if the caller has it already.
    """
    problem = problem or Problem.of(config)
    shared = Pretrained(cache, config, problem)
    if not shared.folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with stoppable() as asked_to_stop:
            _Run(config, folder, problem, tell or (lambda *_: None), save_every, shared).pretrain(asked_to_stop)
    shutil.rmtree(folder, ignore_errors=True)
    return shared.folder


class _Run:
    """The steps of a run and what they share."""

    def __init__(
        self, config: Config, folder: Path, problem: Problem, tell: Tell, save_every: float, pretrained: Pretrained
    ):
        self.config, self.folder, self.problem, self.tell, self.save_every = config, folder, problem, tell, save_every
        self.pretrained = pretrained
        self.tables = {name: Table(folder / f"{name}.csv") for name in ("metrics", "eval")}

    def go(self, asked_to_stop: Callable[[], bool]) -> None:
        """Both phases, from wherever the folder stands."""
        state = self.pretrain(asked_to_stop)
        if state.phase == "pretrain":
            state = self._online(state.agent)
        assert state.collector is not None
        chunks = finetune(
            state.agent,
            state.buffer,
            state.collector,
            self._key("online"),
            self.config.schedule,
            self.config.replay.likelihood,
            state.step,
        )
        self._drive(state, chunks, asked_to_stop)
        self._save(state)
        export_policy(state.agent.actor, self.problem.shaping, self.problem.actions, self.folder)

    def pretrain(self, asked_to_stop: Callable[[], bool]) -> _State:
        """The first phase, unless the folder or the cache is beyond it already."""
        state = self._resumed() or self._started()
        if state.phase == "pretrain":
            chunks = pretrain(state.agent, state.buffer, self._key("pretrain"), self.config.schedule, state.step)
            self._drive(state, chunks, asked_to_stop)
            self.pretrained.keep(state.agent, self.tables)
        return state

    def _drive(self, state: _State, chunks: Iterator[Progress], asked_to_stop: Callable[[], bool]) -> None:
        """Let a phase run: record every chunk, evaluate when due, save now and then."""
        total = getattr(self.config.schedule, state.phase)
        every, saved = self.config.evaluation.every, time.monotonic()
        if state.step == 0:
            self._evaluate(state)
        for step, agent, metrics, replay in keeping_last_good(chunks, self.folder, self.config.settings):
            before, state.step, state.agent = state.step, step, agent
            figures_of_replay = {f"replay.{name}": replay.get(name, math.nan) for name in _REPLAY}
            self.tables["metrics"].add({"phase": state.phase, "step": step, **metrics, **figures_of_replay})
            figures: dict[str, float] = {k: replay[k] for k in ("online_share", "effective_share") if k in replay}
            if step // every > before // every or step == total:
                figures["score"] = self._evaluate(state)
            self.tell(state.phase, step, total, figures)
            if asked_to_stop():
                self._save(state)
                raise Interrupted(f"stopped at {state.phase} step {step:,}; the same command goes on from there")
            if time.monotonic() - saved > self.save_every and step < total:
                self._save(state)
                saved = time.monotonic()

    def _evaluate(self, state: _State) -> float:
        seed = stream(self.config.seed, "eval", state.phase, state.step)
        returns = evaluate(on_host(state.agent.actor), self.problem.make_env, self.config.evaluation.episodes, seed)
        for episode, (value, score) in enumerate(zip(returns, self.problem.scores(returns), strict=True)):
            self.tables["eval"].add(
                {
                    "phase": state.phase,
                    "step": state.step,
                    "episode": episode,
                    "return": float(value),
                    "score": float(score),
                }
            )
        return float(np.mean(self.problem.scores(returns)))

    # ---- starting and resuming ----------------------------------------------------------------------------------

    def _started(self) -> _State:
        for table in self.tables.values():
            table.cut(0)
        agent = self.pretrained.find(self.tables)
        if agent is not None:
            return self._online(agent)
        return self._offline(self.problem.new_agent(key_of(self.config.seed, "init")))

    def _offline(self, agent: Any) -> _State:
        rows = len(self.problem.dataset["rewards"])
        buffer = self.problem.new_buffer(Uniform(), rows, "pretrain")
        return _State("pretrain", 0, agent, buffer, buffer.load(self.problem.dataset).rows, None)

    def _online(self, agent: Any, begun: bool = False) -> _State:
        dataset, sampler = self.problem.strategy()
        rows = len(dataset["rewards"])
        buffer = self.problem.new_buffer(sampler, rows + self.config.schedule.online, "online")
        loaded = buffer.load(dataset).rows
        collector = Collector(self.problem.make_env(), stream(self.config.seed, "collect"))
        return _State("online", 0, agent if begun else agent.begin_online(), buffer, loaded, collector)

    def _resumed(self) -> _State | None:
        path = newest_checkpoint(self.folder / "checkpoint")
        if path is None:
            return None
        saved = read_json(path / "state.json")
        agent = load_agent(path / "agent.safetensors", self.problem.settings)
        state = self._offline(agent) if saved["phase"] == "pretrain" else self._online(agent, begun=True)
        state.step = saved["step"]
        state.buffer.restore(path / "buffer.npz")
        if state.collector is not None:
            state.collector.restore(saved["collector"])
        for name, table in self.tables.items():
            table.cut(saved["tables"][name])
        return state

    def _save(self, state: _State) -> None:
        def fill(folder: Path) -> None:
            save_agent(state.agent, folder / "agent.safetensors")
            state.buffer.save(folder / "buffer.npz", since=state.rows)
            saved = {
                "phase": state.phase,
                "step": state.step,
                "tables": {name: table.size for name, table in self.tables.items()},
                "collector": state.collector.state() if state.collector else None,
            }
            (folder / "state.json").write_text(json.dumps(saved))

        done = state.step + (self.config.schedule.pretrain if state.phase == "online" else 0)
        write_checkpoint(self.folder / "checkpoint", done, fill)

    def _key(self, name: str) -> jax.Array:
        return key_of(self.config.seed, name)
