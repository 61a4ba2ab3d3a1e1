"""What a configuration comes to: dataset, environment, shaping, score, and the agents and buffers made for them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from arb.agents.saving import BUILT_IN
from arb.buffer.replay import ReplayBuffer
from arb.buffer.samplers import Sampler
from arb.data import Reference, fingerprint, normalised, read
from arb.data.info import task_of
from arb.envs.rollout import ActionMap
from arb.errors import DataError
from arb.runs.config import Config, flat
from arb.runs.shaping import Shaped, Shaping, fit, rule_for
from arb.runs.spaces import agent_actions, refuse_other_observations
from arb.runs.strategies import prepare
from arb.runs.streams import stream
from arb.tasks import env_reference
from arb.tasks import family_of as family_of_env

_VERSIONS = ("arb-rl", "numpy", "jax", "jaxlib", "optax", "gymnasium", "mujoco")
_CLASSES = {name.lower(): kind for name, kind in BUILT_IN.items()}


@dataclass(frozen=True)
class Problem:
    """A dataset as an agent sees it, and the environment it is evaluated in."""

    config: Config
    dataset: Mapping[str, Any]
    raw_rewards: NDArray[np.float32]
    data_hash: str
    env: str
    family: str
    reference: Reference | None
    shaping: Shaping
    actions: ActionMap

    @classmethod
    def of(cls, config: Config, source: str | None = None) -> Problem:
        """Load the data, find its environment, and fit the shaping.

        `source` is where the data lies on this machine, if not where the configuration says.
        """
        data, task = read(source or config.task), task_of(config.task)
        recorded = str(data.attributes.get("env", ""))
        env = config.env or (task.env if task else recorded)
        if ":" in recorded and env == recorded and not config.env:
            raise DataError(f"{config.task} was recorded in {env}, whose module a file may not load: add --env {env}")
        if not env:
            raise DataError(f"{config.task} does not say its environment: add --env with a Gymnasium id")
        family = family_of(config.task, config.env)
        made = _made(env)
        actions = ActionMap(made.action_space)
        _refuse_other_actions(config, env, "discrete" if actions.discrete else "continuous")
        refuse_other_observations(data.columns["observations"], env, made.observation_space)
        shaping = fit(rule_for(config.agent, family), data.columns)
        dataset = shaping.dataset(data.columns)
        dataset["actions"] = agent_actions(np.asarray(dataset["actions"]), env, actions)
        reference = task.reference if task else env_reference(env)
        raw = np.asarray(data.columns["rewards"], np.float32)
        return cls(config, dataset, raw, fingerprint(data.columns), env, family, reference, shaping, actions)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """The environment as the agent sees it."""
        return _made(self.env, self.shaping)

    def scores(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Normalised scores, or the returns themselves where there is no reference."""
        return returns if self.reference is None else normalised(returns, self.reference)

    def new_agent(self, key: jax.Array) -> Any:
        """A fresh agent for this problem."""
        return _CLASSES[self.config.agent].create(key, *self.dims, self.settings)

    @property
    def settings(self) -> Any:
        """The agent's settings, with what the environment decides."""
        return replace(self.config.settings, actions="discrete") if self.actions.discrete else self.config.settings

    @property
    def unlimited(self) -> bool:
        """Whether the environment sets no limit to its episodes."""
        return gymnasium.spec(self.env.rpartition(":")[2]).max_episode_steps is None

    @property
    def dims(self) -> tuple[int, int]:
        """Sizes of an observation and of an action."""
        return int(np.prod(self.dataset["observations"].shape[1:])), self.actions.size

    def strategy(self) -> tuple[Mapping[str, Any], Sampler]:
        """The dataset as the strategy keeps it, and its sampler."""
        seed = int(stream(self.config.seed, "ratio").generate_state(1)[0])
        return prepare(self.config.replay, self.dataset, self.raw_rewards, seed, self.dims)

    def new_buffer(self, sampler: Sampler, capacity: int, name: str) -> ReplayBuffer:
        """A buffer with this sampler; Monte-Carlo returns are of shaped rewards, as the critics' values are."""
        sparse = self.config.agent == "calql" and self.family == "antmaze"
        return ReplayBuffer(
            capacity,
            sampler,
            gamma=self.config.settings.discount,
            seed=stream(self.config.seed, "buffer", name),
            failure_reward=float(self.shaping.rewards(0.0)) if sparse else None,
        )


def family_of(source: str, env: str = "") -> str:
    """`antmaze` or `locomotion`, which decides the paper's settings.

    Data of one's own is taken as the latter, unless its environment is given and is one of AntMaze's.
    """
    task = task_of(source)
    family = task.family if task else family_of_env(env)
    return family if family in ("antmaze", "locomotion") else "locomotion"


def describe_run(config: Config, problem: Problem | None = None) -> dict[str, Any]:
    """What belongs beside every result: the complete configuration, the data's hash, and all versions."""
    described: dict[str, Any] = {"config": flat(config)}
    if problem is not None:
        described["env"] = problem.env
        described["data"] = {"rows": len(problem.dataset["rewards"]), "sha256": problem.data_hash}
        described["reference"] = list(problem.reference) if problem.reference else None
        described["shaping"] = problem.shaping.to_dict()
        described["versions"] = versions()
    return described


def versions() -> dict[str, str]:
    """Of everything that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _refuse_other_actions(config: Config, env: str, kind: str) -> None:
    if config.agent != "iql":
        if kind == "discrete":
            raise DataError(f"{env} has discrete actions, which of the agents iql alone knows: choose --agent iql")
    elif config.settings.actions not in (None, kind):
        raise DataError(f"{env} has {kind} actions: leave settings.actions={config.settings.actions} away")


def _made(env: str, shaping: Shaping | None = None) -> gymnasium.Env[Any, Any]:
    try:
        from arb.envs import make

        made = make(env)
    except (ValueError, AttributeError) as problem:  # the latter from MuJoCo, where MUJOCO_GL names what is not there
        raise DataError(f"{problem} (`arb doctor` checks this machine)") from None
    return made if shaping is None else Shaped(made, shaping)
