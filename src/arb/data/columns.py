"""Names that the lab still uses; this module goes when it takes a `Dataset`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arb.data.episodes import make_dataset
from arb.replay.dataset import Dataset as _Dataset

Dataset = dict[str, Any]


class Data(NamedTuple):
    """Columns and attributes of a dataset."""

    columns: Dataset
    attributes: Mapping[str, Any]


def finish(raw: Mapping[str, Any], source: str, attributes: Mapping[str, Any] | None = None) -> Data:
    return Data(make_dataset(raw, source).to_dict(), dict(attributes or {}))


def episode_returns(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    return _Dataset.from_dict(columns).episode_returns


def fingerprint(columns: Mapping[str, Any]) -> str:
    return _Dataset.from_dict(columns).fingerprint
