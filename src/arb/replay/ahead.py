"""A refresh in two parts: rows that are there are scored while the environment steps, rows that come are scored after.

Between two blocks of updates the policy does not change, so this is exact. It hides a refresh behind the environment
where there is a second core or a device to do it.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from arb.replay.scoring import CHUNK, RowScore, score_all, score_some

if TYPE_CHECKING:
    from arb.replay.rows import Rows


class RefreshAhead:
    """A refresh that has begun. The policy must stay as it is until `finish`; leaving the block waits for the thread.

    Args:
        rows: whose weights are made anew.
        score: as for `Rows.refresh`; called from another thread if `background`.
        chunk: rows per call of the score.
        background: score on another thread from now on; else all of it is done by `finish`, with the same result.
    """

    def __init__(self, rows: "Rows", score: RowScore, chunk: int, background: bool):
        self._rows, self._score, self._chunk = rows, score, min(chunk, rows.ledger.capacity)
        with rows.lock:
            self._head, self._size = rows.ledger.head, rows.ledger.size
        self._thread = ThreadPoolExecutor(1, "arb-refresh")
        self._scores: Future[NDArray[np.float32]] | None = None
        if background and rows.needs_scores:
            self._scores = self._thread.submit(score_all, score, self._size, self._chunk)

    def finish(self) -> None:
        """Score the rows added since, and weigh all of them anew."""
        rows = self._rows
        if not rows.needs_scores:
            rows.refresh(self._score)
            return
        known = self._scores.result() if self._scores else score_all(self._score, self._size, self._chunk)
        with rows.lock:
            ledger = rows.ledger
            new = np.arange(max(self._head, ledger.oldest), ledger.head) % ledger.capacity
            scores = np.empty(ledger.size, np.float32)
            scores[: self._size] = known
            scores[new] = score_some(self._score, new, min(self._chunk, CHUNK))
            rows.update_weights(scores)

    def wait(self) -> None:
        """Until nothing is done on another thread."""
        self._thread.shutdown()

    def __enter__(self) -> "RefreshAhead":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
