"""Classes whose instances are values to JAX: they go into compiled functions, gradients and loops, and come out.

A value is a frozen dataclass registered as a pytree. Reading a field or calling a method of one costs what it costs in
any Python class, which matters when a policy acts one observation at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar, dataclass_transform

import jax

from arb.policy.networks import constant

__all__ = ["constant", "pytree"]

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(constant,))
def pytree(cls: type[Class]) -> type[Class]:
    """Make a class of annotated fields a value: arrays, trees of arrays or other values, and `constant`s.

    >>> @pytree
    ... class Line:
    ...     slope: jax.Array
    ...     name: str = constant(default="line")
    >>> doubled = jax.tree.map(lambda x: 2 * x, Line(jax.numpy.ones(2)))
    >>> doubled.slope.tolist(), doubled.name
    ([2.0, 2.0], 'line')
    """
    made = dataclass(frozen=True, eq=False)(cls)  # equality of arrays is not one truth, so it is that of objects
    names: dict[bool, list[str]] = {True: [], False: []}
    for f in fields(made):  # type: ignore[arg-type]
        names["constant" in f.metadata].append(f.name)
    jax.tree_util.register_dataclass(made, data_fields=names[False], meta_fields=names[True])
    return made
