"""The strategies that every adapter must carry, by the name of what is special about each."""

import arb

STRATEGIES = {
    "uniform": arb.Uniform,
    "mixed": arb.Mixed,
    "trajectory": lambda: arb.OnPolicy(0.5),
    "transition": lambda: arb.OnPolicy(0.5, level="transition"),
    "budget": lambda: arb.OnPolicy(0.5, budget=300),
}
