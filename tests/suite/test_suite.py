"""The suite: its recipes, its ladder files, its walks through mazes, and that a name is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arb import DataError
from arb.cli import main
from arb.data import audit, borders, fingerprint, read
from arb.data.load import locate
from arb.data.tasks import SUITE, TASKS, task_of
from arb.envs.antmaze import MAZES
from arb.suite.datasets import RECIPES, made, make, wanted
from arb.suite.ladders import FRACTIONS, Ladder, Rung, Snapshot, nearest, read_ladder, select, write_ladder
from arb.suite.mazes import GOALS, RECORDING, Walk, cell_of, record_walks, relabelled, routes, waypoint
from arb.suite.recorder import record


def network(obs: int, action: int, seed: int = 0) -> Snapshot:
    rng = np.random.default_rng(seed)
    sizes = [(obs, 8), (8, 2 * action)]
    return Snapshot(tuple((rng.normal(size=s).astype(np.float32), np.zeros(s[1], np.float32)) for s in sizes))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path))
    return tmp_path


# ---- the policy and the ladder ---------------------------------------------------------------------------------------


def test_a_policy_by_hand() -> None:
    weight = np.array([[1.0, 0.0], [-2.0, 0.0]], np.float32)
    policy = Snapshot(
        ((weight, np.zeros(2, np.float32)), (np.eye(2, dtype=np.float32), np.array([0.5, -30.0], np.float32)))
    )
    obs = np.array([1.0, 0.25])  # hidden: 1 - 0.5 = 0.5 and 0; mean 1, log std -30, clipped to -20
    assert policy.mode(obs) == pytest.approx(np.tanh([1.0]))
    assert policy.sample(obs, np.random.default_rng(0)) == pytest.approx(np.tanh([1.0]), abs=1e-6)
    assert policy.mode(-obs) == pytest.approx(np.tanh([0.5]))  # the rectifier


def test_sampled_actions_have_the_deviation_that_the_network_says() -> None:
    layers = ((np.zeros((1, 2), np.float32), np.array([0.2, np.log(0.1)], np.float32)),)
    drawn = Snapshot(layers).sample(np.zeros((20_000, 1)), np.random.default_rng(0))
    before = np.arctanh(drawn)
    assert before.mean() == pytest.approx(0.2, abs=0.005)
    assert before.std() == pytest.approx(0.1, abs=0.005)
    wide = Snapshot(((np.zeros((1, 2), np.float32), np.array([0.0, 5.0], np.float32)),))  # log std 5 is taken as 2
    noise = np.random.default_rng(1).standard_normal((9, 1), np.float32)
    expected = np.tanh(np.exp(2.0) * noise)
    np.testing.assert_allclose(wide.sample(np.zeros((9, 1)), np.random.default_rng(1)), expected, rtol=1e-5)


def test_a_ladder_comes_back_from_its_file_in_half_precision(tmp_path: Path) -> None:
    policy = network(3, 2).stored()
    rungs = {"random": Rung("random", 0, -1.0, -1.0), "100": Rung("100", 9, 5.0, 6.0, policy)}
    write_ladder(tmp_path / "x.npz", Ladder("Pendulum-v1", rungs, {"command": "arb", "curve": [[9, 6.0]]}))
    ladder = read_ladder("x", tmp_path)
    assert ladder.env == "Pendulum-v1"
    assert ladder.about == {"command": "arb", "curve": [[9, 6.0]]}
    assert ladder.rungs["random"] == rungs["random"]
    assert ladder.rungs["100"].numbers() == rungs["100"].numbers()
    for ours, theirs in zip(policy.layers, ladder.rungs["100"].policy.layers, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert theirs[0].dtype == np.float32
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file["100.weight.0"].dtype == np.float16
    with pytest.raises(DataError, match="there is no ladder for 'y'; there are x"):
        read_ladder("y", tmp_path)


def test_the_second_evaluation_decides_which_snapshot_is_which_rung() -> None:
    """The first is off by 20 for one snapshot, which therefore looks like the best and is not."""
    policies = {step: network(2, 1, step) for step in range(0, 110, 10)}
    worth = {id(policy): float(step) for step, policy in policies.items()}

    def evaluate(act: Any, episodes: int) -> float:
        true = worth[id(act.__self__)]
        return true + 20.0 * (true == 90 and episodes == 10) + (act.__name__ == "mode")

    ladder = select("x", policies, evaluate, 0.0, {})
    assert {name: rung.steps for name, rung in ladder.rungs.items()} == {
        "random": 0, "10": 10, "25": 20, "33": 30, "50": 50, "75": 70, "100": 100,
    }  # fmt: skip
    assert ladder.rungs["100"].mode == 101


def test_nearest_counts_from_the_random_return() -> None:
    assert nearest({1: 50.0, 2: 75.0, 3: 100.0}, 50.0, 0.5)[0] == 2
    assert nearest({1: 50.0, 2: 75.0, 3: 100.0}, 0.0, 0.5)[0] == 1


@pytest.mark.parametrize("robot", ["hopper", "walker2d", "halfcheetah"])
def test_shipped_ladders_rise_and_say_what_made_them(robot: str) -> None:
    ladder = read_ladder(robot)
    returns = [rung.sampled for rung in ladder.rungs.values()]
    assert list(ladder.rungs) == ["random", *FRACTIONS]
    assert returns == sorted(returns)
    assert ladder.about["command"].startswith(f"arb data collect {ladder.env} expert")
    assert {"commit", "seed", "steps", "curve", "sac"} <= set(ladder.about)
    for name, fraction in FRACTIONS.items():  # each within an eighth of the whole way from where it should be
        reached = (ladder.rungs[name].sampled - returns[0]) / (returns[-1] - returns[0])
        assert reached == pytest.approx(fraction, abs=0.125)


def test_the_ant_s_ladder_has_the_policy_that_walks() -> None:
    ladder = read_ladder("ant")
    assert ladder.env == "arb/ant-goal-v0"
    assert ladder.rungs["100"].sampled > 3 * ladder.rungs["random"].sampled
    assert ladder.rungs["100"].policy.mode(np.zeros(29)).shape == (8,)


@pytest.mark.slow
def test_the_ant_walks_through_the_umaze() -> None:
    policy = read_ladder("ant").rungs["100"].policy
    columns, _ = record_walks(policy, "umaze", False, 700, 1402, (0,))
    there = np.linalg.norm(columns["infos/qpos"][:, :2] - columns["infos/goal"], axis=1) <= 0.5
    assert there[:701].any()
    assert there[701:].any()


# ---- recording -------------------------------------------------------------------------------------------------------


class Counting:
    """An environment that counts, and ends after as many steps as its seed says."""

    def reset(self, seed: int | None = None):
        self.count, self.length = 0, 2 + seed % 5
        return np.array([0.0]), {}

    def step(self, action):
        self.count += 1
        return np.array([float(self.count)]), float(action[0]), False, self.count == self.length, {}


def test_more_rows_begin_with_the_same_rows_and_episodes_are_whole() -> None:
    def act(obs, rng):
        return rng.uniform(-1, 1, 1).astype(np.float32)

    few, many = (record(Counting(), act, rows, (1, 2)) for rows in (20, 50))
    rows = len(few["rewards"])
    assert 20 <= rows < 26
    assert few["timeouts"][-1]
    for name in few:
        np.testing.assert_array_equal(few[name], many[name][:rows])
    assert len(np.unique(many["actions"])) == len(many["actions"])  # no episode repeats another
    assert not np.array_equal(few["actions"], record(Counting(), act, 20, (1, 3))["actions"][:rows])


# ---- names and files -------------------------------------------------------------------------------------------------


def test_the_table_of_the_suite() -> None:
    assert len(SUITE) == 18
    assert not set(SUITE) & set(TASKS)
    for name, task in SUITE.items():
        assert wanted(name).task is task
        assert task_of(name) is task_of(f"{name}:5000") is task
    assert SUITE["suite:antmaze-umaze-play"].horizon == 700
    assert SUITE["suite:hopper-mixed"].reference == TASKS["hopper-medium-v2"].reference
    assert {rung for parts in RECIPES.values() for rung in parts} <= {"random", *FRACTIONS}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("suite:hopper-mixd", "the suite has no set 'hopper-mixd' (did you mean 'hopper-mixed'?)"),
        ("suite:hopper-mixed:many", "the second colon must be followed by a number of rows"),
        ("suite:hopper-mixed:10", "10 rows asked for; a set has 1,000 to 20,000,000"),
    ],
)
def test_a_wrong_name_is_one_line(cache: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", name]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(cache.iterdir())


def test_a_name_is_enough_and_the_same_set_has_the_same_hash(cache: Path, tmp_path: Path) -> None:
    data = read("suite:hopper-mixed:3000")
    (path,) = (cache / "suite").glob("*.hdf5")
    assert locate("suite:hopper-mixed:3000") == ("hdf5", str(path))
    written = path.stat().st_mtime_ns
    assert made("suite:hopper-mixed:3000").stat().st_mtime_ns == written  # not made again
    make(wanted("suite:hopper-mixed", 3000), tmp_path / "again.hdf5")
    assert (tmp_path / "again.hdf5").read_bytes() == path.read_bytes()
    make(wanted("suite:hopper-mixed", 3000, seed=1), tmp_path / "other.hdf5")
    assert fingerprint(read(tmp_path / "other.hdf5").columns) != fingerprint(data.columns)
    assert list((cache / "suite").iterdir()) == [path]  # no lock, no partial file


def test_a_mixed_set_is_what_its_recipe_says(cache: Path) -> None:
    data = read("suite:hopper-mixed:4000")
    assert audit(made("suite:hopper-mixed:4000")).sound
    assert data.attributes["env"] == "arb/hopper-v2"
    assert data.attributes["seed"] == 0
    assert json.loads(data.attributes["versions"])["mujoco"]
    story = data.attributes["made_by"].split("; ")
    shares = [int(part.split()[0]) for part in story]
    assert sum(shares) == len(data)
    for share, part in zip(shares, RECIPES["mixed"].values(), strict=True):
        assert 500 * part <= share < 500 * part + 1000
    lengths = np.diff(np.concatenate(borders(data.columns)).reshape(2, -1), axis=0)[0]
    assert lengths[:10].mean() < 50 < lengths[-1]  # random falls; the best policy stays up


def test_rows_are_shared_out_as_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake(env: Any, actor: Any, rows: int, seed: Any, tell: Any) -> Any:
        asked.append(rows)
        return {"rewards": np.zeros(1)}

    monkeypatch.setattr("arb.suite.datasets.record", fake)  # the recording itself is tested above
    make(wanted("suite:hopper-mixed", 8000), tmp_path / "x.hdf5")
    assert asked == [1000, 1000, 1000, 1000, 2000, 2000]


def test_the_command_line_makes_sets(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.hdf5"
    assert main(["data", "make", "suite:hopper-random", "--rows", "1000", "--seed", "3", "--out", str(out)]) == 0
    assert len(read(out)) >= 1000
    assert main(["data", "make", "suite:hopper-random", "--rows", "1000"]) == 0
    assert "arb run --task suite:hopper-random:1000" in capsys.readouterr().out
    assert main(["data", "make", "suite:hopper-random", "--seed", "1"]) == 2
    assert "say with --out" in capsys.readouterr().err
    assert main(["data", "info", "suite:hopper-random:1000"]) == 0
    text = capsys.readouterr().out
    for word in ("seed", "versions", "fingerprint", "ladder", "command", "score"):
        assert word in text


# ---- walks through mazes ---------------------------------------------------------------------------------------------


def test_recording_maps_have_the_walls_of_the_mazes_and_the_goals_of_the_specification() -> None:
    centres = {name: [tuple(maze.centre(*cell)) for cell in maze.find("G")] for name, maze in RECORDING.items()}
    assert centres == {
        "umaze": [(0, 8)],
        "medium": [(20, 4), (0, 16), (16, 20)],
        "large": [(20, 0), (16, 8), (36, 8), (4, 16), (12, 24), (20, 24), (32, 24)],
    }
    for name, maze in RECORDING.items():
        assert maze.find("#") == MAZES[name].find("#")
        assert len(maze.find(".") + maze.find("R")) == {"umaze": 6, "medium": 23, "large": 39}[name]


def test_cells_are_rounded_down() -> None:
    assert cell_of(np.array([0.0, 0.0])) == (1, 1)
    assert cell_of(np.array([-1.9, 3.99])) == (1, 1)
    assert cell_of(np.array([4.0, 8.1])) == (3, 2)


def test_the_way_through_the_umaze_by_hand() -> None:
    way = routes(RECORDING["umaze"], (3, 1))
    cell, walked = (1, 1), []
    while cell != (3, 1):
        cell = way[cell]
        walked.append(cell)
    assert walked == [(1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1)]
    assert way[(2, 1)] == (3, 1)  # a wall cell beside the goal: the ant may be counted there
    assert way[(2, 2)] == (3, 2)


@pytest.mark.parametrize("name", list(GOALS))
def test_every_free_cell_has_a_way_over_free_neighbours(name: str) -> None:
    maze = RECORDING[name]
    for goal in GOALS[name]:
        way = routes(maze, goal)
        for start in maze.find(".") + maze.find("R"):
            cell, steps = start, 0
            while cell != goal:
                onward = way[cell]
                assert abs(onward[0] - cell[0]) + abs(onward[1] - cell[1]) == 1
                assert maze.rows[onward[0]][onward[1]] != "#"
                cell, steps = onward, steps + 1
                assert steps < 60


def test_waypoints_are_drawn_in_a_cell_and_the_goal_is_exact() -> None:
    maze, goal, rng = RECORDING["umaze"], np.array([0.3, 8.9]), np.random.default_rng(0)
    drawn = np.array([waypoint(maze, np.array([0.0, 0.0]), goal, rng) for _ in range(200)])
    offset = drawn - maze.centre(1, 2)
    assert (offset >= 0).all()
    assert (offset < 1).all()
    assert offset.mean() == pytest.approx(0.5, abs=0.1)
    for position in ([0.5, 8.0], [4.5, 8.5]):  # in the goal's cell, and in its neighbour
        np.testing.assert_array_equal(waypoint(maze, np.array(position), goal, rng), goal)


def test_starts_anywhere_leave_out_the_goal_cells() -> None:
    walk = Walk("medium", anywhere=True)
    starts = np.array([walk.reset(seed=seed)[0][:2] for seed in range(300)])
    cells = {cell_of(start) for start in starts}
    assert cells == {*walk.maze.find("."), *walk.maze.find("R")}
    inside = starts % 4
    assert inside.max() < 1.0
    fixed = Walk("umaze", anywhere=False)
    assert np.abs([fixed.reset(seed=seed)[0][:2] for seed in range(20)]).max() <= 0.1


def test_relabelling_by_hand() -> None:
    after = np.zeros((4, 15), np.float32)
    after[:, 0] = [3.0, 3.5, 3.51, 4.2]
    columns = relabelled({"infos/qpos": after}, np.array([4.0, 0.0]))
    assert columns["rewards"].tolist() == [0, 1, 1, 1]
    assert columns["terminals"].tolist() == [False, True, True, True]


def test_actions_of_a_walk_have_noise_and_keep_their_bounds() -> None:
    class Still:
        def sample(self, obs: Any, rng: np.random.Generator) -> Any:
            assert obs.shape == (29,)
            return np.zeros(8, np.float32)

    columns, _ = record_walks(Still(), "umaze", False, 50, 200, (3,))
    assert columns["actions"].std() == pytest.approx(0.2, abs=0.02)
    assert np.abs(columns["actions"]).max() <= 1.0


def test_walks_are_stored_as_d4rl_stores_them_and_read_with_true_borders(tmp_path: Path) -> None:
    from arb.data.hdf5 import write_hdf5

    columns, goal = record_walks(network(29, 8), "umaze", True, 60, 300, (1, 2))
    assert {name: column.shape[1:] for name, column in columns.items()} == {
        "observations": (29,), "actions": (8,), "rewards": (), "terminals": (), "timeouts": (),
        "infos/goal": (2,), "infos/qpos": (15,), "infos/qvel": (14,),
    }  # fmt: skip
    assert np.flatnonzero(columns["timeouts"]).tolist() == [60, 121, 182, 243, 304]  # 61 rows each
    np.testing.assert_array_equal(columns["infos/qpos"][:60, 0], columns["observations"][1:61, 0])
    assert (np.maximum(goal - MAZES["umaze"].centre(3, 1), 0) < 1.5).all()
    there = columns["infos/qpos"][100, :2].astype(np.float64)  # pretend that the ant passes the goal
    write_hdf5(tmp_path / "walk.hdf5", relabelled(columns, there), {"env": "arb/antmaze-umaze-v2"})
    data = read(tmp_path / "walk.hdf5")
    first, stop = borders(data.columns)
    assert (stop - first).tolist() == [61] * 5
    assert data.columns["rewards"][100] == 1
    assert data.columns["terminals"].sum() >= 1
    assert audit(tmp_path / "walk.hdf5").sound
