"""The folder of a run: the name of every file in it, and the one reader and writer of each.

No JAX. What is read here may come from somebody else: it is checked, and a file that cannot be used is a `DataError` in
one line. Names that are read stay text; none becomes a path or a module to import.
"""

import json
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from arb.data.formats import read_dataset, without_suffix
from arb.data.tasks import normalised, read_reference
from arb.errors import DataError
from arb.files import GrowingTable, check_folder, fsync, locked, read_json, sha256_of, write_text
from arb.lab.agents import plug_in_label
from arb.lab.config import Config, flat
from arb.lab.strategies import strategy_row
from arb.policies.export import POLICIES, Which, load_policy
from arb.replay.dataset import Dataset

Floats = NDArray[np.float64]
PHASES = ("pretrain", "online")
PLAN = "plan.json"
"""What a sweep does, in the folder above those of its runs."""
SHARED = ".pretrained"
"""The folder of pre-trainings, beside those of the runs that share them."""
DATASETS = f"datasets.{platform.node()}"
"""The folder in it of the datasets that this machine maps while a sweep goes on: others may see the same disk."""
AGENT, BUFFER, STATE, _SUMS = "agent.safetensors", "buffer.npz", "state.json", "sums.json"
"""The files of a checkpoint; a pre-training has the agent and the sums, and a run's tables beside them."""
CONVERGED = 3.0
"""Time constants after which 95 % of a way is covered: 1 - exp(-3)."""
LENGTH = "schedule.online"
"""The one setting that may grow: more steps continue a run."""
_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*(:[^\W\d]\w*(\.\w+)*)?")
_ENV = re.compile(r"(?!.*\.\.)[\w.:-]+(/[\w.:-]+)*")


@dataclass(frozen=True)
class Description:
    """What config.json says: the run's complete configuration, and what the numbers depend on beside it."""

    config: Mapping[str, Any]
    """Every setting under its full name, e.g. `replay.strategy`."""
    env: str = ""
    reference: tuple[float, float] | None = None
    """Returns of score 0 and 100; None where scores are plain returns."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """`rows`, `episodes` and `sha256` of the dataset, and the `mean_return` and `best_return` of its episodes."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """The evaluations of one phase: per step the scores and returns of its episodes."""

    steps: Floats
    scores: tuple[Floats, ...]
    returns: tuple[Floats, ...]
    successes: tuple[Floats, ...] | None = None
    """1 for every episode that its environment called a success, 0 for the others; None where it never says."""

    @property
    def means(self) -> Floats:
        """The mean score of each evaluation."""
        return np.array([values.mean() for values in self.scores])

    @property
    def errors(self) -> Floats:
        """The standard error of each mean, over the episodes of its evaluation; nan where there is one."""
        return np.array([v.std(ddof=1) / math.sqrt(len(v)) if len(v) > 1 else math.nan for v in self.scores])


class Result(NamedTuple):
    """The result of a run: scores, normalised where the task has a reference, plain returns otherwise."""

    pretrained: float
    last: float
    best: float
    """The best evaluation after online updates. It was chosen afterwards, so it flatters."""
    drop: float
    """Pre-trained score minus the first one after online updates: positive if the switch cost something."""
    success: float | None = None
    """The share of successful episodes in the last evaluation, where the environment reports success."""
    best_step: int = 0
    """The online step of the policy that is exported as the best; 0 if that is the pre-trained one."""
    data_mean: float | None = None
    """The mean score of the episodes in the dataset."""
    data_best: float | None = None
    """The best score of an episode in the dataset."""
    time_constants: float | None = None
    """How long pre-training was for the critics: updates · tau · (1 - discount). After 3 they are 95 % converged."""
    folder: Path = Path()


def result_of(curves: Mapping[str, Curve]) -> Result | None:
    """The scores of a run that was evaluated in both phases, None of any other.

    >>> offline = Curve(np.array([0.0, 40.0]), (np.array([1.0]), np.array([8.0, 4.0])), ())
    >>> online = Curve(np.array([0.0, 20.0, 40.0]), (np.array([7.0]), np.array([5.0]), np.array([9.0])), ())
    >>> result_of({"pretrain": offline, "online": online})[:6]
    (6.0, 9.0, 9.0, 1.0, None, 40)
    """
    if not {"pretrain", "online"} <= curves.keys():
        return None
    before, online = curves["pretrain"].means[-1], curves["online"]
    after = online.means[online.steps > 0]
    if not len(after):  # offline only
        return Result(float(before), float(online.means[-1]), float(online.means[-1]), 0.0)
    success = None if online.successes is None else float(online.successes[-1].mean())
    best_step = int(online.steps[online.steps > 0][after.argmax()]) if after.max() > before else 0
    return Result(float(before), float(after[-1]), float(after.max()), float(before - after[0]), success, best_step)


def evaluated(curves: Mapping[str, Curve], which: str) -> Floats | None:
    """The returns of the evaluation of a run's last, best or pre-trained policy, where they are known."""
    result = result_of(curves)
    if which != "last" and result is None:
        return None
    if which == "best" and result and result.best_step:
        return curves["online"].returns[int(np.searchsorted(curves["online"].steps, result.best_step))]
    phase = "online" if which == "last" else "pretrain"
    return curves[phase].returns[-1] if phase in curves else None


def time_constants(config: Mapping[str, Any]) -> float | None:
    """Updates of pre-training · tau · (1 - discount): in units of the critics' slowest time constant.

    >>> time_constants({"schedule.pretrain": 60_000, "settings.tau": 0.005, "settings.discount": 0.99})
    3.0
    """
    numbers = [config.get(key) for key in ("schedule.pretrain", "settings.tau", "settings.discount")]
    if not all(isinstance(number, int | float) for number in numbers):
        return None  # an agent of one's own may have other settings
    updates, rate, discount = map(float, numbers)  # type: ignore[arg-type]
    chunk = int(config.get("settings.chunk") or 1)
    return round(updates * rate * (1.0 - discount**chunk), 6)


def convergence_note(config: Mapping[str, Any]) -> str:
    """A line for a run whose pre-training stops before its critics have converged; empty if they will have.

    >>> convergence_note({"schedule.pretrain": 20_000, "settings.tau": 0.005, "settings.discount": 0.99})
    'pre-training covers 63 % of the way of the critics: 95 % take 60,000 updates, schedule.pretrain=60000'
    """
    passed = time_constants(config)
    if not passed or passed >= CONVERGED:
        return ""
    needed, share = math.ceil(config["schedule.pretrain"] * CONVERGED / passed), 1.0 - math.exp(-passed)
    covers = f"pre-training covers {100.0 * share:.0f} % of the way of the critics"
    return f"{covers}: 95 % take {needed:,} updates, schedule.pretrain={needed}"


class RunFolder:
    """A run on disk.

    >>> folder = RunFolder("runs/hopper-medium-v2-iql-arb-0")
    >>> folder.done
    False

    Args:
        path: the folder, which need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.eval_file = self.path / "eval.csv"
        self.metrics_file = self.path / "metrics.csv"
        self.result_file = self.path / "result.json"
        self.machine_file = self.path / "machine.json"
        self.episodes_file = self.path / "episodes.csv"
        self.round_file = self.path / "round.json"
        self.picture_file = self.path / "curve.png"
        self.checkpoints = self.path / "checkpoint"
        self.policies = self.path / "policy"
        self.episodes = self.path / "episodes"
        self.tensorboard = self.path / "tensorboard"
        self.last_good = self.path / "last-good.safetensors"
        self.done_mark = self.path / "DONE"
        self.failure_mark = self.path / "FAILED"
        self.lock = self.path / ".lock"

    @property
    def done(self) -> bool:
        return self.done_mark.exists()

    @property
    def failure(self) -> str:
        """Why a sweep gave the run up, in one line; empty if it did not."""
        try:
            return (self.failure_mark.read_text(errors="replace").strip().splitlines() or ["no reason given"])[0]
        except OSError:
            return ""

    def policy(self, which: Which = "last") -> Path:
        """The file of an exported policy: `last`, `best` or `pretrained`."""
        return self.policies / POLICIES[which]

    # ---- reading -----------------------------------------------------------------------------------------------------
    def description(self) -> Description:
        if not self.config_file.exists():
            raise DataError(f"{self.path} is not the folder of a run: it has no config.json")
        said = read_json(self.config_file)
        if not isinstance(said, dict) or not isinstance(said.get("config"), dict):
            raise DataError(f"{self.config_file} is damaged or was not written by `arb run`: it has no settings")
        for key in ("agent", "replay.strategy"):
            read_name(said["config"].get(key, "unknown"), key, self.config_file)
        env = said.get("env") or ""
        if env and not (isinstance(env, str) and _ENV.fullmatch(env)):
            raise DataError(f"{self.config_file}: env {env!r} is not the name of an environment")
        data, versions = (said.get(part) or {} for part in ("data", "versions"))
        if not isinstance(data, dict) or not isinstance(versions, dict):
            raise DataError(f"{self.config_file} is damaged: data and versions must be objects")
        reference = said.get("reference")
        if reference is not None:
            reference = read_reference(reference, str(self.config_file))
        return Description(said["config"], env, reference, data, {str(k): str(v) for k, v in versions.items()})

    def curves(self) -> dict[str, Curve]:
        """The evaluations in eval.csv, by phase; no value that is not finite, no episode twice.

        Where an environment reports success, episodes about which it says nothing had none.
        """
        found: dict[str, dict[int, dict[int, tuple[float, ...]]]] = {}
        reported = False
        for place, row in GrowingTable(self.eval_file).rows():
            phase, step = _phase(row, place), _count(row, "step", place)
            episodes = found.setdefault(phase, {}).setdefault(step, {})
            episode = _count(row, "episode", place, default=len(episodes))
            if episode in episodes:
                raise DataError(f"{place}: episode {episode} of {phase} step {step} is there twice")
            said = row.get("success", "") != ""
            reported = reported or said
            names = ("score", "return", *(("success",) if said else ()))
            numbers = (_number(row.get(name, ""), name, place) for name in names)
            episodes[episode] = (*numbers, 0.0)[:3]
        curves = {}
        for phase, steps in found.items():
            tables = [np.array([steps[step][i] for i in sorted(steps[step])]) for step in sorted(steps)]
            scores, returns, successes = (tuple(table[:, i] for table in tables) for i in range(3))
            curves[phase] = Curve(np.array(sorted(steps), float), scores, returns, successes if reported else None)
        return curves

    def metrics(self) -> dict[str, dict[str, Floats]]:
        """The columns of metrics.csv, by phase and name; what was not measured is nan."""
        found: dict[str, dict[str, list[float]]] = {}
        for place, row in GrowingTable(self.metrics_file).rows():
            columns = found.setdefault(_phase(row, place), {})
            step = _count(row, "step", place)
            if columns.get("step") and step <= columns["step"][-1]:
                raise DataError(f"{place}: step {step} comes after step {columns['step'][-1]:.0f}")
            for name, text in row.items():
                if name != "phase":
                    columns.setdefault(name, []).append(_number(text, name, place, finite=False) if text else math.nan)
        return {phase: {name: np.array(column) for name, column in columns.items()} for phase, columns in found.items()}

    def machine(self) -> dict[str, Any]:
        """What machine.json says of where, when and how long the run ran; empty if nobody noted it."""
        said = read_json(self.machine_file) if self.machine_file.exists() else {}
        return said if isinstance(said, dict) else {}

    def result(self) -> Result:
        """The result of the run, from eval.csv and config.json."""
        found = result_of(self.curves())
        if found is None:
            raise DataError(f"{self.path} holds no finished evaluation of both phases")
        described = self.description()
        returns: list[Any] = [described.data.get(name) for name in ("mean_return", "best_return")]
        known = all(isinstance(value, int | float) for value in returns)
        mean, best = normalised(returns, described.reference).tolist() if known else (None, None)
        return found._replace(
            data_mean=mean, data_best=best, time_constants=time_constants(described.config), folder=self.path
        )

    # ---- what the folder belongs to ----------------------------------------------------------------------------------
    def finished(self, config: Config) -> bool:
        """Whether the folder holds this very run and nothing is left to do; a run that shall be longer is not done."""
        if not self.done:
            return False
        self.check_config(config)
        return bool(self.description().config.get(LENGTH) == config.schedule.online)

    def check_config(self, config: Config) -> None:
        """Refuse to mix two runs in one folder, naming the first setting in which they differ.

        More online steps than before continue the run.
        """
        check_folder(self.path)
        if not self.config_file.exists():
            return
        held, asked = self.description().config, flat(config)
        strategy = config.replay.strategy
        same, other = "choose another folder", sorted(held.keys() ^ asked.keys())
        if other and all(held.get(key) == asked[key] for key in ("agent", "replay.strategy")):
            made = f"{self.path} was made by another version of arb with other settings"
            raise DataError(f"{made} ({', '.join(other[:3])}): {same}")
        for key in ("agent", "replay.strategy", *sorted(asked)):
            holds = f"{self.path} holds a run with {key} = {held.get(key)!r}"
            longer = key == LENGTH and isinstance(held.get(key), int) and held[key] < asked[key]
            if longer and strategy_row(strategy).whole_length:
                raise DataError(f"{holds}, and {strategy} depends on that length from the first step: {same}")
            if held.get(key) != asked[key] and not longer:
                raise DataError(f"{holds}, not {asked[key]!r}: {same}, or ask for the same to continue it")

    # ---- writing -----------------------------------------------------------------------------------------------------
    def write_config(self, config: Config, described: Mapping[str, Any]) -> None:
        """Write config.json: everything that belongs beside the results."""
        self.check_config(config)
        sha256 = described["data"]["sha256"]
        if self.config_file.exists() and self.description().data.get("sha256", sha256) != sha256:
            raise DataError(f"the data of {config.task} has changed since the run in {self.path} began: put it back")
        write_text(self.config_file, json.dumps(described, indent=1))

    def write_result(self, result: Result) -> None:
        """Write result.json, and mark the run as done."""
        write_text(self.result_file, json.dumps(result._asdict() | {"folder": self.path.name}, indent=1))
        self.last_good.unlink(missing_ok=True)  # of an attempt before
        self.failure_mark.unlink(missing_ok=True)
        self.done_mark.touch()

    def write_failure(self, reason: str, traceback: str) -> None:
        """Leave the reason, in one line, and the traceback."""
        write_text(self.failure_mark, f"{' '.join(reason.split())}\n\n{traceback}")

    def clean(self) -> None:
        """Remove what killed processes left half-written; for whoever holds the lock."""
        for place in (self.path, self.policies, self.episodes):
            for left in place.glob(".*.part*"):
                left.unlink(missing_ok=True)
        for left in self.checkpoints.glob("unfinished*"):
            shutil.rmtree(left, ignore_errors=True)

    def write_checkpoint(self, number: int, fill: Callable[[Path], None], keep: int = 2) -> None:
        """Write a numbered checkpoint, and remove all but the last `keep`."""
        write_folder(self.checkpoints / f"{number:012d}", fill, self.checkpoints)
        for old in self._numbered()[:-keep]:
            shutil.rmtree(old)

    def intact_checkpoints(self) -> Iterator[Path]:
        """The checkpoints whose files are as they were written, newest first; damaged ones are passed over."""
        return (path for path in reversed(self._numbered()) if is_intact(path))

    def _numbered(self) -> list[Path]:
        return sorted(path for path in self.checkpoints.glob("[0-9]*") if path.is_dir())


def export_steps(path: str | os.PathLike[str]) -> Dataset:
    """The steps that a run has collected in its environment, as a dataset with the environment's own numbers.

    From its newest checkpoint, so that it works while the run goes on.
    """
    folder = RunFolder(path)
    said, env = folder.description().config, folder.description().env
    checkpoint = next((found for found in folder.intact_checkpoints() if (found / BUFFER).exists()), None)
    if checkpoint is None or read_json(checkpoint / STATE)["phase"] != "online":
        raise DataError(f"{folder.path} has collected no steps yet, or keeps no checkpoint of them")
    data, normal = read_dataset(checkpoint / BUFFER), read_json(folder.config_file)["normalization"]
    scales = load_policy(folder.path, "pretrained").arrays
    shift = scales["middle"] if "half" in scales else scales.get("start", 0)

    def raw(obs: Any) -> Any:
        return obs if normal["mean"] is None else obs * np.asarray(normal["std"]) + np.asarray(normal["mean"])

    provenance = {"env": env, "made_by": f"the online steps of a run of {said['agent']} on {said['task']}"}
    return replace(
        data,
        observations=raw(data.observations),
        final_observations=raw(data.final_observations),
        actions=data.actions * scales["half"] + shift if "half" in scales else data.actions + shift,
        rewards=(data.rewards.astype(np.float64) - normal["shift"]) / normal["scale"],
        extras={},
        provenance=provenance,
    )


def default_folder(config: Config, preset: str) -> Path:
    """Where `arb run` keeps a run: `runs/TASK-AGENT-STRATEGY-PRESET-SEED`, with the environment if one was given.

    >>> default_folder(Config(task="suite:hopper-mixed"), "demo")
    PosixPath('runs/suite-hopper-mixed-iql-arb-demo-0')
    """
    task = without_suffix(config.task.partition("?")[0].rstrip("/").rpartition("/")[2])
    names = (
        f"{task}-{config.env}" if config.env else task,
        plug_in_label(config.agent),
        plug_in_label(config.replay.strategy),
        preset,
        config.seed,
    )
    return Path("runs") / "-".join(re.sub(r"[^\w.+-]+", "-", str(name)).strip("-.") for name in names)


# ---- folders that appear at once, with sums --------------------------------------------------------------------------
def write_folder(folder: Path, fill: Callable[[Path], None], scratch: Path) -> None:
    """Let `fill` write files into a new folder, which has its name only once all of it is on disk.

    The work is done in `scratch`, on the same disk; what a killed process leaves there is named `unfinished*`.
    """
    unfinished = scratch / f"unfinished.{uuid4().hex}"
    unfinished.mkdir(parents=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        fill(unfinished)
        sums = {path.name: sha256_of(path) for path in sorted(unfinished.iterdir())}
        (unfinished / _SUMS).write_text(json.dumps(sums))
        for path in unfinished.iterdir():
            fsync(path)
        fsync(unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    fsync(folder.parent)


def is_intact(folder: Path) -> bool:
    """Whether the files of such a folder are as they were written."""
    try:
        sums = read_json(folder / _SUMS)
        return AGENT in sums and all(sha256_of(folder / name) == value for name, value in sums.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


class Shared:
    """Datasets in the files of a folder, mapped by all workers of a sweep: the first that needs one makes it."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._opened: dict[str, Dataset] = {}

    def get(self, name: str, make: Callable[[], Dataset]) -> Dataset:
        """The dataset of a name; where it cannot be written, every worker makes its own."""
        if name in self._opened:
            return self._opened[name]
        place = self._folder / name
        with locked(place.with_suffix(".lock")):
            made = None if place.exists() else make()
            with suppress(OSError, ValueError, TypeError):
                if made is not None:
                    write_folder(place, made.write_files, self._folder)
                self._opened[name] = Dataset.mapped(place)
        return self._opened.get(name) or made or make()


# ---- text from files -------------------------------------------------------------------------------------------------
def read_name(value: Any, what: str, path: Path) -> str:
    """A name as a file may give it: `iql`, or `my_module:MyAgent`. It is shown and compared, never followed."""
    if isinstance(value, str) and len(value) <= 200 and _NAME.fullmatch(value):
        return value
    raise DataError(f"{path}: {what} {str(value)[:80]!r} is not a name")


def _phase(row: Mapping[str, str], place: str) -> str:
    if row.get("phase") not in PHASES:
        raise DataError(f"{place}: phase {row.get('phase')!r} must be {' or '.join(PHASES)}")
    return row["phase"]


def _count(row: Mapping[str, str], name: str, place: str, default: int | None = None) -> int:
    text = row.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise DataError(f"{place}: {name} {text[:40]!r} must be a whole number")
    return int(text)


def _number(text: str, name: str, place: str, finite: bool = True) -> float:
    try:
        number = float(text)
    except ValueError:
        raise DataError(f"{place}: {name} {text[:40]!r} is not a number") from None
    if finite and not math.isfinite(number):
        raise DataError(f"{place}: {name} {text!r} is not finite")
    return number
