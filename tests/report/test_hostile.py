"""Files of runs that were damaged or forged: one bad run never ends a report, and nothing is written elsewhere.

`ARB_FUZZ=2000 pytest tests/report/test_hostile.py` tries that many mutants of each kind instead of a few.
"""

import json
import os
import random
import re

import pytest

from arb.errors import DataError
from arb.report import plots
from arb.report.page import make_report, missing_text, page, page_data
from arb.report.records import group_runs, pack, read_runs
from arb.report.tables import tables
from tests.report.folders import config_of, write_run

TIMES = int(os.environ.get("ARB_FUZZ", "12"))
NASTY = ("inf", "nan", "1e999", "-1e308", "1e308", "10" * 200, "", "-1", "0x10", "١٢", "\x00", "\x1b[31m", "=1+1",
         "a\nb", "<script>", "../..", "/../../OUTSIDE", "\u202e", "1_000", " 1", "true", "9" * 17)  # fmt: skip
VALUES = (None, True, [], {}, [1], [[[[[[1]]]]]], 10**400, float("inf"), float("nan"), -1, 1e308, "\ud800", "\x00",
          "=cmd|' /C calc'!A0", "/../../OUTSIDE", "a\nb|c", "\x1b]0;x\x07", "x" * 5000, {"a": {"b": []}})  # fmt: skip


def shown(path):
    """Everything a report does with runs but the drawing of figures, which is slow and sees the same values."""
    results = group_runs(read_runs([path]))
    made = tables(results)
    files = [text for table in made for text in table.files().values()]
    files.append(page([page_data(results, made)], results.runs.unreadable, "t"))
    files.append(missing_text(results))
    return results, "".join(files)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def altered(value, rng):
    """A JSON value with one or two of its parts replaced or removed."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice([place for place in places(value) if place] or [()])
        if not path:
            break
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        if isinstance(inner, dict) and rng.random() < 0.25:
            del inner[path[-1]]
        else:
            inner[path[-1]] = rng.choice(VALUES)
    return json.dumps(value)


def cut(text, rng):
    """A text with a piece of it lost, doubled, or replaced by something nasty."""
    start = rng.randrange(len(text))
    end = min(len(text), start + rng.choice((1, 1, 5, 50, 500)))
    middle = rng.choice(("", text[start:end] * 2, rng.choice(NASTY), chr(rng.randrange(1, 0x500))))
    return text[:start] + middle + text[end:]


def cells_altered(text, rng):
    """A table with one of its values replaced."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    values = lines[place].split(",")
    values[rng.randrange(len(values))] = rng.choice(NASTY)
    lines[place] = ",".join(values)
    return "\n".join(lines) + "\n"


KINDS = {
    "config.json": lambda text, rng: altered(json.loads(text), rng) if rng.random() < 0.7 else cut(text, rng),
    "eval.csv": lambda text, rng: cells_altered(text, rng) if rng.random() < 0.7 else cut(text, rng),
    "metrics.csv": lambda text, rng: cells_altered(text, rng) if rng.random() < 0.7 else cut(text, rng),
    "plan.json": lambda text, rng: altered(json.loads(text), rng) if rng.random() < 0.7 else cut(text, rng),
}


@pytest.mark.parametrize("name", KINDS)
def test_mutated_run_folders(tmp_path, name):
    good, bad = write_run(tmp_path / "good", final=50.0), write_run(tmp_path / "bad", seed=1, points=3)
    plan = {"cells": [{"folder": "never", "config": config_of(seed=9)}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    file = (tmp_path if name == "plan.json" else bad) / name
    whole = file.read_text()
    before = set(tmp_path.rglob("*"))
    for number in range(TIMES):
        rng = random.Random(f"{name} {number}")
        file.write_text(KINDS[name](whole, rng), encoding="utf-8", errors="surrogatepass")
        results, said = shown(tmp_path)
        assert any(run.place == str(good) and run.status == "done" for run in results.runs.all), number
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202e]", said), number
        said.encode()
    assert set(tmp_path.rglob("*")) == before


def test_mutated_archives(tmp_path):
    for seed in range(2):
        write_run(tmp_path / "runs" / str(seed), seed=seed, points=3)
    pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    good, line = (tmp_path / "a.jsonl").read_text().splitlines()
    (tmp_path / "hostile").mkdir()
    for number in range(TIMES):
        rng = random.Random(f"archive {number}")
        text = altered(json.loads(line), rng) if rng.random() < 0.7 else cut(line, rng)
        (tmp_path / "hostile" / "a.jsonl").write_text(
            good + "\n" + text + "\n", encoding="utf-8", errors="surrogatepass"
        )
        results, said = shown(tmp_path / "hostile")
        assert results.runs.done, number
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202e]", said), number
        said.encode()


# ---- by name --------------------------------------------------------------------------------------------------------


def test_a_name_from_a_file_is_no_path(tmp_path):
    write_run(tmp_path / "runs" / "good")
    write_run(tmp_path / "runs" / "evil", agent="/../../OUTSIDE")
    (evil,) = read_runs([tmp_path / "runs"]).missing
    assert "is not a name" in evil.reason
    # An archive's agents are labels.
    pack([tmp_path / "runs"], tmp_path / "archives" / "a.jsonl")
    text = (tmp_path / "archives" / "a.jsonl").read_text().replace('"agent":"iql"', '"agent":"/../../OUTSIDE"')
    (tmp_path / "archives" / "a.jsonl").write_text(text)
    report = make_report([tmp_path / "archives"], tmp_path / "deep" / "report")
    assert {path.parent.parent for path in report.files if path.name != "index.html"} == {tmp_path / "deep" / "report"}
    assert (tmp_path / "deep" / "report" / "tables" / "area-OUTSIDE.txt").exists()


def test_agents_whose_names_make_the_same_file_get_files_of_their_own(tmp_path):
    for i, agent in enumerate(("a/b", "a-b")):
        folder = write_run(tmp_path / "runs" / str(i), agent="iql", seed=i)
        pack([folder], tmp_path / f"{i}.jsonl")
        path = tmp_path / f"{i}.jsonl"
        path.write_text(path.read_text().replace('"agent":"iql"', f'"agent":"{agent}"'))
    results = group_runs(read_runs([tmp_path / "0.jsonl", tmp_path / "1.jsonl"]))
    assert len({results.file(agent) for agent in results.agents()}) == 2


def test_a_setting_of_any_kind_is_shown(tmp_path):
    for i, value in enumerate(([1, 2], {"a": 1}, "many", None, 10**400)):
        folder = write_run(tmp_path / str(i), seed=i)
        said = json.loads((folder / "config.json").read_text())
        said["config"] |= dict.fromkeys(("schedule.online", "replay.temperature", "replay.clip", "task"), value)
        (folder / "config.json").write_text(json.dumps(said))
    write_run(tmp_path / "good", seed=9)
    results, _ = shown(tmp_path)
    assert any(run.seed == 9 for run in results.runs.done)


def test_text_does_not_become_a_formula_a_row_or_a_command(tmp_path):
    write_run(tmp_path / "a", task='=HYPERLINK("x")', final=1.0)
    write_run(tmp_path / "b", task="one | two\n| three |\x1b[2J", final=2.0)
    results, _ = shown(tmp_path)
    made = {table.name: table for table in tables(results)}["last-iql"]
    assert "\n'=HYPERLINK" in made.csv().replace("\"'", "'")
    assert all(line.startswith("|") for line in made.markdown().splitlines()[2:6])
    assert "\x1b" not in made.text()
    assert "\\textbackslash" not in made.latex()
    assert plots.plain("$x$") == r"\$x\$"


def test_scores_that_do_not_follow_from_the_returns_are_not_packed(tmp_path):
    folder = write_run(tmp_path / "runs/a")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**described, "reference": [0.0, 1.0]}))
    with pytest.raises(DataError, match="do not follow from its returns"):
        pack([tmp_path / "runs"], tmp_path / "a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()
