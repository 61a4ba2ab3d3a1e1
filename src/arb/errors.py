"""Errors in a caller's data, explained in one line."""

import difflib
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


ROUNDING = 1e-6
"""By how much of their range actions may leave their bounds."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """Work was asked to stop, has saved what it did, and will continue from there."""


class EnvironmentFailure(Exception):  # noqa: N818 - a robot's, not the program's
    """An environment raised an exception while it was made, reset or stepped: the message says which and where."""


class DataError(ValueError):
    """Data that cannot be used: the message says what is wrong, where, and what to do."""


def check_finite(name: str, column: Array, first_row: int = 0) -> None:
    """Raise a `DataError` that names the first row in which a float column is nan or infinite."""
    if column.dtype.kind not in "fc" or np.isfinite(column).all():
        return
    flat = column.reshape(len(column), -1)
    row, entry = (int(at) for at in np.argwhere(~np.isfinite(flat))[0])
    place = f"row {first_row + row}" + f", entry {entry}" * (flat.shape[1] > 1)
    value = f"{flat[row, entry]}" + " (or too large for float32, which ends at 3.4e38)" * bool(
        np.isinf(flat[row, entry])
    )
    raise DataError(
        f"{name} has a value that is not finite in {place}: {value}; drop that row and end the episode "
        "before it, as `arb data repair` does"
    )


def check_bounds(name: str, action: Array, low: Array, high: Array) -> None:
    """Raise a `DataError` that names the first row whose action leaves its bounds."""
    slack = np.where(np.isfinite(high - low), ROUNDING * (high - low), 0.0)
    outside = (action < low - slack) | (action > high + slack)
    if not np.count_nonzero(outside):
        return
    row = int(np.flatnonzero(outside.reshape(len(action), -1).any(1))[0])
    raise DataError(
        f"{name} leaves the bounds [{_shown(low)}, {_shown(high)}] in row {row}: {_shown(action[row])}; "
        "clip the actions, or rescale them to the action space the policy uses"
    )


def check_choices(settings: Any) -> None:
    """Raise a `DataError` for a field of a dataclass that must be one of a few words (`Literal`) and is not."""
    for name, hint in get_type_hints(type(settings)).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
        value = getattr(settings, name)
        others = tuple((int, float) if part is float else part for part in parts if get_origin(part) is not Literal)
        if words and not isinstance(value, others):
            check_choice(f"{name} of {type(settings).__name__}", value, words)


def check_choice(name: str, word: Any, known: Iterable[str]) -> None:
    """Raise a `DataError` unless the word is one of those known.

    >>> check_choice("likelihood", "densty", ("standard", "density"))
    Traceback (most recent call last):
    arb.errors.DataError: likelihood must be 'standard' or 'density', not 'densty' (did you mean 'density'?)
    """
    known = list(known)
    if word not in known:
        raise DataError(f"{name} must be {' or '.join(map(repr, known))}, not {word!r}{suggest(word, known)}")


def suggest(name: Any, known: Iterable[str], most: int = 1) -> str:
    """A question to append to an error: the nearest of the known names, if one is near; case does not matter.

    >>> suggest("ARB", ["naive", "arb"])
    " (did you mean 'arb'?)"
    """
    original = {word.lower(): word for word in known}
    found = difflib.get_close_matches(str(name).lower(), original, n=most)
    return f" (did you mean {' or '.join(repr(original[word]) for word in found)}?)" if found else ""


def _shown(value: Any) -> str:
    return np.array2string(np.asarray(value), precision=4, threshold=8, separator=", ")
