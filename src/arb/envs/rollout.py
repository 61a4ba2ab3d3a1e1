"""Policies in environments: actions and observations as agents see them, and the loops that step an environment."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import ArrayLike, NDArray

from arb.envs.state import restore_state, save_state
from arb.errors import DataError, EnvironmentFailure, Interrupted
from arb.replay.buffer import ReplayBuffer
from arb.replay.robot import limited


# ---- actions and observations ----------------------------------------------------------------------------------------
class ActionMap:
    """From the actions of agents to those of an environment, and back.

    Agents act in the box [-1, 1], or choose a number 0, 1, ..., whatever the bounds of the environment's box or the
    first number of its discrete actions.
    """

    def __init__(self, space: gymnasium.Space[Any]):
        self.discrete = isinstance(space, Discrete)
        if isinstance(space, Discrete):
            self.size, self.start = int(space.n), int(space.start)
            return
        if not isinstance(space, Box) or len(space.shape) != 1 or not np.isfinite([space.low, space.high]).all():
            raise DataError(f"agents need actions in a bounded vector or a Discrete space, not in {space}")
        self.size, self.low, self.high = int(space.shape[0]), space.low, space.high
        self.middle = (space.high + space.low).astype(np.float32) / 2
        self.half = (space.high - space.low).astype(np.float32) / 2

    def bounds(self) -> dict[str, Any]:
        """The space as JSON can hold it, exactly."""
        if self.discrete:
            return {"n": self.size, "start": self.start}
        return {"low": self.low.tolist(), "high": self.high.tolist()}

    def to_env(self, action: Any) -> Any:
        """An agent's action as the environment takes it."""
        return action + self.start if self.discrete else self.middle + self.half * action

    def to_agent(self, action: NDArray[Any]) -> NDArray[Any]:
        """Recorded actions as agents see them."""
        return action - self.start if self.discrete else (action - self.middle) / self.half


def flat_vector(obs: Any, rows: tuple[int, ...] = ()) -> NDArray[Any]:
    """The parts of a dict observation as one vector, in the order of their names; `rows` are leading axes to keep.

    Files and environments are flattened by this one rule, which is also `gymnasium.wrappers.FlattenObservation`'s.

    >>> flat_vector({"b": np.zeros((2, 2)), "a": {"y": [3.0], "x": 1.0}}).tolist()
    [1.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    """
    if isinstance(obs, Mapping):
        return np.concatenate([flat_vector(obs[name], rows) for name in sorted(obs)], -1)
    return np.asarray(obs).reshape(*rows, -1)


def flattened(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with vectors for observations if it gives dicts of arrays, else the environment itself."""
    if not _is_dict_of_boxes(env.observation_space):
        return env
    flat: Any = gymnasium.spaces.flatten_space(env.observation_space)
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    return gymnasium.wrappers.TransformObservation(
        env, lambda obs: flat_vector(obs).astype(np.float32), Box(low, high, low.shape, np.float32)
    )


def _is_dict_of_boxes(space: Any) -> bool:
    return isinstance(space, Dict) and all(isinstance(p, Box) or _is_dict_of_boxes(p) for p in space.spaces.values())


class Limited(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that is given no action outside of bounds, and none far from the one before it.

    `info["applied_action"]` is the action that was carried out, and the one that a run learns from.

    Args:
        env: with actions in a vector.
        low: the lower bound of every entry, or of all.
        high: the upper bound.
        change: how far an entry may move in a step.
        rest: the action before the first of an episode.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        low: ArrayLike,
        high: ArrayLike,
        change: ArrayLike = np.inf,
        rest: ArrayLike = 0.0,
    ) -> None:
        super().__init__(env)
        self.limits, self.change, self.rest = (low, high), change, rest

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._before: Any = self.rest
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._before = limited(action, *self.limits, self._before, self.change).astype(np.asarray(action).dtype)
        obs, reward, terminated, truncated, info = self.env.step(self._before)
        return obs, reward, terminated, truncated, {**info, "applied_action": self._before}


# ---- loops -----------------------------------------------------------------------------------------------------------
class Step(NamedTuple):
    """One step of an environment."""

    obs: Any
    action: Any
    reward: float
    next_obs: Any
    terminated: bool
    truncated: bool


def episode(env: gymnasium.Env[Any, Any], act: Callable[[Any], Any], seed: int | None = None) -> Iterator[Step]:
    """The steps of one episode. `act` takes an observation and returns an action of the environment."""
    obs, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = act(obs)
        after, reward, terminated, truncated, _ = env.step(action)
        yield Step(obs, action, float(reward), after, terminated, truncated)
        obs, over = after, terminated or truncated


class Collector:
    """Steps an environment for training and keeps its place in an episode between calls.

    With `hardware` it takes whole episodes, because a robot does not wait while an agent learns: a call ends with the
    episode in which its steps are reached, or with what the environment, or a request to stop between two episodes,
    raised (`failure`). The steps until then are in the buffer. It calls `ready` before every episode.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: np.random.SeedSequence,
        hardware: bool = False,
        ready: Callable[[], None] = lambda: None,
    ):
        reset, act = seed.spawn(2)
        self.env, self.hardware, self.ready = env, hardware, ready
        self.actions = ActionMap(env.action_space)
        self.actor: Any = None
        self.failure: Exception | None = None
        self.metrics: dict[str, float] = {}
        self._rng = np.random.default_rng(act)
        self._return = 0.0
        self._ahead: list[Any] = []  # the rest of a chunk of actions
        self._obs: Any = None
        if not hardware:
            self._obs, _ = env.reset(seed=int(reset.generate_state(1)[0]))

    def collect(
        self, actor: Any, buffer: ReplayBuffer, steps: int, pause: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Take steps and put them into the buffer; returns the raw returns of the episodes that ended.

        `pause` is called before every step, on hardware before every episode; what it raises ends the call.
        """
        self.actor = actor
        returns: list[float] = []
        end = buffer.index.num_added + steps
        try:
            while buffer.index.num_added < end or (self.hardware and self._obs is not None):
                if self._obs is None or not self.hardware:
                    pause()
                if self._obs is None:
                    self.ready()
                    self._obs, _ = self.env.reset()
                self._step(actor, buffer, returns)
        except (EnvironmentFailure, Interrupted) as failure:
            if not self.hardware:
                raise
            buffer.end_episode()
            self.failure, self._obs, self._return, self._ahead = failure, None, 0.0, []
        return returns

    def _step(self, actor: Any, buffer: ReplayBuffer, returns: list[float]) -> None:
        if not self._ahead:
            self._ahead = chunks(actor, np.asarray(actor.act(self._obs, self._rng))[None])[0]
        action = self._ahead.pop(0)
        obs, reward, terminated, truncated, info = self.env.step(self.actions.to_env(action))
        if "applied_action" in info:  # a wrapper or the robot itself limited it
            action = self.actions.to_agent(np.asarray(info["applied_action"], action.dtype))
        buffer.add(self._obs, action, float(reward), obs, terminated, truncated)
        self._return += float(info.get("raw_reward", reward))
        self._obs = obs
        if terminated or truncated:
            returns.append(self._return)
            self._return, self._ahead = 0.0, []
            self._obs = None if self.hardware else self.env.reset()[0]

    def state(self) -> dict[str, Any]:
        """Everything that decides the steps to come, as JSON can hold it."""
        if self.hardware:
            return {"rng": self._rng.bit_generator.state}
        return {
            "env": save_state(self.env),
            "rng": self._rng.bit_generator.state,
            "obs": np.asarray(self._obs, np.float64).tolist(),
            "return": self._return,
            "ahead": np.asarray(self._ahead, np.float32).tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
        if not self.hardware:
            restore_state(self.env, state["env"])
            self._obs = np.asarray(state["obs"], np.asarray(self._obs).dtype)
            self._return = state["return"]
            self._ahead = [np.asarray(action, np.float32) for action in state["ahead"]]


def chunks(actor: Any, actions: NDArray[Any]) -> list[list[Any]]:
    """What an actor returned for a batch of observations, as the actions to take one after the other for each."""
    return [list(own) for own in actions] if getattr(actor, "chunk", 1) > 1 else [[own] for own in actions]


class Played(NamedTuple):
    """The results of some episodes."""

    returns: NDArray[np.float64]
    """The undiscounted raw return of each."""
    successes: NDArray[np.bool_] | None
    """Whether the environment reported success at any step of each (`info["success"]`, or `info["is_success"]`).

    None if it reported neither success nor failure in any of them. Some environments report success only when it
    happens: once one has, None stands for failures."""


def play(
    actor: Any,
    make: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int,
    seed: np.random.SeedSequence,
    width: int = 10,
    pause: Callable[[], None] = lambda: None,
    keep_open: bool = False,
) -> Played:
    """Play episodes with the evaluation action of a policy.

    Up to `width` environments, made by `make`, step side by side, so that `actor.mode(obs, rng)` is asked once for all
    of them. Episode i starts from a seed of its own, whichever environment plays it; the randomness of the policy has
    another. A chunk of actions is carried out to its end, or to that of the episode, before the next is chosen. `pause`
    is called before every step; what it raises ends the call.
    """
    *starts, policy_seed = (int(s.generate_state(1)[0]) for s in seed.spawn(episodes + 1))
    rng = np.random.default_rng(policy_seed)
    envs = [make() for _ in range(min(width, episodes))]
    actions = ActionMap(envs[0].action_space)
    returns, successes, reported = np.zeros(episodes), np.zeros(episodes, bool), False
    playing = list(range(len(envs)))  # the episode each environment plays
    waiting = list(range(len(envs), episodes))
    obs = [env.reset(seed=starts[i])[0] for i, env in enumerate(envs)]
    ahead: list[list[Any]] = [[] for _ in envs]  # actions that were chosen already
    while envs:
        pause()
        if asking := [i for i, own in enumerate(ahead) if not own]:
            chosen = np.asarray(actor.mode(np.stack([obs[i] for i in asking]), rng))
            for i, own in zip(asking, chunks(actor, actions.to_env(chosen)), strict=True):
                ahead[i] = own
        for i in reversed(range(len(envs))):
            obs[i], reward, terminated, truncated, info = envs[i].step(ahead[i].pop(0))
            returns[playing[i]] += float(info.get("raw_reward", reward))
            success = info.get("success", info.get("is_success"))
            if success is not None:
                reported = True
                successes[playing[i]] |= bool(np.all(success))
            if terminated or truncated:
                ahead[i] = []
                if waiting:
                    playing[i] = waiting.pop(0)
                    obs[i], _ = envs[i].reset(seed=starts[playing[i]])
                else:
                    left = envs.pop(i)
                    if not keep_open:
                        left.close()
                    playing.pop(i)
                    obs.pop(i)
                    ahead.pop(i)
    return Played(returns, successes if reported else None)
