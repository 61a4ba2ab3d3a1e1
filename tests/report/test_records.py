"""Runs are read from folders and archives, packed, and grouped; whatever is broken is said in one line."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arb import cli
from arb.data.tasks import normalised
from arb.errors import DataError
from arb.report.records import (
    MAX_POINTS,
    MEASURES,
    PRIMARY,
    from_line,
    group_runs,
    pack,
    read_archive,
    read_runs,
    sanitize,
    to_line,
)
from arb.report.tables import tables
from tests.report.folders import config_of, write_run, write_sweep
from tests.report.records import flat, record, results


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
    found = {Path(run.place).name: (run.status, run.reason, run.seed) for run in read_runs([tmp_path]).missing}
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
    (said,) = runs.unreadable  # a plan is no run
    assert said.startswith(f"{tmp_path / 'c' / 'plan.json'} cannot be read")
    assert all(reasons)
    assert reasons[1].startswith("cannot be read: config.json is damaged")


def test_a_path_that_is_no_folder_is_a_mistake(tmp_path):
    with pytest.raises(DataError, match="neither a folder"):
        read_runs([tmp_path / "nothing"])


def test_seeds_are_put_together_and_settings_are_told_apart(tmp_path):
    for seed in (0, 1):
        for temperature in (0.5, 2.0):
            # A setting that differs along with another one need not be named.
            leaves = {"replay.temperature": temperature, "settings.expectile": 0.7 + temperature / 100}
            write_run(tmp_path / f"{seed}-{temperature}", config_of(seed=seed, **leaves))
        write_run(tmp_path / f"naive-{seed}", strategy="naive", seed=seed)
    results = group_runs(read_runs([tmp_path]))
    assert [(cell.variant, len(cell.runs)) for cell in results.groups] == [
        ("Naive", 2),
        ("ARB λ=0.5", 2),
        ("ARB λ=2", 2),
    ]


def test_variants_keep_the_papers_order_also_where_tasks_lack_some(tmp_path):
    write_sweep(tmp_path / "a", tasks=["a"], strategies=("arb", "naive"))
    write_sweep(tmp_path / "b", tasks=["b"], strategies=("arb", "parallel", "mine"))
    assert group_runs(read_runs([tmp_path])).variants() == ["Naive", "Parallel", "ARB", "mine"]


def test_settings_of_different_tasks_do_not_make_variants(tmp_path):
    write_run(tmp_path / "a", config_of("hopper-medium-v2", **{"settings.expectile": 0.7}))
    write_run(tmp_path / "b", config_of("antmaze-umaze-v2", **{"settings.expectile": 0.9}))
    assert group_runs(read_runs([tmp_path])).variants() == ["ARB"]


def test_a_copied_run_counts_once(tmp_path):
    for name in ("a", "copy"):
        write_run(tmp_path / name)
    results = group_runs(read_runs([tmp_path]))
    assert len(results.groups[0].runs) == 1
    assert [Path(run.place).name for run in results.duplicates] == ["copy"]


def test_unfinished_runs_are_drawn_only_where_there_is_nothing_else(tmp_path):
    write_run(tmp_path / "done", seed=0)
    write_run(tmp_path / "half", seed=1, done=False, online_steps=4000)
    write_run(tmp_path / "alone", strategy="naive", done=False, online_steps=4000)
    naive, arb = group_runs(read_runs([tmp_path])).groups
    assert (arb.finished, [Path(run.place).name for run in arb.runs]) == (True, ["done"])
    assert not naive.finished
    assert naive.values("last").size == 0
    assert naive.curve["online"][0][-1] == 4000


def test_a_setting_that_is_not_replays_own_is_named_for_all_strategies(tmp_path):
    for online in (4000, 10000):
        write_run(tmp_path / f"arb-{online}", config_of(**{"schedule.online": online}))
    write_run(tmp_path / "naive", config_of(strategy="naive"))
    assert group_runs(read_runs([tmp_path])).variants() == ["Naive online=10000", "ARB online=4000", "ARB online=10000"]
    for heat in (0.5, 2.0):
        write_run(tmp_path / "b" / f"arb-{heat}", config_of(**{"replay.temperature": heat}))
    write_run(tmp_path / "b" / "naive", config_of(strategy="naive"))
    assert group_runs(read_runs([tmp_path / "b"])).variants() == ["Naive", "ARB λ=0.5", "ARB λ=2"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    for name in ("config.json", "eval.csv", "metrics.csv", "machine.json"):
        folder = write_run(tmp_path / name)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    reasons = {Path(run.place).name: run.reason for run in read_runs([tmp_path]).all}
    assert all("not a regular file" in reasons[name] for name in ("eval.csv", "metrics.csv", "machine.json"))


def measured(name, run):
    return MEASURES[name].of(run)


def test_measures_of_one_run_by_hand():
    run = record(online=(50.0, 60.0, 80.0), offline=(10.0, 50.0))
    assert measured("area", run) == 62.5  # ((50 + 60) / 2 + (60 + 80) / 2) / 2
    assert measured("last", run) == 80.0
    assert measured("best", run) == 80.0
    assert measured("drop", run) == -10.0  # from 50 to 60: nothing was lost
    assert measured("pretrained", run) == 50.0
    assert measured("success", run) is None
    assert PRIMARY == "area"


def test_the_evaluation_before_the_first_update_is_no_fine_tuned_score():
    run = record(online=(90.0, 60.0, 70.0), offline=(0.0, 90.0))
    assert measured("best", run) == 70.0
    assert measured("drop", run) == 30.0


def test_success_is_that_of_the_last_evaluation_in_percent():
    assert measured("success", record(online=(1.0, 1.0), successes=[[0, 0], [1, 0]])) == 50.0


def test_an_evaluation_is_the_mean_of_its_episodes():
    run = record(online=([0.0, 100.0], [50.0, 70.0]), offline=([1.0, 3.0],))
    assert measured("last", run) == 60.0
    assert measured("area", run) == 55.0
    assert measured("pretrained", run) == 2.0


def test_seeds_with_other_evaluations_are_compared_where_both_were_evaluated():
    often, seldom = record((1.0, 2.0, 3.0, 4.0, 5.0)), record((10.0, 30.0, 50.0), every=4000, seed=1)
    (cell,) = results(often, seldom).groups
    steps, values = cell.curve["online"]
    assert steps.tolist() == [0.0, 4000.0, 8000.0]
    assert values.tolist() == [[1.0, 3.0, 5.0], [10.0, 30.0, 50.0]]


def test_a_phase_that_a_seed_lacks_is_not_drawn():
    (cell,) = results(record(), record(offline=(), seed=1)).groups
    assert set(cell.curve) == {"online"}


def test_a_figure_needs_every_seed_and_a_number():
    share = {"replay.online_share": [0.1, 0.2]}
    (both,) = results(record(figures=share), record(figures=share, seed=1)).groups
    assert both.metric("replay.online_share")[1].tolist() == [[0.1, 0.2], [0.1, 0.2]]
    (one,) = results(record(figures=share), record(seed=1)).groups
    assert one.metric("replay.online_share") is None
    (late,) = results(record(figures={"replay.age": [np.nan, 2.0]})).groups
    assert late.metric("replay.age")[1][0, 1] == 2.0
    (none,) = results(record(figures={"replay.age": [np.nan, np.nan]})).groups
    assert none.metric("replay.age") is None
    assert none.metric("replay.age", phase="pretrain") is None


def test_values_are_those_of_finished_seeds():
    done, going = flat(10.0), flat(20.0, seed=1, status="unfinished", reason="at online step 3")
    (cell,) = results(done, going).groups
    assert cell.values("last").tolist() == [10.0]
    (alone,) = results(going).groups
    assert not alone.finished
    assert alone.values("last").size == 0
    assert alone.curve["online"][1].tolist() == [[20.0, 20.0, 20.0]]


def test_units_follow_from_the_reference():
    (cell,) = results(flat(1.0)).groups
    assert (cell.normalised, cell.unit) == (True, "normalised score")
    (cell,) = results(flat(1.0, reference=None)).groups
    assert (cell.normalised, cell.unit) == (False, "return")


def variants(*runs):
    return results(*runs).variants()


def test_one_setting_of_a_strategy_needs_no_settings_in_its_name():
    assert variants(flat(1.0), flat(1.0, strategy="naive")) == ["Naive", "ARB"]


def test_a_setting_that_differs_is_named_and_numbers_are_in_order():
    runs = [flat(1.0, leaves={"replay.temperature": heat}) for heat in (10.0, 0.5, 2.0)]
    assert variants(*runs, flat(1.0, strategy="naive")) == ["Naive", "ARB λ=0.5", "ARB λ=2", "ARB λ=10"]


def test_lists_and_words_are_spelt():
    clips = [flat(1.0, leaves={"replay.clip": clip}) for clip in ([-12.0, 7.0], [-9.0, 7.0])]
    assert set(variants(*clips)) == {"ARB clip=[-12,7]", "ARB clip=[-9,7]"}
    levels = [flat(1.0, leaves={"replay.level": level}) for level in ("trajectory", "transition")]
    assert set(variants(*levels)) == {"ARB level=trajectory", "ARB level=transition"}


def test_the_fewest_settings_are_named():
    one = flat(1.0, leaves={"replay.temperature": 0.5, "settings.expectile": 0.7})
    other = flat(1.0, leaves={"replay.temperature": 2.0, "settings.expectile": 0.9})
    assert variants(one, other) == ["ARB λ=0.5", "ARB λ=2"]  # the temperature alone tells them apart
    third = flat(1.0, leaves={"replay.temperature": 2.0, "settings.expectile": 0.7})
    assert "ARB λ=2 settings.expectile=0.9" in variants(one, other, third)


def test_of_several_settings_the_unusual_ones_are_named():
    settings = [{"replay.likelihood": likelihood, "replay.clip": [low, 7.0]}
                for likelihood in ("standard", "density") for low in (-12.0, -7.0)]  # fmt: skip
    found = results(*(flat(1.0, leaves=leaves) for leaves in settings))
    names = ["ARB", "ARB likelihood=density", "ARB clip=[-7,7]", "ARB clip=[-7,7] likelihood=density"]
    assert sorted(found.variants()) == sorted(names)


def test_a_budget_that_only_other_tasks_have_is_not_named():
    long, short = {"schedule.online": 10_000}, {"schedule.online": 4_000}
    two = [flat(1.0, task="a", leaves=long), flat(1.0, task="a", leaves=short)]
    names = ["ARB online=4000", "ARB online=10000"]
    assert set(variants(*two, flat(1.0, task="b", leaves={"schedule.online": 500}))) == {*names, "ARB"}
    assert set(variants(*two, flat(1.0, task="b", leaves=short))) == set(names), "one column for both tasks"


def test_only_what_differs_within_a_task_counts():
    hot = flat(1.0, task="hopper-medium-v2", leaves={"replay.temperature": 2.0})
    cold = flat(1.0, task="walker2d-medium-v2", leaves={"replay.temperature": 0.5})
    assert variants(hot, cold) == ["ARB"]


def test_strategies_and_agents_have_the_papers_order_and_strangers_come_last():
    runs = [flat(1.0, strategy=name) for name in ("my_module:Mine", "arb", "berb", "naive", "top_n", "parallel")]
    assert variants(*runs) == ["Naive", "Parallel", "Top-N", "BERB", "ARB", "Mine"]
    agents = ("zeta", "my_module:MyAgent", "pex", "iql", "calql", "sac", "famo2o")
    assert results(*(flat(1.0, agent=agent) for agent in agents)).agents() == [
        "iql", "calql", "pex", "famo2o", "sac", "my_module:MyAgent", "zeta",
    ]  # fmt: skip


def test_a_cell_is_found_by_task_agent_and_variant():
    found = results(flat(1.0), flat(2.0, task="walker2d-medium-v2"), flat(3.0, agent="pex"))
    assert found.group("hopper-medium-v2", "iql", "ARB").values("last").tolist() == [1.0]
    assert found.group("hopper-medium-v2", "pex", "ARB").values("last").tolist() == [3.0]
    assert found.group("hopper-medium-v2", "pex", "Naive") is None
    assert found.tasks("iql") == ["hopper-medium-v2", "walker2d-medium-v2"]
    assert found.tasks("pex") == ["hopper-medium-v2"]


def test_the_second_of_two_equal_runs_does_not_count():
    found = results(flat(1.0, place="b"), flat(9.0, place="a"), flat(5.0, place="c", seed=1))
    assert [run.place for run in found.duplicates] == ["b"]
    assert found.groups[0].values("last").tolist() == [9.0, 5.0]


def test_a_finished_run_counts_before_an_unfinished_copy():
    found = results(flat(1.0, place="a", status="unfinished"), flat(9.0, place="b"))
    assert found.groups[0].values("last").tolist() == [9.0]


@pytest.mark.parametrize(
    ("agent", "file"), [("iql", "iql"), ("my_module:MyAgent", "my_module-MyAgent"), ("../../x", "x"), ("…", "unnamed")]
)
def test_names_of_agents_become_harmless_parts_of_file_names(agent, file):
    assert results(flat(1.0, agent=agent)).file(agent) == file


def test_runs_without_an_evaluation_make_no_cell():
    empty = record(online=(), offline=(), status="failed", reason="fell over")
    found = results(empty, flat(1.0, seed=1))
    assert len(found.groups) == 1
    assert found.runs.missing == (empty,)


MACHINE = {"cpu": "Some CPU", "cores": 2, "commit": "0a" * 20, "seconds": {"pretrain": 60.0, "online": 90.5}}


@pytest.fixture
def sweep(tmp_path):
    root = write_sweep(tmp_path / "runs", tasks=["hopper-medium-v2", "walker2d-medium-v2"])
    write_run(root / "plain", task="pendulum", reference=None)
    for folder in root.rglob("DONE"):
        (folder.parent / "machine.json").write_text(json.dumps(MACHINE))
    return root


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_same_runs_give_the_same_bytes_in_any_order(sweep, tmp_path):
    first = pack([sweep], tmp_path / "a.jsonl")
    assert (first.runs, first.left_out, first.size) == (9, (), (tmp_path / "a.jsonl").stat().st_size)
    moved = tmp_path / "elsewhere"
    shutil.move(sweep, moved)
    pack([moved], tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    keys = [(line["config"]["task"], line["config"]["replay.strategy"], line["config"]["seed"]) for line in
            lines_of(tmp_path / "a.jsonl")]  # fmt: skip
    assert keys == sorted(keys)
    pack([tmp_path / "a.jsonl"], tmp_path / "c.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()


def test_a_line_holds_everything_that_the_folder_holds(sweep, tmp_path):
    pack([sweep], tmp_path / "a.jsonl")
    held = {line["run"]: line for line in lines_of(tmp_path / "a.jsonl")}
    line = held["hopper-medium-v2/iql-arb-1"]
    described = json.loads((sweep / "hopper-medium-v2/iql-arb-1/config.json").read_text())
    assert line["config"] == described["config"]
    assert line["data"] == described["data"]
    assert line["versions"] == described["versions"]
    assert line["machine"] == MACHINE
    assert line["evaluations"]["online"]["step"] == [0, 2000, 4000, 6000, 8000, 10000]
    assert [len(episodes) for episodes in line["evaluations"]["online"]["return"]] == [3] * 6
    assert "replay.online_share" in line["metrics"]["online"]
    assert "pretrain" not in line["metrics"]  # it has no replay figure
    assert "critic_loss" not in line["metrics"]["online"]


def test_every_table_is_the_same_from_an_archive(sweep, tmp_path):
    pack([sweep], tmp_path / "results" / "a.jsonl")
    shown = []
    for place in (sweep, tmp_path / "results", tmp_path / "results" / "a.jsonl"):
        results = group_runs(read_runs([place]))
        shown.append([table.text() for table in tables(results)])
    assert shown[0] == shown[1] == shown[2]


def test_returns_keep_six_digits_and_scores_follow_from_them(tmp_path):
    write_run(tmp_path / "run")
    run = read_runs([tmp_path]).all[0]
    again = from_line("x.jsonl", to_line(run, "run"))
    for phase, curve in run.curves.items():
        for old, new in zip(curve.returns, again.curves[phase].returns, strict=True):
            np.testing.assert_allclose(new, old, rtol=5.1e-6)
            np.testing.assert_allclose(again.curves[phase].scores[0], curve.scores[0], atol=2e-4)
    assert again.place == "x.jsonl: run"
    assert {name: m.of(run) for name, m in MEASURES.items()} == pytest.approx(
        {name: m.of(again) for name, m in MEASURES.items()}, abs=2e-3
    )
    np.testing.assert_array_equal(normalised(np.array([10.0, 30.0]), (10.0, 20.0)), [0.0, 200.0])


def test_unfinished_runs_are_left_out_and_failures_are_not(tmp_path):
    write_run(tmp_path / "runs/done")
    write_run(tmp_path / "runs/half", seed=1, done=False, online_steps=4000)
    fell = write_run(tmp_path / "runs/fell", seed=2, done=False)
    (fell / "FAILED").write_text("the loss is not finite\n")
    packed = pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert packed.left_out == (f"{tmp_path / 'runs/half'}: unfinished, at online step 4,000 of 10,000",)
    (failed,) = read_runs([tmp_path / "a.jsonl"]).missing
    assert (failed.status, failed.reason, failed.seed) == ("failed", "the loss is not finite", 2)


def test_what_an_archive_holds_stays_and_what_is_found_again_replaces_it(tmp_path):
    write_run(tmp_path / "runs/a", final=10.0)
    write_run(tmp_path / "runs/b", seed=1)
    pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    shutil.rmtree(tmp_path / "runs/b")
    write_run(tmp_path / "runs/a", final=20.0)
    write_run(tmp_path / "runs/c", seed=2)
    packed = pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert (packed.runs, packed.kept) == (3, 1)
    last = {run.seed: MEASURES["last"].of(run) for run in read_runs([tmp_path / "a.jsonl"]).all}
    assert last[0] == pytest.approx(20.0, abs=1e-3)
    assert sorted(last) == [0, 1, 2]
    (tmp_path / "runs/a/DONE").unlink()
    (tmp_path / "runs/a/FAILED").write_text("fell\n")
    pack([tmp_path / "runs"], tmp_path / "a.jsonl")  # a finished run is not replaced by its failure
    assert {run.status for run in read_runs([tmp_path / "a.jsonl"]).all} == {"done"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notes.txt", "ends in .jsonl"),
        ("folder.jsonl", "ends in .jsonl"),
        ("other.jsonl", "is not an archive of runs"),
    ],
)
def test_nothing_but_an_archive_is_written_over(tmp_path, name, said):
    write_run(tmp_path / "runs/a")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=said):
        pack([tmp_path / "runs"], tmp_path / name)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "other.jsonl").read_text() == '{"mine": 1}\n'


def test_the_command_packs_and_reads(sweep, tmp_path, capsys):
    archive = tmp_path / "a.jsonl"
    assert cli.main(["report", "--pack", str(sweep), "-o", str(archive)]) == 0
    assert capsys.readouterr().out == f"{archive}: 9 runs, {archive.stat().st_size / 1e6:.2f} MB\n"
    assert cli.main(["report", str(archive), "-o", str(tmp_path / "report")]) == 0
    assert "All 9 runs are finished." in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path / "nothing.jsonl")]) == 2
    assert "neither a folder of runs or sweeps nor an archive" in capsys.readouterr().err


def bad(line, **changes):
    """A line with some of its values replaced, given by their path: config__seed=3."""
    values = json.loads(line)
    for path, value in changes.items():
        *above, last = path.split("__")
        inner = values
        for name in above:
            inner = inner[name]
        inner[last] = value
    return json.dumps(values)


WRONG = {
    "config": ({"config": [1]}, "config is missing"),
    "big": ({"config__seed": 10**400}, "out of range"),
    "deep": ({"data": {"a": [[[[[1]]]]]}}, "too deep"),
    "reference": ({"reference": [1]}, "two numbers, the second larger"),
    "narrow": ({"reference": [0.0, 1e-300]}, "too large to be one"),
    "equal": ({"reference": [1.0, 1.0]}, "the second larger"),
    "status": ({"status": "won"}, "done or failed"),
    "step": ({"evaluations__online__step": [0, 10**400, 1, 2, 3, 4]}, "must be a finite number"),
    "falling": ({"evaluations__online__step": [0, 2, 1, 3, 4, 5]}, "increasing whole numbers"),
    "short": ({"evaluations__online__return": [[1.0]]}, "is not a list of 6 values"),
    "empty": ({"evaluations__online__return": [[]] * 6}, "a list of episodes"),
    "infinite": ({"evaluations__online__return": [[1e999]] * 6}, "must be a finite number, not 'inf'"),
    "text": ({"evaluations__online__return": [["1\x1b"]] * 6}, "must be a finite number"),
    "phases": ({"evaluations": [1]}, "by phase"),
    "metrics": ({"metrics__online": 3}, "columns by name"),
    "column": ({"metrics__online__replay.age": [1]}, "is not a list of 10 values"),
    "seconds": ({"machine": {"seconds": {"online": "long"}}}, "seconds must be a finite number"),
}


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    write_run(folder / "run")
    return to_line(read_runs([folder]).all[0], "run")


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_line_is_a_failed_run_with_a_reason(line, tmp_path, what):
    changes, said = WRONG[what]
    (tmp_path / "a.jsonl").write_text(line + "\n" + bad(line, **changes) + "\n")
    good, wrong = sorted(read_archive(tmp_path / "a.jsonl"), key=lambda run: run.status)
    assert good.status == "done"
    assert wrong.status == "failed"
    assert said in wrong.reason
    assert wrong.place == f"{tmp_path / 'a.jsonl'}, line 2"
    with pytest.raises(DataError, match="line 2 is damaged"):
        pack([tmp_path / "a.jsonl"], tmp_path / "a.jsonl")


def test_binary_and_endless_lines_and_other_files(line, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line.encode() + b"\n\xff\xfe\x00\n" + b"[" * 100_000 + b"\n")
    assert [run.status for run in read_archive(tmp_path / "a.jsonl")] == ["done", "failed", "failed"]
    (tmp_path / "b.jsonl").write_bytes(b'{"arb":1,"x":"' + b" " * (2**24 + 10))
    runs = read_runs([tmp_path])
    assert "line 1 is longer than 16 MB" in runs.unreadable[0]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    assert "is not an archive of runs" in read_runs([tmp_path]).unreadable[0]


def test_text_is_tamed():
    assert sanitize("a\nb\x1b[2J\ud800\u202e\x00") == "a�b�[2J���"
    assert sanitize("λ=0.5, naïve") == "λ=0.5, naïve"
    assert sanitize("x" * 400) == "x" * 300 + "…"


numbers = st.floats(-1e6, 1e6, allow_nan=False)


def changed(made=None, **changes):
    """The line of a run, with some of its values changed; a value of None is left out."""
    values = {**json.loads(to_line(made or flat(50.0), "name")), **changes}
    return json.dumps({name: value for name, value in values.items() if value is not None})


def test_a_run_comes_back():
    run = record(figures={"replay.online_share": [0.25, 0.5]}, successes=[[0], [1], [1]], seed=3)
    back = from_line("results/a.jsonl", to_line(run, "hopper/iql"))
    assert back.place == "results/a.jsonl: hopper/iql"
    for name in ("config", "status", "reason", "env", "reference", "data", "versions", "machine"):
        assert getattr(back, name) == getattr(run, name), name
    assert back.seed == 3
    for phase in ("pretrain", "online"):
        assert back.curves[phase].steps.tolist() == run.curves[phase].steps.tolist()
        assert back.curves[phase].means.tolist() == run.curves[phase].means.tolist()
    assert [one.tolist() for one in back.curves["online"].successes] == [[0.0], [1.0], [1.0]]
    assert back.metrics["online"]["replay.online_share"].tolist() == [0.25, 0.5]


@given(st.lists(st.lists(numbers, min_size=1, max_size=3), min_size=2, max_size=5))
def test_returns_come_back_with_six_digits(returns):
    back = from_line("a", to_line(record(online=returns), "n"))
    for ours, theirs in zip(returns, back.curves["online"].returns, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_a_line_is_the_same_every_time_and_short():
    run = flat(1 / 3, figures={"replay.online_share": [1 / 3]})
    assert to_line(run, "n") == to_line(run, "n")
    values = json.loads(to_line(run, "n"))
    assert list(values) == sorted(values)
    assert values["evaluations"]["online"]["return"] == [[0.333333]] * 3
    assert values["metrics"]["online"]["replay.online_share"] == [0.3333]
    assert " " not in to_line(run, "n").replace("Env-v0", "")


def test_whole_numbers_are_written_as_such_and_gaps_as_null():
    values = json.loads(to_line(flat(50.0, figures={"replay.age": [1.0, math.nan, 2.5]}), "n"))
    assert values["evaluations"]["online"]["return"] == [[50], [50], [50]]
    assert values["metrics"]["online"] == {"step": [1, 2, 3], "replay.age": [1, None, 2.5]}
    back = from_line("a", json.dumps(values))
    assert np.isnan(back.metrics["online"]["replay.age"][1])


def test_figures_without_a_number_and_losses_are_left_out():
    run = flat(1.0, figures={"replay.age": [math.nan], "replay.entropy": [0.5], "critic_loss": [3.0]})
    assert json.loads(to_line(run, "n"))["metrics"]["online"].keys() == {"step", "replay.entropy"}
    assert json.loads(to_line(flat(1.0), "n"))["metrics"] == {}


def test_long_figures_keep_their_ends():
    run = flat(1.0, figures={"replay.age": np.arange(5000.0)})
    kept = json.loads(to_line(run, "n"))["metrics"]["online"]
    assert len(kept["step"]) == MAX_POINTS
    assert (kept["replay.age"][0], kept["replay.age"][-1]) == (0, 4999)
    assert kept["step"][-1] == 5000


def test_a_done_run_without_a_fine_tuned_evaluation_has_failed():
    run = from_line("a", changed(record(online=(50.0,))))
    assert run.status == "failed"
    assert "no online evaluation" in run.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arb": 2}, "not a run in format 1"),
        ({"config": None}, "config is missing"),
        ({"config": [1]}, "config is missing"),
        ({"status": "fine"}, "done or failed"),
        ({"data": "text"}, "data must hold names and values"),
        ({"reference": [1.0]}, "two numbers"),
        ({"reference": [1.0, 1.0]}, "the second larger"),
        ({"reference": [0.0, "x"]}, "two numbers"),
        ({"machine": {"seconds": {"online": "long"}}}, "seconds must be a finite number"),
        ({"evaluations": []}, "must hold a list of episodes|by phase|online evaluation|^$"),
        ({"evaluations": {phase: {} for phase in "abcdefghijk"}}, "must be given by phase"),
        ({"evaluations": {"online": 3}}, "must hold step and other columns"),
        ({"evaluations": {"online": {"step": [0, 1], "return": [[1]]}}}, "is not a list of 2 values"),
        ({"evaluations": {"online": {"step": [0], "return": [[]]}}}, "a list of episodes"),
        ({"evaluations": {"online": {"step": [5, 3], "return": [[1], [1]]}}}, "must be increasing whole numbers"),
        ({"evaluations": {"online": {"step": [0.5], "return": [[1]]}}}, "must be increasing whole numbers"),
        ({"evaluations": {"online": {"step": "ab", "return": [[1]]}}}, "must hold step"),
        ({"evaluations": {"online": {"step": [1], "return": [[1e99]]}}}, "must be a finite number"),
        ({"evaluations": {"online": {"step": [1], "return": [[True]]}}}, "must be a finite number"),
        ({"metrics": {"online": {"step": [1], "replay.age": [1, 2]}}}, "is not a list of 1 values"),
        ({"metrics": {"online": {"step": [1], "replay.age": "x"}}}, "is not a list of 1 values"),
        ({"metrics": {"online": {"step": [1], "replay.age": ["x"]}}}, "must be a finite number"),
        ({"metrics": {"online": [1]}}, "columns by name"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(changes, said):
    if changes == {"evaluations": []}:  # nothing was evaluated: a run that says it is done and is not
        assert from_line("a", changed(**changes)).status == "failed"
        return
    with pytest.raises(DataError, match=said):
        from_line("a", changed(**changes))


def test_what_is_no_json_is_refused_in_one_line():
    for text in ("", "{", "[1, 2]", "null", "[" * 100_000):
        with pytest.raises(DataError) as refused:
            from_line("a", text)
        assert "\n" not in str(refused.value)


def test_text_from_a_line_cannot_draw_on_a_terminal():
    run = from_line("a", changed(run="x\x1b[2J", reason="two\nlines", status="failed"))
    assert run.place == "a: x�[2J"
    assert run.reason == "two�lines"
