"""The regression check tells the same runs from others, and what a version changed."""

from pathlib import Path

import pytest

from arb.report.records import pack, read_archive
from tests.report.folders import config_of, write_run


@pytest.fixture
def compared(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import regress

    return regress.compared


def archive(root, name, finals, **leaves):
    for seed, final in enumerate(finals):
        write_run(root / name / str(seed), config_of(seed=seed, **leaves), final=final)
    pack([root / name], root / f"{name}.jsonl")
    return read_archive(root / f"{name}.jsonl")


def test_equal_runs_are_the_same_and_others_differ_by_their_area(compared, tmp_path):
    old = archive(tmp_path, "old", (50.0, 60.0))
    ((labels, entries),) = compared(old, archive(tmp_path, "new", (50.0, 70.0), **{"settings.renamed": 1})).rows
    assert labels == ("iql", "arb", "1 of 2 the same")
    # Ten points more at the last of six evaluations: a tenth of the area, in one of two seeds.
    assert entries[2].value == pytest.approx(10.0 / 10 / 2, abs=1e-3)
    assert entries[2].n == 2
    assert entries[1].value - entries[0].value == pytest.approx(entries[2].value)


def test_without_an_archive_and_with_failures(compared, tmp_path):
    ((labels, entries),) = compared([], archive(tmp_path, "new", (50.0,))).rows
    assert labels[2] == "not in the archive"
    assert entries[0].value is entries[2].value is None
    fell = write_run(tmp_path / "new" / "fell", config_of(seed=1), done=False)
    (fell / "FAILED").write_text("fell\n")
    pack([tmp_path / "new"], tmp_path / "new.jsonl")
    ((labels, _),) = compared([], read_archive(tmp_path / "new.jsonl")).rows
    assert labels[2] == "not in the archive, 1 failed"
