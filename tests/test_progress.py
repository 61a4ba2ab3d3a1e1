"""What a terminal shows of long work at any width, and what a log file gets."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb import progress as module
from arb.progress import Row, Screen, described, duration, fitted, live_view, plain, progress


def row(name="online", done=4_000, total=10_000, begun=0.0, now=20.0, **figures):
    made = Row("")
    made.update(begun, name, 0, total, {})
    made.update(now, name, done, total, figures)
    return made


def test_speed_and_time_left_follow_from_two_counts():
    cells = row().cells()
    assert cells["speed"] == "200/s"
    assert cells["left"] == "30 s left"
    assert cells["count"] == "4,000 of 10,000"
    assert cells["bar"] == "######--------"


def test_speed_counts_from_where_this_process_began_and_anew_for_a_new_phase():
    resumed = Row("")
    resumed.update(10.0, "offline", 9_000, 10_000, {"score": 3.0})
    assert (resumed.rate, resumed.cells()["left"]) == (0.0, "")
    resumed.update(20.0, "offline", 9_500, 10_000, {})
    assert resumed.rate == 50
    assert resumed.cells()["score"] == "score 3.0"  # stays between evaluations
    resumed.update(30.0, "online", 100, 10_000, {})
    assert resumed.rate == 0
    resumed.update(31.0, "online", 10_000, 10_000, {})
    assert resumed.cells()["left"] == ""


WIDE = {"score": 46.13, "online_share": 0.314, "effective_share": 0.12}


def test_at_eighty_columns_count_and_time_left_stay_and_the_rest_goes_first():
    rows = [row(**WIDE).cells()]
    (wide,), (normal,), (narrow,) = (fitted(rows, width) for width in (160, 80, 40))
    assert all(part in wide for part in ("online", "####", "4,000 of 10,000", "30 s left", "200/s", "12%"))
    assert len(normal) <= 80
    assert "4,000 of 10,000  30 s left" in normal
    assert "score 46.1" in normal
    assert "effective" not in normal
    assert narrow == "online  4,000 of 10,000  30 s left"


def test_rows_are_aligned_and_long_names_are_cut_at_the_left():
    name = "hopper-medium-replay-v2/iql/arb-replay.temperature=0.5-schedule.online=50000/seed-0  online"
    lines = fitted([row(name).cells(), row("b", done=10).cells()], 60)
    assert lines[0].startswith("…")
    assert "seed-0  online  4,000 of 10,000  30 s left" in lines[0]
    assert lines[0].index("4,000") == lines[1].index("10 of")
    assert fitted([], 80) == []


TEXTS = st.text("abc/=.-", max_size=90)


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 10**7), st.floats(0.01, 1e6)), min_size=1, max_size=4),
    st.integers(40, 200),
)
def test_no_line_is_wider_than_the_terminal_and_none_loses_its_count(found, width):
    rows = [row(name, done, 10**7, now=seconds, score=-1e5).cells() for name, done, seconds in found]
    for cells, line in zip(rows, fitted(rows, width), strict=True):
        assert len(line) <= width
        assert cells["count"] in line
        assert cells["left"] in line or width < 50


def test_plain_lines_come_now_and_then_and_with_every_score(monkeypatch):
    clock, lines = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    shown = Screen(lines.append)
    for step in range(1, 6):
        clock[0] += 6.0
        shown.update("a", "online", step * 100, 1000, {"score": 5.0} if step == 2 else {})
    shown.update("a", "online", 1000, 1000)
    assert [line.split()[1] for line in lines] == ["100", "200", "1,000"]
    assert lines[1] == "online  200 of 1,000  48 s left  17/s  score 5.0"
    clock[0] += module.EVERY_SECONDS
    shown.update("b", "other", 1, 10)
    assert len(lines) == 4


def test_rows_that_are_dropped_are_gone_and_a_crowd_is_counted():
    shown = Screen(lambda _: None, rows_as_lines=False)
    for number in range(30):
        shown.update(number, f"run {number}", 1, 10)
    shown.summary = lambda: "3 of 30 runs done"
    lines = shown.text(80).splitlines()
    assert len(lines) == module.MOST_ROWS + 2
    assert lines[-2:] == ["and 6 more", "3 of 30 runs done"]
    for number in range(30):
        shown.drop(number)
    assert shown.text(80) == "3 of 30 runs done"


def test_a_log_file_gets_lines_on_standard_error(capsys):
    with live_view() as tell:
        tell("pretrain", 100, 200, {"score": 1.0})
    with progress("hopper", 7) as done:
        done(7)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "offline  100 of 200  score 1.0\nhopper  7 of 7\n"


ON_A_TERMINAL = """
import time
from arb.progress import live_view, screen
with live_view() as tell:
    for step in range(1, 4):
        tell("pretrain", step * 1000, 3000, {"score": 46.1, "online_share": 0.3, "effective_share": 0.1})
        time.sleep(0.3)
with screen() as shown:
    shown.say("\\x1b[31mred")
"""


@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal_a_bar_changes_in_place(columns):
    master, slave = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([sys.executable, "-c", ON_A_TERMINAL], stderr=slave, env=environment)
    os.close(slave)
    seen = io.BytesIO()
    try:
        while block := os.read(master, 4096):
            seen.write(block)
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(master)
    assert process.wait() == 0
    text = seen.getvalue().decode()
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", text)]
    assert any(line.startswith("offline") and "3,000 of 3,000" in line for line in lines), text
    assert all(len(line) <= columns for line in lines)
    assert ("effective sample size" in text) == (columns == 120)
    assert "\\x1b[31mred" in text


def test_what_a_terminal_would_obey_is_escaped():
    assert plain("ok: λ é 漢 \t\n") == "ok: λ é 漢 \t\n"
    assert plain("\r\x1b[2J\x9b1m\x7f\u2066\udc80") == "\\r\\x1b[2J\\x9b1m\\x7f\\u2066\\udc80"


@given(st.text())
def test_plain_text_can_be_written_anywhere(text):
    safe = plain(text)
    safe.encode()
    assert not set(safe) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
    assert plain(safe) == safe


def test_words():
    assert described({}) == ""
    assert described({"effective_share": 0.5}) == "effective sample size 50%"
    assert [duration(seconds) for seconds in (0, 89, 90, 5399, 5400)] == ["0 s", "89 s", "2 min", "90 min", "1.5 h"]
