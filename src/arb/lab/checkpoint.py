"""Agents on disk between two pieces of work: checkpoints of a run, and pre-trainings that runs share.

Both are folders that appear whole, with the SHA-256 sum of every file, and are checked before they are trusted.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from arb.agents.learn import load as load_agent
from arb.agents.learn import save as save_agent
from arb.errors import DataError
from arb.files import GrowingTable, fsync, read_json, sha256_of
from arb.lab.algorithms import agent_class
from arb.lab.config import deciding_leaves
from arb.lab.machine import Logbook
from arb.lab.runfolder import RunFolder
from arb.lab.setup import Problem, describe_run

AGENT, BUFFER, STATE, _SUMS = "agent.safetensors", "buffer.npz", "state.json", "sums.json"
"""The files of a checkpoint; a pre-training has the agent and the sums, and a run's tables beside them."""
SHARED = ".pretrained"
"""The folder of pre-trainings, beside those of the runs that share them."""


# ---- folders that are whole ------------------------------------------------------------------------------------------
def write_whole(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write files into a new folder; it has its name only once all of it is on disk."""
    unfinished = folder.with_name(f"unfinished.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
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


def intact(folder: Path) -> bool:
    """Whether the files of such a folder are as they were written."""
    try:
        sums = read_json(folder / _SUMS)
        return AGENT in sums and all(sha256_of(folder / name) == value for name, value in sums.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


# ---- checkpoints -----------------------------------------------------------------------------------------------------
def write_checkpoint(folder: Path, number: int, fill: Callable[[Path], None], keep: int = 2) -> None:
    """Write a numbered checkpoint, and remove all but the last `keep`, and what a killed process left."""
    write_whole(folder / f"{number:012d}", fill)
    for old in [*_numbered(folder)[:-keep], *folder.glob("unfinished*")]:
        shutil.rmtree(old)


def checkpoints(folder: Path) -> Iterator[Path]:
    """The checkpoints whose files are as they were written, newest first; damaged ones are passed over."""
    return (path for path in reversed(_numbered(folder)) if intact(path))


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir()) if folder.exists() else []


# ---- pre-trainings ---------------------------------------------------------------------------------------------------
class Pretrained:
    """The place of a pre-trained agent, named by everything that decides it: the strategy does not.

    So all strategies start from the same bytes.
    """

    def __init__(self, cache: Path, problem: Problem):
        described = describe_run(problem)
        leaves = deciding_leaves(problem.config)
        del leaves["task"]  # a name; the hash of the data says which it is
        decides = [leaves, described["data"], described["env"], described["shaping"], described["versions"]]
        name = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:24]
        self.folder, self._problem = cache / name, problem

    @property
    def there(self) -> bool:
        """Whether it was done before, and its files are as they were written; a damaged one is done again."""
        return intact(self.folder)

    def find(self, tables: dict[str, GrowingTable], columns: Sequence[str], log: Logbook) -> Any | None:
        """The agent, with its tables tree_copy, if it has been pre-trained before.

        Args:
            tables: of the run, to be filled.
            columns: what this run has in its metrics, perhaps more than whoever pre-trained.
            log: of the run; the seconds of pre-training are counted in it.
        """
        if not self.there:
            return None
        agent = load_agent(self.folder / AGENT, agent_class(self._problem.config.agent), self._problem.settings)
        for name, table in tables.items():
            rows = [row for _, row in GrowingTable(self.folder / f"{name}.csv").rows()]
            more = {column: "nan" for column in columns if name == "metrics" and column not in (rows or [{}])[0]}
            if rows:  # no updates, no metrics
                table.add(*({**row, **more} for row in rows))
        log.clock.seconds |= RunFolder(self.folder).machine().get("parts") or {}
        return agent

    def keep(self, agent: Any, tables: dict[str, GrowingTable], log: Logbook) -> None:
        """Store a pre-trained agent and the tables so far; if another process was faster, its bytes are the same."""
        if self.there:
            return
        _refuse_doubled(tables)

        def fill(folder: Path) -> None:
            save_agent(agent, folder / AGENT)
            for table in tables.values():
                if table.path.exists():  # no updates, no metrics
                    shutil.copyfile(table.path, folder / table.path.name)
            log.write()
            shutil.copyfile(log.path, folder / log.path.name)

        try:
            write_whole(self.folder, fill)
        except OSError:
            if not self.there:
                raise


def _refuse_doubled(tables: dict[str, GrowingTable]) -> None:
    """Nothing that two processes wrote into one folder may be handed on."""
    folder = RunFolder(next(iter(tables.values())).path.parent)
    curves, _ = folder.curves(), folder.metrics()
    if curves.keys() != {"pretrain"}:
        raise DataError(f"{folder.path} does not hold one pre-training alone: delete the folder and run again")
