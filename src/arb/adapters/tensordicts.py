"""TorchRL's tensordicts in our terms: how likely an actor finds the actions in them, and datasets in their layout."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.modules import Delta, TanhDelta, TanhNormal

from arb.errors import DataError
from arb.replay.dataset import Array, Boundaries, Dataset, as_dataset, leaves
from arb.replay.scores import Likelihood, as_numpy, gaussian_log_likelihood, tanh_gaussian_log_likelihood

COLLECTED = ("collector", "traj_ids")
"""Where collectors write the trajectory of a row."""

_DETERMINISTIC = (
    "ARB reads how likely stored actions are, and {} is deterministic: use an actor with a distribution, such as a "
    "ProbabilisticActor with TanhNormal, or a strategy that does not ask the policy (arb.Uniform, arb.Mixed)"
)


def actor_log_likelihood(
    actor: Any, batch: Any, likelihood: Likelihood = "standard", action_key: Any = "action"
) -> Array:
    """How likely the actions of a batch are under an actor with `get_dist`, such as a `ProbabilisticActor`.

    A Normal or a TanhNormal is read by its loc and scale: both likelihoods of `arb.replay.scores`, and actions at
    the bounds count as they do everywhere in this library. Of any other distribution it is the `log_prob`.
    """
    if not hasattr(actor, "get_dist"):
        raise DataError(_DETERMINISTIC.format(type(actor).__name__))
    device = next((p.device for p in actor.parameters()), None) if hasattr(actor, "parameters") else None
    inputs, action = batch.select(*actor.in_keys).copy(), batch.get(action_key)
    if device is not None:
        inputs, action = inputs.to(device), action.to(device)
    with torch.no_grad():
        dist = actor.get_dist(inputs)
        base = dist.base_dist if isinstance(dist, torch.distributions.Independent) else dist
        if isinstance(dist, Delta | TanhDelta):
            raise DataError(_DETERMINISTIC.format(type(dist).__name__))
        if isinstance(dist, TanhNormal):
            bounds = {"low": as_numpy(dist.low), "high": as_numpy(dist.high)}
            return tanh_gaussian_log_likelihood(as_numpy(action), *_normal(dist), likelihood, **bounds)
        if isinstance(base, torch.distributions.Normal):
            return gaussian_log_likelihood(as_numpy(action), *_normal(base), likelihood)
        log_prob = dist.log_prob(action)
    return as_numpy(log_prob.reshape(len(log_prob), -1).sum(-1))


def _normal(dist: Any) -> tuple[Array, Array]:
    return as_numpy(dist.loc), as_numpy(dist.scale.log())


def as_collected(dataset: Dataset | Mapping[str, Any], *, boundaries: Boundaries = "resets") -> Any:
    """A dataset with D4RL's keys as the tensordict that a collector would have made of the same steps.

    The keys are `observation`, `action`, the flags, `next` and `("collector", "traj_ids")`. See
    `Dataset.from_dict` for what a dataset may hold, `arb.replay.dataset` for where trajectories end.
    """
    past = as_dataset(dataset, boundaries).usable()
    n = len(past)
    terminated = torch.from_numpy(past.terminals.reshape(n, 1))
    done = torch.zeros(n, 1, dtype=torch.bool)
    done[past.ends] = True
    before = {name: torch.zeros(n, 1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    after = {"done": done | terminated, "terminated": terminated, "truncated": done & ~terminated}
    reward = torch.from_numpy(past.rewards.reshape(n, 1))
    trajectory = torch.from_numpy(past.episode_ids)
    return TensorDict(
        {
            **_observations(leaves(past.observations)),
            "action": torch.from_numpy(past.actions),
            **before,
            "next": {**_observations(leaves(past.next_observations)), "reward": reward, **after},
            "collector": {"traj_ids": trajectory},
        },
        batch_size=[n],
    )


def _observations(columns: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {key or "observation": torch.from_numpy(np.ascontiguousarray(column)) for key, column in columns.items()}
