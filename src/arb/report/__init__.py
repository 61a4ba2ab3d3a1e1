"""From run folders to statistics, tables, figures and one HTML page; reads files and knows nothing of training.

The package can be called: `arb.report("runs")` writes a report. A function of this name in `arb` would be hidden by the
package as soon as anything imports it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arb.report.page import Report

PathLike = str | os.PathLike[str]


def report(*folders: PathLike, out: PathLike | None = None, title: str = "Offline-to-online runs compared") -> Report:
    """Tables, figures and a page of the runs below some folders; `report(...).text` is the table in words.

    Args:
        folders: of runs or sweeps, or archives of runs.
        out: the folder to write into; `report` below the first folder if not given.
        title: of the page.
    """
    from arb.errors import DataError
    from arb.report.page import write_report

    if not folders:
        raise DataError("arb.report() needs a folder of runs or an archive: arb.report('runs')")
    paths = [Path(folder) for folder in folders]
    return write_report(paths, Path(out) if out else paths[0] / "report", title=title)


class _Callable(ModuleType):
    def __call__(self, *folders: PathLike, **options: Any) -> Report:
        return report(*folders, **options)


sys.modules[__name__].__class__ = _Callable
