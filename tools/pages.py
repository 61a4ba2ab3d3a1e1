"""Write the parts of the documentation that are made from the code: `python tools/pages.py`.

- docs/reference/settings.md, from the table of settings;
- docs/reference/metrics.md, from the tables of metrics;
- the tables in docs/suite.md, from the ladders that ship with the package, and from src/arb/suite/datasets.csv, which
  `python benchmarks/suite.py` writes.

`python tools/results/build.py` writes the parts that come from the archives in results/. `tests/test_docs.py` compares
what is committed with what this script gives.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    r"""A Markdown table.

    >>> print(table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    text[1] = f"|{'---|' * len(columns)}"
    return "\n".join(text)


def transparent_svg(figure: Any) -> bytes:
    """A figure as SVG with a transparent ground and text that stays text, for a page in the repository."""
    import matplotlib

    from arb.report.plots import FORMATS

    with matplotlib.rc_context({"svg.hashsalt": "arb", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file := io.BytesIO(), format="svg", metadata=dict(FORMATS["svg"]), transparent=True)
    return file.getvalue()


# ---- settings --------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """The page of all settings."""
    from arb.lab.agents import AGENTS
    from arb.lab.config import PRESETS, configure, settings_table
    from arb.lab.strategies import STRATEGIES

    def rows(agent: str, *groups: str, strategy: str = "arb") -> Iterator[list[str]]:
        for row in settings_table(configure(agent=agent, strategy=strategy, preset="paper")):
            if row.name.partition(".")[0] in groups:
                yield [f"`{row.name}`", _type(row.type), _value(row.default), row.meaning]

    head = ["setting", "type", "default", "meaning"]
    presets = []
    for name, (plan, when, tau) in PRESETS.items():
        numbers = (plan.pretrain, plan.online, plan.collect, when.every, when.episodes, plan.batch)
        presets.append([f"`{name}`", *(f"{n:,}" for n in numbers), _value(tau) if tau else "the agent's"])
    parts = [
        "# Settings",
        "<!-- Written by tools/pages.py from the table of settings; do not edit. -->",
        "Every setting of a run has a name. Give it to `arb run`, `arb sweep` and `arb compare` as `NAME=VALUE`,\n"
        'or from Python as `settings={"NAME": value}`. `arb run --settings` prints the table for one agent, strategy\n'
        "and preset.\n"
        "The defaults here are those of `--preset paper` on a locomotion task.",
        "## The run",
        table(head, rows("iql", "task", "env", "agent", "seed")),
        "`--task`, `--env`, `--agent`, `--strategy` and `--seed` set these.",
        "## Schedule and evaluation",
        table(head, rows("iql", "schedule", "evaluation")),
        "Presets replace some of them:",
        table(
            [
                "`--preset`",
                "updates offline",
                "steps online",
                "steps per block",
                "evaluated every",
                "episodes",
                "batch",
                "`settings.tau`",
            ],
            presets,
        ),
        "## Preprocessing",
        table(head, rows("iql", "preprocessing")),
        "## Replay",
        "`--strategy` chooses the strategy, and each has its own settings: the arguments of its sampler. λ of ARB is\n"
        "the release's for the agent and the task family, unless it is given.",
    ]
    for name, strategy in STRATEGIES.items():
        if strategy.reads:
            parts += [f"With `--strategy {name}`:", table(head, list(rows("iql", "replay", strategy=name))[1:])]
    for name, agent in AGENTS.items():
        parts += [f"## {agent.label}", f"With `--agent {name}`:", table(head, rows(name, "settings")), *_family(name)]
    return "\n\n".join(parts) + "\n"


# ---- metrics ---------------------------------------------------------------------------------------------------------
def metrics_page() -> str:
    """The page of all metrics."""
    from arb.lab import metrics

    def rows(some: Iterable[Any], *columns: str) -> str:
        body = ([f"`{one.name}`", one.definition, one.reading][: len(columns) + 1] for one in some)
        return table(["name", *columns], body)

    return "\n\n".join([
        "# Metrics",
        "<!-- Written by tools/pages.py from arb.lab.metrics; do not edit. -->",
        "Every column of `metrics.csv`, every key of `buffer.stats()`, every column of `eval.csv` and every value of "
        "`result.json`.\nWhat is not measured is empty or `nan`.",
        "## Replay",
        "In `metrics.csv` they are called `replay.NAME` and are written once per block of updates while fine-tuning. "
        "`buffer.stats()`\ngives the same metrics by `NAME`. Probabilities p are those of sampling the n rows of the "
        "buffer.",
        rows(metrics.REPLAY, "definition", "how to read it"),
        "## Updates",
        "Means over a block of updates.",
        rows(metrics.UPDATES, "definition", "agents"),
        "`phase` is `pretrain` or `online`. `step` counts updates while pre-training and environment steps while "
        "fine-tuning.",
        "## Evaluations",
        "One row of `eval.csv` per episode, with `phase` and `step` as above.",
        rows(metrics.EVALUATIONS, "definition"),
        "## Results",
        "`result.json`, and the value of `arb.run` in Python. A score is the mean over the episodes of one evaluation.",
        rows(metrics.RESULTS, "definition"),
    ]) + "\n"  # fmt: skip


def _family(agent: str) -> list[str]:
    """What differs on AntMaze tasks."""
    from arb.lab.agents import AGENTS

    tuned = AGENTS[agent].tuned
    usual, maze = (tuned[name].settings if name in tuned else {} for name in ("locomotion", "antmaze"))
    other = [f"`settings.{leaf}={_bare(value)}`" for leaf, value in maze.items() if usual.get(leaf) != value]
    return ["On AntMaze tasks the defaults are " + ", ".join(other) + "."] if other else []


def _bare(value: Any) -> str:
    return "(" + ",".join(map(str, value)) + ")" if isinstance(value, tuple) else str(value)


def _value(value: Any) -> str:
    return f"`{_bare(value)}`" if value != "" else ""


def _type(name: str) -> str:
    return f"`{name}`" if "[" in name else name


# ---- the suite -------------------------------------------------------------------------------------------------------


def ladder_table() -> str:
    """Every level of every ladder that ships with the package."""
    from arb.data.tasks import env_reference, normalised
    from arb.suite.ladders import LADDERS, read_ladder

    rows = []
    for robot in sorted(path.stem for path in LADDERS.glob("*.npz")):
        ladder = read_ladder(robot)
        reference = env_reference(ladder.env)
        for level in ladder.levels.values():
            score = f"{float(normalised(level.sampled, reference)):.1f}" if reference else ""
            rows.append([robot, level.name, f"{level.steps:,}", f"{level.sampled:,.0f}", score, f"{level.mode:,.0f}"])
    head = ["robot", "level", "SAC steps", "return, sampled actions", "score", "return, mean actions"]
    return table(head, rows)


def dataset_table(text: str) -> str:
    """The published table of datasets, without the versions that recorded them."""
    head, *rows = (row[:-1] for row in csv.reader(io.StringIO(text)))
    return table(head, [[f"`{name}`", *(f"{int(x):,}" if x.isdecimal() else x for x in rest)] for name, *rest in rows])


def filled(page: str, name: str, content: str) -> str:
    """A page with other text between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no place for {name}")
    return f"{before}{begin}{content}\n{end}{after}"


REFERENCE = ROOT / "results" / "offline" / "reference.jsonl"
LAST = 5
"""Evaluations whose mean is a reference score: single ones swing."""


def reference_scores() -> dict[str, dict[str, list[float]]]:
    """By dataset and learner, one score per seed: the mean of the last evaluations of pre-training."""
    from arb.report.records import read_runs

    found: dict[str, dict[str, list[float]]] = {}
    for run in read_runs([REFERENCE]).done:
        learner = "behaviour cloning" if run.config["settings.beta"] == 0 else "IQL"
        score = float(run.curves["pretrain"].means[-LAST:].mean())
        found.setdefault(run.task, {}).setdefault(learner, []).append(score)
    return found


def reference_csv() -> str:
    """The reference scores for programs."""
    lines = [f"{task},{learner},{seed},{score:.2f}"
             for task, learners in reference_scores().items() for learner, scores in sorted(learners.items())
             for seed, score in enumerate(scores)]  # fmt: skip
    return "\n".join(["dataset,learner,seed,score", *lines]) + "\n"


def reference_table() -> str:
    """The reference scores for people."""
    from arb.data.tasks import SUITE

    found = reference_scores()
    rows = [[f"`{task}`", *(_spread(found[task].get(learner, [])) for learner in ("behaviour cloning", "IQL"))]
            for task in SUITE if task in found]  # fmt: skip
    return table(["dataset", "behaviour cloning", "IQL"], rows)


def _spread(scores: list[float]) -> str:
    """Mean and range over seeds."""
    if not scores:
        return ""
    mean = f"{sum(scores) / len(scores):.1f}"
    return mean if len(scores) == 1 else f"{mean} ({min(scores):.1f} to {max(scores):.1f})"


def suite_page() -> str:
    """docs/suite.md with its tables brought up to date."""
    from arb.suite.datasets import PUBLISHED

    page = filled((DOCS / "suite.md").read_text(), "ladders", ladder_table())
    page = filled(page, "datasets", dataset_table(PUBLISHED.read_text()))
    return filled(page, "scores", reference_table()) if REFERENCE.exists() else page


def pages() -> dict[Path, str]:
    """All texts that this script writes."""
    return {
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        DOCS / "suite.md": suite_page(),
        **({DOCS / "suite-scores.csv": reference_csv()} if REFERENCE.exists() else {}),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
