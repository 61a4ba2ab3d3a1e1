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
from arb.data.episodes import unknown_starts
from arb.errors import DataError

from .recordings import LENGTHS, as_hdf5, as_npz, load, sound, walk, without


def found(result: Audit, level: str) -> set[str]:
    return {finding.check for finding in result.findings if finding.level == level}


def test_sound_data_is_sound() -> None:
    for raw in (sound(), without(sound(), "next_observations")):
        result = audit(raw)
        assert (result.verdict, result.rows, result.episodes) == ("no fault found", sum(LENGTHS), len(LENGTHS))


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
    assert not result.ok
    assert result.verdict == f"faults: {name}"


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
        assert audit(source).ok


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
        assert result.ok is sound_too
        assert any("actions leave [-2, 2]" in text for _, text in of_actions(result)) is not sound_too


def test_actions_are_held_to_the_bounds_of_a_named_environment(tmp_path: Path) -> None:
    assert audit(torques(1.99), "Pendulum-v1").ok
    narrow = as_npz(tmp_path / "x.npz", {**torques(2.5), "action_low": np.array(-9.0), "action_high": np.array(9.0)})
    assert audit(narrow).ok
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
    assert audit(raw, "CartPole-v1").verdict == "no fault found"
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
    assert not audit(raw, "Pendulum-v1").ok
    raw["terminals"][656], raw["timeouts"][656] = False, True
    assert audit(raw, "Pendulum-v1").ok


def test_observations_of_another_size_than_the_environment_s() -> None:
    raw = {**walk([20, 20], dim=4), "actions": np.zeros((40, 1), np.float32)}
    (finding,) = [f for f in audit(raw, "Pendulum-v1").findings if f.level == "fault"]
    assert finding.text.startswith("an observation has 4 numbers, one of Pendulum-v1 has 3")


def test_an_environment_whose_observations_are_no_vectors_is_a_fault() -> None:
    assert [f.text for f in audit(arm(), "FrozenLake-v1").findings if f.check == "observations"] == [
        "FrozenLake-v1 gives observations that are no vectors, which no agent reads: "
        "register it wrapped in gymnasium.wrappers.FlattenObservation"
    ]


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
    assert result.ok
    assert result.verdict == "no fault found, 2 remarks"


def test_a_file_that_cannot_be_read_is_unsound(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    path.write_bytes(b"no")
    assert audit(path).verdict == "faults: unreadable"


def test_genuine_and_like_sets_are_sound(shared_data: Path) -> None:
    pytest.importorskip("h5py")
    for path in sorted(shared_data.glob("*/*.hdf5")):
        assert audit(path).ok, path


def test_genuine_antmaze_v0_is_remarked_on(shared_data: Path) -> None:
    pytest.importorskip("h5py")
    result = audit(shared_data / "d4rl-excerpts" / "antmaze-medium-play-v0.hdf5")
    texts = " ".join(finding.text for finding in result.findings)
    assert "timeouts is set where the episode continues (row 998)" in texts
    assert "row 1000, where the observations are discontinuous" in texts


# ---- logs as people have them ----------------------------------------------------------------------------------------


def arm(episodes: int = 40, steps: int = 60, seed: int = 0) -> dict[str, Any]:
    """A point that is pushed; the reward says where it got to and what the push cost."""
    rng = np.random.default_rng(seed)
    state, actions = np.zeros((episodes, steps + 1, 2)), rng.uniform(-1, 1, (episodes, steps, 1))
    state[:, 0] = rng.uniform(-1, 1, (episodes, 2))
    for t in range(steps):
        state[:, t + 1, 1] = 0.9 * state[:, t, 1] + 0.3 * actions[:, t, 0]
        state[:, t + 1, 0] = state[:, t, 0] + 0.2 * state[:, t + 1, 1]
    rows = episodes * steps
    flags = np.tile(np.arange(steps) == steps - 1, episodes)
    return {
        "observations": state[:, :-1].reshape(rows, 2).astype(np.float32),
        "actions": actions.reshape(rows, 1).astype(np.float32),
        "rewards": -(np.square(state[:, 1:]).sum(2) + actions[..., 0] ** 2).reshape(rows).astype(np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": flags,
    }


def test_a_sound_log_has_no_finding() -> None:
    assert audit(arm()).findings == ()


def test_a_log_without_any_end_is_a_fault_also_without_an_environment() -> None:
    raw = {**without(arm(334), "timeouts"), "terminals": np.zeros(20_040, bool)}
    result = audit(raw)
    assert result.verdict == "faults: missing ends"
    assert any(f.text.startswith("all 20,040 rows are taken for one episode: set timeouts") for f in result.findings)
    assert audit({**raw, "episode_ids": np.zeros(20_040, int)}).ok  # then that is what the log says


def test_terminals_that_all_come_after_as_many_steps_are_a_fault_also_without_an_environment() -> None:
    raw = arm()
    raw["terminals"], raw["timeouts"] = raw["timeouts"], raw["terminals"]
    (finding,) = audit(raw).findings
    assert (finding.check, finding.level) == ("time limits", "fault")
    assert "40 of 40 ends are terminals after exactly as many steps, as at a time limit of 60 steps" in finding.text
    raw["episode_ids"] = np.repeat(np.arange(40), 60)
    raw["terminals"][59], raw["timeouts"][59] = False, True  # the log knows time limits
    assert audit(raw).ok
    raw["terminals"][59], raw["timeouts"][59] = True, False
    few = {name: column[:240] for name, column in raw.items()}  # four episodes say little
    assert audit(few).ok


def test_a_state_that_comes_back_to_the_start_by_ordinary_steps_is_no_fault() -> None:
    rng = np.random.default_rng(0)
    stock = np.full(
        (3000, 3), 10.0, np.float32
    )  # every episode starts with 10 of each thing, and now and then has them
    for t in range(1, 3000):
        if t % 100:
            stock[t] = stock[t - 1] + rng.choice([-1.0, 1.0], 3)
    assert len(unknown_starts(stock, np.arange(0, 3000, 100))) > 0
    raw = {
        "observations": stock,
        "actions": rng.integers(0, 3, 3000),
        "rewards": rng.normal(size=3000).astype(np.float32),
        "terminals": np.zeros(3000, bool),
        "timeouts": np.arange(3000) % 100 == 99,
    }
    assert audit(raw).ok
    raw["timeouts"][[99, 1299]] = False  # what is not ordinary, and two episodes that became longer than the others
    assert "missing ends" in found(audit(raw), "fault")


def test_a_frozen_sensor_is_called_so() -> None:
    raw = arm()
    raw["observations"][130:170, 1] = raw["observations"][130, 1]
    (finding,) = [f for f in audit(raw).findings if f.level == "fault"]
    assert finding.check == "frozen sensors"
    assert "entry 1 of observations stands still from row 131 on while others move" in finding.text
    raw["observations"][145:150, 1] = [0.1, 0.2, 0.1, 0.2, 0.1]  # still for less than 20 rows
    assert audit(raw).ok
    for end in (raw["observations"][:, 1].max() + 1.0, raw["observations"][:, 1].min() - 1.0):
        raw["observations"][130:170, 1] = end  # of its range
        assert audit(raw).ok
    raw["observations"][130:170] = raw["observations"][130]  # nothing moves: a robot at rest, not a sensor
    assert "frozen sensors" not in found(audit(raw), "fault")


@pytest.mark.parametrize(("column", "rows", "row"), [
    ("actions", 1, "after"), ("actions", -1, "before"), ("rewards", 1, "after"), ("rewards", -1, "before"),
])  # fmt: skip
def test_actions_and_rewards_of_other_rows_are_noticed(column: str, rows: int, row: str) -> None:
    raw = arm()
    raw[column] = np.roll(raw[column], rows, 0)
    texts = [f.text for f in audit(raw).findings if f.check == "shifted columns"]
    assert any(f"the {column[:-1]} of the row {row}" in text for text in texts)
    assert all(column[:-1] in text for text in texts)


def test_rewards_that_teach_nothing_are_remarked_on_and_a_run_says_so() -> None:
    unlabelled = {**arm(), "rewards": np.zeros(2400)}
    (finding,) = audit(unlabelled).findings
    assert finding[:2] == ("no rewards", "remark")
    assert faults(load(unlabelled)) == [finding.text]
    assert finding.text.startswith("every reward is 0, so there is nothing to learn from")
    steps = {**arm(), "rewards": -np.ones(2400)}
    assert found(audit(steps), "remark") == {"no rewards"}
    steps["terminals"], steps["timeouts"] = np.zeros(2400, bool), steps["timeouts"].copy()
    steps["terminals"][59], steps["timeouts"][59] = True, False
    assert audit(steps).findings == (), "a price per step, and a task that can be ended"


def test_episodes_that_lack_rows_are_remarked_on() -> None:
    raw = arm()
    kept = np.delete(np.arange(2400), [130, 1000])
    (finding,) = audit({name: column[kept] for name, column in raw.items()}).findings
    assert finding[:2] == ("missing rows", "remark")
    assert "cut off before the others' 60 steps: the episode from rows 120, 959:" in finding.text
    ended = {name: column[:-5].copy() for name, column in raw.items()}
    assert audit(ended).findings == (), "the recording stopped in its last episode"
    ended["terminals"][129], ended["timeouts"][130] = True, False
    assert "missing rows" not in found(audit(ended), "remark")


def test_what_was_checked_is_said() -> None:
    everything = audit(arm())
    assert everything.checked[0] == "finite values"
    assert {"missing ends", "duplicates", "shifted columns", "actions"} <= set(everything.checked)
    assert "shifted" not in everything.unknown
    few = audit({name: column[:60] for name, column in arm().items()})
    assert "shifted columns" not in few.checked
    assert few.unknown.endswith("shifted columns (too few rows, many entries, or discrete actions)")
    assert all(finding.level in ("fault", "remark") for finding in few.findings)


def test_what_could_not_be_checked_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from arb.cli import main

    assert main(["data", "audit", str(as_npz(tmp_path / "x.npz", arm()))]) == 0
    text = capsys.readouterr().out
    assert "\nchecked: finite values, discontinuities, " in text
    assert "\nnot checked: the size of observations, the bounds of actions, a time limit (--env" in text
    assert audit(arm(), "MountainCarContinuous-v0").unknown == ""
