"""What is in a dataset, in numbers."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from arb.data.columns import Data, borders, episode_returns, fingerprint
from arb.data.tasks import Reference, env_reference, normalised, task_of
from arb.replay.dataset import leaves

BINS, WIDTH = 12, 40
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def reference_of(source: str, data: Data) -> Reference | None:
    """The score reference of a dataset: of its task, else of the environment its file names."""
    task = task_of(source)
    return task.reference if task else env_reference(str(data.attributes.get("env", "")))


def describe(data: Data, reference: Reference | None) -> Iterator[str]:
    """A table of lines."""
    columns = data.columns
    first, stop = borders(columns)
    lengths, returns = stop - first, episode_returns(columns)
    ended = columns["terminals"][stop - 1]
    shapes = " ".join(f"{name}{list(part.shape[1:])}" for name, part in leaves(columns["observations"]).items())
    yield f"{data.source}"
    for name, value in data.attributes.items():
        yield f"  {name:<14} {value}"
    yield f"  {'rows':<14} {len(data):,} in {len(first):,} episodes: {ended.sum():,} ended, {(~ended).sum():,} cut off"
    yield f"  {'observations':<14} {shapes}, actions {list(columns['actions'].shape[1:])}"
    yield f"  {'longest':<14} {lengths.max():,} steps (mean {lengths.mean():.1f}, shortest {lengths.min():,})"
    yield f"  {'fingerprint':<14} {fingerprint(columns)[:16]}"
    for note in data.notes:
        yield f"  {'repaired':<14} {note}"
    yield ""
    yield f"  {'episodes':<10}" + "".join(
        f"{label:>10}" for label in ("worst", "10 %", "25 %", "median", "75 %", "90 %", "best", "mean")
    )
    for label, values in _measures(returns, lengths, reference):
        numbers = (*np.quantile(values, QUANTILES), values.mean())
        yield f"  {label:<10}" + "".join(f"{number:>10.1f}" for number in numbers)
    yield ""
    yield from histogram(returns)


def _measures(
    returns: NDArray[np.float64], lengths: NDArray[np.intp], reference: Reference | None
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    yield "return", returns
    if reference:
        yield "score", normalised(returns, reference)
    yield "length", lengths.astype(np.float64)


def histogram(returns: NDArray[np.float64]) -> Iterator[str]:
    """Episodes by return, one line per bin."""
    counts, edges = np.histogram(returns, BINS if np.ptp(returns) > 0 else 1)
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        yield f"  {low:>10.1f} .. {high:<10.1f} {'█' * round(WIDTH * count / counts.max()):<{WIDTH}} {count:,}"
