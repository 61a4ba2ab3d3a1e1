"""A dataset as trajectories: where each ends, what it returns, what of it can be used, which are best.

Where one trajectory ends and the next begins has two rules, because the paper's text and its code differ on data that
passes through a goal without stopping:

* `"resets"` (default): a trajectory ends where the environment was reset: at a time limit, at a jump in the
  observations (seen only if next observations are known), or at a terminal step, unless the data shows that it went
  on there. D4RL's AntMaze flags every step near the goal as terminal and walks on; such a trajectory stays whole.
* `"terminals"`: the rule of the paper's release, in which any terminal flag ends a trajectory as well; AntMaze then
  has many trajectories of a single step.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError, refuse_unknown_word
from arb.replay.dataset import Array, Leaves, Recorded, check_dataset

Rule = Literal["resets", "terminals"]
Filter = Callable[[Mapping[str, Any]], dict[str, Any]]

JUMP = 1e-6
"""Observations further apart than this (Euclidean distance) are not the same; the value of the paper's release."""
LONG = 10_000
"""Rows beyond which a dataset that seems to be a single trajectory has probably lost its ends."""

_CHUNK = 1 << 16


# ---- where trajectories end ------------------------------------------------------------------------------------------
def differs(a: Leaves, b: Leaves, tolerance: float = JUMP) -> NDArray[np.bool_]:
    """Per row, whether two observations differ: floats by Euclidean distance, anything else at all."""
    apart = [_leaf_differs(a[key], b[key], tolerance) for key in a]
    return apart[0] if len(apart) == 1 else np.asarray(np.logical_or.reduce(apart))


def episode_ends(data: Recorded, rule: Rule = "resets") -> NDArray[np.bool_]:
    """Per row, whether it is the last of its trajectory."""
    refuse_unknown_word("borders", rule, ("resets", "terminals"))
    ends = np.zeros(len(data), bool)
    ends[-1] = True
    if data.episode is not None:
        ends[:-1] |= data.episode[1:] != data.episode[:-1]
    else:
        if data.truncated is not None:
            ends |= data.truncated
        ends |= jumps(data)
        ends |= data.terminated & ~_goes_on(data, ends)
    return ends | data.terminated if rule == "terminals" else ends


def jumps(data: Recorded) -> NDArray[np.bool_]:
    """Per row, whether the next row does not start where this one led to; never, where that is unknown."""
    jump = np.zeros(len(data), bool)
    if data.next_obs is not None:
        for start in range(0, len(data) - 1, _CHUNK):
            stop = min(start + _CHUNK, len(data) - 1)
            led_to = {key: column[start:stop] for key, column in data.next_obs.items()}
            begins = {key: column[start + 1 : stop + 1] for key, column in data.obs.items()}
            jump[start:stop] = differs(led_to, begins)
    return jump


def _goes_on(data: Recorded, known_ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Per terminal row, whether the data shows that no reset followed.

    A file as recorded (it has `timeouts`) settles it by its next observations: if they are the next row's, the
    episode went on. Without them, or after D4RL's `qlearning_dataset` has put the following row there in any case,
    look at the step to the next row: if no coordinate moves further than it does in ordinary steps, it was one.
    That test is trusted only if it recognises the resets that are known from elsewhere.

    On the suite's six AntMaze sets without their simulator's state (1.2 million rows, 1,286 episodes) it leaves 23 of
    the 137,928 false ends that terminal flags alone would make, and misses none (`python benchmarks/borders.py`).
    """
    terminal = np.flatnonzero(data.terminated[:-1])
    verdict = np.zeros(len(data), bool)
    if len(terminal) == 0:
        return verdict
    if data.next_obs is not None and data.truncated is not None:
        verdict[terminal] = ~known_ends[terminal]
        return verdict
    known = np.flatnonzero(known_ends[:-1])
    ordinary = np.flatnonzero(~known_ends[:-1] & ~data.terminated[:-1])
    floats = [column for column in data.obs.values() if column.dtype.kind == "f"]
    if len(known) == 0 or len(ordinary) == 0 or len(floats) < len(data.obs):
        return verdict
    usual = [_step(column, ordinary).max(0) for column in floats]

    def looks_ordinary(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        calm = [(_step(column, rows) <= limit).all(1) for column, limit in zip(floats, usual, strict=True)]
        return np.asarray(np.logical_and.reduce(calm))

    if looks_ordinary(known).mean() < 0.1:
        verdict[terminal] = looks_ordinary(terminal)
    return verdict


def _step(column: Array, rows: NDArray[np.intp]) -> Array:
    return np.asarray(np.abs(column[rows + 1] - column[rows]).reshape(len(rows), -1))


def _leaf_differs(a: Array, b: Array, tolerance: float) -> NDArray[np.bool_]:
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    if a.dtype.kind != "f":
        return np.asarray((a != b).any(1))
    if np.count_nonzero(a != b) == 0:  # the usual case, and quicker than distances
        return np.zeros(len(a), bool)
    with np.errstate(over="ignore"):
        gap = a - b
        return np.asarray(np.einsum("ij,ij->i", gap, gap) > tolerance**2)


# ---- what they return ------------------------------------------------------------------------------------------------
def return_to_go(
    reward: Array, stop: NDArray[np.bool_], gamma: float, *, failure_reward: float | None = None
) -> NDArray[np.float64]:
    """Discounted sum of rewards from each step to the end of its episode.

    `stop[i]` says that nothing after row i counts for it: the task ended there, or the episode was cut off. A cut-off
    episode is not bootstrapped: its return is what was seen.

    `failure_reward` is for tasks with sparse rewards, where an episode that was cut off would look better than it is
    because it was short: an episode in which *every* reward has that value is taken to fail forever, so its return is
    failure_reward / (1 - gamma) (the rule of Cal-QL's authors).

    The recursion G[i] = r[i] + gamma * G[i + 1] is composed with itself over distances 1, 2, 4, ..., so a million rows
    cost about ten passes instead of a loop.

    >>> return_to_go(np.array([1.0, 1.0, 1.0, 5.0]), np.array([False, False, True, True]), gamma=0.5)
    array([1.75, 1.5 , 1.  , 5.  ])
    """
    total = np.asarray(reward, np.float64).copy()
    factor = np.where(stop, 0.0, gamma)
    factor[-1:] = 0.0
    distance = 1
    while distance < len(total) and factor.any():
        total[:-distance] += factor[:-distance] * total[distance:]
        factor[:-distance] *= factor[distance:]
        distance *= 2
    if failure_reward is not None:
        if gamma >= 1.0:
            raise DataError("failure_reward needs gamma < 1: failing forever has no finite return otherwise")
        episode = np.concatenate([[0], np.cumsum(stop[:-1])]) if len(total) else np.zeros(0, np.int64)
        succeeded = np.bincount(episode, weights=np.asarray(reward) != failure_reward) > 0
        total[~succeeded[episode]] = failure_reward / (1.0 - gamma)
    return total


# ---- what of them can be used ----------------------------------------------------------------------------------------
class Trajectories(NamedTuple):
    """Whole trajectories, row after row, among rows that are not used."""

    obs: Leaves
    columns: dict[str, Array]
    """action, reward, terminated and return_to_go of every row."""
    kept: NDArray[np.bool_] | None
    """The rows that are used; None if all are."""
    lengths: NDArray[np.int64]
    final: Leaves
    """Per trajectory, the observation its last step led to."""
    dropped: int
    """Last steps of cut-off trajectories that cannot be bootstrapped, as the data does not hold where they led."""

    def blocks(self, column: Array) -> Iterator[Array]:
        """The used rows of a column, block by block: a copy of all of them would double the memory of a large one."""
        if self.kept is None:
            yield column
            return
        for start in range(0, len(column), _CHUNK):
            yield column[start : start + _CHUNK][self.kept[start : start + _CHUNK]]

    def cut(self) -> Self:
        """The same without the rows that are not used."""
        if self.kept is None:
            return self
        obs, columns = ({key: c[self.kept] for key, c in part.items()} for part in (self.obs, self.columns))
        return self._replace(obs=obs, columns=columns, kept=None)

    @property
    def next_obs(self) -> Leaves:
        """Where every row of `cut()` led to: the next row's observation, or the final one of its trajectory."""
        last = np.cumsum(self.lengths) - 1
        led_to = {}
        for key, column in self.obs.items():
            led_to[key] = np.roll(column, -1, axis=0)
            led_to[key][last] = self.final[key]
        return led_to


def usable_trajectories(data: Recorded, rule: Rule, gamma: float, failure_reward: float | None) -> Trajectories:
    """Cut a dataset into trajectories and drop the steps that no algorithm could learn from.

    Without next observations, the last step of a cut-off trajectory leads nowhere; it is dropped, as D4RL's own loader
    does. Its reward still counts in the returns of the steps before, and its observation is where they led.
    """
    ends = episode_ends(data, rule)
    if len(data) > LONG and data.episode is None and np.count_nonzero(ends) == 1:
        warnings.warn(
            f"the dataset's {len(data)} rows are taken for a single trajectory, as nothing in it says where episodes "
            "end: add 'timeouts', 'next_observations' or 'episode_ids' (if these are all equal, they confirm it)",
            stacklevel=3,
        )
    returns = return_to_go(data.reward, ends | data.terminated, gamma, failure_reward=failure_reward)
    dropped = np.zeros(len(data), bool) if data.next_obs is not None else ends & ~data.terminated
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1) - dropped[last]
    last = last[lengths > 0]
    led_to = data.obs if data.next_obs is None else data.next_obs
    return Trajectories(
        obs=data.obs,
        columns={"action": data.action, "reward": data.reward, "terminated": data.terminated, "return_to_go": returns},
        kept=~dropped if dropped.any() else None,
        lengths=lengths[lengths > 0],
        final={key: column[last] for key, column in led_to.items()},
        dropped=int(dropped.sum()),
    )


# ---- which are best --------------------------------------------------------------------------------------------------
def keep_best(transitions: int = 50_000, *, borders: Rule = "resets") -> Filter:
    """A filter that keeps the whole trajectories with the highest return until they hold more than `transitions` rows.

    The return is the plain sum of the rewards as they are in the dataset, so filter before you scale or shift them.
    Every column with one row per step comes along, and `episode_ids` is added, so that trajectories which were apart
    in the file stay apart.

    >>> best = keep_best(1)({"observations": np.zeros((3, 1)), "actions": np.zeros((3, 1)),
    ...                      "rewards": np.array([1.0, 1.0, 5.0]), "terminals": np.array([0, 1, 1])})
    >>> best["rewards"], best["episode_ids"]
    (array([1., 1., 5.]), array([0, 0, 1]))
    """
    if transitions < 1:
        raise DataError(f"keep_best needs at least 1 transition, got {transitions}")

    def select(dataset: Mapping[str, Any]) -> dict[str, Any]:
        data = check_dataset(dataset)
        ends = episode_ends(data, borders)
        episode = np.cumsum(ends, dtype=np.int64) - ends
        chosen = _best(np.bincount(episode, weights=data.reward).astype(np.float64), np.bincount(episode), transitions)
        rows = np.flatnonzero(np.isin(episode, chosen))
        kept = {key: _rows(column, rows, len(data)) for key, column in dataset.items()}
        return {**kept, "episode_ids": episode[rows]}

    return select


def _best(total: NDArray[np.float64], length: NDArray[np.int64], transitions: int) -> NDArray[np.int64]:
    """Trajectories in descending return, up to the one with which the count of rows exceeds `transitions`."""
    order = np.argsort(-total, kind="stable")
    before = np.cumsum(length[order]) - length[order]
    return order[before <= transitions]


def _rows(column: Any, rows: NDArray[np.int64], n: int) -> Any:
    if isinstance(column, Mapping):
        return {key: _rows(values, rows, n) for key, values in column.items()}
    column = np.asarray(column)
    return column[rows] if column.ndim and len(column) == n else column
