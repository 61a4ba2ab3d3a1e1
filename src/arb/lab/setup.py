"""What a configuration describes: dataset, environment, shaping, score, and the agents and buffers made for them."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from zlib import crc32

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from arb.data import Reference, fingerprint, normalised
from arb.data.audit import joined_episodes, limits_as_terminals, serious
from arb.data.columns import finish
from arb.data.load import read_raw, split_columns
from arb.data.tasks import Family, env_reference, family_of, task_of
from arb.envs import flat_vector, flattened, make
from arb.envs.rollout import ActionMap
from arb.errors import DataError
from arb.lab.algorithms import AGENTS, agent_class, agent_label, agent_row, tuned
from arb.lab.config import Config, flat
from arb.lab.preprocessing import Shaped, Shaping, fit
from arb.lab.runfolder import refuse_module
from arb.lab.strategies import prepare
from arb.replay.buffer import ReplayBuffer
from arb.replay.samplers import Sampler
from arb.suite.recorder import versions

ROUNDING = 1e-3
"""How far beyond its bounds, in half widths, a recorded action may lie for float rounding's sake."""
_VERSIONS = ("arb-rl", "numpy", "jax", "jaxlib", "optax", "gymnasium", "mujoco")


def stream(seed: int, *names: str | int) -> np.random.SeedSequence:
    """The seeds of a named stream of a run: every source of chance has its own, so more of one disturbs no other.

    >>> stream(0, "eval", 1000).generate_state(1)[0] == stream(0, "eval", 1000).generate_state(1)[0]
    np.True_
    """
    return np.random.SeedSequence([seed, *(crc32(str(name).encode()) for name in names)])


def key_of(seed: int, *names: str | int) -> jax.Array:
    """The same as a JAX key."""
    return jax.random.key(int(stream(seed, *names).generate_state(1)[0]))


@dataclass(frozen=True)
class Problem:
    """A dataset as an agent sees it, and the environment it is evaluated in."""

    config: Config
    dataset: Mapping[str, Any]
    raw_rewards: NDArray[np.float32]
    data_hash: str
    env: str
    family: Family
    reference: Reference | None
    shaping: Shaping
    actions: ActionMap
    faults: tuple[str, ...] = ()
    """What an audit found that makes the data unsound, where one was asked for."""

    @classmethod
    def of(cls, config: Config, source: str | None = None, audited: bool = False) -> Self:
        """Load the data, find its environment, and fit the shaping.

        Args:
            config: the run.
            source: where the data lies on this machine, if not where the configuration says.
            audited: whether to look for faults in the data, which takes a moment.
        """
        if config.env:
            make(config.env).close()  # a mistake in its name should not wait for the data
        raw_columns, name, attributes = read_raw(source or config.task, split_columns(config.task)[1])
        data, task = finish(raw_columns, name, attributes), task_of(config.task)
        faults = [*serious(data, raw_columns)] if audited else []
        del raw_columns
        env = config.env or (task.env if task else str(data.attributes.get("env", "")))
        if not config.env and not task:
            refuse_module(env, f"{config.task} was recorded in {env}, which", f"add --env {env}")
        if not env:
            raise DataError(f"{config.task} does not name its environment: add --env with a Gymnasium id")
        family = family_of(config.task, env)
        made = make(env)
        actions = ActionMap(made.action_space)
        _refuse_other_actions(config, env, "discrete" if actions.discrete else "continuous")
        refuse_images(env, made.observation_space)
        columns = vectors(data.columns)
        refuse_other_observations(columns["observations"], env, flattened(made).observation_space)
        made.close()
        rule = tuned(config.agent, family).rule
        assert rule is not None
        shaping = fit(rule, columns)
        dataset = shaping.dataset(columns)
        dataset["actions"] = agent_actions(np.asarray(dataset["actions"]), env, actions)
        reference = task.reference if task else env_reference(env)
        raw = np.asarray(data.columns["rewards"], np.float32)
        limit = made.spec.max_episode_steps if made.spec and audited else None
        faults += [limits_as_terminals(data.columns, limit), joined_episodes(data.columns, limit)]
        told = tuple(filter(None, faults))
        return cls(config, dataset, raw, fingerprint(data.columns), env, family, reference, shaping, actions, told)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """The environment as the agent sees it."""
        return Shaped(flattened(make(self.env)), self.shaping)

    def scores(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Normalised scores, or the returns themselves where there is no reference."""
        return normalised(returns, self.reference)

    def new_agent(self, key: jax.Array) -> Any:
        """A fresh agent for this problem."""
        return agent_class(self.config.agent).create(key, *self.dims, self.settings)

    @property
    def settings(self) -> Any:
        """The agent's settings, with what the environment decides."""
        return replace(self.config.settings, actions="discrete") if self.actions.discrete else self.config.settings

    @property
    def unlimited(self) -> bool:
        """Whether the environment sets no limit to its episodes."""
        return gymnasium.spec(self.env.rpartition(":")[2]).max_episode_steps is None

    @property
    def memory(self) -> int:
        """Bytes of the arrays of a run: the dataset, and a buffer of it and the online steps."""
        size = sum(np.asarray(column).nbytes for column in self.dataset.values())
        rows = len(self.dataset["rewards"])
        return 2 * size + size * self.config.schedule.online // max(rows, 1)

    @property
    def dims(self) -> tuple[int, int]:
        """Sizes of an observation and of an action."""
        return int(np.prod(self.dataset["observations"].shape[1:])), self.actions.size

    def strategy(self) -> tuple[Mapping[str, Any], Sampler]:
        """The dataset as the strategy keeps it, and its sampler."""
        seed = int(stream(self.config.seed, "ratio").generate_state(1)[0])
        sizes = (*self.dims, self.config.schedule.online)
        return prepare(self.config.replay, self.dataset, self.raw_rewards, seed, sizes)

    def new_buffer(self, sampler: Sampler, capacity: int, name: str) -> ReplayBuffer:
        """A buffer with this sampler; Monte-Carlo returns are of shaped rewards, as the critics' values are."""
        known_failure = self.family.sparse and agent_row(self.config.agent).calibrated
        return ReplayBuffer(
            capacity,
            sampler,
            gamma=self.config.settings.discount,
            seed=stream(self.config.seed, "buffer", name),
            failure_reward=float(self.shaping.rewards(0.0)) if known_failure else None,
            autoreset="disabled",  # the collector resets its environment itself
        )


def describe_run(problem: Problem) -> dict[str, Any]:
    """What belongs beside every result: the complete configuration, the data's hash, and all versions."""
    return {
        "config": flat(problem.config),
        "env": problem.env,
        "data": {"rows": len(problem.dataset["rewards"]), "sha256": problem.data_hash},
        "reference": list(problem.reference) if problem.reference else None,
        "shaping": problem.shaping.to_dict(),
        "versions": {"python": platform.python_version(), **versions(*_VERSIONS)},
    }


# ---- does the data fit the environment? ------------------------------------------------------------------------------
def refuse_other_observations(recorded: Any, env: str, space: gymnasium.Space[Any]) -> None:
    """Refuse observations that the environment does not give, or that no agent here can read."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise DataError(
            f"{env} gives observations of {space}, and the agents read vectors: register it wrapped in "
            "gymnasium.wrappers.FlattenObservation, and record its data the same way"
        )
    if recorded.shape[1:] != space.shape:
        raise DataError(
            f"the data has observations of shape {recorded.shape[1:]}, {env} gives {space.shape}: "
            "was it recorded in another environment?"
        )


def refuse_images(env: str, space: gymnasium.Space[Any]) -> None:
    """Refuse image observations: the networks here have no encoder for them."""
    shape = space.shape or ()
    if len(shape) > 2 or (len(shape) == 2 and space.dtype == np.uint8):
        raise DataError(
            f"{env} gives images of shape {shape}, and the agents of `arb run` read vectors: use arb.ReplayBuffer, "
            "which stores images, in a training loop of your own (docs/buffer.md)"
        )


def vectors(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a dataset with observations in parts joined to vectors, as the environment's are."""
    rows = (len(columns["rewards"]),)
    parts = [name for name in ("observations", "next_observations") if isinstance(columns.get(name), Mapping)]
    return {**columns, **{name: flat_vector(columns[name], rows) for name in parts}}


def agent_actions(recorded: NDArray[Any], env: str, actions: ActionMap) -> NDArray[Any]:
    """Recorded actions as the agents see them."""
    if actions.discrete:
        return _numbers(recorded, env, actions)
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


def _numbers(recorded: NDArray[Any], env: str, actions: ActionMap) -> NDArray[Any]:
    numbers, first, last = recorded.reshape(len(recorded), -1), actions.start, actions.start + actions.size - 1
    if numbers.shape[1] != 1 or not np.isin(numbers, np.arange(first, last + 1)).all():
        raise DataError(
            f"{env} has {actions.size} discrete actions: the data must hold one number from {first} to {last}"
        )
    return actions.to_agent(numbers[:, 0].astype(np.int64))


def _refuse_other_actions(config: Config, env: str, kind: str) -> None:
    if not agent_row(config.agent).discrete:
        if kind == "discrete":
            can = [name for name, row in AGENTS.items() if row.discrete]
            unable = f"{env} has discrete actions, which {agent_label(config.agent)} does not support"
            raise DataError(f"{unable}: choose --agent {' or '.join(can)}")
    elif config.settings.actions not in (None, kind):
        raise DataError(f"{env} has {kind} actions: leave out settings.actions={config.settings.actions}")
