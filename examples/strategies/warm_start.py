"""Warm start (WSRL, Zhou et al. 2024): online data alone, after a warm-up with the pre-trained policy.

arb run --strategy warm_start:WarmStart                     # in this folder
arb run --strategy warm_start:WarmStart replay.warm_up=2000
"""

import arb


class WarmStart(arb.Mixed):
    """Online rows alone; a run collects with the pre-trained policy before the first update (WSRL).

    While there is no online row, offline rows fill the batch.

    Args:
        warm_up: online steps before the first update.
    """

    def __init__(self, warm_up: int = 5000):
        if not warm_up >= 0:
            raise arb.DataError(f"warm_up must be at least 0 steps, got {warm_up}")
        super().__init__(0.0)
        self.warm_up = warm_up
