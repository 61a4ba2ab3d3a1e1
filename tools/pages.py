"""Write the parts of the documentation that are made from the code: `python tools/pages.py`.

- docs/reference/settings.md, from the table of settings;
- docs/architecture.svg, from the imports in src/arb;
- the tables in docs/suite.md, from the ladders that ship with the package, and from docs/suite.csv, which
  `python benchmarks/suite.py docs/suite.csv` writes;
- the table and the picture in docs/temperature.md, from the archive results/temperature.jsonl;
- the result in README.md, and what later seeds say in results/notes.md, from the largest archive.

`tests/test_docs.py` compares what is committed with what this script gives.
"""

from __future__ import annotations

import ast
import csv
import io
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "arb"


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


# ---- settings --------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """The page of all settings."""
    from arb.lab.algorithms import AGENTS
    from arb.lab.config import PRESETS, configure
    from arb.lab.settings import settings_table
    from arb.lab.strategies import STRATEGIES, Replay

    def rows(agent: str, *groups: str, strategy: str = "arb") -> Iterator[list[str]]:
        for row in settings_table(configure(agent=agent, strategy=strategy, preset="paper")):
            if row.name.partition(".")[0] in groups:
                yield [f"`{row.name}`", _type(row.type), _value(row.default), row.meaning]

    head = ["setting", "type", "default", "meaning"]
    readers = [
        [f"`{name}`", row.label, ", ".join(f"`replay.{leaf}`" for leaf in row.reads) or "none"]
        for name, row in STRATEGIES.items()
    ]
    presets = []
    for name, (plan, when, hidden) in PRESETS.items():
        numbers = (plan.pretrain, plan.online, plan.collect, when.every, when.episodes, plan.batch)
        presets.append([f"`{name}`", *(f"{n:,}" for n in numbers), _value(hidden) if hidden else "the agent's"])
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
                "hidden layers",
            ],
            presets,
        ),
        "## Replay",
        table(head, rows("iql", "replay")),
        "Each strategy reads only its own settings:",
        table(["`--strategy`", "name", "settings it reads"], readers),
        "λ of ARB is the paper's for the agent and the task family, unless it is given.",
    ]
    for name, strategy in STRATEGIES.items():
        if strategy.settings is not Replay:
            parts += [f"With `--strategy {name}`:", table(head, list(rows("iql", "replay", strategy=name))[1:])]
    for name, agent in AGENTS.items():
        parts += [f"## {agent.label}", f"With `--agent {name}`:", table(head, rows(name, "settings")), *_family(name)]
    return "\n\n".join(parts) + "\n"


def _family(agent: str) -> list[str]:
    """What differs on AntMaze tasks."""
    from arb.lab.algorithms import AGENTS

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


# ---- the picture of the rooms ----------------------------------------------------------------------------------------

ROOMS: Mapping[str, tuple[int, str]] = {
    # room: where its centre is from left to right, and what it is
    "cli": (418, "a module per command"),
    "api": (664, "arb.run, arb.compare"),
    "paper": (418, "the paper's experiments"),
    "sweeps": (418, "grids of runs, Ray"),
    "runs": (418, "config, Algorithm 1"),
    "data": (664, "files to episodes"),
    "report": (90, "run folders to a page"),
    "agents": (254, "IQL, Cal-QL, PEX, SAC"),
    "envs": (664, "D4RL's physics"),
    "adapters": (992, "SB3, TorchRL, d3rlpy"),
    "testing": (828, "checks for plug-ins"),
    "strategies": (520, "one row per strategy"),
    "algorithms": (404, "one row per agent"),
    "buffer": (664, "replay, NumPy alone"),
    "tasks": (450, "families and tasks"),
    "policy": (236, "the exported policy"),
    "plugins": (664, "my_module:MyAgent"),
    "progress": (828, "bars on a terminal"),
    "runfolder": (90, "the files of a run"),
    "files": (541, "writing and reading"),
    "errors": (541, "DataError"),
}
SHARED = ("errors", "files", "plugins", "progress")
"""Rooms that serve everything above them; arrows to them would hide the others."""
WIDTH, BOX, HEIGHT, ROW = 1082, 150, 42, 76


def imports() -> dict[str, set[str]]:
    """Which rooms each room imports, as the code has it."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        here = found.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            here |= {name.split(".")[1] for name in names if name.startswith("arb.")} - {room}
    return found


def arrows(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The imports that do not follow from others.

    >>> sorted(arrows({"a": {"b", "c"}, "b": {"c"}, "c": set()}))
    [('a', 'b'), ('b', 'c')]
    """

    def below(room: str) -> set[str]:
        return set().union(*({other} | below(other) for other in edges[room]))

    return {
        (room, other)
        for room, others in edges.items()
        for other in others
        if not any(other in below(between) for between in others - {other})
    }


def picture(layers: Iterable[Iterable[str]]) -> str:
    """The rooms in their layers, from the ground up, and the arrows between them, as SVG."""
    levels = [list(rooms) for rooms in layers]
    y = {room: (len(levels) - 1 - i) * ROW + 12 for i, rooms in enumerate(levels) for room in rooms}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(levels) * ROW - ROW + HEIGHT + 24}" '
        'font-family="system-ui, sans-serif" text-anchor="middle" role="img">',
        "<title>The packages of src/arb; an arrow points from a package to one that it imports</title>",
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#5b7083"/></marker></defs>',
        '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
    ]
    edges = {room: others - set(SHARED) for room, others in imports().items()}
    for room, other in sorted(arrows(edges)):
        top, bottom = y[room] + HEIGHT, y[other] - 1
        a, b, bend = ROOMS[room][0], ROOMS[other][0], (bottom - top) / 2
        lines.append(
            f'<path d="M{a},{top} C{a},{top + bend:.0f} {b},{bottom - bend:.0f} {b},{bottom}" fill="none" '
            f'stroke="#5b7083" marker-end="url(#head)"><title>{room} imports {other}</title></path>'
        )
    for room in y:
        x, purpose = ROOMS[room]
        lines += [
            f'<rect x="{x - BOX // 2}" y="{y[room]}" width="{BOX}" height="{HEIGHT}" rx="6" '
            f'fill="{"#f3f3f3" if room in SHARED else "#eaf2f8"}" stroke="#0072b2"/>',
            f'<text x="{x}" y="{y[room] + 18}" font-size="14" font-weight="600" fill="#12202b">{room}</text>',
            f'<text x="{x}" y="{y[room] + 34}" font-size="11" fill="#3c4f5e">{purpose}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


# ---- the suite -------------------------------------------------------------------------------------------------------


def ladder_table() -> str:
    """Every rung of every ladder that ships with the package."""
    from arb.data.tasks import env_reference, normalised
    from arb.suite.ladders import LADDERS, read_ladder

    rows = []
    for robot in sorted(path.stem for path in LADDERS.glob("*.npz")):
        ladder = read_ladder(robot)
        reference = env_reference(ladder.env)
        for rung in ladder.rungs.values():
            score = f"{float(normalised(rung.sampled, reference)):.1f}" if reference else ""
            rows.append([robot, rung.name, f"{rung.steps:,}", f"{rung.sampled:,.0f}", score, f"{rung.mode:,.0f}"])
    head = ["robot", "rung", "SAC steps", "return, sampled actions", "score", "return, mean actions"]
    return table(head, rows)


def set_table(text: str) -> str:
    """docs/suite.csv as a table."""
    head, *rows = csv.reader(io.StringIO(text))
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
    """By set and learner, one score per seed: the mean of the last evaluations of pre-training."""
    from arb.report.runs import read_runs

    found: dict[str, dict[str, list[float]]] = {}
    for run in read_runs([REFERENCE]).done:
        learner = "behaviour cloning" if run.config["settings.temperature"] == 0 else "IQL"
        score = float(run.curves["pretrain"].means[-LAST:].mean())
        found.setdefault(run.task, {}).setdefault(learner, []).append(score)
    return found


def reference_csv() -> str:
    """The reference scores for programs."""
    lines = [f"{task},{learner},{seed},{score:.2f}"
             for task, learners in reference_scores().items() for learner, scores in sorted(learners.items())
             for seed, score in enumerate(scores)]  # fmt: skip
    return "\n".join(["set,learner,seed,score", *lines]) + "\n"


def reference_table() -> str:
    """The reference scores for people."""
    from arb.data.tasks import SUITE

    found = reference_scores()
    rows = [[f"`{task}`", *(_spread(found[task].get(learner, [])) for learner in ("behaviour cloning", "IQL"))]
            for task in SUITE if task in found]  # fmt: skip
    return table(["set", "behaviour cloning", "IQL"], rows)


def _spread(scores: list[float]) -> str:
    """Mean and range over seeds."""
    if not scores:
        return ""
    mean = f"{sum(scores) / len(scores):.1f}"
    return mean if len(scores) == 1 else f"{mean} ({min(scores):.1f} to {max(scores):.1f})"


def suite_page() -> str:
    """docs/suite.md with its tables brought up to date."""
    page = filled((DOCS / "suite.md").read_text(), "ladders", ladder_table())
    page = filled(page, "sets", set_table((DOCS / "suite.csv").read_text()))
    return filled(page, "scores", reference_table()) if REFERENCE.exists() else page


# ---- the study of the temperature ------------------------------------------------------------------------------------

STUDY = ROOT / "results" / "temperature.jsonl"
SHOWN = "suite:hopper-mixed"
"""The set of the picture."""


def study_table(results: Any) -> str:
    """One row per strategy: the area on every set, the paired difference to naive replay, and what is replayed."""
    from arb.report import paired
    from arb.report.baseline import comparisons

    tasks = sorted(results.tasks("iql"), key=lambda task: [*SUITE_ORDER].index(task.partition("-")[2]))
    differences = {one.variant: one for one in comparisons(results, "naive")}
    rows = []
    for variant in results.variants("iql"):
        found = [results.cell(task, "iql", variant) for task in tasks]
        cells = [cell for cell in found if cell and cell.finished]
        areas = [cell.values("area").mean() if cell in cells else None for cell in found]
        against = "" if variant not in differences else _interval(paired.t_interval(
            differences[variant].over(differences[variant].normalised)))  # fmt: skip
        shares = [_end(cells, figure) for figure in ("replay.effective_share", "replay.online_share")]
        mean = None if None in areas else sum(areas) / len(areas)
        rows.append([variant, *("" if area is None else f"{area:.1f}" for area in [*areas, mean]), against, *shares])
    sets = [task.partition("-")[2] for task in tasks]
    seeds = sorted({len(cell.runs) for cell in results.cells if cell.finished})
    few = f"\n\nSeeds per cell: {seeds[0]}" + (f" to {seeds[-1]}." if len(seeds) > 1 else ".")
    return table(["", *sets, "mean", "minus Naive [95 %]", "ESS, % of rows", "online, % of a batch"], rows) + few


SUITE_ORDER = ("random", "mixed", "medium", "medium-expert")


def _interval(found: Any) -> str:
    mean, low, high = found
    return f"{mean:+.1f}" if low is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _end(cells: Iterable[Any], figure: str) -> str:
    """From where to where a replay figure reaches over the sets at the end of fine-tuning, in per cent."""
    ends = [100 * float(found[1][:, -1].mean()) for cell in cells if (found := cell.metric(figure))]
    low, high = (f"{end(ends):.0f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def study() -> Any:
    """The runs of the study."""
    from arb.report.cells import gather
    from arb.report.runs import read_runs

    return gather(read_runs([STUDY]))


def study_pictures() -> dict[Path, str]:
    """The picture of docs/temperature.md on light and on dark ground; other versions of Matplotlib give other bytes."""
    from dataclasses import replace

    from arb.report.drawing import drawing, themed
    from arb.report.figures import scores_and_shares

    found, results = {}, study()
    three = [cell for cell in results.cells if cell.task == SHOWN and cell.strategy == "arb"]
    for ground, ending in (("light", ""), ("dark", "-dark")):
        with themed(ground):
            figure = scores_and_shares(replace(results, cells=tuple(three)), "Three temperatures on one set")
            found[DOCS / f"temperature{ending}.svg"] = drawing(figure).decode()
    return found


# ---- the result in the README ----------------------------------------------------------------------------------------

CAMPAIGN = next(p for p in (ROOT / "results" / f"{name}.jsonl" for name in ("locomotion", "temperature")) if p.exists())
"""The archive whose figure and numbers the README shows."""
NOTES = ROOT / "results" / "notes.md"
REPLICATION = CAMPAIGN.with_name("rivals.jsonl")


def _compared(archive: Path) -> list[Any]:
    """What was compared with naive replay by default on all sets of an archive, IQL alone."""
    from arb.paper.claims import by_default
    from arb.report.baseline import comparisons
    from arb.report.cells import gather
    from arb.report.runs import read_runs

    found = [one for one in comparisons(gather(read_runs([archive])), "naive") if one.agent == "iql"]
    found = [one for one in found if all(by_default(run) for pairs in one.pairs.values() for run, _ in pairs)]
    sets = max(len(one.normalised) for one in found)
    return [one for one in found if len(one.normalised) == sets]


def _clauses(found: list[Any]) -> dict[str, str]:
    """By strategy: the difference to naive replay, and what may be said of it."""
    from arb.report import paired
    from arb.report.baseline import verdict

    values = {one.strategy: one.over(one.normalised) for one in found}
    corrected = paired.holm({name: paired.p_value(some) for name, some in values.items()})
    told = {}
    for one in found:
        says = verdict(values[one.strategy], corrected[one.strategy])
        mark = f" ({says})" if says in ("better", "worse") else ""
        told[one.strategy] = f"{one.variant} {_interval(paired.t_interval(values[one.strategy]))}{mark}"
    return told


def headline() -> str:
    """A figure and a few sentences: what was run, what the differences to naive replay are, and when."""
    from arb.lab.strategies import OURS
    from arb.paper.findings import by_recorders
    from arb.report import paired

    found = _compared(CAMPAIGN)
    clauses = _clauses(found)
    ours = [clauses[name] for name in OURS[::-1] if name in clauses]
    others = [clause for name, clause in clauses.items() if name not in OURS]
    (auto,) = (one for one in found if one.strategy == "arb_auto")
    several, single = (_interval(paired.t_interval(auto.over(tasks))) for tasks in by_recorders(auto.normalised))
    name = f"docs/results/{CAMPAIGN.stem}-iql-differences"
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{name}-dark.svg">'
    picture = f'<picture>{source}<img src="{name}.svg" alt="Paired differences to naive replay"></picture>'
    points = [
        f"**On average**: {'; '.join(ours)}. ARB auto is this library's variant, ARB the paper's.",
        f"**Rivals**: {'; '.join(others)}.",
        *again(),
        f"**When**: ARB auto gains {several} where several policies recorded the data, {single} where one did, a "
        "division made after the first seeds. On locomotion, its first refresh [predicts where it gains]"
        "(docs/results.md#what-the-first-refresh-predicts), with IQL and FamO2O but not with PEX.",
    ]
    first = (
        f"IQL on {len(auto.normalised)} sets of the [suite](docs/suite.md), {_seeds(found)} each, 40,000 updates "
        "offline and 40,000 steps online, a twenty-fifth of the paper's. Differences to naive replay in points of the "
        "area under the online curve, with 95 % intervals, marked where they remain after correction for the number of "
        "comparisons:"
    )
    last = "[Results](docs/results.md) has every number, where ARB loses, and what this cannot show."
    bullets = "\n".join(_filled(f"- {point}", "  ") for point in points)
    return "\n\n".join([picture, _filled(first), bullets, last])


def _seeds(found: list[Any]) -> str:
    from arb.progress import counts

    return counts((len(pairs) for one in found for pairs in one.pairs.values()), "seed")


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, break_on_hyphens=False, subsequent_indent=indent)


def again() -> list[str]:
    """The same comparison on data that was recorded anew, with other rivals."""
    if not REPLICATION.exists():
        return []
    found = _compared(REPLICATION)
    told = "; ".join(_clauses(found).values())
    return [f"**Again**, on data recorded anew on another processor, {_seeds(found)} each: {told}."]


FIRST_SEEDS = 3
"""Seeds from which the division by recorders was made; later ones test it."""


def later_seeds() -> str:
    """ARB auto minus naive replay by who recorded the data, with seeds that were run after the division was made."""
    import numpy as np

    from arb.paper.findings import by_recorders
    from arb.report import paired
    from arb.report.baseline import comparisons
    from arb.report.cells import gather
    from arb.report.runs import read_runs

    results = gather(read_runs([CAMPAIGN]))
    (auto,) = (one for one in comparisons(results, "naive") if (one.agent, one.strategy) == ("iql", "arb_auto"))
    later: dict[str, Any] = {}
    seeds = set()
    for task, values in auto.differences().items():
        own = [(run.seed, value) for (run, _), value in zip(auto.pairs[task], values, strict=True)]
        later[task] = np.array([value for seed, value in own if seed >= FIRST_SEEDS])
        seeds |= {seed for seed, _ in own if seed >= FIRST_SEEDS}
    if not seeds:
        return "They have not been run yet."
    several, single = ([later[task] for task in tasks if len(later[task])] for tasks in by_recorders(later))

    def told(some: list[Any]) -> str:
        ahead = sum(values.mean() > 0 for values in some)
        return f"{_interval(paired.t_interval(some))}, ahead on {ahead} of {len(some)} sets"

    apart = _interval(paired.t_interval(paired.contrast(several, single)))
    which = f"seed{'s' * (len(seeds) > 1)} {' and '.join(map(str, sorted(seeds)))}"
    text = (
        f"With {which} alone, ARB auto minus naive replay in points of area: {told(several)}, where several policies "
        f"recorded the data; {told(single)}, where one did; the first minus the second {apart}."
    )
    return textwrap.fill(text, 118, break_on_hyphens=False)


def pages() -> dict[Path, str]:
    """All texts that this script writes."""
    sys.path.insert(0, str(ROOT))
    from tests.test_package import LAYERS

    return {
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "architecture.svg": picture(LAYERS),
        DOCS / "suite.md": suite_page(),
        **({DOCS / "suite-scores.csv": reference_csv()} if REFERENCE.exists() else {}),
        ROOT / "README.md": filled((ROOT / "README.md").read_text(), "results", headline()),
        NOTES: filled(NOTES.read_text(), "later seeds", later_seeds()),
        DOCS / "temperature.md": filled((DOCS / "temperature.md").read_text(), "study", study_table(study())),
    }


if __name__ == "__main__":
    for path, text in {**pages(), **study_pictures()}.items():
        path.write_text(text)
        print(path.relative_to(ROOT))
