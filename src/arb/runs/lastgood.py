"""What a run leaves and says when a loss is no longer finite: the agent before that update, and a way on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from arb.agents.learn import NotFiniteError
from arb.agents.saving import save
from arb.runs.algorithm import Progress

LAST_GOOD = "last-good.safetensors"


def keeping_last_good(chunks: Iterator[Progress], folder: Path, settings: Any) -> Iterator[Progress]:
    """The same chunks; a `NotFiniteError` among them leaves its agent in the folder and says what to change.

    Args:
        chunks: a phase of training.
        folder: of the run.
        settings: the agent's, whose learning rates are named.
    """
    try:
        yield from chunks
    except NotFiniteError as error:
        save(error.agent, folder / LAST_GOOD)
        advice = (
            f"the agent before it is in {folder / LAST_GOOD}. The same command would come to the same place: try a "
            f"lower {_rates(settings)}, or observations and rewards of a smaller scale, in another folder"
        )
        raise NotFiniteError(error.loss, error.update, error.agent, error.place, advice) from None


def _rates(settings: Any) -> str:
    """The learning rates; the rate at which targets follow is not one."""
    names = [f.name for f in fields(settings) if f.name.endswith("_rate") and f.name != "target_rate"]
    return " or ".join(f"settings.{name}" for name in names)
