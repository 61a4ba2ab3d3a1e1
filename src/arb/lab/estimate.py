"""Fitted Q evaluation: the return a policy would have, estimated from episodes that it was not trained on.

The critics are linear in random features and fitted by ridge regression, once per remaining step of an episode, so
the estimate is in the units of the dataset's returns. Its interval comes from a bootstrap over episodes (Hao et al.,
2021). It says what the data supports: about states that no episode visits it knows nothing.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.replay.dataset import Dataset

Floats = NDArray[Any]
FEATURES, REPLICATES, RIDGE, LEAST = 256, 32, 1e-3, 5


def split(dataset: Dataset, share: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the episodes to train on, and of those held out, at least `LEAST`."""
    order = rng.permutation(dataset.num_episodes)
    held = max(LEAST, round(share * len(order)))
    if len(order) < 2 * held:
        raise DataError(
            f"the dataset has {len(order)} episodes, of which {held} would be held out for an estimate: too few; "
            "evaluate in an environment (--env), or mark the ends of episodes"
        )
    return np.sort(order[held:]), np.sort(order[:held])


def usual_length(dataset: Dataset) -> int:
    """How long an episode is if nothing ends it: the median length of those that were cut off, else the longest."""
    cut_off = dataset.lengths[~dataset.terminals[dataset.ends]]
    return int(np.median(cut_off)) if len(cut_off) else int(dataset.lengths.max())


def fitted_q_evaluation(
    inputs: Floats,
    rewards: Floats,
    next_inputs: Floats,
    continues: Floats,
    episodes: NDArray[np.int64],
    start_inputs: Floats,
    horizon: int,
    rng: np.random.Generator,
    features: Callable[[Floats], Floats] | None = None,
) -> Floats:
    """The mean return of `horizon` steps from the starts of episodes, once per bootstrap replicate.

    Q_t(s, a) = r + Q_{t-1}(s', π(s')) is fitted for t = 1 ... horizon; values are held within t times the range of the
    rewards.

    Args:
        inputs: observation and action of every row, side by side.
        rewards: of every row.
        next_inputs: the observation after every row with the policy's action there.
        continues: 0 where the task ended, else 1.
        episodes: the number of the episode of each row, from 0.
        start_inputs: the first observation of every episode with the policy's action there.
        horizon: steps of an episode.
        rng: of the features and the bootstrap.
        features: of inputs; random ReLU features if not given.
    """
    features = features or random_features(inputs, rng)
    here, after, starts = features(inputs), features(next_inputs), features(start_inputs)
    n = len(starts)
    counts = rng.multinomial(n, np.full(n, 1 / n), REPLICATES).T.astype(float)  # (episodes, replicates)
    weights = counts[episodes]
    ridge = RIDGE * len(here) / n * np.eye(here.shape[1])
    inverses = np.stack([np.linalg.inv(here.T @ (w[:, None] * here) + ridge) for w in weights.T])
    low, high = min(rewards.min(), 0.0), max(rewards.max(), 0.0)
    values = np.zeros(weights.shape)
    coefficients = np.zeros((REPLICATES, here.shape[1]))
    for step in range(1, horizon + 1):
        targets = rewards[:, None] + continues[:, None] * values
        coefficients = np.einsum("kij,jk->ki", inverses, here.T @ (weights * targets), optimize=True)
        values = np.clip(after @ coefficients.T, low * step, high * step)
    first = np.clip(starts @ coefficients.T, low * horizon, high * horizon)
    return np.asarray((counts * first).sum(0) / n)


def random_features(inputs: Floats, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Inputs, a constant and random ReLU units of standardised inputs."""
    mean, std = inputs.mean(0), inputs.std(0) + 1e-6
    size = inputs.shape[1]
    slopes, shifts = rng.normal(size=(size, FEATURES)) / np.sqrt(size), rng.normal(size=FEATURES)

    def features(some: Floats) -> Floats:
        standard = np.clip((some - mean) / std, -10.0, 10.0)
        return np.concatenate([np.ones((len(some), 1)), standard, np.maximum(standard @ slopes + shifts, 0.0)], 1)

    return features


def estimate(actor: Any, held: Dataset, rewards: Floats, discrete: int, rng: np.random.Generator) -> Floats:
    """Replicates of the estimated return of an actor's evaluation actions, from episodes as the agent sees them.

    `rewards` are the raw ones; `discrete` is the number of discrete actions, 0 if they are vectors.
    """
    rows, first = len(held), held.starts
    observations = np.asarray(held.observations)
    following = np.concatenate([observations[1:], observations[-1:]])
    known = np.ones(rows, bool)
    if held.final_observations is not None:
        following[held.ends] = held.final_observations
    else:
        known[held.ends] = held.terminals[held.ends]
    act = np.random.default_rng(rng.integers(2**63))

    def side_by_side(obs: NDArray[Any], action: NDArray[Any]) -> Floats:
        numbers = np.eye(discrete)[action.astype(int).ravel()] if discrete else action.reshape(len(obs), -1)
        return np.concatenate([obs, numbers], 1).astype(float)

    return fitted_q_evaluation(
        side_by_side(observations, np.asarray(held.actions))[known],
        np.asarray(rewards, float)[known],
        side_by_side(following, np.asarray(actor.mode(following, act)))[known],
        1.0 - held.terminals[known],
        held.episode_ids[known],
        side_by_side(observations[first], np.asarray(actor.mode(observations[first], act))),
        usual_length(held),
        rng,
    )
