"""ReplayBuffer: rows and their columns behind add, load, refresh and sample, for anyone's training loop."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from arb.errors import DataError
from arb.replay.ahead import RefreshAhead
from arb.replay.dataset import DISCONTINUITY, Boundaries, Dataset, Obs, unwrapped
from arb.replay.index import Ints
from arb.replay.intake import Intake
from arb.replay.loading import Loaded, load_dataset
from arb.replay.rows import Rows, whole_number
from arb.replay.samplers import Sampler
from arb.replay.saved import read_buffer, write_buffer
from arb.replay.scores import Score, within
from arb.replay.scoring import CHUNK, RowScore
from arb.replay.steps import autoreset_mode, check_steps, one_row, with_final_obs
from arb.replay.storage import Batch, Storage, TracedBatch

Shape = int | tuple[int, ...]
Rng = np.random.Generator | None


class ReplayBuffer:
    """Past experience and new steps in one ring, drawn from by one strategy.

    >>> from arb import ARB
    >>> buffer = ReplayBuffer(capacity=1000, sampler=ARB("auto"), seed=0)
    >>> past = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.ones(4),
    ...         "terminals": np.array([0, 1, 0, 1])}
    >>> buffer.load_dataset(past)
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
        seed: random seed. Equal seeds and equal calls give equal batches.
        boundaries: where trajectories of loaded data end, see `arb.replay.dataset`.
        action_bounds: (low, high); an action outside is refused. None does not look.
        failure_reward: for sparse rewards, see `arb.replay.dataset.return_to_go`.
        autoreset: how the vector environment that steps come from resets: the environment itself (Gymnasium's say so
            in their metadata), or "next_step", "same_step" or "disabled". With "next_step", the steps that are resets
            are dropped. If not given, a step that begins where its environment's last episode ended is refused.
        discontinuity: two observations further apart than this are not the same, and a step that does not start where
            the last one led begins a new trajectory. None trusts the flags alone, as one must if observations are
            normalised by statistics that change from step to step.
    """

    def __init__(
        self,
        capacity: int,
        sampler: Sampler | None = None,
        *,
        gamma: float = 0.99,
        seed: int | np.random.SeedSequence | None = None,
        boundaries: Boundaries = "resets",
        action_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        failure_reward: float | None = None,
        discontinuity: float | None = DISCONTINUITY,
        autoreset: Any = None,
    ):
        self.rows = Rows(capacity, sampler, seed)
        self.ledger, self.sampler, self.rng = self.rows.ledger, self.rows.sampler, self.rows.rng
        self.storage = Storage(self.rows.ledger.capacity)
        self._intake = Intake(
            self.rows,
            self.storage,
            gamma=gamma,
            failure_reward=failure_reward,
            action_bounds=action_bounds,
            discontinuity=discontinuity,
            autoreset=autoreset_mode(autoreset),
        )
        self.gamma, self.boundaries = gamma, boundaries
        self._loaded = ""  # names the datasets that were loaded

    def __len__(self) -> int:
        return self.ledger.size

    def __repr__(self) -> str:
        return f"ReplayBuffer({self.rows.described})"

    @property
    def capacity(self) -> int:
        """Rows of the ring."""
        return self.ledger.capacity

    @property
    def nbytes(self) -> int:
        """Bytes allocated for steps and for knowing their trajectories."""
        return self.storage.nbytes + self.ledger.nbytes

    # ---- experience in -------------------------------------------------------------------------------------------
    def load_dataset(self, dataset: Dataset | Mapping[str, Any], *, online: bool = False) -> Loaded:
        """Append a dataset, or a dict of arrays with D4RL's keys as `Dataset.from_dict` reads them."""
        loaded, self._loaded = load_dataset(dataset, self._intake, self.boundaries, online, self._loaded)
        return loaded

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
        if not self._intake.add_one(obs, action, reward, next_obs, terminated, truncated, env):
            before, after = one_row(obs), one_row(next_obs)
            self.add_batch(before, np.asarray(action)[None], [reward], after, [terminated], [truncated], envs=[env])

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
        infos: Mapping[str, Any] | None = None,
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
            valid: rows to take; the others are passed over, such as resets, which are not steps.
            infos: what the vector environment returned with the step. Final observations in it replace those in
                `next_obs`, as same-step autoreset needs.
        """
        if self._intake.autoreset == "next_step" and truncated is None:
            raise DataError(
                "add_batch needs truncated with next-step autoreset: otherwise a time limit goes unseen, and the reset "
                "after it would be stored as a step"
            )
        if infos is not None:
            next_obs = with_final_obs(next_obs, infos)
        if envs is valid is None and self._intake.add_many(obs, action, reward, next_obs, terminated, truncated):
            return
        self._intake.add(check_steps(obs, action, reward, next_obs, terminated, truncated, envs, valid))

    # ---- batches out ---------------------------------------------------------------------------------------------
    def refresh(self, score: Score, *, chunk: int = CHUNK) -> None:
        """Weigh the rows anew under the current policy.

        `score(obs, action)` returns a log-likelihood per row, as NumPy, JAX or torch array; it gets NumPy arrays of
        always the same number of rows, `chunk`, and must not change them. Strategies that do not look at the policy
        never call it. Other threads may add meanwhile.

        The rows that fill up the last call are ignored. A larger chunk takes more memory and fewer calls:

        >>> import arb
        >>> buffer = arb.ReplayBuffer(10, arb.ARB("auto"))
        >>> for t in range(6):
        ...     buffer.add([float(t)], [0.5], 1.0, [t + 1.0], terminated=t == 5)
        >>> def score(obs, action):
        ...     print(len(obs), "rows")
        ...     return -((action[:, 0] - 0.5) ** 2)
        >>> buffer.refresh(score, chunk=4)
        4 rows
        4 rows

        Args:
            score: log-likelihoods of stored actions, for example `arb.gaussian_score(policy)`.
            chunk: rows of one call.
        """
        self.rows.refresh(self._by_row(score), chunk=chunk)

    def refresh_ahead(self, score: Score, *, chunk: int = CHUNK, background: bool = True) -> RefreshAhead:
        """Score the rows that are there on another thread while the environment steps; `finish` scores the new ones.

        The policy must not change until then. The result is that of a refresh at the end.

        >>> buffer = ReplayBuffer(10, seed=0)
        >>> with buffer.refresh_ahead(lambda obs, action: -np.square(action).sum(-1)) as refresh:
        ...     for action in (0.1, 0.2, 5.0):
        ...         buffer.add([0.0], [action], 1.0, [0.0], terminated=True, truncated=False)
        ...     refresh.finish()
        >>> buffer.stats()["effective_rows"] < 3
        True
        """
        return self.rows.refresh_ahead(self._by_row(score), chunk=chunk, background=background)

    def _by_row(self, score: Score) -> RowScore:
        if not callable(score):
            raise DataError(
                f"refresh needs a function (obs, action) -> log-likelihood per row, got {type(score).__name__}"
            )
        storage, score = self.storage, within(score, self._intake.bounds)
        return lambda rows: score(unwrapped(storage.observations(rows)), storage.actions(rows))

    @overload
    def sample(self, shape: Shape, *, n_step: int = 1, trace: Literal[False] = False, rng: Rng = None) -> Batch: ...
    @overload
    def sample(self, shape: Shape, *, n_step: int = 1, trace: Literal[True], rng: Rng = None) -> TracedBatch: ...
    def sample(self, shape: Shape, *, n_step: int = 1, trace: bool = False, rng: Rng = None) -> Batch | TracedBatch:
        """A batch of `n` transitions, or `(updates, n)` at once, drawn with replacement.

        Between two refreshes the weights do not change, so drawing the batches of many updates in one call gives the
        same distribution as drawing them one by one, and costs much less.

        Args:
            shape: transitions to draw, `n` or `(updates, n)`.
            n_step: steps of the return, see `Batch.reward` and `Batch.mask`; at the end of an episode there are
                fewer. The discount between them is this buffer's `gamma`.
            trace: also the row, the origin and the probability of each transition. This looks at every row.
            rng: draws from this generator instead of the buffer's own.
        """
        with self.rows.lock:
            rows = self.sample_indices(shape, rng=rng)
            batch = self.gather(rows, n_step=n_step)
            if not trace:
                return batch
            return TracedBatch(*batch, rows, self.ledger.is_online(rows), self.sampler.probabilities()[rows])

    def sample_indices(self, shape: Shape, *, rng: Rng = None) -> Ints:
        """The rows that `sample` would return, for `gather`, and for whoever keeps columns of their own.

        >>> buffer = ReplayBuffer(10, seed=0)
        >>> for t in range(4):
        ...     buffer.add([t], [0.0], float(t), [t + 1], terminated=t == 3)
        >>> rows = buffer.sample_indices(3)
        >>> (buffer.gather(rows).reward == rows).all()    # row t holds step t
        np.True_
        >>> buffer.ledger.is_online(rows)
        array([ True,  True,  True])
        """
        return self.rows.sample_indices(shape, rng=rng)

    def gather(self, rows: Ints, *, n_step: int = 1) -> Batch:
        """The transitions in these rows, in arrays of their shape.

        >>> buffer = ReplayBuffer(4, gamma=0.5)
        >>> for t in range(3):
        ...     buffer.add([t], [0.0], 1.0, [t + 1], terminated=t == 2)
        >>> batch = buffer.gather(np.arange(3), n_step=2)
        >>> batch.reward, batch.mask, batch.next_obs.ravel()
        (array([1.5, 1.5, 1. ], dtype=float32), array([0.5, 0. , 0. ], dtype=float32), array([2, 3, 3]))
        """
        whole_number("n_step", n_step)
        with self.rows.lock:
            batch = self.storage.gather(rows.reshape(-1), self.ledger, n_step, self.gamma)
        return batch if rows.ndim == 1 else batch.reshape(rows.shape)

    def stats(self) -> dict[str, float]:
        """Figures about the sampling distribution; docs/reference/metrics.md explains them. Looks at every row."""
        return self.rows.stats()

    # ---- saving --------------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str], *, since: int = 0) -> None:
        """Write everything that decides the future of this buffer to one .npz file.

        `since` leaves out the columns of the first rows ever inserted: pass the number of rows that a dataset brought,
        and load the dataset again before `load`.
        """
        write_buffer(path, self._intake, self.boundaries, self._loaded, since)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue as the buffer that was saved there: the next samples are the ones it would have drawn.

        This buffer must have been made with the same arguments; its own content is replaced. If the file leaves out
        a dataset, the same dataset must have been loaded, and nothing else. A file that does not fit, or is damaged,
        is refused with a `DataError`, and this buffer stays as it was.
        """
        self._loaded = read_buffer(path, self._intake, self.boundaries, self._loaded)
