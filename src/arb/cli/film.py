"""Pictures of an environment: a rendering backend that works on this machine, and one episode as an animated GIF."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arb.errors import DataError
from arb.files import whole

_OF_BACKEND = re.compile(r"gl|osmesa|mujoco|no picture|exit status", re.IGNORECASE)
BACKENDS = ("egl", "osmesa", "glfw")
"""MuJoCo's ways to draw: on a graphics card or in software, both without a screen, and in a window."""
ADVICE = "MuJoCo draws with EGL or OSMesa (Debian, Ubuntu: apt install libegl1 libgl1 libosmesa6)"
DELAY_MS, WIDTH = 40, 320
"""Of a picture in a film, where the environment's own speed allows it."""

_TRIAL = """
import sys
import arb.envs
env = arb.envs.make(sys.argv[1])
modes = env.metadata.get("render_modes") or ()
env.close()
if "rgb_array" not in modes:
    sys.exit(f"it has no render mode 'rgb_array' (its metadata['render_modes']: {list(modes)})")
env = arb.envs.make(sys.argv[1], render_mode="rgb_array")
env.reset(seed=0)
assert env.render() is not None, "its render() returns None"
env.close()
"""
_OF_ENVIRONMENT = ("it has no render mode", "AssertionError: its render()")


class Drawing(NamedTuple):
    """Whether an environment can be drawn here: the value of MUJOCO_GL to do it under, or what prevents it."""

    backend: str | None
    problem: str = ""


def drawing(env: str, seconds: float = 60.0) -> Drawing:
    """Try MUJOCO_GL, or where it is not set all backends.

    Each in a process of its own, because a backend that fails may leave a broken one behind, or not come back.
    """
    given = os.environ.get("MUJOCO_GL")
    problems = []
    for backend in (given,) if given else BACKENDS:
        problem = _problem(env, backend, seconds)
        if not problem:
            return Drawing(backend)
        if not _OF_BACKEND.search(problem):  # a missing package, say, which no other backend would bring
            return Drawing(None, problem)
        problems.append(f"MUJOCO_GL={backend}: {problem}")
    return Drawing(None, problems[0])


def _problem(env: str, backend: str, seconds: float) -> str:
    command = [sys.executable, "-c", _TRIAL, env]
    environment = {**os.environ, "MUJOCO_GL": backend}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no picture after {seconds:g} seconds"
    return "" if done.returncode == 0 else last_line(done.stderr) or f"exit status {done.returncode}"


def last_line(text: str) -> str:
    """The line of a traceback that says what went wrong."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def film(env: str, act: Callable[[Any], Any], seed: int, path: Path) -> tuple[float, int]:
    """Play one episode and write it to a GIF that runs at the environment's own speed; its return and its length."""
    backend, problem = drawing(env)
    if backend is None:
        if problem.startswith(_OF_ENVIRONMENT):
            raise DataError(f"{env} cannot be drawn on any machine: {problem}")
        advice = f"; {ADVICE}" if problem.startswith("MUJOCO_GL=") else ""
        raise DataError(f"{env} cannot be drawn on this machine ({problem}){advice}")
    # Read when the first picture is drawn, so it is early enough here.
    os.environ["MUJOCO_GL"] = backend
    from arb.envs import make
    from arb.envs.rollout import episode, flattened

    pictures: list[Any] = []
    steps = count()
    # An open OpenGL context complains when Python ends, so it is closed whatever happens.
    with closing(flattened(make(env, render_mode="rgb_array"))) as world:
        every, delay = pace(float(world.metadata.get("render_fps") or 30))

        def drawn(obs: Any) -> Any:
            if next(steps) % every == 0:
                pictures.append(_picture(world.render()))
            return act(obs)

        rewards = [step.reward for step in episode(world, drawn, seed)]
        pictures.append(_picture(world.render()))
    with whole(path) as unfinished:
        pictures[0].save(unfinished, format="GIF", save_all=True, append_images=pictures[1:], duration=delay, loop=0)
    return float(np.sum(rewards)), len(rewards)


def pace(steps_per_second: float) -> tuple[int, int]:
    """Steps from one picture to the next, and milliseconds: browsers slow down what is faster than 20 ms a picture."""
    every = max(1, int(DELAY_MS * steps_per_second / 1000))
    return every, max(20, round(every / steps_per_second * 100) * 10)


def _picture(shot: Any) -> Any:
    from PIL import Image

    picture = Image.fromarray(shot)
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)))
    return picture.quantize(64)  # colours: enough for a rendered robot, and half the file
