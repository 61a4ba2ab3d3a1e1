"""ReplayBuffer: past experience and new steps, for anyone's training loop.

Online, an episode ends in one of two ways: by a flag, or by a discontinuity, a step that does not start where the last
one of its environment led. A step that Gymnasium's next-step autoreset made is a reset and no step at all.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from arb.errors import DataError, check_bounds, check_choice, check_finite
from arb.files import read_state, write_state
from arb.replay.dataset import (
    DISCONTINUITY,
    Array,
    Bools,
    Boundaries,
    Dataset,
    Ints,
    Leaves,
    Obs,
    as_dataset,
    differs,
    flags,
    leaves,
    map_leaves,
    one_per_row,
    return_to_go,
    single_precision,
    unwrapped,
)  # fmt: skip
from arb.replay.index import ReplayIndex, whole_number
from arb.replay.samplers import Sampler
from arb.replay.scores import CHUNK, Score, Unit, within
from arb.replay.sequences import (
    ChunkBatch,
    Hindsight,
    SequenceBatch,
    chunk_actions,
    gather_chunks,
    gather_sequences,
    reshaped,
)
from arb.replay.storage import Batch, Storage

FORMAT = 4
"""Of saved buffers."""
MODES = ("next_step", "same_step", "disabled")
"""How a vector environment resets the environments whose episode ended, in Gymnasium's terms."""
SUSPICIOUS = 3
"""So many episodes that begin where the last one ended, and none that does not, are taken for unreported resets."""

Shape = int | tuple[int, ...]
Rng = np.random.Generator | None

_CHUNK = 1 << 16
_UNKNOWN = np.float32(-np.inf)
_RESERVED = {"rows", "weights", "online", "origin"}
"""Names of columns that a buffer makes itself."""
_ARGUMENTS = ("action", "reward", "next_obs", "terminated", "truncated", "done", "terminal", "timeout", "env", "infos")
_ORDER = ": an environment's step returns obs, reward, terminated, truncated, info, in this order"


class Loaded(NamedTuple):
    """What `load_dataset` took in."""

    rows: int
    trajectories: int
    dropped: int
    """Last steps of cut-off episodes; the data does not hold where they led, so they cannot be bootstrapped."""


class Steps(NamedTuple):
    """Checked steps of several environments, one row each."""

    obs: Leaves
    action: Array
    reward: Array
    next_obs: Leaves
    terminated: Bools
    truncated: Bools
    extras: Leaves
    envs: Sequence[int]

    def only(self, chosen: list[int]) -> Steps:
        return Steps._make([*map_leaves(lambda column: column[chosen], self[:-1]), [self.envs[i] for i in chosen]])


class ReplayBuffer:
    """Past experience and new steps in one ring, sampled by one strategy.

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
        capacity: rows of the ring. When it is full, the oldest are overwritten, offline ones first if loaded first.
        sampler: the strategy; ARB with its defaults if not given.
        gamma: discount of the Monte-Carlo returns.
        seed: random seed. Equal seeds and equal calls give equal batches.
        boundaries: where episodes of loaded data end, see `arb.replay.dataset`.
        action_bounds: (low, high); an action outside is refused. None does not look.
        failure_reward: for sparse rewards, see `arb.replay.dataset.return_to_go`.
        discontinuity: a step that starts further than this from where the last one led begins a new trajectory. None
            trusts the flags alone, as one must if observations are normalised by statistics that change; next
            observations are then stored as they were given, which takes twice the memory.
        autoreset: how the vector environment that steps come from resets: the environment itself (Gymnasium's say so
            in their metadata), or "next_step", "same_step" or "disabled". With "next_step", the steps that are resets
            are dropped. If not given, `add_batch` refuses steps that look like resets: the first three episodes all
            begin where the last one of their environment ended.
        storage: "memory", or "memmap:FOLDER" to keep the rows in memory-mapped files, for data larger than memory. If
            the folder holds a buffer already, it is opened, and not copied; episodes that were open count as cut off.
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
        storage: str = "memory",
    ):
        self.index = ReplayIndex(capacity, sampler, seed)
        self.sampler, self.rng = self.index.sampler, self.index.rng
        given: Any = gamma
        if not isinstance(given, Real) or not 0.0 <= float(given) <= 1.0:
            raise DataError(f"gamma must lie between 0 and 1, got {gamma!r}")
        if discontinuity is not None and not discontinuity >= 0.0:
            raise DataError(f"discontinuity is a distance, or None, got {discontinuity}")
        self.gamma, self.boundaries, self.failure_reward = gamma, boundaries, failure_reward
        self.bounds = None if action_bounds is None else _low_and_high(action_bounds)
        self.discontinuity, self.autoreset = discontinuity, autoreset_mode(autoreset)
        self._ended: dict[int, Leaves | None] = {}
        """Where each environment ended its last episode, until it takes a step; None if that step did not move."""
        self._alike = 0  # episodes that began where the last one ended, or SUSPICIOUS as soon as one did not
        self._loaded = ""  # names the offline datasets that were loaded
        self._offline = 0  # offline rows that were loaded
        self._warned: set[str] = set()
        kind, colon, folder = str(storage).partition(":")
        if storage != "memory" and (kind != "memmap" or not folder):
            raise DataError(f"storage must be 'memory' or 'memmap:FOLDER', got {storage!r}")
        self.storage = Storage(
            self.index.capacity, next_obs=discontinuity is None, folder=Path(folder) if colon else None
        )
        self.storage.made = {"format": FORMAT, **self._made()}
        if num_added := self.storage.open():
            self._reopen(num_added)

    def _reopen(self, num_added: int) -> None:
        held, index = self.storage.columns, self.index
        index.reopen(num_added, held["episode_id"], held["online"])
        self._offline = int(index.spans(online=False)[1].sum())
        unknown = np.isneginf(held["return_to_go"][: len(self)])
        opened = np.bincount(index.episode_ids[: len(self)][unknown], minlength=index.num_ids) > 0
        rows, ids, steps = index.members()
        for stop, n in zip(np.cumsum(steps)[opened[ids]], steps[opened[ids]], strict=True):
            self._set_returns(rows[stop - n : stop])

    def __len__(self) -> int:
        return self.index.size

    def __getstate__(self) -> dict[str, Any]:
        with self.index.lock:  # for pickle and copy, while other threads add
            return copy.deepcopy(self.__dict__)

    def __repr__(self) -> str:
        return f"ReplayBuffer({self.index.summary})"

    @property
    def capacity(self) -> int:
        return self.index.capacity

    @property
    def nbytes(self) -> int:
        return self.storage.nbytes + self.index.episode_ids.nbytes + self.index.next_index.nbytes

    # ---- experience in -------------------------------------------------------------------------------------------
    def load_dataset(
        self,
        dataset: Dataset | Mapping[str, Any],
        *,
        origin: str = "offline",
        extras: Collection[str] | None = None,
    ) -> Loaded:
        """Append a dataset, or a dict of arrays with D4RL's keys as `Dataset.from_dict` reads them.

        Args:
            dataset: the data.
            origin: "offline", "online", or a word of your own such as "demos", for `Mixed` and `stats`.
            extras: the names of further columns to keep; all that hold numbers if not given. In files there are none.
        """
        data = as_dataset(dataset, self.boundaries)
        online = origin == "online"
        known = data.final_observations is not None
        unusable = np.zeros(len(data), bool) if known else data.timeouts
        lengths = data.lengths - unusable[data.ends]
        last, lengths = data.ends[lengths > 0], lengths[lengths > 0]
        obs, rows = leaves(data.observations), int(lengths.sum())
        final = leaves(data.final_observations) if known else {key: column[last] for key, column in obs.items()}
        if self.bounds is not None:
            check_bounds("dataset['actions']", data.actions, *self.bounds)
        stop = data.terminals.copy()
        stop[data.ends] = True
        returns = return_to_go(data.rewards, stop, self.gamma, failure_reward=self.failure_reward)
        with self.index.lock:
            gone = self.index.num_added + rows - self.capacity  # rows before this one are overwritten
            crowded = rows > self.capacity or (not online and (self.index.spans(online=False)[0] < gone).any())
            if crowded or (self.storage.files and gone > 0):  # a kill must not leave files with half of a row
                held = f"the buffer a capacity of {self.capacity} and {len(self)} rows"
                problem = f"the dataset has {rows} rows but {held}, so past data would be overwritten"
                raise DataError(f"{problem}: make the buffer larger (offline rows plus online steps), or load less")
            self._check_in_files(extras, origin, ("offline", "online"))
            more = self.storage.fit_extras({} if self.storage.files else _numeric(data, extras))
            obs, action, final = self.storage.fit(obs, data.actions, final)
            columns = {"action": action, "reward": data.rewards, "terminated": data.terminals, "return_to_go": returns}
            columns |= self.storage.named(obs, leaves(data.next_observations) if self.discontinuity is None else {})
            if rows:
                place = self.index.num_added
                _, ids = self.index.extend(lengths, origin=origin)
                self.storage.write_final(ids, final)
                if self.storage.files:
                    columns |= {"episode_id": np.zeros(len(data), np.int32), "online": np.full(len(data), online)}
                    columns["episode_id"][~unusable] = np.repeat(ids, lengths)
                for start in range(0, len(data), _CHUNK):  # a part at a time, to spare memory
                    kept = start + np.flatnonzero(~unusable[start : start + _CHUNK])
                    part = {name: column[kept] for name, column in columns.items()}
                    self.storage.write(place % self.capacity, len(kept), part)
                    self._write_extras(place, len(kept), {name: column[kept] for name, column in more.items()})
                    place += len(kept)
                self.storage.commit(place)
            if online:
                self._warn_if_overwriting()
            else:
                self._offline += rows
                self._loaded = hashlib.sha256((self._loaded + data.fingerprint).encode()).hexdigest()
        return Loaded(rows, len(lengths), int(unusable.sum()))

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
        origin: str = "online",
        **extras: ArrayLike,
    ) -> None:
        """Append one step of one environment.

        `terminated` says that the task ended, so the step is not bootstrapped; `truncated` that it was cut off, so
        it is, from `next_obs`, which must be the observation before the reset. Both end the trajectory. `env` is the
        number of the environment. `origin`, a word such as "corrections", sets steps apart from the policy's own.
        Further values by name, such as `log_prob=-1.2`, come back as `batch.extras["log_prob"]`.
        """
        before, after = ({key: column[None] for key, column in leaves(part).items()} for part in (obs, next_obs))
        more = {name: np.asarray(value)[None] for name, value in extras.items()}
        steps = check_steps(before, np.asarray(action)[None], [reward], after, [terminated], [truncated], [env], more)
        self._add(steps, suspicious=env != 0, origin=origin)

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
        origin: str = "online",
        **extras: ArrayLike,
    ) -> None:
        """Append one step of each of several environments, one row each, as `add` does for one.

        `envs` has the number of each row's environment; 0, 1, ... if not given. Rows that are not `valid` are passed
        over, such as resets, which are not steps. Final observations in `infos`, what the vector environment returned
        with the step, replace those in `next_obs`, as same-step autoreset needs.
        """
        if self.autoreset == "next_step" and truncated is None:
            raise DataError("add_batch needs truncated with next-step autoreset, or the reset after it becomes a step")
        if infos is not None:
            next_obs = with_final_obs(next_obs, infos)
        steps = check_steps(leaves(obs), action, reward, leaves(next_obs), terminated, truncated, envs, extras)
        if valid is not None:
            wanted = flags("valid", valid, "environment")
            if len(wanted) != len(steps.envs):
                _check_rows({"valid": wanted}, len(steps.envs))
            steps = steps.only(np.flatnonzero(wanted).tolist())
        self._add(steps, suspicious=True, origin=origin)

    def _add(self, steps: Steps, suspicious: bool, origin: str) -> None:
        with self.index.lock:
            if self._ended:
                steps = self._without_resets(steps, suspicious)
            n = len(steps.envs)
            if n == 0:
                return
            if n > self.capacity:
                raise DataError(f"{n} steps at once do not fit a buffer with a capacity of {self.capacity}")
            if self.bounds is not None:
                check_bounds("action", steps.action, *self.bounds)
            self._check_in_files(steps.extras, origin, ("online",))
            extras = self.storage.fit_extras(steps.extras)
            obs, action, next_obs = self.storage.fit(steps.obs, steps.action, steps.next_obs)
            if self.discontinuity is not None:
                self._end_discontinuous(obs, steps.envs)
            if self._ended:
                for env in steps.envs:
                    self._ended.pop(env, None)
            order = self.index.num_added
            _, ids = self.index.append(steps.envs, origin=origin)
            columns = {"action": action, "reward": steps.reward, "terminated": steps.terminated}
            columns = {**self.storage.named(obs, next_obs), **columns}
            self.storage.append(order, ids, {**columns, "return_to_go": _UNKNOWN}, next_obs)
            if extras or self.storage.extras:
                self._write_extras(order, n, extras)
            for i in (steps.terminated | steps.truncated).nonzero()[0].tolist():
                if self.autoreset != "disabled":
                    final = {key: column[i : i + 1] for key, column in next_obs.items()}
                    moved = differs({key: c[i : i + 1] for key, c in obs.items()}, final, self.discontinuity or 0.0)[0]
                    self._ended[steps.envs[i]] = {key: c.copy() for key, c in final.items()} if moved else None
                self._end_episode(steps.envs[i])
            self._warn_if_overwriting()

    def _check_in_files(self, extras: Collection[str] | None, origin: str, known: Sequence[str]) -> None:
        if self.storage.files is not None and (extras or origin not in known):
            raise DataError("a buffer in files keeps no further columns and no origins of your own: keep it in memory")

    def _write_extras(self, order: int, n: int, extras: Leaves) -> None:
        """Fill the further columns of n rows; where a column of whole numbers has none, say so once."""
        held = self.storage.extras
        late = {name for name in extras if name not in held and order} | (held.keys() - extras.keys())
        for name in sorted(late):
            if (held | extras)[name].dtype.kind != "f":
                self._warn_once(name, f"the column {name!r} is 0 in rows that came without it: give it with every row")
        self.storage.write_extras(order % self.capacity, n, extras)

    def _without_resets(self, steps: Steps, suspicious: bool) -> Steps:
        """The steps without those that are resets; if it is not known whether they are, likely ones are refused."""
        first = [i for i, env in enumerate(steps.envs) if env in self._ended]
        if self.autoreset == "next_step":
            for i in first:
                del self._ended[steps.envs[i]]
            return steps.only([i for i in range(len(steps.envs)) if i not in first]) if first else steps
        for i in first if suspicious and self.discontinuity is not None and self._alike < SUSPICIOUS else ():
            ended = self._ended[steps.envs[i]]
            begins = {key: column[i : i + 1] for key, column in steps.obs.items()}
            if ended is None:
                continue
            if differs(ended, begins, self.discontinuity or 0.0)[0]:
                self._alike = SUSPICIOUS  # resets are where they should be
                break
            if self._alike == SUSPICIOUS - 1:
                remedy = "pass autoreset=envs to the buffer, which drops the resets of Gymnasium's next-step autoreset"
                if self.autoreset == "same_step":
                    remedy = "pass infos=infos, which hold the final observations of same-step autoreset"
                raise DataError(
                    f"environment {steps.envs[i]} begins a step where its last episode ended, as did all episodes so "
                    f"far: {remedy}; if your environments really begin there, make it with autoreset='disabled'"
                )
            self._alike += 1
        return steps

    def _end_discontinuous(self, obs: Leaves, envs: Sequence[int]) -> None:
        """End the episodes that the steps do not continue: each starts where its environment was not."""
        opened = [(i, episode.id) for i, env in enumerate(envs) if (episode := self.index.open.get(env))]
        if not opened:
            return
        final = self.storage.final([number for _, number in opened])
        begins = obs if len(opened) == len(envs) else {key: c[[i for i, _ in opened]] for key, c in obs.items()}
        if all(final[key].tobytes() == column.tobytes() for key, column in begins.items()):
            return  # the usual case, and quicker than distances
        for at in differs(final, begins, self.discontinuity or 0.0).nonzero()[0].tolist():
            env = envs[opened[at][0]]
            self._end_episode(env)
            self._warn_once(
                "discontinuity",
                f"environment {env} moved to another observation without a flag; a new trajectory starts there: pass "
                "truncated=True when you reset, or discontinuity=None if observations are normalised anew",
            )

    def end_episode(self, *, env: int = 0) -> None:
        """End an open episode where it stands, as if its last step had been truncated; there may be none."""
        with self.index.lock:
            if env in self.index.open:
                self._end_episode(env)

    def _end_episode(self, env: int) -> None:
        self._set_returns(self.index.close(env))

    def _set_returns(self, rows: Ints) -> None:
        reward, terminated = (self.storage.columns[name][rows] for name in ("reward", "terminated"))
        returns = return_to_go(reward, terminated, self.gamma, failure_reward=self.failure_reward)
        self.storage.columns["return_to_go"][rows] = returns

    def _warn_if_overwriting(self) -> None:
        if self._offline and self.index.num_added > self.capacity:
            self._warn_once(
                "offline",
                "the buffer is full, so online steps overwrite offline rows from now on: a capacity above "
                f"{self.capacity} (offline rows plus online steps) keeps them",
            )

    def _warn_once(self, subject: str, message: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(message, stacklevel=4)

    # ---- batches out ---------------------------------------------------------------------------------------------
    def refresh(self, score: Score, *, by: Unit = "row", chunk: int | None = None, rows_per_call: int = CHUNK) -> None:
        """Weigh the rows anew under the current policy.

        `score(obs, action)`, for example `arb.gaussian_score(policy)`, returns a log-likelihood per row, as NumPy, JAX
        or torch array; it gets NumPy arrays, and must not change them. Strategies that do not look at the policy never
        call it. Other threads may add meanwhile.

        Args:
            score: the score; docs/scores.md says which fits a policy.
            by: `"row"` calls it with any rows, always the same number; `"trajectory"` with the steps of one trajectory
                after the other, in order, as a recurrent policy needs.
            chunk: the number of actions that the policy chooses at once; `action` then has the shape (rows, chunk,
                ...), as in `sample(n, chunk=chunk)`.
            rows_per_call: rows of one call by row.
        """
        if not callable(score):
            raise DataError(f"refresh needs a function (obs, action) -> log-likelihood, got {type(score).__name__}")
        storage, bounded = self.storage, within(score, self.bounds)
        steps = None if chunk is None else whole_number("chunk", chunk)

        def score_rows(rows: Ints | slice) -> Any:
            obs = unwrapped(storage.observations(rows))
            actions = storage.at("action", rows)
            if steps is not None:
                with self.index.lock:
                    actions = chunk_actions(storage, self.index, np.r_[rows], steps)
            try:
                return bounded(obs, actions)
            except TypeError as problem:
                if "must be Tensor" not in str(problem):
                    raise
                raise DataError("the score gets NumPy arrays: begin it with obs = torch.as_tensor(obs)") from problem

        self.index.refresh(score_rows, by=by, rows_per_call=rows_per_call)

    # fmt: off
    @overload
    def sample(self, shape: Shape, *, n_step: int = 1, hindsight: Hindsight | None = None, weights: bool = False,
               rng: Rng = None) -> Batch: ...
    @overload
    def sample(self, shape: Shape, *, chunk: int, weights: bool = False, rng: Rng = None) -> ChunkBatch: ...
    @overload
    def sample(self, shape: Shape, *, length: int, burn_in: int = 0, n_step: int = 1, weights: bool = False,
               rng: Rng = None) -> SequenceBatch: ...
    # fmt: on
    def sample(
        self,
        shape: Shape,
        *,
        n_step: int = 1,
        chunk: int | None = None,
        length: int | None = None,
        burn_in: int = 0,
        hindsight: Hindsight | None = None,
        weights: bool = False,
        rng: Rng = None,
    ) -> Any:
        """A batch of transitions, drawn with replacement.

        Args:
            shape: transitions to draw, `n`, or `(updates, n)`: the batches of many updates in one call cost much less.
            n_step: steps of the return, see `Batch.reward` and `Batch.mask`; at the end of an episode there are
                fewer. The discount between them is this buffer's `gamma`.
            chunk: actions from each row on, for policies that choose several at once: see `ChunkBatch`.
            length: steps from each row on, for recurrent learners: see `SequenceBatch`.
            burn_in: with `length`, steps before each row.
            hindsight: gives a share of the transitions goals that were reached later: see `arb.Hindsight`.
            weights: whether `batch.extras` has the sampled "rows", and their importance "weights", which undo the
                preference of the strategy for some rows; the largest of a batch is 1.
            rng: draws from this generator instead of the buffer's own.
        """
        with self.index.lock:
            rows = self.sample_indices(shape, rng=rng)
            batch = self._gather(rows, n_step, chunk, length, burn_in)
            if hindsight is not None:
                if n_step != 1 or chunk is not None or length is not None:
                    raise DataError("goals are relabelled in single steps: leave out n_step, chunk and length")
                batch = hindsight.relabel(batch, rows, self.storage, self.index, self.rng if rng is None else rng)
            if not weights:
                return batch
            return batch._replace(extras={**batch.extras, "rows": rows, "weights": self.index.importance_weights(rows)})

    def batches(
        self, n: int, shape: Shape, *, to: Any = None, device: Any = None, prefetch: bool = False, **options: Any
    ) -> Iterator[Any]:
        """n batches, one after the other.

        Args:
            n: how many.
            shape: of each, as in `sample`.
            to: `torch` or `jax`, to get arrays of that framework, as of `Batch.to`.
            device: where they are to be.
            prefetch: a thread prepares the next batch while you work with one. It does not see what was added, or
                weighed anew, meanwhile.
            options: the other arguments of `sample`.
        """

        def draw() -> Any:
            batch = self.sample(shape, **options)
            return batch if to is None else batch.to(to, device)

        number = whole_number("n", n, least=0)
        return ahead(draw, number) if prefetch else (draw() for _ in range(number))

    def update_priorities(self, rows: ArrayLike, errors: ArrayLike) -> None:
        """Tell `arb.Prioritized` the TD errors of these rows, which `sample(n, weights=True)` names."""
        self.index.update_priorities(rows, errors)

    def sample_indices(self, shape: Shape, *, rng: Rng = None) -> Ints:
        """The rows that `sample` would return, for `gather`, and for whoever keeps columns of their own."""
        return self.index.sample_indices(shape, rng=rng)

    @overload
    def gather(self, rows: ArrayLike, *, n_step: int = 1) -> Batch: ...
    @overload
    def gather(self, rows: ArrayLike, *, chunk: int) -> ChunkBatch: ...
    @overload
    def gather(self, rows: ArrayLike, *, length: int, burn_in: int = 0, n_step: int = 1) -> SequenceBatch: ...
    def gather(self, rows: ArrayLike, **steps: Any) -> Any:
        """The transitions in these rows, in arrays of their shape; the other arguments are those of `sample`.

        >>> buffer = ReplayBuffer(4, gamma=0.5)
        >>> for t in range(3):
        ...     buffer.add([t], [0.0], 1.0, [t + 1], terminated=t == 2)
        >>> batch = buffer.gather([0, 1, 2], n_step=2)
        >>> batch.reward, batch.mask, batch.next_obs.ravel()
        (array([1.5, 1.5, 1. ], dtype=float32), array([0.5, 0. , 0. ], dtype=float32), array([2, 3, 3]))
        """
        numbers = np.asarray(rows)
        if numbers.dtype.kind not in "iu":
            raise DataError(f"gather needs the numbers of rows, got values of type {numbers.dtype}")
        with self.index.lock:
            self.index.check_rows(numbers)
            return self._gather(numbers, **steps)

    def _gather(
        self, rows: Ints, n_step: int = 1, chunk: int | None = None, length: int | None = None, burn_in: int = 0
    ) -> Any:
        flat, held = rows.reshape(-1), (self.storage, self.index)
        whole_number("n_step", n_step)
        batch: Any
        if chunk is not None:
            if length is not None or n_step != 1 or burn_in:
                raise DataError("a chunk has the return of its own steps: leave out n_step, length and burn_in")
            batch = gather_chunks(*held, flat, whole_number("chunk", chunk), self.gamma)
        elif length is not None:
            before = whole_number("burn_in", burn_in, least=0)
            batch = gather_sequences(*held, flat, whole_number("length", length), before, n_step, self.gamma)
        elif burn_in:
            raise DataError("burn_in belongs to sequences: pass length, the steps to learn from")
        else:
            batch = self.storage.gather(flat, self.index, n_step, self.gamma)
        return batch if rows.ndim == 1 else batch._make(reshaped(column, rows.shape) for column in batch)

    def stats(self) -> dict[str, float]:
        """Metrics of the sampling distribution, explained in docs/reference; looks at every row.

        An `effective_share` of 0.25, as `ARB("auto")` holds it, suits learners that ask about no other actions than
        those in a batch, or are pessimistic about others (IQL, Cal-QL). Plain SAC and TD3 begin with 1, `Uniform()`.
        """
        return self.index.stats()

    def to_dataset(self) -> Dataset:
        """Everything the buffer holds, the oldest episode first, with a column `online`.

        An open episode counts as cut off, and of one whose first rows were overwritten the rest is there. If there are
        further origins, a column `origin` has their names.
        """
        with self.index.lock:
            rows, ids, steps = self.index.members()
            extras = self.storage.extras_at(rows) | {"online": self.index.is_online(rows)}
            if len(self.index.origins) > 2:
                extras["origin"] = np.array(self.index.origins)[self.index.origin(rows)]
            dataset = Dataset(
                observations=unwrapped(self.storage.observations(rows)),
                actions=self.storage.at("action", rows),
                rewards=self.storage.at("reward", rows),
                terminals=self.storage.at("terminated", rows),
                lengths=steps,
                final_observations=unwrapped(self.storage.final(ids)),
                extras=extras,
            )
            return dataset.select(self._by_age(rows[dataset.starts]))

    def episodes(self) -> Sequence[Dataset]:
        """Every episode, as `to_dataset` orders them: a copy of what the buffer holds now.

        >>> buffer = ReplayBuffer(10)
        >>> for t in range(4):
        ...     buffer.add([t], [0.0], 1.0, [t + 1], terminated=t % 2 == 1)
        >>> episodes = buffer.episodes()
        >>> len(episodes), episodes[-1].observations.ravel()
        (2, array([2, 3]))
        """
        return self.to_dataset().episodes() if len(self) else ()

    def remove(self, episodes: int | Sequence[int] | Bools) -> int:
        """Remove episodes by their places in `episodes()`, or by a mask; returns the number of rows that went.

        The rows that stay are numbered anew. ARB samples uniformly until the next refresh.
        """
        if self.storage.files is not None:
            raise DataError("episodes cannot be removed from a buffer in files: make it anew with those to keep")
        with self.index.lock:
            rows, ids, steps = self.index.members()
            order = self._by_age(rows[np.cumsum(steps) - steps])
            try:
                chosen = np.atleast_1d(order[np.asarray(episodes)]) if np.size(episodes) else order[:0]
            except IndexError:
                raise DataError(f"there are {len(order)} episodes, 0 to {len(order) - 1}; got {episodes}") from None
            kept = rows[np.repeat(~np.isin(np.arange(len(ids)), chosen), steps)]
            kept = kept[self._by_age(kept)]
            gone = len(self) - len(kept)
            self.storage.keep(kept)
            self.index.keep(kept)
            self._offline, self._loaded = int(self.index.spans(online=False)[1].sum()), "changed"
            return gone

    def clear(self) -> None:
        """Remove everything; what the buffer was made with stays."""
        with self.index.lock:
            self.remove(np.ones(len(self.index.members().episode), bool))
            self._ended, self._loaded = {}, ""

    def _by_age(self, rows: Ints) -> Ints:
        return np.argsort(self.index.insertion_order(rows))

    # ---- saving --------------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str], *, since: int = 0) -> None:
        """Write everything that decides the future of this buffer to one .npz file.

        `since` leaves out the columns of the first rows ever inserted: pass the number of rows that a dataset brought,
        and load the dataset again before `load`. A buffer in files leaves out all columns, which are in its files.
        """
        with self.index.lock:
            if self.storage.files is not None:
                since = self.index.num_added
                self.storage.files.flush()
            header, parts = self.index.state()
            own = {"format": FORMAT, "made": self._made(), "loaded": [self._loaded, self._offline], "since": since}
            columns = {
                "storage": {} if self.storage.files else self.storage.state(self._rows_since(since)),
                "ended": {"env": np.array(list(self._ended), np.int64)},
            }
            write_state(path, header | own, parts | columns)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue as the buffer that was saved there: the next samples are the ones it would have drawn.

        This buffer must have been made with the same arguments; its own content is replaced. If the file leaves out
        a dataset, the same dataset must have been loaded, and nothing else. A file that does not fit, or is damaged,
        is refused with a `DataError`, and this buffer stays as it was.
        """
        header, parts = read_state(path)
        try:
            with self.index.lock:
                self._check_fits(header)
                self.storage.check_fits(parts.get("storage", {}))
                self.index.restore(header, parts)
                if self.storage.files is None:
                    self.storage.restore(parts.get("storage", {}), self._rows_since(header["since"]))
                elif len(self):
                    opened = [episode.id for episode in self.index.open.values()]
                    unfinished = np.isin(self.index.episode_ids[: len(self)], opened)
                    self.storage.columns["return_to_go"][: len(self)][unfinished] = _UNKNOWN
                self._ended = dict.fromkeys(parts["ended"]["env"].tolist())
                self._loaded, self._offline = header["loaded"]
        except DataError as problem:
            raise DataError(f"{path}: {problem}") from None

    def _made(self) -> dict[str, Any]:
        """What a saved buffer must have in common with the one that continues it."""
        names = ("gamma", "boundaries", "failure_reward", "discontinuity", "autoreset")
        bounds = None if self.bounds is None else [bound.tolist() for bound in self.bounds]
        return {name: getattr(self, name) for name in names} | {"action_bounds": bounds}

    def _check_fits(self, header: dict[str, Any]) -> None:
        if header.get("format") != FORMAT:
            problem = f"saved in format {header.get('format')}, and this version reads format {FORMAT}"
            raise DataError(f"{problem}: start again")
        for name, ours in self._made().items():
            if header["made"][name] != ours:
                raise DataError(f"saved with {name}={header['made'][name]}, and this buffer has {name}={ours}")
        since, held = header["since"], self.index.num_added
        if self.storage.files is not None:
            if since != held:
                raise DataError(f"saved with {since} rows, and the files have {held}: do without it, and refresh")
            return
        if since not in (0, held):
            raise DataError(f"leaves out a dataset of {since} rows: load it first, and nothing else (there are {held})")
        if since and header["loaded"][0] != self._loaded:
            raise DataError("leaves out a dataset, and another one of the same size was loaded into this buffer")

    def _rows_since(self, order: int) -> Ints | slice:
        index = self.index
        return index.rows_between(min(max(order, index.oldest), index.num_added), index.num_added)


def _low_and_high(bounds: Any) -> tuple[Array, Array]:
    try:
        low, high = (single_precision(np.asarray(bound)) for bound in bounds)
        ordered = bool((low <= high).all())
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise DataError(f"action_bounds must be (low, high), one number each or one per dimension, got {bounds}")
    return low, high


# ---- steps of environments -------------------------------------------------------------------------------------------
def check_steps(
    before: Leaves,
    action: ArrayLike,
    reward: ArrayLike,
    after: Leaves,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    envs: Sequence[int] | None,
    extras: Mapping[str, Any],
) -> Steps:
    """Bring the arguments of `ReplayBuffer.add_batch` into shape, or say in one line what is wrong with them."""
    rewards = one_per_row("reward", np.asarray(reward), "environment")
    if rewards.dtype.kind not in "biuf":
        raise DataError(f"reward must be one number per environment, got dtype {rewards.dtype}")
    rewards, n = single_precision(rewards), len(rewards)
    ended = flags("terminated", terminated, "environment", _ORDER)
    cut = np.zeros(n, bool) if truncated is None else flags("truncated", truncated, "environment", _ORDER)
    actions = single_precision(np.asarray(action))
    if before.keys() != after.keys():
        raise DataError(f"obs has the keys {list(before)} but next_obs {list(after)}")
    columns = {f"obs[{key!r}]" if key else "obs": column for key, column in before.items()}
    columns |= {f"next_obs[{key!r}]" if key else "next_obs": column for key, column in after.items()}
    _check_rows(columns | {"action": actions, "reward": rewards}, n)
    if len(ended) != n or len(cut) != n:
        _check_rows({"terminated": ended, "truncated": cut}, n)
    more = {name: _extra(name, value) for name, value in extras.items()}
    if more:
        _check_rows(more, n)
    numbers: Sequence[int] = range(n) if envs is None else [int(env) for env in envs]
    if envs is not None and (len(numbers) != n or len(set(numbers)) != n):
        raise DataError(f"envs must name {n} different environments, got {numbers}")
    return Steps(before, actions, rewards, after, ended, cut, more, numbers)


def _extra(name: str, value: Any) -> Array:
    """A further column, unless its name is nearly that of an argument, or one that the buffer needs."""
    near = difflib.get_close_matches(name, _ARGUMENTS, n=1, cutoff=0.85)
    if near or name in _RESERVED:
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DataError(f"{name!r} cannot be a further column{hint}: give it another name")
    return single_precision(np.asarray(value))


def _numeric(data: Dataset, names: Collection[str] | None) -> Leaves:
    """The further columns of a dataset that a buffer keeps."""
    if names is not None and not set(names) <= data.extras.keys():
        unknown = sorted(set(names) - data.extras.keys())
        raise DataError(f"the dataset has no column {', '.join(unknown)}; it has {', '.join(data.extras) or 'none'}")
    kept = data.extras.items() if names is None else [(name, data.extras[name]) for name in names]
    return {name: column for name, column in kept if name not in _RESERVED and column.dtype.kind in "biuf"}


def _check_rows(columns: Leaves, n: int) -> None:
    """Raise a `DataError` unless every column has n rows of finite numbers."""
    floats, size = [], 0
    for name, column in columns.items():
        kind = column.dtype.kind
        if kind not in "biuf":
            raise DataError(f"{name} must hold numbers, got dtype {column.dtype}")
        if column.ndim == 0 or len(column) != n:
            raise DataError(f"{name} has shape {column.shape}, but {n} rewards were given: one row per environment")
        if kind == "f":
            floats.append(column)
            size += column.size
    # One look at all of them is quicker than one at each, and costs a copy, which is little where there is little.
    if size > 1 << 16 or (size and np.count_nonzero(np.isfinite(np.concatenate(floats, axis=None))) < size):
        for name, column in columns.items():
            check_finite(name, column)


def ahead(make: Callable[[], Any], n: int) -> Iterator[Any]:
    """What n calls return; a thread makes each call while the result before it is in use."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(make) if n else None
        for left in range(n - 1, -1, -1):
            assert coming is not None
            value, coming = coming.result(), thread.submit(make) if left else None
            yield value


# ---- automatic resets ------------------------------------------------------------------------------------------------
def autoreset_mode(said: Any) -> str | None:
    """One of `MODES`, from such a word, Gymnasium's `AutoresetMode`, or a vector environment."""
    if said is None:
        return None
    if hasattr(said, "metadata"):
        # In Gymnasium 1.2, vector environments of one class share their metadata: that of the last one made.
        said = getattr(said, "autoreset_mode", None) or (said.metadata or {}).get("autoreset_mode")
        if said is None:
            words = ", ".join(map(repr, MODES))
            raise DataError(f"the environment's metadata has no 'autoreset_mode': pass autoreset= one of {words}")
    word = str(getattr(said, "value", said))
    word = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}.get(word, word)
    check_choice("autoreset", word, MODES)
    return word


def with_final_obs(next_obs: Obs, infos: Mapping[str, Any]) -> Obs:
    """Next observations in which the final ones replace those after a reset, as same-step autoreset returns them."""
    name, ended = ended_in(infos)
    if name is None or not ended.any():
        return next_obs
    final = infos[name]
    after = {key: np.array(column) for key, column in leaves(next_obs).items()}
    every = leaves(final) if isinstance(final, Mapping) else None
    for i in np.flatnonzero(ended):
        own = leaves(final[i]) if every is None else {key: column[i] for key, column in every.items()}
        for key, column in after.items():
            column[i] = own[key]
    return unwrapped(after)


def ended_in(infos: Mapping[str, Any]) -> tuple[str | None, Bools]:
    """The name under which Gymnasium's `infos` have final observations, which has changed, and whose they are."""
    for name in ("final_obs", "final_observation"):
        if f"_{name}" in infos:
            return name, np.asarray(infos[f"_{name}"], bool)
    return None, np.zeros(0, bool)
