"""`arb compare` and `arb reproduce` from the command line to what they leave."""

import json
import re

import pytest

from arb.cli import main
from tests.lab import tiny


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARB_CACHE", str(tmp_path.parent / "cache"))
    tiny.write_data(tmp_path / "data.npz")
    return tmp_path


def test_compare_ends_in_a_table_figures_and_a_page(place, capsys):
    settings = [f"{name}={value}" for name, value in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
    command = ["compare", "-t", "data.npz", "-e", "Pendulum-v1", "-s", "naive,arb", "--seed", "0-1", "-o", "out"]
    assert main([*command, *settings]) == 0
    said, progress = capsys.readouterr()
    assert "4 runs (0 finished), 2 pre-trainings" in said
    assert "4 of 4 runs done" in progress
    assert "Naive" in said
    assert "(2)" in said  # seeds
    report = place / "out" / "report"
    for file in ("index.html", "figures/curves-iql.png", "figures/online-share-iql.svg", "tables/last-iql.csv"):
        assert (report / file).stat().st_size > 0, sorted(p.name for p in report.rglob("*"))
    pretrained = {path.read_text().split("online")[0] for path in (place / "out").glob("data-*/iql/*/seed-0/eval.csv")}
    assert len(pretrained) == 1  # both strategies start from the same
    assert main([*command, *settings]) == 0  # nothing is run again
    assert "4 runs (4 finished)" in capsys.readouterr().out


@pytest.mark.slow
def test_reproduce_puts_published_numbers_beside_ours(place, capsys):
    assert main(["reproduce", "temperature"]) == 0
    said = capsys.readouterr().out
    assert "suite:antmaze-large-diverse:2000" in said
    assert "not scores on D4RL's tasks" in said
    files = {path.suffix for path in (place / "reproduce" / "temperature-smoke" / "report").rglob("*")}
    assert {".csv", ".md", ".tex", ".png"} <= files
    table = next((place / "reproduce" / "temperature-smoke" / "report").rglob("*.csv"))
    assert len(table.read_text().splitlines()) > 4


def test_an_archived_run_is_run_again_and_compared(place, capsys):
    settings = [f"{name}={value}" for name, value in (tiny.SMALL | tiny.NETWORKS["iql"]).items()]
    assert main(["run", "-t", "data.npz", "-e", "Pendulum-v1", "-s", "naive", "-o", "runs/a", *settings]) == 0
    assert main(["report", "--pack", "runs", "-o", "all.jsonl"]) == 0
    assert main(["reproduce", "--run", "all.jsonl:a"]) == 0
    said = capsys.readouterr().out
    assert "all.jsonl:a agrees: " in said
    assert len(set(re.findall(r"^(?:archived|here)  +(.*)$", said, re.MULTILINE))) == 1
    line = json.loads((place / "all.jsonl").read_text())
    returns = line["evaluations"]["online"]["return"]
    returns[-1][0] -= 0.01  # the fifth digit
    line["machine"] |= {"cpu": "Other", "family": "6", "model": "143", "stepping": "8", "cores": 64}
    (place / "all.jsonl").write_text(json.dumps(line, separators=(",", ":")))
    assert main(["reproduce", "--run", "all.jsonl:a"]) == 1
    said = capsys.readouterr().out
    assert "all.jsonl:a differs, first at online step " in said
    assert "archived  Other, family 6, model 143, stepping 8\n" in said
    assert "other cores: 64, here " in said
    line["config"]["replay.strategy"] = "os:path"
    (place / "all.jsonl").write_text(json.dumps(line, separators=(",", ":")))
    for run, words in (("a", "an archive may not load code"), ("b", "no such run; the first is 'a'"), ("", "such run")):
        assert main(["reproduce", "--run", f"all.jsonl:{run}"]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["reproduce"], "name an experiment, or an archived run with --run ARCHIVE:RUN"),
        (["reproduce", "iql", "--run", "a.jsonl:b"], "name an experiment, or an archived run"),
        (["reproduce", "--run", "a.jsonl:b"], "a.jsonl cannot be read"),
        (["reproduce", "temprature"], "no experiment 'temprature' (did you mean 'temperature'?)"),
        (["compare", "--strategy", "naive,abr"], "no strategy 'abr' (did you mean 'arb'?)"),
        (["sweep", "--workers", "0"], "--workers must be at least 1"),
        (["sweep", "--ray", "replay.temperature=1"], "is not an address"),
        (["sweep", "-o", "data.npz"], "data.npz is a file, not a folder: choose another with --out"),
        (["compare", "-o", "data.npz/below"], "data.npz is a file, not a folder: choose another with --out"),
    ],
)
def test_mistakes_get_one_line_before_anything_starts(place, capsys, command, sentence):
    assert main(command) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in place.iterdir()) == ["data.npz"]
