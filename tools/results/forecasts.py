"""What results/forecasts.md expects, and what came: a judge for every numbered sentence."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tools.pages import table

from arb.report import stats
from arb.report.records import MEASURES, Record

Judgement = tuple[bool | None, str]
"""Whether it came as expected, None if the runs cannot tell yet, and what came."""
LAST = 5
"""Evaluations whose mean is an offline score, as in docs/suite.md."""
WORDS = {True: "as expected", False: "**not so**", None: "not known yet"}


# ---- runs by dataset -------------------------------------------------------------------------------------------------
def paired(runs: Sequence[Record], ours: str, theirs: str, part: str = "") -> dict[str, np.ndarray]:
    """By dataset whose name has this part: differences in area, one per seed, between runs with the same start."""
    base = {stats.shared_start(run): run for run in runs if run.strategy == theirs}
    found: dict[str, list[float]] = {}
    for run in runs:
        other = base.get(stats.shared_start(run))
        if run.strategy == ours and other and of_kind(run.task, part):
            found.setdefault(run.task, []).append(MEASURES["area"].of(run) - MEASURES["area"].of(other))
    return {task: np.array(values) for task, values in found.items()}


def of_kind(task: str, part: str) -> bool:
    """Whether a dataset has this quality; `medium` is not `medium-expert`."""
    return not part or bool(re.search(rf"-{part}(-b)?$", task))


def means(differences: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {task: float(values.mean()) for task, values in differences.items()}


def listed(numbers: Mapping[str, float], signed: bool = True) -> str:
    style = "+.1f" if signed else ".1f"
    return ", ".join(f"{task.removeprefix('suite:')} {x:{style}}" for task, x in sorted(numbers.items()))


def whole(numbers: Mapping[str, float], datasets: int, judged: bool, said: str = "") -> Judgement:
    """A judgement that needs all datasets: before that it can only fail, and only where one dataset is enough."""
    text = said or listed(numbers)
    return (None if len(numbers) < datasets else judged), text or "no run yet"


def offline_scores(runs: Sequence[Record], part: str = "") -> dict[str, dict[str, float]]:
    """By learner and dataset, mean over seeds: the last evaluations of pre-training."""
    found: dict[str, dict[str, list[float]]] = {"cloning": {}, "iql": {}, "auto": {}}
    for run in runs:
        beta = run.config.get("settings.beta")
        learner = "auto" if beta == "auto" else "cloning" if beta == 0 else "iql"
        if part in run.task and "pretrain" in run.curves:
            score = float(run.curves["pretrain"].means[-LAST:].mean())
            found[learner].setdefault(run.task, []).append(score)
    return {learner: {task: float(np.mean(v)) for task, v in tasks.items()} for learner, tasks in found.items()}


# ---- the judges ------------------------------------------------------------------------------------------------------
def iql_above_cloning(runs: Sequence[Record]) -> Judgement:
    found = offline_scores([run for run in runs if "antmaze" not in run.task])
    both = {task: score - found["cloning"][task] for task, score in found["iql"].items() if task in found["cloning"]}
    return whole(both, 12, all(x >= -5 for x in both.values()), f"IQL minus cloning: {listed(both)}" if both else "")


def expert_scores(runs: Sequence[Record]) -> Judgement:
    found = {t: x for t, x in offline_scores(runs, "medium-expert")["iql"].items() if "hopper" in t or "walker2d" in t}
    return whole(found, 2, all(x >= 85 for x in found.values()), listed(found, False))


def random_scores(runs: Sequence[Record]) -> Judgement:
    found = offline_scores(runs, "-random")
    highest = {task: max(found[k][task] for k in ("cloning", "iql") if task in found[k]) for task in found["iql"]}
    return whole(highest, 3, all(x < 10 for x in highest.values()), listed(highest, False))


def cloned_maze(runs: Sequence[Record]) -> Judgement:
    found = offline_scores(runs, "antmaze-umaze-play")["cloning"]
    return whole(found, 1, all(45 <= x <= 70 for x in found.values()), listed(found, False))


def solved_mazes(runs: Sequence[Record]) -> Judgement:
    found = {task: x for task, x in offline_scores(runs, "antmaze")["iql"].items() if "large" not in task}
    small = [x for task, x in found.items() if "umaze" in task]
    medium = [x for task, x in found.items() if "medium-play" in task]
    good = all(x >= 80 for x in small) and all(x >= 60 for x in medium)
    return (good if small and medium else None), listed(found, False) or "no run yet"


def automatic_beta(runs: Sequence[Record]) -> Judgement:
    found = offline_scores(runs, "antmaze")
    both = {task: x - found["iql"][task] for task, x in found["auto"].items() if task in found["iql"]}
    return whole(both, 1, all(x >= 0 for x in both.values()), f"minus β = 10: {listed(both)}" if both else "")


def mixed_gain(runs: Sequence[Record]) -> Judgement:
    found = means(paired(runs, "arb_auto", "naive", "mixed"))
    return whole(found, 3, all(x > 0 for x in found.values()) and sum(found.values()) >= 10 * len(found))


def expert_ceiling(runs: Sequence[Record]) -> Judgement:
    start = {run.task: MEASURES["pretrained"].of(run) or 0.0 for run in runs}
    found = {}
    for ours in ("arb", "arb_auto"):
        for task, x in means(paired(runs, ours, "naive", "medium-expert")).items():
            if start[task] >= 95:
                found[task] = max(x, found.get(task, x), key=abs)
    if not found:
        return None, "no pre-trained agent was within 5 points of the expert" if runs else "no run yet"
    return all(abs(x) <= 5 for x in found.values()), listed(found)


def small_differences(runs: Sequence[Record]) -> Judgement:
    found = means(paired(runs, "arb_auto", "naive", "medium")) | means(paired(runs, "arb_auto", "naive", "random"))
    return whole(found, 6, all(abs(x) < 3 for x in found.values()))


def offline_at_naive(runs: Sequence[Record]) -> Judgement:
    found = means(paired(runs, "offline", "naive"))
    ahead = sum(x >= 0 for x in found.values())
    return whole(found, 12, ahead >= 8, f"on {ahead} of {len(found)}: {listed(found)}" if found else "")


def above_offline(runs: Sequence[Record]) -> Judgement:
    mixed, expert = (means(paired(runs, "arb_auto", "offline", kind)) for kind in ("mixed", "medium-expert"))
    good = all(x > 0 for x in mixed.values()) and all(x <= 0 for x in expert.values())
    return whole({**mixed, **expert}, 6, good)


def between(runs: Sequence[Record]) -> Judgement:
    arb, auto = (means(paired(runs, ours, "naive", "mixed")) for ours in ("arb", "arb_auto"))
    shared = arb.keys() & auto.keys()
    text = f"ARB {listed(arb)}; ARB auto {listed(auto)}" if shared else ""
    return whole(dict.fromkeys(shared, 0.0), 3, all(0 <= arb[task] <= auto[task] for task in shared), text)


def mean_gain(runs: Sequence[Record]) -> Judgement:
    found = paired(runs, "arb_auto", "naive")
    if len(found) < 2:
        return None, "no interval yet"
    mean, low, high = stats.t_interval(stats.headline(list(found.values())))
    text = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] over {len(found)} datasets"
    return (bool(low is not None and low > 0) if len(found) >= 12 else None), text


# ---- plain TD3 and SAC: rows as benchmarks/own_code.py writes them ---------------------------------------------------
SEEDS = 5
AUTO, HALF, UNIFORM_CRITICS = "arb_auto 0.25", "arb_auto 0.5", "uniform critics"


def minus_uniform(rows: Sequence[Any], agent: str, strategy: str) -> np.ndarray:
    """One difference per seed: the mean of the online curve minus that of uniform sampling."""
    area = {(row["strategy"], row["seed"]): np.mean(row["curve"]) for row in rows if row["agent"] == agent}
    seeds = sorted(seed for name, seed in area if name == strategy and ("uniform", seed) in area)
    return np.array([area[strategy, seed] - area["uniform", seed] for seed in seeds])


def by_seed(apart: np.ndarray) -> str:
    return f"{apart.mean():+.0f} ({', '.join(f'{x:+.0f}' for x in apart)})"


def td3_loses(rows: Sequence[Any]) -> Judgement:
    apart = minus_uniform(rows, "td3", AUTO)
    if not len(apart):
        return None, "no run yet"
    below = int((apart < 0).sum())
    return (below >= 4 if len(apart) >= SEEDS else None), f"below in {below} of {len(apart)} seeds: {by_seed(apart)}"


def sac_alike(rows: Sequence[Any]) -> Judgement:
    apart = minus_uniform(rows, "sac", AUTO)
    if len(apart) < 2:
        return None, "no interval yet"
    mean, low, high = stats.t_interval([apart])
    came = bool(low is not None and high is not None and low <= 0.0 <= high)
    return (came if len(apart) >= SEEDS else None), f"{mean:+.0f} [{low:+.0f}, {high:+.0f}] over {len(apart)} seeds"


def half_costs_less(rows: Sequence[Any]) -> Judgement:
    both = {agent: [minus_uniform(rows, agent, name) for name in (HALF, AUTO)] for agent in ("td3", "sac")}
    both = {agent: pair for agent, pair in both.items() if all(len(apart) for apart in pair)}
    text = "; ".join(f"{agent} {half.mean():+.0f} against {auto.mean():+.0f}" for agent, (half, auto) in both.items())
    whole = len(both) == 2 and min(len(apart) for pair in both.values() for apart in pair) >= SEEDS
    return (all(half.mean() > auto.mean() for half, auto in both.values()) if whole else None), text or "no run yet"


def critics_repair(rows: Sequence[Any]) -> Judgement:
    wanted = [("td3", AUTO), ("td3", UNIFORM_CRITICS)]
    first, second = ({row["seed"] for row in rows if (row["agent"], row["strategy"]) == pair} for pair in wanted)
    rows = [row for row in rows if row["seed"] in first & second]
    auto, repaired = (minus_uniform(rows, "td3", name) for name in (AUTO, UNIFORM_CRITICS))
    if not len(auto) or not len(repaired):
        return None, "no run yet"
    text = f"TD3 {repaired.mean():+.0f} against {auto.mean():+.0f} over {len(auto)} seeds"
    if auto.mean() >= 0.0:
        return None, f"there was no loss to take away: {text}"
    return (bool(repaired.mean() >= auto.mean() / 2) if len(auto) >= SEEDS else None), text


JUDGES: Mapping[tuple[str, int], tuple[str, Callable[[Sequence[Any]], Judgement]]] = {
    ("reference", 1): ("offline", iql_above_cloning),
    ("reference", 2): ("offline", expert_scores),
    ("reference", 3): ("offline", random_scores),
    ("reference-antmaze", 1): ("offline", cloned_maze),
    ("reference-antmaze", 2): ("offline", solved_mazes),
    ("reference-antmaze", 3): ("offline", automatic_beta),
    ("locomotion", 1): ("locomotion", mixed_gain),
    ("locomotion", 2): ("locomotion", expert_ceiling),
    ("locomotion", 3): ("locomotion", small_differences),
    ("locomotion", 4): ("locomotion", offline_at_naive),
    ("locomotion", 5): ("locomotion", above_offline),
    ("locomotion", 6): ("locomotion", between),
    ("locomotion", 7): ("locomotion", mean_gain),
    ("own-code", 1): ("own-code", td3_loses),
    ("own-code", 2): ("own-code", sac_alike),
    ("own-code", 3): ("own-code", half_costs_less),
    ("own-code", 4): ("own-code", critics_repair),
}
"""By campaign and number of the sentence: the archive that it is about, and the judge."""


def sentences(text: str) -> dict[tuple[str, int], str]:
    """The numbered sentences of a page of forecasts, by the campaign in the heading above them."""
    found: dict[tuple[str, int], str] = {}
    campaign = ""
    for line in text.splitlines():
        heading, item = re.match(r"### `([\w-]+)`", line), re.match(r"(\d+)\. (.*)", line)
        campaign = heading[1] if heading else campaign
        if item:
            found[campaign, int(item[1])] = item[2]
    return found


def judged(text: str, runs: Mapping[str, Sequence[Any]]) -> str:
    """A table of all sentences with what came; one without a judge is told apart."""
    rows = []
    for (campaign, number), sentence in sentences(text).items():
        archive, judge = JUDGES.get((campaign, number), ("", None))
        came, said = judge(runs.get(archive, ())) if judge else (None, "")
        rows.append([f"`{campaign}` {number}", sentence, WORDS[came] if judge else "not judged by a program", said])
    if not rows:
        return "Nothing was written down."
    head = "Written down before the runs, in `results/forecasts.md`."
    return f"{head}\n\n{table(['campaign', 'expected', 'came', 'what came'], rows)}"
