"""`arb compare` and `arb reproduce` from the command line to what they leave."""

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


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
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
