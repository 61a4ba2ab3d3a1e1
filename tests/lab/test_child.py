"""A process of our own: what it can import, how it ends, and that nothing it prints gets between its answers."""

import time

import pytest

from arb.lab.child import Child

PROBE = """
import importlib.util, queue, sys
from arb.lab.child import serve

orders, say = serve(at_end=lambda: None)
print("not an answer")
say({"queue": queue.__file__, "here": importlib.util.find_spec("only_here") is not None, "told": sys.argv[1:]})
while (order := orders.get()) is not None:
    say({"heard": order})
"""


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """A module that says what it sees, from a current folder that would hide a module of Python."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "probe.py").write_text(PROBE)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "queue.py").write_text("raise SystemExit('hidden')")
    (tmp_path / "here" / "only_here.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return "probe"


def test_orders_are_answered_line_by_line(probe):
    child = Child(probe, "one", "two")
    answers = child.answers()
    assert next(answers)["told"] == ["one", "two"]
    child.order({"kind": "a\nb"})
    assert next(answers) == {"heard": {"kind": "a\nb"}}
    child.leave(30.0)
    assert list(answers) == []
    assert child.log() == "not an answer"
    child.close()


def test_the_current_folder_hides_nothing_and_is_found_where_it_is_here(probe, monkeypatch):
    import sys

    for path, there in ((None, False), ("", True)):
        if path is not None:
            monkeypatch.setattr(sys, "path", [*sys.path, path])
        child = Child(probe)
        said = next(child.answers())
        child.leave(30.0)
        child.close()
        assert "here" not in said["queue"]
        assert said["here"] == there


def test_a_process_that_does_not_end_is_ended(tmp_path, monkeypatch):
    (tmp_path / "deaf.py").write_text("import time\nprint('{}', flush=True)\ntime.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)
    child = Child("deaf")
    next(child.answers())
    began = time.monotonic()
    child.leave(0.5)
    assert child.process.returncode < 0
    assert time.monotonic() - began < 60.0
    child.close()


def test_half_an_answer_is_none(tmp_path, monkeypatch):
    (tmp_path / "cut.py").write_text("print('{\"whole\": 1}')\nprint('{\"half\":', end='')")
    monkeypatch.syspath_prepend(tmp_path)
    child = Child("cut")
    assert list(child.answers()) == [{"whole": 1}]
    child.close()


def test_an_order_to_a_dead_process_is_lost(probe):
    child = Child(probe)
    next(child.answers())
    child.process.kill()
    child.process.wait()
    child.order({"lost": True})
    child.leave(30.0)
    child.close()
