"""The results page: from archives to one Markdown file and its figures, so that no number is written by hand.

Every archive is a campaign of its own, with its own tables: budgets and datasets are never mixed. `notes.md` beside the
archives holds what no program can know (commands, how settings were chosen, known deviations) and is taken over.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arb.algorithms import agent_label
from arb.errors import DataError
from arb.paper.claims import verdicts
from arb.paper.findings import Campaign, answer, by_agent, by_quality, identity, losses, plain, temperatures
from arb.progress import count
from arb.report.baseline import paired_tables
from arb.report.cells import gather
from arb.report.comparison import episodes_of, score_table, steps_of
from arb.report.drawing import drawing, themed
from arb.report.figures import learning_curves, online_share
from arb.report.intervals import difference_intervals
from arb.report.page import write_files
from arb.report.page_data import told
from arb.report.record import Record
from arb.report.runs import ARCHIVE, Records, read_archive
from arb.strategies import strategy_label

NOTES = "notes.md"
_SHOWN = {
    "-curves": "learning curves",
    "-online-share": "online share of the batches",
    "-differences": "paired differences to naive replay",
}
"""What a figure shows, by a part of its name."""


def write_results(folder: Path, page: Path) -> tuple[Path, ...]:
    """Write the results page and its figures from the archives of a folder; the same archives give the same bytes.

    Args:
        folder: with archives `NAME.jsonl`, and perhaps `notes.md`.
        page: the Markdown file; its figures go into a folder of the same name beside it.
    """
    archives = sorted(folder.glob(f"*{ARCHIVE}")) if folder.is_dir() else []
    if not archives:
        raise DataError(f"there is no archive (*{ARCHIVE}) in {folder}: `arb report --pack RUNS` makes one")
    campaigns = [Campaign(path.stem, gather(Records((path,), tuple(read_archive(path))))) for path in archives]
    campaigns.sort(key=lambda campaign: -len({run.task for run in campaign.runs}))
    notes = folder / NOTES
    text, figures = results_page(campaigns, notes.read_text() if notes.is_file() else "", page.stem)
    return write_files(page.parent, {**figures, page.name: text.encode()})


def results_page(campaigns: Sequence[Campaign], notes: str, stem: str) -> tuple[str, dict[str, bytes]]:
    """The text of the page, and its figures by file name."""
    figures = {campaign.name: dict(_figures(campaign, stem)) for campaign in campaigns}
    shown = {name: [figure for figure in drawn if "-dark" not in figure] for name, drawn in figures.items()}
    first = next((figure for figure in shown[campaigns[0].name] if "-differences" in figure), None)
    parts = [
        "# Results",
        "<!-- Made by `arb report results --page docs/results.md` from the archives in results/. Do not edit. -->",
        "**Question.** Does the Adaptive Replay Buffer help when a policy that was pre-trained offline is fine-tuned "
        "online, and when?",
        "**Answer.** " + answer(campaigns),
        *([_picture(first)] if first else []),
        _scope(campaigns),
        *by_quality(campaigns),
        *by_agent(campaigns),
        "## The paper's claims\n\n" + plain(verdicts([campaign.results for campaign in campaigns])),
        "## Where ARB loses\n\n" + losses(campaigns),
        "## What the temperature does\n\n" + plain(temperatures(campaigns)),
    ]
    parts += [_campaign(one, sorted(name for name in shown[one.name] if name != first)) for one in campaigns]
    parts += ["## Protocol\n\n" + protocol(campaigns), "## Raw data\n\n" + _raw(campaigns)]
    if notes.strip():
        parts.append(notes.strip())
    return "\n\n".join(parts) + "\n", {name: image for drawn in figures.values() for name, image in drawn.items()}


def _picture(name: str) -> str:
    """A figure for light and dark pages."""
    kind, what = next((kind, what) for kind, what in _SHOWN.items() if kind in name)
    title = f"{Path(name).name.partition(kind)[0]}: {what}"
    dark = name.replace(".svg", "-dark.svg")
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    return f'<picture>{source}<img src="{name}" alt="{title}"></picture>'


# ---- one campaign ----------------------------------------------------------------------------------------------------
def _campaign(campaign: Campaign, figures: Sequence[str]) -> str:
    results = campaign.results
    parts = [f"## Archive `{campaign.name}`"]
    parts += [table.markdown().rstrip() for table in paired_tables(results)]
    parts += [score_table(results, agent, measure).markdown().rstrip()
              for agent in results.agents() for measure in ("area", "last")]  # fmt: skip
    parts += map(_picture, figures)
    lacking = results.runs.lacking
    if lacking:
        parts.append(f"{count(len(lacking), 'run')} of {len(results.runs.all)} failed and are in no table: "
                     + "; ".join(sorted({run.reason for run in lacking})) + ".")  # fmt: skip
    return "\n\n".join(parts)


def _figures(campaign: Campaign, stem: str) -> Iterator[tuple[str, bytes]]:
    results = campaign.results
    for ground, ending in (("light", ".svg"), ("dark", "-dark.svg")):
        with themed(ground):
            for agent in results.agents():
                name = f"{stem}/{campaign.name}-{results.file(agent)}"
                yield f"{name}-curves{ending}", drawing(learning_curves(results, agent))
                if any(cell.metric("replay.online_share") for cell in results.of(agent)):
                    yield f"{name}-online-share{ending}", drawing(online_share(results, agent))
                differences = difference_intervals(results, agent)
                if differences:
                    yield f"{name}-differences{ending}", drawing(differences)


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


def protocol(campaigns: Sequence[Campaign]) -> str:
    """Budgets, evaluations, versions, commits, machines and minutes per run, as the archives hold them."""
    lines = []
    for campaign in campaigns:
        cells = [cell for cell in campaign.results.cells if cell.finished]
        every = told(run.config.get("evaluation.every") for run in campaign.runs)
        lines += [
            f"**`{campaign.name}`**: {count(len(campaign.runs), 'run')} of {steps_of(cells)}; an evaluation every "
            f"{every} steps, with {episodes_of(cells)}.",
            "",
            f"- minutes per run: {_minutes(campaign.runs)}",
            f"- processor: {told(run.machine.get('cpu') for run in campaign.runs)}",
            f"- commit: {told(str(run.machine.get('commit') or '')[:12] for run in campaign.runs)}",
            f"- versions: {_versions(campaign.runs)}",
            "",
        ]
    return "\n".join([*lines, "Everything on this page is rebuilt without training by `arb report results --page "
                      "docs/results.md`."])  # fmt: skip


def _versions(runs: Sequence[Record]) -> str:
    names = sorted({name for run in runs for name in run.versions})
    return "; ".join(f"{name} {told(run.versions.get(name) for run in runs)}" for name in names)


def _minutes(runs: Sequence[Record]) -> str:
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.minutes is not None:
            found.setdefault(f"{agent_label(run.agent)} with {strategy_label(run.strategy)}", []).append(run.minutes)
    return ", ".join(f"{name} {np.median(values):.1f}" for name, values in sorted(found.items())) or "not recorded"


def _raw(campaigns: Sequence[Campaign]) -> str:
    rows = []
    for campaign in campaigns:
        hashes = sorted({(run.task, str(run.data.get("sha256", "?"))[:12]) for run in campaign.runs})
        data = ", ".join(f"{task} {sha}" for task, sha in hashes)
        rows.append(f"- `results/{campaign.name}{ARCHIVE}`: {count(len(campaign.runs), 'run')}; data (SHA-256): {data}")
    return "\n".join(["One JSON line per run, with every episode's return:", "", *rows])
