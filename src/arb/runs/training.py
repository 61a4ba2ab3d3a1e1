"""Both phases of a run, from wherever its folder stands: record, evaluate, save, and go on after an interruption.

A checkpoint holds everything that decides what comes next, and the tables are cut back to where they were when it was
written. So an interrupted run ends in the same bytes as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from arb.agents.learn import NotFiniteError, on_host
from arb.agents.saving import load as load_agent
from arb.agents.saving import save as save_agent
from arb.algorithms import agent_class
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Uniform
from arb.envs.rollout import Collector, evaluate
from arb.files import read_json
from arb.policy import export_policy
from arb.progress import Tell
from arb.runfolder import RunFolder, Table
from arb.runs.algorithm import Progress, finetune, pretrain
from arb.runs.checkpoint import Pretrained, newest_checkpoint, write_checkpoint
from arb.runs.config import Config
from arb.runs.problem import Problem, key_of, stream
from arb.runs.stopping import Interrupted
from arb.strategies import FIGURES, strategy_row


@dataclass
class State:
    """Where a run stands; everything a checkpoint holds."""

    phase: str
    step: int
    agent: Any
    buffer: ReplayBuffer
    rows: int
    """Rows that the dataset brought into the buffer."""
    collector: Collector | None


class Training:
    """The steps of a run and what they share."""

    def __init__(
        self, config: Config, folder: RunFolder, problem: Problem, tell: Tell, save_every: float, pretrained: Pretrained
    ):
        self.config, self.folder, self.problem, self.tell, self.save_every = config, folder, problem, tell, save_every
        self.pretrained = pretrained
        self.tables = {"metrics": Table(folder.metrics_file), "eval": Table(folder.eval_file)}
        self.figures = (*FIGURES, *strategy_row(config.replay.strategy).figures)

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
            key_of(self.config.seed, "online"),
            self.config.schedule,
            getattr(self.config.replay, "likelihood", "standard"),
            state.step,
        )
        self._drive(state, chunks, asked_to_stop)
        self._save(state)
        export_policy(state.agent.actor, self.problem.shaping, self.problem.actions, self.folder.path)

    def pretrain(self, asked_to_stop: Callable[[], bool]) -> State:
        """The first phase, unless the folder or the cache is beyond it already."""
        state = self._resumed() or self._started()
        if state.phase == "pretrain":
            key = key_of(self.config.seed, "pretrain")
            self._drive(
                state, pretrain(state.agent, state.buffer, key, self.config.schedule, state.step), asked_to_stop
            )
            self.pretrained.keep(state.agent, self.tables)
        return state

    def _drive(self, state: State, chunks: Iterator[Progress], asked_to_stop: Callable[[], bool]) -> None:
        """Let a phase run: record every chunk, evaluate when due, save now and then."""
        total = getattr(self.config.schedule, state.phase)
        every, saved = self.config.evaluation.every, time.monotonic()
        if state.step == 0:
            self._evaluate(state)
        for step, agent, metrics, replay in keeping_last_good(chunks, self.folder.last_good, self.config.settings):
            before, state.step, state.agent = state.step, step, agent
            figures_of_replay = {f"replay.{name}": replay.get(name, math.nan) for name in self.figures}
            self.tables["metrics"].add({"phase": state.phase, "step": step, **metrics, **figures_of_replay})
            figures: dict[str, float] = {k: replay[k] for k in ("online_share", "effective_share") if k in replay}
            if step // every > before // every or step == total:
                figures["score"] = self._evaluate(state)
            self.tell(state.phase, step, total, figures)
            if asked_to_stop():
                self._save(state)
                raise Interrupted(f"stopped at {state.phase} step {step:,}; the same command continues from there")
            if time.monotonic() - saved > self.save_every and step < total:
                self._save(state)
                saved = time.monotonic()

    def _evaluate(self, state: State) -> float:
        seed = stream(self.config.seed, "eval", state.phase, state.step)
        returns = evaluate(on_host(state.agent.actor), self.problem.make_env, self.config.evaluation.episodes, seed)
        scores = self.problem.scores(returns)
        place = {"phase": state.phase, "step": state.step}
        self.tables["eval"].add(
            *(
                {**place, "episode": episode, "return": float(value), "score": float(score)}
                for episode, (value, score) in enumerate(zip(returns, scores, strict=True))
            )
        )
        return float(np.mean(scores))

    # ---- starting and resuming ----------------------------------------------------------------------------------

    def _started(self) -> State:
        for table in self.tables.values():
            table.cut(0)
        agent = self.pretrained.find(self.tables, [f"replay.{name}" for name in self.figures])
        if agent is not None:
            return self._online(agent)
        return self._offline(self.problem.new_agent(key_of(self.config.seed, "init")))

    def _offline(self, agent: Any) -> State:
        rows = len(self.problem.dataset["rewards"])
        buffer = self.problem.new_buffer(Uniform(), rows, "pretrain")
        return State("pretrain", 0, agent, buffer, buffer.load(self.problem.dataset).rows, None)

    def _online(self, agent: Any, begun: bool = False) -> State:
        dataset, sampler = self.problem.strategy()
        rows = len(dataset["rewards"])
        buffer = self.problem.new_buffer(sampler, rows + self.config.schedule.online, "online")
        loaded = buffer.load(dataset).rows
        collector = Collector(self.problem.make_env(), stream(self.config.seed, "collect"))
        return State("online", 0, agent if begun else agent.begin_online(), buffer, loaded, collector)

    def _resumed(self) -> State | None:
        path = newest_checkpoint(self.folder.checkpoints)
        if path is None:
            return None
        saved = read_json(path / "state.json")
        agent = load_agent(path / "agent.safetensors", self.problem.settings, agent_class(self.config.agent))
        state = self._offline(agent) if saved["phase"] == "pretrain" else self._online(agent, begun=True)
        state.step = saved["step"]
        state.buffer.restore(path / "buffer.npz")
        if state.collector is not None:
            state.collector.restore(saved["collector"])
        for name, table in self.tables.items():
            table.cut(saved["tables"][name])
        return state

    def _save(self, state: State) -> None:
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
        write_checkpoint(self.folder.checkpoints, done, fill)


# ---- losses that are not finite --------------------------------------------------------------------------------------


def keeping_last_good(chunks: Iterator[Progress], path: Path, settings: Any) -> Iterator[Progress]:
    """The same chunks; a `NotFiniteError` among them leaves the agent before it at a path and says what to change.

    Args:
        chunks: a phase of training.
        path: where to leave the agent.
        settings: the agent's, whose learning rates are named.
    """
    try:
        yield from chunks
    except NotFiniteError as error:
        save_agent(error.agent, path)
        advice = (
            f"the agent before it is in {path}. Rerunning will fail at the same update: try a lower "
            f"{_rates(settings)}, or observations and rewards of a smaller scale, in another folder"
        )
        raise NotFiniteError(error.loss, error.update, error.agent, error.place, advice) from None


def _rates(settings: Any) -> str:
    """The learning rates; the rate at which targets follow is not one."""
    names = [f.name for f in fields(settings) if f.name.endswith("_rate") and f.name != "target_rate"]
    return " or ".join(f"settings.{name}" for name in names)
