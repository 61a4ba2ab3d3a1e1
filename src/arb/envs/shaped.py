"""An environment as the algorithm sees it: the same shaping that was fitted on the dataset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from arb.data.shaping import Shaping


class Shaped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations and rewards through a `Shaping`; `info["raw_reward"]` is what scores are made of."""

    def __init__(self, env: gymnasium.Env[Any, Any], shaping: Shaping) -> None:
        super().__init__(env)
        self.shaping = shaping
        space = env.observation_space
        if isinstance(space, gymnasium.spaces.Box):
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and shape the first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self.shaping.observations(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and shape what comes back."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        raw = float(reward)
        shaped = float(self.shaping.rewards(raw))
        return self.shaping.observations(obs), shaped, terminated, truncated, {**info, "raw_reward": raw}
