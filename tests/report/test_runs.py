"""Run folders are found, read and grouped; whatever is broken is said in a line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from arb.errors import DataError
from arb.report.cells import MEASURES, gather
from arb.report.runs import read_runs
from tests.report.folders import config_of, write_run, write_sweep


def only(path):
    (run,) = read_runs([path]).all
    return run


def test_a_run_is_read_whole(tmp_path):
    write_run(tmp_path / "deep" / "down" / "run", seed=3, final=50.0)
    run = only(tmp_path)
    assert (run.status, run.task, run.agent, run.strategy, run.seed) == ("done", "hopper-medium-v2", "iql", "arb", 3)
    assert run.reference == (-20.272305, 3234.3)
    assert run.versions == {"numpy": "2.0"}
    assert run.data["rows"] == 1000
    np.testing.assert_array_equal(run.curves["online"].steps, [0, 2000, 4000, 6000, 8000, 10000])
    np.testing.assert_array_equal(run.curves["online"].scores[-1], [50.0] * 3)
    assert run.curves["online"].returns[-1][0] == pytest.approx((3234.3 - 20.272305) / 2)
    assert len(run.metrics["online"]["replay.online_share"]) == len(run.metrics["online"]["step"]) == 10


def test_prefix_and_spelling_of_paths_do_not_count(tmp_path):
    write_run(tmp_path / "run", task="d4rl:hopper-medium-v2")
    runs = read_runs([tmp_path, tmp_path / "run", tmp_path / "run" / ".." / "run"])
    assert [run.task for run in runs.all] == ["hopper-medium-v2"]


def test_caches_and_policies_are_no_runs(tmp_path):
    write_run(tmp_path / "run")
    for inner in (".pretrained/x", "run/policy", "run/checkpoint/0"):
        (tmp_path / inner).mkdir(parents=True)
        (tmp_path / inner / "config.json").write_text("{}")
    assert only(tmp_path).place == str(tmp_path / "run")


def test_planned_failed_and_unfinished_runs_are_listed(tmp_path):
    write_sweep(tmp_path, tasks=["hopper-medium-v2"], seeds=1)
    write_run(tmp_path / "half", seed=5, done=False, online_steps=4000)
    write_run(tmp_path / "fell", seed=6, done=False)
    (tmp_path / "fell" / "FAILED").write_text("out of memory\nand a trace\n")
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "FAILED").write_text("no such dataset\n")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["cells"] += [{"folder": name, "config": config_of(seed=9)} for name in ("never", "early")]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    found = {Path(run.place).name: (run.status, run.reason, run.seed) for run in read_runs([tmp_path]).lacking}
    assert found == {
        "half": ("unfinished", "at online step 4,000 of 10,000", 5),
        "fell": ("failed", "out of memory", 6),
        "early": ("failed", "no such dataset", 9),
        "never": ("missing", "planned, but not started", 9),
    }


BROKEN = {
    "eval.csv": ("phase,step,episode,return,score\nonline,10", "eval.csv, line 2: 5 columns expected"),
    "metrics.csv": ("phase,step\nonline,many\n", "metrics.csv, line 2: step 'many' must be a whole number"),
    "config.json": ('{"config": {"task"', "Expecting"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_reason_not_a_traceback(tmp_path, name):
    write_run(tmp_path / "run")
    content, said = BROKEN[name]
    (tmp_path / "run" / name).write_text(content)
    run = only(tmp_path)
    assert run.status == "failed"
    assert run.reason.startswith("cannot be read: ")
    assert said in run.reason


def test_binary_nonsense_and_missing_keys_are_reasons_too(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{}")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "plan.json").write_text("[]")
    write_run(tmp_path / "d")
    (tmp_path / "d" / "eval.csv").unlink()
    runs = read_runs([tmp_path])
    reasons = [run.reason for run in runs.all]
    assert len(reasons) == 3
    (said,) = runs.damaged  # a plan is no run
    assert said.startswith(f"{tmp_path / 'c' / 'plan.json'} cannot be read")
    assert all(reasons)
    assert reasons[1].startswith("cannot be read: config.json is damaged")


def test_a_path_that_is_no_folder_is_a_mistake(tmp_path):
    with pytest.raises(DataError, match="neither a folder"):
        read_runs([tmp_path / "nothing"])


# ---- cells ----------------------------------------------------------------------------------------------------------


def test_seeds_are_put_together_and_settings_are_told_apart(tmp_path):
    for seed in (0, 1):
        for temperature in (0.5, 2.0):
            # A setting that differs along with another one need not be named.
            leaves = {"replay.temperature": temperature, "settings.expectile": 0.7 + temperature / 100}
            write_run(tmp_path / f"{seed}-{temperature}", config_of(seed=seed, **leaves))
        write_run(tmp_path / f"naive-{seed}", strategy="naive", seed=seed)
    results = gather(read_runs([tmp_path]))
    assert [(cell.variant, len(cell.runs)) for cell in results.cells] == [
        ("Naive", 2),
        ("ARB λ=0.5", 2),
        ("ARB λ=2", 2),
    ]


def test_variants_keep_the_papers_order_also_where_tasks_lack_some(tmp_path):
    write_sweep(tmp_path / "a", tasks=["a"], strategies=("arb", "naive"))
    write_sweep(tmp_path / "b", tasks=["b"], strategies=("arb", "parallel", "mine"))
    assert gather(read_runs([tmp_path])).variants() == ["Naive", "Parallel", "ARB", "mine"]


def test_settings_of_different_tasks_do_not_make_variants(tmp_path):
    write_run(tmp_path / "a", config_of("hopper-medium-v2", **{"settings.expectile": 0.7}))
    write_run(tmp_path / "b", config_of("antmaze-umaze-v2", **{"settings.expectile": 0.9}))
    assert gather(read_runs([tmp_path])).variants() == ["ARB"]


def test_a_copied_run_counts_once(tmp_path):
    for name in ("a", "copy"):
        write_run(tmp_path / name)
    results = gather(read_runs([tmp_path]))
    assert len(results.cells[0].runs) == 1
    assert [Path(run.place).name for run in results.doubles] == ["copy"]


def test_unfinished_runs_are_drawn_only_where_there_is_nothing_else(tmp_path):
    write_run(tmp_path / "done", seed=0)
    write_run(tmp_path / "half", seed=1, done=False, online_steps=4000)
    write_run(tmp_path / "alone", strategy="naive", done=False, online_steps=4000)
    naive, arb = gather(read_runs([tmp_path])).cells
    assert (arb.finished, [Path(run.place).name for run in arb.lab]) == (True, ["done"])
    assert not naive.finished
    assert naive.values("last").size == 0
    assert naive.curve["online"][0][-1] == 4000


def test_measures_by_hand(tmp_path):
    folder = write_run(tmp_path / "run")
    rows = [("pretrain", 0, 5), ("pretrain", 4000, 40), ("online", 0, 41), ("online", 2000, 30), ("online", 4000, 60)]
    lines = [f"{phase},{step},{i},0,{score + d}" for phase, step, score in rows for i, d in enumerate((-1, 1))]
    (folder / "eval.csv").write_text(
        "phase,step,episode,return,score\n" + "\n".join([*lines, "online,6000,0,0,50"]) + "\n"
    )
    run = only(tmp_path)
    found = {name: measure.of(run) for name, measure in MEASURES.items()}
    area = ((41 + 30) / 2 + (30 + 60) / 2 + (60 + 50) / 2) / 3
    assert found == {
        "area": pytest.approx(area), "last": 50.0, "best": 60.0, "regret": pytest.approx(100.0 - area), "drop": 10.0,
        "success": None, "pretrained": 40.0,
    }  # fmt: skip


def test_regret_counts_nothing_above_100_and_success_is_a_share(tmp_path):
    folder = write_run(tmp_path / "run")
    rows = [("online", 0, 80, 0), ("online", 10, 120, 1), ("online", 20, 90, 1)]
    lines = [f"{phase},{step},0,0,{score},{success}" for phase, step, score, success in rows]
    text = "\n".join(["phase,step,episode,return,score,success", *lines, "online,20,1,0,90,0"])
    (folder / "eval.csv").write_text(text + "\n")
    run = only(tmp_path)
    assert MEASURES["regret"].of(run) == pytest.approx((10.0 + 5.0) / 2)
    assert MEASURES["success"].of(run) == 50.0
    assert MEASURES["drop"].of(run) is None


def test_a_setting_that_is_not_replays_own_is_named_for_all_strategies(tmp_path):
    for online in (4000, 10000):
        write_run(tmp_path / f"arb-{online}", config_of(**{"schedule.online": online}))
    write_run(tmp_path / "naive", config_of(strategy="naive"))
    assert gather(read_runs([tmp_path])).variants() == ["Naive online=10000", "ARB online=4000", "ARB online=10000"]
    for heat in (0.5, 2.0):
        write_run(tmp_path / "b" / f"arb-{heat}", config_of(**{"replay.temperature": heat}))
    write_run(tmp_path / "b" / "naive", config_of(strategy="naive"))
    assert gather(read_runs([tmp_path / "b"])).variants() == ["Naive", "ARB λ=0.5", "ARB λ=2"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    for name in ("config.json", "eval.csv", "metrics.csv", "machine.json"):
        folder = write_run(tmp_path / name)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    reasons = {Path(run.place).name: run.reason for run in read_runs([tmp_path]).all}
    assert all("not a regular file" in reasons[name] for name in ("eval.csv", "metrics.csv", "machine.json"))
