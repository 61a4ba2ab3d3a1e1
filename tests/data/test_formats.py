"""Data in the shapes people have: other names, tables, a group per episode, OGBench, Minari, dicts of observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest

import arb
from arb.data.formats import OTHER_NAMES, parse_columns, suggested, write_dataset
from arb.envs import flat_vector, flattened
from arb.errors import DataError

from .recordings import as_hdf5, as_npz, lengths_of, load, sound, walk, without

ROBOT = {
    "observations": "state",
    "actions": "command",
    "rewards": "rew",
    "terminals": "done",
    "timeouts": "truncated",
    "next_observations": "next_obs",
}


def renamed(raw: dict[str, Any]) -> dict[str, Any]:
    return {ROBOT[name]: column for name, column in raw.items()}


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [as_hdf5, as_npz])
def test_a_mapping_reads_what_d4rl_s_names_would(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / ("x.hdf5" if write is as_hdf5 else "x.npz"), renamed(sound()))
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in ROBOT.items())
    assert load(path, columns).fingerprint == load(sound()).fingerprint
    assert load(f"{path}?{columns}").fingerprint == load(sound()).fingerprint
    with pytest.raises(DataError, match="try --columns ") as caught:
        load(path)
    hint = str(caught.value).split("--columns ")[1].split(";")[0]
    assert load(path, hint).fingerprint == load(sound()).fingerprint  # the hint is the mapping


def test_columns_are_joined_and_constants_made(tmp_path: Path) -> None:
    raw = without(walk([5, 7]), "next_observations", "terminals")
    obs = raw.pop("observations")
    path = as_npz(tmp_path / "x.npz", {**raw, "position": obs[:, 0], "velocity": obs[:, 1:]})
    columns = load(path, "observations=position+velocity,terminals=0")
    np.testing.assert_array_equal(columns.observations, obs)
    assert not columns.terminals.any()
    assert lengths_of(columns) == [5, 7]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("observation=state", "'observation' is not one of observations.*did you mean 'observations'"),
        ("observations", "write observations=NAME"),
        ("observations=", "write observations=NAME"),
        ("observations=stat", r"there is no 'stat' \(did you mean 'state'\?\); the file has"),
    ],
)
def test_a_mapping_that_is_wrong_is_one_line(tmp_path: Path, columns: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(as_npz(tmp_path / "x.npz", renamed(sound())), columns)


def test_no_other_name_stands_for_two_columns() -> None:
    names = [name for others in OTHER_NAMES.values() for name in others]
    assert len(names) == len(set(names))
    assert suggested(["act", "x"], ["observations", "actions"]) == "actions=act"
    assert parse_columns("") == {}


# ---- formats ---------------------------------------------------------------------------------------------------------


def test_a_table_of_comma_separated_values(tmp_path: Path) -> None:
    raw = sound()
    lines = ["obs_0,obs_1,obs_2,act.0,act.1,reward,terminated,truncated"]
    rows = zip(raw["observations"], raw["actions"], raw["rewards"], raw["terminals"], raw["timeouts"], strict=True)
    lines += [",".join(str(value) for part in row for value in np.atleast_1d(part)) for row in rows]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    names = "observations=obs,actions=act,rewards=reward,terminals=terminated,timeouts=truncated"
    columns = load(path, names)
    assert columns.fingerprint == load(without(raw, "next_observations")).fingerprint
    one_by_one = names.replace("=obs", "=obs_0+obs_1+obs_2").replace("=act", "=act.0+act.1")
    assert load(path, one_by_one).fingerprint == columns.fingerprint
    assert (load(path, names.replace("=obs", "=obs_1")).observations == raw["observations"][:, 1]).all()
    with pytest.raises(DataError, match="has no 'observations'; try --columns observations=obs,actions=act"):
        load(path)


def test_discrete_actions_of_a_table_stay_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("observations,actions,rewards,terminals,episode_ids\n0.5,1,0,0,0\n0.6,0,1,1,0\n0.1,1,0,0,1\n")
    columns = load(path)
    assert columns.actions.dtype.kind == "i"
    assert columns.observations.shape == (3,)
    assert lengths_of(columns) == [2, 1]


@pytest.mark.parametrize("name", ["observations", "obs"])
def test_numbered_columns_are_ordered_by_their_numbers(tmp_path: Path, name: str) -> None:
    path, rest = tmp_path / "log.csv", "actions,rewards,terminals,cost"
    columns = "" if name == "observations" else "observations=obs"
    path.write_text(f"{name}_1,{rest},{name}_0,{name}_10,{','.join(f'{name}_{i}' for i in range(2, 10))}\n")
    with path.open("a") as file:
        file.write("1,0.5,0,0,7,0,10,2,3,4,5,6,7,8,9\n" * 3)
    dataset = load(path, columns)
    assert dataset.observations.tolist() == [list(range(11))] * 3
    assert dataset.extras.keys() == {"cost"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("observations_0,observations_2", "observations has columns numbered 0, 2: each number from 0"),
        ("observations_2,observations_3", "numbered 2, 3"),
        ("observations_1,observations.1", "numbered 1, 1"),
        ("observations_0,observations_0", "names 'observations_0' twice"),
    ],
)
def test_numbers_that_are_missing_or_repeated_are_refused(tmp_path: Path, names: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{names},actions,rewards,terminals\n1,2,0.5,0,0\n")
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_numbers_in_names_of_other_columns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("observations,actions,rewards,terminals,co2,temp20,temp40\n0.1,2,0.5,0,1,2,3\n")
    assert load(path).extras.keys() == {"co2", "temp20", "temp40"}


@pytest.mark.parametrize(
    "rows", [[[1, 2], [3], [4, 5, 6], [7, 8]], [[1], [2, 3], [4, 5], [6, 7]], [[1, 2], None, [3, 4], [5, 6]]]
)
@pytest.mark.parametrize("nested", [False, True])
def test_parquet_lists_of_unequal_length_are_refused(tmp_path: Path, rows: list[Any], nested: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    values = [None if row is None else [[float(x)] for x in row] for row in rows] if nested else rows
    table = {"observations": pa.array(values), "actions": [[0.0]] * 4, "rewards": [0.0] * 4, "terminals": [False] * 4}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: observations has lists of unequal length \(") as caught:
        load(tmp_path / "x.parquet")
    assert "\n" not in str(caught.value)


def test_parquet_lists_of_equal_length_keep_their_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    obs = np.arange(24.0).reshape(4, 2, 3)
    table = {"observations": pa.array(obs.tolist()), "actions": [[0.0]] * 4, "rewards": [0.0] * 4}
    table |= {"terminals": [False] * 4, "timestamp": [0.1, 0.2, 0.3, 0.4], "task": ["pick"] * 4}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    dataset = load(tmp_path / "x.parquet")
    np.testing.assert_array_equal(dataset.observations, obs)
    assert dataset.extras.keys() == {"timestamp"}
    pyarrow.parquet.write_table(pa.table({**table, "timeouts": ["no"] * 4}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="timeouts holds string, not numbers"):
        load(tmp_path / "x.parquet")


def lerobot(folder: Path, *leave_out: str) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    raw = sound()
    ids = np.repeat(np.arange(7), [12, 9, 12, 7, 12, 8, 12])
    columns = {
        "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(raw["observations"].reshape(-1)), 3),
        "action": pa.FixedSizeListArray.from_arrays(pa.array(raw["actions"].reshape(-1)), 2),
        "next.reward": pa.array(raw["rewards"]),
        "next.success": pa.array(raw["terminals"]),
        "episode_index": pa.array(ids),
        "task": pa.array(["pick"] * 72),
    }
    table = pa.table({name: column for name, column in columns.items() if name not in leave_out})
    for part in range(2):
        place = folder / "data" / "chunk-000" / f"file-{part:03d}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table.slice(40 * part, 40), place)
    (folder / "meta").mkdir()
    (folder / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v3.0", "robot_type": "arm", "fps": 30}))
    return folder


def test_a_lerobot_folder(tmp_path: Path) -> None:
    data = load(lerobot(tmp_path))
    for name in ("observations", "actions", "rewards", "terminals"):
        np.testing.assert_array_equal(getattr(data, name), sound()[name])
    assert lengths_of(data) == [12, 9, 12, 7, 12, 8, 12]
    mapped = load(tmp_path, "observations=observation.state")
    assert mapped.fingerprint == data.fingerprint


def test_a_lerobot_folder_without_rewards_says_what_to_add(tmp_path: Path) -> None:
    folder = lerobot(tmp_path, "next.reward", "next.success")
    with pytest.raises(DataError, match=r"has no 'rewards'; rewards: record one number per step.*terminals=0"):
        load(folder)
    columns = load(folder, "rewards=0,terminals=0")
    assert lengths_of(columns) == [12, 9, 12, 7, 12, 8, 12]
    assert not columns.rewards.any()


def test_robomimic_s_demonstrations(tmp_path: Path) -> None:
    raw, path = sound(), tmp_path / "demo.hdf5"
    ends = np.cumsum([12, 9, 12, 7, 12, 8, 12])
    with h5py.File(path, "w") as file:
        for number, (start, stop) in enumerate(zip(ends - [12, 9, 12, 7, 12, 8, 12], ends, strict=True)):
            for name, column in (("actions", "actions"), ("rewards", "rewards"), ("dones", "terminals")):
                file[f"data/demo_{number}/{name}"] = raw[column][start:stop].astype(np.float64)
            for part, entries in (("eef", slice(0, 2)), ("joints", slice(2, 3))):
                file[f"data/demo_{number}/obs/{part}"] = raw["observations"][start:stop, entries]
                file[f"data/demo_{number}/next_obs/{part}"] = raw["next_observations"][start:stop, entries]
        file["mask/train"] = np.array([b"demo_0"])
    columns = load(path)
    assert set(columns.observations) == {"eef", "joints"}
    np.testing.assert_array_equal(flat_vector(columns.observations, (72,)), raw["observations"])
    np.testing.assert_array_equal(columns.terminals, raw["terminals"])
    assert lengths_of(columns) == [12, 9, 12, 7, 12, 8, 12]


def test_more_than_ten_episodes_stay_in_their_order(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for number in range(12):
            file[f"episode_{number}/observations"] = np.full((3, 1), number, np.float32)  # Minari: one more
            for name in ("actions", "rewards", "terminations", "truncations"):
                file[f"episode_{number}/{name}"] = np.zeros(2, np.float32)
    columns = load(tmp_path / "x.hdf5")
    assert columns.observations[:, 0].tolist() == [n for n in range(12) for _ in range(2)]
    assert len(columns.next_observations) == 24


def test_ogbench_ends_a_trajectory_by_terminals_and_the_bootstrap_by_masks(tmp_path: Path) -> None:
    raw = without(walk([6, 5]), "next_observations", "timeouts")
    raw["terminals"] = np.isin(np.arange(11), [5, 10]).astype(np.float32)
    masks = np.ones(11, np.float32)
    masks[[2, 3, 10]] = 0.0  # passes the goal on its way, and is at it in the last step
    columns = load(as_npz(tmp_path / "cube.npz", {**raw, "masks": masks}))
    assert lengths_of(columns) == [6, 5]
    assert np.flatnonzero(columns.terminals).tolist() == [2, 3, 10]
    assert np.flatnonzero(columns.timeouts).tolist() == [5]


@pytest.mark.filterwarnings("ignore")  # of Minari, about metadata that a test does not have
@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_minari_s_storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str) -> None:
    minari = pytest.importorskip("minari")
    if storage == "arrow":
        pytest.importorskip("pyarrow")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    from minari.data_collector import EpisodeBuffer

    episodes = [
        EpisodeBuffer(
            id=number,
            observations=list(np.full((4, 3), number, np.float32)),
            actions=list(np.zeros((3, 1), np.float32)),
            rewards=[0.0, 0.0, 1.0],
            terminations=[False, False, number == 0],
            truncations=[False, False, number == 1],
        )
        for number in range(2)
    ]
    box = gymnasium.spaces.Box
    minari.create_dataset_from_buffers(
        "mine/pendulum-v0",
        episodes,
        observation_space=box(-np.inf, np.inf, (3,), np.float32),
        action_space=box(-1, 1, (1,), np.float32),
        data_format=storage,
    )
    columns = load("minari:mine/pendulum-v0")
    assert lengths_of(columns) == [3, 3]
    assert columns.terminals.tolist() == [False, False, True, False, False, False]
    write_dataset(tmp_path / "x.hdf5", columns)
    assert load(tmp_path / "x.hdf5").fingerprint == columns.fingerprint


# ---- observations with named parts -----------------------------------------------------------------------------------


class Reach(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Dict(
        {
            "observation": gymnasium.spaces.Box(-1, 1, (2, 2)),
            "achieved_goal": gymnasium.spaces.Box(-2, 2, (1,)),
            "desired_goal": gymnasium.spaces.Box(-3, 3, (1,)),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


def test_file_and_environment_are_flattened_by_one_rule() -> None:
    env, plain = flattened(Reach()), Reach()
    obs, _ = env.reset(seed=3)
    parts, _ = plain.reset(seed=3)
    rows = flat_vector({name: part[None] for name, part in parts.items()}, (1,))
    np.testing.assert_array_equal(obs, rows[0])
    assert obs.tolist() == [*parts["achieved_goal"], *parts["desired_goal"], *parts["observation"].reshape(-1)]
    assert env.observation_space.high.tolist() == [2, 3, 1, 1, 1, 1]
    assert env.observation_space.contains(obs)
    np.testing.assert_array_equal(obs, gymnasium.spaces.flatten(Reach.observation_space, parts))  # Gymnasium's rule too
    pendulum = gymnasium.make("Pendulum-v1")
    assert flattened(pendulum) is pendulum


# ---- logs as people have them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables_of_other_dialects_with_text_and_empty_cells(tmp_path: Path, mark: str) -> None:
    raw = sound()
    lines = [mark.join(["﻿time", "state_0", "state_1", "state_2", "u", "v", "r", "end", "limit"])]
    for i in range(72):
        numbers = [*raw["observations"][i], *raw["actions"][i], raw["rewards"][i]]
        cells = [f"{x:.9g}" if mark == "," else f"{x:.9g}".replace(".", ",") for x in numbers]
        lines.append(
            mark.join([f"2026-01-01 10:00:{i}", *cells, str(bool(raw["terminals"][i])), str(raw["timeouts"][i])])
        )
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    names = "observations=state,actions=u+v,rewards=r,terminals=end,timeouts=limit"
    expected = load(without(raw, "next_observations"))
    assert load(tmp_path / "log.csv", names).fingerprint == expected.fingerprint
    with pytest.raises(DataError, match=r"time holds text \('2026-01-01 10:00:0'\), not numbers"):
        load(tmp_path / "log.csv", names.replace("=r,", "=time,"))
    (tmp_path / "log.csv").write_text("\n".join(lines).replace("True", "", 1), encoding="utf-8")
    with pytest.raises(DataError, match=r"'timeouts'\] has a value that is not finite in row 11"):
        load(tmp_path / "log.csv", names)


def test_a_column_whose_text_comes_late_is_passed_over_too(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("state,act,r,terminals,note\n1,2,3,0,\n2,2.5,3,1,bumped\n")
    names = "observations=state,actions=act,rewards=r"
    assert load(tmp_path / "log.csv", names).actions.tolist() == [2.0, 2.5]
    with pytest.raises(DataError, match=r"note holds text \('bumped'\), not numbers"):
        load(tmp_path / "log.csv", names.replace("=r", "=note"))


def test_the_hint_for_done_says_that_it_may_mark_time_limits(tmp_path: Path) -> None:
    raw = without(sound(), "timeouts", "next_observations")
    raw["done"] = raw.pop("terminals")
    with pytest.raises(DataError, match=r"'terminals'; try --columns terminals=done; if done also marks time limits: "):
        load(as_npz(tmp_path / "x.npz", raw))


def test_the_hint_for_lerobot_does_not_take_the_end_of_an_episode_for_the_end_of_the_task(tmp_path: Path) -> None:
    raw = sound()
    frames = {"observation.state": raw["observations"], "action": raw["actions"], "next.reward": raw["rewards"]}
    ends = raw["terminals"] | raw["timeouts"]
    path = as_npz(tmp_path / "x.npz", {**frames, "next.done": ends, "episode_index": np.cumsum(ends) - ends})
    with pytest.raises(DataError, match="mark the steps that ended the task") as caught:
        load(path)
    assert "terminals=next.done" not in str(caught.value)


def test_pickled_logs_get_the_lines_that_convert_them(tmp_path: Path) -> None:
    raw = sound()
    parts = np.split(np.arange(72), np.cumsum(raw["timeouts"] | raw["terminals"]).searchsorted(range(1, 7)) + 1)
    ragged = {}
    for name, column in raw.items():
        ragged[name] = np.empty(len(parts), object)
        ragged[name][:] = [column[rows] for rows in parts]
    path = as_npz(tmp_path / "log.npz", ragged)
    with pytest.raises(DataError, match="holds pickled objects, which are never loaded here") as caught:
        load(path)
    code = (
        str(caught.value)
        .split("trust: ")[1]
        .replace("FILE", repr(str(path)))
        .replace("new.npz", str(tmp_path / "new.npz"))
    )
    exec(code, {"np": np})  # the advice itself
    assert load(tmp_path / "new.npz").fingerprint == load(raw).fingerprint
    with pytest.raises(DataError, match="a pickle can run code"):
        arb.load_dataset(tmp_path / "buffer.pkl")


@pytest.mark.parametrize("envs", [1, 3])
def test_the_arrays_of_a_stable_baselines3_buffer(tmp_path: Path, envs: int) -> None:
    raw = [walk([5, 7, 4], seed) for seed in range(envs)]
    for columns in raw:
        columns["dones"] = columns["timeouts"].copy()
        columns["timeouts"][[4, 15]] = False  # the task ended there
        del columns["terminals"]
    stacked = {name: np.stack([columns[name] for columns in raw], 1) for name in raw[0]}
    dataset = load(as_npz(tmp_path / "x.npz", {**stacked, "dones": stacked["dones"].astype(np.float32)}))
    assert list(dataset.lengths) == [5, 7, 4] * envs
    assert list(np.flatnonzero(dataset.terminals)) == [16 * env + row for env in range(envs) for row in (4, 15)]
    np.testing.assert_array_equal(dataset.observations, np.concatenate([columns["observations"] for columns in raw]))


@pytest.mark.filterwarnings("ignore:the buffer is full")
def test_a_saved_buffer_is_a_dataset(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    buffer = arb.ReplayBuffer(capacity=60)
    buffer.load_dataset(walk([5, 7]))
    state = rng.normal(size=(3, 3)).astype(np.float32)
    for t in range(25):  # three environments side by side; the ring comes round
        after = rng.normal(size=(3, 3)).astype(np.float32)
        ends = (t + np.arange(3)) % 6 == 5
        buffer.add_batch(state, rng.uniform(-1, 1, (3, 2)), rng.normal(size=3), after, ends, np.zeros(3, bool))
        state = np.where(ends[:, None], rng.normal(size=(3, 3)), after).astype(np.float32)
    buffer.save(tmp_path / "buffer.npz")
    saved = arb.load_dataset(tmp_path / "buffer.npz")
    assert saved.fingerprint == buffer.to_dataset().fingerprint
    assert saved.extras["online"].all()
    assert len(saved) == 60
