"""The results page comes out of archives alone, in the same bytes, and says no more than its intervals allow."""

import re
import shutil
from pathlib import Path

import pytest

from arb import cli
from arb.errors import DataError
from arb.paper.claims import CLAIMS, verdicts
from arb.paper.results import Campaign, answer, by_quality, losses, temperatures, write_results
from arb.report.archive import pack
from arb.report.cells import gather
from arb.report.runs import read_runs
from tests.report.folders import config_of, write_run, write_sweep
from tests.report.test_baseline import write_pairs

ROOT = Path(__file__).parents[2]
TASKS = ("hopper-random-v2", "hopper-medium-expert-v2")


def campaign(path, name="c"):
    return Campaign(name, gather(read_runs([path])))


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
    assert text.index("**Question.**") < text.index("**Answer.**") < text.index("## The paper's claims")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads == [
        "The paper's claims", "Where ARB loses", "What the temperature does", "Archive `main`", "Archive `heat`",
        "Protocol", "Raw data", "Commands",
    ]  # fmt: skip
    assert "26 finished runs on 3 tasks in 2 archives" in text
    assert "1 run of 25 failed and are in no table: the loss is not finite." in text
    assert "`results/main.jsonl`: 24 runs; data (SHA-256): hopper-medium-expert-v2 0f0f0f0f0f0f" in text


def test_every_figure_is_there_for_light_and_dark(page):
    text = page.read_text()
    shown = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(shown) == len(set(shown)) == 10
    for name in shown:
        drawn = (page.parent / name).read_text()
        assert ("#d7dde3" in drawn) == ("-dark" in name)  # its ink
        assert ("#1f2933" in drawn) == ("-dark" not in name)
    assert {(page.parent / name) for name in shown} == set((page.parent / "results").iterdir())


def test_the_answer_says_only_what_the_interval_allows(tmp_path):
    for name, differences in {"up": [9.0, 10.0, 11.0], "down": [-9.0, -10.0, -11.0], "wide": [30.0, -20.0, 10.0],
                              "none": [0.1, -0.1, 0.2], "one": [50.0]}.items():  # fmt: skip
        write_pairs(tmp_path / name, differences)
    said = {name: answer([campaign(tmp_path / name)]) for name in ("up", "down", "wide", "none", "one")}
    assert "ARB against naive replay (IQL, 1 task, 3 seeds each): +10.0 points" in said["up"]
    assert "(95% interval +7.5 to +12.5); it helps on average." in said["up"]
    assert "it hurts on average" in said["down"]
    assert "we cannot tell" in said["wide"]
    assert "no difference that matters" in said["none"]
    assert "+50.0 points of the area under the online curve (without an interval); we cannot tell" in said["one"]
    assert said["up"].endswith("ARB auto has not been compared with naive replay yet.")


def test_a_run_in_two_archives_counts_once(archives, tmp_path):
    shutil.copytree(archives, tmp_path / "archives")
    pack([archives / "heat.jsonl", archives / "main.jsonl"], tmp_path / "archives" / "whole.jsonl")
    write_results(tmp_path / "archives", tmp_path / "results.md")
    assert "26 finished runs on 3 tasks in 3 archives" in (tmp_path / "results.md").read_text()


def test_losses_are_named_worst_first(tmp_path):
    write_pairs(tmp_path, [-9.0, -10.0, -11.0])
    write_pairs(tmp_path, [-30.0, 20.0, -5.0], task="walker2d-medium-v2")
    write_pairs(tmp_path, [3.0, 4.0, 5.0], task="halfcheetah-medium-v2")
    rows = [line for line in losses([campaign(tmp_path)]).splitlines() if line.startswith("| c ")]
    assert len(rows) == 2
    assert "hopper-medium-v2" in rows[0]
    assert "**-10.0" in rows[0]
    assert "walker2d-medium-v2" in rows[1]
    assert "**" not in rows[1]
    again = losses([campaign(tmp_path), campaign(tmp_path, "again")])
    assert again == losses([campaign(tmp_path)])  # runs of another archive that are the same are named once
    write_pairs(tmp_path / "won", [3.0, 4.0, 5.0])
    assert losses([campaign(tmp_path / "won")]) == "Nowhere in these runs."
    write_pairs(tmp_path / "other", [-9.0, -9.0], **{"replay.temperature": 7.0})
    assert losses([campaign(tmp_path / "other")]) == "Nowhere in these runs."  # nobody recommends that temperature
    (tmp_path / "empty").mkdir()
    assert losses([campaign(tmp_path / "empty")]) == "Nothing has been compared yet."


def test_differences_by_quality_of_the_data(tmp_path):
    write_pairs(tmp_path / "a", [9.0, 10.0, 11.0], task="hopper-random-v2")
    write_pairs(tmp_path / "b", [29.0, 30.0, 31.0], task="walker2d-random-v2")
    write_pairs(tmp_path / "c", [-9.0, 10.0, 11.0], task="hopper-medium-expert-v2")
    assert by_quality([campaign(tmp_path)]) == []  # one robot of medium-expert
    write_pairs(tmp_path / "d", [-2.0, 1.0, 1.0], task="walker2d-medium-expert-v2")
    write_pairs(tmp_path / "e", [1.0, 1.0], task="antmaze-umaze-v2")
    (text,) = by_quality([campaign(tmp_path / "a"), campaign(tmp_path)])
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| medium-expert-v2", "| random-v2"]
    assert "2.0" in rows[0]  # the mean of 4 and 0
    assert "**20.0" in rows[1]
    assert "(6)" in rows[1]


def test_temperatures_show_what_was_set_or_solved(tmp_path):
    write_run(tmp_path / "a", config_of(**{"replay.temperature": 0.25}))
    folder = write_run(tmp_path / "b", config_of(strategy="arb_auto", **{"replay.temperature": "auto"}))
    text = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text(
        "\n".join([text[0] + ",replay.temperature", *(line + ",1.5" for line in text[1:])]) + "\n"
    )
    rows = {labels[2]: entries for labels, entries in temperatures([campaign(tmp_path)]).rows}
    assert rows["ARB"][0].value == 0.25
    assert rows["ARB auto"][0].value == 1.5
    assert rows["ARB"][2].value == pytest.approx(75.0)  # of a batch, and of the buffer
    assert rows["ARB"][3].value == pytest.approx(25.0)


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
    assert answer([campaign(tmp_path / "a")]).startswith("ARB λ=0.5 against naive replay (IQL, 1 task, 3 seeds each)")


def test_levels_and_bounds_are_compared_run_by_run(tmp_path):
    for level in ("trajectory", "transition"):
        for seed in range(3):
            final = 90.0 + seed + (seed / 10 if level == "trajectory" else -200.0)
            write_run(tmp_path / f"{level}{seed}", config_of(seed=seed, **{"replay.level": level}), final=final)
    assert verdict_of(tmp_path, "Weights by trajectory are better than weights by transition") == "confirmed"
    for high in (7.0, 2.0):
        write_run(tmp_path / f"clip{high}", config_of(task="b", **{"replay.clip": [-12.0, high]}))
    assert verdict_of(tmp_path, "The upper clipping bound matters") == "contradicted: no difference at all"


# ---- the command, and the page of this project ----------------------------------------------------------------------


def test_the_command(archives, tmp_path, capsys):
    assert cli.main(["report", str(archives), "--page", str(tmp_path / "results.md")]) == 0
    assert "with 10 figures" in capsys.readouterr().out
    with pytest.raises(DataError, match="there is no archive"):
        write_results(tmp_path / "nothing", tmp_path / "results.md")


@pytest.mark.skipif(not (ROOT / "docs" / "results.md").exists(), reason="there is no results page yet")
def test_every_number_on_the_committed_page_comes_out_of_the_archives(tmp_path):
    write_results(ROOT / "results", tmp_path / "results.md")
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text(), (
        "rebuild it: arb report results --page docs/results.md"
    )
    made, committed = ({path.name for path in (place / "results").iterdir()} for place in (tmp_path, ROOT / "docs"))
    assert made == committed
