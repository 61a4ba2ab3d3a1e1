"""Every metric of a run, defined once: columns of metrics.csv and eval.csv, `buffer.stats()`, result.json; loggers.

docs/reference/metrics.md is made from these tables by `python tools/pages.py`, and the report's page shows `REPLAY`.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from arb.data.formats import first_line
from arb.errors import DataError
from arb.lab.folder import RunFolder
from arb.progress import Tell


class Metric(NamedTuple):
    """One metric: its name, what it is, how to read it or who reports it."""

    name: str
    definition: str
    reading: str = ""
    share: bool = False
    """Whether it lies between 0 and 1."""
    logged: bool = True
    """Whether metrics.csv has it for every strategy; others are in `buffer.stats()` or a strategy's own."""

    @property
    def title(self) -> str:
        """Its name in words.

        >>> Metric("online_share", "").title
        'Online share'
        """
        return self.name.replace("_", " ").capitalize()


REPLAY = (
    Metric("collected_return", "mean return of the training episodes that ended in this block, from raw rewards",
           "noisy: the policy explores"),
    Metric("online_rows", "share of the rows that are online", "what uniform sampling would put into a batch", True),
    Metric("online_share", "Σp over online rows: expected share of online rows in a batch",
           "near `online_rows`, the strategy does little. Near 1 while `online_rows` is small, the offline data is "
           "ignored and training rests on few rows: raise λ", True),
    Metric("drawn_online_share", "share of online rows in the last sample, counted",
           "close to `online_share`, up to chance", True),
    Metric("effective_share", "effective sample size 1/Σp², divided by n", "1 is uniform; below 0.1, raise λ", True),
    Metric("entropy", "entropy of p divided by log n", "1 is uniform; 0 if one row gets every draw", True),
    Metric("top_trajectories", "probability of the 1 % of trajectories with the largest probability",
           "above 0.5: raise λ", True),
    Metric("clipped_low", "share of rows whose score lies at the lower clip bound",
           "above 0.5, the bound decides and not the policy", True),
    Metric("clipped_high", "share of rows whose score lies at the upper clip bound",
           "above 0.5, the bound decides and not the policy", True),
    Metric("age", "expected age of a sampled row, in steps since it was added"),
    Metric("ratio_loss", "loss of the density ratio", "BERB only"),
    Metric("online_priority", "priority that a new online row starts with", "BERB only"),
    Metric("temperature", "λ as used in the last refresh", "with `\"auto\"`, the value that was solved for"),
    Metric("online_bound", "upper bound of `online_share` right after a refresh, √(`online_rows` / ρ) for an effective "
           "share ρ", "only with temperature `\"auto\"`"),
    Metric("replay_volume", "rows sampled since the last refresh, divided by `effective_rows`",
           "far above 1, the same rows are repeated between two refreshes"),
    Metric("rows", "n, rows in the buffer", "`stats()` only", logged=False),
    Metric("trajectories", "trajectories with at least one row in the buffer", "`stats()` only", logged=False),
    Metric("effective_rows", "effective sample size 1/Σp²", "`stats()` only", logged=False),
    Metric("steps_since_refresh", "steps added since the weights were computed", "`stats()` only", logged=False),
    Metric("policy_version", "the oldest version of a policy that recorded episodes of this block: the online steps "
           "behind it", "only with `--collect` and `--new`; -1 if another controller acted", logged=False),
    Metric("offline_share", "share of offline rows in a batch, as set", "`annealed` only", True, False),
)  # fmt: skip
"""About replay, `replay.NAME` in metrics.csv; probabilities p are those of sampling the n rows of the buffer."""
LOGGED = tuple(metric.name for metric in REPLAY if metric.logged)
"""The columns about replay in metrics.csv, in their order, the same for all strategies."""

UPDATES = (
    Metric("value_loss", "expectile loss of V", "IQL, PEX, FamO2O"),
    Metric("critic_loss", "mean of both critics' squared temporal-difference errors; for Cal-QL their sum and its "
           "conservative terms", "all"),
    Metric("policy_loss", "loss of the policy: weighted negative log-likelihood (IQL, PEX, FamO2O), or "
           "α·log π − min Q (Cal-QL, SAC), or alpha·distillation − Q (FQL)", "all"),
    Metric("flow_loss", "flow-matching loss of the flow that clones the data", "FQL, QC-FQL"),
    Metric("distillation_loss", "mean squared distance of the one-step actor from the flow", "FQL, QC-FQL"),
    Metric("q", "mean over the batch of the smaller critic at the batch's actions", "all but Cal-QL"),
    Metric("advantage", "mean of Q − V over the batch", "IQL, PEX, FamO2O"),
    Metric("beta", "β of the advantage weights: the setting, or the one found for the batch", "IQL, PEX"),
    Metric("weight_effective", "effective sample size of the advantage weights, as a share of the batch",
           "IQL, PEX, FamO2O"),
    Metric("weight_clipped", "share of the batch whose advantage weight is at `max_weight`", "IQL, PEX, FamO2O"),
    Metric("gap", "mean of logsumexp Q over sampled actions minus Q of the batch's actions", "Cal-QL"),
    Metric("alpha", "entropy temperature", "Cal-QL, SAC"),
    Metric("entropy", "−log π of a sampled action, mean over the batch; for FamO2O of the balance model",
           "Cal-QL, SAC, FamO2O"),
    Metric("balance", "mean balance coefficient b", "FamO2O"),
    Metric("balance_loss", "loss of the balance model", "FamO2O"),
)  # fmt: skip
"""Means over a block of updates; `reading` names the agents that report them."""

EVALUATIONS = (
    Metric("episode", "number of the episode within this evaluation, from 0"),
    Metric("return", "undiscounted sum of raw rewards"),
    Metric("score", "100 · (return − low) / (high − low) with the task's reference; the return itself where there is "
           "none"),
    Metric("success", "1 if the environment reported success at any step, 0 if not; empty if it reported nothing in "
           "this evaluation"),
)  # fmt: skip
"""One row of eval.csv per episode."""

RESULTS = (
    Metric("folder", "name of the run's folder"),
    Metric("pretrained", "score of the last evaluation of pre-training"),
    Metric("last", "score of the last online evaluation"),
    Metric("best", "largest score of the evaluations after online updates. It is chosen on the same episodes it is "
           "reported on, so it is too optimistic"),
    Metric("success", "share of successful episodes in the last evaluation; empty where the environment never reports "
           "success. Where it does, an evaluation in which it says nothing had none"),
    Metric("best_step", "online step of the best evaluation; 0 if none was better than the pre-trained policy"),
    Metric("drop", "`pretrained` minus the score of the first evaluation after online updates; positive if the "
           "offline-to-online switch cost something"),
    Metric("data_mean", "mean score of the episodes in the dataset"),
    Metric("data_best", "best score of an episode in the dataset"),
    Metric("time_constants", "updates of pre-training · tau · (1 − discount): after 3 the critics have covered 95 % of "
           "their way"),
)  # fmt: skip
"""In result.json; a score is the mean over the episodes of one evaluation."""


# ---- loggers ---------------------------------------------------------------------------------------------------------
@contextmanager
def with_loggers(
    tell: Tell, folder: Path, config: Mapping[str, Any], tensorboard: bool = False, **projects: str | None
) -> Iterator[Tell]:
    """A `tell` that also informs the loggers asked for; `projects` are those of `wandb` and `trackio`."""
    with ExitStack() as opened:
        tells = [tell]
        if tensorboard:
            tells.append(opened.enter_context(_tensorboard(folder)))
        for name, project in projects.items():
            if project:
                tells.append(opened.enter_context(_tracker(name, folder, project, config)))

        def tell_all(phase: str, step: int, total: int, metrics: dict[str, float]) -> None:
            for each in tells:
                each(phase, step, total, metrics)

        yield tell_all


def _library(option: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f"--{option} needs {module}: install arb with its extra {option!r}") from None


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Tell]:
    with _library("tensorboard", "tensorboardX").SummaryWriter(str(RunFolder(folder).tensorboard)) as writer:

        def tell(phase: str, step: int, _total: int, metrics: dict[str, float]) -> None:
            for name, value in metrics.items():
                writer.add_scalar(f"{phase}/{name}", value, step)

        yield tell


@contextmanager
def _tracker(name: str, folder: Path, project: str, config: Mapping[str, Any]) -> Iterator[Tell]:
    """Weights & Biases, or trackio, which has the same functions."""
    library, own, advice = _library(name, name), {}, ""
    if name == "wandb":
        (folder.parent / ".wandb").mkdir(parents=True, exist_ok=True)  # where there is one, its files go there
        own = {"dir": str(folder.parent), "id": folder.name}
        advice = "; or set WANDB_MODE=offline"
    try:
        logged = library.init(project=project, name=folder.name, resume="allow", config=dict(config), **own)
    except Exception as problem:  # whatever its login, its server or its disk raises
        raise DataError(f"--{name}: {first_line(problem).rstrip('.')}{advice}") from None

    def tell(phase: str, step: int, _total: int, metrics: dict[str, float]) -> None:
        logged.log({f"{phase}/{name}": value for name, value in metrics.items()} | {f"{phase}/step": step})

    try:
        yield tell
    finally:
        logged.finish()
