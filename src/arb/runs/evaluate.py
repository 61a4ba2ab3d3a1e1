"""How good is a policy: whole episodes with its evaluation action, on seeds of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arb.runs.collector import ActionMap


def evaluate(
    actor: Any,
    make: Callable[[], gymnasium.Env[Any, Any]],
    episodes: int,
    seed: np.random.SeedSequence,
    width: int = 10,
) -> NDArray[np.float64]:
    """The undiscounted raw return of each episode.

    Up to `width` environments step side by side, so that the policy is asked once for all of them. Episode i starts
    from a seed of its own, whichever environment plays it; what randomness the policy has comes from one more.
    """
    *starts, chance = (int(s.generate_state(1)[0]) for s in seed.spawn(episodes + 1))
    rng = np.random.default_rng(chance)
    envs = [make() for _ in range(min(width, episodes))]
    actions = ActionMap(envs[0].action_space)
    returns = np.zeros(episodes)
    playing = list(range(len(envs)))  # the episode each environment plays
    waiting = list(range(len(envs), episodes))
    obs = [env.reset(seed=starts[i])[0] for i, env in enumerate(envs)]
    while envs:
        chosen = actions.to_env(np.asarray(actor.mode(np.stack(obs), rng)))
        for i in reversed(range(len(envs))):
            obs[i], reward, terminated, truncated, info = envs[i].step(chosen[i])
            returns[playing[i]] += float(info.get("raw_reward", reward))
            if terminated or truncated:
                if waiting:
                    playing[i] = waiting.pop(0)
                    obs[i], _ = envs[i].reset(seed=starts[playing[i]])
                else:
                    envs.pop(i).close()
                    playing.pop(i)
                    obs.pop(i)
    return returns
