"""New steps on their way into a buffer: whether each goes on from the last one, and what an end of an episode brings.

Online, an episode ends in one of three ways: by a flag; by a jump, a step that does not start where the last one of its
environment led; and not at all, where a step is none because Gymnasium's next-step autoreset made it. They are told
apart here and nowhere else.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arb.errors import DataError, check_bounds
from arb.replay.dataset import Array, Leaves, differs, return_to_go, single_precision
from arb.replay.index import State
from arb.replay.rows import Rows
from arb.replay.steps import Steps, refuse_fused
from arb.replay.storage import Storage

_FLAGS = (bool, np.bool_)
_NUMBER = (float, np.floating)
_FLOAT, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_LARGE = float(np.finfo(np.float32).max)


class Intake:
    """Puts checked steps into rows and their columns.

    Args:
        rows: the rows.
        storage: their columns.
        gamma: discount of the returns that an episode gets when it ends.
        failure_reward: see `arb.replay.dataset.return_to_go`.
        action_bounds: (low, high), or None.
        discontinuity: distance of two observations from which on they are not the same; None for any.
        autoreset: the mode of the environments, None if not known.
    """

    def __init__(
        self,
        rows: Rows,
        storage: Storage,
        *,
        gamma: float,
        failure_reward: float | None,
        action_bounds: tuple[ArrayLike, ArrayLike] | None,
        discontinuity: float | None,
        autoreset: str | None,
    ):
        self.rows, self.storage, self.gamma, self.failure_reward = rows, storage, gamma, failure_reward
        self.bounds = None if action_bounds is None else tuple(single_precision(np.asarray(b)) for b in action_bounds)
        low, high = self.bounds or (np.float32(-np.inf), np.float32(np.inf))
        self.inner = float(np.max(low)), float(np.min(high))
        """A range that is allowed for every number of an action."""
        self.discontinuity, self.autoreset = discontinuity, autoreset
        self.ended: dict[int, Leaves | None] = {}
        """Where each environment ended its last episode, until it takes a step; None if that step did not move.
        Empty where resets are disabled, as nothing has to be told apart there."""
        self.offline = 0
        """Offline rows that were loaded."""
        self._warned: set[str] = set()

    def check_bounds(self, name: str, action: Array) -> None:
        """Refuse actions outside the bounds."""
        if self.bounds is not None:
            check_bounds(name, action, *self.bounds)

    def add_one(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any, env: int
    ) -> bool:
        """Take a step that is like those before it: finite float vectors that fit, going on from the last one.

        This is `add` for the usual case. It refuses nothing: whatever is in any way unusual is left alone, False is
        returned, and the caller goes through `check_steps` and `add`, which say what is wrong with it and take several
        times as long.
        """
        columns = self.storage.vectors
        if columns is None or type(terminated) not in _FLAGS or type(truncated) not in _FLAGS or env in self.ended:
            return False
        before, actions, final = columns
        here, done, after = _like(obs, before), _like(action, actions), _like(next_obs, before)
        if here is None or done is None or after is None or not isinstance(reward, _NUMBER):
            return False
        if not (-_LARGE < reward < _LARGE and _finite(after) and self._allows(done)):
            return False
        with self.rows.lock:
            going = self.rows.ledger.open(env)
            if going is None or self.discontinuity is None:
                if not _finite(here):
                    return False
            elif here.tobytes() != final[going.slot].tobytes():  # what is kept is finite
                return False
            row, slot = self.rows.append_one(env)
            before[row], actions[row] = here, done
            held = self.storage.columns
            held["reward"][row], held["terminated"][row], held["return_to_go"][row] = reward, terminated, -math.inf
            if slot < len(final):
                final[slot] = after
            else:
                self.storage.write_final([slot], {"": after[None]})
            if terminated or truncated:
                self._end(env, slot, {"": here[None]})
            if self.offline:
                self._warn_if_offline_rows_go()
        return True

    def add_many(self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any) -> bool:
        """The same for one step each of the environments 0, 1, ..., if all go on from their last one."""
        columns = self.storage.vectors
        if columns is None or self.ended:
            return False
        before, actions, final = columns
        here, done, after = _like(obs, before, 1), _like(action, actions, 1), _like(next_obs, before, 1)
        earned = _like(reward, self.storage.columns["reward"], 1)
        if here is None or done is None or after is None or earned is None:
            return False
        n = len(here)
        if not (_flags(terminated, n) and _flags(truncated, n) and len(done) == len(after) == len(earned) == n > 0):
            return False
        if not (_finite(after) and _finite(earned) and self._allows(done)):
            return False
        with self.rows.lock:
            going = [one for one in self.rows.ledger.opened(range(n)) if one is not None]
            slots = np.array([one.slot for one in going])
            if len(going) < n:
                return False
            if not (_finite(here) if self.discontinuity is None else here.tobytes() == final.take(slots, 0).tobytes()):
                return False
            first = self.rows.append_all(going, slots)
            if first is None:
                return False
            rows, held = slice(first, first + n), self.storage.columns
            before[rows], actions[rows], held["reward"][rows] = here, done, earned
            held["terminated"][rows], held["return_to_go"][rows], final[slots] = terminated, -math.inf, after
            ends = terminated | truncated
            for i in np.flatnonzero(ends).tolist() if np.count_nonzero(ends) else ():
                self._end(i, int(slots[i]), {"": here[i : i + 1]})
            if self.offline:
                self._warn_if_offline_rows_go()
        return True

    def _allows(self, action: Array) -> bool:
        """Whether actions are finite and within the bounds; those of one step as plain numbers, which is faster."""
        if action.dtype is not _FLOAT:
            return self.bounds is None
        if action.ndim == 1 and len(action):
            numbers = action.tolist()
            if self.inner[0] <= min(numbers) and max(numbers) <= self.inner[1] and -math.inf < sum(numbers) < math.inf:
                return True
        if not _finite(action):
            return False
        return self.bounds is None or not np.count_nonzero((action < self.bounds[0]) | (action > self.bounds[1]))

    def add(self, steps: Steps) -> None:
        """Take checked steps of several environments."""
        with self.rows.lock:
            steps = self._without_resets(steps)
            n, capacity = len(steps.envs), self.rows.ledger.capacity
            if n == 0:
                return
            if n > capacity:
                raise DataError(f"{n} steps at once do not fit a buffer with a capacity of {capacity}")
            self.check_bounds("action", steps.action)
            obs, action, next_obs = self.storage.fitted(steps.obs, steps.action, steps.next_obs)
            self._finish_jumped(obs, steps.envs)
            if self.ended:
                for env in steps.envs:
                    self.ended.pop(env, None)
            self._put(steps._replace(obs=obs, action=action, next_obs=next_obs))

    def _put(self, steps: Steps) -> None:
        """Write steps that fit into rows of their own."""
        rows, slots = self.rows.append(steps.envs)
        columns = {"action": steps.action, "reward": steps.reward, "terminated": steps.terminated}
        self.storage.write(int(rows[0]), len(rows), steps.obs, columns | {"return_to_go": -math.inf})
        self.storage.write_final(slots, steps.next_obs)
        ends = steps.terminated | steps.truncated
        for i in np.flatnonzero(ends).tolist() if np.count_nonzero(ends) else ():
            self._end(steps.envs[i], slots[i], {key: column[i : i + 1] for key, column in steps.obs.items()})
        if self.offline:
            self._warn_if_offline_rows_go()

    def _without_resets(self, steps: Steps) -> Steps:
        """The steps without those that are resets; if it is not known whether they are, a likely one is refused."""
        if not self.ended:
            return steps
        first = [i for i, env in enumerate(steps.envs) if env in self.ended]
        if self.autoreset == "next_step":
            for i in first:
                del self.ended[steps.envs[i]]
            return steps.only(np.delete(np.arange(len(steps.envs)), first)) if first else steps
        for i in first:
            ended = self.ended[steps.envs[i]]
            begins = {key: column[i : i + 1] for key, column in steps.obs.items()}
            if (
                ended is not None
                and self.discontinuity is not None
                and not differs(ended, begins, self.discontinuity)[0]
            ):
                refuse_fused(steps.envs[i])
        return steps

    def _finish_jumped(self, obs: Leaves, envs: Sequence[int]) -> None:
        """End the trajectories that the steps do not go on from: each starts where its environment was not."""
        if self.discontinuity is None:
            return
        opened = self.rows.ledger.opened(envs)
        index = range(len(envs)) if None not in opened else [i for i, going in enumerate(opened) if going is not None]
        slots = [going.slot for going in opened if going is not None]
        if not slots:
            return
        begins = obs if len(index) == len(envs) else {key: column[list(index)] for key, column in obs.items()}
        jumped = differs(self.storage.final(slots), begins, self.discontinuity)
        for at in np.flatnonzero(jumped).tolist() if np.count_nonzero(jumped) else ():
            env = envs[index[at]]
            self._finish(env)
            self._warn_once(
                "discontinuity",
                f"environment {env} jumped to another observation without terminated or truncated: a new trajectory "
                "starts there. Pass truncated=True when you reset, or discontinuity=None to the buffer if your "
                "observations are normalised anew at every step. (Said once.)",
            )

    def _end(self, env: int, slot: int, obs: Leaves) -> None:
        """The step from `obs` ended its episode: remember where, and write the returns."""
        if self.autoreset != "disabled":
            final = self.storage.final([slot])
            self.ended[env] = final if differs(obs, final, self.discontinuity or 0.0)[0] else None
        self._finish(env)

    def _finish(self, env: int) -> None:
        """Close an environment's trajectory and write the returns its steps now have."""
        rows = self.rows.close(env)
        reward, terminated = (self.storage.columns[name][rows] for name in ("reward", "terminated"))
        self.storage.columns["return_to_go"][rows] = return_to_go(
            reward, terminated, self.gamma, failure_reward=self.failure_reward
        )

    # ---- saving --------------------------------------------------------------------------------------------------
    def state(self) -> State:
        """Where environments ended that have taken no step since."""
        moved = {env: final for env, final in self.ended.items() if final is not None}
        keys = next(iter(moved.values()), {})
        return {
            "env": np.array(list(self.ended), np.int64),
            "moved": np.array(list(moved), np.int64),
            **{f"final.{key}": np.concatenate([final[key] for final in moved.values()]) for key in keys},
        }

    def restore(self, state: State) -> None:
        """Put a state back."""
        finals = {key.removeprefix("final."): column for key, column in state.items() if key.startswith("final.")}
        self.ended = dict.fromkeys(state["env"].tolist())
        for i, env in enumerate(state["moved"].tolist()):
            self.ended[env] = {key: column[i : i + 1] for key, column in finals.items()}

    # ---- warnings ------------------------------------------------------------------------------------------------
    def _warn_if_offline_rows_go(self) -> None:
        ledger = self.rows.ledger
        if ledger.head > ledger.capacity:
            self._warn_once(
                "offline",
                "the buffer is full, so online steps overwrite offline rows from now on: a capacity above "
                f"{ledger.capacity} (offline rows plus online steps) keeps them. (Said once.)",
            )

    def _warn_once(self, subject: str, message: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(message, stacklevel=6)


def _flags(value: Any, n: int) -> bool:
    return type(value) is np.ndarray and value.dtype == np.bool_ and value.shape == (n,)


def _finite(values: Array) -> bool:
    return int(np.count_nonzero(np.isfinite(values))) == values.size


def _like(value: Any, column: Array, axes: int = 0) -> Array | None:
    """A value as one row of a column, or as rows along so many axes, if it fits without a loss; maybe not finite."""
    if type(value) is not np.ndarray or value.ndim < axes or value.shape[axes:] != column.shape[1:]:
        return None
    kind = value.dtype
    if kind is _DOUBLE and column.dtype is _FLOAT:
        return value.astype(_FLOAT) if np.count_nonzero(np.abs(value) < _LARGE) == value.size else None
    return value if kind is column.dtype or (kind == column.dtype and kind.kind in "biu") else None
