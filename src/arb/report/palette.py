"""One colour per strategy, the same in figures and on the page; told apart also with colour-blind eyes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arb.report.cells import STRATEGIES

# Okabe and Ito, Color Universal Design (2008); the page lightens them itself on a dark ground.
_COLOURS = {"naive": "#e69f00", "parallel": "#009e73", "top_n": "#cc79a7", "berb": "#d55e00", "arb": "#0072b2"}
_OTHERS = ("#56b4e9", "#7a5195", "#8c6d31", "#4d4d4d")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "10 4")


def colours(variants: Mapping[str, str]) -> dict[str, str]:
    """A colour per variant, given the strategy of each; variants of one strategy run from dark to light."""
    found = {}
    for strategy, names in _by_strategy(variants).items():
        known = list(STRATEGIES)
        colour = _COLOURS.get(strategy) or _OTHERS[(len(strategy) + len(known)) % len(_OTHERS)]
        for i, name in enumerate(names):
            found[name] = _lightened(colour, 0.55 * i / max(1, len(names) - 1))
    return found


def dashes(variants: Mapping[str, str]) -> dict[str, str]:
    """A dash pattern per variant: whole lines for the first of each strategy, others for its relatives."""
    return {
        name: _DASHES[i % len(_DASHES)] for names in _by_strategy(variants).values() for i, name in enumerate(names)
    }


def _by_strategy(variants: Mapping[str, str]) -> dict[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name, strategy in variants.items():
        found.setdefault(strategy, []).append(name)
    return dict(found)


def _lightened(colour: str, share: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
