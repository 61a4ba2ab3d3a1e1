"""Evaluate the policy of a finished run: returns, score, success, or an animated GIF.

It needs NumPy and the environment, not JAX.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.cli.options import command
from arb.data.tasks import Reference, family_of, normalised
from arb.errors import DataError
from arb.lab.runfolder import POLICIES, Description, RunFolder, evaluated
from arb.policies import Policy, load_policy
from arb.progress import count

Returns = NDArray[np.float64]

_MORE = """
The policy acts as in the run's own evaluations, from other initial states: another --seed is another set of episodes. A
score of 0 is D4RL's random policy, 100 its expert. Success is the share of episodes that reached the goal of a maze, or
that the environment itself reports in info["success"] or info["is_success"].

examples:
  arb eval runs/hopper                          as many episodes as the run's own evaluations had
  arb eval runs/hopper --episodes 100 --seed 1  more episodes, from other initial states
  arb eval runs/hopper --policy best            the policy of the best evaluation instead of the last one
  arb eval runs/hopper --gif hopper.gif         also an animation of the first episode
  arb eval runs/arm --env my_robot:Arm-v0       an environment from my_robot.py in the current folder
"""


def main(arguments: list[str]) -> int:
    """Evaluate, print a table, and write an animation if asked."""
    asked = parser().parse_args(arguments)
    if asked.gif and asked.gif.suffix.lower() != ".gif":
        raise DataError(f"--gif writes a GIF: name it {asked.gif.with_suffix('.gif')}")
    run = RunFolder(asked.run)
    described, policy = run.description(), load_policy(run.path, asked.policy)
    env = _environment(run, described.env, asked.env)
    episodes = asked.episodes or _episodes(run, described)
    if asked.gif:  # first, so that a machine that cannot draw says so at once
        _film(env, policy, asked.seed, asked.gif)
    play = _library(env).rollout.play
    played = play(policy, lambda: _made(env, policy), episodes, np.random.SeedSequence(asked.seed))
    print("\n".join(table(run, described, env, played.returns, played.successes, asked.policy)))
    return 0


def table(
    run: RunFolder,
    described: Description,
    env: str,
    returns: Returns,
    told: NDArray[np.bool_] | None = None,
    which: str = "last",
) -> Iterator[str]:
    """What came out, next to what the run itself recorded of the same policy."""
    config = described.config
    about = (config["task"], config["agent"], config["replay.strategy"], f"seed {config['seed']}")
    yield f"{run.path}   {'   '.join(map(str, about))}"
    yield f"{count(len(returns), 'episode')} of the {which} policy in {env}"
    yield ""
    yield f"{'':<16}{'mean':>10}{'std':>10}{'min':>10}{'max':>10}"
    yield _line("return", returns)
    if described.reference:
        yield _line("score", normalised(returns, Reference(*described.reference)))
    recorded = evaluated(run.curves(), which)
    if recorded is not None:
        yield _line("return, in run", recorded)
    successes = family_of("", env).successes(returns) if told is None else told
    if successes is not None:
        yield f"{'success':<16}{np.mean(successes):>10.1%}"


def _line(name: str, values: Returns) -> str:
    numbers = (values.mean(), values.std(), values.min(), values.max())
    return f"{name:<16}" + "".join(f"{number:>10.1f}" for number in numbers)


def _episodes(run: RunFolder, described: Description) -> int:
    """How many the run's own evaluations had."""
    number = described.config.get("evaluation.episodes")
    if not isinstance(number, int) or number < 1:
        raise DataError(f"{run.config_file} does not say how many episodes an evaluation has: add --episodes N")
    return number


def _environment(run: RunFolder, recorded: str, asked: str) -> str:
    """The environment to evaluate in: what a file says never loads a module."""
    if not (asked or recorded):
        raise DataError(f"{run.config_file} does not name the environment: add --env with a Gymnasium id")
    if asked or ":" not in recorded:
        return asked or recorded
    module = recorded.partition(":")[0]
    raise DataError(
        f"{run.path} was trained in {recorded}. A run folder may not load code, so name the environment yourself: add "
        f"--env {recorded}, in the folder of {module}.py"
    )


def _film(env: str, policy: Policy, seed: int, path: Path) -> None:
    from arb.cli.film import film

    start, chance = np.random.SeedSequence(seed).spawn(2)  # the start of the evaluation's first episode
    rng = np.random.default_rng(chance)
    total, steps = film(env, lambda obs: policy(obs, rng), int(start.generate_state(1)[0]), path)
    print(f"{path}: one episode of {steps:,} steps, return {total:.1f}\n")


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
    """The environment, if the policy fits its observations."""
    library = _library(env)
    made = library.rollout.flattened(library.make(env))
    shape = made.observation_space.shape
    if shape != (policy.obs_size,):
        raise DataError(
            f"{env} has observations of shape {shape}, but the policy expects {policy.obs_size} numbers; "
            "it was trained in another version of that environment"
        )
    return made


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return int(text)

    return number


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    text = "Evaluate the policy of a finished run: returns, score, success, or an animated GIF."
    options = command("eval", text, _MORE)
    options.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    options.add_argument("--policy", choices=tuple(POLICIES), default="last", help="which policy of the run (last)")
    options.add_argument(
        "--episodes", type=_at_least(1), metavar="N", help="number of episodes (default: as in the run's evaluations)"
    )
    options.add_argument("--seed", type=_at_least(0), default=0, help="seed of the initial states (default: 0)")
    options.add_argument("-e", "--env", default="", metavar="ID", help="Gymnasium id, or my_module:MyEnv-v0")
    options.add_argument("--gif", type=Path, metavar="FILE", help="also write an animated GIF of one episode")
    return options
