"""Online steps from files: episodes that a robot's own program saves in a folder, late, twice or half-written.

A run copies each new episode into its own folder under the next number, and takes them by these numbers. So whenever it
is killed, it continues with the same episodes in the same order, and the folder they came in may be emptied.
"""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset
from arb.replay.robot import named_episodes, read_recorded

POLL = 0.2
"""Seconds between two looks at a folder in which nothing new was found."""


class Inbox:
    """Collects whole episodes as `arb.envs.rollout.Collector` does, and waits for them.

    Args:
        kept: the folder of the run's own copies.
        seen: an episode, and its name for messages, as the agent sees it; a `DataError` if it does not fit.
        source: where new ones arrive; None takes those that are kept already.
    """

    def __init__(self, kept: Path, seen: Callable[[Dataset, str], Dataset], source: Path | None = None):
        self.kept, self.seen, self.source = kept, seen, source
        self.actor: Any = None
        self.failure: Exception | None = None
        self.metrics: dict[str, float] = {}
        self.block: list[dict[str, Any]] = []
        """What the last call of `collect` took: rows of episodes.csv."""
        self._files = {int(path.stem.partition("-")[0]): path for path in kept.glob("[0-9]*-*.npz")}
        self._taken = 0
        self._before: set[str] = set()  # names of episodes that earlier rounds have had
        self._states: dict[str, tuple[int, int, bool]] = {}  # of source files: size, time, and whether it is settled

    @property
    def names(self) -> set[str]:
        """Of all episodes that this run and the rounds before it have had: see `named_episodes`."""
        return self._before | {path.stem.partition("-")[2] for path in self._files.values()}

    # ---- taking ------------------------------------------------------------------------------------------------------
    def collect(
        self, actor: Any, buffer: ReplayBuffer, steps: int, pause: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Put whole episodes into the buffer until they have so many steps; returns their raw returns."""
        self.actor, self.block = actor, []
        buffer.end_episode()  # which an environment may have left open before this round
        end = buffer.index.num_added + steps
        while buffer.index.num_added < end:
            if self._taken not in self._files:
                if self._files and max(self._files) > self._taken:
                    raise DataError(f"{self.kept} has lost episode {self._taken}: put its file back")
                if not self.receive():
                    pause()
                    time.sleep(POLL)
                continue
            path = self._files[self._taken]
            data = read_recorded(path)
            buffer.load_dataset(self.seen(data, str(path)), origin="online", extras=())
            row = {"episode": self._taken, "file": data.provenance["file"], "version": data.provenance["version"]}
            self.block.append(row | {"steps": len(data), "return": float(data.episode_returns[0])})
            self._taken += 1
        self.metrics = {"policy_version": float(min(row["version"] for row in self.block))}
        return [row["return"] for row in self.block]

    def state(self) -> dict[str, Any]:
        return {"taken": self._taken, "before": sorted(self._before)}

    def restore(self, state: dict[str, Any]) -> None:
        self._taken, self._before = state["taken"], set(state["before"])

    # ---- receiving ---------------------------------------------------------------------------------------------------
    def receive(self) -> int:
        """Keep the new episodes of the source folder, in the order of the files' names; returns how many.

        A file that cannot be used is looked at again when it has changed. One that stays as it is is reported once.
        """
        found = 0
        for path in sorted(self.source.glob("[!.]*.npz")) if self.source else ():
            problem: Exception | None = None
            try:
                now = path.stat().st_size, path.stat().st_mtime_ns
                *before, settled = self._states.get(path.name, (0, 0, False))
                same = tuple(before) == now
                if same and settled:
                    continue
                found += self.keep(read_recorded(path), path.name)
            except FileNotFoundError:  # somebody tidies up
                continue
            except DataError as reason:
                problem = reason
            self._states[path.name] = (*now, problem is None or same)
            if problem and same:
                print(f"{path.name} was not taken: {' '.join(str(problem).split())}", file=sys.stderr, flush=True)
        return found

    def keep(self, data: Dataset, file: str) -> int:
        """Copy those episodes of a file that no round has had; returns how many."""
        new = new_episodes([data], self.names)
        version = data.provenance.get("version")
        about = {
            "id": str(data.provenance.get("id", "")),
            "version": version if isinstance(version, int) and abs(version) < 2**53 else -1,
            "file": file,
        }
        for episode in new.values():
            self.seen(episode, file)
        for name, episode in new.items():
            number = max(self._files, default=-1) + 1
            path = self.kept / f"{number:06d}-{name}.npz"
            replace(episode, provenance=about).save(path)
            self._files[number] = path
        return len(new)


def new_episodes(data: Iterable[Dataset], known: set[str]) -> dict[str, Dataset]:
    """The episodes of datasets whose names are not known, by their names."""
    return {name: one for part in data for name, one in named_episodes(part.usable()) if name not in known}
