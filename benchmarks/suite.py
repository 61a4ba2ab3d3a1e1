"""The tables of docs/suite.md: every policy of the ladders, and every set of the suite (made where it is missing).

python benchmarks/suite.py sets.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from arb.data import borders, episode_returns, fingerprint, read
from arb.data.ladder import LADDERS, read_ladder
from arb.tasks import SUITE, env_reference, normalised


def ladder_rows():
    for path in sorted(LADDERS.glob("*.npz")):
        ladder = read_ladder(path.stem)
        reference = env_reference(ladder.env)
        for rung in ladder.rungs.values():
            score = f"{normalised(rung.sampled, reference):.1f}" if reference else ""
            yield path.stem, rung.name, rung.steps, round(rung.sampled, 1), round(rung.mode, 1), score


def set_row(name):
    task, columns = SUITE[name], read(name).columns
    returns, (first, _) = episode_returns(columns), borders(columns)
    scores = normalised(returns, task.reference)
    reached = (
        np.mean(np.add.reduceat(columns["terminals"].astype(int), first) > 0) if task.family == "antmaze" else None
    )
    return {
        "set": name,
        "rows": len(columns["rewards"]),
        "episodes": len(first),
        "mean": "" if reached is not None else round(float(scores.mean()), 1),
        "spread": "" if reached is not None else round(float(scores.std()), 1),
        "best": "" if reached is not None else round(float(scores.max()), 1),
        "reach the goal": "" if reached is None else f"{100 * reached:.0f} %",
        "sha256": fingerprint(columns)[:16],
    }


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print(
            "| " + " | ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in row) + " |",
            flush=True,
        )


def main():
    out = Path(sys.argv[1])
    table(("robot", "rung", "steps", "return, sampled", "return, mode", "score, sampled"), ladder_rows())
    print()
    rows = []
    for name in SUITE:
        rows.append(set_row(name))
        table(rows[-1], [rows[-1].values()])
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
