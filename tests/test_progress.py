"""What a terminal shows of long work, and what a log file gets."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from arb import progress as module
from arb.progress import Screen, count, counts, described, live_view, progress


def test_plain_lines_come_now_and_then_and_with_every_score(monkeypatch):
    clock, lines = [1.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    shown = Screen(lines.append)
    for step in range(1, 6):
        clock[0] += 6.0
        shown.update("a", "online", step * 100, 1000, {"score": 5.0} if step == 2 else {"replay.online_share": 0.5})
    shown.update("a", "online", 1000, 1000)
    assert lines == ["online  100 of 1,000  50% online", "online  200 of 1,000  score 5.0", "online  1,000 of 1,000"]
    clock[0] += module.EVERY_SECONDS
    shown.update("a", "other", 1, 10)
    assert len(lines) == 4
    shown.drop("a")


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
        tell("pretrain", step * 1000, 3000, {"score": 46.1, "replay.online_share": 0.3, "replay.effective_share": 0.1})
        time.sleep(0.3)
with screen(rows_as_lines=False) as shown:
    shown.summary = lambda: "1 of 2 runs done"
    shown.update("dropped", "dropped", 1, 10)
    shown.drop("dropped")
    shown.update("long", "hopper-medium-replay-v2/iql/" + "x" * 120 + "/seed-0", 1, 10)
    shown.say("[red]as it is[/red]")
"""


@pytest.mark.parametrize("columns", [80, 120])
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
    assert any(line.startswith("offline ━") and "3,000 of 3,000" in line and "46.1" in line for line in lines), text
    assert all(len(line) <= columns for line in lines)
    assert "[red]as it is[/red]" in text
    assert any(line.startswith("…") and "seed-0 ━" in line for line in lines)
    assert "1 of 2 runs done" in text


def test_words():
    assert described({}) == ""
    assert described({"score": 46.13, "replay.effective_share": 0.5}) == "score 46.1, ESS 50%"
    assert [count(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert (counts([3, 1, 2], "seed"), counts([2, 2], "seed")) == ("1 to 3 seeds", "2 seeds")
