"""Write the parts of the documentation that are made from the code: `python tools/pages.py`.

- docs/reference/settings.md, from the table of settings;
- docs/architecture.svg, from the imports in src/arb;
- the tables in docs/suite.md, from the ladders that ship with the package, and from docs/suite.csv, which
  `python benchmarks/suite.py docs/suite.csv` writes.

`python tools/results/build.py` writes the parts that come from the archives in results/. `tests/test_docs.py` compares
what is committed with what this script gives.
"""

from __future__ import annotations

import ast
import csv
import io
import sys
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


def pages() -> dict[Path, str]:
    """All texts that this script writes."""
    sys.path.insert(0, str(ROOT))
    from tests.test_package import LAYERS

    return {
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "architecture.svg": picture(LAYERS),
        DOCS / "suite.md": suite_page(),
        **({DOCS / "suite-scores.csv": reference_csv()} if REFERENCE.exists() else {}),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
