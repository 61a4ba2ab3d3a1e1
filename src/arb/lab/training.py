"""Both phases of a run, from wherever its folder stands: record, evaluate, save, and continue after an interruption.

A checkpoint holds everything that decides what comes next, and the tables are cut back to where they were when it was
written. So an interrupted run ends in the same bytes as if nothing had happened.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arb.agents.learn import NotFiniteError, on_host
from arb.agents.learn import load as load_agent
from arb.agents.learn import save as save_agent
from arb.envs.rollout import Collector, play
from arb.errors import DataError
from arb.files import GrowingTable, read_json
from arb.lab.algorithm import Progress, finetune, pretrain
from arb.lab.algorithms import agent_class
from arb.lab.checkpoint import AGENT, BUFFER, STATE, Pretrained, checkpoints, write_checkpoint
from arb.lab.config import Config
from arb.lab.machine import Logbook
from arb.lab.metrics import LOGGED
from arb.lab.plugins import is_plug_in
from arb.lab.runfolder import RunFolder
from arb.lab.setup import Problem, key_of, stream
from arb.lab.stopping import Interrupted
from arb.lab.strategies import strategy_row
from arb.policies.export import Which, export_policy
from arb.progress import Tell
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Uniform


class Best(NamedTuple):
    """The evaluation whose policy is exported as the best: the pre-trained one, or a later one that scored more."""

    score: float
    phase: str
    step: int


@dataclass
class Standing:
    """Where a run stands; everything a checkpoint holds."""

    phase: str
    step: int
    agent: Any
    buffer: ReplayBuffer
    rows: int
    """Rows that the dataset brought into the buffer."""
    collector: Collector | None
    best: Best | None = None


SLOW = 4.0
"""Seconds after which a request to stop does not wait for the end of a chunk, and every chunk is saved."""


class Training:
    """The steps of a run and what they share."""

    def __init__(
        self, config: Config, folder: RunFolder, problem: Problem, tell: Tell, save_every: float, pretrained: Pretrained
    ):
        self.config, self.folder, self.problem, self.tell, self.save_every = config, folder, problem, tell, save_every
        self.pretrained = pretrained
        self.tables = {"metrics": GrowingTable(folder.metrics_file), "eval": GrowingTable(folder.eval_file)}
        self.figures = (*LOGGED, *strategy_row(config.replay.strategy).figures)
        self.log = Logbook(folder)
        self.clock = self.log.clock
        self._best = folder.policy("best")
        self._asked: Callable[[], bool] = lambda: False
        self._chunk_began = time.monotonic()

    def go(self, asked_to_stop: Callable[[], bool]) -> None:
        """Both phases, from wherever the folder stands."""
        with self.clock.part("other"):
            state = self.pretrain(asked_to_stop)
            if state.phase == "pretrain":
                agent = state.agent
                del state  # its buffer makes way for the next
                state = self._online(agent)
            assert state.collector is not None
            with self.clock.part("online"):
                self._finetune(state)
            self._save(state)
            self._export(state.agent, "last")
        self.log.write()

    def _finetune(self, state: Standing) -> None:
        assert state.collector is not None
        chunks = finetune(
            state.agent,
            state.buffer,
            state.collector,
            key_of(self.config.seed, "online"),
            self.config.schedule,
            getattr(self.config.replay, "likelihood", "standard"),
            state.step,
            self.clock,
            self._pause,
        )
        self._drive(state, chunks)

    def pretrain(self, asked_to_stop: Callable[[], bool]) -> Standing:
        """The first phase, unless the folder or the cache is beyond it already."""
        self._asked = asked_to_stop
        state = self._resumed() or self._started()
        if state.phase == "pretrain":
            key, plan = key_of(self.config.seed, "pretrain"), self.config.schedule
            with self.clock.part("pretrain"):
                self._drive(state, pretrain(state.agent, state.buffer, key, plan, state.step, self.clock, self._pause))
                self.pretrained.keep(state.agent, self.tables, self.log)
        return state

    def _pause(self) -> None:
        """Between two pieces of a chunk: stop at once if the chunk takes long; it is done again when resumed."""
        if time.monotonic() - self._chunk_began > SLOW and self._asked():
            self.log.write()
            raise Interrupted("stopped; the same command continues from the last checkpoint")

    def _drive(self, state: Standing, chunks: Iterator[Progress]) -> None:
        """Let a phase run: record every chunk, evaluate when due, save now and then."""
        total = getattr(self.config.schedule, state.phase)
        every, saved = self.config.evaluation.every, time.monotonic()
        self._chunk_began = time.monotonic()
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
            if self._asked():
                self._save(state)
                raise Interrupted(f"stopped at {state.phase} step {step:,}; the same command continues from there")
            slow = time.monotonic() - self._chunk_began > SLOW
            last = total - step <= self.config.schedule.collect and state.phase == "online"
            before_the_end = last and not self._is_regular(total)  # where a longer run would go on
            if (slow or before_the_end or time.monotonic() - saved > self.save_every) and step < total:
                self._save(state)
                saved = time.monotonic()
            self._chunk_began = time.monotonic()

    def _evaluate(self, state: Standing) -> float:
        seed, episodes = stream(self.config.seed, "eval", state.phase, state.step), self.config.evaluation.episodes
        with self.clock.part("evaluation"):
            actor = on_host(state.agent.actor)
            played = play(actor, self.problem.make_env, episodes, seed, pause=self._pause)
        scores = self.problem.scores(played.returns)
        columns = {"return": played.returns, "score": scores, "success": np.full(episodes, "")}
        if played.successes is not None:
            columns["success"] = played.successes.astype(int)
        rows = ({name: column[i].item() for name, column in columns.items()} for i in range(episodes))
        place = {"phase": state.phase, "step": state.step}
        self.tables["eval"].add(*({**place, "episode": i, **row} for i, row in enumerate(rows)))
        mean = float(np.mean(scores))
        if state.phase == "online" and state.step > 0 and (state.best is None or mean > state.best.score):
            state.best = Best(mean, state.phase, state.step)
            self._export(state.agent, "best")
        return mean

    def _export(self, agent: Any, which: Which) -> None:
        """Write a policy that NumPy alone can play; an agent from outside may have one that cannot be written."""
        try:
            export_policy(self.folder.policy(which), agent.actor, self.problem.shaping, self.problem.actions)
        except DataError:
            if not is_plug_in(self.config.agent):
                raise

    # ---- starting and resuming -----------------------------------------------------------------------------------
    def _started(self) -> Standing:
        for table in self.tables.values():
            table.truncate(0)
        agent = self.pretrained.find(self.tables, [f"replay.{name}" for name in self.figures], self.log)
        if agent is not None:
            return self._online(agent)
        return self._offline(self.problem.new_agent(key_of(self.config.seed, "init")))

    def _offline(self, agent: Any) -> Standing:
        rows = len(self.problem.dataset["rewards"])
        buffer = self.problem.new_buffer(Uniform(), rows, "pretrain")
        return Standing("pretrain", 0, agent, buffer, buffer.load_dataset(self.problem.dataset).rows, None)

    def _online(self, agent: Any, begun: bool = False) -> Standing:
        dataset, sampler = self.problem.strategy()
        rows = len(dataset["rewards"])
        buffer = self.problem.new_buffer(sampler, rows + self.config.schedule.online, "online")
        loaded = buffer.load_dataset(dataset).rows
        collector = Collector(self.problem.make_env(), stream(self.config.seed, "collect"))
        if begun:
            return Standing("online", 0, agent, buffer, loaded, collector)
        offline = self.folder.curves()["pretrain"]
        best = Best(float(offline.means[-1]), "pretrain", int(offline.steps[-1]))
        for which in ("pretrained", "best"):
            self._export(agent, which)
        return Standing("online", 0, agent.begin_online(), buffer, loaded, collector, best)

    def _resumed(self) -> Standing | None:
        for path in checkpoints(self.folder.checkpoints):
            saved = read_json(path / STATE)
            if self._is_on_the_way(saved):
                return self._restored(path, saved)
            shutil.rmtree(path)
        return None

    def _is_on_the_way(self, saved: dict[str, Any]) -> bool:
        """Whether this run comes by a checkpoint, which may be the end of a shorter run that is continued."""
        length = saved.get("length", self.config.schedule.online)
        return length in (self.config.schedule.online, None) or saved["step"] < length or self._is_regular(length)

    def _is_regular(self, length: int) -> bool:
        """Whether a longer run, too, has a whole chunk and an evaluation at the end of a run of this length."""
        collect, every = self.config.schedule.collect, self.config.evaluation.every
        return length % collect == 0 and length // every > (length - collect) // every

    def _restored(self, path: Path, saved: dict[str, Any]) -> Standing:
        agent = load_agent(path / AGENT, agent_class(self.config.agent), self.problem.settings)
        state = self._offline(agent) if saved["phase"] == "pretrain" else self._online(agent, begun=True)
        state.step = saved["step"]
        state.best = Best(*saved["best"]) if saved.get("best") else None
        state.buffer.load(path / BUFFER)
        if state.collector is not None:
            state.collector.restore(saved["collector"])
        for name, table in self.tables.items():
            table.truncate(saved["tables"][name])
        if (path / self._best.name).exists():
            shutil.copyfile(path / self._best.name, self._best)
        return state

    def _save(self, state: Standing) -> None:
        def fill(folder: Path) -> None:
            save_agent(state.agent, folder / AGENT)
            state.buffer.save(folder / BUFFER, since=state.rows)
            saved = {
                "phase": state.phase,
                "step": state.step,
                "tables": {name: table.size for name, table in self.tables.items()},
                "best": state.best,
                "length": self.config.schedule.online if state.phase == "online" else None,
                "collector": state.collector.state() if state.collector else None,
            }
            (folder / STATE).write_text(json.dumps(saved))
            if state.phase == "online" and self._best.exists():
                shutil.copyfile(self._best, folder / self._best.name)

        done = state.step + (self.config.schedule.pretrain if state.phase == "online" else 0)
        with self.clock.part("checkpoints"):
            write_checkpoint(self.folder.checkpoints, done, fill)
        self.log.write()


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
    """The names of the learning rates."""
    names = [f.name for f in fields(settings) if f.name.endswith(("_lr", "learning_rate"))]
    return " or ".join(f"settings.{name}" for name in names)
