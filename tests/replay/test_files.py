"""Files appear whole or not at all."""

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
