"""What a person sees of a sweep."""

from arb.lab.grid import grid
from arb.lab.jobs import Roster
from arb.lab.launch import View
from arb.progress import Screen


def cells_of_one():
    return grid(["hopper-medium-v2"], strategies=["naive"], preset="smoke")


def test_the_view_counts_and_says_what_happens():
    lines: list[str] = []
    cells = cells_of_one()
    view, roster = View(cells, shown=Screen(lines.append, rows_as_lines=False)), Roster(cells)
    before = roster.next()
    view.begins(before)
    view.told(before, "pretrain", 200, 400, {"score": 3.0})
    roster.finish(before)
    view.ends(before, None)
    run = roster.next()
    view.fails(run, "no memory", [])
    view.ends(run, 46.13)
    assert [line.partition("  (")[0] for line in lines] == [
        "hopper-medium-v2/iql/seed-0  pre-trained",
        "hopper-medium-v2/iql/naive/seed-0  failed, will be tried again: no memory",
        "hopper-medium-v2/iql/naive/seed-0  score 46.1",
    ]
    assert view.summary() == "1 of 1 run done"


def test_work_is_counted_in_updates(monkeypatch):
    cells = grid(["hopper-medium-v2"], strategies=["naive", "arb"], preset="smoke")  # 400 + 2 · 400 updates
    clock = [100.0]
    monkeypatch.setattr("arb.lab.launch.time.monotonic", lambda: clock[0])
    view, roster = View(cells, finished_before=1), Roster(cells)
    before = roster.next()
    assert (before.updates, view.summary()) == (400, "1 of 3 runs done")
    clock[0] += 30
    view.told(before, "pretrain", 200, 400, {})  # a sixth of the work in 30 s: five sixths in 150 s
    assert view.summary() == "1 of 3 runs done, about 2 min left"
    view.ends(before, None)
    roster.finish(before)
    first, second = roster.next(), roster.next()
    assert view.summary() == "1 of 3 runs done, about 60 s left"
    view.ends(first, 1.0)
    view.fails(second, "no memory", [second])
    assert view.summary() == "2 of 3 runs done, 1 failed"
