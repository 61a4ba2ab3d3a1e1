"""ARB inside Stable-Baselines3: its replay buffers with a strategy of ours, and the callback that refreshes them.

    model = SAC("MlpPolicy", env, replay_buffer_class=ReplayBuffer, replay_buffer_kwargs={"sampler": ARB("auto")})
    model.replay_buffer.load_dataset(dataset)
    model.learn(100_000, callback=RefreshCallback())

The host keeps its columns. They have the shape (positions, environments, ...), or are dicts of such arrays: row r of
ours is position r // environments, environment r % environments.
"""

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from arb.adapters import seed_sequence
from arb.errors import DataError, check_bounds
from arb.replay.arb import ARB
from arb.replay.buffer import Loaded
from arb.replay.dataset import Array, Boundaries, Dataset, Ints, Leaves, as_dataset, differs, leaves, unwrapped
from arb.replay.index import ReplayIndex, whole_number
from arb.replay.samplers import Sampler
from arb.replay.scores import Likelihood, Score, distance_score, tanh_gaussian_score
from arb.replay.storage import n_step_return

try:
    import torch
    from stable_baselines3.common import buffers
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.utils import obs_as_tensor
except ModuleNotFoundError as missing:
    name = missing.name
    raise ModuleNotFoundError(f"arb.adapters.sb3 needs {name}: pip install 'arb-rl[sb3]'", name=name) from None


class ReplayBuffer(buffers.ReplayBuffer):
    """The host's replay buffer, sampled by one of our strategies.

    Arguments other than these are the host's. `optimize_memory_usage` is refused: it overwrites the next observation of
    the oldest row, and a strategy may draw any row.

    The buffer works on a copy of `sampler`, and takes its `seed` from the model if none is given. The host ignores the
    `n_steps` of a model with a buffer class of its own and says so: give it here, with the model's `gamma`.
    `boundaries` says where the episodes of loaded data end, see `arb.replay.dataset`.
    """

    def __init__(
        self,
        *args: Any,
        sampler: Sampler | None = None,
        seed: int | None = None,
        boundaries: Boundaries = "resets",
        n_steps: int = 1,
        gamma: float = 0.99,
        **kwargs: Any,
    ):
        self._check_kind(*args, **kwargs)
        super().__init__(*args, **kwargs)
        self.n_steps, self.gamma = whole_number("n_steps", n_steps), gamma
        if self.optimize_memory_usage:
            raise DataError("optimize_memory_usage overwrites the oldest row's next observation: leave it False")
        self._seeds = seed_sequence(seed)
        self._strategy = ARB() if sampler is None else sampler
        self._boundaries: Boundaries = boundaries
        self._begin()

    def _check_kind(self, _: int = 0, observation_space: Any = None, *__: Any, **kwargs: Any) -> None:
        """Refuse observations that this class cannot hold, and what belongs to the host's hindsight replay."""
        if hasattr(observation_space, "spaces") and not isinstance(self, buffers.DictReplayBuffer):
            raise DataError("the observations are dicts: use replay_buffer_class=arb.adapters.sb3.DictReplayBuffer")
        her = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"} & kwargs.keys()
        if her:
            raise DataError(
                f"{her.pop()} belongs to HerReplayBuffer, which makes up goals when it samples: no strategy can say "
                "how likely such transitions are. Use HerReplayBuffer itself, without arb"
            )

    def _begin(self) -> None:
        # A copy, because the model keeps the sampler it was given and writes it into every file it saves.
        self.index = ReplayIndex(self.buffer_size * self.n_envs, copy.deepcopy(self._strategy), self._seeds)
        self._offline, self._warned, self.has_learned = 0, False, False

    def reset(self) -> None:
        super().reset()
        self._begin()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index.summary})"

    # ---- experience in -------------------------------------------------------------------------------------------
    def add(self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[Any]) -> None:
        # A step that does not start where the last one led begins a trajectory: the host resets its environments
        # without a word each time `learn` is called.
        before, here = self.pos - 1, self.pos
        super().add(obs, next_obs, action, reward, done, infos)
        reached, starts = _named(self.next_observations), _named(self.observations)
        last, first = {key: reached[key][before] for key in starts}, {key: starts[key][here] for key in starts}
        if any(last[key].tobytes() != first[key].tobytes() for key in last):  # quicker than distances
            for env in np.flatnonzero(differs(last, first)).tolist():
                self.index.close(env)
        self.index.append(range(self.n_envs), ends=self.dones[here].tolist())
        if self._offline and not self._warned and self.index.num_added > self.index.capacity:
            self._warned = True
            problem = "the buffer is full, so online steps overwrite offline rows from now on"
            warnings.warn(f"{problem}: a buffer_size above {self.buffer_size} keeps them", stacklevel=2)

    def load_dataset(self, dataset: Dataset | Mapping[str, Any], *, origin: str = "offline") -> Loaded:
        """Append a dataset, or a dict of arrays with D4RL's keys.

        Actions are those of the environment; they are brought to the host's scale, [-1, 1], here. With n environments
        the host stores rows n at a time, so up to n - 1 rows at the end of the dataset are dropped.
        """
        data = as_dataset(dataset, self._boundaries)
        self._check_fits(data)
        past = data.usable()
        rows, capacity = len(past) - len(past) % self.n_envs, self.buffer_size * self.n_envs
        if rows > capacity:
            problem = f"the dataset has {rows} rows but the buffer a capacity of {capacity}"
            raise DataError(f"{problem}: make buffer_size larger (offline rows plus online steps), or load less")
        lengths = np.diff(np.minimum(np.cumsum(past.lengths), rows), prepend=0)
        lengths = lengths[lengths > 0]
        if rows:
            places, _ = self.index.extend(lengths, origin=origin)
            self._offline += 0 if origin == "online" else rows
            self._write(past, places)
            added = self.index.num_added
            self.pos, self.full = added // self.n_envs % self.buffer_size, added >= capacity
        return Loaded(rows, len(lengths), len(data) - rows)

    def _check_fits(self, data: Dataset) -> None:
        held, given, space = _named(self.observations), leaves(data.observations), self.action_space
        found: Any = {key: column.shape[1:] or (1,) for key, column in given.items()}
        wanted: Any = {key: column.shape[2:] for key, column in held.items()}
        shapes = {"observations": (found.get("", found), wanted.get("", wanted))}
        if (data.actions.shape[1:] or (1,)) not in (space.shape, (self.action_dim,)):
            shapes["actions"] = (data.actions.shape[1:], space.shape)
        for name, (ours, theirs) in shapes.items():
            if ours != theirs:
                raise DataError(f"dataset['{name}'] has shape {ours} per step, but the environment's {theirs}")
        for column, ours in [*((given[key], held[key]) for key in held), (data.actions, self.actions)]:
            if not np.can_cast(column.dtype, ours.dtype, "same_kind"):
                raise DataError(f"the dataset holds {column.dtype} where the environment has {ours.dtype}: convert it")
        low, high = (space.low, space.high) if hasattr(space, "low") else (space.start, space.start + space.n - 1)
        check_bounds("dataset['actions']", data.actions.reshape(len(data), *space.shape), low, high)

    def _write(self, past: Dataset, places: Ints) -> None:
        """Fill rows as the host does: its `dones` are all ends of episodes, its `timeouts` take some of them back."""
        action, space = past.actions.reshape(len(past), self.action_dim), self.action_space
        if hasattr(space, "low"):
            low, high = space.low.reshape(-1), space.high.reshape(-1)
            action = 2.0 * (action - low) / (high - low) - 1.0
        over = past.terminals.copy()
        over[past.ends] = True
        columns = {
            "observations": past.observations,
            "next_observations": past.next_observations,
            "actions": action,
            "rewards": past.rewards,
            "dones": over,
            "timeouts": over & ~past.terminals & self.handle_timeout_termination,
        }
        for name, values in columns.items():
            given = _named(values)
            for key, column in _named(getattr(self, name)).items():
                _by_row(column)[places] = given[key][: len(places)].reshape(len(places), *column.shape[2:])

    # ---- batches out ---------------------------------------------------------------------------------------------
    def refresh(self, score: Score | None = None, env: Any = None) -> None:
        """Weigh the rows anew by a score `(obs, action) -> log-likelihood per row`, of actions in [-1, 1].

        See `actor_score`. Strategies that do not ask the policy need none. With `env`, the VecNormalize that a model
        trains with, the score gets normalised observations.
        """

        def score_rows(rows: Ints | slice) -> Any:
            if score is None:
                raise DataError(f"{type(self._strategy).__name__} asks the policy: refresh needs a score")
            obs, action = self._observed(rows)
            return score(self._normalize_obs(obs, env), action)

        self._check_rows_known()
        self.index.refresh(score_rows)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        self._check_rows_known()
        rows = self.index.sample_indices(batch_size)
        self.index.train(rows, self._observed)
        narrow = self._one_environment_wide()
        samples = narrow._get_samples(rows, env=env)
        if self.n_steps == 1:
            return samples
        path = self.index.path(rows, self.n_steps, _by_row(self.dones) > 0)
        last, reward, steps = n_step_return(path, self._normalize_reward(_by_row(self.rewards), env), self.gamma)
        after = narrow._get_samples(last, env=env)
        return samples._replace(
            next_observations=after.next_observations,
            dones=after.dones,
            rewards=self.to_torch(reward.astype(np.float32)[:, None]),
            discounts=self.to_torch((self.gamma**steps).astype(np.float32)[:, None]),
        )

    def _observed(self, rows: Ints | slice) -> tuple[Any, Array]:
        """The observations and actions in these rows, as they are stored."""
        obs = {key: _by_row(column)[rows] for key, column in _named(self.observations).items()}
        return unwrapped(obs), _by_row(self.actions)[rows]

    def _one_environment_wide(self) -> Any:
        """A view of this buffer with a single environment: the host draws the environment of a sample by chance."""
        if self.n_envs == 1:
            return self
        narrow = copy.copy(self)
        narrow.n_envs = 1
        for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
            column = {key: _by_row(column)[:, None] for key, column in _named(getattr(self, name)).items()}
            setattr(narrow, name, unwrapped(column))
        return narrow

    def _check_rows_known(self) -> None:
        if self.size() * self.n_envs != len(self.index):
            raise DataError(
                f"the buffer holds {self.size() * self.n_envs} rows, but {len(self.index)} came in through add or "
                "load_dataset: fill it with these alone, so that trajectories are known"
            )


def _named(columns: Any) -> Leaves:
    """A column as a dict of arrays; a plain array stands under the empty key."""
    return columns if isinstance(columns, dict) else {"": columns}


def _by_row(column: Array) -> Array:
    return column.reshape(-1, *column.shape[2:])


class DictReplayBuffer(ReplayBuffer, buffers.DictReplayBuffer):
    """The same for observations that are dicts."""


class RefreshCallback(BaseCallback):
    """Refreshes the buffer between collecting and training `every` so many steps, and logs metrics as `arb/...`.

    A `score` of your own, `(obs, action) -> log-likelihood per row` of actions in [-1, 1], replaces `actor_score`.
    """

    def __init__(
        self, every: int = 1000, *, likelihood: Likelihood = "standard", score: Score | None = None, verbose: int = 0
    ):
        super().__init__(verbose)
        self.every, self.likelihood, self._given = every, likelihood, score

    def _init_callback(self) -> None:
        buffer = self.model.replay_buffer
        if not isinstance(buffer, ReplayBuffer):
            raise DataError(f"RefreshCallback needs a model with arb's ReplayBuffer, not {type(buffer).__name__}")
        gamma = self.model.gamma
        if buffer.n_steps > 1 and buffer.gamma != gamma:
            mine = f"the buffer sums {buffer.n_steps} rewards with gamma={buffer.gamma}"
            raise DataError(f"{mine}, but the model has gamma={gamma}: pass gamma={gamma} in replay_buffer_kwargs")
        filled = int(buffer.index.spans(online=True)[1].sum())
        if filled and self.model.num_timesteps == 0 and not buffer.has_learned:
            warnings.warn(
                f"{filled} rows were added before learning and count as online steps: if they are past data, give them "
                "to load_dataset",
                stacklevel=2,
            )
        buffer.has_learned = True
        own = self._given is None and buffer.index.sampler.needs_scores
        self._score = actor_score(self.model, self.likelihood) if own else self._given

    def _on_rollout_end(self) -> None:
        buffer = self.model.replay_buffer
        if not buffer.index.is_due(self.every):
            return
        buffer.refresh(self._score, self.model.get_vec_normalize_env())
        for name, value in buffer.index.stats().items():
            self.logger.record(f"arb/{name}", value)

    def _on_step(self) -> bool:
        return True


def actor_score(model: Any, likelihood: Likelihood = "standard") -> Score:
    """How likely actions in [-1, 1] are under the actor of a model: SAC, or another with SAC's kind of actor.

    A deterministic actor, as that of TD3 and DDPG, has `arb.distance_score`.
    """
    if getattr(model, "actor", None) is None:
        raise DataError(
            f"{type(model).__name__} has no actor that could say how likely an action is: use SAC or TD3, a strategy "
            "that does not ask (arb.Uniform, arb.Mixed), or RefreshCallback(score=...) with a score of your own"
        )

    stochastic = hasattr(model.actor, "get_action_dist_params")

    def policy(obs: Any) -> Any:
        actor, inputs = model.actor, obs_as_tensor(obs, model.device)
        actor.set_training_mode(False)  # as the host does before it acts; its train() switches back
        with torch.no_grad():
            if not stochastic:
                return actor(inputs)
            mean, log_std, latent = actor.get_action_dist_params(inputs)
            gaussian = actor.action_dist.proba_distribution(mean, log_std, **latent).distribution
        return gaussian.mean, gaussian.stddev.log()

    return tanh_gaussian_score(policy, likelihood) if stochastic else distance_score(policy)
