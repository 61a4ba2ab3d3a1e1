"""Evaluate the policy of a finished run: returns, score, success, or an animated GIF.

It needs NumPy and the environment, not JAX.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.errors import DataError
from arb.files import read_json
from arb.policy import Policy, load_policy
from arb.runfolder import RunFolder
from arb.tasks import Reference, family_of, normalised

Returns = NDArray[np.float64]

_MORE = """
The policy acts as in the run's own evaluations, from other starts: another --seed is another set of episodes. A score
of 0 is D4RL's random policy, 100 its expert. In a maze, success is the share of episodes that reached the goal.

examples:
  arb eval runs/hopper                          as many episodes as the run's own evaluations had
  arb eval runs/hopper --episodes 100 --seed 1  more of them, and others
  arb eval runs/hopper --gif hopper.gif         also an animation of the first episode
  arb eval runs/arm --env my_robot:Arm-v0       an environment from my_robot.py in the current folder
"""


def main(arguments: list[str]) -> int:
    """Evaluate, print a table, and draw a film if asked."""
    asked = parser().parse_args(arguments)
    if asked.gif and asked.gif.suffix.lower() != ".gif":
        raise DataError(f"--gif writes a GIF: name it {asked.gif.with_suffix('.gif')}")
    described, policy = _described(asked.run), load_policy(asked.run)
    env = _environment(asked.run, described["env"], asked.env)
    episodes = asked.episodes or described["config"]["evaluation.episodes"]
    if asked.gif:  # first, so that a machine that cannot draw says so at once
        _film(env, policy, asked.seed, asked.gif)
    evaluate = _library(env).rollout.evaluate
    returns = evaluate(policy, lambda: _made(env, policy), episodes, np.random.SeedSequence(asked.seed))
    print("\n".join(table(asked.run, described | {"env": env}, returns)))
    return 0


def table(run: Path, described: dict[str, Any], returns: Returns) -> Iterator[str]:
    """What came out, next to what the run itself recorded at its end."""
    config, env = described["config"], described["env"]
    about = (config["task"], config["agent"], config["replay.strategy"], f"seed {config['seed']}")
    yield f"{run}   {'   '.join(map(str, about))}"
    yield f"{len(returns)} episodes in {env}"
    yield ""
    yield f"{'':<16}{'mean':>10}{'std':>10}{'min':>10}{'max':>10}"
    yield _line("return", returns)
    if described["reference"]:
        yield _line("score", normalised(returns, Reference(*described["reference"])))
    recorded = _recorded(run)
    if len(recorded):
        yield _line("return, in run", recorded)
    successes = family_of("", env).successes(returns)
    if successes is not None:
        yield f"{'success':<16}{np.mean(successes):>10.1%}"


def _environment(run: Path, recorded: str, asked: str) -> str:
    """The environment to evaluate in: a file's own words never load a module."""
    if asked or ":" not in recorded:
        return asked or recorded
    module = recorded.partition(":")[0]
    raise DataError(
        f"{run} was trained in {recorded}, whose module a file may not load: go to the folder of {module}.py and add "
        f"--env {recorded}"
    )


def _line(name: str, values: Returns) -> str:
    numbers = (values.mean(), values.std(), values.min(), values.max())
    return f"{name:<16}" + "".join(f"{number:>10.1f}" for number in numbers)


def _recorded(run: Path) -> Returns:
    """The returns of the last evaluation in eval.csv."""
    curves = RunFolder(run).curves()
    return curves["online"].returns[-1] if "online" in curves else np.zeros(0)


def _film(env: str, policy: Policy, seed: int, path: Path) -> None:
    from arb.cli.film import film

    start, chance = np.random.SeedSequence(seed).spawn(2)  # the start of the evaluation's first episode
    rng = np.random.default_rng(chance)
    total, steps = film(env, lambda obs: policy(obs, rng), int(start.generate_state(1)[0]), path)
    print(f"{path}: one episode of {steps:,} steps, return {total:.1f}\n")


def _described(run: Path) -> dict[str, Any]:
    """The run's config.json."""
    path = run / "config.json"
    try:
        described: dict[str, Any] = read_json(path)
        complete = bool(described["env"]) and "reference" in described and "evaluation.episodes" in described["config"]
    except FileNotFoundError:
        raise DataError(f"{run} is not the folder of a run: it has no config.json") from None
    except (ValueError, KeyError, TypeError, OSError):
        complete = False
    if not complete:
        raise DataError(f"{path} is damaged or was not written by `arb run`: copy it again")
    return described


def _library(env: str) -> Any:
    """`arb.envs`, if what it is built on starts."""
    try:
        import arb.envs.rollout

        return arb.envs
    except ModuleNotFoundError as missing:
        raise DataError(f"{env} needs {missing.name}, which is not installed: pip install 'arb-rl[train]'") from None
    except Exception as problem:  # of MuJoCo, which ends its import with whatever OpenGL raised
        backend = os.environ.get("MUJOCO_GL")
        hint = f"MUJOCO_GL={backend} names what this machine lacks: unset it" if backend else "`arb doctor` says more"
        raise DataError(f"MuJoCo does not start ({problem}); {hint}") from None


def _made(env: str, policy: Policy) -> Any:
    """The environment, if the policy can see in it."""
    try:
        made = _library(env).make(env)
    except ModuleNotFoundError as missing:
        raise DataError(f"{env} needs {missing.name}, which is not installed") from None
    except ValueError as problem:
        raise DataError(str(problem)) from None
    shape = made.observation_space.shape
    if shape != (policy.obs_size,):
        raise DataError(
            f"{env} has observations of shape {shape}, the policy wants {policy.obs_size} numbers; "
            "it was trained in another version of that environment"
        )
    return made


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is wanted")
    return number


def _seed(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("a seed is 0 or larger")
    return number


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="arb eval",
        description="Evaluate the policy of a finished run: returns, score, success, or an animated GIF.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    options.add_argument("--episodes", type=_count, metavar="N", help="how many (default: as many as the run's own)")
    options.add_argument("--seed", type=_seed, default=0, help="decides the starts (default: 0)")
    options.add_argument("-e", "--env", default="", metavar="ID", help="Gymnasium id, or my_module:MyEnv-v0")
    options.add_argument("--gif", type=Path, metavar="FILE", help="also write an animated GIF of one episode")
    return options
