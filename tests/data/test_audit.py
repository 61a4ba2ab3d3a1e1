"""Every check finds what it is for, and finds nothing in sound data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arb.data import Audit, audit

from .recordings import LENGTHS, sound, walk, without


def found(result: Audit, level: str) -> set[str]:
    return {finding.check for finding in result.findings if finding.level == level}


def test_sound_data_is_sound() -> None:
    for raw in (sound(), without(sound(), "next_observations")):
        result = audit(raw)
        assert (result.verdict, result.rows, result.episodes) == ("sound", sum(LENGTHS), len(LENGTHS))


def broken(name: str) -> dict[str, Any]:
    raw = sound()
    ends = np.cumsum(LENGTHS) - 1
    if name == "non-finite":
        raw["observations"][5, 1] = np.nan
    if name == "jumps":
        raw["episode_ids"] = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
        raw["observations"][5] += 7
    if name == "missing borders":
        raw = without(raw, "next_observations")
        raw["terminals"][ends[1]] = False
    if name == "actions":
        raw["actions"][5] = 1.5
    if name == "duplicates":
        twice = np.concatenate([np.arange(sum(LENGTHS)), np.arange(12)])
        raw = {key: column[twice] for key, column in raw.items()}
    if name == "rewards":
        raw["rewards"][:] = np.random.default_rng(0).uniform(0, 1, len(raw["rewards"]))
        raw = {key: np.concatenate([column] * 30) for key, column in raw.items()}
        raw["observations"] += np.repeat(np.arange(30), sum(LENGTHS))[:, None].astype(np.float32) * 1e-3
        raw["next_observations"] += np.repeat(np.arange(30), sum(LENGTHS))[:, None].astype(np.float32) * 1e-3
        raw["rewards"][77] = 1e6
    if name == "unusable":
        raw["rewards"] = raw["rewards"][:-1]
    return raw


@pytest.mark.parametrize(
    "name", ["non-finite", "jumps", "missing borders", "actions", "duplicates", "rewards", "unusable"]
)
def test_each_fault_is_found_and_named(name: str) -> None:
    result = audit(broken(name))
    assert found(result, "fault") == {name}
    assert not result.sound
    assert result.verdict == f"unsound: {name}"


def test_the_rows_of_a_fault_are_told() -> None:
    (finding,) = [f for f in audit(broken("rewards")).findings if f.level == "fault"]
    assert "row 77" in finding.text
    assert "1e+06" in finding.text


def test_an_episode_longer_than_the_time_limit_lacks_a_border() -> None:
    raw = without(walk([12, 12, 12, 24]), "next_observations")
    assert any("longer than the time limit of 12" in f.text for f in audit(raw).findings)


def test_remarks_do_not_make_data_unsound() -> None:
    raw = sound()
    raw["observations"][:, 2] = raw["next_observations"][:, 2] = 4.0
    raw["actions"][:20] = 1.0
    raw["terminals"][5] = True
    result = audit(raw)
    assert found(result, "remark") == {"constant", "actions", "terminals"}
    assert result.sound
    assert result.verdict == "sound, with 3 remarks"


def test_a_file_that_cannot_be_read_is_unsound(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    path.write_bytes(b"no")
    assert audit(path).verdict == "unsound: unreadable"


def test_genuine_and_like_sets_are_sound(shared_data: Path) -> None:
    pytest.importorskip("h5py")
    for path in sorted(shared_data.glob("*/*.hdf5")):
        assert audit(path).sound, path


def test_genuine_antmaze_v0_is_remarked_on(shared_data: Path) -> None:
    pytest.importorskip("h5py")
    result = audit(shared_data / "d4rl-excerpts" / "antmaze-medium-play-v0.hdf5")
    texts = " ".join(finding.text for finding in result.findings)
    assert "timeouts is set where the episode goes on (row 998)" in texts
    assert "row 1000, where the observations jump" in texts
