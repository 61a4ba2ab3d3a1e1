"""The suite: its recipes, its ladder files, its walks through mazes, and that a name is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arb import DataError
from arb.cli import main
from arb.data import audit
from arb.data.tasks import SUITE, TASKS, task_of
from arb.envs.antmaze import MAZES
from arb.replay.dataset import Dataset
from arb.suite.datasets import Wanted, load_dataset, made, make, published, recorded_with, verdict, wanted
from arb.suite.ladders import ACTION_GRID, FRACTIONS, LADDERS, Ladder, Level, Policy, on_grid, read_ladder, write_ladder
from arb.suite.mazes import LINGER, NOISE, Walk, cell_of, record_walks, relabelled, routes, waypoint
from arb.suite.recorder import RECIPES, record, record_recipe

ROBOTS = ["hopper", "walker2d", "halfcheetah"]


def network(obs: int, action: int, seed: int = 0) -> Policy:
    rng = np.random.default_rng(seed)
    return Policy([(rng.normal(size=size), np.zeros(size[1])) for size in [(obs, 8), (8, 2 * action)]])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARB_CACHE", str(tmp_path))
    return tmp_path


# ---- the policy and the ladder ---------------------------------------------------------------------------------------


def test_a_policy_by_hand() -> None:
    policy = Policy([(np.array([[1.0, 0.0], [-2.0, 0.0]]), np.zeros(2)), (np.eye(2), np.array([0.5, -15.0]))])
    obs = np.array([1.0, 0.25])  # hidden: 1 - 0.5 = 0.5 and 0; mean 1, log std -15
    assert policy.mode(obs) == pytest.approx(np.tanh([1.0]), abs=1e-6)
    assert policy.sample(obs, np.random.default_rng(0)) == pytest.approx(np.tanh([1.0]), abs=1e-5)
    assert policy.mode(-obs) == pytest.approx(np.tanh([0.5]), abs=1e-6)  # the rectifier


def test_sampled_actions_have_the_deviation_that_the_network_says() -> None:
    drawn = Policy([(np.zeros((1, 2)), np.array([0.2, np.log(0.1)]))]).sample(
        np.zeros((20_000, 1)), np.random.default_rng(0)
    )
    before = np.arctanh(drawn)
    assert before.mean() == pytest.approx(0.2, abs=0.005)
    assert before.std() == pytest.approx(0.1, abs=0.005)
    wide = Policy([(np.zeros((1, 2)), np.array([0.0, 5.0]))])  # a log std of 5 is taken as 2
    expected = np.tanh(np.exp(2.0) * np.random.default_rng(1).standard_normal((9, 1)))
    np.testing.assert_allclose(wide.sample(np.zeros((9, 1)), np.random.default_rng(1)), expected, atol=1e-6)


def test_a_policy_computes_exactly_so_that_no_processor_disagrees() -> None:
    """Integers give the same sums as float64 matrix products: in them no digit was ever rounded."""
    policy = read_ladder("halfcheetah").levels["100"].policy
    obs = 30.0 * np.random.default_rng(0).normal(size=(50, 17))
    value = on_grid(np.clip(obs, -512, 512), 2.0**-16)
    for i, (weight, bias) in enumerate(policy.layers):
        value = on_grid(np.clip(value if i == 0 else np.maximum(value, 0.0), -512, 512), 2.0**-16)
        exact = [[int(x * 2**16) for x in row] for row in value]
        whole = [[int(x * 2**14) for x in row] for row in weight.T]
        sums = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in whole] for row in exact]
        value = np.array([[float(x) * 2.0**-30 for x in row] for row in sums]) + bias
    mean, log_std = policy.parameters(obs)
    np.testing.assert_array_equal(mean, value[:, :6])
    np.testing.assert_array_equal(log_std, np.clip(value[:, 6:], -20, 2))
    action = policy.sample(obs, np.random.default_rng(1))
    np.testing.assert_array_equal(action, on_grid(action, ACTION_GRID))
    with pytest.raises(DataError, match="weights below 16"):
        Policy([(np.full((1, 2), 16.0), np.zeros(2))])


@pytest.mark.slow
def test_emulated_processors_record_the_same_rows() -> None:
    """Other kernels of OpenBLAS and of NumPy: without them the program is that of another processor."""
    code = (
        "from pathlib import Path; import tempfile; from arb.suite.datasets import make, wanted\n"
        "out = Path(tempfile.mkdtemp()) / 'x.hdf5'\n"
        "for name in ('halfcheetah-medium', 'antmaze-umaze-diverse'):\n"
        "    print(make(wanted(f'suite:{name}', 1000), out).fingerprint)"
    )
    others = [{}, {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"}]
    runs = [
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], env={**os.environ, **other}, capture_output=True)
        for other in others
    ]
    assert all(run.returncode == 0 for run in runs), runs[-1].stderr
    assert runs[0].stdout == runs[1].stdout


def test_a_ladder_comes_back_from_its_file_in_half_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    policy = Policy([(rng.normal(size=(3, 4)).astype(np.float16), np.zeros(4))])
    levels = {"random": Level("random", 0, -1.0, -1.0), "100": Level("100", 9, 5.0, 6.0, policy)}
    write_ladder(tmp_path / "x.npz", Ladder("Pendulum-v1", levels, {"command": "arb", "curve": [[9, 6.0]]}))
    ladder = read_ladder("x", tmp_path)
    assert ladder.env == "Pendulum-v1"
    assert ladder.about == {"command": "arb", "curve": [[9, 6.0]]}
    assert ladder.levels["random"] == levels["random"]
    assert (ladder.levels["100"].steps, ladder.levels["100"].sampled, ladder.levels["100"].mode) == (9, 5.0, 6.0)
    np.testing.assert_array_equal(ladder.levels["100"].policy.layers[0][0], policy.layers[0][0])
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file["100.weight.0"].dtype == np.float16
    with pytest.raises(DataError, match="there is no ladder 'y'; there are x"):
        read_ladder("y", tmp_path)


@pytest.mark.parametrize("name", [path.stem for path in sorted(LADDERS.glob("*.npz")) if path.stem != "ant"])
def test_shipped_ladders_rise_and_say_what_made_them(name: str) -> None:
    ladder = read_ladder(name)
    returns = [level.sampled for level in ladder.levels.values()]
    assert list(ladder.levels) == ["random", *FRACTIONS]
    assert returns == sorted(returns)
    assert len({level.steps for level in ladder.levels.values()}) == len(ladder.levels)
    assert ladder.about["command"].startswith(f"arb data collect {ladder.env} expert")
    assert {"commit", "seed", "steps", "curve", "sac"} <= set(ladder.about)
    for name, fraction in FRACTIONS.items():  # each within an eighth of the whole way from where it should be
        reached = (ladder.levels[name].sampled - returns[0]) / (returns[-1] - returns[0])
        assert reached == pytest.approx(fraction, abs=0.125)


def test_the_ant_s_ladder_has_the_policy_that_walks() -> None:
    ladder = read_ladder("ant")
    assert ladder.env == "arb/ant-goal-v0"
    assert ladder.levels["100"].sampled > 3 * ladder.levels["random"].sampled
    assert ladder.levels["100"].policy.mode(np.zeros(29)).shape == (8,)


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
    assert 20 <= len(few) < 26
    assert many.select(slice(few.num_episodes)).fingerprint == few.fingerprint
    np.testing.assert_array_equal(few.final_observations[:, 0], few.lengths)
    assert len(np.unique(many.actions)) == len(many)  # no episode repeats another
    assert not np.array_equal(few.actions, record(Counting(), act, 20, (1, 3)).actions[: len(few)])


def test_rows_are_shared_out_as_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake(env: Any, actor: Any, rows: int, seed: Any, tell: Any) -> Any:
        asked.append(rows)
        return Dataset(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), np.zeros(1, bool), np.ones(1))

    monkeypatch.setattr("arb.suite.recorder.record", fake)  # the recording itself is tested above
    env = type("Env", (), {"action_space": None})()
    record_recipe(env, "mixed", lambda name: (None, name), 8000, (0,))
    assert asked == [1000, 1000, 1000, 1000, 2000, 2000]


# ---- names and files -------------------------------------------------------------------------------------------------


def test_the_table_of_the_suite() -> None:
    assert len(SUITE) == 30
    assert not set(SUITE) & set(TASKS)
    for name, task in SUITE.items():
        assert wanted(name).task is task
        assert task_of(name) is task_of(f"{name}:5000") is task
    assert SUITE["suite:antmaze-umaze-play"].horizon == 700
    assert SUITE["suite:hopper-mixed"].reference == TASKS["hopper-medium-v2"].reference
    assert {wanted(name).ladder for name in SUITE} == {path.stem for path in LADDERS.glob("*.npz")}
    assert {level for parts in RECIPES.values() for level in parts} <= {"random", *FRACTIONS}
    parts = [(wanted(name).ladder, wanted(name).quality, wanted(name).rows) for name in
             ("suite:hopper-medium-expert-b", "suite:walker2d-random", "suite:antmaze-umaze-play",
              "suite:antmaze-large-diverse")]  # fmt: skip
    assert parts == [("hopper-b", "medium-expert", 200_000), ("walker2d", "random", 200_000),
                     ("ant", "umaze-play", 200_000), ("ant", "large-diverse", 500_000)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("suite:hopper-mixd", "the suite has no dataset 'hopper-mixd' (did you mean 'hopper-mixed'?)"),
        ("suite:hopper-mixed:many", "the second colon must be followed by a number of rows"),
        ("suite:hopper-mixed:10", "10 rows asked for; a dataset has 1,000 to 20,000,000"),
    ],
)
def test_a_wrong_name_is_one_line(cache: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", name]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(cache.iterdir())


def test_a_name_is_enough_and_the_same_dataset_has_the_same_hash(cache: Path, tmp_path: Path) -> None:
    dataset = load_dataset("suite:hopper-mixed:3000")
    (path,) = (cache / "suite").glob("*.hdf5")
    written = path.stat().st_mtime_ns
    assert made("suite:hopper-mixed:3000").stat().st_mtime_ns == written  # not made again
    again = make(wanted("suite:hopper-mixed", 3000), tmp_path / "again.hdf5")
    assert again.fingerprint == dataset.fingerprint
    assert (tmp_path / "again.hdf5").read_bytes() == path.read_bytes()
    assert make(wanted("suite:hopper-mixed", 3000, seed=1), tmp_path / "b.hdf5").fingerprint != dataset.fingerprint
    assert list((cache / "suite").iterdir()) == [path]  # no lock, no partial file


def test_a_mixed_dataset_is_what_its_recipe_says(cache: Path) -> None:
    dataset = load_dataset("suite:hopper-mixed:4000")
    assert audit(made("suite:hopper-mixed:4000")).ok
    assert dataset.provenance["env"] == "arb/hopper-v2"
    assert dataset.provenance["seed"] == 0
    assert json.loads(dataset.provenance["versions"])["mujoco"]
    shares = [int(part.split()[0]) for part in dataset.provenance["made_by"].split("; then ")]
    assert sum(shares) == len(dataset)
    for share, part in zip(shares, RECIPES["mixed"].values(), strict=True):
        assert 500 * part <= share < 500 * part + 1000
    assert dataset.lengths[:10].mean() < 50 < dataset.lengths[-1]  # random falls; the best policy stays up


def test_a_made_dataset_is_compared_with_the_published_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(published()) == list(SUITE)  # the hash of every dataset
    asked, row = wanted("suite:hopper-mixed"), {"sha256": "1" * 16, "versions": "mujoco 1, numpy 1"}
    monkeypatch.setattr("arb.suite.datasets.published", lambda: {"suite:hopper-mixed": row})

    class Made:
        fingerprint = row["sha256"] + "0" * 48

    assert verdict(asked, Made()).endswith("as published")
    Made.fingerprint = "0" * 64
    assert f"but {row['sha256']} is published: this machine recorded other rows" in verdict(asked, Made())
    assert "no hash is published" in verdict(Wanted(asked.task, asked.rows, seed=1), Made())


@pytest.mark.parametrize("robot", ROBOTS)
def test_the_second_ladder_records_other_policies_in_the_same_environment(robot: str, tmp_path: Path) -> None:
    first, second = (
        make(wanted(f"suite:{robot}-medium{ladder}", 1000), tmp_path / f"{robot}{ladder}.hdf5") for ladder in ("", "-b")
    )
    assert second.provenance["env"] == first.provenance["env"] == f"arb/{robot}-v2"
    assert second.provenance["ladder"].startswith(f"{robot}-b ")
    assert "--seed 1" in second.provenance["ladder"]
    assert second.fingerprint != first.fingerprint


def test_a_recording_and_its_hash_do_not_change_unnoticed(tmp_path: Path) -> None:
    """If it fails, raise VERSION (other rows) or publish the hashes anew (another fingerprint)."""
    if recorded_with() != "mujoco 3.17.0, numpy 2.4.6":
        pytest.skip("recorded with other versions of MuJoCo and NumPy")
    dataset = make(wanted("suite:hopper-medium", 1000), tmp_path / "x.hdf5")
    assert dataset.fingerprint[:16] == "e761bebf1e72fd6c"


def test_the_command_line_makes_datasets(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.hdf5"
    assert main(["data", "make", "suite:hopper-random", "--rows", "1000", "--seed", "3", "--out", str(out)]) == 0
    assert len(load_dataset(out)) >= 1000
    assert main(["data", "make", "suite:hopper-random", "--rows", "1000"]) == 0
    text = capsys.readouterr().out
    assert "arb run --task suite:hopper-random:1000" in text
    assert "no hash is published for this size" in text
    assert main(["data", "make", "suite:hopper-random", "--seed", "1"]) == 2
    assert "say with --out" in capsys.readouterr().err
    assert main(["data", "info", "suite:hopper-random:1000"]) == 0
    text = capsys.readouterr().out
    for word in ("seed", "versions", "fingerprint", "ladder", "command", "score"):
        assert word in text


# ---- walks through mazes ---------------------------------------------------------------------------------------------


def test_cells_are_rounded_down() -> None:
    assert cell_of(np.array([0.0, 0.0])) == (1, 1)
    assert cell_of(np.array([-1.9, 3.99])) == (1, 1)
    assert cell_of(np.array([4.0, 8.1])) == (3, 2)


def test_the_way_through_the_umaze_by_hand() -> None:
    way = routes(MAZES["umaze"], (3, 1))
    cell, walked = (1, 1), []
    while cell != (3, 1):
        cell = way[cell]
        walked.append(cell)
    assert walked == [(1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1)]
    assert way[(2, 1)] == (3, 1)  # a wall cell beside the goal: the ant may be counted there
    assert way[(2, 2)] == (3, 2)


@pytest.mark.parametrize("name", list(MAZES))
def test_every_free_cell_has_a_way_over_free_neighbours(name: str) -> None:
    maze = MAZES[name]
    free = maze.find(".") + maze.find("R") + maze.find("G")
    for goal in free:
        way = routes(maze, goal)
        for start in free:
            cell, steps = start, 0
            while cell != goal:
                onward = way[cell]
                assert abs(onward[0] - cell[0]) + abs(onward[1] - cell[1]) == 1
                assert maze.rows[onward[0]][onward[1]] != "#"
                cell, steps = onward, steps + 1
                assert steps < 60


def test_waypoints_are_drawn_in_a_cell_and_the_goal_is_exact() -> None:
    maze, goal, rng = MAZES["umaze"], np.array([0.3, 8.9]), np.random.default_rng(0)
    drawn = np.array([waypoint(maze, np.array([0.0, 0.0]), goal, rng) for _ in range(200)])
    offset = drawn - maze.centre(1, 2)
    assert (offset >= 0).all()
    assert (offset < 1).all()
    assert offset.mean() == pytest.approx(0.5, abs=0.1)
    for position in ([0.5, 8.0], [4.5, 8.5]):  # in the goal's cell, and in its neighbour
        np.testing.assert_array_equal(waypoint(maze, np.array(position), goal, rng), goal)


def test_starts_goals_and_noise_of_walks() -> None:
    walk = Walk("medium", anywhere=True, towards=0.0)
    starts, goals, noise = zip(*((walk.reset(seed=s)[0][:2], walk.goal, walk.noise) for s in range(400)), strict=True)
    assert {cell_of(start) for start in starts} == {cell_of(goal) for goal in goals} == set(walk.free)
    assert (np.array(starts) % 4).max() < 1.0
    distance = np.hypot(*(np.array(goals) % 4).T)
    assert 0.4 < distance.min() < 0.8 < 2.2 < distance.max() < 2.7  # as in D4RL's files
    assert (np.hypot(*(np.array(goals) - starts).T) > 2).all()
    assert NOISE[0] <= min(noise) < max(noise) <= NOISE[1]
    fixed = Walk("umaze", anywhere=False, towards=0.5)
    starts, goals = zip(*((fixed.reset(seed=seed)[0][:2], fixed.goal) for seed in range(200)), strict=True)
    assert np.abs(starts).max() <= 0.1
    share = np.mean([cell_of(goal) == (3, 1) for goal in goals])
    assert share == pytest.approx(0.5 + 0.5 / 7, abs=0.1)


def test_a_walk_has_a_new_goal_when_it_has_reached_one_and_ends_at_the_evaluation_s() -> None:
    walk = Walk("umaze", anywhere=False, towards=0.0)
    walk.reset(seed=0)
    walk.set_goal(walk.data.qpos[:2])
    assert not walk.step(np.zeros(8))[3]
    assert np.linalg.norm(walk.goal - walk.data.qpos[:2]) > 1.9
    qpos = walk.data.qpos.copy()
    qpos[:2] = walk.evaluation_goal
    walk.set_state(qpos, walk.data.qvel.copy())
    assert [walk.step(np.zeros(8))[3] for _ in range(LINGER)] == [False] * (LINGER - 1) + [True]


def test_relabelling_by_hand() -> None:
    obs = np.zeros((4, 29), np.float32)
    obs[:, 0] = [9.0, 3.0, 3.5, 3.51]
    final = np.zeros((1, 29), np.float32)
    final[0, 0] = 4.2
    walk = Dataset(obs, np.zeros((4, 8)), np.zeros(4), np.zeros(4, bool), [4], final)
    dataset = relabelled(walk, np.array([4.0, 0.0]))
    assert dataset.rewards.tolist() == [0, 1, 1, 1]
    assert dataset.terminals.tolist() == [False, True, True, True]


def test_actions_of_a_walk_have_noise_and_keep_their_bounds() -> None:
    class Still:
        def sample(self, obs: Any, rng: np.random.Generator) -> Any:
            assert obs.shape == (29,)
            return np.zeros(8, np.float32)

    dataset = record_walks(Still(), Walk("umaze", False, 0.0), 50, 200, (3,))
    spread = [episode.actions.std() for episode in dataset.episodes()]
    assert NOISE[0] - 0.02 < min(spread) < max(spread) < NOISE[1] + 0.02
    assert np.abs(dataset.actions).max() <= 1.0


def test_walks_are_read_back_with_true_boundaries(tmp_path: Path) -> None:
    """A terminal inside a walk does not end it."""
    dataset = make(wanted("suite:antmaze-umaze-play", 1000), tmp_path / "walk.hdf5")
    assert (dataset.lengths <= 701).all()
    assert load_dataset(tmp_path / "walk.hdf5").fingerprint == dataset.fingerprint
    assert audit(tmp_path / "walk.hdf5").ok
    assert dataset.provenance["evaluation_goal"] == [0.75, 8.75]
