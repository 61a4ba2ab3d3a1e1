"""What each rule for "where does an episode end" buys: false and missed ends where the truth is known.

    pip install -e '.[train]'
    taskset -c 0 python benchmarks/boundaries.py
    taskset -c 0 python benchmarks/boundaries.py --quick

The suite's AntMaze datasets flag every step near the goal as terminal, and the episode continues. The truth is in the
simulator's state; the rules must do without it, as for files that have neither it nor next observations. The
Hopper dataset is spoilt in two ways that occur in files: next observations that are observations shifted by a row, and
a false time limit in every thousandth row.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from arb.data.episodes import find_ends, make_dataset
from arb.data.formats import read_columns
from arb.data.tasks import MAZE_LIMITS
from arb.replay.dataset import check_columns, episode_ends
from arb.suite.datasets import locate

PLAIN = ("observations", "actions", "rewards", "terminals", "timeouts")


def ends_of(raw: Any) -> np.ndarray:
    """Per row, whether `read_dataset` takes it for the last of its episode."""
    dataset = make_dataset(raw, "data")
    return np.isin(np.arange(len(dataset)), dataset.ends)


def told(rule: str, found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """A line: ends that are none, and ends that were not found."""
    wrong = np.array([(found & ~truth).sum(), (~found & truth).sum()])
    print(f"    {rule:<44}{wrong[0]:>9,} false {wrong[1]:>7,} missed")
    return wrong


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    size = ":3000" if options.parse_args().quick else ""
    total: dict[str, np.ndarray] = {}
    for name in [f"suite:antmaze-{maze}-{walk}{size}" for maze in MAZE_LIMITS for walk in ("play", "diverse")]:
        raw, *_ = read_columns(locate(name))
        truth, data = ends_of(raw), check_columns({key: raw[key] for key in PLAIN})
        print(f"{name}: {len(truth):,} rows, {truth.sum():,} episodes")
        flags = data.terminated | data.truncated
        flags[-1] = True
        found = {"flags alone": flags, "step test (replay/dataset.py, episode_ends)": episode_ends(data),
                 "start test (data/episodes.py, find_ends)": find_ends(data)}  # fmt: skip
        for rule, ends in found.items():
            total[rule] = total.get(rule, 0) + told(rule, ends, truth)
    print("all:", "; ".join(f"{rule} {false:,} false, {missed:,} missed" for rule, (false, missed) in total.items()))
    raw, *_ = read_columns(locate(f"suite:hopper-mixed{size}"))
    truth = ends_of(raw)
    print(f"suite:hopper-mixed: {len(truth):,} rows, {truth.sum():,} episodes")
    columns = {key: np.asarray(raw[key]) for key in (*PLAIN, "next_observations")}
    shifted = np.concatenate([columns["observations"][1:], columns["next_observations"][-1:]])
    limits = columns["timeouts"].astype(bool)
    limits[999::1000] = True
    for defect, change in {"shifted": {"next_observations": shifted}, "false limits": {"timeouts": limits}}.items():
        spoilt = columns | change
        told(f"{defect}, as they are", episode_ends(check_columns(spoilt)), truth)
        told(f"{defect}, repaired (data/episodes.py)", ends_of(spoilt), truth)


if __name__ == "__main__":
    main()
