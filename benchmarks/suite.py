"""The table of the suite's datasets, with their hashes: makes those that are not in the cache, one row for each.

    python benchmarks/suite.py [suite:hopper-mixed ...]     without names, all; a finished row is written at once
    python tools/pages.py                                   brings docs/suite.md up to date
    python benchmarks/suite.py --quick                      two small ones, made anew and printed; nothing is kept

Scores are normalised; `goal` is the share of episodes that reach the evaluation goal, `rewarded` that of the rows.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import tempfile

from arb.data.tasks import SUITE, normalised, task_of
from arb.files import write_text
from arb.suite.datasets import PUBLISHED, load_dataset, recorded_with

QUICK = ("suite:hopper-medium-expert:1000", "suite:antmaze-umaze-play:1000")
"""One dataset of each kind, as small as a dataset can be."""


def row_of(name):
    task, dataset = task_of(name), load_dataset(name)
    returns = dataset.episode_returns
    scores = normalised(returns, task.reference)
    maze = task.family == "antmaze"
    return {
        "dataset": name,
        "rows": len(dataset),
        "episodes": dataset.num_episodes,
        "mean score": "" if maze else f"{scores.mean():.1f}",
        "standard deviation": "" if maze else f"{scores.std():.1f}",
        "best score": "" if maze else f"{scores.max():.1f}",
        "goal": f"{100 * (returns > 0).mean():.0f} %" if maze else "",
        "rewarded": f"{100 * dataset.rewards.mean():.2f} %" if maze else "",
        "sha256": dataset.fingerprint[:16],
        "versions": recorded_with(),
    }


def as_csv(rows):
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("datasets", nargs="*", metavar="NAME", help="as suite:hopper-mixed; without, all of the suite")
    options.add_argument("--quick", action="store_true", help="two datasets of 1,000 rows, printed; nothing is kept")
    chosen = options.parse_args()
    if chosen.quick:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["ARB_CACHE"] = cache
            sys.stdout.write(as_csv([row_of(name) for name in QUICK]))
        return
    for name in chosen.datasets or SUITE:
        new = row_of(name)
        with PUBLISHED.open(newline="") as file:
            rows = {row["dataset"]: row for row in csv.DictReader(file)}
        rows[name] = new
        write_text(PUBLISHED, as_csv([rows[name] for name in SUITE if name in rows]))
        print(*new.values(), flush=True)


if __name__ == "__main__":
    main()
