"""Minari's datasets, read only: those that are installed on this machine.

Minari's versions of D4RL's tasks are other recordings on other physics (Minari issues 296, 304, 318): never compare
scores on them with those on D4RL's files.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arb.errors import DataError
from arb.replay.dataset import single_precision


def read_minari(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns and attributes of an installed dataset, episode by episode, with every true next observation."""
    try:
        import minari
    except ImportError:
        raise DataError(f"minari:{name} needs Minari: pip install 'arb-rl[minari]'") from None
    if name not in minari.list_local_datasets():
        known = ", ".join(sorted(minari.list_local_datasets())) or "none"
        raise DataError(f"minari:{name} is not installed (installed: {known}); get it with: minari download {name}")
    dataset = minari.load_dataset(name)
    parts: dict[str, list[Any]] = {key: [] for key in KEYS}
    for number, episode in enumerate(dataset.iterate_episodes()):
        row = (
            _cut(episode.observations, slice(0, -1)),
            episode.actions,
            episode.rewards,
            episode.terminations,
            episode.truncations,
            _cut(episode.observations, slice(1, None)),
            np.full(len(episode.rewards), number, np.int32),
        )
        for key, part in zip(KEYS, row, strict=True):
            parts[key].append(part)
    if not parts["rewards"]:
        raise DataError(f"minari:{name} has no episodes")
    spec = dataset.spec.env_spec
    return {key: _join(part) for key, part in parts.items()}, {"env": spec.id if spec else "", "minari": name}


KEYS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations", "episode_ids")


def _cut(value: Any, rows: slice) -> Any:
    if isinstance(value, Mapping):
        return {key: _cut(part, rows) for key, part in value.items()}
    if isinstance(value, tuple):
        raise DataError("observations that are tuples are not supported: flatten them when recording")
    return single_precision(np.asarray(value)[rows])


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {key: _join([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)
