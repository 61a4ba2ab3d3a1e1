"""What a configuration describes: dataset, environment, preprocessing, score, and the agents and buffers made for them.

Preprocessing is fitted to the dataset once and applied to file and environment alike.
"""

import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self
from zlib import crc32

import gymnasium
import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.data.audit import faults
from arb.data.episodes import DataWarning
from arb.data.formats import split_columns
from arb.data.tasks import Family, Reference, env_reference, family_of, normalised, task_of
from arb.envs import env_id, flat_vector, flattened, make
from arb.envs.rollout import ActionMap
from arb.errors import DataError, EnvironmentFailure, Interrupted
from arb.files import digest
from arb.lab.agents import AGENTS, agent_label, agent_row
from arb.lab.config import Config, Preprocessing, flat
from arb.lab.estimate import split
from arb.lab.folder import Shared
from arb.lab.strategies import strategy_row
from arb.policies.export import shapes_of
from arb.replay.buffer import ReplayBuffer
from arb.replay.dataset import Dataset
from arb.replay.samplers import Sampler
from arb.suite.datasets import load_dataset
from arb.suite.recorder import versions

Floats = NDArray[np.float32]
EPSILON = 1e-3
"""Added to standard deviations (CORL), so that a column that never moves stays finite."""
RETURN_RANGE = 1000.0
"""Rewards scaled by the range of returns make the returns of the dataset span this much (IQL's convention)."""
ROUNDING = 1e-3
"""How far beyond its bounds, in half widths, a recorded action may lie for float rounding's sake."""
_VERSIONS = ("arb-rl", "numpy", "jax", "jaxlib", "optax", "gymnasium", "mujoco")
_CHUNK = 1 << 16


def stream(seed: int, *names: str | int) -> np.random.SeedSequence:
    """The seeds of a named stream of a run: every source of randomness has its own, so more of one disturbs no other.

    >>> stream(0, "eval", 1000).generate_state(1)[0] == stream(0, "eval", 1000).generate_state(1)[0]
    np.True_
    """
    return np.random.SeedSequence([seed, *(crc32(str(name).encode()) for name in names)])


def key_of(seed: int, *names: str | int) -> jax.Array:
    """The JAX key of a named stream of a run."""
    return jax.random.key(int(stream(seed, *names).generate_state(1)[0]))


# ---- preprocessing ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Normalization:
    """Preprocessing as fitted to a dataset. `mean` and `std` are None where observations are left alone."""

    mean: Floats | None = None
    std: Floats | None = None
    scale: float = 1.0
    shift: float = 0.0

    def observations(self, obs: ArrayLike) -> Floats:
        """One observation, or any stack of them, as float32."""
        raw = np.asarray(obs, np.float32)
        if self.mean is None or self.std is None:
            return raw
        normalized = np.asarray(raw - self.mean)
        normalized /= self.std  # in place: a column may be as large as half the memory
        return normalized

    def rewards(self, rewards: ArrayLike) -> Floats:
        """One reward, or any stack of them, as float32."""
        return np.asarray(self.scale * np.asarray(rewards, np.float64) + self.shift, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a checkpoint or a record; exact."""
        mean, std = (None if part is None else part.tolist() for part in (self.mean, self.std))
        return {"mean": mean, "std": std, "scale": self.scale, "shift": self.shift}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        mean, std = (None if said[name] is None else np.asarray(said[name], np.float32) for name in ("mean", "std"))
        return cls(mean, std, float(said["scale"]), float(said["shift"]))


def fit(rule: Preprocessing, observations: NDArray[Any], returns: NDArray[np.float64]) -> Normalization:
    """Fit preprocessing to the observations and the raw returns of a dataset, once and for all."""
    mean = std = None
    if rule.normalize_observations:
        mean, std = moments(observations)
        std = std + np.float32(EPSILON)
    scale = rule.reward_factor * (return_scale(returns) if rule.reward_scale == "return_range" else 1.0)
    return Normalization(mean, std, scale, rule.reward_shift)


def moments(observations: NDArray[Any]) -> tuple[Floats, Floats]:
    """Mean and (population) standard deviation per column, accumulated in double precision, a block at a time."""
    blocks = [observations[start : start + _CHUNK] for start in range(0, len(observations), _CHUNK)]
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks) / len(observations)
    squares = sum(((block - mean) ** 2).sum(0) for block in blocks)
    return np.asarray(mean, np.float32), np.asarray(np.sqrt(squares / len(observations)), np.float32)


def return_scale(returns: NDArray[np.float64]) -> float:
    """1000 over the distance from the worst to the best return, of true episodes (CORL's scan drifts across ends)."""
    span = float(returns.max() - returns.min())
    if span == 0.0:
        raise DataError("all episodes have the same return: add preprocessing.reward_scale=none")
    return RETURN_RANGE / span


class Preprocessed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations and rewards are normalised; `info["raw_reward"]` is what scores are made of."""

    def __init__(self, env: gymnasium.Env[Any, Any], normalization: Normalization) -> None:
        super().__init__(env)
        self.normalization = normalization
        space = env.observation_space
        if isinstance(space, gymnasium.spaces.Box):
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with self._failing("a reset"):
            obs, info = self.env.reset(seed=seed, options=options)
        self._check_finite("observation", obs)
        return self.normalization.observations(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with self._failing("a step"):
            obs, reward, terminated, truncated, info = self.env.step(action)
        raw = float(reward)
        self._check_finite("reward", raw)
        self._check_finite("observation", obs)
        seen = float(self.normalization.rewards(raw))
        return self.normalization.observations(obs), seen, terminated, truncated, {**info, "raw_reward": raw}

    @contextmanager
    def _failing(self, where: str) -> Iterator[None]:
        """What the environment raises, as one line."""
        try:
            yield
        except (DataError, EnvironmentFailure, Interrupted):
            raise
        except Exception as problem:
            said = " ".join(str(problem).split())
            raise EnvironmentFailure(f"{self._name} failed in {where}: {type(problem).__name__}: {said}") from problem

    @property
    def _name(self) -> str:
        return self.spec.id if self.spec else type(self.unwrapped).__name__

    def _check_finite(self, what: str, value: Any) -> None:
        if not np.isfinite(value).all():
            entry = f" in entry {int(np.flatnonzero(~np.isfinite(np.ravel(value)))[0])}" if np.ndim(value) else ""
            raise EnvironmentFailure(f"{self._name} returned a value that is not finite as {what}{entry}")


def load_data(task: str, place: str | None = None) -> Dataset:
    """The dataset of a task, perhaps from another place; an audit says more than warnings would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return load_dataset(place or task, split_columns(task)[1])


# ---- the setup of a run ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Setup:
    """A dataset as an agent sees it, and the environment it is evaluated in."""

    config: Config
    dataset: Dataset
    """Observations as vectors, preprocessed; actions and rewards as the agent sees them."""
    raw_rewards: NDArray[np.float32]
    data: Mapping[str, Any]
    """`rows`, `episodes`, `mean_return`, `best_return` and `sha256` of the dataset as it was loaded."""
    env: str
    family: Family
    reference: Reference | None
    normalization: Normalization
    actions: ActionMap
    parts: Any = None
    """Of dict observations the shape of each part by its name."""
    held_out: tuple[Dataset, NDArray[np.float32]] | None = None
    """Episodes for estimates that are not in `dataset`, and their raw rewards."""
    robot: gymnasium.Env[Any, Any] | None = None
    """With hardware the one environment, open from the beginning."""
    faults: tuple[str, ...] = ()
    """What an audit found that makes the data unsound, where one was asked for."""

    @classmethod
    def of(
        cls,
        config: Config,
        data: Dataset | None = None,
        audited: bool = False,
        fitted: Mapping[str, Any] | None = None,
        shared: Shared | None = None,
    ) -> Self:
        """Load the data, unless the caller has it, find its environment, and fit the preprocessing.

        To look for faults in the data (`audited`) takes a moment. `fitted` is what `describe` said of the run that this
        one continues, whose preprocessing it keeps. Other runs with the same data as their agents see it may be
        `shared`.
        """
        made = make(config.env) if config.env else None  # a mistake in its name should not wait for the data
        raw, task = load_data(config.task) if data is None else data, task_of(config.task)
        env = config.env
        by_data = config.evaluation.by == "data"
        if by_data and getattr(config.settings, "chunk", 1) > 1:
            raise DataError(
                f"evaluation.by=data knows only policies that choose one action at a time, and {config.agent} chooses "
                f"{config.settings.chunk}: evaluate it in an environment, or choose another agent"
            )
        if not env and not (by_data and (config.source == "files" or not config.schedule.online)):
            env = task.env if task else str(raw.provenance.get("env", ""))
            if not env:
                raise DataError(
                    f"{config.task} does not name its environment: add --env with a Gymnasium id, or schedule.online=0 "
                    "to train on the data alone"
                )
            if ":" in env and not task:
                raise DataError(f"{config.task} was recorded in {env}, and a file may not load code: add --env {env}")
            made = make(env)
        observations = flat_vector(raw.observations, (len(raw),))
        actions = ActionMap(made.action_space if made else action_space(raw, fitted))
        _check_kind_of_actions(config, env or config.task, "discrete" if actions.discrete else "continuous")
        if made:
            check_observations(observations, env, flattened(made).observation_space)
        before = (fitted or {}).get("normalization")
        normalization = (
            Normalization.from_dict(before) if before else fit(config.preprocessing, observations, raw.episode_returns)
        )
        see = partial(as_seen, raw, normalization, actions, env or config.task)
        key = digest([raw.fingerprint, normalization.to_dict(), actions.bounds(), env], {})
        seen, rewards, held_out = shared.get(key, see) if shared else see(), raw.rewards, None
        robot = Preprocessed(flattened(made), normalization) if made and config.source == "hardware" else None
        if made and robot is None:
            made.close()
        if by_data:
            chance = np.random.default_rng(stream(config.seed, "held out"))
            kept, held = split(seen, config.evaluation.held_out, chance)
            of = seen.episode_ids
            held_out = seen.select(held), rewards[np.isin(of, held)]
            seen, rewards = seen.select(kept), rewards[np.isin(of, kept)]
        return cls(
            config=config,
            dataset=seen,
            raw_rewards=rewards,
            data={
                "rows": len(raw),
                "episodes": raw.num_episodes,
                "mean_return": float(raw.episode_returns.mean()),
                "best_return": float(raw.episode_returns.max()),
                "sha256": raw.fingerprint,
            },
            env=env,
            family=family_of(config.task, env),
            reference=task.reference if task else env_reference(env),
            normalization=normalization,
            actions=actions,
            parts=shapes_of(raw.observations),
            held_out=held_out,
            robot=robot,
            faults=tuple(faults(raw, made.spec.max_episode_steps if made and made.spec else None)) if audited else (),
        )

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """The environment as the agent sees it; with hardware always the same one."""
        return self.robot or Preprocessed(flattened(make(self.env)), self.normalization)

    def recorded(self, raw: Dataset, name: str) -> Dataset:
        """Episodes that came later as the agent sees them; a `DataError` if they are of another kind."""
        kinds = (
            (shapes_of(raw.observations), flat_vector(raw.observations, (len(raw),)).shape[1]),
            (self.parts, self.dims[0]),
        )
        if kinds[0] != kinds[1]:
            have, need = (f"the parts {parts}" if parts else f"{size} numbers" for parts, size in kinds)
            raise DataError(f"{name} has observations of {have}, the data of this run {need}")
        return as_seen(raw, self.normalization, self.actions, name)

    def scores(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Normalised scores, or the returns themselves where there is no reference."""
        return normalised(returns, self.reference)

    @property
    def settings(self) -> Any:
        """The agent's settings, with what the environment decides."""
        return replace(self.config.settings, actions="discrete") if self.actions.discrete else self.config.settings

    @property
    def unlimited(self) -> bool:
        return bool(self.env) and gymnasium.spec(env_id(self.env).rpartition(":")[2]).max_episode_steps is None

    @property
    def memory(self) -> int:
        """Bytes of the arrays of a run: the dataset, and a buffer of it and the online steps."""
        columns = (self.dataset.observations, self.dataset.observations, self.dataset.actions, self.dataset.rewards)
        size = sum(np.asarray(column).nbytes for column in columns)
        return 2 * size + size * self.config.schedule.online // len(self.dataset)

    @property
    def dims(self) -> tuple[int, int]:
        """Sizes of an observation and of an action."""
        return np.asarray(self.dataset.observations).shape[1], self.actions.size

    def strategy(self) -> tuple[Dataset, Sampler]:
        """The dataset as the strategy keeps it, and its sampler.

        Filters see raw rewards: with AntMaze's shift of -1 per step, the shortest trajectories would look best.
        """
        row, (obs_dim, action_dim) = strategy_row(self.config.replay.strategy), self.dims
        sampler = row.make(
            self.config.replay,
            seed=int(stream(self.config.seed, "ratio").generate_state(1)[0]),
            obs_dim=obs_dim,
            action_dim=action_dim,
            online_steps=self.config.schedule.online,
        )
        if row.keeps_all:
            return self.dataset, sampler
        keep: Any = sampler
        raw = replace(self.dataset, rewards=self.raw_rewards, extras={"preprocessed": self.dataset.rewards})
        kept: Dataset = keep.filter(raw)
        return replace(kept, rewards=kept.extras["preprocessed"], extras={}), sampler

    def new_buffer(self, sampler: Sampler, capacity: int, name: str) -> ReplayBuffer:
        """A buffer with this sampler; Monte-Carlo returns are of the rewards that the critics see."""
        known_failure = self.family.sparse and agent_row(self.config.agent).calibrated
        return ReplayBuffer(
            capacity,
            sampler,
            gamma=self.config.settings.discount,
            seed=stream(self.config.seed, "buffer", name),
            failure_reward=float(self.normalization.rewards(0.0)) if known_failure else None,
            autoreset="disabled",  # the collector resets its environment itself
        )

    def describe(self) -> dict[str, Any]:
        """What belongs beside every result: the complete configuration, the data's hash, and all versions."""
        return {
            "config": flat(self.config),
            "env": self.env,
            "data": dict(self.data),
            "reference": list(self.reference) if self.reference else None,
            "normalization": self.normalization.to_dict(),
            "actions": self.actions.bounds(),
            "versions": {"python": platform.python_version(), **versions(*_VERSIONS)},
        }


def as_seen(raw: Dataset, normalization: Normalization, actions: ActionMap, env: str) -> Dataset:
    """Recorded episodes as the agent sees them."""
    final = raw.final_observations
    return Dataset(
        normalization.observations(flat_vector(raw.observations, (len(raw),))),
        agent_actions(_columns(raw.actions), env, actions),
        normalization.rewards(raw.rewards),
        raw.terminals,
        raw.lengths,
        None if final is None else normalization.observations(flat_vector(final, (raw.num_episodes,))),
    )


def _columns(actions: ArrayLike) -> NDArray[Any]:
    """Actions with an axis for their entries, also if there is only one."""
    recorded = np.asarray(actions)
    return recorded[:, None] if recorded.ndim == 1 else recorded


def action_space(raw: Dataset, fitted: Mapping[str, Any] | None) -> gymnasium.Space[Any]:
    """The actions of data without an environment: as in the run that is continued, as the file says, or as recorded."""
    recorded = _columns(raw.actions)
    said = (fitted or {}).get("actions")
    if (said and "n" in said) or (not said and recorded.dtype.kind in "iu" and recorded.size == len(recorded)):
        start = int(said["start"] if said else recorded.min())
        return gymnasium.spaces.Discrete(int(said["n"] if said else recorded.max() - start + 1), start=start)
    names = {"low": recorded.min(0), "high": recorded.max(0)}
    found = {k: (said or {}).get(k, raw.provenance.get(f"action_{k}", usual)) for k, usual in names.items()}
    low, high = (np.broadcast_to(np.asarray(found[k], np.float32), recorded.shape[1:]) for k in names)
    if not (low < high).all():
        raise DataError(
            f"action {int(np.argmin(high - low))} never changes in the data: give --env, or drop its column"
        )
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


# ---- does the data fit the environment? ------------------------------------------------------------------------------
def check_observations(recorded: Any, env: str, space: gymnasium.Space[Any]) -> None:
    """Refuse observations that the environment does not give, or that no agent here can read."""
    shape = space.shape or ()
    if len(shape) > 2 or (len(shape) == 2 and space.dtype == np.uint8):
        raise DataError(
            f"{env} gives images of shape {shape}, and the agents of `arb run` read vectors: use arb.ReplayBuffer, "
            "which stores images, in a training loop of your own (docs/buffer.md)"
        )
    if not isinstance(space, gymnasium.spaces.Box) or len(shape) != 1:
        raise DataError(
            f"{env} gives observations of {space}, and the agents read vectors: register it wrapped in "
            "gymnasium.wrappers.FlattenObservation, and record its data the same way"
        )
    if recorded.shape[1:] != shape:
        raise DataError(
            f"the data has observations of shape {recorded.shape[1:]}, {env} gives {shape}: "
            "was it recorded in another environment?"
        )


def agent_actions(recorded: NDArray[Any], env: str, actions: ActionMap) -> NDArray[Any]:
    """Recorded actions as the agents see them."""
    if actions.discrete:
        numbers, first, last = recorded.reshape(len(recorded), -1), actions.start, actions.start + actions.size - 1
        if numbers.shape[1] != 1 or not np.isin(numbers, np.arange(first, last + 1)).all():
            raise DataError(
                f"{env} has {actions.size} discrete actions: the data must hold one number from {first} to {last}"
            )
        return actions.to_agent(numbers[:, 0].astype(np.int64))
    if recorded.shape[1:] != (actions.size,):
        raise DataError(f"the data has actions of shape {recorded.shape[1:]}, {env} takes ({actions.size},)")
    scaled = actions.to_agent(recorded)
    if np.abs(scaled).max(initial=0.0) > 1.0 + ROUNDING:
        row, column = np.unravel_index(np.abs(scaled).argmax(), scaled.shape)
        low, high = ((actions.middle + sign * actions.half)[column] for sign in (-1, 1))
        raise DataError(
            f"action {recorded[row, column]:g} in row {row} of the data is outside the bounds of {env}, "
            f"{low:g} to {high:g}: rescale the actions, or clip them if the environment did"
        )
    return scaled


def _check_kind_of_actions(config: Config, env: str, kind: str) -> None:
    if not agent_row(config.agent).discrete:
        if kind == "discrete":
            can = " or ".join(name for name, row in AGENTS.items() if row.discrete)
            raise DataError(
                f"{env} has discrete actions, which {agent_label(config.agent)} does not support: choose --agent {can}"
            )
    elif config.settings.actions not in (None, kind):
        raise DataError(f"{env} has {kind} actions: leave out settings.actions={config.settings.actions}")
