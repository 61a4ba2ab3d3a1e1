"""Write this repository's results from the archives in results/: `python tools/results/build.py`.

- docs/results.md, the answer, and its figure; docs/results/NAME.md, all tables and figures of one archive;
- the part of README.md that is about results.

Archives in folders below results/ are not on these pages: `first-edition` was made with agents that did not work,
`offline` holds the reference scores of docs/suite.md, `own-code` what forecasts about plain TD3 and SAC are judged by.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.pages import ROOT, filled, table, transparent_svg
from tools.results.forecasts import judged

from arb.lab.agents import agent_label
from arb.lab.machine import processor_text
from arb.lab.strategies import OURS, strategy_label
from arb.progress import count, counts
from arb.report import stats
from arb.report.page import summarise, write_files
from arb.report.plots import PALE, TITLE, agent_figures, plain, themed, tidy
from arb.report.records import ARCHIVE, MEASURES, PRIMARY, Floats, Record, Results, Runs, group_runs, read_archive
from arb.report.tables import estimated, paired_tables, score_table, steps_of

MAIN = "locomotion"
"""The archive that the answer is about."""
BASE, OFFLINE, AUTO = "naive", "offline", "arb_auto"
FIGURE = "gain"
QUALITIES = ("random", "mixed", "medium-expert", "medium")
LADDERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MADE = "<!-- Made by `python tools/results/build.py` from the archives in results/. Do not edit. -->"
_GROUNDS = {"light": ".svg", "dark": "-dark.svg"}
_SHOWN = {
    "differences": "paired differences to naive replay",
    "curves": "learning curves",
    "online-share": "online share of the batches",
}
CHANGED = """\
The first edition had 819 runs with networks of 128 units and batches of 128 rows. IQL is below behaviour cloning at
that size, and ARB auto gained most where the pre-trained agent was worst, so those runs could not tell whether it
adapts or repairs. Its headline was an interval over seeds, and training on without an environment was not among its
conditions. Those archives are kept under `results/first-edition`; `arb report results/first-edition` shows them."""
LIMITS = """\
- The datasets are the [suite](suite.md)'s, recorded by policies of one SAC run per ladder. They resemble D4RL's and are
  not D4RL's, so scores cannot be compared with published ones.
- The budget is {budget}; the paper has a million of both.
- {seeds}. An interval over datasets is about further datasets of this kind, and datasets of one ladder resemble each
  other.
- ARB auto is this library's variant. The paper fixes λ."""
VERDICTS = {
    "better": "ARB auto helps",
    "worse": "ARB auto hurts",
    "cannot tell": "we cannot tell whether ARB auto helps",
    "no difference that matters": "ARB auto makes no difference that matters",
}
COMMANDS = """\
```bash
python benchmarks/campaign.py --list                     # all campaigns; each makes one archive, named like it
python benchmarks/campaign.py locomotion --seeds 0-2     # the runs that its archive does not have yet
arb reproduce --run results/locomotion.jsonl:RUN         # one archived run again: does it agree?
arb report results                                       # an interactive page with a section per archive
python tools/results/build.py                            # this page
```"""


@dataclass(frozen=True)
class Campaign:
    """An archive. Runs of the baseline that stand in other archives are among its results, so that there are pairs."""

    name: str
    runs: tuple[Record, ...]
    """Its own, those that failed too."""
    results: Results

    @property
    def done(self) -> list[Record]:
        return [run for run in self.runs if run.status == "done"]


def read_campaigns(folder: Path) -> list[Campaign]:
    """The archives of a folder, the main one first, then those with the most datasets."""
    archives = {path.stem: tuple(read_archive(path)) for path in sorted(folder.glob(f"*{ARCHIVE}"))}
    everything = [run for runs in archives.values() for run in runs if run.status == "done"]
    found = []
    for name, runs in archives.items():
        own = {stats.shared_start(run): run for run in runs if run.strategy == BASE and run.status == "done"}
        lacking = {stats.shared_start(run) for run in runs if run.status == "done"} - own.keys()
        lent = {s: run for run in everything if run.strategy == BASE and (s := stats.shared_start(run)) in lacking}
        found.append(Campaign(name, runs, group_runs(Runs((*runs, *lent.values())))))
    return sorted(found, key=lambda one: (one.name != MAIN, -len({run.task for run in one.runs}), one.name))


# ---- differences -----------------------------------------------------------------------------------------------------
def gains(one: Campaign, agent: str, ours: str = AUTO, theirs: str = BASE, measure: str = PRIMARY) -> dict[str, Floats]:
    """By dataset the differences between two strategies, one per seed; none where one was run in several variants."""
    found = [c for c in stats.comparisons(one.results, theirs) if (c.agent, c.strategy) == (agent, ours)]
    return found[0].differences(measure) if len(found) == 1 else {}


def interval(differences: stats.ByTask) -> str:
    return estimated(stats.t_interval(differences)).shown()


def headline(differences: Sequence[Floats], last: Sequence[Floats]) -> str:
    """A difference over datasets, with all that belongs beside it."""
    means = [float(values.mean()) for values in differences]
    text = f"{interval(stats.headline(differences))} points of area and {interval(stats.headline(last))} at the last"
    if len(means) < 2:
        return f"{text} evaluation ({count(len(differences[0]), 'seed')} of one dataset)"
    better = f"a gain on {sum(mean > 0 for mean in means)} of {len(means)} datasets"
    over = f"intervals over datasets; of the area over seeds {interval(differences)}"
    return f"{text} evaluation ({over}), median {np.median(means):+.1f}, {better}"


def says(differences: Sequence[Floats]) -> stats.Verdict:
    units = stats.headline(differences)
    return stats.verdict(units, stats.p_value(units))


def quality(task: str) -> str:
    return next((name for name in QUALITIES if f"-{name}" in task), "other")


def ladder(task: str) -> str:
    """The run of SAC that recorded a dataset: the robot, and `b` for its second ladder."""
    robot = task.partition(":")[2].partition("-")[0] or task.partition("-")[0]
    return f"{robot}-b" if task.endswith("-b") else robot


def _by(part: Callable[[str], str], differences: Mapping[str, Floats]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for task, values in differences.items():
        found.setdefault(part(task), []).append(float(values.mean()))
    return found


def mean_score(one: Campaign, agent: str, task: str, of: Callable[[Record], float | None]) -> float | None:
    """Of a number of runs of naive replay, mean over seeds."""
    groups = [group for group in one.results.of(agent, task) if group.finished and group.strategy == BASE]
    values = [value for group in groups for run in group.runs if (value := of(run)) is not None]
    return float(np.mean(values)) if values else None


def data_mean(run: Record) -> float | None:
    value = run.data.get("mean_return")
    if not isinstance(value, int | float):
        return None
    low, high = run.reference or (0.0, 100.0)
    return 100.0 * (value - low) / (high - low)


# ---- the page --------------------------------------------------------------------------------------------------------
def answer(one: Campaign, agent: str = "iql") -> str:
    """Does it help, when, when not, and is it better than no environment at all: in sentences."""
    area = gains(one, agent)
    if not area:
        return "No pair of runs with ARB auto and naive replay has finished yet, so there is no answer."
    words = VERDICTS[says(list(area.values()))]
    last = list(gains(one, agent, measure="last").values())
    lines = [f"**On average {words}**: against naive replay {headline(list(area.values()), last)}."]
    kinds, ladders = (_by(part, area) for part in (quality, ladder))
    kinds = {kind: x for kind, x in kinds.items() if len(x) > 1}  # one dataset does not speak for its kind
    helped = {kind: x for kind, x in kinds.items() if min(x) > 0 and np.mean(x) >= stats.MARGIN}
    hurt = {kind: x for kind, x in kinds.items() if max(x) < 0 and np.mean(x) <= -stats.MARGIN}
    for title, chosen in (("It helps", helped), ("It hurts", hurt)):
        parts = [f"on {k} data ({np.mean(x):+.1f} on average, {count(len(x), 'dataset')})" for k, x in chosen.items()]
        none = (
            f"on no kind of data by {stats.MARGIN:g} points or more"
            if kinds
            else "on no kind of data that two datasets speak for"
        )
        lines.append(f"**{title}** {' and '.join(parts) or none}.")
    lines.append("By ladder: " + ", ".join(f"{name} {np.mean(x):+.1f}" for name, x in ladders.items()) + ".")
    alone = list(gains(one, agent, theirs=OFFLINE).values())
    if alone:
        lines.append(
            "**Against training on without an environment** (the same updates, from the dataset alone) ARB auto has "
            f"{headline(alone, list(gains(one, agent, theirs=OFFLINE, measure='last').values()))}."
        )
    naive = list(gains(one, agent, OFFLINE, BASE).values())
    if naive:
        ahead = sum(values.mean() >= 0 for values in naive)
        lines.append(f"That training is at or above naive replay on {ahead} of {count(len(naive), 'dataset')}.")
    return " ".join(lines)


def main_table(one: Campaign, agent: str) -> str:
    """One row per dataset: where it starts, the areas of the strategies, and the gain of ARB auto."""
    order = ("naive", "parallel", "top_n", "berb", "arb", "arb_auto", "offline")
    there = [s for s in order if any(group.strategy == s for group in one.results.of(agent))]
    area, last = gains(one, agent), gains(one, agent, measure="last")
    tasks = sorted(one.results.tasks(agent), key=lambda task: (*QUALITIES, "other").index(quality(task)))
    rows = []
    for task in tasks:
        start = [mean_score(one, agent, task, of) for of in (data_mean, MEASURES["pretrained"].of)]
        cells = {g.strategy: g.values("area").mean() for g in one.results.of(agent, task) if g.finished}
        numbers = ["" if x is None else f"{x:.1f}" for x in (*start, *(cells.get(s) for s in there))]
        both = [interval([d[task]]) if task in d else "" for d in (area, last)]
        rows.append([task.removeprefix("suite:"), *numbers, *both, str(len(area.get(task, ())))])
    names = [strategy_label(s) for s in there]
    head = ["dataset", "data", "pre-trained", *names, "gain, area", "gain, last", "seeds"]
    return (
        f"{table(head, rows)}\n\nScores: the mean of the data, the pre-trained agent, by strategy the area under the "
        "online curve (the score at an average step). Gain: ARB auto minus naive replay from the same pre-trained "
        "agent, with Student's 95% interval over seeds where there are two or more."
    )


def gain_figure(one: Campaign, agent: str) -> Figure | None:
    """The gain per dataset against how far the pre-trained agent is below its data."""
    points = []
    for task, values in gains(one, agent).items():
        start = [mean_score(one, agent, task, of) for of in (data_mean, MEASURES["pretrained"].of)]
        if start[0] is not None and start[1] is not None:
            points.append((start[0] - start[1], float(values.mean()), task))
    if not points:
        return None
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(ladder(task) for *_, task in points))
    for x, y, task in points:
        colour = LADDERS[names.index(ladder(task)) % len(LADDERS)]
        axes.plot([x], [y], "o", color=colour)
        axes.annotate(plain(task.removeprefix("suite:")), (x, y), (5, 3), textcoords="offset points", fontsize=7.5)
    axes.axhline(0.0, color=PALE, linewidth=1)
    axes.axvline(0.0, color=PALE, linestyle=":", linewidth=1)
    axes.margins(x=0.15)
    axes.set_xlabel("mean score of the data minus that of the pre-trained agent")
    axes.set_ylabel("gain of ARB auto over naive replay, points of area")
    tidy(axes)
    x, y = np.array([point[:2] for point in points]).T
    spread = len(points) > 2 and x.std() > 0 and y.std() > 0
    said = f", correlation {np.corrcoef(x, y)[0, 1]:+.2f}" if spread else ""
    figure.suptitle(f"{agent_label(agent)}: gain by dataset{said}", **TITLE)
    return figure


def losses(campaigns: Sequence[Campaign]) -> str:
    """Every dataset on which ARB or ARB auto is below naive replay, or below training on without an environment."""
    lines = []
    for one in campaigns:
        for agent in one.results.agents():
            for ours in OURS:
                for theirs in (BASE, OFFLINE):
                    found = {
                        task: values
                        for task, values in gains(one, agent, ours, theirs).items()
                        if values.mean() < -0.05
                    }
                    worst = sorted(found, key=lambda task: found[task].mean())
                    if found:
                        listed = ", ".join(f"{task.removeprefix('suite:')} {interval([found[task]])}" for task in worst)
                        who = f"{agent_label(agent)}, {strategy_label(ours)} minus {strategy_label(theirs)}"
                        lines.append(f"- `{one.name}`, {who}: {listed}.")
    return "\n".join(lines) or "On no dataset so far."


def archive_table(campaigns: Sequence[Campaign]) -> str:
    """One row per archive and agent: how much there is, and ARB auto against naive replay."""
    rows = []
    for one in campaigns:
        for agent in one.results.agents():
            runs = [run for run in one.done if run.agent == agent]
            area, last = (list(gains(one, agent, measure=measure).values()) for measure in (PRIMARY, "last"))
            means = [float(values.mean()) for values in area]
            gained = f"{sum(mean > 0 for mean in means)} of {len(means)}"
            told = [interval(stats.headline(area)), interval(area), f"{np.median(means):+.1f}", gained] if area else []
            told += [interval(stats.headline(last)), says(area)] if area else [""] * 6
            seeds = counts({len({r.seed for r in runs if r.task == task}) for task in {r.task for r in runs}}, "seed")
            size = [
                str(len(runs)),
                str(len({run.task for run in runs})),
                seeds.partition(" seed")[0],
                f"{hours(runs):.1f}",
            ]
            rows.append([f"[`{one.name}`](results/{one.name}.md)", agent_label(agent), *size, *told])
    head = ["archive", "agent", "runs", "datasets", "seeds", "core-hours", "ARB auto minus naive, area", "over seeds",
            "median", "gain on", "last evaluation", "by area"]  # fmt: skip
    return table(head, rows)


def hours(runs: Sequence[Record]) -> float:
    """Wall time on one core each; a pre-training that strategies share counts once."""
    shared = {(r.agent, r.task, r.seed, r.seconds.get("pretrain", 0.0)) for r in runs}
    return (
        sum((r.minutes or 0.0) * 60.0 - r.seconds.get("pretrain", 0.0) for r in runs) / 3600.0
        + sum(s[3] for s in shared) / 3600.0
    )


def results_page(
    campaigns: Sequence[Campaign], expected: str, offline: Sequence[Record] = (), own_code: Sequence[Any] = ()
) -> str:
    """The main page, correct also with few runs."""
    parts = ["# Results", _MADE]
    parts.append("**Question.** Does adaptive replay help when an agent that works is fine-tuned online, and when?")
    if not any(one.done for one in campaigns):
        parts.append("**Answer.** No run has finished yet.")
    else:
        main = campaigns[0]
        agent = main.results.agents()[0]
        runs = main.done
        parts.append(f"**Answer.** {answer(main, agent)}")
        parts += [pictured(FIGURE, "gain of ARB auto by dataset")] if gain_figure(main, agent) else []
        parts += [
            f"## By dataset\n\n{agent_label(agent)}, [archive `{main.name}`](results/{main.name}.md):",
            main_table(main, agent),
        ]
        parts.append(f"## What was run\n\n{archive_table(campaigns)}")
    found = {one.name: one.done for one in campaigns} | {"offline": list(offline), "own-code": list(own_code)}
    parts.append(f"## What was expected, and what came\n\n{judged(expected, found)}")
    if any(one.done for one in campaigns):
        parts.append(f"## Where it loses\n\n{losses(campaigns)}")
        seeds = counts((len(group.runs) for group in main.results.of(agent) if group.finished), "seed")
        told = LIMITS.format(budget=steps_of(main.results.of(agent)), seeds=f"{seeds} per dataset and strategy")
        machine = f"Processor: {summarise(processor_text(run.machine) for run in runs)}."
        parts.append(f"## Limits\n\n{told}\n- {machine}")
    parts += [f"## Against the first edition\n\n{CHANGED}", f"## Commands\n\n{COMMANDS}"]
    return "\n\n".join(parts) + "\n"


def archive_page(one: Campaign, drawn: Sequence[str]) -> str:
    """All tables and figures of one archive; a note stands below the first table that it is about."""
    results = one.results
    tables = paired_tables(results)
    tables += [score_table(results, agent, measure) for agent in results.agents() for measure in ("area", "last")]
    parts = [f"# Archive `{one.name}`", _MADE, "[Back to the results](../results.md)"]
    said: set[str] = set()
    for made in tables:
        fresh = tuple(note for note in made.notes if note not in said)
        parts.append(replace(made, notes=fresh).markdown().rstrip())
        said |= set(fresh)
    parts += [pictured(name, f"{one.name}: {_SHOWN[name.rpartition('--')[2]]}", "") for name in drawn]
    parts.append("## How it was made\n\n" + _origin(one.done))
    failed = [run for run in one.runs if run.status != "done"]
    if failed:
        reasons = "; ".join(sorted({run.reason for run in failed}))
        parts.append(f"{count(len(failed), 'run')} of {len(one.runs)} failed and are in no table: {reasons}.")
    return "\n\n".join(parts) + "\n"


def _origin(runs: Sequence[Record]) -> str:
    names = sorted({name for run in runs for name in run.versions})
    versions = "; ".join(f"{name} {summarise(run.versions.get(name) for run in runs)}" for name in names)
    data = sorted({f"{run.task} {run.data_hash[:12]}" for run in runs})
    return (
        f"- {count(len(runs), 'run')}, a JSON line each with every episode's return, {hours(runs):.1f} core-hours\n"
        f"- processor: {summarise(processor_text(run.machine) for run in runs)}\n"
        f"- commit: {summarise(str(run.machine.get('commit') or '')[:12] for run in runs)}\n"
        f"- versions: {versions}\n- datasets (SHA-256): {', '.join(data)}"
    )


def pictured(name: str, title: str, folder: str = "results/") -> str:
    """A figure for light and dark pages."""
    light, dark = (f"{folder}{name}{ending}" for ending in _GROUNDS.values())
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    return f'<picture>{source}<img src="{light}" alt="{title}"></picture>'


def figures(campaigns: Sequence[Campaign]) -> Iterator[tuple[str, bytes]]:
    """Figures with their names in docs/results."""
    for ground, ending in _GROUNDS.items():
        with themed(ground):
            if campaigns and campaigns[0].done:
                main = gain_figure(campaigns[0], campaigns[0].results.agents()[0])
                if main:
                    yield FIGURE + ending, transparent_svg(main)
            for one in campaigns:
                for agent in one.results.agents():
                    for kind, figure in agent_figures(one.results, agent):
                        yield f"{one.name}-{one.results.file(agent)}--{kind}{ending}", transparent_svg(figure)


def readme(campaigns: Sequence[Campaign]) -> str:
    """One figure and three sentences."""
    done = [run for one in campaigns for run in one.done]
    if not done or not gains(campaigns[0], campaigns[0].results.agents()[0]):
        text = (
            "Not known yet for agents that work: the first runs had networks below the size at which IQL works, "
            "and those that replace them are not finished. [Results](docs/results.md) says what is there."
        )
        return textwrap.fill(text, 118, break_on_hyphens=False)
    main = campaigns[0]
    agent = main.results.agents()[0]
    area, last = gains(main, agent), gains(main, agent, measure="last")
    against = list(gains(main, agent, theirs=OFFLINE).values())
    what = f"{agent_label(agent)} on {count(len(area), 'dataset')} of the [suite](docs/suite.md)"
    parts = [
        f"{what}, {steps_of(main.results.of(agent))}: ARB auto minus naive replay is "
        f"{headline(list(area.values()), list(last.values()))} ({says(list(area.values()))})."
    ]
    if against:
        minus = f"{interval(stats.headline(against))} points of area ({says(against)})"
        parts.append(f"Minus training on without an environment it is {minus}.")
    every = "every dataset, what was expected, where it loses, and what this cannot show"
    parts.append(f"[Results](docs/results.md) has {every}.")
    plot = [pictured(FIGURE, "Gain of ARB auto by dataset", "docs/results/")] if gain_figure(main, agent) else []
    return "\n\n".join([*plot, textwrap.fill(" ".join(parts), 118, break_on_hyphens=False)])


def write_results(folder: Path, docs: Path) -> tuple[Path, ...]:
    """Write the page, a page per archive, and the figures; the same archives give the same bytes."""
    campaigns = read_campaigns(folder)
    expected = folder / "forecasts.md"
    offline = [
        run
        for path in sorted((folder / "offline").glob(f"*{ARCHIVE}"))
        for run in read_archive(path)
        if run.status == "done"
    ]
    below = dict(figures(campaigns))
    light = [name.removesuffix(".svg") for name in below if not name.endswith(_GROUNDS["dark"])]
    for one in campaigns:
        own = [
            name for kind in _SHOWN for name in light if name.startswith(f"{one.name}-") and name.endswith(f"--{kind}")
        ]
        own = [
            name
            for name in own
            if name.rpartition("--")[0] in {f"{one.name}-{one.results.file(a)}" for a in one.results.agents()}
        ]
        below[f"{one.name}.md"] = archive_page(one, own).encode()
    own_code = [
        json.loads(line)
        for path in sorted((folder / "own-code").glob(f"*{ARCHIVE}"))
        for line in path.read_text().splitlines()
    ]
    page = results_page(campaigns, expected.read_text() if expected.is_file() else "", offline, own_code)
    return write_files(
        docs, {**{f"results/{name}": content for name, content in below.items()}, "results.md": page.encode()}
    )


if __name__ == "__main__":
    written = write_results(ROOT / "results", ROOT / "docs")
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text(), "results", readme(read_campaigns(ROOT / "results"))))
    for path in sorted((ROOT / "docs" / "results").glob("*")):
        if path not in written:
            path.unlink()
    print(f"docs/results.md, {count(len(written) - 1, 'file')} below it, README.md")
