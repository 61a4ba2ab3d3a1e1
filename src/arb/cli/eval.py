"""`arb eval`: returns, score, success and a video of a run's policy. It needs NumPy and the environment, not JAX."""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arb.data.tasks import Reference, family_of, normalised
from arb.errors import DataError
from arb.files import atomic_write
from arb.lab.folder import Curve, Description, Result, RunFolder, evaluated
from arb.policies import Policy, load_policy
from arb.policies.export import POLICIES
from arb.progress import count, counts

Returns = NDArray[np.float64]
DELAY_MS, WIDTH = 40, 320
"""Of a frame in a video, where the environment's own speed allows it."""
EXAMPLES = """
The policy acts as in the run's own evaluations, from other initial states: another --seed is another set of episodes. A
score of 0 is D4RL's random policy, 100 its expert. Success is the share of episodes that reached the goal of a maze, or
that the environment itself reports in info["success"] or info["is_success"].

examples:
  arb eval runs/hopper                          as many episodes as the run's own evaluations had
  arb eval runs/hopper --episodes 100 --seed 1  more episodes, from other initial states
  arb eval runs/hopper --policy best            the policy of the best evaluation instead of the last one
  arb eval runs/hopper --policy all --episodes 100    pre-trained, best and last, and which to deploy
  arb eval runs/hopper --gif hopper.gif         also a video of the first episode
  arb eval runs/arm --env my_robot:Arm-v0       an environment from my_robot.py in the current folder
"""


def add_eval(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN", help="the folder of a run")
    add("--policy", choices=(*POLICIES, "all"), default="last", help="which policy of the run (last)")
    add("--episodes", type=int, metavar="N", help="number of episodes (default: as in the run's evaluations)")
    add("--seed", type=int, default=0, help="seed of the initial states (default: 0)")
    add("-e", "--env", default="", metavar="ID", help="Gymnasium id, or my_module:MyEnv-v0")
    add("--gif", type=Path, metavar="FILE", help="also write an animated GIF of one episode")
    parser.set_defaults(run=evaluate)


def evaluate(options: argparse.Namespace) -> None:
    if options.gif and options.gif.suffix.lower() != ".gif":
        raise DataError(f"--gif writes a GIF: name it {options.gif.with_suffix('.gif')}")
    run = RunFolder(options.folder)
    described = run.description()
    chosen = tuple(POLICIES) if options.policy == "all" else (options.policy,)
    policies = {which: load_policy(run.path, which) for which in chosen}
    policy = policies[chosen[0]]
    env = _environment(run, described.env, options.env)
    number = described.config.get("evaluation.episodes", 1) if options.episodes is None else options.episodes
    if not isinstance(number, int) or number < 1 or options.seed < 0:
        raise DataError("--episodes must be at least 1, --seed at least 0")
    if options.gif:  # first, so that a machine that cannot draw says so at once
        start, chance = np.random.SeedSequence(options.seed).spawn(2)  # the start of the evaluation's first episode
        rng = np.random.default_rng(chance)
        total, steps = video(env, lambda obs: policy(obs, rng), int(start.generate_state(1)[0]), options.gif)
        print(f"{options.gif}: one episode of {steps:,} steps, return {total:.1f}\n")
    from arb.envs import flattened, make
    from arb.envs.rollout import Played, play

    def evaluated_anew(one: Policy) -> Played:  # from the same initial states each time
        return play(one, lambda: flattened(make(env)), number, np.random.SeedSequence(options.seed))

    if len(chosen) == 1:
        played = evaluated_anew(policy)
        print("\n".join(table(run, described, env, played.returns, played.successes, options.policy)))
    else:
        reference = Reference(*described.reference) if described.reference else None
        found = {which: normalised(evaluated_anew(one).returns, reference) for which, one in policies.items()}
        print("\n".join(compared(found)))


def compared(scores: Mapping[str, Returns]) -> Iterator[str]:
    """Policies that were evaluated from the same initial states, each with its interval, and which to deploy."""
    from arb.report.stats import t_interval

    yield f"{'policy':<12}{'mean':>10}{'95% interval':>22}{'episodes':>10}"
    for which, values in scores.items():
        mean, low, high = t_interval([values])
        yield f"{which:<12}{mean:>10.1f}{'' if low is None else f'[{low:.1f}, {high:.1f}]':>22}{len(values):>10}"
    better = {
        which: values.mean()
        for which, values in scores.items()
        if which != "last" and (t_interval([values - scores["last"]]).low or 0.0) > 0.0
    }
    chosen = max(better, key=lambda which: better[which], default="last")
    others = " and ".join(which for which in scores if which != "last")
    reason = "it is better than the last" if better else f"{others}: none is better than the last beyond chance"
    yield f"\n{reason}; deploy {chosen}"


def table(
    run: RunFolder,
    described: Description,
    env: str,
    returns: Returns,
    successes: NDArray[np.bool_] | None = None,
    which: str = "last",
) -> Iterator[str]:
    """What came out, next to what the run itself recorded of the same policy."""
    config = described.config
    about = (config["task"], config["agent"], config["replay.strategy"], f"seed {config['seed']}")
    yield f"{run.path}   {'   '.join(map(str, about))}"
    yield f"{count(len(returns), 'episode')} of the {which} policy in {env}"
    yield ""
    yield f"{'':<16}{'mean':>10}{'std':>10}{'min':>10}{'max':>10}"
    rows = {"return": returns}
    if described.reference:
        rows["score"] = normalised(returns, Reference(*described.reference))
    recorded = evaluated(run.curves(), which)
    if recorded is not None:
        rows["return, in run"] = recorded
    for name, values in rows.items():
        numbers = (values.mean(), values.std(), values.min(), values.max())
        yield f"{name:<16}" + "".join(f"{number:>10.1f}" for number in numbers)
    if successes is None:
        successes = family_of("", env).successes(returns)
    if successes is not None:
        yield f"{'success':<16}{np.mean(successes):>10.1%}"


def summary(run: RunFolder, result: Result) -> Iterator[str]:
    """What came out of a run, with the standard errors over the episodes of its evaluations."""
    curves, by_data = run.curves(), run.description().config.get("evaluation.by") == "data"
    offline, online = curves["pretrain"], curves["online"]

    def shown(curve: Curve, at: int) -> str:
        return f"{curve.means[at]:.1f}" + (f" ± {curve.errors[at]:.1f}" if curve.errors[at] >= 0 else "")

    if by_data:
        low, high = np.percentile(offline.scores[-1], [2.5, 97.5])
        said = f"{result.pretrained:.1f} [{low:.1f}, {high:.1f}] by fitted Q evaluation on held-out episodes"
    yield f"pre-trained {said if by_data else shown(offline, -1)}"
    after = np.flatnonzero(online.steps > 0)
    if len(after):
        best = after[online.means[after].argmax()]
        later = int(after[-1] - best) if result.best_step else len(after)
        change = f"change at the offline-to-online switch {-result.drop:+.1f}"
        yield f"fine-tuned  {shown(online, -1)}; best {shown(online, best)}, {change}"
        yield f"{'':<12}± is the standard error over {counts(map(len, online.scores), 'episode')}"
        if later:
            since = f"since online step {result.best_step:,}" if result.best_step else "by fine-tuning"
            scored = "the last evaluation scored no" if later == 1 else f"none of the last {later} evaluations scored"
            yield f"no gain     {since}: {scored} more"
    if result.data_mean is not None:
        yield f"dataset     mean {result.data_mean:.1f}, best {result.data_best:.1f}"
    if result.success is not None:
        yield f"success     {result.success:.0%} of the episodes of the last evaluation"
    if len(after):
        when = f"at online step {result.best_step:,}" if result.best_step else "before fine-tuning"
        yield (
            f"best policy {max(result.best, result.pretrained):.1f} {when}; it was chosen by these evaluations, so its "
            f"true score may be lower (`arb eval {run.path} --policy all --episodes 100` compares the policies)"
        )


def _environment(run: RunFolder, recorded: str, asked: str) -> str:
    """The environment to evaluate in: what a file says never loads a module."""
    if not (asked or recorded):
        raise DataError(f"{run.config_file} does not name the environment: add --env with a Gymnasium id")
    if asked or ":" not in recorded:
        return asked or recorded
    raise DataError(
        f"{run.path} was trained in {recorded}, and a run folder may not load code: add --env {recorded}, "
        f"in the folder of {recorded.partition(':')[0]}.py"
    )


# ---- video -----------------------------------------------------------------------------------------------------------
def choose_backend() -> None:
    """Let MuJoCo draw without a screen where there is none; it reads the variable when it draws first."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def video(env: str, act: Callable[[Any], Any], seed: int, path: Path) -> tuple[float, int]:
    """Play one episode and write it to a GIF that runs at the environment's own speed; its return and its length."""
    choose_backend()
    import imageio.v3 as imageio

    from arb.envs import make
    from arb.envs.rollout import episode, flattened

    with closing(make(env)) as world:
        if "rgb_array" not in (world.metadata.get("render_modes") or ()):
            raise DataError(f"{env} cannot be drawn: it has no render mode 'rgb_array'")
    frames: list[Any] = []
    rewards: list[float] = []
    with closing(flattened(make(env, render_mode="rgb_array"))) as world:
        every, delay = pace(float(world.metadata.get("render_fps") or 30))

        def act_and_draw(obs: Any) -> Any:
            if len(rewards) % every == 0:
                frames.append(_frame(env, world))
            return act(obs)

        rewards.extend(step.reward for step in episode(world, act_and_draw, seed))
        frames.append(_frame(env, world))
    content = imageio.imwrite("<bytes>", np.stack(frames), extension=".gif", duration=delay, loop=0)
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)
    return float(np.sum(rewards)), len(rewards)


def _frame(env: str, world: Any) -> Any:
    try:
        frame = np.asarray(world.render())
    except Exception as problem:  # whatever OpenGL raises
        reason = traceback.format_exception_only(problem)[-1].strip()
        advice = "MuJoCo draws with EGL or OSMesa (apt install libegl1 libosmesa6; MUJOCO_GL=osmesa chooses the second)"
        raise DataError(f"{env} cannot be drawn on this machine ({reason}); {advice}") from None
    if frame.ndim != 3:
        raise DataError(f"{env} cannot be drawn: its render() returns no picture")
    step = -(-frame.shape[1] // WIDTH)
    return frame[::step, ::step]


def pace(steps_per_second: float) -> tuple[int, int]:
    """Steps from one frame to the next, and milliseconds: browsers slow down what is faster than 20 ms a frame."""
    every = max(1, int(DELAY_MS * steps_per_second / 1000))
    return every, max(20, round(every / steps_per_second * 100) * 10)
