"""A report is whole, the same every time, harmless whatever names it meets, and works in a real browser."""

import hashlib
import json
import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import arb
from arb import cli
from arb.errors import DataError
from arb.lab.metrics import REPLAY
from arb.report.page import MAX_POINTS, embedded, make_report, page_data
from arb.report.records import pack
from arb.report.tables import Entry, Table, tables
from tests.report import browser
from tests.report.folders import config_of, write_run, write_sweep
from tests.report.records import HOPPER, TWO_BY_TWO, WALKER, flat, grid, record, results

EVIL = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two agents, scored and plain tasks, one with a hostile name, and some trouble."""
    root = tmp_path_factory.mktemp("sweep")
    write_sweep(root / "scored", tasks=["hopper-medium-v2", EVIL], strategies=("naive", "parallel", "arb"))
    write_sweep(root / "plain", tasks=["pendulum"], agents=("calql",), reference=None, seeds=1)
    write_run(root / "half", seed=7, done=False, online_steps=4000)
    failed = write_run(root / "fell", seed=8, done=False)
    (failed / "FAILED").write_text(EVIL + "\n")
    return root


@pytest.fixture(scope="module")
def report(sweep, tmp_path_factory):
    return make_report([sweep], tmp_path_factory.mktemp("out") / "report", title=f"Mine {EVIL}")


def digest(report):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in report.files}


def test_all_files_are_there(report):
    folder = report.page.parent
    names = {path.relative_to(folder).as_posix() for path in report.files}
    for stem in ("tables/last-iql", "tables/drop-calql", "tables/paired-1-iql"):
        assert {f"{stem}.{ending}" for ending in ("txt", "md", "tex", "csv")} <= names
    for stem in ("curves-iql", "online-share-iql", "differences-iql", "curves-calql"):
        assert {f"figures/{stem}.{ending}" for ending in ("png", "svg", "pdf")} <= names
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert on_disk == names
    assert "2 of 16 runs are missing from the tables" in report.text


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(sweep, report, tmp_path):
    again = make_report([sweep], tmp_path / "again", title=f"Mine {EVIL}")
    assert digest(again) == digest(report)


def test_the_page_asks_nothing_of_the_network(report):
    text = report.page.read_text()
    without_data = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\s\"']+", without_data))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"'](?!data:)", without_data)
    assert "default-src 'none'" in text


def test_names_from_files_cannot_become_markup(report):
    text = report.page.read_text()
    assert EVIL not in text
    assert "document.title='stolen'</script>" not in text
    assert text.count("</script>") == 2  # the page's own
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert EVIL in {panel["task"] for panel in data["sections"][0]["panels"]}


def test_only_unfinished_runs_make_a_page_too(tmp_path):
    write_run(tmp_path / "runs" / "half", done=False, online_steps=4000)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text("{")
    report = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "2 of 2 runs are missing from the tables" in report.text
    assert report.page.exists()


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", final=42.0)
    assert cli.main(["report", "runs", "-o", "mine", "--title", "T"]) == 0
    said = capsys.readouterr().out
    assert "42.0 (1)" in said
    assert "mine/index.html" in said
    assert "<title>T</title>" in (tmp_path / "mine" / "index.html").read_text()
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", "empty"]) == 2
    assert "there are no runs below empty" in capsys.readouterr().err


def test_one_run_is_no_plural_and_a_damaged_plan_no_run(tmp_path):
    write_run(tmp_path / "runs" / "a")
    assert make_report([tmp_path / "runs"], tmp_path / "out").text.endswith("The run is finished.\n")
    (tmp_path / "runs" / "plan.json").write_text("{")
    write_run(tmp_path / "runs" / "b", seed=1, done=False)
    report = make_report([tmp_path / "runs"], tmp_path / "out")
    assert "1 of 2 runs is missing from the tables:" in report.text
    assert f"{tmp_path / 'runs' / 'plan.json'} cannot be read" in report.text
    data = json.loads(re.search(r'id="data">(.*?)</script>', report.page.read_text(), re.DOTALL)[1])
    assert (len(data["sections"][0]["runs"]), len(data["unreadable"])) == (2, 1)


def test_a_file_is_no_place_for_a_report(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "taken").write_text("mine")
    for out in (tmp_path / "taken", tmp_path / "taken" / "below"):
        assert cli.main(["report", str(tmp_path / "runs"), "-o", str(out)]) == 2
        said = capsys.readouterr().err
        assert said == f"arb report: {tmp_path / 'taken'} is a file, not a folder: choose another with --out\n"
    assert (tmp_path / "taken").read_text() == "mine"


def archives_of(root, **finals):
    for name, final in finals.items():
        write_sweep(root / "runs" / name, tasks=[f"{name}-task"], final=final)
        pack([root / "runs" / name], root / "archives" / f"{name}.jsonl")
    return root / "archives"


def test_an_archive_alone_goes_into_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (archive,) = archives_of(tmp_path, only=50.0).iterdir()
    assert arb.make_report(archive).page == Path("report/index.html")
    assert (tmp_path / "report" / "tables" / "area-iql.txt").exists()


def test_several_archives_have_a_section_each(tmp_path):
    report = make_report(archives_of(tmp_path, first=50.0, second=70.0), tmp_path / "out")
    assert "first\n═════\n" in report.text
    assert (tmp_path / "out" / "tables" / "first" / "area-iql.txt").exists()
    assert (tmp_path / "out" / "figures" / "second" / "curves-iql.svg").exists()
    data = json.loads(re.search(r'id="data">(.*?)</script>', report.page.read_text(), re.DOTALL)[1])
    assert [one["name"] for one in data["sections"]] == ["first", "second"]
    assert [one["agents"][0]["tasks"] for one in data["sections"]] == [["first-task"], ["second-task"]]


def test_a_repeated_and_a_damaged_line_are_one_line_each(tmp_path):
    (archive,) = archives_of(tmp_path, only=50.0).iterdir()
    first, *others = archive.read_text().splitlines()
    archive.write_text("\n".join([first, first, "{", *others]) + "\n")
    text = make_report(archive, tmp_path / "out").text
    assert "1 of 6 runs is missing from the tables:\n  failed     " in text
    assert "1 run with the settings and seed of another: not counted." in text


def test_no_runs_is_a_mistake(tmp_path):
    with pytest.raises(DataError, match="there are no runs"):
        make_report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def window():
    if browser.lacking():
        pytest.skip(f"needs a browser: install {' and '.join(browser.lacking())}")
    with browser.Browser() as opened:
        yield opened


@pytest.fixture
def page(window, report):
    window.prefer("light")
    window.size(1280, 900)
    window.open(report.page)
    window.run("localStorage.clear()")
    window.open(report.page)
    window.until("return document.querySelectorAll('#curves svg.plot polyline').length")
    yield window
    assert window.complaints() == []


def test_it_draws_without_a_complaint_and_runs_nothing_foreign(page):
    assert page.run("return document.title") == f"Mine {EVIL}"
    assert page.run("return document.querySelector('h1').textContent") == f"Mine {EVIL}"
    assert page.run("return document.querySelectorAll('main script, main img').length") == 0
    assert page.run("return [...document.querySelectorAll('#runs td.text')].map((d) => d.textContent)").count(EVIL) == 2


COLUMN = """return [...document.querySelector(`[data-table="${arguments[0]}"]`).querySelectorAll('tbody tr')]
    .map((row) => row.children[arguments[1]].dataset.value)"""


HEAD = "document.querySelector(`[data-table=\"${arguments[0]}\"]`).querySelectorAll('th')[arguments[1]]"


def test_tables_sort_at_a_click(page):
    page.run("document.querySelector('[data-choice=last]').click()")
    for direction in ("descending", "ascending"):
        page.run(f"{HEAD}.querySelector('button').click()", "last-iql", 4)
        assert page.run(f"return {HEAD}.getAttribute('aria-sort')", "last-iql", 4) == direction
        numbers = [float(value) for value in page.run(COLUMN, "last-iql", 4)]
        assert len(numbers) == 2
        assert numbers == sorted(numbers, reverse=direction == "descending")
    page.run(f"{HEAD}.querySelector('button').click()", "last-iql", 0)
    names = page.run(COLUMN, "last-iql", 0)
    assert names == ["hopper-medium-v2", EVIL]


def test_another_measure_can_be_chosen(page):
    assert page.run("return document.querySelector('[data-table=drop-iql]')") is None
    assert page.run("return document.querySelector('[data-table=area-iql]') !== null")
    page.run("document.querySelector('[data-choice=drop]').click()")
    assert page.run("return document.querySelector('[data-table=drop-iql]') !== null")
    assert page.run("return document.querySelector('[data-table=area-iql]')") is None


LINES = "return [...new Set([...document.querySelectorAll('#curves polyline')].map((line) => line.dataset.series))]"


def test_the_legend_hides_and_shows_curves_everywhere(page):
    assert sorted(page.run(LINES)) == ["ARB", "Naive", "Parallel"]
    page.run("document.querySelector('#curves [data-variant=Naive]').click()")
    assert sorted(page.run(LINES)) == ["ARB", "Parallel"]
    assert page.run("return document.querySelector('#replay [data-variant=Naive]').ariaPressed") == "false"
    page.run("document.querySelector('#replay [data-variant=Naive]').click()")
    assert sorted(page.run(LINES)) == ["ARB", "Naive", "Parallel"]


TIP = "const tip = document.querySelector('#curves .tip'); return tip.hidden ? null : tip.textContent"


def test_hovering_shows_the_values_at_the_cursor(page):
    assert page.run(TIP) is None
    plot = "document.querySelector('#curves svg.plot')"
    page.run(f"{plot}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    box = page.run(f"const b = {plot}.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]")
    page.hover(box[0] + box[2] - 12, box[1] + box[3] / 2)
    said = page.until(TIP)
    assert said.startswith("online step 10,000")
    assert {"ARB", "Naive", "Parallel"} <= set(re.findall("[A-Z][A-Za-z]+", said))
    assert re.search(r"ARB\d+\.\d ± \d", said)
    page.hover(2, 2)
    page.until("return document.querySelector('#curves .tip').hidden")


def test_charts_can_be_read_with_the_keyboard(page):
    page.run("document.querySelector('#curves svg.plot').focus()")
    page.press("ArrowRight")
    assert page.until(TIP).startswith("4k updates before the switch")
    page.press("ArrowRight")
    assert page.run(TIP).startswith("2k updates before the switch")
    page.press("Escape")
    assert page.run(TIP) is None


def test_every_diagnostic_can_be_chosen(page):
    choices = page.run("return [...document.querySelectorAll('#replay [data-choice]')].map((b) => b.dataset.choice)")
    assert choices == ["online_share", "effective_share", "entropy", "top_trajectories", "clipped_low", "age"]
    for choice in choices:
        page.run("document.querySelector(`#replay [data-choice=${arguments[0]}]`).click()", choice)
        page.until("return document.querySelectorAll('#replay svg.plot polyline').length >= 3")
        grey = page.run("return document.querySelectorAll('#replay [data-series=\"share of the buffer\"]').length")
        assert (grey > 0) == (choice == "online_share")


GAPS = """return [...document.querySelectorAll('#paired svg.plot')].map((plot) =>
    Math.min(...[...plot.querySelectorAll('.number')].map((text) => text.getBoundingClientRect().left))
        - Math.max(...[...plot.querySelectorAll('.bar')].map((bar) => bar.getBoundingClientRect().right)))"""


def test_no_bar_of_an_interval_runs_over_the_numbers(window, tmp_path):
    for strategy, seed in product(("naive", "arb"), range(2)):
        write_run(tmp_path / f"runs/{strategy}-{seed}", strategy=strategy, seed=seed, final=-1135.5 - 300.0 * seed)
    window.size(1280, 900)
    window.open(make_report([tmp_path / "runs"], tmp_path / "out").page)
    window.until("return document.querySelectorAll('#paired .bar').length")
    gaps = window.run(GAPS)
    assert len(gaps) == 1
    assert min(gaps) > 0


GROUND = "return getComputedStyle(document.body).backgroundColor"


def test_dark_mode_follows_the_system_and_the_button(page):
    light = page.run(GROUND)
    page.prefer("dark")
    page.until("return document.documentElement.dataset.theme === 'dark'")
    dark = page.run(GROUND)
    assert dark != light
    page.run("document.getElementById('theme').click()")
    assert page.run(GROUND) == light
    page.run("document.getElementById('theme').click()")
    assert page.run(GROUND) == dark


def test_a_phone_does_not_scroll_sideways(page):
    page.size(390, 844)
    page.until("return document.documentElement.clientWidth === 390")
    assert page.run("return document.documentElement.scrollWidth") == 390
    page.until("return document.querySelector('#curves svg.plot').viewBox.baseVal.width <= 390")


def test_names_of_strategies_are_never_cut_off(window, tmp_path):
    for strategy, online, seed in product(("naive", "arb"), (400, 4000), range(2)):
        leaves = {
            "replay.temperature": 0.5 if online == 400 else 2.0,
            "schedule.online": online,
            "evaluation.every": 200,
        }
        write_run(tmp_path / f"runs/{strategy}-{online}-{seed}", config_of(strategy=strategy, seed=seed, **leaves))
    window.size(1280, 900)
    window.open(make_report([tmp_path / "runs"], tmp_path / "out").page)
    window.until("return document.querySelectorAll('#paired svg.plot').length")
    gaps = window.run("""return [...document.querySelectorAll('#paired svg.plot')].flatMap((plot) =>
        [...plot.querySelectorAll('text')].map((text) =>
            text.getBoundingClientRect().left - plot.getBoundingClientRect().left))""")
    assert min(gaps) >= 0


def test_a_wide_table_shows_that_it_scrolls(page):
    page.size(390, 844)
    page.until("return document.documentElement.clientWidth === 390")
    wide = "document.querySelector('#paired .scroll')"
    assert page.run(f"return {wide}.scrollWidth > {wide}.clientWidth")
    assert "scroll" in page.run(f"return getComputedStyle({wide}).backgroundAttachment")


def test_numbers_with_commas_sort_as_numbers(page):
    page.run("""const table = document.querySelector('[data-table=shared-settings]');
        table.closest('details').open = true;
        table.querySelector('tbody').replaceChildren(...['900', '12,000', '1,200'].map((text) =>
            element('tr', {}, element('td', { text }), element('td', { text }))));
        table.querySelectorAll('th button')[1].click()""")
    found = page.run("""return [...document.querySelectorAll('[data-table=shared-settings] tbody tr')]
        .map((row) => row.children[1].textContent)""")
    assert found == ["12,000", "1,200", "900"]


def told(*runs, made=()):
    found = results(*runs)
    return page_data(found, made)


def test_everything_can_be_written_as_json():
    found = results(*grid(TWO_BY_TWO))
    data = page_data(found, tables(found))
    assert json.loads(embedded(data)).keys() == data.keys()


def test_a_curve_has_the_switch_at_zero_and_one_deviation_around_its_mean():
    (panel,) = told(record((50.0, 60.0)), record((54.0, 60.0), seed=1))["panels"]
    (group,) = panel["groups"]
    before, after = group["curve"]
    assert before["x"] == [-2000, 0]
    assert after == {"x": [0, 2000], "y": [52.0, 60.0], "low": [49.172, 60.0], "high": [54.828, 60.0]}
    assert (group["seeds"], panel["unit"], group["finished"]) == (2, "normalised score", True)


def test_one_seed_has_no_band():
    (cell,) = told(flat(50.0))["panels"][0]["groups"]
    assert cell["curve"][1]["low"] is None
    assert cell["curve"][1]["high"] is None


def test_figures_are_thinned_and_gaps_stay_gaps():
    share = np.linspace(0.0, 1.0, 1000)
    share[-1] = math.nan
    (cell,) = told(flat(1.0, figures={"replay.online_share": share}))["panels"][0]["groups"]
    line = cell["metrics"]["online_share"]
    assert len(line["x"]) == len(line["y"]) == MAX_POINTS
    assert (line["x"][0], line["x"][-1]) == (1, 1000)
    assert line["y"][-1] is None


def test_what_lies_between_0_and_1_is_drawn_so():
    shares = {"online_share", "drawn_online_share", "effective_share", "entropy", "top_trajectories"}
    shares |= {"clipped_low", "clipped_high"}
    assert {one.name for one in REPLAY if one.share} == shares | {"online_rows", "offline_share"}


def test_only_figures_that_somebody_has_can_be_chosen():
    data = told(flat(1.0, figures={"replay.age": [3.0], "replay.temperature": [math.nan]}))
    meaning = "Expected age of a sampled row, in steps since it was added."
    assert data["metrics"] == [{"id": "age", "title": "Age", "meaning": meaning, "share": False}]


def test_the_figures_of_a_strategy_of_ones_own_are_shown_under_their_names():
    data = told(flat(1.0, figures={"replay.my_metric": [0.5, 0.7], "replay.online_bound": [1.0, 2.0]}))
    assert [(one["id"], one["title"]) for one in data["metrics"]] == [("my_metric", "My metric")]
    assert data["panels"][0]["groups"][0]["metrics"]["my_metric"]["y"] == [0.5, 0.7]


def test_settings_that_differ_are_apart_from_those_that_do_not():
    data = told(flat(1.0), flat(1.0, leaves={"replay.temperature": 2.0}))["settings"]
    assert data["differing"] == ["replay.temperature"]
    assert data["rows"] == [
        [f"{HOPPER} · IQL · ARB λ=0.5", "0.5"],
        [f"{HOPPER} · IQL · ARB λ=2", "2.0"],
    ]
    common = dict(data["common"])
    assert common["schedule.online"] == "10000"
    assert common["task"] == HOPPER
    assert "seed" not in common
    assert "replay.temperature" not in common


def test_versions_and_data_are_counted():
    runs = [
        flat(1.0),
        flat(1.0, seed=1),
        flat(1.0, seed=2, versions={"numpy": "2.1"}, data={"rows": 5, "sha256": "aa"}),
    ]
    versions, data = told(*runs)["origins"]
    assert versions == ("Versions", ["package", "version"], [["numpy", "2.0 (2 runs), 2.1 (1 run)"]])
    assert data[2] == [[HOPPER, "Env-v0", "1000", "0f", "2"], [HOPPER, "Env-v0", "5", "aa", "1"]]
    assert told(flat(1.0))["origins"][0][2] == [["numpy", "2.0"]]
    assert told(flat(1.0, versions={}, data={}))["origins"] == []


def test_runs_say_what_they_are_and_why_they_do_not_count():
    runs = told(
        flat(1.0, place="a"), flat(2.0, place="b"), flat(3.0, place="c", seed=1, status="failed", reason="fell")
    )
    listed = {one["folder"]: one for one in runs["runs"]}
    assert listed["a"]["reason"] == ""
    assert listed["b"]["reason"].startswith("another run has the same settings and seed")
    assert listed["c"] == {
        "folder": "c", "status": "failed", "reason": "fell", "what": f"{HOPPER} · IQL · arb · seed 1",
    }  # fmt: skip


def test_the_head_of_the_page():
    data = told(*grid(TWO_BY_TWO), flat(1.0, strategy="berb", task=WALKER), flat(1.0, seed=9, status="unfinished"))
    assert data["subtitle"] == "IQL fine-tuned with Naive, BERB, ARB."
    assert dict(data["facts"]) == {
        "finished runs": "9", "datasets": "2", "strategies": "3", "seeds": "1–2", "not in the tables": "1",
    }  # fmt: skip
    assert told(flat(1.0))["subtitle"] == "IQL fine-tuned with ARB."
    assert told(record((), ()))["subtitle"].startswith("No run has been evaluated yet")


def test_variants_have_one_colour_each_and_agents_their_tasks():
    data = told(*grid(TWO_BY_TWO), flat(1.0, agent="pex"))
    assert [one["name"] for one in data["variants"]] == ["Naive", "ARB"]
    assert len({one["colour"] for one in data["variants"]}) == 2
    assert data["agents"] == [
        {"id": "iql", "name": "IQL", "tasks": [HOPPER, WALKER]},
        {"id": "pex", "name": "PEX", "tasks": [HOPPER]},
    ]


def test_measures_without_a_table_cannot_be_chosen():
    made = [Table("last-iql", "t", ("task",), ("ARB",), ()), Table("area-iql", "t", ("task",), ("ARB",), ())]
    assert [one["id"] for one in told(flat(1.0), made=made)["measures"]] == ["area", "last"]


def test_a_number_is_apart_from_what_is_said_about_it():
    shown = Entry(12.34, 1.26, n=3, bold=True, mark="†")
    interval, empty = Entry(0.5, low=-0.25, high=1.0, digits=2), Entry(mark="§")
    table = Table("last-iql", "title", ("task",), ("a", "b", "c"), ((("hopper",), (shown, interval, empty)),))
    (given,) = told(flat(1.0), made=[table])["tables"]
    assert given["rows"][0]["labels"] == ("hopper",)
    first, second, third = given["rows"][0]["entries"]
    assert first == {"value": 12.34, "text": "12.3", "more": "± 1.3 (3)", "bold": True, "mark": "†"}
    assert (second["text"], second["more"]) == ("0.50", "[−0.25, 1.00]")
    assert third == {"value": None, "mark": "§"}
    assert given["kind"] == "last"


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028"])
def test_no_text_can_end_the_script_it_stands_in(text):
    written = embedded({"x": text})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {"x": text}


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded({"x": math.nan})


def test_a_page_follows_runs_until_all_are_finished(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "runs" / "a", seed=0)
    going = write_run(tmp_path / "runs" / "b", seed=1, done=False, online_steps=4000)
    seen = []

    def sleep(seconds):
        seen.append((seconds, (tmp_path / "watch" / "index.html").read_text()))
        if len(seen) == 2:
            (going / "DONE").touch()

    monkeypatch.setattr("arb.cli.report.time.sleep", sleep)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["watch", "runs", "--every", "3"]) == 0
    assert [seconds for seconds, _ in seen] == [3, 3]
    assert '<meta http-equiv="refresh" content="3">' in seen[0][1]
    assert "at online step 4,000 of 10,000" in seen[0][1]
    last = (tmp_path / "watch" / "index.html").read_text()
    assert "refresh" not in last.partition("<style>")[0]
    assert capsys.readouterr().out.endswith("all runs are finished\n")
    assert cli.main(["watch", "runs", "--every", "0"]) == 2
