"""Curves for a terminal."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arb.report.cells import gather
from arb.report.looks import BARS, MOST_PANELS, WIDTH, curves, spark
from arb.report.runs import read_runs
from tests.report.folders import write_sweep


def test_eight_heights_by_hand():
    assert spark(np.arange(8), 0.0, 8.0) == BARS
    assert spark([-1.0, 9.0, np.nan], 0.0, 8.0) == "▁█ "
    assert spark([3.0, 3.0], 3.0, 3.0) == "▁▁"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_higher_value_never_has_a_lower_bar(values):
    drawn = spark(sorted(values), min(values), max(values))
    assert list(drawn) == sorted(drawn)
    assert len(drawn) == len(values)


def test_every_strategy_has_a_line_with_both_curves(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"], strategies=("naive", "arb"))
    title, naive, arb = curves(gather(read_runs([tmp_path]))).splitlines()
    assert title.startswith("IQL on hopper-medium-v2, steps 0 to 10,000: ")
    assert naive.split()[0] == "Naive"
    assert arb.split()[0] == "ARB"
    assert naive.split()[-1] == "25%"  # 10,000 of 40,000 rows
    assert len(arb.split()[3]) == 10 <= WIDTH


def test_many_panels_are_left_to_the_page(tmp_path):
    write_sweep(tmp_path, tasks=[f"task-{n}" for n in range(MOST_PANELS + 1)], seeds=1)
    assert curves(gather(read_runs([tmp_path]))) == ""
