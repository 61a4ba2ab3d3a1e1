"""Write this repository's results from the archives in results/: `python tools/results/build.py`.

- docs/results.md, the answer; docs/results/NAME.md, the tables of an archive; their plots;
- the parts of README.md, results/notes.md and docs/temperature.md that come from archives (`headline.py`).

`notes.md` beside the archives holds what no program can know (commands, how settings were chosen, known deviations) and
is taken over.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.pages import transparent_svg
from tools.results.claims import verdicts
from tools.results.findings import (
    Campaign,
    again,
    answer,
    by_agent,
    by_quality,
    identity,
    limits,
    losses,
    plain,
    temperatures,
)
from tools.results.foresight import foresight, picture

from arb.errors import DataError
from arb.lab.agents import agent_label
from arb.lab.strategies import strategy_label
from arb.progress import count
from arb.report.page import summarise, write_files
from arb.report.plots import agent_figures, themed
from arb.report.records import ARCHIVE, Record, Runs, group_runs, read_archive
from arb.report.tables import episodes_of, paired_tables, score_table, steps_of

NOTES = "notes.md"
PREDICTION = "what-the-first-refresh-predicts"
"""File name of a figure."""
_MADE = "<!-- Made by `python tools/results/build.py` from the archives in results/. Do not edit. -->"
EDITION = (
    "**First edition.** These runs used networks of 128 units and batches of 128, below the size at which IQL works; "
    "they are being replaced by runs with the published settings."
)
_GROUNDS = {"light": ".svg", "dark": "-dark.svg"}
"""How the names of figures end."""
_SHOWN = {
    "differences": "paired differences to naive replay",
    "curves": "learning curves",
    "online-share": "online share of the batches",
}
"""What each kind of figure shows."""


def write_results(folder: Path, page: Path) -> tuple[Path, ...]:
    """Write the results page, a page per archive, and their figures; the same archives give the same bytes.

    Args:
        folder: with archives `NAME.jsonl`, and perhaps `notes.md`.
        page: the Markdown file; pages of archives and figures go into a folder of the same name beside it.
    """
    archives = sorted(folder.glob(f"*{ARCHIVE}")) if folder.is_dir() else []
    if not archives:
        raise DataError(f"there is no archive (*{ARCHIVE}) in {folder}: `arb report --pack RUNS` makes one")
    campaigns = [Campaign(path.stem, group_runs(Runs(tuple(read_archive(path))))) for path in archives]
    if not any(campaign.runs for campaign in campaigns):
        raise DataError(f"no archive in {folder} holds a finished run: there is nothing to show")
    campaigns.sort(key=lambda campaign: -len({run.task for run in campaign.runs}))
    notes = folder / NOTES
    below: dict[str, bytes] = {}
    for campaign in campaigns:
        figures = dict(figures_of(campaign))
        below |= {**figures, f"{campaign.name}.md": archive_page(campaign, figures, page.name).encode()}
    below |= dict(_prediction(campaigns))
    text = results_page(campaigns, below, notes.read_text() if notes.is_file() else "", page.stem)
    beside = {f"{page.stem}/{name}": content for name, content in below.items()}
    return write_files(page.parent, {**beside, page.name: text.encode()})


def results_page(campaigns: Sequence[Campaign], drawn: Collection[str], notes: str, stem: str) -> str:
    """The main page: the answer, what it rests on, and where to find the rest.

    Args:
        campaigns: the archives; the first is shown with its curves.
        drawn: names of the figures that there are.
        notes: the last part of the page.
        stem: folder of the figures and of the pages of archives.
    """
    main = campaigns[0]
    agent, _ = Counter(run.agent for run in main.runs).most_common(1)[0]
    first, *shown = pictures(main, agent, drawn, f"{stem}/")
    parts = [
        "# Results",
        EDITION,
        _MADE,
        "**Question.** Does the Adaptive Replay Buffer help when a policy that was pre-trained offline is fine-tuned "
        "online, and when?",
        "**Answer.** " + answer(campaigns),
        _led("Again", again(campaigns)),
        "**Limits.** " + limits(campaigns),
        first,
        _scope(campaigns),
        *by_quality(campaigns),
        *by_agent(campaigns),
        f"## Areas and curves\n\n{agent_label(agent)}, [archive `{main.name}`]({stem}/{main.name}.md):",
        plain(score_table(main.results, agent, "area")),
        *shown,
        _section("What the first refresh predicts", _pictured(PREDICTION, "gains of ARB auto", drawn, f"{stem}/")),
        foresight(campaigns),
        "## Where ARB loses\n\n" + losses(campaigns),
        "## What the temperature does\n\n" + plain(temperatures(campaigns)),
        "## The paper's claims\n\n" + plain(verdicts([campaign.results for campaign in campaigns])),
        "## Protocol\n\n" + protocol(campaigns, stem),
        notes.strip(),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _led(word: str, content: str) -> str:
    return f"**{word}.** {content}" if content else ""


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content}" if content else ""


# ---- one campaign ----------------------------------------------------------------------------------------------------
def archive_page(campaign: Campaign, drawn: Collection[str], back: str) -> str:
    """All tables and figures of one archive; a note stands below the first table that it is about.

    Args:
        campaign: the archive.
        drawn: names of the figures that there are.
        back: file name of the main page, in the folder above.
    """
    results = campaign.results
    tables = paired_tables(results)
    tables += [score_table(results, agent, measure) for agent in results.agents() for measure in ("area", "last")]
    parts = [f"# Archive `{campaign.name}`", _MADE, f"[Back to the results](../{back})"]
    said: set[str] = set()
    for table in tables:
        fresh = tuple(note for note in table.notes if note not in said)
        parts.append(replace(table, notes=fresh).markdown().rstrip())
        said |= set(fresh)
    for agent in results.agents():
        parts += pictures(campaign, agent, drawn)
    parts.append("## How it was made\n\n" + made(campaign))
    missing = results.runs.missing
    if missing:
        parts.append(f"{count(len(missing), 'run')} of {len(results.runs.all)} failed and are in no table: "
                     + "; ".join(sorted({run.reason for run in missing})) + ".")  # fmt: skip
    return "\n\n".join(parts) + "\n"


def figures_of(campaign: Campaign) -> Iterator[tuple[str, bytes]]:
    """The figures of an archive with their file names, each for light and dark pages."""
    for ground, ending in _GROUNDS.items():
        with themed(ground):
            for agent in campaign.results.agents():
                for kind, figure in agent_figures(campaign.results, agent):
                    yield _file(campaign, agent, kind) + ending, transparent_svg(figure)


def pictures(campaign: Campaign, agent: str, drawn: Collection[str], folder: str = "") -> Iterator[str]:
    """The figures of an agent on a page, differences first; what was not drawn is left out."""
    for kind, what in _SHOWN.items():
        title = f"{campaign.name}, {agent_label(agent)}: {what}"
        yield from filter(None, [_pictured(_file(campaign, agent, kind), title, drawn, folder)])


def _pictured(name: str, title: str, drawn: Collection[str], folder: str) -> str:
    """A figure for light and dark pages; nothing if it was not drawn."""
    light, dark = (name + ending for ending in _GROUNDS.values())
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{folder}{dark}">'
    return f'<picture>{source}<img src="{folder}{light}" alt="{title}"></picture>' if light in drawn else ""


def _prediction(campaigns: Sequence[Campaign]) -> Iterator[tuple[str, bytes]]:
    """The one figure that is drawn from all archives."""
    for ground, ending in _GROUNDS.items():
        with themed(ground):
            figure = picture(campaigns)
        if figure is not None:
            yield PREDICTION + ending, transparent_svg(figure)


def _file(campaign: Campaign, agent: str, kind: str) -> str:
    return f"{campaign.name}-{campaign.results.file(agent)}-{kind}"


# ---- how it was done -------------------------------------------------------------------------------------------------
def _scope(campaigns: Sequence[Campaign]) -> str:
    """How much there is; a run that is in two archives counts once."""
    found = (run for campaign in campaigns for run in campaign.runs)
    runs = list({identity(run): run for run in found}.values())
    tasks = {run.task for run in runs}
    hours = sum(run.minutes or 0.0 for run in runs) / 60.0 - _shared_hours(runs)
    known = f", {hours:.1f} hours of wall time, shared pre-training counted once" if hours else ""
    return (
        f"{count(len(runs), 'finished run')} on {count(len(tasks), 'task')} in {count(len(campaigns), 'archive')}"
        f"{known}. Differences are paired: strategies of one seed start from the same pre-trained agent. The area "
        "under the online curve decides; [the report's page](report.md) defines every number."
    )


def _shared_hours(runs: Sequence[Record]) -> float:
    """What the time of all runs holds of pre-training beyond the first run that it was done for."""
    spent = [(run.agent, run.task, run.seed, run.seconds.get("pretrain", 0.0)) for run in runs]
    return sum(seconds for *_, seconds in spent) / 3600.0 - sum(seconds for *_, seconds in set(spent)) / 3600.0


def protocol(campaigns: Sequence[Campaign], stem: str) -> str:
    """What was run for each archive, with links to their pages."""
    lines = ["Each archive has a page with all its tables and figures, versions and data:", ""]
    for name, results in campaigns:
        cells = [cell for cell in results.groups if cell.finished]
        runs = [run for cell in cells for run in cell.runs]
        if not runs:
            lines.append(f"- [`{name}`]({stem}/{name}.md): no finished run")
            continue
        agents = " and ".join(map(agent_label, results.agents()))
        tasks = count(len({run.task for run in runs}), "task")
        every = summarise(run.config.get("evaluation.every") for run in runs)
        lines.append(
            f"- [`{name}`]({stem}/{name}.md): {agents} on {tasks}, {count(len(runs), 'run')} of {steps_of(cells)}; an "
            f"evaluation every {every} steps, with {episodes_of(cells)}"
        )
    everything = [run for campaign in campaigns for run in campaign.runs]
    lines += [
        "",
        f"Processor: {summarise(run.machine.get('cpu') for run in everything)}. Versions: {_versions(everything)}.",
    ]
    lines += ["`python tools/results/build.py` rebuilds all pages without training."]
    return "\n".join(lines)


def made(campaign: Campaign) -> str:
    """Minutes per run, machine, commits, versions and data, as an archive holds them."""
    runs = campaign.runs
    data = sorted({f"{run.task} {str(run.data.get('sha256', '?'))[:12]}" for run in runs})
    return "\n".join(
        [
            f"- raw data: `results/{campaign.name}{ARCHIVE}`, {count(len(runs), 'run')}, a JSON line each, with every "
            "episode's return",
            f"- minutes per run: {_minutes(runs)}",
            f"- processor: {summarise(run.machine.get('cpu') for run in runs)}",
            f"- commit: {summarise(str(run.machine.get('commit') or '')[:12] for run in runs)}",
            f"- versions: {_versions(runs)}",
            f"- datasets (SHA-256): {', '.join(data)}",
        ]
    )


def _versions(runs: Sequence[Record]) -> str:
    names = sorted({name for run in runs for name in run.versions})
    return "; ".join(f"{name} {summarise(run.versions.get(name) for run in runs)}" for name in names)


def _minutes(runs: Sequence[Record]) -> str:
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.minutes is not None:
            found.setdefault(f"{agent_label(run.agent)} with {strategy_label(run.strategy)}", []).append(run.minutes)
    return ", ".join(f"{name} {np.median(values):.1f}" for name, values in sorted(found.items())) or "not recorded"


if __name__ == "__main__":
    from tools.results import headline

    for path, text in headline.pages().items():
        path.write_text(text)
    for path, plot in headline.study_plots().items():
        path.write_bytes(plot)
    written = write_results(headline.ARCHIVES, headline.ROOT / "docs" / "results.md")
    print(
        f"docs/results.md, {count(len(written) - 1, 'file')} below it, README.md, results/notes.md, docs/temperature.md"
    )
