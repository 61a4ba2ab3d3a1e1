"""The table of sets in docs/suite.md: makes the sets that are not in the cache, and writes one line for each.

    python benchmarks/suite.py docs/suite.csv [suite:hopper-mixed ...]
    python tools/pages.py

Scores are normalised; `goal` is the share of episodes that reach the evaluation goal.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from arb.data import borders, episode_returns, fingerprint, read
from arb.tasks import SUITE, normalised


def set_row(name):
    task, columns = SUITE[name], read(name).columns
    first, _ = borders(columns)
    scores = normalised(episode_returns(columns), task.reference)
    reached = np.add.reduceat(columns["terminals"].astype(int), first) > 0
    maze = task.family == "antmaze"
    return {
        "set": name,
        "rows": len(columns["rewards"]),
        "episodes": len(first),
        "mean score": "" if maze else f"{scores.mean():.1f}",
        "standard deviation": "" if maze else f"{scores.std():.1f}",
        "best score": "" if maze else f"{scores.max():.1f}",
        "goal": f"{100 * reached.mean():.0f} %" if maze else "",
        "sha256": fingerprint(columns)[:16],
    }


def main():
    out, *names = sys.argv[1:]
    rows = [set_row(name) for name in names or SUITE]
    with Path(out).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
