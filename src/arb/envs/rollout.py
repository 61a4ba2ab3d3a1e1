"""Policies in environments: the loops that step one, for training, evaluation and recording alike."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.envs.state import restore_state, save_state
from arb.errors import DataError
from arb.replay.buffer import ReplayBuffer


class ActionMap:
    """The box [-1, 1] in which agents act, and the action space of an environment; discrete actions are themselves."""

    def __init__(self, space: gymnasium.Space[Any]):
        self.discrete = isinstance(space, gymnasium.spaces.Discrete)
        if isinstance(space, gymnasium.spaces.Discrete):
            self.size = int(space.n)
        elif isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and np.isfinite(space.high).all():
            self.size = int(space.shape[0])
            self.middle = (space.high + space.low).astype(np.float32) / 2
            self.half = (space.high - space.low).astype(np.float32) / 2
        else:
            raise DataError(f"the agents act in bounded vectors or a Discrete space, not in {space}")

    def to_env(self, action: Any) -> Any:
        """An agent's action as the environment wants it."""
        return action if self.discrete else self.middle + self.half * action

    def to_agent(self, action: NDArray[Any]) -> NDArray[Any]:
        """Recorded actions as the agents see them."""
        return action if self.discrete else (action - self.middle) / self.half


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
    """An environment in the middle of an episode."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: np.random.SeedSequence):
        reset, act = seed.spawn(2)
        self.env = env
        self.actions = ActionMap(env.action_space)
        self._chance = np.random.default_rng(act)
        self._return = 0.0
        self._obs, _ = env.reset(seed=int(reset.generate_state(1)[0]))

    def collect(
        self, actor: Any, buffer: ReplayBuffer, steps: int, pause: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Take steps and put them into the buffer; returns the raw returns of the episodes that ended.

        `pause` is called before every step; what it raises ends the call.
        """
        returns = []
        for _ in range(steps):
            pause()
            action = np.asarray(actor.act(self._obs, self._chance))
            obs, reward, terminated, truncated, info = self.env.step(self.actions.to_env(action))
            buffer.add(self._obs, action, float(reward), obs, terminated, truncated)
            self._return += float(info.get("raw_reward", reward))
            if terminated or truncated:
                returns.append(self._return)
                self._return = 0.0
                obs, _ = self.env.reset()
            self._obs = obs
        return returns

    def state(self) -> dict[str, Any]:
        """Everything that decides the steps to come, as JSON can hold it."""
        return {
            "env": save_state(self.env),
            "chance": self._chance.bit_generator.state,
            "obs": np.asarray(self._obs, np.float64).tolist(),
            "return": self._return,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        restore_state(self.env, state["env"])
        self._chance.bit_generator.state = state["chance"]
        self._obs = np.asarray(state["obs"], np.asarray(self._obs).dtype)
        self._return = state["return"]


class Played(NamedTuple):
    """What came of some episodes."""

    returns: NDArray[np.float64]
    """The undiscounted raw return of each."""
    successes: NDArray[np.bool_] | None
    """Whether the environment called each a success at any step; None where it never says (`info["success"]`)."""


def play(
    actor: Any,
    make: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int,
    seed: np.random.SeedSequence,
    width: int = 10,
    pause: Callable[[], None] = lambda: None,
) -> Played:
    """Play episodes with the evaluation action of a policy.

    Up to `width` environments step side by side, so that the policy is asked once for all of them. Episode i starts
    from a seed of its own, whichever environment plays it; what randomness the policy has comes from one more.

    Args:
        actor: the policy, with `mode(obs, rng)` for a batch of observations.
        make: makes an environment.
        episodes: how many.
        seed: of all of them.
        width: environments side by side.
        pause: called before every step; what it raises ends the call.
    """
    *starts, chance = (int(s.generate_state(1)[0]) for s in seed.spawn(episodes + 1))
    rng = np.random.default_rng(chance)
    envs = [make() for _ in range(min(width, episodes))]
    actions = ActionMap(envs[0].action_space)
    returns, successes, told = np.zeros(episodes), np.zeros(episodes, bool), False
    playing = list(range(len(envs)))  # the episode each environment plays
    waiting = list(range(len(envs), episodes))
    obs = [env.reset(seed=starts[i])[0] for i, env in enumerate(envs)]
    while envs:
        pause()
        chosen = actions.to_env(np.asarray(actor.mode(np.stack(obs), rng)))
        for i in reversed(range(len(envs))):
            obs[i], reward, terminated, truncated, info = envs[i].step(chosen[i])
            returns[playing[i]] += float(info.get("raw_reward", reward))
            success = info.get("success", info.get("is_success"))
            if success is not None:
                told = True
                successes[playing[i]] |= bool(np.all(success))
            if terminated or truncated:
                if waiting:
                    playing[i] = waiting.pop(0)
                    obs[i], _ = envs[i].reset(seed=starts[playing[i]])
                else:
                    envs.pop(i).close()
                    playing.pop(i)
                    obs.pop(i)
    return Played(returns, successes if told else None)
