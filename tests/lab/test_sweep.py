"""Sweeps: which run has which folder, who works on it, and what is left when something dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arb import DataError, load_dataset
from arb.lab import setup
from arb.lab import sweep as module
from arb.lab.config import flat
from arb.lab.folder import DATASETS, SHARED, RunFolder, Shared
from arb.lab.machine import cores
from arb.lab.sweep import View, grid, own_datasets, plan, pretraining_of, sweep, take, work, write_plan
from arb.progress import Screen
from tests.lab import tiny

TASK = "hopper-medium-v2"
SMALL = tiny.SMALL | tiny.NETWORKS["iql"]


def variants(**axes):
    axes = {name.replace("_", "."): values for name, values in axes.items()}
    return grid([TASK], strategies=["arb"], preset="smoke", axes=axes)


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_larger_grid_adds_to_a_smaller_one(tmp_path):
    assert variants(replay_temperature=[1]) == variants(replay_temperature=[1, 2])[:1]
    for values in ([1], [2, 3], [1]):
        write_plan(plan(variants(replay_temperature=values), tmp_path))
    rows = json.loads((tmp_path / "plan.json").read_text())["cells"]
    assert [row["config"]["replay.temperature"] for row in rows] == [1, 2, 3]


def test_a_run_of_other_settings_in_the_folder_is_refused(tmp_path):
    (cell,) = variants()
    RunFolder(tmp_path / cell.folder).path.mkdir(parents=True)
    held = {"config": flat(cell.config) | {"schedule.online": 900}}
    RunFolder(tmp_path / cell.folder).config_file.write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"schedule.online = 900, not 400"):
        plan([cell], tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": 3}', '{"cells": [{"folder": "a"}]}', '{"cells": [3]}'])
def test_a_damaged_plan_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(DataError, match=r"plan.json is damaged: move it away"):
        write_plan(plan(variants(), tmp_path))


def test_what_the_python_function_refuses_is_what_the_command_refuses(tmp_path):
    with pytest.raises(DataError, match="CartPole-v1 has discrete actions, which Cal-QL does not support"):
        sweep(grid(["bundled:hopper-tiny"], ["calql"], env="CartPole-v1"), tmp_path)
    with pytest.raises(DataError, match="--workers must be at least 1"):
        sweep([], tmp_path, workers=0)
    assert sweep([], tmp_path).done == []


# ---- who takes what --------------------------------------------------------------------------------------------------


def test_a_folder_with_its_lock_is_the_scheduler(tmp_path):
    cells = grid([TASK], strategies=["naive", "arb"], seeds=[0, 1], preset="smoke")
    naive_0, naive_1, arb_0, arb_1 = cells
    assert pretraining_of(naive_0.config) == pretraining_of(arb_0.config) != pretraining_of(naive_1.config)
    first, second = take(tmp_path, cells), take(tmp_path, cells)
    assert (first.cell, second.cell) == (naive_0, naive_1)  # the others wait for their pre-trainings
    assert take(tmp_path, cells) is None
    second.pretraining.close()
    third = take(tmp_path, cells)
    assert third.cell == arb_1
    first.release()  # its process died: whoever comes next continues it
    assert take(tmp_path, cells).cell == naive_0
    RunFolder(tmp_path / arb_0.folder).write_failure("it cannot work", "")
    assert take(tmp_path, [arb_0]) is None


def test_the_view_counts_and_says_what_happens(tmp_path):
    lines = []
    todo = plan(grid([TASK], strategies=["naive", "arb"], preset="smoke"), tmp_path)
    view = View(todo, Screen(lines.append, rows_as_lines=False))
    naive, arb = (cell.folder for cell in todo.left)
    view.hear({"event": "begins", "cell": naive})
    view.hear({"event": "progress", "cell": naive, "phase": "pretrain", "step": 200, "total": 400, "metrics": {}})
    assert view.summary() == "0 of 2 runs done"
    view.hear({"event": "failed", "cell": naive, "reason": "no memory", "again": True})
    view.hear({"event": "done", "cell": naive, "score": 46.13})
    view.hear({"event": "failed", "cell": arb, "reason": "no data", "again": False})
    assert [line.partition("  (")[0] for line in lines] == [
        f"{naive}  failed, will be tried again: no memory",
        f"{naive}  score 46.1",
        f"{arb}  failed: no data",
    ]
    assert view.summary() == "1 of 2 runs done, 1 failed"


# ---- real ones -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps")
    tiny.write_data(folder / "data.npz")
    return folder


def cells_of(place, strategies=("naive", "arb"), seeds=(0, 1), **more):
    return grid(
        [str(place / "data.npz")], strategies=strategies, seeds=seeds, env="Pendulum-v1", overrides=SMALL | more
    )


def bytes_of(folder):
    return {name: (folder / name).read_bytes() for name in ("eval.csv", "metrics.csv", "policy/policy.npz")}


@pytest.fixture(scope="module")
def done(place):
    cells = cells_of(place)
    return cells, sweep(cells, place / "done"), place / "done"


def test_a_sweep_runs_every_cell_from_shared_pretrainings(done):
    cells, outcome, out = done
    assert sorted(outcome.done) == sorted(cell.folder for cell in cells)
    assert len([path for path in (out / SHARED).iterdir() if path.is_dir()]) == 2
    assert len(json.loads((out / "plan.json").read_text())["cells"]) == 4
    again = sweep(cells, out)
    assert (again.done, len(again.skipped), again.failed) == ([], 4, {})


def test_a_dataset_is_read_and_normalised_once_for_all_workers(place, tmp_path, monkeypatch):
    cells, counted = cells_of(place, strategies=("naive",)), []
    for name in ("load_data", "as_seen"):
        of = getattr(setup, name)
        monkeypatch.setattr(setup, name, lambda *a, of=of, name=name: (counted.append(name), of(*a))[1])
    for cell in cells:  # as two workers
        work({"out": str(tmp_path), "cells": [(cell.folder, flat(cell.config))], "retry": 0}, print, lambda: False)
    assert counted == ["load_data", "as_seen"]
    assert len(list((tmp_path / SHARED / DATASETS).glob("*/columns.json"))) == 2
    shared, seen, data = Shared(tmp_path / SHARED / DATASETS), [], load_dataset(cells[0].config.task)
    for overrides in ({}, {"preprocessing.normalize_observations": False}, {"preprocessing.reward_shift": -1.0}):
        config = cells_of(place, seeds=(0,), **overrides)[0].config
        seen.append(setup.Setup.of(config, data, shared=shared).dataset.fingerprint)
        assert seen[-1] == setup.Setup.of(config, data).dataset.fingerprint
    assert len(set(seen)) == 3, "what agents see depends on the preprocessing"


def test_shared_datasets_belong_to_the_first_of_two_sweeps(tmp_path):
    left = tmp_path / "datasets" / "of-a-killed-sweep"
    left.mkdir(parents=True)
    with own_datasets(tmp_path / "datasets"):
        assert not left.exists()
        left.mkdir(parents=True)
        with own_datasets(tmp_path / "datasets"):
            assert left.exists()
        assert left.exists()
    assert not (tmp_path / "datasets").exists()


def test_a_run_alone_on_one_core_ends_in_the_same_bytes(done, place):
    cells, _, out = done
    code = "import sys, json, os; os.sched_setaffinity(0, {int(sys.argv[1])})\n"
    code += "from arb.lab.config import from_flat; from arb.lab.training import run\n"
    code += "run(from_flat(json.loads(sys.argv[2])), sys.argv[3])"
    arguments = [str(cores()[0]), json.dumps(flat(cells[2].config)), str(place / "alone" / "run")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert bytes_of(place / "alone" / "run") == bytes_of(out / cells[2].folder)


def test_a_worker_that_is_killed_is_replaced_and_its_run_continues(done, place, monkeypatch):
    cells, _, out = done
    killed, lines = [], []

    class Deadly(View):
        def hear(self, message):
            super().hear(message)
            if message["event"] == "progress" and message["phase"] == "online" and not killed:
                killed.append(message["cell"])
                os.kill(workers[-1].process.pid, signal.SIGKILL)

    workers, start = [], module.Worker.__init__

    def noted(self, *arguments):
        workers.append(self)
        start(self, *arguments)

    monkeypatch.setattr(module.Worker, "__init__", noted)
    todo = plan(cells[:1], place / "killed")
    outcome = sweep(todo, workers=1, view=Deadly(todo, Screen(lines.append, rows_as_lines=False)))
    assert outcome.done == [cells[0].folder]
    assert len(workers) == 2
    assert "its worker process was killed by SIGKILL (out of memory?)" in lines[0]
    assert bytes_of(place / "killed" / cells[0].folder) == bytes_of(out / cells[0].folder)


WAITING = """
import json, os, pathlib, queue, sys, time
from arb.lab.sweep import Worker


def wait(request, say, asked_to_stop):
    print("printed")
    core, threads = os.sched_getaffinity(0), os.environ["OPENBLAS_NUM_THREADS"]
    say({"pid": os.getpid(), "session": os.getsid(0), "core": list(core), "threads": threads, **request})
    sys.path[0] or print("the current folder hides libraries")
    while not asked_to_stop():
        time.sleep(0.05)


if __name__ == "__main__":
    messages = queue.Queue()
    Worker("waiting:wait", {"asked": [1, "a"]}, pathlib.Path("log"), messages, int(sys.argv[1]))
    print(json.dumps(messages.get()[1]), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_worker_is_alone_on_its_core_and_ends_with_whoever_started_it(tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [sys.executable, str(tmp_path / "waiting.py"), str(cores()[-1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert said == {"pid": said["pid"], "session": said["pid"], "core": cores()[-1:], "threads": "1", "asked": [1, "a"]}
    deadline = time.monotonic() + 60
    while Path(f"/proc/{said['pid']}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (tmp_path / "log").read_text() == "printed\n"


CRASHING = """
import os
import arb


class Crashing(arb.Uniform):
    def probabilities(self):
        os._exit(3)


class Raising(arb.Uniform):
    def probabilities(self):
        raise KeyError("not there")
"""


def test_what_fails_for_good_is_listed_and_the_rest_is_done(place, monkeypatch):
    (place / "crashing.py").write_text(CRASHING)
    monkeypatch.syspath_prepend(place)
    cells = cells_of(place, ("naive", "crashing:Crashing", "crashing:Raising"), (0,))
    outcome = sweep(cells, place / "crashed", workers=2, retry=0)
    naive, crashing, raising = (cell.folder for cell in cells)
    assert outcome.done == [naive]
    assert outcome.failed[crashing] == "its worker process ended with status 3"
    assert outcome.failed[raising].startswith("KeyError: 'not there'")
    assert "Traceback" in RunFolder(place / "crashed" / raising).failure_mark.read_text()


def test_stopping_saves_and_two_sweeps_share_the_rest(done, place):
    cells, _, out = done
    command = [sys.executable, "-m", "arb.cli", "sweep", "-t", str(place / "data.npz"), "-e", "Pendulum-v1"]
    command += ["-s", "naive,arb", "--seed", "0-1", "-o", str(place / "stopped"), "--workers", "1"]
    command += [f"{key}={value}" for key, value in SMALL.items()]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((place / "stopped").rglob("metrics.csv")) and time.monotonic() < deadline:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "left; run the same command to continue" in said
    assert "Traceback" not in said
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0], [process.stderr.read() for process in both]
    for process in both:
        process.stderr.close()
    for cell in cells:  # settings that are given to the command are part of a name
        (folder,) = (place / "stopped").glob(f"*/iql/{cell.config.replay.strategy}-*/seed-{cell.config.seed}")
        assert bytes_of(folder) == bytes_of(out / cell.folder)


def test_a_slice_of_the_work_is_saved_and_continued(done, place):
    cells, _, out = done
    request = {"out": str(place / "sliced"), "cells": [(cells[0].folder, flat(cells[0].config))], "retry": 0}
    said = []
    for _ in range(20):
        work(request | {"seconds": 1e-3}, said.append, lambda: False)
        if said[-1]["event"] == "done":
            break
    assert [message["event"] for message in said].count("stopped") > 1
    assert bytes_of(place / "sliced" / cells[0].folder) == bytes_of(out / cells[0].folder)
