"""One run as plain values, whether it comes from a folder or from a line of an archive; all of it is checked here.

What stands in files may be damaged, or made by someone else. Text loses everything that a terminal or an editor would
obey, numbers have bounds, and whatever does not fit is a `DataError` for this run alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arb.data.tasks import read_reference
from arb.errors import DataError
from arb.lab.runfolder import Curve, RunFolder

Floats = NDArray[np.float64]
Status = Literal["done", "unfinished", "failed", "missing"]
"""A run that cannot be read counts as failed."""

LARGEST = 1e12
"""No score, return or step is beyond it; sums and squares of such numbers are finite."""


@dataclass(frozen=True)
class Record:
    """What is known of one run, or why nothing is."""

    place: str
    """Its folder, or its archive and name there; for people, never a path to open or to write to."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Every setting under its full name, e.g. `replay.strategy`."""
    status: Status = "missing"
    reason: str = ""
    env: str = ""
    reference: tuple[float, float] | None = None
    """Returns of score 0 and 100; None where scores are plain returns."""
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Processor, commit, and seconds per phase, where the run wrote them down."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By phase, `pretrain` and `online`."""
    metrics: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    """By phase and column; always with the column `step`, which rises."""

    @property
    def task(self) -> str:
        """The task, without the prefix that D4RL's may have."""
        return str(self.config.get("task", "?")).removeprefix("d4rl:")

    @property
    def agent(self) -> str:
        """The algorithm."""
        return str(self.config.get("agent", "?"))

    @property
    def strategy(self) -> str:
        """The replay strategy."""
        return str(self.config.get("replay.strategy", "?"))

    @property
    def seed(self) -> int:
        """The seed; -1 where the configuration has none."""
        seed = self.config.get("seed", -1)
        return seed if isinstance(seed, int) else -1

    @property
    def minutes(self) -> float | None:
        """Wall time of all phases; None where it was not written down."""
        return sum(self.seconds.values()) / 60.0 if self.seconds else None

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall time by phase; a pre-training that several runs share is in all of them."""
        found = self.machine.get("seconds")
        return found if isinstance(found, Mapping) else {}


# ---- what may stand in a file ----------------------------------------------------------------------------------------
def tame(value: Any, most: int = 300) -> str:
    r"""Text on one line, without control characters, lone surrogates or marks that change the direction of writing.

    >>> tame("a\nb \x1b[31mred")
    'a�b �[31mred'
    """
    text = str(value)
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:most])
    return shown + ("…" if len(text) > most else "")


def plain(value: Any, name: str, depth: int = 4) -> Any:
    """A value of a JSON file with its texts tamed; refused where it is too deep, too long or out of range."""
    if isinstance(value, str):
        return tame(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise DataError(f"{name} is out of range")
        return value
    if depth and isinstance(value, list | tuple) and len(value) <= 1000:
        return [plain(part, name, depth - 1) for part in value]
    if depth and isinstance(value, Mapping) and len(value) <= 1000:
        return {tame(key): plain(part, tame(key), depth - 1) for key, part in value.items()}
    raise DataError(f"{name} is too long, too deep, or not a plain value")


def number(value: Any, name: str) -> float:
    """A finite number of reasonable size."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not abs(found) <= LARGEST or isinstance(value, bool):
        raise DataError(f"{name} must be a finite number, not {tame(value, 40)!r}")
    return found


def figures(values: Floats) -> Floats:
    """A column of a replay figure; what is infinite or enormous becomes a gap."""
    return np.where(np.abs(values) <= LARGEST, values, math.nan)


# ---- from values to a record -----------------------------------------------------------------------------------------
def described(place: str, values: Any) -> Record:
    """The part of a record that config.json holds."""
    if not isinstance(values, Mapping) or not isinstance(values.get("config"), Mapping):
        raise DataError("config is missing")
    texts = {name: plain(values.get(name) or {}, name) for name in ("config", "data", "versions", "machine")}
    for name, part in texts.items():
        if not isinstance(part, dict):
            raise DataError(f"{name} must hold names and values")
    machine = texts["machine"]
    if isinstance(machine.get("seconds"), dict):
        machine["seconds"] = {phase: number(value, "seconds") for phase, value in machine["seconds"].items()}
    return Record(
        place,
        texts["config"],
        env=tame(values.get("env") or ""),
        reference=None if values.get("reference") is None else read_reference(values["reference"]),
        data=texts["data"],
        versions={name: tame(version) for name, version in texts["versions"].items()},
        machine=machine,
    )


def from_folder(path: Path) -> Record:
    """A run from its folder, as far as it has come; a `DataError` says what is wrong with it."""
    folder = RunFolder(path)
    said = folder.description()
    values = {name: getattr(said, name) for name in ("config", "env", "reference", "data", "versions")}
    record = described(tame(path, 1000), {**values, "machine": folder.machine()})
    metrics = {
        phase: {name: figures(v) for name, v in columns.items() if name == "step" or name.startswith("replay.")}
        for phase, columns in folder.metrics().items()
    }
    curves = {phase: bounded(curve) for phase, curve in folder.curves().items()}
    status: Status = "done" if folder.done else "failed" if folder.failure else "unfinished"
    reason = "" if folder.done else tame(folder.failure) or _progress(record.config, curves, metrics)
    return judged(replace(record, status=status, reason=reason, curves=curves, metrics=metrics))


def _progress(config: Mapping[str, Any], curves: Mapping[str, Curve], metrics: Mapping[str, Any]) -> str:
    for phase in ("online", "pretrain"):
        steps = metrics.get(phase, {}).get("step", curves[phase].steps if phase in curves else ())
        if len(steps):
            total = config.get(f"schedule.{phase}", "?")
            of = f"{total:,}" if isinstance(total, int) else total
            return f"at {phase} step {int(max(steps)):,} of {of}"
    return "nothing done yet"


def judged(record: Record) -> Record:
    """A run that says it is done and has no online evaluation is not."""
    online = record.curves.get("online")
    if record.status == "done" and (online is None or not any(online.steps > 0)):
        return replace(record, status="failed", reason="says it is done, but has no online evaluation")
    return record


def bounded(curve: Curve) -> Curve:
    """The same curve, refused if a number in it is too large."""
    if not all(np.all(np.abs(values) <= LARGEST) for values in (*curve.scores, *curve.returns)):
        raise DataError("a score or return is too large to be one")
    return curve
