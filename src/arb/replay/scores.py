"""How likely is a stored action under the current policy? Ready-made scores for the usual policies, in NumPy.

Each `*_log_likelihood` is a pure function of actions and distribution parameters; each `*_score` turns a policy
(a function from observations to those parameters, returning NumPy, JAX or torch arrays) into the callable that
`ReplayBuffer.refresh` takes.

Two likelihoods are offered:

* `"standard"`, the default and what the paper's appendix describes: the standard-normal log-density of the z-score,
  divided by the number of action dimensions. It knows neither log σ nor the tanh Jacobian, so its maximum is
  -½ln(2π) = -0.919 whatever the policy. For a categorical policy: the log-probability, divided by the number of
  action dimensions.
* `"density"`: the true log-density (or log-probability), summed over action dimensions.

A policy without a likelihood has a score all the same: `distance_score`, `sample_score` and `flow_score` rise with it,
which is all that `ARB("auto")` needs, as it cancels the unit of a score. docs/scores.md says which to take.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, check_choice
from arb.replay.dataset import Array, Ints, Obs

Likelihood = Literal["standard", "density"]
Score = Callable[[Any, Any], Any]
"""`(obs, action) -> log-likelihood per row`; gets NumPy arrays, may return NumPy, JAX or torch arrays."""

RowScore = Callable[[Ints | slice], Any]
"""Rows to one log-likelihood each, as NumPy, JAX or torch array."""
Unit = Literal["row", "trajectory"]
"""What a score is asked for at once: any rows, or the rows of one trajectory in order of time."""
CHUNK = 2048
"""Rows per call of a score: a 256-wide network then stays in the cache, and a call's overhead is small."""

MARGIN = 1e-4
"""By how much of their range actions may leave their bounds: rounding does so."""
EDGE = float(np.float32(1.0 - 1e-6))
"""Actions of a squashed policy are clamped to ±EDGE before atanh: the paper's release does so, in float32."""

WIDTH = 0.2
"""Of the kernels around the samples of `sample_score`, in half ranges of the action."""

_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


def as_numpy(values: Any) -> Array:
    """A NumPy array from NumPy, JAX or torch values; torch tensors may still carry gradients or live on a device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def gaussian_log_likelihood(
    action: Array, mean: Array, log_std: Array, likelihood: Likelihood = "standard"
) -> NDArray[np.float64]:
    """Log-likelihood of actions of shape (..., d) under a diagonal Gaussian.

    >>> gaussian_log_likelihood(np.array([[1.0, 0.0]]), np.zeros((1, 2)), np.zeros(2), "density").round(4)
    array([-2.3379])
    """
    if np.isneginf(log_std).any():
        raise DataError(
            "this policy is deterministic (a standard deviation of 0), so no stored action has a likelihood: use "
            "arb.distance_score(policy), where the policy returns its action"
        )
    z = (action - mean) * np.exp(-log_std)
    normal = -0.5 * np.square(z, dtype=np.float64) - _HALF_LOG_2PI
    if is_standard(likelihood):
        return np.asarray(normal.mean(-1))
    return np.asarray((normal - log_std).sum(-1))


def tanh_gaussian_log_likelihood(
    action: Array,
    mean: Array,
    log_std: Array,
    likelihood: Likelihood = "standard",
    *,
    low: ArrayLike = -1.0,
    high: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Log-likelihood of actions of shape (..., d) in [low, high] under a tanh-squashed diagonal Gaussian.

    `mean` and `log_std` belong to the Gaussian before squashing. Actions at the boundary are clamped to `EDGE`.
    """
    action, low, high = (np.asarray(part, np.float64) for part in (action, low, high))
    half = (high - low) / 2.0
    unit = (action - low) / half - 1.0
    pre_tanh = np.arctanh(np.clip(unit, -EDGE, EDGE))
    gaussian = gaussian_log_likelihood(pre_tanh, mean, log_std, likelihood)
    if is_standard(likelihood):
        return gaussian
    # log(1 - tanh(u)^2) in a form that keeps its digits where tanh is close to 1.
    log_slope = 2.0 * (np.log(2.0) - pre_tanh - np.logaddexp(0.0, -2.0 * pre_tanh))
    return np.asarray(gaussian - (log_slope + np.log(half)).sum(-1))


def categorical_log_likelihood(
    action: Array, logits: Array, likelihood: Likelihood = "standard"
) -> NDArray[np.float64]:
    """Log-probability of discrete actions.

    `action` has shape (n,) with `logits` (n, choices), or (n, d) with (n, d, choices) for d independent choices.

    >>> categorical_log_likelihood(np.array([1]), np.log([[0.25, 0.75]])).round(4)
    array([-0.2877])
    """
    if not np.issubdtype(np.asarray(action).dtype, np.integer):
        raise DataError(f"a categorical policy needs integer actions, got dtype {np.asarray(action).dtype}")
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probability, np.asarray(action)[..., None], axis=-1)[..., 0]
    if chosen.ndim == 1:
        return chosen
    return np.asarray(chosen.mean(-1) if is_standard(likelihood) else chosen.sum(-1))


def gaussian_score(
    policy: Callable[[Any], tuple[Any, Any]],
    likelihood: Likelihood = "standard",
    *,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
) -> Score:
    """A score from a policy `obs -> (mean, log_std)`; actions are clamped to [low, high] if given."""
    is_standard(likelihood)

    def score(obs: Obs, action: Array) -> NDArray[np.float64]:
        action, mean, log_std = _matched(action, policy(obs))
        return gaussian_log_likelihood(np.clip(action, low, high), mean, log_std, likelihood)

    return score


def tanh_gaussian_score(
    policy: Callable[[Any], tuple[Any, Any]],
    likelihood: Likelihood = "standard",
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Score:
    """A score from a policy `obs -> (mean, log_std)` of the Gaussian before tanh; actions lie in [low, high].

    Without bounds, those of the buffer (`action_bounds`) are taken, and without these -1 and 1. An action outside is
    refused: its score would be that of the nearest bound, whatever it is.
    """
    is_standard(likelihood)
    if (low is None) != (high is None):
        raise DataError("tanh_gaussian_score needs both bounds, low and high, or neither")
    given: Any = (-1.0, 1.0) if low is None else (low, high)

    def score(obs: Obs, action: Array, bounds: Sequence[Any] = given) -> NDArray[np.float64]:
        action, mean, log_std = _matched(action, policy(obs))
        least, most = (np.asarray(bound, np.float64) for bound in bounds)
        if (np.abs(action - (least + most) / 2.0) > (0.5 + MARGIN) * (most - least)).any():
            raise DataError(
                f"the actions run from {action.min():g} to {action.max():g}, but the score's bounds are "
                f"{np.array2string(least, precision=4)} and {np.array2string(most, precision=4)}: pass low= and high= "
                "of the action space to tanh_gaussian_score, or action_bounds to the buffer"
            )
        return tanh_gaussian_log_likelihood(action, mean, log_std, likelihood, low=least, high=most)

    return score if low is not None else _Unbounded(score)


class _Unbounded(partial[Any]):
    """A score that takes the bounds of the buffer, if that has some."""


def within(score: Score, bounds: Sequence[Any] | None) -> Score:
    """A score that takes these bounds if it needs some and was given none."""
    return partial(score, bounds=bounds) if isinstance(score, _Unbounded) and bounds is not None else score


def categorical_score(policy: Callable[[Any], Any], likelihood: Likelihood = "standard") -> Score:
    """A score from a policy `obs -> logits`; for several choices of unequal numbers, `obs -> [logits, ...]`."""
    is_standard(likelihood)

    def score(obs: Obs, action: Array) -> NDArray[np.float64]:
        return categorical_log_likelihood(action, _logits(action, policy(obs)), likelihood)

    return score


# ---- policies without a likelihood -----------------------------------------------------------------------------------
def distance_score(policy: Callable[[Any], Any], *, scale: ArrayLike | None = None) -> Score:
    """A score from a deterministic policy `obs -> action`: minus half the mean squared distance.

    Under `ARB("auto")` the weights are those of a Gaussian around the action, of whatever width. Distances are measured
    in units of `scale`, one number or one per action dimension; without it, of half the range of the buffer's
    `action_bounds`, and without these of 1.

    >>> distance_score(lambda obs: obs)(np.zeros((1, 2)), np.array([[1.0, 3.0]]))
    array([-2.5])
    """
    return _scaled(lambda obs, action, unit: -0.5 * _distance(action, policy(obs), unit), scale)


def sample_score(
    sample: Callable[[Any], Any], n: int = 8, *, width: float = WIDTH, scale: ArrayLike | None = None
) -> Score:
    """A score from any policy that can be sampled, `obs -> action`: how close the nearest of n samples are.

    It is the soft minimum of the squared distances, which is the logarithm of a kernel density estimate with Gaussian
    kernels. `sample` is called n times for the same observations and must draw anew each time.

    Args:
        sample: the policy: one action per observation.
        n: samples per row, each of which costs a forward pass.
        width: of a kernel, in units of `scale`. Narrow ones tell modes apart, wide ones are less noisy.
        scale: as in `distance_score`.
    """

    def score(obs: Obs, action: Array, unit: Array) -> NDArray[np.float64]:
        near = np.stack([-0.5 / width**2 * _distance(action, sample(obs), unit) for _ in range(n)])
        most = near.max(0)
        return np.asarray(most + np.log(np.exp(near - most).mean(0)))

    if n < 1 or not width > 0.0:
        raise DataError(f"sample_score needs at least one sample and a width above 0, got n={n}, width={width}")
    return _scaled(score, scale)


def flow_score(
    velocity: Callable[[Any, Any, Any], Any], draws: int = 2, *, seed: int = 0, scale: ArrayLike | None = None
) -> Score:
    """A score from the velocity field of a flow policy, `(obs, x, t) -> v`: minus the flow-matching loss of the action.

    The field leads from standard normal noise at t = 0 to actions at t = 1 in straight lines: at x = (1 - t)·noise +
    t·action its target is action - noise. All rows are scored at the same times and noises, and every noise is used
    with both signs, which cancels most of what it would add to the score. `t` has the shape (rows, 1).

    Args:
        velocity: the field.
        draws: forward passes per row, an even number.
        seed: of the noise.
        scale: as in `distance_score`.
    """
    if draws < 2 or draws % 2:
        raise DataError(f"draws must be an even number from 2 on, as every noise is used with both signs, got {draws}")

    def score(obs: Obs, action: Array, unit: Array) -> NDArray[np.float64]:
        rng, loss = np.random.default_rng(seed), np.zeros(len(action))
        for k in range(draws):
            if k % 2 == 0:
                noise = np.asarray(rng.standard_normal(action.shape[1:]), np.float32)
            noise = -noise
            t = np.full((len(action), 1), (k // 2 + 0.5) / (draws // 2), np.float32)
            along = t.reshape(-1, *(1,) * (action.ndim - 1))
            x = ((1.0 - along) * noise + along * action).astype(np.float32)
            loss += _distance(action - noise, velocity(obs, x, t), unit)
        return -0.5 * loss / draws

    return _scaled(score, scale)


def _scaled(score: Callable[[Any, Array, Array], Any], scale: ArrayLike | None) -> Score:
    """A score whose unit of distance is given, or half the range of the buffer's actions."""
    if scale is not None and not (np.asarray(scale, np.float64) > 0.0).all():
        raise DataError(f"scale must be above 0, got {scale}")

    def bounded(obs: Obs, action: Array, bounds: Sequence[Any] = (-1.0, 1.0)) -> Any:
        low, high = (np.asarray(bound, np.float64) for bound in bounds)
        return score(obs, action, (high - low) / 2.0 if scale is None else np.asarray(scale, np.float64))

    return bounded if scale is not None else _Unbounded(bounded)


def _distance(action: Array, answer: Any, unit: Array) -> NDArray[np.float64]:
    """The mean over all action dimensions of the squared distance, in units of `unit`."""
    values = _numbers("actions", answer)
    if values.shape != action.shape:
        problem = f"the policy returned shape {values.shape}, but the actions have shape {action.shape}"
        raise DataError(f"{problem}: return one action, or velocity, for every action")
    if action.dtype.kind not in "fiu" or values.dtype.kind != "f":
        raise DataError(f"distances need continuous actions, got {action.dtype} and from the policy {values.dtype}")
    apart = np.square((action - values) / unit, dtype=np.float64)
    return np.asarray(apart.reshape(len(apart), -1).mean(-1))


def is_standard(likelihood: str) -> bool:
    """Whether it is the standard reading; any word but the two is refused."""
    check_choice("likelihood", likelihood, get_args(Likelihood))
    return likelihood == "standard"


def _matched(action: Array, answer: Any) -> tuple[Array, Array, Array]:
    """Actions and the policy's mean in one shape, (n, d), and a log_std that fits them.

    NumPy would spread a mean of another shape over all actions, and the mean over the last axis would hide it.
    """
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise DataError(f"the policy returned {_described(answer)}, but it must return two arrays, (mean, log_std)")
    mean, log_std = (_numbers("mean and log_std", part) for part in answer)
    actions = f"but the actions have shape {action.shape}"
    if mean.shape != action.shape:
        raise DataError(f"the policy's mean has shape {mean.shape}, {actions}: return one mean for every action")
    if action.ndim == 1:
        action, mean = action[:, None], mean[:, None]
        log_std = log_std[:, None] if log_std.shape == (len(action),) else log_std
    wide = zip(reversed(log_std.shape), reversed(mean.shape), strict=False)
    if log_std.ndim > mean.ndim or not all(ours in (1, theirs) for ours, theirs in wide):
        raise DataError(
            f"the policy's log_std has shape {log_std.shape}, {actions}: return one number, one for each action "
            f"dimension, ({mean.shape[-1]},), or one for every action"
        )
    return action, mean, log_std


def _logits(action: Array, answer: Any) -> Array:
    if isinstance(answer, tuple | list):  # one array for each of several choices, which may differ in number
        parts = [_numbers("logits", part) for part in answer]
        if [part.shape[:-1] for part in parts] != [action.shape[:1]] * action.shape[-1] or action.ndim != 2:
            found = f"{[part.shape for part in parts]}, but the actions have shape {action.shape}"
            raise DataError(f"the policy's logits have the shapes {found}: return one (rows, choices) for each column")
        for place, part in enumerate(parts):
            _logits(action[:, place], part)
        logits = np.full((*action.shape, max(part.shape[-1] for part in parts)), -np.inf)
        for place, part in enumerate(parts):
            logits[:, place, : part.shape[-1]] = part
        return logits
    logits = _numbers("logits", answer)
    if logits.shape[:-1] != action.shape or logits.ndim == 0:
        wanted = f"they must have shape ({', '.join(map(str, (*action.shape, 'choices')))})"
        problem = f"the policy's logits have shape {logits.shape}, but the actions have shape {action.shape}"
        raise DataError(f"{problem}: {wanted}")
    choices = logits.shape[-1]
    if action.dtype.kind in "iu" and action.size and not 0 <= action.min() <= action.max() < choices:
        found = f"the actions run from {action.min()} to {action.max()}"
        raise DataError(f"{found}, but the policy's logits are for {choices} choices, 0 to {choices - 1}")
    return logits


def _numbers(name: str, answer: Any) -> Array:
    if isinstance(answer, tuple | list) or (values := as_numpy(answer)).dtype == object:
        raise DataError(f"the policy returned {_described(answer)}, where {name} must be arrays of numbers")
    return values


def _described(answer: Any) -> str:
    if isinstance(answer, tuple | list):
        return f"{len(answer)} things"
    shape = getattr(answer, "shape", None)
    return type(answer).__name__ if shape is None else f"one array of shape {tuple(shape)}"


# ---- scores of all rows ----------------------------------------------------------------------------------------------
def score_all(score: RowScore, size: int, rows_per_call: int = CHUNK) -> NDArray[np.float32]:
    """The scores of rows 0..size-1, in calls of one size, because frameworks that compile do so once per shape."""
    scores, n = np.empty(size, np.float32), rows_per_call
    for start in range(0, size, n):
        first = max(min(start, size - n), 0)  # the last call overlaps the one before
        rows: Ints | slice = slice(first, first + n)
        if size < n:
            rows = np.append(np.arange(size), np.zeros(n - size, np.int64))
        scores[first : first + n] = _checked(score(rows), np.arange(first, first + n))[: size - first]
    return scores


def score_trajectories(score: RowScore, rows: Ints, steps: Ints, size: int) -> NDArray[np.float32]:
    """The same in one call per trajectory: the first `steps[0]` of the rows are the first one's, in order of time."""
    scores = np.empty(size, np.float32)
    for own in np.split(rows, np.cumsum(steps)[:-1]):
        scores[own] = _checked(score(own), own)
    return scores


def _checked(answer: Any, rows: Ints) -> Array:
    values = as_numpy(answer)
    values = values[:, 0] if values.shape == (len(rows), 1) else values
    if values.shape != (len(rows),):
        raise DataError(
            f"the score returned shape {values.shape} for {len(rows)} rows, not one log-likelihood per row: sum over "
            "the action dimensions; a deterministic policy needs arb.distance_score"
        )
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"the score is {values[where]} in row {rows[where]}: a log-likelihood must be finite; clamp actions "
            "away from the bounds of a squashed policy, and check the policy's parameters for nan"
        )
    return values
