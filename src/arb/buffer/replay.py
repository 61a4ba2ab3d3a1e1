"""ReplayBuffer: rows and their columns behind add, load, refresh and sample, for anyone's training loop."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arb.buffer.batch import Array, Batch, Obs
from arb.buffer.borders import JUMP, Rule, differs
from arb.buffer.dataset import check_dataset, unwrapped
from arb.buffer.ledger import Ints
from arb.buffer.likelihood import Score
from arb.buffer.returns import return_to_go
from arb.buffer.rows import Rows
from arb.buffer.samplers import Sampler
from arb.buffer.scoring import CHUNK
from arb.buffer.steps import Steps, check_steps, one_row
from arb.buffer.storage import Storage
from arb.buffer.trajectories import usable_trajectories
from arb.errors import DataError, refuse_out_of_bounds
from arb.files import read_state, write_state

_FORMAT = 1


class Loaded(NamedTuple):
    """What `ReplayBuffer.load` took in."""

    rows: int
    trajectories: int
    dropped: int
    """Last steps of cut-off trajectories; the data does not hold where they led, so they cannot be bootstrapped."""


class ReplayBuffer:
    """Past experience and new steps in one ring, drawn from by one strategy.

    >>> from arb import OnPolicy
    >>> buffer = ReplayBuffer(capacity=1000, sampler=OnPolicy(temperature=0.5), seed=0)
    >>> past = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.ones(4),
    ...         "terminals": np.array([0, 1, 0, 1])}
    >>> buffer.load(past)
    Loaded(rows=4, trajectories=2, dropped=0)
    >>> buffer.add(np.ones(2), np.ones(1), 0.5, np.ones(2), terminated=True)
    >>> buffer.refresh(lambda obs, action: -np.square(action).sum(-1))
    >>> batch = buffer.sample(8)
    >>> batch.obs.shape, batch.return_to_go.shape
    ((8, 2), (8,))

    One thread may add while another samples and refreshes.

    Args:
        capacity: rows of the ring. When it is full, the oldest rows make way, offline ones first if loaded first.
        sampler: the strategy; ARB with its defaults if not given.
        gamma: discount of the Monte-Carlo returns.
        seed: of everything random here. Equal seeds and equal calls give equal batches.
        borders: where trajectories of loaded data end, see `arb.buffer.borders`.
        action_bounds: (low, high); an action outside is refused. None does not look.
        failure_reward: for sparse rewards, see `arb.buffer.returns.return_to_go`.
        jump: two observations further apart than this are not the same, and a step that does not start where the last
            one led begins a new trajectory. None trusts the flags alone, as one must if observations are normalised
            by statistics that change from step to step.
    """

    def __init__(
        self,
        capacity: int,
        sampler: Sampler | None = None,
        *,
        gamma: float = 0.99,
        seed: int | np.random.SeedSequence | None = None,
        borders: Rule = "resets",
        action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        failure_reward: float | None = None,
        jump: float | None = JUMP,
    ):
        self.rows = Rows(capacity, sampler, seed)
        self.ledger, self.sampler, self.draws = self.rows.ledger, self.rows.sampler, self.rows.draws
        self.storage = Storage(self.rows.ledger.capacity)
        self.gamma, self.borders, self.failure_reward, self.jump = gamma, borders, failure_reward, jump
        self._bounds = None if action_bounds is None else (np.asarray(action_bounds[0]), np.asarray(action_bounds[1]))
        self._warned = False

    def __len__(self) -> int:
        return self.ledger.size

    @property
    def capacity(self) -> int:
        """Rows of the ring."""
        return self.ledger.capacity

    @property
    def nbytes(self) -> int:
        """Bytes allocated for steps and for knowing their trajectories."""
        table = sum(column.nbytes for column in self.ledger.table.values())
        return self.storage.nbytes + self.ledger.run.nbytes + table

    # ---- experience in ------------------------------------------------------------------------------------------

    def load(self, dataset: Mapping[str, Any], *, online: bool = False) -> Loaded:
        """Append a dataset: a dict of arrays with D4RL's keys, see `arb.buffer.dataset.check_dataset`."""
        data = check_dataset(dataset)
        past = usable_trajectories(data, self.borders, self.gamma, self.failure_reward)
        rows = int(past.lengths.sum())
        if rows > self.capacity:
            raise DataError(
                f"the dataset has {rows} rows but the buffer a capacity of {self.capacity}: make the buffer larger "
                "(offline rows plus online steps keeps everything), or load less"
            )
        self._refuse_out_of_bounds("dataset['actions']", data.action)
        with self.rows.lock:
            self.storage.fit(data.obs, data.action, data.next_obs)
            if rows:
                places, runs = self.rows.extend(past.lengths, online=online)
                self.storage.write(places, past.obs, past.columns)
                self.storage.write_final(runs, past.final)
        return Loaded(rows, len(past.lengths), past.dropped)

    def add(
        self,
        obs: Any,
        action: ArrayLike,
        reward: float,
        next_obs: Any,
        terminated: bool,
        truncated: bool = False,
        *,
        env: int = 0,
    ) -> None:
        """Append one step of one environment.

        `terminated` says that the task ended, so the step is not bootstrapped; `truncated` that it was cut off, so
        it is, from `next_obs`: give the observation before the reset. Both end the trajectory.
        """
        self.add_batch(
            one_row(obs), np.asarray(action)[None], [reward], one_row(next_obs), [terminated], [truncated], envs=(env,)
        )

    def add_batch(
        self,
        obs: Obs,
        action: ArrayLike,
        reward: ArrayLike,
        next_obs: Obs,
        terminated: ArrayLike,
        truncated: ArrayLike | None = None,
        *,
        envs: Sequence[int] | None = None,
        valid: ArrayLike | None = None,
    ) -> None:
        """Append one step of each of several environments, each with a trajectory of its own.

        Args:
            obs: observations before the step, one row per environment.
            action: the actions taken.
            reward: the rewards.
            next_obs: the observations the steps led to; at the end of an episode the final one, not the next
                episode's first (Gymnasium's vector environments hand it over in their infos).
            terminated: whether the task ended.
            truncated: whether the episode was cut off.
            envs: the number of each row's environment; 0, 1, ... if not given.
            valid: rows to take; the others are passed over. Gymnasium's next-step autoreset makes a step that is a
                reset and no step: mark it False here.
        """
        steps = check_steps(obs, action, reward, next_obs, terminated, truncated, envs, valid)
        if len(steps.envs) == 0:
            return
        if len(steps.envs) > self.capacity:
            raise DataError(f"{len(steps.envs)} steps at once do not fit a buffer with a capacity of {self.capacity}")
        self._refuse_out_of_bounds("action", steps.action)
        with self.rows.lock:
            self.storage.fit(steps.obs, steps.action, steps.next_obs)
            self._finish_jumped(steps)
            rows, runs = self.rows.append(steps.envs)
            columns = {"action": steps.action, "reward": steps.reward, "terminated": steps.terminated}
            self.storage.write(rows, steps.obs, columns | {"return_to_go": np.full(len(rows), -np.inf)})
            self.storage.write_final(runs, steps.next_obs)
            for i in np.flatnonzero(steps.terminated | steps.truncated):
                self._finish(steps.envs[i])

    def _finish_jumped(self, steps: Steps) -> None:
        """End the trajectories that the steps do not go on from: each starts where its environment was not."""
        if self.jump is None:
            return
        runs = np.array([self.ledger.open_run(env) for env in steps.envs])
        going = np.flatnonzero(runs >= 0)
        if len(going):
            reached = self.storage.final(runs[going])
            jumped = differs(reached, {key: column[going] for key, column in steps.obs.items()}, self.jump)
            for i in going[jumped]:
                self._finish(steps.envs[i])
                self._warn_of_jump(steps.envs[i])

    def _finish(self, env: int) -> None:
        """Close an environment's trajectory and write the returns its steps now have."""
        rows = self.rows.close(env)
        reward, terminated = (self.storage.columns[name][rows] for name in ("reward", "terminated"))
        self.storage.columns["return_to_go"][rows] = return_to_go(
            reward, terminated, self.gamma, failure_reward=self.failure_reward
        )

    def _warn_of_jump(self, env: int) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"environment {env} jumped to another observation without terminated or truncated: a new trajectory "
                "starts there. Pass truncated=True when you reset, or jump=None to the buffer if your observations "
                "are normalised anew at every step. (Said once.)",
                stacklevel=5,
            )

    def _refuse_out_of_bounds(self, name: str, action: Array) -> None:
        if self._bounds is not None:
            refuse_out_of_bounds(name, action, *self._bounds)

    # ---- batches out --------------------------------------------------------------------------------------------

    def refresh(self, score: Score, *, chunk: int = CHUNK) -> None:
        """Weigh the rows anew under the current policy.

        `score(obs, action)` returns a log-likelihood per row, as NumPy, JAX or torch array; it gets NumPy arrays of
        always the same number of rows, `chunk`, and must not change them. Strategies that do not look at the policy
        never call it. Other threads may add meanwhile.
        """
        if not callable(score):
            raise TypeError(
                f"refresh needs a function (obs, action) -> log-likelihood per row, got {type(score).__name__}"
            )
        storage = self.storage
        self.rows.refresh(lambda rows: score(unwrapped(storage.observations(rows)), storage.actions(rows)), chunk=chunk)

    def sample(self, shape: int | tuple[int, ...], *, rng: np.random.Generator | None = None) -> Batch:
        """A batch of `n` transitions, or `(updates, n)` at once, drawn with replacement.

        Between two refreshes the weights do not change, so drawing the batches of many updates in one call gives the
        same distribution as drawing them one by one, and costs much less.
        """
        with self.rows.lock:
            return self.take(self.draw(shape, rng=rng))

    def draw(self, shape: int | tuple[int, ...], *, rng: np.random.Generator | None = None) -> Ints:
        """The rows that `sample` would return; look at `ledger.is_online(rows)` for their origin."""
        return self.rows.draw(shape, rng=rng)

    def take(self, rows: Ints) -> Batch:
        """The transitions in these rows, in arrays of their shape."""
        with self.rows.lock:
            flat = rows.reshape(-1)
            batch = self.storage.take(flat, self.ledger.successors(flat))
        return batch if rows.ndim == 1 else batch.reshape(rows.shape)

    def stats(self) -> dict[str, float]:
        """Figures about the sampling distribution; docs/buffer.md explains them. Looks at every row."""
        return self.rows.stats()

    # ---- saving -------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, since: int = 0) -> None:
        """Write everything that decides the future of this buffer to one .npz file.

        `since` leaves out the columns of the first rows ever inserted: pass the number of rows that a dataset brought,
        and load the dataset again before `restore`.
        """
        with self.rows.lock:
            header, parts = self.rows.state()
            parts["storage"] = self.storage.state(self._rows_since(since))
            write_state(path, {"format": _FORMAT, "since": since, **header}, parts)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue as the buffer that was saved there: the next samples are the ones it would have drawn.

        This buffer must have been made with the same arguments; its own content is replaced. If the file leaves out
        a dataset, the dataset must have been loaded, and nothing else.
        """
        header, parts = read_state(path)
        if header.get("format") != _FORMAT or header["sampler"] != type(self.sampler).__name__:
            raise DataError(
                f"{path} holds a buffer with the sampler {header.get('sampler')} (format {header.get('format')}), "
                f"this one has {type(self.sampler).__name__} (format {_FORMAT})"
            )
        with self.rows.lock:
            if header["since"] not in (0, self.ledger.head):
                raise DataError(
                    f"{path} leaves out a dataset of {header['since']} rows: load it into this buffer first, "
                    f"and nothing else (there are {self.ledger.head} rows)"
                )
            self.rows.restore(header, parts)
            self.storage.restore(parts.get("storage", {}), self._rows_since(header["since"]))

    def _rows_since(self, sequence: int) -> Ints | slice:
        return self.ledger.rows_between(max(sequence, self.ledger.oldest), self.ledger.head)
