"""Steps in an environment with a policy that is fixed meanwhile; an episode goes on from one call to the next."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.buffer.replay import ReplayBuffer
from arb.errors import DataError


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


class Collector:
    """An environment in the middle of an episode."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: np.random.SeedSequence):
        reset, act = seed.spawn(2)
        self.env = env
        self.actions = ActionMap(env.action_space)
        self._chance = np.random.default_rng(act)
        self._return = 0.0
        self._obs, _ = env.reset(seed=int(reset.generate_state(1)[0]))

    def collect(self, actor: Any, buffer: ReplayBuffer, steps: int) -> list[float]:
        """Take steps and put them into the buffer; returns the raw returns of the episodes that ended."""
        returns = []
        for _ in range(steps):
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
        from arb.envs import save_state

        return {
            "env": save_state(self.env),
            "chance": self._chance.bit_generator.state,
            "obs": np.asarray(self._obs, np.float64).tolist(),
            "return": self._return,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        from arb.envs import restore_state

        restore_state(self.env, state["env"])
        self._chance.bit_generator.state = state["chance"]
        self._obs = np.asarray(state["obs"], np.asarray(self._obs).dtype)
        self._return = state["return"]
