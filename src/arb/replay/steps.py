"""New steps of one or several environments, checked once at the border."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arb.errors import DataError, check_choice, check_finite
from arb.replay.dataset import Array, Leaves, Obs, flags, leaves, one_per_row, single_precision

MODES = ("next_step", "same_step", "disabled")
"""How a vector environment resets the environments whose episode ended, in Gymnasium's terms."""


_ORDER = ": an environment's step returns obs, reward, terminated, truncated, info, in this order"


class Steps(NamedTuple):
    """Checked steps of several environments, one row each."""

    obs: Leaves
    action: Array
    reward: NDArray[np.float32]
    next_obs: Leaves
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    envs: Sequence[int]

    def only(self, chosen: NDArray[np.intp]) -> "Steps":
        """Some of these steps."""
        obs, next_obs = ({key: column[chosen] for key, column in side.items()} for side in (self.obs, self.next_obs))
        envs = [self.envs[i] for i in chosen.tolist()]
        ended, cut = self.terminated[chosen], self.truncated[chosen]
        return Steps(obs, self.action[chosen], self.reward[chosen], next_obs, ended, cut, envs)


def check_steps(
    obs: Obs,
    action: ArrayLike,
    reward: ArrayLike,
    next_obs: Obs,
    terminated: ArrayLike,
    truncated: ArrayLike | None,
    envs: Sequence[int] | None,
    valid: ArrayLike | None,
) -> Steps:
    """Bring the arguments of `ReplayBuffer.add_batch` into shape, or say in one line what is wrong with them."""
    rewards = _rewards(reward)
    n = len(rewards)
    ended = flags("terminated", terminated, "environment", _ORDER)
    cut = np.zeros(n, bool) if truncated is None else flags("truncated", truncated, "environment", _ORDER)
    actions = single_precision(np.asarray(action))
    before, after = leaves(obs), leaves(next_obs)
    if before.keys() != after.keys():
        raise DataError(f"obs has the keys {list(before)} but next_obs {list(after)}")
    for name, column in (("reward", rewards), ("action", actions)):
        _check(name, column, n)
    for name, given in (("terminated", ended), ("truncated", cut)):
        if len(given) != n:
            _check(name, given, n)
    for name, side in (("obs", before), ("next_obs", after)):
        for key, column in side.items():
            _check(f"{name}[{key!r}]" if key else name, column, n)
    numbers: Sequence[int] = range(n) if envs is None else [int(env) for env in envs]
    if envs is not None and (len(numbers) != n or len(set(numbers)) != n):
        raise DataError(f"envs must name {n} different environments, got {numbers}")
    steps = Steps(before, actions, rewards, after, ended, cut, numbers)
    if valid is None:
        return steps
    wanted = flags("valid", valid, "environment")
    if len(wanted) != n:
        raise DataError(f"valid has {len(wanted)} rows, but {n} rewards were given: one per environment")
    return steps.only(np.flatnonzero(wanted))


def _check(name: str, column: Array, n: int) -> None:
    if column.ndim == 0 or len(column) != n:
        raise DataError(f"{name} has shape {column.shape}, but {n} rewards were given: one row per environment")
    kind = column.dtype.kind
    if kind not in "biuf":
        raise DataError(f"{name} must hold numbers, got dtype {column.dtype}")
    if kind == "f" and np.count_nonzero(np.isfinite(column)) < column.size:
        check_finite(name, column)


def _rewards(reward: ArrayLike) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
            column = np.asarray(reward, np.float32)
    except (TypeError, ValueError) as wrong:
        raise DataError(f"reward must be one number per environment: {wrong}") from None
    return one_per_row("reward", column, "environment")


def one_row(obs: Any) -> Obs:
    """A single observation with a leading axis of length one."""
    if isinstance(obs, Mapping):
        return {key: np.asarray(column)[None] for key, column in obs.items()}
    return np.asarray(obs)[None]


# ---- automatic resets ------------------------------------------------------------------------------------------------
def autoreset_mode(said: Any) -> str | None:
    """`next_step`, `same_step` or `disabled`, from such a word, Gymnasium's `AutoresetMode`, or a vector environment.

    >>> autoreset_mode("same_step"), autoreset_mode(None)
    ('same_step', None)
    """
    if said is None:
        return None
    if hasattr(said, "metadata"):
        # In Gymnasium 1.2, vector environments of one class share their metadata: the last one made has its way.
        said = getattr(said, "autoreset_mode", None) or (said.metadata or {}).get("autoreset_mode")
        if said is None:
            raise DataError(
                "the environment does not say how it resets (its metadata has no 'autoreset_mode'): pass autoreset="
                "'next_step', 'same_step' or 'disabled'"
            )
    word = str(getattr(said, "value", said))
    word = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}.get(word, word)
    check_choice("autoreset", word, MODES)
    return word


def with_final_obs(next_obs: Obs, infos: Mapping[str, Any]) -> Obs:
    """Next observations in which the final ones replace those after a reset, as same-step autoreset hands them over.

    Gymnasium puts the final observations of the environments that ended into `infos`, under a name that has changed,
    and a mask beside it.
    """
    name, ended = ended_in(infos)
    if name is None or not ended.any():
        return next_obs
    final = infos[name]
    if isinstance(next_obs, Mapping):
        whole = isinstance(final, Mapping)
        return {
            key: _replaced(column, final[key] if whole else [o and o[key] for o in final], ended)
            for key, column in next_obs.items()
        }
    return _replaced(next_obs, final, ended)


def ended_in(infos: Mapping[str, Any]) -> tuple[str | None, NDArray[np.bool_]]:
    """The name under which `infos` has final observations, if it does, and which environments they belong to."""
    for name in ("final_obs", "final_observation"):
        if f"_{name}" in infos:
            return name, np.asarray(infos[f"_{name}"], bool)
    return None, np.zeros(0, bool)


def _replaced(column: Any, final: Any, ended: NDArray[np.bool_]) -> Array:
    replaced: Array = np.array(column)
    for i in np.flatnonzero(ended):
        replaced[i] = final[i]
    return replaced


def refuse_fused(env: int) -> None:
    """Refuse a step that begins at the very observation at which the episode before it ended."""
    raise DataError(
        f"environment {env} begins a step where its last episode ended. Gymnasium's next-step autoreset makes such "
        "steps, which are resets, not steps: pass autoreset=envs to the buffer, and they are dropped. With same-step "
        "autoreset, next_obs must be the final observation: pass infos=infos. If your environment really goes on "
        "where an episode was cut, pass autoreset='disabled' to the buffer"
    )
