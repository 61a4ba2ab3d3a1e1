"""A report is whole, the same every time, harmless whatever names it meets, and works in a real browser."""

import hashlib
import json
import re
import shutil
from itertools import product

import numpy as np
import pytest

from arb import cli
from arb.errors import DataError
from arb.report.page import write_report
from arb.report.page_data import embedded
from tests.report import browser
from tests.report.folders import config_of, write_run, write_sweep

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
    return write_report([sweep], tmp_path_factory.mktemp("out") / "report", title=f"Mine {EVIL}")


def digest(report):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in report.files}


def test_all_files_are_there(report):
    folder = report.page.parent
    names = {path.relative_to(folder).as_posix() for path in report.files}
    for stem in ("tables/last-iql", "tables/drop-calql", "tables/aggregate-1-iql", "tables/improvement-1-iql"):
        assert {f"{stem}.{ending}" for ending in ("txt", "md", "tex", "csv")} <= names
    for stem in (
        "curves-iql",
        "online-share-iql",
        "profile-1-iql",
        "aggregate-1-iql",
        "improvement-1-iql",
        "curves-calql",
    ):
        assert {f"figures/{stem}.{ending}" for ending in ("png", "svg", "pdf")} <= names
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert on_disk == names | {"files.json"}
    assert "2 of 16 runs are missing from the tables" in report.text


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(sweep, report, tmp_path):
    again = write_report([sweep], tmp_path / "again", title=f"Mine {EVIL}")
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
    assert EVIL in {cell["task"] for cell in data["cells"]}


def test_json_in_a_script_tag_has_no_letter_that_ends_it():
    text = embedded({"</script>": "<!-- & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": "<!-- & \u2028"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded({"x": np.nan})


def test_a_second_report_removes_only_what_the_first_wrote(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", agent="calql")
    out = tmp_path / "out"
    write_report([tmp_path / "runs"], out)
    (out / "tables" / "mine.txt").write_text("mine")
    (out / "notes.txt").write_text("mine")
    shutil.rmtree(tmp_path / "runs" / "b")
    write_report([tmp_path / "runs"], out)
    assert not (out / "tables" / "last-calql.txt").exists()
    assert not (out / "figures" / "curves-calql.png").exists()
    assert (out / "tables" / "last-iql.txt").exists()
    assert (out / "tables" / "mine.txt").read_text() == (out / "notes.txt").read_text() == "mine"


def test_a_forged_list_removes_nothing_outside(tmp_path):
    write_run(tmp_path / "runs" / "a")
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "precious").write_text("keep")
    (out / "files.json").write_text(json.dumps(["../precious", "tables/../../precious", 5]))
    write_report([tmp_path / "runs"], out)
    assert (tmp_path / "precious").exists()


def test_only_unfinished_runs_make_a_page_too(tmp_path):
    write_run(tmp_path / "runs" / "half", done=False, online_steps=4000)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text("{")
    report = write_report([tmp_path / "runs"], tmp_path / "out")
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
    assert write_report([tmp_path / "runs"], tmp_path / "out").text.endswith("The run is finished.\n")
    (tmp_path / "runs" / "plan.json").write_text("{")
    write_run(tmp_path / "runs" / "b", seed=1, done=False)
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    assert "1 of 2 runs is missing from the tables:" in report.text
    assert f"{tmp_path / 'runs' / 'plan.json'} cannot be read" in report.text
    data = json.loads(re.search(r'id="data">(.*?)</script>', report.page.read_text(), re.DOTALL)[1])
    assert (len(data["runs"]), len(data["damaged"])) == (2, 1)


def test_a_file_is_no_place_for_a_report(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "taken").write_text("mine")
    for out in (tmp_path / "taken", tmp_path / "taken" / "below"):
        assert cli.main(["report", str(tmp_path / "runs"), "-o", str(out)]) == 2
        said = capsys.readouterr().err
        assert said == f"arb report: {tmp_path / 'taken'} is a file, not a folder: choose another with --out\n"
    assert (tmp_path / "taken").read_text() == "mine"


def test_no_runs_is_a_mistake(tmp_path):
    with pytest.raises(DataError, match="there are no runs"):
        write_report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- in a browser ---------------------------------------------------------------------------------------------------


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


GAPS = """return [...document.querySelectorAll('#together svg.plot')].filter((plot) => plot.querySelector('rect')).map(
    (plot) => Math.min(...[...plot.querySelectorAll('text')].filter((text) => text.textContent.includes('['))
        .map((text) => text.getBoundingClientRect().left))
        - Math.max(...[...plot.querySelectorAll('rect')].map((bar) => bar.getBoundingClientRect().right)))"""


def test_no_bar_of_an_interval_runs_over_the_numbers(window, tmp_path):
    for strategy, seed in product(("naive", "arb"), range(2)):
        write_run(tmp_path / f"runs/{strategy}-{seed}", strategy=strategy, seed=seed, final=-1135.5 - 300.0 * seed)
    window.size(1280, 900)
    window.open(write_report([tmp_path / "runs"], tmp_path / "out").page)
    gaps = window.run(GAPS)
    assert len(gaps) >= 4  # IQM, median, mean, improvement
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
    for online, seed in product((400, 4000), range(2)):
        leaves = {
            "replay.temperature": 0.5 if online == 400 else 2.0,
            "schedule.online": online,
            "evaluation.every": 200,
        }
        write_run(tmp_path / f"runs/{online}-{seed}", config_of(seed=seed, **leaves))
    window.size(1280, 900)
    window.open(write_report([tmp_path / "runs"], tmp_path / "out").page)
    window.until("return document.querySelectorAll('#together svg.plot').length")
    gaps = window.run("""return [...document.querySelectorAll('#together svg.plot')].flatMap((plot) =>
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
