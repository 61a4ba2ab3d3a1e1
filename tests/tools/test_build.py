"""The results page comes out of archives alone, in the same bytes, and says no more than its intervals allow."""

import re
from pathlib import Path

import pytest
from tools.results.build import (
    FIGURE,
    answer,
    gains,
    hours,
    ladder,
    main_table,
    quality,
    read_campaigns,
    readme,
    write_results,
)
from tools.results.forecasts import JUDGES, judged, of_kind, sentences

from arb.report.records import Runs, group_runs, pack
from tests.report.folders import write_run, write_sweep
from tests.report.records import flat, grid

ROOT = Path(__file__).parents[2]
TASKS = ("suite:hopper-random", "suite:hopper-mixed", "suite:walker2d-medium-expert")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    write_sweep(root / "main", tasks=TASKS, strategies=("naive", "arb", "arb_auto", "offline"), seeds=3)
    fell = write_run(root / "main" / "fell", seed=9, done=False)
    (fell / "FAILED").write_text("the loss is not finite\n")
    write_sweep(root / "paper", tasks=TASKS[:1], strategies=("parallel",), seeds=3)
    pack([root / "main"], root / "archives" / "locomotion.jsonl")
    pack([root / "paper"], root / "archives" / "paper.jsonl")
    pack([root / "paper"], root / "archives" / "first-edition" / "old.jsonl")
    text = "### `locomotion`: all\n\n1. Gains on mixed.\n7. An interval.\n\n### `other`\n\n1. Something else.\n"
    (root / "archives" / "forecasts.md").write_text(text)
    return root / "archives"


@pytest.fixture(scope="module")
def docs(archives, tmp_path_factory):
    out = tmp_path_factory.mktemp("docs")
    write_results(archives, out)
    return out


def test_the_pages_are_the_same_every_time(archives, docs, tmp_path):
    write_results(archives, tmp_path)
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.relative_to(docs) for path in docs.rglob("*") if path.is_file()} == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (docs / name).read_bytes(), name


def test_the_page_has_the_answer_first_and_then_its_parts(docs):
    text = (docs / "results.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "By dataset", "What was run", "What was expected, and what came", "Where it loses", "Limits",
        "Against the first edition", "Commands",
    ]  # fmt: skip
    assert text.index("**Question.**") < text.index("**Answer.** **On average") < text.index("## By dataset")
    assert "old" not in re.findall(r"\(results/(\w+)\.md\)", text), "archives in folders below are not on the page"
    assert "3 seeds per dataset and strategy" in text
    assert "| `other` 1 | Something else. | not judged by a program |" in text


def test_every_archive_has_a_page_with_its_tables_figures_and_failures(docs):
    text = (docs / "results" / "locomotion.md").read_text()
    titles = re.findall(r"^\*\*(.*)\*\*$", text, re.MULTILINE)
    assert [any(name in title for title in titles) for name in ("to Naive", "by dataset", "last eval")] == [True] * 3
    assert "1 run of 37 failed and are in no table: the loss is not finite." in text
    shown = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(shown) == 6
    assert all((docs / "results" / name).is_file() for name in shown)
    for path in (docs / "results").glob("*.svg"):
        assert ("#d7dde3" in path.read_text()) == ("-dark" in path.name)  # its ink


def test_an_archive_without_naive_replay_is_compared_with_that_of_another(archives):
    main, paper = read_campaigns(archives)
    assert [main.name, paper.name] == ["locomotion", "paper"]
    assert gains(paper, "iql", "parallel").keys() == {TASKS[0]}
    assert {run.strategy for run in paper.done} == {"parallel"}
    assert list(gains(main, "iql", theirs="offline")) == sorted(TASKS)


def campaign(tmp_path, runs, name="locomotion"):
    from tools.results.build import Campaign

    return Campaign(name, tuple(runs), group_runs(Runs(tuple(runs))))


def test_the_answer_has_the_unit_of_the_dataset_and_the_seeds_beside_it(tmp_path):
    base, alone = (dict.fromkeys(TASKS, both) for both in ((10.0, 12.0), (11.0, 11.0)))
    scores = {"naive": base, "arb_auto": {}, "offline": alone}
    for task, gain in zip(TASKS, (9.0, 10.0, 11.0), strict=True):
        scores["arb_auto"][task] = (9.5 + gain, 12.5 + gain)
    said = answer(campaign(tmp_path, grid(scores)))
    assert said.startswith("**On average ARB auto helps**: against naive replay +10.0 [+7.5, +12.5] points of area")
    assert "**It helps** on no kind of data that two datasets speak for." in said
    assert "median +10.0, a gain on 3 of 3 datasets" in said
    assert "of the area over seeds +10.0 [+" in said
    assert "By ladder: hopper +9.5, walker2d +11.0." in said
    assert "That training is at or above naive replay on 3 of 3 datasets." in said


@pytest.mark.parametrize(
    ("scores", "words"),
    [({"naive": {TASKS[0]: (1.0,)}, "arb_auto": {TASKS[0]: (9.0,)}}, "we cannot tell whether ARB auto helps"),
     ({"naive": {TASKS[0]: (1.0,)}}, "No pair of runs"),
     ({"naive": dict.fromkeys(TASKS, (5.0, 6.0)), "arb_auto": {TASKS[0]: (5.0, 6.1), TASKS[1]: (5.0, 6.0),
       TASKS[2]: (5.1, 6.0)}}, "makes no difference that matters")],
)  # fmt: skip
def test_with_few_runs_it_says_what_they_allow(tmp_path, scores, words):
    found = campaign(tmp_path, grid(scores))
    assert "**It h" not in answer(found) or "on random data" not in answer(found), "one dataset is not a kind"
    assert words in answer(found)
    assert main_table(found, "iql").count("\n| ") == len(scores["naive"])


def test_without_any_run_there_is_a_page_all_the_same(tmp_path):
    write_results(tmp_path / "nothing", tmp_path)
    assert "**Answer.** No run has finished yet." in (tmp_path / "results.md").read_text()
    assert readme([]).startswith("Not known yet for agents that work")


def test_a_strategy_in_several_variants_has_no_single_gain(tmp_path):
    runs = [flat(1.0, strategy="naive", task=TASKS[0])]
    runs += [flat(5.0, strategy="arb_auto", task=TASKS[0], leaves={"replay.effective": x}) for x in (0.1, 0.5)]
    assert gains(campaign(tmp_path, runs), "iql") == {}


def test_the_figure_needs_to_know_the_data(tmp_path):
    known = {"data": {"rows": 1, "sha256": "0f", "mean_return": 30.0}}
    runs = grid({"naive": {TASKS[0]: (1.0,)}, "arb_auto": {TASKS[0]: (5.0,)}}, **known)
    assert "gain" in readme([campaign(tmp_path, runs)])
    pictured = readme([campaign(tmp_path, runs)])
    assert f"docs/results/{FIGURE}-dark.svg" in pictured
    row = main_table(campaign(tmp_path, runs), "iql").splitlines()[2]
    assert row == "| hopper-random | 30.0 | 50.0 | 1.0 | 5.0 | +4.0 | +4.0 | 1 |"


def test_names_of_datasets():
    assert [quality(t) for t in ("suite:hopper-medium-b", "suite:hopper-medium-expert", "x")] == [
        "medium", "medium-expert", "other",
    ]  # fmt: skip
    assert [ladder(t) for t in ("suite:hopper-medium-b", "walker2d-medium-v2")] == ["hopper-b", "walker2d"]
    assert [of_kind("suite:hopper-medium-expert", part) for part in ("medium", "expert", "")] == [False, True, True]


def test_pretraining_that_runs_share_takes_its_time_once(tmp_path):
    runs = grid({"naive": {TASKS[0]: (1.0, 2.0)}, "arb": {TASKS[0]: (1.0,)}})
    for run, offline in zip(runs, (3600.0, 1800.0, 3600.0), strict=True):
        run.machine["seconds"] = {"pretrain": offline, "online": 360.0}
    assert hours(runs) == pytest.approx(1.5 + 0.3)


# ---- forecasts -------------------------------------------------------------------------------------------------------
ROBOTS = ("hopper", "walker2d", "halfcheetah")
KINDS = ("mixed", "medium-expert", "medium", "random")


def twelve(**gains_of):
    """Runs on twelve datasets: naive replay has 50, others that plus what is given for the kind of data."""
    scores = {}
    for strategy, by_kind in {"naive": {}, **gains_of}.items():
        scores[strategy] = {f"suite:{r}-{k}": (50.0 + by_kind.get(k, 0.0),) for r in ROBOTS for k in KINDS}
    return grid(scores)


@pytest.mark.parametrize(
    ("number", "auto", "offline", "arb", "came"),
    [(1, {"mixed": 11.0}, {}, {}, True), (1, {"mixed": 9.0}, {}, {}, False),
     (3, {"medium": 2.9}, {}, {}, True), (3, {"random": -3.0}, {}, {}, False),
     (4, {}, {"random": -1.0}, {}, True), (4, {}, {"random": -1.0, "mixed": -1.0}, {}, False),
     (5, {"mixed": 1.0}, {}, {}, True), (5, {"mixed": 1.0, "medium-expert": 1.0}, {}, {}, False),
     (6, {"mixed": 2.0}, {}, {"mixed": 1.0}, True), (6, {"mixed": 2.0}, {}, {"mixed": 3.0}, False),
     (7, {kind: 1.0 + i for i, kind in enumerate(KINDS)}, {}, {}, True), (7, {"mixed": 1.0}, {}, {}, False)],
)  # fmt: skip
def test_forecasts_are_judged(number, auto, offline, arb, came):
    _, judge = JUDGES["locomotion", number]
    assert judge(twelve(arb_auto=auto, offline=offline, arb=arb))[0] is came
    assert judge([])[0] is None
    assert judge(twelve(arb_auto=auto, offline=offline, arb=arb)[:4])[0] is None


def test_the_ceiling_is_judged_where_the_agent_is_at_it():
    _, judge = JUDGES["locomotion", 2]
    task = "suite:hopper-medium-expert"
    scores = {"naive": {task: (96.0,)}, "arb_auto": {task: (90.0,)}}
    assert judge(grid(scores))[0] is None  # pre-trained: 50
    runs = [flat(score, strategy=s, task=task, offline=(0.0, 96.0)) for s, score in (("naive", 96.0), ("arb", 90.0))]
    assert judge(runs) == (False, "hopper-medium-expert -6.0")


def offline_runs(**scores):
    return [
        flat(1.0, task=f"suite:{task.replace('_', '-')}", offline=(0.0, *[score] * 5), leaves={"settings.beta": beta})
        for task, (cloning, iql) in scores.items()
        for beta, score in ((0.0, cloning), (3.0, iql))
    ]


def test_offline_forecasts_are_judged():
    good = offline_runs(hopper_medium_expert=(80.0, 90.0), walker2d_medium_expert=(80.0, 86.0))
    assert JUDGES["reference", 2][1](good)[0] is True
    assert (
        JUDGES["reference", 2][1](offline_runs(hopper_medium_expert=(1.0, 84.0), walker2d_medium_expert=(1.0, 99.0)))[0]
        is False
    )
    assert JUDGES["reference", 1][1](good)[0] is None  # two of twelve datasets
    assert JUDGES["reference-antmaze", 1][1](offline_runs(antmaze_umaze_play=(44.0, 1.0)))[0] is False
    mazes = offline_runs(antmaze_umaze_play=(50.0, 80.0), antmaze_medium_play=(0.0, 60.0))
    assert JUDGES["reference-antmaze", 2][1](mazes)[0] is True


@pytest.mark.parametrize(
    ("number", "uniform", "auto", "half", "critics", "came"),
    [(1, 0, -1, 0, 0, True), (1, 0, 1, 0, 0, False),
     (2, 0, 0, 0, 0, True), (2, 0, -50, 0, 0, False),
     (3, 0, -9, -5, 0, True), (3, 0, -5, -9, 0, False),
     (4, 0, -9, 0, -4, True), (4, 0, -9, 0, -6, False), (4, 0, 9, 0, 0, None)],
)  # fmt: skip
def test_forecasts_about_own_code_are_judged(number, uniform, auto, half, critics, came):
    means = {"uniform": uniform, "arb_auto 0.25": auto, "arb_auto 0.5": half, "uniform critics": critics}
    rows = [
        {
            "agent": agent,
            "strategy": name,
            "seed": seed,
            "curve": [mean + seed - 5, mean + seed + (name < "b") * seed % 2],
        }
        for agent in ("td3", "sac")
        for name, mean in means.items()
        for seed in range(5)
    ]
    _, judge = JUDGES["own-code", number]
    assert judge(rows)[0] is came
    assert judge([])[0] is None
    assert judge([row for row in rows if row["seed"] < 4])[0] is None


def test_every_forecast_that_is_committed_has_a_judge():
    text = (ROOT / "results" / "forecasts.md").read_text()
    assert sentences(text).keys() == JUDGES.keys()
    assert "**not so**" not in judged(text, {})


@pytest.mark.slow
def test_every_number_on_the_committed_page_comes_out_of_the_archives(tmp_path):
    write_results(ROOT / "results", tmp_path)
    made, committed = ({path.name for path in (place / "results").glob("*")} for place in (tmp_path, ROOT / "docs"))
    again = "rebuild it: python tools/results/build.py"
    assert made == committed, again
    for name in ("results.md", *(f"results/{name}" for name in made if name.endswith(".md"))):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), again
