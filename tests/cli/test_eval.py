"""`arb eval`: the numbers of the run itself, a table one can read, and a video."""

from __future__ import annotations

import importlib
import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image

from arb import DataError
from arb.agents.nn import create_gaussian
from arb.cli import main as arb
from arb.cli import parser_of
from arb.cli.eval import compared, pace, summary, table
from arb.envs.rollout import play
from arb.files import GrowingTable, write_npz
from arb.lab.config import configure
from arb.lab.folder import RunFolder
from arb.lab.setup import Setup
from arb.policies import export_policy, load_policy


def main(arguments: list[str]) -> None:
    """The command without its handling of mistakes."""
    options = parser_of("eval").parse_args(arguments)
    options.run(options)


SEED = np.random.SeedSequence(11)
TINY = '''
"""A point on a line that is pushed and drawn."""
import gymnasium
import numpy as np


class Line(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.left = self.np_random.normal(), 20
        return np.full(3, self.place), {}

    def step(self, action):
        self.place, self.left = self.place + float(action[0]), self.left - 1
        return np.full(3, self.place), -abs(self.place), False, self.left == 0, {}

    def render(self):
        picture = np.zeros((41, 410, 3), np.uint8)
        picture[:, 20 * self.left : 20 * self.left + 10] = 255  # no two alike, which a GIF would join
        return picture


gymnasium.register("Line-v0", Line)
'''


def pendulum_file(path: Path, steps: int = 800) -> Path:
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(0)
    rows: list[tuple[Any, ...]] = []
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        action = env.action_space.sample()
        following, reward, ended, cut, _ = env.step(action)
        rows.append((obs, action, reward, following, ended, cut))
        obs = env.reset()[0] if ended or cut else following
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    write_npz(path, {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose training is left out: compiling it would take longer than all tests here."""
    place = tmp_path_factory.mktemp("eval")
    config = configure(task=str(pendulum_file(place / "pendulum.npz")), env="Pendulum-v1", preset="smoke")
    setup, folder, rng = Setup.of(config), place / "run", np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: create_gaussian(jax.random.key(0), (3, 16, 1)))
    actor = jax.tree.map(lambda leaf: rng.normal(0.0, 1.0, leaf.shape).astype(np.float32), shapes)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(setup.describe()))
    for episode, value in enumerate(play(actor, setup.make_env, 2, SEED).returns):
        row = {"phase": "online", "step": 400, "episode": episode, "return": float(value), "score": float(value)}
        GrowingTable(folder / "eval.csv").add(row)
    export_policy(RunFolder(folder).policy(), actor, setup.normalization, setup.actions)
    return folder


def test_raw_environment_and_exported_policy_repeat_the_returns_of_the_agent(finished: Path) -> None:
    again = play(load_policy(finished), lambda: gymnasium.make("Pendulum-v1"), 2, np.random.SeedSequence(SEED.entropy))
    np.testing.assert_array_equal(
        again.returns, [float(row["return"]) for _, row in GrowingTable(finished / "eval.csv").rows()]
    )


def test_table(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(finished), "--episodes", "2", "--seed", "5"])
    first = capsys.readouterr().out
    main([str(finished), "--episodes", "2", "--seed", "5"])
    assert capsys.readouterr().out == first
    assert "2 episodes of the last policy in Pendulum-v1" in first
    lines = {line[:16].strip(): line[16:].split() for line in first.splitlines()[3:]}
    assert lines[""] == ["mean", "std", "min", "max"]
    mean, std, low, high = map(float, lines["return"])
    assert low <= mean <= high
    assert std >= 0
    assert "return, in run" in lines
    assert "score" not in lines  # Pendulum has no reference
    main([str(finished), "--episodes", "2", "--seed", "6"])
    assert capsys.readouterr().out != first


def test_all_policies_are_compared_from_the_same_initial_states(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(finished, tmp_path / "run")
    for which in ("best", "pretrained"):
        shutil.copy(RunFolder(copy).policy(), RunFolder(copy).policy(which))
    main([str(copy), "--policy", "all", "--episodes", "3"])
    *rows, _, advice = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["policy", "last", "best", "pretrained"]
    assert len({tuple(row.split()[1:]) for row in rows[1:]}) == 1, "the same policy has the same episodes"
    assert advice.endswith("deploy last")


def test_a_policy_is_recommended_beyond_chance() -> None:
    last = np.array([10.0, 20.0, 30.0])
    (*_, clear), (*_, chance) = (
        list(compared({"last": last, "best": last + gain, "pretrained": last - 50.0}))
        for gain in (np.array([5.0, 6.0, 7.0]), np.array([-5.0, 0.0, 12.0]))
    )
    assert clear.strip() == "it is better than the last; deploy best"
    assert chance.endswith("none is better than the last beyond chance; deploy last")


def recorded(folder: Path, online: list[list[float]], **settings: Any) -> list[str]:
    """The summary of a run with these scores, by evaluation and episode; pre-training ended with 1, 2 and 3."""
    folder.mkdir()
    config = {"agent": "iql", "replay.strategy": "arb", **settings}
    (folder / "config.json").write_text(json.dumps({"config": config, "data": {"mean_return": 1, "best_return": 2}}))
    curves = {("pretrain", 40): [1.0, 2.0, 3.0], **{("online", 20 * i): scores for i, scores in enumerate(online)}}
    for (phase, step), scores in curves.items():
        places = {"phase": phase, "step": step}
        rows = ({**places, "episode": i, "return": x, "score": x} for i, x in enumerate(scores))
        GrowingTable(folder / "eval.csv").add(*rows)
    run = RunFolder(folder)
    return list(summary(run, run.result()))


def test_the_summary_has_standard_errors_and_says_since_when_nothing_was_gained(tmp_path: Path) -> None:
    first, second, third, fourth, fifth, best = recorded(tmp_path / "a", [[1.0, 2.0, 3.0], [5.0, 5.0, 8.0], [0.0] * 3])
    assert first == "pre-trained 2.0 ± 0.6"  # standard deviation 1 / √3
    assert second == "fine-tuned  0.0 ± 0.0; best 6.0 ± 1.0, change at the offline-to-online switch +4.0"
    assert third.strip() == "± is the standard error over 3 episodes"
    assert fourth == "no gain     since online step 20: the last evaluation scored no more"
    assert fifth == "dataset     mean 1.0, best 2.0"
    assert best.startswith("best policy 6.0 at online step 20; it was chosen by these evaluations")
    worse = recorded(tmp_path / "b", [[2.0], [1.0], [0.0]])
    assert "no gain     by fine-tuning: none of the last 2 evaluations scored more" in worse
    assert "fine-tuned  0.0; best 1.0, change at the offline-to-online switch -1.0" in worse, "one episode has no error"
    assert not any("no gain" in line for line in recorded(tmp_path / "c", [[2.0], [1.0], [9.0]]))


def test_the_summary_of_offline_training_is_its_estimate(tmp_path: Path) -> None:
    said = recorded(tmp_path / "run", [[1.0, 2.0, 3.0]], **{"evaluation.by": "data"})
    estimate = "pre-trained 2.0 [1.1, 3.0] by fitted Q evaluation on held-out episodes"
    assert said == [estimate, "dataset     mean 1.0, best 2.0"]


def test_score_and_success_where_the_task_has_them(finished: Path) -> None:
    run = RunFolder(finished)
    described = replace(run.description(), reference=(0.0, 1.0))
    lines = list(table(run, described, "arb/antmaze-umaze-v2", np.array([1.0, 0.0, 1.0, 1.0])))
    assert lines[-1].split() == ["success", "75.0%"]
    assert any(line.split()[:2] == ["score", "75.0"] for line in lines)


def test_dict_observations_and_reported_success(
    line_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = TINY.replace("np.full(3, self.place)", '{"a": np.full(2, self.place), "b": np.full(1, self.place)}')
    told = told.replace("self.left == 0, {}", 'self.left == 0, {"is_success": True}')
    box = "gymnasium.spaces.Box(-np.inf, np.inf, ({},), np.float64)"
    told = told.replace(box.format(3), f"gymnasium.spaces.Dict(a={box.format(2)}, b={box.format(1)})")
    (tmp_path / "tiny_line.py").write_text(told)
    sys.modules.pop("tiny_line", None)
    gymnasium.registry.pop("Line-v0", None)
    path = tmp_path / "line.gif"
    main([str(line_run), "--env", "tiny_line:Line-v0", "--episodes", "2", "--gif", str(path)])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["success", "100.0%"]
    assert path.exists()
    sys.modules.pop("tiny_line", None)
    gymnasium.registry.pop("Line-v0", None)


def test_the_policy_is_chosen(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    with pytest.raises(DataError, match="no best policy"):
        main([str(folder), "--policy", "best"])
    arrays = dict(np.load(RunFolder(folder).policy()))
    arrays["net.biases.1"] = arrays["net.biases.1"] + 9.0  # always pushes one way
    write_npz(RunFolder(folder).policy("best"), arrays)
    said = {}
    for which in ("last", "best"):
        main([str(folder), "--episodes", "1", "--policy", which])
        said[which] = capsys.readouterr().out
    assert said["last"] != said["best"]
    main([str(folder), "--episodes", "1"])
    assert capsys.readouterr().out == said["last"]
    table = GrowingTable(folder / "eval.csv")
    for step, value in ((200, -7.0), (300, -9.0)):  # the best evaluation is neither the first nor the last
        table.add({"phase": "online", "step": step, "episode": 0, "return": value, "score": value})
        table.add({"phase": "pretrain", "step": step, "episode": 0, "return": value - 90.0, "score": value - 90.0})
    for which, mean in (("best", "-7.0"), ("pretrained", "-99.0")):
        write_npz(RunFolder(folder).policy(which), arrays)
        main([str(folder), "--episodes", "1", "--policy", which])
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("return, in run"))
        assert line.split()[3] == mean


def test_jax_is_not_needed(finished: Path) -> None:
    code = f"""
import sys
for name in ("jax", "jaxlib", "optax", "safetensors"):
    sys.modules[name] = None
from arb.cli import main
raise SystemExit(main(["eval", {str(finished)!r}, "--episodes", "1"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def line_run(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in an environment that any machine can draw."""
    (tmp_path / "tiny_line.py").write_text(TINY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    folder = tmp_path / "run"
    RunFolder(folder).policies.mkdir(parents=True)
    RunFolder(folder).policy().write_bytes(RunFolder(finished).policy().read_bytes())
    described = json.loads((finished / "config.json").read_text()) | {"env": "tiny_line:Line-v0"}
    (folder / "config.json").write_text(json.dumps(described))
    importlib.invalidate_caches()
    return folder


def test_video(line_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "line.gif"
    main([str(line_run), "--env", "tiny_line:Line-v0", "--episodes", "1", "--gif", str(path)])
    out = capsys.readouterr().out
    assert "one episode of 20 steps" in out
    total = next(line for line in out.splitlines() if line.startswith("return")).split()[1]
    assert f"return {total}" in out.splitlines()[0]  # the video is of the first episode
    with Image.open(path) as picture:
        assert picture.size == (205, 21)
        assert picture.n_frames == 11  # of the start, and of every second of 20 steps
        assert picture.info["duration"] == 40


def test_a_video_on_a_full_disk_is_one_line_and_no_file(line_run, tmp_path, capsys):
    """A limit on the size of files stands in for the disk."""
    (tmp_path / "videos").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        video = str(tmp_path / "videos" / "line.gif")
        status = arb(["eval", str(line_run), "--env", "tiny_line:Line-v0", "--episodes", "1", "--gif", video])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 1
    assert capsys.readouterr().err.splitlines() == ["arb eval: File too large"]
    assert not list((tmp_path / "videos").iterdir())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("picture = np.zeros", "raise RuntimeError('no GL'); picture = np.zeros", r"\(RuntimeError: no GL\); MuJoCo"),
        ('["rgb_array"]', '["human"]', "no render mode 'rgb_array'"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(line_run, tmp_path, old, new, message):
    (tmp_path / "tiny_line.py").write_text(TINY.replace(old, new))
    sys.modules.pop("tiny_line", None)
    gymnasium.registry.pop("Line-v0", None)
    with pytest.raises(DataError, match=message) as setup:
        main([str(line_run), "--env", "tiny_line:Line-v0", "--gif", str(tmp_path / "line.gif")])
    assert "\n" not in str(setup.value)
    assert not (tmp_path / "line.gif").exists()


def test_a_module_is_loaded_only_if_the_command_names_it(line_run: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny_line.py").write_text("raise SystemExit('loaded')")
    with pytest.raises(DataError, match=r"add --env tiny_line:\S+, in the folder of tiny_line\.py"):
        main([str(line_run)])


def test_videos_run_at_the_speed_of_the_environment() -> None:
    assert pace(125) == (5, 40)  # hopper
    assert pace(20) == (1, 50)  # halfcheetah
    assert pace(1000) == (40, 40)
    assert pace(30) == (1, 30)


def test_mistakes_are_answered_in_one_line(line_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path / "nowhere")], "no config.json"),
        ([str(line_run), "--gif", "video.mp4"], "name it video.gif"),
    ):
        with pytest.raises(DataError, match=message):
            main(arguments)
    for arguments in ([], [str(line_run), "--episodes", "0"], [str(line_run), "--seed", "-1"]):
        assert arb(["eval", *arguments]) == 2
    assert arb(["eval", "--help"]) == 0
    assert "--gif" in capsys.readouterr().out

    described = json.loads((line_run / "config.json").read_text())
    for change, message in (
        ({"env": "Nothing-v0"}, "Nothing-v0"),
        ({"env": "CartPole-v1"}, "takes observations of 3 numbers, not of shape"),
        ({"env": ""}, "does not name the environment: add --env"),
        ({"config": 3}, "damaged"),
    ):
        (line_run / "config.json").write_text(json.dumps(described | change))
        with pytest.raises(DataError, match=message):
            main([str(line_run)])
    (line_run / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config.json"):
        main([str(line_run)])
    (line_run / "config.json").write_text(json.dumps(described))
    RunFolder(line_run).policy().unlink()
    with pytest.raises(DataError, match="no last policy"):
        main([str(line_run)])
