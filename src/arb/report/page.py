"""A report: one HTML page that needs nothing else, with its tables and figures as files beside it."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from arb.errors import DataError
from arb.files import atomic_write, check_folder
from arb.progress import count
from arb.report.cells import Results, gather
from arb.report.comparison import Group, groups, tables
from arb.report.drawing import rendered, themed
from arb.report.figures import figures
from arb.report.looks import curves
from arb.report.page_data import embedded, page_data
from arb.report.runs import Records, read_runs
from arb.report.tables import Table

_LIST = "files.json"
"""Names what a report wrote, so that the next one can remove what it no longer has."""


@dataclass(frozen=True)
class Report:
    """What was written."""

    text: str
    """The most important tables, for a terminal."""
    page: Path
    files: tuple[Path, ...]
    """All files, the page included."""


def write_report(paths: Sequence[Path], out: Path, *, title: str = "Offline-to-online runs compared") -> Report:
    """Read the runs below the paths and write the report into a folder.

    Every file appears whole or not at all, the page last. Files of other origin in the folder are left alone.

    Args:
        paths: folders of runs or sweeps.
        out: the folder to write into.
        title: of the page.
    """
    check_folder(out)
    runs = read_runs(paths)
    if not runs.all:
        missing = f"there are no runs below {', '.join(map(str, paths))}: a run folder holds a config.json"
        raise DataError("; ".join([missing, *runs.damaged]))
    results = gather(runs)
    together = groups(results)
    made = tables(results, together)
    content: dict[str, bytes] = {}
    for table in made:
        content |= {name: text.encode() for name, text in table.files().items()}
    with themed("light"):
        for name, figure in figures(results, together):
            content |= {f"figures/{name}.{ending}": drawn for ending, drawn in rendered(figure).items()}
    content["index.html"] = page(results, together, made, title).encode()
    written = write_files(out, content, _LIST)
    return Report(text(results, made), out / "index.html", written)


def page(results: Results, together: Sequence[Group], made: Sequence[Table], title: str) -> str:
    """The HTML page."""
    folder = resources.files("arb.report").joinpath("page_files")
    parts = {
        "TITLE": html.escape(title),
        "STYLE": folder.joinpath("page.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("chart.js", "page.js")),
        "DATA": embedded(page_data(results, together, made)),
    }
    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    # In one pass: what is put in is not searched again.
    return re.sub("@(TITLE|STYLE|SCRIPT|DATA)@", lambda found: parts[found[1]], template)


def text(results: Results, made: Sequence[Table]) -> str:
    """Areas, last evaluations and differences to naive replay of all agents, their curves, and what is lacking."""
    chosen = [table.text() for table in made if table.name.startswith(("area-", "last-", "paired-naive-1-"))]
    return "\n".join(part for part in [*chosen, curves(results), lacking(results.runs)] if part)


def lacking(runs: Records, most: int = 10) -> str:
    """The runs that are not in the tables, with their reasons, and the plans that cannot be read."""
    if not runs.lacking:
        finished = "The run is finished." if len(runs.all) == 1 else f"All {len(runs.all)} runs are finished."
        return "\n".join([finished, *runs.damaged]) + "\n"
    are = "is" if len(runs.lacking) == 1 else "are"
    lines = [f"{len(runs.lacking)} of {count(len(runs.all), 'run')} {are} missing from the tables:"]
    lines += [f"  {run.status:<10} {run.place}: {run.reason}" for run in runs.lacking[:most]]
    if len(runs.lacking) > most:
        lines.append(f"  ... and {len(runs.lacking) - most} more, listed on the page")
    return "\n".join([*lines, *runs.damaged]) + "\n"


def write_files(out: Path, content: Mapping[str, bytes], listing: str | None = None) -> tuple[Path, ...]:
    """Write files below a folder, each under another name first; with a listing, remove what an older one names."""
    check_folder(out)
    for folder in {out, *((out / name).parent for name in content)}:
        if folder.is_symlink():
            raise DataError(f"{folder} is a symbolic link: choose another folder with --out")
    written = tuple(out / name for name in content)
    before = _listed(out / listing) if listing else []
    names = json.dumps(sorted(content), indent=1).encode()
    everything = {**content, **({listing: names} if listing else {})}
    new = [out / name for name in everything if not (out / name).exists()]
    try:
        for name, data in everything.items():
            with atomic_write(out / name) as unfinished:
                unfinished.write_bytes(data)
    except OSError:  # a full disk: tables without the page that explains them are of no use
        for path in new:
            path.unlink(missing_ok=True)
        raise
    for name in before:
        if name not in content:
            (out / name).unlink(missing_ok=True)
    return written


def _listed(path: Path) -> list[str]:
    try:
        names = json.loads(path.read_text()) if path.is_file() and path.stat().st_size < 2**24 else []
    except (OSError, ValueError, RecursionError):
        return []
    inside = re.compile(r"(tables|figures)/[A-Za-z0-9_-]+\.[a-z]+")
    return (
        [name for name in names if isinstance(name, str) and inside.fullmatch(name)] if isinstance(names, list) else []
    )
