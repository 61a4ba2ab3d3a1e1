"""Other places a run's figures may go, each off unless asked for; the tables in the folder are always written."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from arb.errors import DataError
from arb.lab.runfolder import RunFolder
from arb.progress import Tell


@contextmanager
def with_loggers(tell: Tell, folder: Path, tensorboard: bool, wandb_project: str | None) -> Iterator[Tell]:
    """A `tell` that also informs the loggers asked for."""
    with ExitStack() as opened:
        tells = [tell]
        if tensorboard:
            tells.append(opened.enter_context(_tensorboard(folder)))
        if wandb_project:
            tells.append(opened.enter_context(_wandb(folder, wandb_project)))

        def tell_all(phase: str, step: int, total: int, figures: dict[str, float]) -> None:
            for each in tells:
                each(phase, step, total, figures)

        yield tell_all


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Tell]:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise DataError("--tensorboard needs tensorboardX: pip install 'arb-rl[tensorboard]'") from None
    with SummaryWriter(str(RunFolder(folder).tensorboard)) as writer:

        def tell(phase: str, step: int, _total: int, figures: dict[str, float]) -> None:
            for name, value in figures.items():
                writer.add_scalar(f"{phase}/{name}", value, step)

        yield tell


@contextmanager
def _wandb(folder: Path, project: str) -> Iterator[Tell]:
    try:
        import wandb
    except ImportError:
        raise DataError("--wandb needs wandb: pip install 'arb-rl[wandb]'") from None
    logged: Any = wandb.init(project=project, name=folder.name, dir=str(folder.parent), resume="allow", id=folder.name)

    def tell(phase: str, step: int, _total: int, figures: dict[str, float]) -> None:
        if not logged.config.keys():
            logged.config.update(dict(RunFolder(folder).description().config))
        logged.log({f"{phase}/{name}": value for name, value in figures.items()} | {f"{phase}/step": step})

    try:
        yield tell
    finally:
        logged.finish()
