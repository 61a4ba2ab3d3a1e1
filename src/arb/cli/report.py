"""`arb report`: from run folders to tables, figures and one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """
examples:
  arb report runs                      every run below runs/, into report/index.html
  arb report runs/a runs/b -o compared
"""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parser().parse_args(arguments)
    from arb.report.page import write_report

    report = write_report(options.runs, options.out, title=options.title)
    print(report.text)
    print(f"page        {report.page}")
    print(
        f"files       {len(report.files)} in {options.out}, tables as txt, md, tex and csv, figures as png, svg and pdf"
    )
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="arb report", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs or sweeps, searched at any depth"
    )
    options.add_argument("-o", "--out", type=Path, default=Path("report"), help="folder of the report (report)")
    options.add_argument("--title", default="Offline-to-online runs compared", help="of the page")
    return options
