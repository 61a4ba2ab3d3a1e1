"""Rounds: a finished run goes on with episodes that were recorded after it, in a folder of its own.

The folder is made like that of a run that was stopped where the one before it ended. What follows is an ordinary run.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from arb.data.formats import read_dataset
from arb.errors import DataError
from arb.files import GrowingTable, read_json, sha256_of, write_text
from arb.lab.config import OPTIONS, Config, flat, from_flat
from arb.lab.folder import AGENT, BUFFER, LENGTH, STATE, RunFolder
from arb.lab.inbox import Inbox, new_episodes
from arb.lab.setup import Normalization, Setup
from arb.lab.strategies import strategy_row
from arb.policies.export import POLICIES
from arb.replay.dataset import Dataset

_FIXED = ("preprocessing.", "evaluation.by", "evaluation.held_out")
"""Settings that a round has from the run before it: its agent and its buffer were made with them."""


@dataclass(frozen=True)
class Round:
    """The round after a run: what it continues, and the new episodes."""

    parent: RunFolder
    checkpoint: Path
    state: Mapping[str, Any]
    """That of the checkpoint."""
    before: frozenset[str]
    """Names of the episodes that the rounds before have had."""
    files: tuple[Mapping[str, Any], ...]
    """What round.json says of every file."""
    data: tuple[Dataset, ...]
    """The new episodes of every file."""

    @classmethod
    def after(cls, run: Path, files: Sequence[str | Path] = ()) -> Self:
        """The round after a finished run, with the episodes of these files that are new."""
        parent = RunFolder(run)
        parent.description()
        if not parent.done:
            raise DataError(f"{run} is not finished: run its own command again before a round starts from it")
        checkpoint = next(parent.intact_checkpoints(), None)
        state = {} if checkpoint is None else read_json(checkpoint / STATE)
        if checkpoint is None or state["phase"] != "online":
            raise DataError(f"{run} keeps no checkpoint of its last step, so that nothing can continue from it")
        had = Inbox(parent.episodes, lambda data, _: data)
        if "before" in (state["collector"] or {}):
            had.restore(state["collector"])
        before, known, told, parts = had.names, had.names, [], []
        for file in map(str, files):
            data = read_dataset(file)
            new = new_episodes([data], known)
            if not new:
                raise DataError(f"{file} has no new episodes: this round or one before has had all of them already")
            known = known | new.keys()
            episodes = Dataset.concatenate([*new.values()])
            rows, returns = len(episodes), episodes.episode_returns.tolist()
            place = Path(file.partition("?")[0])
            about = {"file": file, "sha256": sha256_of(place) if place.is_file() else data.fingerprint}
            told.append(about | {"episodes": len(new), "steps": rows, "returns": returns})
            parts.append(episodes)
        return cls(parent, checkpoint, state, frozenset(before), tuple(told), tuple(parts))

    def config(self, given: Mapping[str, Any], overrides: Mapping[str, Any]) -> Config:
        """The configuration of the run before, but for some settings.

        `given` are options of `arb run`, by their names. What is somebody's own code has to be among them, because a
        folder may not load code.
        """
        held, path = dict(self.parent.description().config), self.parent.path
        for key, option in OPTIONS.items():
            said, asked = str(held.get(key, "")), str(given.get(option, ""))
            if key == "env" and asked:
                held[key] = asked
            elif asked and asked not in (said, said.partition("?")[0]):
                raise DataError(f"{path} has {option} {said}: a round cannot change it to {asked}")
            elif key == "env" and ":" in said and held.get("evaluation.by") == "data":
                held[key] = ""
            elif ":" in said and not asked and key != "task":
                raise DataError(f"{path} has {option} {said}, and a folder may not load code: add --{option} {said}")
        steps = sum(len(part) for part in self.data)
        length = {LENGTH: self.state["step"] + steps} if steps else {}
        try:
            old = flat(from_flat(held))
            config = from_flat({**held, **length, **overrides, "source": "files"})
        except (KeyError, TypeError, AttributeError) as problem:
            raise DataError(f"{self.parent.config_file} was written by another version of arb ({problem})") from None
        new = flat(config)
        for key in new:
            if key.startswith(_FIXED) and old[key] != new[key]:
                raise DataError(f"{key} is {old[key]!r} in {path}, and a round cannot change it")
        if new[LENGTH] <= self.state["step"]:
            has = f"{path} has {self.state['step']:,} online steps"
            raise DataError(f"{has}: give {LENGTH}, the number in all rounds together, which must be larger")
        if strategy_row(config.replay.strategy).whole_length:
            raise DataError(f"{config.replay.strategy} depends on the number of all steps, so it has no rounds")
        return config

    def setup(self, config: Config) -> Setup:
        """What the configuration describes, with the preprocessing and the actions of the run before."""
        said = read_json(self.parent.config_file)
        try:
            Normalization.from_dict(said["normalization"])
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.parent.config_file} is damaged: it has no normalization") from None
        return Setup.of(config, fitted=said)

    @property
    def default_folder(self) -> Path:
        """Beside the run before.

        >>> Round(RunFolder("runs/arm-round-2"), Path(), {}, frozenset(), (), ()).default_folder
        PosixPath('runs/arm-round-3')
        """
        name, number = self.parent.path.name, 0
        if match := re.fullmatch(r"(.+)-round-(\d{1,6})", name):
            name, number = match[1], int(match[2])
        return self.parent.path.parent / f"{name}-round-{number + 1}"

    def check(self, place: RunFolder) -> None:
        """Refuse a folder that holds another round, or a run."""
        if place.path.resolve() == self.parent.path.resolve():
            raise DataError(f"a round needs a folder of its own: choose another than {place.path} with --out")
        if place.round_file.exists() or place.config_file.exists():
            said = read_json(place.round_file) if place.round_file.exists() else {}
            if not isinstance(said, dict) or said.get("start") != self._about()["start"]:
                raise DataError(f"{place.path} holds a run, or a round that began otherwise: choose another with --out")
            if [one["sha256"] for one in said["files"]] != [one["sha256"] for one in self.files]:
                names = ", ".join(Path(one["file"]).name for one in said["files"]) or "none"
                raise DataError(f"{place.path} holds a round with other files ({names}): choose another with --out")

    def begin(self, place: RunFolder, setup: Setup, columns: Sequence[str]) -> None:
        """Make the folder, unless that was done; killed in the middle, it is made again.

        The metrics of this round may have more `columns` than those before.
        """
        if any(place.intact_checkpoints()):
            return
        if setup.data["sha256"] != self.parent.description().data.get("sha256"):
            raise DataError(f"the data of {setup.config.task} has changed since {self.parent.path}: put it back")
        for folder in (place.episodes, place.policies):
            shutil.rmtree(folder, ignore_errors=True)
        inbox = Inbox(place.episodes, setup.recorded)
        for about, data in zip(self.files, self.data, strict=True):
            inbox.keep(data, Path(about["file"]).name)
        sizes = {}
        for path in (place.metrics_file, place.eval_file, place.episodes_file):
            table = GrowingTable(path)
            table.truncate(0)
            rows = [row for _, row in GrowingTable(self.parent.path / path.name).rows()]
            more = columns if path == place.metrics_file else ()
            if rows:
                table.add(*({**row, **{name: row.get(name, "nan") for name in more}} for row in rows))
            sizes[path.stem] = table.size
        shutil.copytree(self.parent.policies, place.policies)
        write_text(place.round_file, json.dumps(self._about(), indent=1))
        collector = {"taken": 0, "before": sorted(self.before)}
        state = {**self.state, "tables": sizes, "returns": [], "length": None, "collector": collector}

        def fill(folder: Path) -> None:
            for name in (AGENT, BUFFER, POLICIES["best"]):
                if (self.checkpoint / name).exists():
                    shutil.copyfile(self.checkpoint / name, folder / name)
            (folder / STATE).write_text(json.dumps(state))

        place.write_checkpoint(int(self.checkpoint.name), fill)

    def _about(self) -> dict[str, Any]:
        start = {"step": self.state["step"], "checkpoint": sha256_of(self.checkpoint / AGENT)}
        return {"parent": self.parent.path.name, "start": start, "files": list(self.files)}
