"""The results page comes out of archives alone, in the same bytes, and says no more than its intervals allow."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from tools.results import headline
from tools.results.build import PREDICTION, write_results
from tools.results.claims import CLAIMS, verdicts
from tools.results.findings import Campaign, answer

from arb.errors import DataError
from arb.report.records import group_runs, pack, read_runs
from tests.report.folders import config_of, write_pairs, write_run, write_sweep

ROOT = Path(__file__).parents[2]
TASKS = ("hopper-random-v2", "hopper-medium-expert-v2")


def campaign(path, name="c"):
    return Campaign(name, group_runs(read_runs([path])))


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    runs = root / "runs"
    write_sweep(runs / "main", tasks=TASKS, strategies=("naive", "parallel", "arb", "arb_auto"), seeds=3)
    fell = write_run(runs / "main" / "fell", seed=9, done=False)
    (fell / "FAILED").write_text("the loss is not finite\n")
    for heat in (0.2, 2.0):
        write_run(runs / "heat" / str(heat), config_of(**{"replay.temperature": heat}))
    for name in ("main", "heat"):
        pack([runs / name], root / "archives" / f"{name}.jsonl")
    (root / "archives" / "notes.md").write_text("## Commands\n\n    arb sweep\n")
    return root / "archives"


@pytest.fixture(scope="module")
def page(archives, tmp_path_factory):
    out = tmp_path_factory.mktemp("docs") / "results.md"
    write_results(archives, out)
    return out


def test_the_page_is_the_same_every_time(archives, page, tmp_path):
    write_results(archives, tmp_path / "results.md")
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.relative_to(page.parent) for path in page.parent.rglob("*") if path.is_file()} == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (page.parent / name).read_bytes(), name


def test_the_page_begins_with_question_and_answer_and_has_its_parts(page):
    text = page.read_text()
    assert text.index("**Question.**") < text.index("**Answer.**") < text.index("## Areas and curves")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"Where ARB loses", "The paper's claims", "Protocol"} < {*heads}
    assert heads[-1] == "Commands"  # of the notes
    assert "26 finished runs on 3 tasks in 2 archives" in text
    assert "[`main`](results/main.md): IQL on 2 tasks, 24 runs of 4,000 updates" in text


def test_every_archive_has_a_page_with_its_tables_and_where_they_come_from(page):
    text = (page.parent / "results" / "main.md").read_text()
    assert text.startswith("# Archive `main`")
    assert "[Back to the results](../results.md)" in text
    titles = re.findall(r"^\*\*(.*)\*\*$", text, re.MULTILINE)
    assert [any(name in title for title in titles) for name in ("to Naive", "by dataset", "last eval")] == [True] * 3
    assert "1 run of 25 failed" in text
    assert "`results/main.jsonl`, 24 runs" in text
    assert "hopper-random-v2 0f0f0f0f0f0f" in text


def figures_on(page):
    return [page.parent / name for name in re.findall(r'(?:src|srcset)="([^"]+)"', page.read_text())]


def test_every_figure_is_there_for_light_and_dark(page):
    shown = figures_on(page)
    assert [name.name.rpartition("-iql-")[2] for name in shown if "-dark" not in name.name] == [
        "differences.svg", "curves.svg", "online-share.svg", f"{PREDICTION}.svg",
    ]  # fmt: skip
    below = [figures_on(page.parent / "results" / f"{name}.md") for name in ("main", "heat")]
    assert [len(names) for names in (shown, *below)] == [8, 6, 4]
    own = {name for name in shown if PREDICTION in name.name}
    assert {*shown} - own <= {*below[0]}  # the main page shows those of the largest archive
    for path in itertools.chain(own, *below):
        drawn = path.read_text()
        assert ("#d7dde3" in drawn) == ("-dark" in path.name)  # its ink
        assert ("#1f2933" in drawn) == ("-dark" not in path.name)
    assert {*itertools.chain(own, *below)} == set((page.parent / "results").glob("*.svg"))


def test_a_run_in_two_archives_counts_once(archives, tmp_path):
    shutil.copytree(archives, tmp_path / "archives")
    pack([archives / "heat.jsonl", archives / "main.jsonl"], tmp_path / "archives" / "whole.jsonl")
    write_results(tmp_path / "archives", tmp_path / "results.md")
    assert "26 finished runs on 3 tasks in 3 archives" in (tmp_path / "results.md").read_text()


def test_archives_without_a_finished_run(archives, tmp_path):
    fell = write_run(tmp_path / "runs" / "fell", done=False)
    (fell / "FAILED").write_text("the loss is not finite\n")
    pack([tmp_path / "runs"], tmp_path / "archives" / "fell.jsonl")
    with pytest.raises(DataError, match="holds a finished run: there is nothing to show"):
        write_results(tmp_path / "archives", tmp_path / "results.md")
    shutil.copy(archives / "main.jsonl", tmp_path / "archives")
    write_results(tmp_path / "archives", tmp_path / "results.md")
    assert "- [`fell`](results/fell.md): no finished run" in (tmp_path / "results.md").read_text()


def test_pretraining_that_runs_share_takes_its_time_once(tmp_path):
    for strategy, seed, offline in (("naive", 0, 3600.0), ("arb", 0, 3600.0), ("naive", 1, 1800.0)):
        folder = write_run(tmp_path / "runs" / f"{strategy}-{seed}", config_of(strategy=strategy, seed=seed))
        seconds = {"pretrain": offline, "online": 360.0}
        (folder / "machine.json").write_text(json.dumps({"seconds": seconds}))
    pack([tmp_path / "runs"], tmp_path / "archives" / "a.jsonl")
    write_results(tmp_path / "archives", tmp_path / "results.md")
    assert "3 finished runs on 1 task in 1 archive, 1.8 hours of wall time" in (tmp_path / "results.md").read_text()


# ---- the paper's claims ---------------------------------------------------------------------------------------------


def verdict_of(path, says):
    rows = {labels[0]: labels[1] for labels, _ in verdicts([campaign(path).results]).rows}
    assert list(rows) == [claim.says for claim in CLAIMS]
    return rows[says]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [([9.0, 10.0, 11.0], "confirmed"), ([-9.0, -10.0, -11.0], "contradicted"), ([30.0, -20.0, 10.0], "not confirmed"),
     ([50.0], "not confirmed"), ([0.0, 0.0, 0.0], "not confirmed")],
)  # fmt: skip
def test_a_claim_needs_an_interval_on_its_side(tmp_path, differences, verdict):
    write_pairs(tmp_path, differences)
    assert verdict_of(tmp_path, "With IQL, ARB beats naive replay") == verdict
    assert verdict_of(tmp_path, "With PEX, ARB beats naive replay") == "not tested"
    assert verdict_of(tmp_path, "ARB beats Parallel") == "not tested"


def test_claims_are_corrected_for_their_number(tmp_path):
    write_pairs(tmp_path, [1.0, 1.6, 2.2])  # p = 0.046 alone
    assert verdict_of(tmp_path, "With IQL, ARB beats naive replay") == "confirmed"
    write_pairs(tmp_path, [30.0, -20.0, 10.0], base="parallel")
    assert verdict_of(tmp_path, "With IQL, ARB beats naive replay") == "not confirmed"


@pytest.mark.parametrize(
    "other",
    [{"replay.level": "transition"}, {"replay.temperature": 2.0}, {"replay.likelihood": "density"},
     {"replay.clip": [-12.0, 2.0]}, {"schedule.updates": 250, "schedule.collect": 1000}],
    ids=str,
)  # fmt: skip
def test_other_settings_of_arb_do_not_speak_for_the_published_ones(tmp_path, other):
    write_pairs(tmp_path, [9.0, 10.0, 11.0], **other)
    assert verdict_of(tmp_path, "With IQL, ARB beats naive replay") == "not tested"


def test_other_temperatures_and_copies_of_a_seed_are_no_further_evidence(tmp_path):
    def pairs(*folders):
        table = verdicts([campaign(tmp_path / folder).results for folder in folders])
        return {labels[0]: entries[0] for labels, entries in table.rows}

    write_pairs(tmp_path / "a", [9.0, 10.0, 11.0])
    write_pairs(tmp_path / "b", [9.0, 10.0, 11.0])
    for heat in (0.2, 2.0):
        write_pairs(tmp_path / "a" / str(heat), [90.0, 90.0, 90.0], **{"replay.temperature": heat})
    found = pairs("a", "b")["With IQL, ARB beats naive replay"]
    assert (found.value, found.n) == (pytest.approx(10.0), 3)
    sooner = pairs("a")["A lower temperature draws online data sooner"]
    assert sooner.n == 3  # three pairs of temperatures in each of three seeds
    assert "IQL on 1 task: ARB λ=0.5 +10.0 points" in answer([campaign(tmp_path / "a")])


def test_levels_and_bounds_are_compared_run_by_run(tmp_path):
    for level in ("trajectory", "transition"):
        for seed in range(3):
            final = 90.0 + seed + (seed / 10 if level == "trajectory" else -200.0)
            write_run(tmp_path / f"{level}{seed}", config_of(seed=seed, **{"replay.level": level}), final=final)
    assert verdict_of(tmp_path, "Weights by trajectory are better than weights by transition") == "confirmed"
    for high in (7.0, 2.0):
        write_run(tmp_path / f"clip{high}", config_of(task="b", **{"replay.clip": [-12.0, high]}))
    assert verdict_of(tmp_path, "The upper clipping bound matters") == "contradicted: it has no effect"


# ---- the pages of this project ---------------------------------------------------------------------------------------


def test_a_folder_without_archives_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no archive"):
        write_results(tmp_path / "nothing", tmp_path / "results.md")


@pytest.mark.slow
def test_every_number_on_the_committed_page_comes_out_of_the_archives(tmp_path):
    write_results(ROOT / "results", tmp_path / "results.md")
    made, committed = ({path.name for path in (place / "results").iterdir()} for place in (tmp_path, ROOT / "docs"))
    assert made == committed
    for name in ("results.md", *(f"results/{name}" for name in made if name.endswith(".md"))):
        again = "rebuild it: python tools/results/build.py"
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), again
    for path, text in headline.pages().items():
        assert path.read_text() == text, again
