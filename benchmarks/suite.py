"""The table of sets in docs/suite.md: makes the sets that are not in the cache, and writes one line for each.

    python benchmarks/suite.py docs/suite.csv [suite:hopper-mixed ...]
    python tools/pages.py
    python benchmarks/suite.py --quick      two sets of 1,000 rows, made anew and printed: does it run, nothing is kept

Scores are normalised; `goal` is the share of episodes that reach the evaluation goal.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from arb.data import borders, episode_returns, fingerprint, read
from arb.data.tasks import SUITE, normalised, task_of

QUICK = ("suite:hopper-medium-expert:1000", "suite:antmaze-umaze-play:1000")
"""One set of each kind, as small as a set can be."""


def set_row(name):
    task, columns = task_of(name), read(name).columns
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


def write(rows, file):
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path, nargs="?", help="the table, a CSV file")
    options.add_argument("sets", nargs="*", metavar="SET", help="as suite:hopper-mixed; without, all of the suite")
    options.add_argument("--quick", action="store_true", help="two sets of 1,000 rows, printed; nothing is kept")
    chosen = options.parse_args()
    if chosen.quick:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["ARB_CACHE"] = cache
            write([set_row(name) for name in QUICK], sys.stdout)
    elif chosen.out is None:
        options.error("name the CSV file to write")
    else:
        rows = [set_row(name) for name in chosen.sets or SUITE]
        with chosen.out.open("w", newline="") as file:
            write(rows, file)


if __name__ == "__main__":
    main()
