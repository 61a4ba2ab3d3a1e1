"""One colour per strategy, the same in figures and on the page; told apart also with colour-blind eyes."""

from collections.abc import Mapping, Sequence

from arb.strategies import strategy_colour

_DASHES = ("", "6 3", "2 2", "8 3 2 3", "10 4")


def colours(variants: Mapping[str, str]) -> dict[str, str]:
    """A colour per variant, given the strategy of each; variants of one strategy run from dark to light."""
    found = {}
    for strategy, names in _by_strategy(variants).items():
        for i, name in enumerate(names):
            found[name] = _lightened(strategy_colour(strategy), 0.55 * i / max(1, len(names) - 1))
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
