"""The folder of a run: the name of every file in it, and the one reader of each.

NumPy alone. What is read here may come from somebody else: it is checked, and a file that cannot be used is a
`DataError` in one line. Names that are read stay text; none becomes a path or a module to import.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.data.tasks import read_reference
from arb.errors import DataError
from arb.files import GrowingTable, read_json
from arb.policies.export import POLICIES

Floats = NDArray[np.float64]
PHASES = ("pretrain", "online")
PLAN = "plan.json"
"""What a sweep does, in the folder above those of its runs."""
_LARGEST = 2**53
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
    """`rows` and `sha256` of the dataset."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """The evaluations of one phase: per step the scores and returns of its episodes."""

    steps: Floats
    scores: tuple[Floats, ...]
    returns: tuple[Floats, ...]
    successes: tuple[Floats, ...] | None = None
    """1 for every episode that its environment called a success, 0 for the others; None where it does not say."""

    @property
    def means(self) -> Floats:
        """The mean score of each evaluation."""
        return np.array([values.mean() for values in self.scores])


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
    folder: Path = Path()

    def best_policy(self) -> str:
        """Which of the exported policies scored most, in one line.

        >>> Result(40.0, 80.0, 95.0, 3.0, None, 5000).best_policy()
        'best policy 95.0 at online step 5,000; it was chosen by these evaluations, so its true score may be lower'
        """
        score = max(self.best, self.pretrained)
        place = f"at online step {self.best_step:,}" if self.best_step else "before fine-tuning"
        return f"best policy {score:.1f} {place}; it was chosen by these evaluations, so its true score may be lower"


def result_of(curves: Mapping[str, Curve]) -> Result | None:
    """The scores of a run that was evaluated in both phases, None of any other.

    >>> offline = Curve(np.array([0.0, 40.0]), (np.array([1.0]), np.array([8.0, 4.0])), ())
    >>> online = Curve(np.array([0.0, 20.0, 40.0]), (np.array([7.0]), np.array([5.0]), np.array([9.0])), ())
    >>> result_of({"pretrain": offline, "online": online})[:-1]
    (6.0, 9.0, 9.0, 1.0, None, 40)
    """
    if not {"pretrain", "online"} <= curves.keys():
        return None
    before, online = curves["pretrain"].means[-1], curves["online"]
    after = online.means[online.steps > 0]
    if not len(after):
        return None
    success = None if online.successes is None else float(online.successes[-1].mean())
    best_step = int(online.steps[online.steps > 0][after.argmax()]) if after.max() > before else 0
    return Result(float(before), float(after[-1]), float(after.max()), float(before - after[0]), success, best_step)


def evaluated(curves: Mapping[str, Curve], which: str) -> Floats | None:
    """The returns of the evaluation in which a run played its last, best or pre-trained policy, where they are known.

    >>> offline = Curve(np.array([40.0]), (np.array([8.0]),), (np.array([80.0]),))
    >>> online = Curve(np.array([0.0, 20.0]), (np.array([7.0]), np.array([5.0])), (np.array([70.0]), np.array([50.0])))
    >>> [evaluated({"pretrain": offline, "online": online}, which) for which in ("last", "best")]
    [array([50.]), array([80.])]
    """
    if which == "last":
        return curves["online"].returns[-1] if "online" in curves else None
    result = result_of(curves)
    if result is None:
        return None
    if which == "best" and result.best_step:
        return curves["online"].returns[int(np.flatnonzero(curves["online"].steps == result.best_step)[0])]
    return curves["pretrain"].returns[-1]


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
        self.picture_file = self.path / "curve.png"
        self.checkpoints = self.path / "checkpoint"
        self.policies = self.path / "policy"
        self.tensorboard = self.path / "tensorboard"
        self.last_good = self.path / "last-good.safetensors"
        self.done_mark = self.path / "DONE"
        self.failure_mark = self.path / "FAILED"
        self.lock = self.path / ".lock"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        return self.done_mark.exists()

    @property
    def failure(self) -> str:
        """Why a sweep gave the run up, in one line; empty if it did not."""
        try:
            return (self.failure_mark.read_text(errors="replace").strip().splitlines() or ["no reason given"])[0]
        except OSError:
            return ""

    def policy(self, which: str = "last") -> Path:
        """The file of an exported policy: `last`, `best` or `pretrained`."""
        return self.policies / POLICIES[which]

    def description(self) -> Description:
        """What config.json says."""
        if not self.config_file.exists():
            raise DataError(f"{self.path} is not the folder of a run: it has no config.json")
        said = read_json(self.config_file)
        if not isinstance(said, dict) or not isinstance(said.get("config"), dict):
            raise DataError(f"{self.config_file} is damaged or was not written by `arb run`: it has no settings")
        for leaf in ("agent", "replay.strategy"):
            read_name(said["config"].get(leaf, "unknown"), leaf, self.config_file)
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
        """The evaluations in eval.csv, by phase; a value that is not finite, or an episode told twice, is refused."""
        found: dict[str, dict[int, dict[int, tuple[float, ...]]]] = {}
        told = False
        for place, row in GrowingTable(self.eval_file).rows():
            told = told or bool(row.get("success"))
            phase, step = _phase(row, place), _whole(row, "step", place)
            episodes = found.setdefault(phase, {}).setdefault(step, {})
            episode = _whole(row, "episode", place, default=len(episodes))
            if episode in episodes:
                raise DataError(f"{place}: episode {episode} of {phase} step {step} is there twice")
            success = _finite(row, "success", place) if row.get("success") else 0.0  # reported only when it happens
            episodes[episode] = (_finite(row, "score", place), _finite(row, "return", place), success)
        curves = {}
        for phase, steps in found.items():
            tables = [np.array([steps[step][i] for i in sorted(steps[step])]) for step in sorted(steps)]
            columns = [tuple(table[:, i] for table in tables) for i in range(3)]
            curves[phase] = Curve(np.array(sorted(steps), float), columns[0], columns[1], columns[2] if told else None)
        return curves

    def metrics(self) -> dict[str, dict[str, Floats]]:
        """The columns of metrics.csv, by phase and name; what was not measured is nan."""
        found: dict[str, dict[str, list[float]]] = {}
        for place, row in GrowingTable(self.metrics_file).rows():
            columns = found.setdefault(_phase(row, place), {})
            step = _whole(row, "step", place)
            if columns.get("step") and step <= columns["step"][-1]:
                raise DataError(f"{place}: step {step} comes after step {columns['step'][-1]:.0f}")
            for name, text in row.items():
                if name != "phase":
                    columns.setdefault(name, []).append(_number(text, name, place) if text else math.nan)
        return {phase: {name: np.array(column) for name, column in columns.items()} for phase, columns in found.items()}

    def machine(self) -> dict[str, Any]:
        """What machine.json says of where, when and how long the run ran; empty if nobody noted it."""
        if not self.machine_file.exists():
            return {}
        said = read_json(self.machine_file)
        return said if isinstance(said, dict) else {}

    def result(self) -> Result:
        """The result of the run, from eval.csv."""
        found = result_of(self.curves())
        if found is None:
            raise DataError(f"{self.path} holds no finished evaluation of both phases")
        return found._replace(folder=self.path)


def read_name(value: Any, what: str, path: Path) -> str:
    """A name as a file may give it: `iql`, or `my_module:MyAgent`. It is shown and compared, never followed."""
    if isinstance(value, str) and len(value) <= 200 and _NAME.fullmatch(value):
        return value
    raise DataError(f"{path}: {what} {str(value)[:80]!r} is not a name")


def refuse_module(name: str, what: str, remedy: str) -> None:
    """Refuse a name from a file that would make Python import a module: only the command line may ask for that."""
    if ":" in name:
        raise DataError(f"{what} names the module {name.partition(':')[0]!r}, and a file may not load code: {remedy}")


def _phase(row: Mapping[str, str], place: str) -> str:
    if row.get("phase") not in PHASES:
        raise DataError(f"{place}: phase {row.get('phase')!r} must be {' or '.join(PHASES)}")
    return row["phase"]


def _whole(row: Mapping[str, str], name: str, place: str, default: int | None = None) -> int:
    text = row.get(name, "" if default is None else str(default))
    number = int(text) if re.fullmatch(r"[0-9]{1,16}", text) else -1
    if not 0 <= number <= _LARGEST:
        raise DataError(f"{place}: {name} {text[:40]!r} must be a whole number")
    return number


def _finite(row: Mapping[str, str], name: str, place: str) -> float:
    number = _number(row.get(name, ""), name, place)
    if not math.isfinite(number):
        raise DataError(f"{place}: {name} {row[name]!r} is not finite")
    return number


def _number(text: str, name: str, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{place}: {name} {text[:40]!r} is not a number") from None
