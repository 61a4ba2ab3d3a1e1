"""A signal becomes a flag, and where nobody looks at the flag a process of its own ends all the same."""

import signal
import subprocess
import sys
import threading

import pytest

from arb.lab.machine import stoppable

PROGRAM = """
import hashlib, sys, time
from arb.lab import machine
machine.PATIENCE = {patience}
with machine.stoppable("stopping", own_process=True) as asked:
    print("ready", flush=True)
    {work}
"""
IN_A_COMPILED_CALL = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)  # hours, in which no Python code runs"


def started(patience: float, work: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", PROGRAM.format(patience=patience, work=work)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def usual():
    """Ctrl-C as in a terminal: a program that a script starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_signal_is_a_flag_and_the_second_acts_as_usual(usual):
    with stoppable() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_the_main_thread_listens():
    heard = []

    def work():
        with stoppable(own_process=True) as asked:
            heard.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_does_not_look_ends_without_waiting_for_a_compiled_call(number):
    process = started(0.2, IN_A_COMPILED_CALL)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "\nstopping\n\nstopped; run the same command to continue\n"


def test_a_second_signal_ends_it_at_once():
    process = started(1e6, IN_A_COMPILED_CALL)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert [process.stderr.readline() for _ in range(2)] == ["\n", "stopping\n"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_a_process_that_has_looked_may_take_its_time_to_save():
    process = started(0.1, "[None for _ in iter(asked, True)]; time.sleep(0.5); print('saved', flush=True)")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert output == "saved\n"
    assert process.returncode == 0
