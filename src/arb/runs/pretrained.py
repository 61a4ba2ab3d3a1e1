"""Pre-training as a cached function: all strategies fork from the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from arb.agents.saving import load as load_agent
from arb.agents.saving import save as save_agent
from arb.runfolder import Table
from arb.runs.config import Config, flat
from arb.runs.problem import Problem, describe_run

_NOT_ITS_BUSINESS = ("replay.", "schedule.online", "schedule.collect", "schedule.refresh")


def deciding_leaves(config: Config) -> dict[str, Any]:
    """The leaves of a configuration that pre-training depends on."""
    return {leaf: value for leaf, value in flat(config).items() if not leaf.startswith(_NOT_ITS_BUSINESS)}


class Pretrained:
    """The place of a pre-trained agent, named by everything that decides it: the strategy does not."""

    def __init__(self, cache: Path, config: Config, problem: Problem):
        described = describe_run(config, problem)
        leaves = deciding_leaves(config)
        del leaves["task"]  # a name; the hash of the data says which it is
        decides = [leaves, described["data"], described["env"], described["shaping"], described["versions"]]
        name = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:24]
        self.folder, self._settings = cache / name, problem.settings

    def find(self, tables: dict[str, Table]) -> Any | None:
        """The agent, with its tables copied, if it has been pre-trained before."""
        if not self.folder.exists():
            return None
        for name, table in tables.items():
            if (self.folder / f"{name}.csv").exists():
                shutil.copyfile(self.folder / f"{name}.csv", table.path)
                tables[name] = Table(table.path)
        return load_agent(self.folder / "agent.safetensors", self._settings)

    def keep(self, agent: Any, tables: dict[str, Table]) -> None:
        """Store a pre-trained agent and the tables so far; if another process was faster, its bytes are the same."""
        if self.folder.exists():
            return
        unfinished = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        save_agent(agent, unfinished / "agent.safetensors")
        for name, table in tables.items():
            if table.path.exists():  # no updates, no metrics
                shutil.copyfile(table.path, unfinished / f"{name}.csv")
        try:
            unfinished.replace(self.folder)
        except OSError:
            shutil.rmtree(unfinished)
