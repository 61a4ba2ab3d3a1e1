"""A run is a folder: both phases from wherever it stands, from a configuration to a fine-tuned policy and its tables.

A checkpoint holds everything that decides what comes next, and the tables are truncated to where they were when it was
written. So an interrupted run ends in the same bytes as if nothing had happened.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.agents.learn import NotFiniteError, on_host
from arb.agents.learn import load as load_agent
from arb.agents.learn import save as save_agent
from arb.envs import LIMIT as LONGEST_EPISODE
from arb.envs.rollout import Collector, Played, play
from arb.errors import DataError, EnvironmentFailure, Interrupted
from arb.files import GrowingTable, digest, locked, read_json
from arb.lab.agents import agent_class, is_plug_in
from arb.lab.algorithm import Progress, finetune, pretrain
from arb.lab.config import Config, pretraining_keys
from arb.lab.estimate import estimate
from arb.lab.folder import AGENT, BUFFER, SHARED, STATE, Result, RunFolder, is_intact, write_folder
from arb.lab.inbox import Inbox
from arb.lab.machine import MachineLog, check_memory, stoppable
from arb.lab.metrics import LOGGED
from arb.lab.rounds import Round
from arb.lab.setup import Setup, key_of, stream
from arb.lab.strategies import strategy_row
from arb.policies.export import Which, export_policy
from arb.progress import Tell
from arb.replay.buffer import ReplayBuffer
from arb.replay.robot import MOST_STEPS
from arb.replay.samplers import Uniform
from arb.replay.scores import Likelihood

SLOW = 4.0
"""Seconds after which a request to stop does not wait for the end of a chunk, and every chunk is saved."""


def run(
    config: Config,
    folder: str | Path,
    *,
    tell: Tell | None = None,
    save_every: float = 120.0,
    cache: Path | None = None,
    setup: Setup | None = None,
    pretraining: Path | None = None,
    stop: Callable[[], bool] | None = None,
    inbox: Path | None = None,
    after: Round | None = None,
    ready: Callable[[], bool] = lambda: True,
) -> Result:
    """Pre-train offline, fine-tune online, and leave everything in a folder; a finished run is returned at once.

    >>> from arb.lab.config import configure
    >>> config = configure(task="bundled:hopper-tiny", strategy="arb", preset="smoke")
    >>> run(config, "runs/first").last      # doctest: +SKIP

    Args:
        config: what to run.
        folder: where; an interrupted run that is there continues.
        tell: called after every chunk of work.
        save_every: seconds between checkpoints.
        cache: where pre-trainings are shared; beside the folder if not given.
        setup: what the configuration describes, if the caller has it already.
        pretraining: another run's folder whose pre-training to take over; it must be the one this run would do.
        stop: asked after every chunk whether to save and stop; by default whether SIGINT or SIGTERM came.
        inbox: the folder in which the episodes of a run with `source=files` arrive.
        after: what the run continues; the configuration is then the round's own.
        ready: asked again and again before every episode on hardware, until the robot may begin.
    """
    place = RunFolder(folder)
    if after:
        after.check(place)
    if place.finished(config):
        return place.result()
    with locked(place.lock, f"another process is working on the run in {place.path}: wait for it to end"):
        shared = cache or (pretraining or place.path).parent / SHARED
        setup = setup or (after.setup(config) if after else Setup.of(config))
        return run_locked(config, place, shared, tell, save_every, setup, pretraining, stop, inbox, after, ready)


def run_locked(
    config: Config,
    place: RunFolder,
    cache: Path,
    tell: Tell | None,
    save_every: float,
    setup: Setup,
    pretraining: Path | None = None,
    stop: Callable[[], bool] | None = None,
    inbox: Path | None = None,
    after: Round | None = None,
    ready: Callable[[], bool] = lambda: True,
) -> Result:
    """The same, for a caller that holds the lock of a folder whose run is not finished."""
    if config.source != "simulator" and not config.schedule.pretrain:
        raise DataError("an untrained policy is not sent to hardware: schedule.pretrain must be at least 1")
    if config.source == "files" and not (inbox or after):
        raise DataError("source=files needs the folder in which the episodes arrive: --collect FOLDER")
    place.clean()
    check_memory(f"a run on {config.task}", setup.memory)
    shared = Pretrained(cache, setup)
    if pretraining is not None and not shared.done:
        raise DataError(f"{pretraining} has no pre-training for this run: it was done under other settings")
    if after:
        after.begin(place, setup, [f"replay.{name}" for name in replay_metrics(config)])
    place.write_config(config, setup.describe())
    place.done_mark.unlink(missing_ok=True)  # of a shorter run that is continued
    training = Training(config, place, setup, tell or (lambda *_: None), save_every, shared, inbox, ready)
    with stoppable() if stop is None else nullcontext(stop) as asked_to_stop:
        try:
            training.go(asked_to_stop)
        except EnvironmentFailure as problem:
            known = "the same command continues" in str(problem)
            advice = "" if known else " (the same command continues from the last checkpoint)"
            raise EnvironmentFailure(f"{problem}{advice}") from problem.__cause__
        finally:
            if setup.robot is not None:
                setup.robot.close()
    found = place.result()
    place.write_result(found)
    return found


# ---- pre-trainings ---------------------------------------------------------------------------------------------------
class Pretrained:
    """The place of a pre-trained agent, named by everything that decides it: the strategy does not.

    So all strategies start from the same bytes.
    """

    def __init__(self, cache: Path, setup: Setup):
        described = setup.describe()
        keys = pretraining_keys(setup.config)
        del keys["task"]  # a name; the hash of the data says which it is
        decides = [keys, described["data"], described["env"], described["normalization"], described["versions"]]
        self.folder, self._setup = cache / digest(decides, {})[:24], setup

    @property
    def done(self) -> bool:
        """Whether it was done before, and its files are as they were written; a damaged one is done again."""
        return is_intact(self.folder)

    def find(self, tables: dict[str, GrowingTable], columns: Sequence[str], log: MachineLog) -> Any | None:
        """The agent if it has been pre-trained before, with its tables and seconds copied to those of the run.

        The metrics of the run may have more `columns` than those of whoever pre-trained.
        """
        if not self.done:
            return None
        agent = load_agent(self.folder / AGENT, agent_class(self._setup.config.agent), self._setup.settings)
        for name, table in tables.items():
            rows = [row for _, row in GrowingTable(self.folder / f"{name}.csv").rows()]
            more = {column: "nan" for column in columns if name == "metrics" and column not in (rows or [{}])[0]}
            if rows:  # no updates, no metrics
                table.add(*({**row, **more} for row in rows))
        log.timer.seconds |= RunFolder(self.folder).machine().get("parts") or {}
        return agent

    def keep(self, agent: Any, tables: dict[str, GrowingTable], log: MachineLog, run: RunFolder) -> None:
        """Store a pre-trained agent and the tables so far; if another process was faster, its bytes are the same."""
        if self.done:
            return
        run.metrics()  # nothing that two processes wrote into one folder may be handed on
        if run.curves().keys() != {"pretrain"}:
            raise DataError(f"{run.path} does not hold one pre-training alone: delete the folder and run again")

        def fill(folder: Path) -> None:
            save_agent(agent, folder / AGENT)
            for table in tables.values():
                if table.path.exists():  # no updates, no metrics
                    shutil.copyfile(table.path, folder / table.path.name)
            log.write()
            shutil.copyfile(log.path, folder / log.path.name)

        try:
            write_folder(self.folder, fill, run.checkpoints)
        except OSError:
            if not self.done:
                raise


# ---- training --------------------------------------------------------------------------------------------------------
@dataclass
class TrainState:
    """Where a run stands; everything a checkpoint holds."""

    phase: str
    step: int
    agent: Any
    buffer: ReplayBuffer
    rows: int
    """Rows that the dataset brought into the buffer."""
    collector: Collector | Inbox | None
    returns: list[float] = field(default_factory=list)
    """Of episodes that ended since the last evaluation, for `evaluation.by=data`."""
    best: float | None = None
    """The score of the policy that is exported as the best: the pre-trained one, or a later one that scored more."""
    began: int = 0
    """The step at which the last block began: the version of the policy that collected it."""


class Training:
    """The steps of a run and what they share."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        setup: Setup,
        tell: Tell,
        save_every: float,
        pretrained: Pretrained,
        inbox: Path | None = None,
        ready: Callable[[], bool] = lambda: True,
    ):
        self.config, self.folder, self.setup, self.tell, self.save_every = config, folder, setup, tell, save_every
        self.pretrained, self.inbox, self.ready = pretrained, inbox, ready
        files = [folder.metrics_file, folder.eval_file, *([folder.episodes_file] if config.source == "files" else [])]
        self.tables = {path.stem: GrowingTable(path) for path in files}
        self.replay_metrics = replay_metrics(config)
        self.log = MachineLog(folder)
        self.timer = self.log.timer
        self._best, self.by_data = folder.policy("best"), config.evaluation.by == "data"
        self._asked: Callable[[], bool] = lambda: False
        self._chunk_began = time.monotonic()

    def go(self, asked_to_stop: Callable[[], bool]) -> None:
        """Both phases, from wherever the folder stands."""
        with self.timer.part("other"):
            state = self.pretrain(asked_to_stop)
            if state.phase == "pretrain":
                agent = state.agent
                del state  # its buffer makes way for the next
                state = self._online(agent)
            self.tell("online", state.step, self.config.schedule.online, {})
            if state.collector is None:  # offline only: its one evaluation is that of the pre-trained agent
                self._evaluate(state)
            else:
                with self.timer.part("online"):
                    key = key_of(self.config.seed, "online")
                    likelihood: Likelihood = getattr(self.config.replay, "likelihood", "standard")
                    plan = self.config.schedule
                    if self.config.source == "files":  # every block brings rows that have no weight yet
                        plan = replace(plan, refresh=1)
                    where = (key, plan, likelihood, state.step, self.timer, self._pause)
                    self._drive(state, finetune(state.agent, state.buffer, state.collector, *where))
            self._save(state)
            self._export(state.agent.actor, "last", state)
        self.log.write()

    def pretrain(self, asked_to_stop: Callable[[], bool]) -> TrainState:
        """The first phase, unless the folder or the cache is beyond it already."""
        self._asked = asked_to_stop
        state = self._resumed() or self._started()
        if state.phase == "pretrain":
            key, plan = key_of(self.config.seed, "pretrain"), self.config.schedule
            with self.timer.part("pretrain"):
                self._drive(state, pretrain(state.agent, state.buffer, key, plan, state.step, self.timer, self._pause))
                self.pretrained.keep(state.agent, self.tables, self.log, self.folder)
        return state

    def _pause(self) -> None:
        """Between two pieces of a chunk, stop at once if the chunk takes long; it is done again when resumed."""
        if time.monotonic() - self._chunk_began > SLOW and self._asked():
            self.log.write()
            raise Interrupted("stopped; the same command continues from the last checkpoint")

    def _until_ready(self) -> None:
        while not self.ready():
            if self._asked():
                raise Interrupted("stopped between two episodes")

    def _drive(self, state: TrainState, chunks: Iterator[Progress]) -> None:
        """Let a phase run: record every chunk, evaluate when due, save now and then."""
        total = getattr(self.config.schedule, state.phase)
        every, saved = self.config.evaluation.every, time.monotonic()
        self._chunk_began = time.monotonic()
        untrained = state.phase == "pretrain" and total and (self.by_data or self.config.source != "simulator")
        if state.step == 0 and not untrained and state.phase not in self.folder.curves():
            self._evaluate(state)
        for step, agent, metrics, replay, returns in keeping_last_good(
            chunks, self.folder.last_good, self.config.settings
        ):
            before = state.began = state.step
            state.step, state.agent = step, agent
            state.returns += returns
            if state.collector and state.collector.failure:
                self._save(state)
                problem = state.collector.failure
                raise type(problem)(
                    f"{problem} (online step {step:,}; everything is saved, the same command continues)"
                )
            of_replay = {f"replay.{name}": replay.get(name, math.nan) for name in self.replay_metrics}
            self.tables["metrics"].add({"phase": state.phase, "step": step, **metrics, **of_replay})
            shown = metrics | {name: value for name, value in of_replay.items() if math.isfinite(value)}
            if isinstance(state.collector, Inbox):
                self.tables["episodes"].add(*({"online_step": before, **row} for row in state.collector.block))
                self._export(state.agent.actor, "last", state)
            if step // every > before // every or step >= total:
                shown["score"] = self._evaluate(state)
            self.tell(state.phase, step, total, shown)
            if self._no_gain(state):
                break
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

    def _evaluate(self, state: TrainState) -> float:
        """Score the policy, or with `by=data` while fine-tuning those that collected since the last evaluation."""
        evaluation, plan = self.config.evaluation, self.config.schedule
        # The same policy starts from the same states before and after the switch.
        at = ("pretrain", plan.pretrain) if (state.phase, state.step) == ("online", 0) else (state.phase, state.step)
        seed = stream(self.config.seed, "eval", *at)
        with self.timer.part("evaluation"):
            actor = on_host(state.agent.actor)
            if not self.by_data:
                width = 1 if self.setup.robot else 10
                make, shared = self.setup.make_env, self.setup.robot is not None
                played = play(actor, make, evaluation.episodes, seed, width, self._pause, shared)
            elif state.returns and state.collector:
                played, actor, state.returns = Played(np.array(state.returns), None), state.collector.actor, []
            elif state.phase == "pretrain" or state.step == 0:
                played = Played(self._estimate(actor, np.random.default_rng(seed)), None)
            else:
                return math.nan  # no episode has ended since
        scores = self.setup.scores(played.returns)
        # An environment may speak of success only where there is one, so the column is always there.
        successes = [""] * len(scores) if played.successes is None else played.successes.astype(int).tolist()
        rows = enumerate(zip(played.returns.tolist(), scores.tolist(), successes, strict=True))
        place = {"phase": state.phase, "step": state.step}
        self.tables["eval"].add(
            *({**place, "episode": i, "return": a, "score": b, "success": c} for i, (a, b, c) in rows)
        )
        mean = float(np.mean(scores))
        if state.phase == "online" and state.step > 0 and (state.best is None or mean > state.best):
            state.best = mean
            self._export(actor, "best", state, state.began if self.by_data else state.step)
        if state.phase == "online" or (state.step and self.config.source == "simulator"):  # also for whoever watches
            self._export(state.agent.actor, "last", state)
        return mean

    def _no_gain(self, state: TrainState) -> bool:
        """Whether the last `evaluation.patience` evaluations of fine-tuning brought no new best score."""
        patience = self.config.evaluation.patience
        if not patience or state.phase == "pretrain":
            return False
        curve = self.folder.curves()["online"]
        scores = curve.means[curve.steps > 0]
        return len(scores) > patience and len(scores) - 1 - int(scores.argmax()) >= patience

    def _estimate(self, actor: Any, rng: np.random.Generator) -> NDArray[np.float64]:
        """Returns by fitted Q evaluation on the episodes held out, one per replicate of the bootstrap."""
        assert self.setup.held_out is not None
        held, rewards = self.setup.held_out
        return estimate(actor, held, rewards, self.setup.actions.size if self.setup.actions.discrete else 0, rng)

    def _export(self, actor: Any, which: Which, state: TrainState, version: int | None = None) -> None:
        """Write a policy that NumPy alone can play; an agent from outside may have one that cannot be written."""
        setup, seen = self.setup, state.buffer.storage.columns["obs"][: len(state.buffer)]
        version = (state.step if state.phase == "online" else 0) if version is None else version
        about = (setup.normalization, setup.actions, seen, setup.parts, version)
        try:
            export_policy(self.folder.policy(which), actor, *about)
        except DataError:
            if not is_plug_in(self.config.agent):
                raise

    # ---- starting and resuming ---------------------------------------------------------------------------------------
    def _started(self) -> TrainState:
        for table in self.tables.values():
            table.truncate(0)
        agent = self.pretrained.find(self.tables, [f"replay.{name}" for name in self.replay_metrics], self.log)
        if agent is not None:
            return self._online(agent)
        kind, key = agent_class(self.config.agent), key_of(self.config.seed, "init")
        return self._offline(kind.create(key, *self.setup.dims, self.setup.settings))

    def _offline(self, agent: Any) -> TrainState:
        buffer = self.setup.new_buffer(Uniform(), len(self.setup.dataset), "pretrain")
        return TrainState("pretrain", 0, agent, buffer, buffer.load_dataset(self.setup.dataset, extras=()).rows, None)

    def _online(self, agent: Any, begun: bool = False) -> TrainState:
        dataset, sampler = self.setup.strategy()
        source, online = self.config.source, self.config.schedule.online
        longest = {"simulator": 0, "hardware": LONGEST_EPISODE, "files": MOST_STEPS}[source]
        room = longest if online else 0  # the last episode is not cut short
        buffer = self.setup.new_buffer(sampler, len(dataset) + online + room, "online")
        loaded = buffer.load_dataset(dataset, extras=()).rows
        collector: Collector | Inbox | None = None
        if online and source == "files":
            collector = Inbox(self.folder.episodes, self.setup.recorded, self.inbox)
        elif online:
            seed = stream(self.config.seed, "collect")
            collector = Collector(self.setup.make_env(), seed, source == "hardware", self._until_ready)
        if begun:
            return TrainState("online", 0, agent, buffer, loaded, collector)
        best = float(self.folder.curves()["pretrain"].means[-1])
        state = TrainState("online", 0, agent, buffer, loaded, collector, best=best)
        for which in ("pretrained", "best"):
            self._export(agent.actor, which, state)
        state.agent = agent.begin_online()
        return state

    def _resumed(self) -> TrainState | None:
        for path in self.folder.intact_checkpoints():
            saved = read_json(path / STATE)
            length = saved["length"]  # a shorter run that is continued may have ended where this one does not come by
            same = length in (self.config.schedule.online, None) or self.config.source != "simulator"
            if same or saved["step"] < length or self._is_regular(length):
                return self._restored(path, saved)
            shutil.rmtree(path)
        return None

    def _is_regular(self, length: int) -> bool:
        """Whether a longer run, too, has a whole chunk and an evaluation at the end of a run of this length."""
        collect, every = self.config.schedule.collect, self.config.evaluation.every
        return length % collect == 0 and length // every > (length - collect) // every

    def _restored(self, path: Path, saved: dict[str, Any]) -> TrainState:
        agent = load_agent(path / AGENT, agent_class(self.config.agent), self.setup.settings)
        state = self._offline(agent) if saved["phase"] == "pretrain" else self._online(agent, begun=True)
        state.step, state.best, state.returns = saved["step"], saved["best"], saved["returns"]
        state.buffer.load(path / BUFFER)
        if state.collector is not None and saved["collector"] is not None:
            state.collector.restore(saved["collector"])
        for name, table in self.tables.items():
            table.truncate(saved["tables"][name])
        if (path / self._best.name).exists():
            shutil.copyfile(path / self._best.name, self._best)
        return state

    def _save(self, state: TrainState) -> None:
        def fill(folder: Path) -> None:
            save_agent(state.agent, folder / AGENT)
            state.buffer.save(folder / BUFFER, since=state.rows)
            saved = {
                "phase": state.phase,
                "step": state.step,
                "tables": {name: table.size for name, table in self.tables.items()},
                "best": state.best,
                "returns": state.returns,
                "length": self.config.schedule.online if state.phase == "online" else None,
                "collector": state.collector.state() if state.collector else None,
            }
            (folder / STATE).write_text(json.dumps(saved))
            if state.phase == "online" and self._best.exists():
                shutil.copyfile(self._best, folder / self._best.name)

        done = state.step + (self.config.schedule.pretrain if state.phase == "online" else 0)
        with self.timer.part("checkpoints"):
            self.folder.write_checkpoint(done, fill)
        self.log.write()


def replay_metrics(config: Config) -> tuple[str, ...]:
    """The columns about replay in the metrics of a run, without their prefix."""
    of_files = ("policy_version",) if config.source == "files" else ()
    return (*LOGGED, *strategy_row(config.replay.strategy).metric_names, *of_files)


# ---- losses that are not finite --------------------------------------------------------------------------------------
def keeping_last_good(chunks: Iterator[Progress], path: Path, settings: Any) -> Iterator[Progress]:
    """The same chunks; a `NotFiniteError` among them leaves the agent before it at a path and says what to change."""
    try:
        yield from chunks
    except NotFiniteError as error:
        save_agent(error.agent, path)
        rates = [f"settings.{f.name}" for f in fields(settings) if f.name.endswith(("_lr", "learning_rate"))]
        advice = (
            f"the agent before it is in {path}. Rerunning will fail at the same update: try a lower "
            f"{' or '.join(rates)}, or observations and rewards of a smaller scale, in another folder"
        )
        raise NotFiniteError(error.loss, error.update, error.agent, error.place, advice) from None
