"""Every check finds what it is for, and finds nothing in sound data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from arb.data import Audit, audit
from arb.data.audit import Environment, faults, known_environment
from arb.errors import DataError

from .recordings import LENGTHS, as_hdf5, as_npz, load, sound, walk, without


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
    if name == "discontinuities":
        raw["episode_ids"] = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
        raw["observations"][5] += 7
    if name == "missing ends":
        raw = without(raw, "next_observations")
        raw["terminals"][ends[1]] = False
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


@pytest.mark.parametrize("name", ["non-finite", "discontinuities", "missing ends", "duplicates", "rewards", "unusable"])
def test_each_fault_is_found_and_named(name: str) -> None:
    result = audit(broken(name))
    assert found(result, "fault") == {name}
    assert not result.sound
    assert result.verdict == f"unsound: {name}"


def torques(reach: float, dim: int = 1) -> dict[str, Any]:
    raw = sound()
    raw["actions"] = np.zeros((len(raw["rewards"]), dim), np.float32)
    raw["actions"][:, 0] = np.linspace(-reach, 0.9 * reach, len(raw["rewards"]))
    return raw


def of_actions(result: Audit) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in result.findings if finding.check == "actions"]


def test_actions_beyond_one_are_a_remark_where_no_bounds_are_known(tmp_path: Path) -> None:
    unmade = as_npz(tmp_path / "x.npz", {**torques(1.75), "env": np.array("nowhere-v0")})
    for source in (torques(1.75), unmade):
        ((level, text),) = of_actions(audit(source))
        assert level == "remark"
        assert "reach 1.75" in text
        assert "--env" in text
        assert "clip" not in text
        assert audit(source).sound


@pytest.mark.parametrize("said", [{"env": "Pendulum-v1"}, {"action_low": -2.0, "action_high": [2.0]}])
@pytest.mark.parametrize("write", [as_npz, as_hdf5])
def test_actions_are_held_to_the_bounds_of_the_file(tmp_path: Path, said: dict[str, Any], write: Any) -> None:
    for reach, sound_too in ((1.99, True), (2.5, False)):
        path = tmp_path / f"{reach}.{'npz' if write is as_npz else 'hdf5'}"
        if write is as_npz:
            as_npz(path, {**torques(reach), **{key: np.array(value) for key, value in said.items()}})
        else:
            with h5py.File(as_hdf5(path, torques(reach)), "a") as file:
                file.attrs.update(said)
        result = audit(path)
        assert result.sound is sound_too
        assert any("actions leave [-2, 2]" in text for _, text in of_actions(result)) is not sound_too


def test_actions_are_held_to_the_bounds_of_a_named_environment(tmp_path: Path) -> None:
    assert audit(torques(1.99), "Pendulum-v1").sound
    narrow = as_npz(tmp_path / "x.npz", {**torques(2.5), "action_low": np.array(-9.0), "action_high": np.array(9.0)})
    assert audit(narrow).sound
    assert "leave [-2, 2]" in of_actions(audit(narrow, "Pendulum-v1"))[0][1]
    with pytest.raises(DataError, match="nowhere"):
        audit(torques(1.0), "nowhere-v0")


def test_bounds_of_another_size_are_not_this_data_s() -> None:
    ((level, text),) = of_actions(audit(torques(0.5, dim=2), "Pendulum-v1"))
    assert level == "fault"
    assert "an action has 2 entries" in text


def test_discrete_actions_are_held_to_their_number() -> None:
    raw = {**sound(), **{name: walk(LENGTHS, dim=4)[name] for name in ("observations", "next_observations")}}
    raw["actions"] = np.arange(72) % 2
    assert audit(raw, "CartPole-v1").verdict == "sound"
    raw["actions"][5] = 2
    assert of_actions(audit(raw, "CartPole-v1")) == [("fault", "actions leave [0, 1] in row 5: clip or rescale them")]


def test_a_file_makes_no_module_be_imported() -> None:
    assert known_environment({"env": "antigravity:Pendulum-v1"}) == Environment()
    assert "antigravity" not in sys.modules


def test_time_limits_recorded_as_terminals_are_found_by_the_limit_of_the_environment() -> None:
    raw = {**walk([200, 200, 57, 200]), "actions": np.zeros((657, 1), np.float32)}
    raw["terminals"], raw["timeouts"] = raw["timeouts"].copy(), np.zeros(657, bool)
    (finding,) = [f for f in audit(raw, "Pendulum-v1").findings if f.check == "time limits"]
    assert finding.level == "fault"
    assert "3 of 4 ends are terminals exactly at the time limit of 200 steps, first in row 199" in finding.text
    assert "set timeouts" in finding.text
    raw["terminals"][[199, 399]], raw["timeouts"][[199, 399]] = False, True  # one of two left: half is still too many
    assert not audit(raw, "Pendulum-v1").sound
    raw["terminals"][656], raw["timeouts"][656] = False, True
    assert audit(raw, "Pendulum-v1").sound


def test_observations_of_another_size_than_the_environment_s() -> None:
    raw = {**walk([20, 20], dim=4), "actions": np.zeros((40, 1), np.float32)}
    (finding,) = [f for f in audit(raw, "Pendulum-v1").findings if f.level == "fault"]
    assert finding.text.startswith("an observation has 4 numbers, one of Pendulum-v1 has 3")


def test_the_rows_of_a_fault_are_told() -> None:
    (finding,) = [f for f in audit(broken("rewards")).findings if f.level == "fault"]
    assert "row 77" in finding.text
    assert "1e+06" in finding.text


def test_an_episode_longer_than_the_time_limit_lacks_a_border() -> None:
    raw = without(walk([12, 12, 12, 24]), "next_observations")
    assert any("longer than the time limit of 12" in f.text and "episode_ids" in f.text for f in audit(raw).findings)


def test_an_episode_of_twice_the_environments_limit_is_several_joined() -> None:
    raw = without(walk([200, 200, 200]), "next_observations") | {"timeouts": np.zeros(600, bool)}
    raw["terminals"][:] = False
    result = audit(raw, env="Pendulum-v1")
    text = next(f.text for f in result.findings if f.check == "missing ends" and f.level == "fault")
    assert text.startswith("the episode from row 0 has 600 steps, and the time limit is 200: ends are missing; set ")


def test_the_faults_of_a_dataset_that_was_read() -> None:
    assert faults(load(sound()), 12) == []
    (text,) = faults(load(broken("duplicates")))
    assert text.startswith("1 episodes repeat an earlier one, beginning in row 72")
    joined = load(without(walk([200, 399]), "next_observations"))
    assert faults(joined, 100)[0].startswith("the episode from rows 0, 200 has 399 steps")
    assert faults(joined, 200) == faults(joined) == []


def test_remarks_do_not_make_data_unsound() -> None:
    raw = sound()
    raw["actions"][:20] = 1.0
    raw["terminals"][5] = True
    result = audit(raw)
    assert found(result, "remark") == {"actions", "terminals"}
    assert result.sound
    assert result.verdict == "sound, with 2 remarks"


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
    assert "timeouts is set where the episode continues (row 998)" in texts
    assert "row 1000, where the observations are discontinuous" in texts
