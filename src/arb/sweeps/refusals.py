"""What is refused before the first run starts, because every run of its kind would fail by it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from arb.data.load import locate
from arb.errors import DataError
from arb.runs.config import Config
from arb.runs.problem import Problem
from arb.sweeps.grid import Cell
from arb.tasks import task_of


def refuse_unknown(task: str) -> None:
    """Refuse a source that no machine would know; a D4RL task whose file is not here yet may be elsewhere."""
    if task_of(task) is not None and not Path(task).suffix:
        return
    kind, path = locate(task)
    if kind != "minari" and not Path(path).exists():
        raise DataError(f"there is no file {path}")


def refuse_hopeless(cells: Iterable[Cell]) -> None:
    """Refuse data and environments that cannot be used, each looked at once."""
    for config in {_kind(cell.config): cell.config for cell in cells}.values():
        _refuse_problem(config)


def _kind(config: Config) -> tuple[str, ...]:
    """Configurations alike in this meet the same data or environment."""
    return (config.agent, config.task, config.env) if _is_here(config.task) else (_env(config),)


def _is_here(source: str) -> bool:
    """Whether the command reads the data itself: D4RL's may be on other machines, and so may Minari's."""
    return task_of(source) is None and locate(source)[0] != "minari"


def _env(config: Config) -> str:
    task = task_of(config.task)
    return config.env or (task.env if task else "")


def _refuse_problem(config: Config) -> None:
    from arb.envs import make

    if _is_here(config.task):
        Problem.of(config)
    elif env := _env(config):
        try:
            make(env).close()
        except (ValueError, AttributeError) as problem:  # as in a run; the latter from MuJoCo
            raise DataError(f"{problem} (`arb doctor` checks this machine)") from None
