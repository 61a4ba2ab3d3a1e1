"""Files appear whole or not at all."""

import subprocess
import sys
import threading

from arb.files import atomic_write


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path):
    """Two blocks of one process are open at once: each has a temporary file of its own."""
    path, both_open = tmp_path / "file.txt", threading.Barrier(2)

    def write(text):
        with atomic_write(path) as temporary:
            temporary.write_text(text)
            both_open.wait(5)
            assert temporary.read_text() == text

    threads = [threading.Thread(target=write, args=(text,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in "ab"
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]


WRITER = """
import os, signal, sys
from pathlib import Path
from arb.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    path, other = tmp_path / "run.json", tmp_path / "other.json"
    for name in (path, other):
        assert subprocess.run([sys.executable, "-c", WRITER, str(name)], check=False).returncode == -9
    elsewhere = tmp_path / ".run.another-machine+1-99-ab.part.json"  # its writer may be alive
    elsewhere.write_text("half")
    assert len(list(tmp_path.iterdir())) == 3
    with atomic_write(path) as mine:
        mine.write_text("first")
        with atomic_write(path) as second:  # another writer of the same file, alive
            second.write_text("second")
        assert mine.exists()
    assert path.read_text() == "first"
    assert {one.name.partition(".part")[0][:6] for one in tmp_path.iterdir()} == {"run.js", ".other", ".run.a"}
