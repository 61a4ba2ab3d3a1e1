"""The page for people with a robot is true: its blocks run one after the other, in one folder."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from arb.cli import main
from arb.lab.config import PRESETS, Evaluation, Preset, Schedule

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "robot.md").read_text()


def commands(block: str) -> list[tuple[str, int]]:
    """The lines of a block with the status that they end with."""
    return [
        (line.partition("  #")[0].strip(), int(found[1]) if (found := re.search(r"# status (\d)", line)) else 0)
        for line in block.splitlines()
    ]


def test_every_line_of_the_page_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("h5py")
    plan = Schedule(pretrain=60, online=60, collect=1000, updates=20, batch=16)
    monkeypatch.setitem(PRESETS, "demo", Preset(plan, Evaluation(2_500, 2), tau=0.05))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples"), ""])
    said = {}
    for kind, block in re.findall(r"^```(python|bash)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if block.startswith("# my_robot.py"):
            Path("my_robot.py").write_text(block)
        elif kind == "python":
            exec(compile(block, "docs/robot.md", "exec"), {"__name__": "__main__"})
        for line, status in commands(block) if kind == "bash" else ():
            words = [str(file) for word in shlex.split(line) for file in (sorted(Path().glob(word)) or [word])]
            if words[0] == "python":  # the robot's program; the run before it has ended already
                assert (ROOT / words[1]).exists()
                continue
            if "--collect" in words:
                record_for(Path(words[words.index("--collect") + 1]), words[words.index("--from") + 1])
            assert main(words[1:]) == status, (line, capsys.readouterr())
            said[line] = capsys.readouterr().out
    assert "not finite" in next(iter(said.values()))
    assert "time limits" in next(text for line, text in said.items() if line.startswith("arb data repair"))
    assert "by fitted Q evaluation" in next(text for line, text in said.items() if "runs/arm " in f"{line} ")
    assert (tmp_path / "runs" / "arm-direct" / "DONE").exists()


def record_for(inbox: Path, run: str) -> None:
    """The episodes that the program would record while the run waits."""
    from robot_side import Robot, run_episode

    import arb

    policy, rng = arb.load_policy(run), np.random.default_rng(1)
    for _ in range(10):
        run_episode(Robot(), rng, lambda obs: policy.sample(obs, rng), policy.version).save(inbox)
