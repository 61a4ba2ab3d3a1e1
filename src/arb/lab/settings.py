"""Settings for people: what each is, what it means, and how its text is read."""

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from arb.errors import DataError


class Setting(NamedTuple):
    """A leaf, for people."""

    name: str
    type: str
    default: Any
    meaning: str


def settings_table(config: Any) -> list[Setting]:
    """Every setting of a configuration, with its type, value and meaning.

    >>> from arb.lab.config import Config
    >>> next(row for row in settings_table(Config()) if row.name == "schedule.batch")
    Setting(name='schedule.batch', type='int', default=256, meaning='Transitions in a batch.')
    """
    return list(_settings(config, ""))


def _settings(tree: Any, path: str) -> Iterator[Setting]:
    hints, meanings = get_type_hints(type(tree)), _meanings(type(tree))
    for f in fields(tree):
        value = getattr(tree, f.name)
        if is_dataclass(value):
            yield from _settings(value, f"{path}{f.name}.")
        else:
            meaning = f.metadata.get("meaning") or meanings.get(f.name, "")
            yield Setting(f"{path}{f.name}", _spelt(hints[f.name]), value, meaning)


def _meanings(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, from its source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        with suppress(OSError, TypeError, SyntaxError):  # a class that was made without source
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            statements = body.body if isinstance(body, ast.ClassDef) else []
            for line, after in itertools.pairwise(statements):
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    said = after.value if isinstance(after, ast.Expr) else None
                    text = said.value if isinstance(said, ast.Constant) else ""
                    found[line.target.id] = " ".join(str(text).split())
    return found


def read_value(value: Any, wanted: Any, name: str) -> Any:
    """A value, or the text of one, as the type a setting has."""
    if isinstance(value, str) and wanted is not str:
        with suppress(ValueError, SyntaxError):  # else it is a word, for settings that are one of several words
            value = ast.literal_eval(value)
    if isinstance(value, list):
        value = tuple(value)
    if _fits(value, wanted):
        parts = get_args(wanted) or (wanted,)
        return float(value) if isinstance(value, int) and float in parts and int not in parts else value
    raise DataError(f"{name} must be {_spelt(wanted)}, not {value!r}")


def _fits(value: Any, wanted: Any) -> bool:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        inner = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return wanted is Any or isinstance(value, wanted)


def _spelt(wanted: Any) -> str:
    if wanted is types.NoneType:
        return "None"
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(map(_spelt, get_args(wanted)))
    if get_origin(wanted) is Literal:
        return " or ".join(repr(part) for part in get_args(wanted))
    if get_origin(wanted) is tuple:
        kinds = get_args(wanted)
        number = "a comma after each" if kinds[-1] is Ellipsis else f"{len(kinds)} of them with a comma between"
        return f"{_spelt(kinds[0])} values, {number}"
    return str(wanted.__name__) if isinstance(wanted, type) and not get_args(wanted) else str(wanted)
